"""The probability from which two count as the same, with a bound on false accepts.

Pairs are not independent: one class that resembles many others is in hundreds of them. What is
bounded is the share of accepted pairs of two new classes, so classes are what is drawn.
The exact bound of Clopper and Pearson is taken for an effective number of trials, as Korn and
Graubard do for surveys: so many independent pairs would vary as much as the measured share does
when each class is left out in turn (the jackknife). It is never more than the number of pairs of
classes, so that many pairs of points of the same two classes are one trial. Where few classes carry
all false accepts, the variance is itself uncertain; Student's t, with the number of classes that
carry them less one as degrees of freedom, makes up for it.

The certainty is nominal. A gallery without any of the rare classes that resemble many others does
not show them, and its pairs of classes are then fewer independent trials than they are counted as.

Pairs of unknown classes are taken for independent; then the bound is the exact one.

References
----------
Clopper, Pearson: The Use of Confidence or Fiducial Limits Illustrated in the Case of the Binomial.
Biometrika 1934.
Korn, Graubard: Confidence Intervals for Proportions with Small Expected Number of Positive Counts
Estimated from Survey Data. Survey Methodology 1998.
"""

from dataclasses import dataclass
from math import inf, isinf

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import beta, norm
from scipy.stats import t as student

from nearsure.arrays import BoolArray, FloatArray, IntArray
from nearsure.errors import InvalidInputError
from nearsure.validation import check_confidence, check_open_fraction

# Thresholds that are looked at, from the strictest on.
N_THRESHOLDS = 100
FEWEST_CERTAIN = 0.5


@dataclass(frozen=True)
class PairThreshold:
    """A threshold on the probability of a pair, and what it promises.

    Attributes
    ----------
    threshold : float
        Pairs of at least this probability may be accepted; infinity if `reached` is False.
    false_accept : float
        Share of different pairs that may be accepted.
    certainty : float
        Nominal: share of draws of classes whose threshold keeps the promise, if resemblance is
        spread over classes. Rare classes that resemble many others, of which the gallery may hold
        none, break it more often.
    promised : float
        `false_accept` if it was reached, else the smallest share that could be promised.
    measured : float
        Share of the gallery's different pairs that are accepted; each pair of classes counts alike.
    true_accept : float
        Share of its same pairs that are accepted; each class counts alike.
    n_different, n_class_pairs : int
        Different pairs that were measured, and pairs of classes they are of; 0 if unknown.
    effective_trials : float
        So many independent pairs would tell as much.
    """

    threshold: float
    false_accept: float
    certainty: float
    promised: float
    measured: float
    true_accept: float
    n_different: int
    n_class_pairs: int
    effective_trials: float

    @property
    def reached(self) -> bool:
        """Whether the share can be promised."""
        return not isinf(self.threshold)

    def accepts(self, probabilities: ArrayLike) -> BoolArray:
        """Which pairs may be accepted, given their probabilities of shape (n,)."""
        if np.size(probabilities) == 0:
            return np.zeros(0, np.bool_)
        return check_confidence(probabilities) >= self.threshold

    def __str__(self) -> str:
        of = f"{self.n_different:,} different pairs"
        if self.n_class_pairs:
            of += f" of {self.n_class_pairs:,} pairs of classes"
        if not self.reached:
            return (
                f"No threshold can promise that at most {self.false_accept:.3g} of different pairs "
                f"are accepted, with {self.certainty:.3g} certainty, from {of}. The strictest "
                f"promise that they support is {self.promised:.2g}: add classes, or relax the "
                "target."
            )
        return (
            f"Accept at probability >= {self.threshold:.6g}: {self.true_accept:.1%} of same pairs, "
            f"at most {self.false_accept:.3g} of different ones, with about {self.certainty:.3g} "
            f"certainty, for pairs of classes like the gallery's (measured {self.measured:.2g} of "
            f"{of}, worth {self.effective_trials:,.0f} independent ones)."
        )


def choose_pair_threshold(
    probabilities: FloatArray,
    same: BoolArray,
    weights: FloatArray,
    classes: IntArray | None,
    *,
    false_accept: float,
    certainty: float,
) -> PairThreshold:
    """Choose the lowest probability that keeps the share of false accepts below a bound.

    Parameters
    ----------
    probabilities, same, weights : array of shape (n,)
        Of pairs: how probable each is the same, whether it is, and how much it counts.
    classes : array of shape (n, 2), optional
        Class codes of each pair; without them pairs are taken for independent.
    false_accept : float
        Share of different pairs that may be accepted, in (0, 1).
    certainty : float
        Nominal share of draws whose threshold shall keep that, in (0.5, 1).

    Examples
    --------
    >>> same = np.arange(400) < 100
    >>> p = np.where(same, 0.9, np.linspace(0.0, 0.5, 400))
    >>> chosen = choose_pair_threshold(
    ...     p, same, np.full(400, 0.01), None, false_accept=0.05, certainty=0.95
    ... )
    >>> round(chosen.threshold, 3)
    0.491
    """
    check_open_fraction("false_accept", false_accept)
    check_open_fraction("certainty", certainty)
    if certainty <= FEWEST_CERTAIN:
        raise InvalidInputError(
            f"The 'certainty' parameter must be above {FEWEST_CERTAIN}: a bound that fails as "
            f"often as it holds promises nothing. Got {certainty!r} instead."
        )
    pairs = _DifferentPairs(
        probabilities[~same], weights[~same], None if classes is None else classes[~same]
    )
    best, promised, chosen = inf, 1.0, (0.0, pairs.most_trials)
    for threshold in pairs.thresholds(false_accept):
        share, trials = pairs.measure(threshold, certainty)
        bound = float(beta.ppf(certainty, share * trials + 1.0, (1.0 - share) * trials))
        promised = min(promised, bound)
        if bound <= false_accept:
            best, chosen = float(threshold), (share, trials)
    if isinf(best):
        chosen = (0.0, chosen[1])
    of_same = np.average(probabilities[same] >= best, weights=weights[same]) if same.any() else 0.0
    return PairThreshold(
        best,
        false_accept,
        certainty,
        promised if isinf(best) else false_accept,
        chosen[0],
        float(of_same),
        len(pairs.probabilities),
        0 if classes is None else int(pairs.most_trials),
        chosen[1],
    )


class _DifferentPairs:
    """Different pairs, the most probable first."""

    def __init__(
        self, probabilities: FloatArray, weights: FloatArray, classes: IntArray | None
    ) -> None:
        order = np.argsort(-probabilities, kind="stable")
        self.probabilities, self.weights = probabilities[order], weights[order] / weights.sum()
        self.shares = np.cumsum(self.weights)
        self.most_trials, self.by_class = float(len(order)), classes is not None
        if classes is not None:
            self.most_trials = float(len(np.unique(np.sort(classes, axis=1), axis=0)))
            names, codes = np.unique(classes[order], return_inverse=True)
            self.codes, self.n_classes = codes.reshape(len(order), 2), len(names)
            self.own = self._sums_by_class(len(order))

    def thresholds(self, largest_share: float) -> FloatArray:
        """Probabilities from which at most so large a share is accepted, and one before all."""
        n_accepted = int(np.searchsorted(self.shares, largest_share, side="right"))
        places = np.unique(np.geomspace(1, max(n_accepted, 1), N_THRESHOLDS).astype(np.int64))
        accepting = np.unique(self.probabilities[places - 1])[::-1]
        before_all = np.nextafter(self.probabilities[0], 2.0)
        return np.concatenate([[before_all], accepting]) if before_all <= 1.0 else accepting

    def measure(self, threshold: float, certainty: float) -> tuple[float, float]:
        """Share that is accepted, and how many independent trials it is worth."""
        n_accepted = int(np.searchsorted(-self.probabilities, -threshold, side="right"))
        share = float(self.shares[n_accepted - 1]) if n_accepted else 0.0
        if not self.by_class or not n_accepted:
            return share, self.most_trials
        accepted = self._sums_by_class(n_accepted)
        n = self.n_classes
        without = (share - accepted) / np.maximum(1.0 - self.own, np.finfo(float).tiny)
        variance = (n - 1) / n * float(((without - without.mean()) ** 2).sum())
        carrying = accepted.sum() ** 2 / float((accepted**2).sum())
        spread = norm.ppf(certainty) / student.ppf(certainty, max(carrying - 1.0, 0.5))
        trials = share * (1.0 - share) / max(variance, np.finfo(float).tiny) * spread**2
        return share, float(min(trials, self.most_trials))

    def _sums_by_class(self, n_pairs: int) -> FloatArray:
        """Weight of the first pairs that each class is in, shape (n_classes,)."""
        twice = np.repeat(self.weights[:n_pairs], 2)
        sums = np.bincount(self.codes[:n_pairs].ravel(), twice, minlength=self.n_classes)
        return np.asarray(sums, np.float64)
