"""Two vectors of a gallery's space compared: learned from its own pairs when first asked."""

from dataclasses import replace
from math import isinf
from threading import Lock
from typing import Any

import numpy as np

from nearsure.arrays import AnyArray
from nearsure.classifier import NEDClassifier
from nearsure.errors import InvalidInputError
from nearsure.index import unit_vectors
from nearsure.pairs import PairConfidence, PairThreshold
from nearsure.service.errors import ProblemError
from nearsure.service.gallery import ServedGallery

# Of the threshold that answers name; fewer classes than it takes promise nothing.
FALSE_ACCEPT = 0.01


class ServedPairs:
    """What was learned from the pairs of a served gallery, and learned again after each refit.

    Parameters
    ----------
    gallery : ServedGallery
        Whose points: those that its fit was made on, as far as they are still there.
    """

    def __init__(self, gallery: ServedGallery) -> None:
        self._gallery = gallery
        self._learning = Lock()
        self._learned: tuple[int, PairConfidence, PairThreshold] | None = None

    def compare(self, first: AnyArray, second: AnyArray, base_rate: float) -> dict[str, Any]:
        """The `Comparison` of two vectors, shape (dimension,), as JSON has it."""
        number, pairs, threshold = self._learn()
        even = float(pairs.probability(first[None], second[None])[0])
        stated = replace(threshold, threshold=_shift(threshold.threshold, base_rate))
        if pairs.metric == "cosine":
            first, second = unit_vectors(np.stack([first, second]))
        away = first.astype(np.float64) - second
        return {
            "probability": _shift(even, base_rate),
            "base_rate": base_rate,
            "sq_distance": float(away @ away),
            "accepted": even >= threshold.threshold if threshold.reached else None,
            "sentence": str(stated),
            "model": number,
        }

    def _learn(self) -> tuple[int, PairConfidence, PairThreshold]:
        fit = self._gallery.fit
        with self._learning:
            if self._learned is None or self._learned[0] != fit.number:
                try:
                    number, pairs = self._gallery.read_whole(_fit_pairs)
                except InvalidInputError as error:
                    raise ProblemError(409, "no_pairs", str(error)) from error
                self._learned = number, pairs, pairs.threshold(false_accept=FALSE_ACCEPT)
            return self._learned


def _fit_pairs(classifier: NEDClassifier, number: int) -> tuple[int, PairConfidence]:
    vectors, codes, groups = classifier.own_points()
    pairs = PairConfidence(metric=classifier.metric_)
    return number, pairs.fit(vectors, classifier.classes_[codes], groups=groups)


def _shift(even: float, base_rate: float) -> float:
    """A probability for as many same pairs as different ones, for a base rate.

    Examples
    --------
    >>> round(_shift(0.5, 0.2), 6), _shift(1.0, 0.2)
    (0.2, 1.0)
    """
    if isinf(even):
        return even
    return even * base_rate / (even * base_rate + (1.0 - even) * (1.0 - base_rate))
