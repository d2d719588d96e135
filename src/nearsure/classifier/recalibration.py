"""What a few labelled queries say about the confidence of the queries to come.

The calibrator of a gallery was fitted on its own points. Where queries differ from them, some of
the queries are labelled, and their answers move it: the new logit of a confidence is ``slope *
logit + intercept``, slope and intercept being normal about 1 and 0 beforehand. How far they may
move is not known either. Four cases are weighed by how well each explains the labels (the marginal
likelihood, by Laplace's approximation), and the line is their mean: with few labels, or labels that
agree with the gallery, it stays near the gallery's fit; with hundreds it is that of the labels.

References
----------
Hoeffding: On the Distribution of the Number of Successes in Independent Trials. 1956.
MacKay: Information Theory, Inference, and Learning Algorithms, chapter 28. 2003.
"""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from scipy.special import expit, logit

from nearsure.arrays import AnyArray, BoolArray, FloatArray, IntArray
from nearsure.calibration import LOWEST_SLOPE, PRIOR_SPREAD, ShrunkPlatt, clip_inside
from nearsure.errors import InvalidInputError
from nearsure.labels import restored_classes, stored_classes
from nearsure.logistic import fit_bounded_logistic
from nearsure.schema import COUNT, TEXT, array, check_fields, number, unreadable
from nearsure.validation import check_positive_integer

# Fewer labels hold next to nothing: the standard error of a share of 20 is up to 11 points.
FEWEST_LABELS = 20
# Before any label: queries are like the gallery, or not, with even odds.
LIKE_GALLERY = 0.5
# If not, slope and intercept have one of these standard deviations, with even odds: that of the
# gallery's own calibrator and less. Others that were tried move the mean ECE of 100
# labels by 0.2 points or less.
SPREADS = (0.25 * PRIOR_SPREAD, 0.5 * PRIOR_SPREAD, PRIOR_SPREAD)
# Rows of one band of confidence, which are ordered by class, of which this many are labelled.
LABELS_IN_BAND = 5


def fit_line(
    confidence: FloatArray, correct: BoolArray, weights: FloatArray | None = None
) -> tuple[ShrunkPlatt, float]:
    """Find the line that labelled queries speak for, and the chance that none was needed.

    Parameters
    ----------
    confidence : array of shape (n,)
        Of the answers, as the gallery's fit has it.
    correct : array of shape (n,)
        Whether they are right.
    weights : array of shape (n,), optional
        How much each answer counts, in answers; by default 1.

    Examples
    --------
    >>> sure = np.full(60, 0.9)
    >>> line, like_gallery = fit_line(sure, np.arange(60) % 10 > 0)
    >>> line([0.9]).round(2), like_gallery > 0.5
    (array([0.9]), True)
    >>> line, like_gallery = fit_line(sure, np.arange(60) % 2 > 0)
    >>> line([0.9]).round(2), like_gallery < 0.001
    (array([0.51]), True)
    """
    if not len(confidence):
        return ShrunkPlatt(1.0, 0.0), LIKE_GALLERY
    x = np.asarray(logit(clip_inside(confidence)), np.float64)
    counts = np.ones(len(x)) if weights is None else weights
    design = np.stack([np.ones_like(x), x], axis=1)
    lines = [np.array([0.0, 1.0])]
    log_weights = [np.log(LIKE_GALLERY) + _log_likelihood(x, correct, counts)]
    for spread in SPREADS:
        pull = 1.0 / spread**2
        intercept, (slope,) = fit_bounded_logistic(
            x[:, None],
            correct,
            counts,
            lowest=LOWEST_SLOPE,
            usual=1.0,
            pull=pull,
            pull_intercept=True,
            divisor=len(x),
            tolerance=1e-12,
        )
        line = np.array([intercept, slope])
        logits = design @ line
        p = expit(logits)
        curvature = (design * (counts * p * (1.0 - p))[:, None]).T @ design + pull * np.eye(2)
        log_prior = np.log(pull) - 0.5 * pull * (intercept**2 + (slope - 1.0) ** 2)
        log_evidence = (
            _log_likelihood(logits, correct, counts)
            + log_prior
            - 0.5 * np.linalg.slogdet(curvature)[1]
        )
        lines.append(line)
        log_weights.append(np.log((1.0 - LIKE_GALLERY) / len(SPREADS)) + log_evidence)
    chances = np.exp(np.array(log_weights) - max(log_weights))
    chances /= chances.sum()
    intercept, slope = (chances @ np.stack(lines)).tolist()
    return ShrunkPlatt(slope, intercept), float(chances[0])


def _log_likelihood(logits: FloatArray, correct: BoolArray, counts: FloatArray) -> float:
    return float((counts * (correct * logits - np.logaddexp(0.0, logits))).sum())


def choose_rows(
    confidence: FloatArray, codes: IntArray, n: int, rng: np.random.Generator
) -> IntArray:
    """Choose so many rows, spread over the confidence and the predicted classes, each as likely.

    Rows are ordered by confidence in bands, and by class within a band; of each of n blocks of
    equally many rows one is drawn. So the rows are a fair sample, of which a promise may be made,
    and say more than rows drawn without regard: the number of right ones among those above any
    confidence varies less (Hoeffding). Rows near a threshold are not preferred, as a promise from
    such a sample would be about another mixture of queries.

    Parameters
    ----------
    confidence, codes : array of shape (n_rows,)
        Of the answers.
    n : int
        At most n_rows, or it is refused.
    rng : numpy.random.Generator
        Source of the draws.

    Returns
    -------
    array of shape (n,)
        Ascending.
    """
    n, n_rows = check_positive_integer("n", n), len(confidence)
    if n > n_rows:
        raise InvalidInputError(
            f"The 'n' parameter must be at most the number of queries, {n_rows}. Got {n} instead."
        )
    # Blocks of one size, so that every row is as likely, and rows of equal confidence in no order.
    rows = rng.permutation(n_rows)[: n_rows - n_rows % n]
    rows = rows[np.argsort(confidence[rows], kind="stable")]
    bands = np.arange(len(rows)) * n // (LABELS_IN_BAND * len(rows))
    blocks = rows[np.lexsort((codes[rows], bands))].reshape(n, -1)
    return np.sort(blocks[np.arange(n), rng.integers(blocks.shape[1], size=n)])


_FRACTION = number("a number in [0, 1]", 0.0, 1.0)
_STORED = {
    "labels_dtype": TEXT,
    "n_right": COUNT,
    "mean_before": _FRACTION,
    "mean_after": _FRACTION,
    "like_gallery": _FRACTION,
}


@dataclass(frozen=True, eq=False)
class Recalibration:
    """What `NEDClassifier.recalibrate` has learned, and from what.

    Parameters
    ----------
    vectors : array of shape (n, n_features)
        The labelled queries, which `refit` asks again.
    labels : array of shape (n,)
        Their labels.
    n_right : int
        How many of them were answered rightly.
    mean_before, mean_after : float
        Mean confidence of their answers, as the gallery's fit had it and as it is now.
    like_gallery : float
        Probability that the gallery's own calibration holds for these queries, 0.5 before any label
        was seen.
    """

    vectors: AnyArray
    labels: AnyArray
    n_right: int
    mean_before: float
    mean_after: float
    like_gallery: float

    def __len__(self) -> int:
        return len(self.labels)

    def __str__(self) -> str:
        n = len(self)
        return (
            f"{n:,} labelled queries, {self.n_right / n:.1%} of them answered rightly: mean "
            f"confidence {self.mean_before:.1%} by the gallery alone, {self.mean_after:.1%} now. "
            "The gallery's own calibration holds for them with probability "
            f"{self.like_gallery:.2g}."
        )

    def to_state(self) -> tuple[dict[str, Any], dict[str, AnyArray]]:
        """Numbers for JSON, and arrays."""
        numbers = {name: getattr(self, name) for name in _STORED if name != "labels_dtype"}
        arrays = {
            "labelled_vectors": self.vectors,
            "labelled_labels": stored_classes(self.labels),
        }
        return {"labels_dtype": self.labels.dtype.str, **numbers}, arrays

    @classmethod
    def from_state(
        cls, numbers: dict[str, Any], arrays: dict[str, AnyArray], *, n_features: int
    ) -> Self:
        """The inverse of `to_state`; `ModelFileError` for anything else."""
        owner = "The recalibration of the model"
        check_fields(owner, numbers, _STORED)
        labels = restored_classes(arrays["labelled_labels"], numbers["labels_dtype"])
        vectors = array("float32 float64", len(labels), n_features, low=-1e150, high=1e150)
        own = {"labelled_vectors": arrays["labelled_vectors"]}
        check_fields(owner, own, {"labelled_vectors": vectors})
        if not 0 <= numbers["n_right"] <= len(labels) or not len(labels):
            raise unreadable(owner, "there must be some, and no more right than there are")
        fields = {name: numbers[name] for name in _STORED if name != "labels_dtype"}
        return cls(vectors=own["labelled_vectors"], labels=labels, **fields)
