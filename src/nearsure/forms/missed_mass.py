"""The chance that a query's true class is not among its k neighbours at all.

NED divides all probability among the classes it sees. Leave-one-out points show how often the true
class is not seen; but a point of a class of s members leaves s - 1 to be found, and a query has s.
In a gallery of small classes that is no detail: with 3 members to find instead of 4, misses are
half as many again.

So the rate is followed down. Take a point of a class of s members: it misses, or not, with s - 1
available. Had one more of them been missing, chosen at random, a point with one single hit would
have lost it with the chance 1 / (s - 1): that gives the rate with s - 2, on the very same points.
The two rates give the power c of M(a) = (a + 1)^-c, and that the rate with s. Rates of all class
sizes are made non-increasing in the number available by isotonic regression.
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq
from scipy.special import expit, logit
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression

from nearsure.arrays import BoolArray, FloatArray, IntArray
from nearsure.errors import InvalidInputError
from nearsure.neighbors import Neighbors
from nearsure.posterior import Posterior
from nearsure.schema import Document
from nearsure.validation import integer_codes

if TYPE_CHECKING:
    from typing import Self


@dataclass(frozen=True)
class MissedMass(Document):
    """Miss rates by the number of members that a query's class has in the gallery.

    Parameters
    ----------
    sizes : tuple of int
        Numbers of members, ascending.
    rates : tuple of float
        Share of queries of such a class that miss it, not increasing.
    share : float
        Share of all queries that miss their class, under the prior of `fit`.

    Examples
    --------
    >>> missed = MissedMass(sizes=(0, 1, 2), rates=(1.0, 0.3, 0.1), share=0.2)
    >>> missed.of_class_size([1, 2, 50])
    array([0.3, 0.1, 0.1])
    """

    sizes: tuple[int, ...]
    rates: tuple[float, ...]
    share: float

    def __post_init__(self) -> None:
        if len(self.sizes) != len(self.rates) or not self.sizes:
            raise InvalidInputError(
                "sizes and rates must be equally many, and at least one. "
                f"Got {len(self.sizes)} and {len(self.rates)} instead."
            )
        if (np.diff(self.sizes) <= 0).any() or (np.diff(self.rates) > 0).any():
            raise InvalidInputError(
                "sizes must ascend and rates must not. "
                f"Got {self.sizes[:5]} and {self.rates[:5]} and so on instead."
            )
        if not all(0 <= fraction <= 1 for fraction in (*self.rates, self.share)):
            raise InvalidInputError(
                "rates and share must lie in [0, 1]. "
                f"Got {self.rates[:5]} and so on, and {self.share} instead."
            )

    @classmethod
    def fit(
        cls,
        neighbors: Neighbors,
        codes: ArrayLike,
        class_counts: ArrayLike,
        *,
        prior: ArrayLike | None = None,
    ) -> "Self":
        """Estimate the rates from leave-one-out neighbours.

        Parameters
        ----------
        neighbors : Neighbors
            Neighbours of support points among the support set, without the points themselves,
            for the k that queries are searched with.
        codes : array of shape (n,)
            Their class codes.
        class_counts : array of shape (n_classes,)
            Members of each class in the support set.
        prior : array of shape (n_classes,), optional
            How often queries come from each class, with any positive sum; by default as often as
            the support set holds it.
        """
        codes = integer_codes(codes, len(neighbors), "codes")
        counts = integer_codes(class_counts)
        _check(codes, counts)
        sizes, rates = _rates(neighbors, codes, counts)
        shares = counts.astype(np.float64) if prior is None else np.asarray(prior, np.float64)
        if shares.shape != counts.shape or not (shares >= 0).all() or not 0 < shares.sum() < np.inf:
            raise InvalidInputError(
                f"prior must be one number of at least 0 for each of the {len(counts)} classes, "
                f"not all 0. Got {prior!r} instead."
            )
        share = float(np.average(np.interp(counts, sizes, rates), weights=shares))
        return cls(tuple(sizes.tolist()), tuple(rates.tolist()), min(share, 1.0))

    def of_class_size(self, sizes: ArrayLike) -> FloatArray:
        """Share of queries that miss a class of so many members, of the shape of `sizes`."""
        return np.asarray(np.interp(np.asarray(sizes, np.float64), self.sizes, self.rates))


def leave_room(posterior: Posterior, share: ArrayLike) -> Posterior:
    """The posterior scaled so that each query's probabilities sum to 1 - share.

    Parameters
    ----------
    posterior : Posterior
        Its ranking is kept.
    share : float, or array of shape (n,)
        Probability of all classes that are not among a query's neighbours, in [0, 1].

    Examples
    --------
    >>> certain = Posterior(np.array([0, 1]), np.array([3]), np.array([1.0]), n_classes=4)
    >>> leave_room(certain, 0.25).confidence
    array([0.75])
    """
    shares = np.asarray(share, np.float64)
    if shares.shape not in {(), (len(posterior),)} or not ((shares >= 0) & (shares <= 1)).all():
        raise InvalidInputError(
            f"share must be in [0, 1]: one number, or one for each of the {len(posterior)} "
            f"queries. Got {share!r} instead."
        )
    sums = np.bincount(posterior.rows, posterior.probabilities, minlength=len(posterior))
    factors = np.divide(1.0 - shares, sums, out=np.zeros(len(posterior)), where=sums > 0)
    scaled = posterior.probabilities * factors[posterior.rows]
    return replace(posterior, probabilities=np.minimum(scaled, 1.0))


def _rates(neighbors: Neighbors, codes: IntArray, counts: IntArray) -> tuple[IntArray, FloatArray]:
    """Numbers of available members from 0 on, and the miss rate with each."""
    hits = (neighbors.labels == codes[:, None]).sum(axis=1)
    point_sizes = counts[codes]
    available, observed, weights = [0], [1.0], [float(len(codes))]
    for size in np.unique(point_sizes[point_sizes > 1]).tolist():
        own_hits = hits[point_sizes == size]
        missed = float((own_hits == 0).mean())
        missed_with_one_less = missed + float((own_hits == 1).mean()) / (size - 1)
        missed_with_one_more = _with_one_more(missed, missed_with_one_less, size)
        available += [size - 2, size - 1, size]
        observed += [missed_with_one_less, missed, missed_with_one_more]
        weights += [float(len(own_hits))] * 3
    isotonic = IsotonicRegression(increasing=False, y_min=0.0, y_max=1.0)
    isotonic.fit(available, observed, sample_weight=weights)
    sizes = np.unique(available)
    return sizes, np.asarray(isotonic.predict(sizes), np.float64)


def _with_one_more(missed: float, missed_with_one_less: float, size: int) -> float:
    """The rate with `size` members, from those with one less and two less, by a power of size + 1.

    A power, not a geometric series: what one more member adds grows less with every member.
    """
    if missed == 0:
        return 0.0
    power = np.log(missed_with_one_less / missed) / np.log(size / (size - 1))
    return float(missed * (size / (size + 1)) ** power)


def _check(codes: IntArray, counts: IntArray) -> None:
    if counts.ndim != 1 or codes.min() < 0 or codes.max() >= len(counts):
        raise InvalidInputError(
            "class_counts must be one count for each class, in the order of the codes. "
            f"Got an array of shape {counts.shape} for codes up to {codes.max()} instead."
        )
    if counts[codes].max() <= 1:
        raise InvalidInputError(
            "Some class must have two or more members, or every point misses its class when left "
            "out. Got none: the share that queries miss cannot be estimated."
        )


# The chance that a query's true class is not among its neighbours, by the query's confidence.
#
# One share for all queries is right on average, and wrong for each: a query whose neighbours agree
# has hardly ever missed its class. The logit of the chance is a line in the logit of the
# confidence.


# A confidence of 1 has no logit; it counts as this much less.
SMALLEST_DOUBT = 1e-4
# A share of 0 has no logit either.
SMALLEST_SHARE = 1e-9
# Hardly a penalty, but enough for a finite answer where a threshold parts misses from hits.
PENALTY_INVERSE = 1e4
# Wide enough to move any line to any share: confidences have logits up to 9.
WIDEST_SHIFT = 1e4


@dataclass(frozen=True)
class MissedByConfidence:
    """logit(share) = intercept + slope logit(confidence); `fit` makes it.

    Parameters
    ----------
    slope : float
        At most 0: the surer, the less is missed.
    intercept : float
        Logit of the share at a confidence of 1/2.

    Examples
    --------
    >>> missed = MissedByConfidence(slope=-1.0, intercept=0.0)
    >>> missed([0.5, 0.75])
    array([0.5 , 0.25])
    """

    slope: float
    intercept: float

    @classmethod
    def fit(cls, confidence: FloatArray, missed: BoolArray, share: float) -> "Self":
        """The line of greatest likelihood on leave-one-out points, moved to a mean of `share`.

        Leave-one-out points miss more than queries do: their slope is taken, their level is not.

        Parameters
        ----------
        confidence : array of shape (n,)
            Of leave-one-out points.
        missed : array of shape (n,)
            Whether their class is not among their neighbours.
        share : float
            The share that queries miss, as `MissedMass` estimates it.
        """
        doubts = _logits(confidence)
        level = float(np.clip(share, SMALLEST_SHARE, 1.0 - SMALLEST_SHARE))
        slope = 0.0
        if missed.any() and not missed.all():
            line = LogisticRegression(C=PENALTY_INVERSE).fit(doubts[:, None], missed)
            slope = min(float(line.coef_[0, 0]), 0.0)
        intercept = brentq(
            lambda shift: float(expit(slope * doubts + shift).mean()) - level,
            -WIDEST_SHIFT,
            WIDEST_SHIFT,
        )
        return cls(slope, float(intercept))

    def __call__(self, confidence: FloatArray) -> FloatArray:
        """Share of each query, of the shape of `confidence`, for `leave_room`."""
        return np.asarray(expit(self.intercept + self.slope * _logits(confidence)), np.float64)


def _logits(confidence: FloatArray) -> FloatArray:
    return np.asarray(logit(np.clip(confidence, SMALLEST_DOUBT, 1.0 - SMALLEST_DOUBT)), np.float64)
