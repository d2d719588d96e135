"""The classifier's confidence for those who have neighbours from an engine of their own."""

import numpy as np
from numpy.typing import ArrayLike

from nearsure.classifier.fitted_rule import SHARPENED_NAMES, FittedRule, fit_rule
from nearsure.classifier.own_pass import OwnPass
from nearsure.classifier.parameters import check_among, chosen_calibration
from nearsure.errors import InvalidInputError
from nearsure.forms.left_out import factors_of_sizes
from nearsure.neighbors import Neighbors, integer_codes
from nearsure.rules import RULE_NAMES


def fit_confidence(
    own: Neighbors,
    labels: ArrayLike,
    *,
    rule: str = "adaptive",
    calibration: str = "auto",
    class_counts: ArrayLike | None = None,
) -> FittedRule:
    """Learn from a gallery's own neighbours how sure to be; any engine may have found them.

    Parameters
    ----------
    own : Neighbors
        Neighbours of support points among the support set, without the points themselves: see
        `leave_one_out`. All points, or a random sample of them.
    labels : array of shape (n,)
        Integer class codes of the points.
    rule, calibration : str
        As of `NEDClassifier`.
    class_counts : array of shape (n_classes,), optional
        Members of each class in the gallery; by default they are counted in `labels`, which is
        right if `own` is of all points.

    Returns
    -------
    FittedRule
        ``posterior(neighbors)`` of what the engine found for queries, with as many neighbours.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> found = Neighbors(np.sort(rng.random((300, 9))), rng.integers(0, 3, (300, 9)))
    >>> labels = found.labels[np.arange(300), rng.integers(0, 4, 300)]
    >>> confidence = fit_confidence(found, labels).posterior(found).confidence
    >>> bool(((confidence > 1 / 3) & (confidence < 1)).all())
    True
    """
    codes = integer_codes(labels)
    if codes.shape != (len(own),):
        raise InvalidInputError(
            f"labels must be one class code for each of the {len(own)} points. "
            f"Got an array of shape {codes.shape} instead."
        )
    check_among("rule", rule, (*RULE_NAMES, *SHARPENED_NAMES))
    n_classes = int(max(codes.max(), own.labels.max())) + 1
    counts = np.bincount(codes, minlength=n_classes)
    if class_counts is not None:
        counts = integer_codes(class_counts)
        if len(counts) < n_classes or (counts < np.bincount(codes, minlength=len(counts))).any():
            raise InvalidInputError(
                f"class_counts must count the members of all {n_classes} classes, at least as many "
                "as there are points of each."
            )
    factors = factors_of_sizes(counts[codes], counts[codes] - 1)
    return fit_rule(
        rule,
        OwnPass(np.arange(len(codes)), own, codes, factors, 0),
        temperature=None,
        objective="nll",
        calibration=chosen_calibration(calibration, rule, "support"),
        class_sizes=counts,
        prior_factors=None,
    )
