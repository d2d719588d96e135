"""Thresholds where queries of unknown classes are expected.

Classes of the gallery that are left out stand for unknown ones. Points of a class are accepted or
refused together, so it is the classes that are drawn, not the points: a few of them decide, and the
unknown ones that come are a draw of their own, often a small one. Both draws are imitated. The
gallery's classes get random weights (the Bayesian bootstrap), with one class more that is accepted
as often as the worst of them; from these, as many classes as the share lets expect are drawn, and
the share of their points that a threshold accepts is noted. A thousand such shares, together with
the exact binomial bound for known queries, give the p-value of a threshold.

That a class is left out alone, while unknown classes come in blocks, is no flaw: they are missing
from the gallery either way. On five data sets with a fifth of the classes held out, the accepted
share of the unknowns was that of the classes left out, at any threshold that was fixed beforehand;
its spread was 1.0 to 1.3 times that of independent classes, as a class and its twin may be parted.

The share is a guess. Promises hold for one that is a quarter larger.

Few classes tell little of others. On made classes whose truth is known, promises with 95% certainty
were broken in up to 4% of the draws from 12 and 20 classes, 6% from 8, 10% from 5 and 12% from 3.
So nothing is promised from fewer than 8.

References
----------
Rubin: The Bayesian Bootstrap. Annals of Statistics 1981.
Angelopoulos, Bates, Candes, Jordan, Lei: Learn then Test. 2021.
Wiens: A fixed sequence Bonferroni procedure for testing multiple endpoints. 2003.
"""

from dataclasses import dataclass
from functools import cached_property
from math import ceil, inf, log

import numpy as np
from scipy.special import betainc

from nearsure.arrays import BoolArray, FloatArray, IntArray

FEWEST_CLASSES = 8
SHARE_MARGIN = 1.25
LARGEST_SHARE = 0.999
N_RANKS = 100
N_DRAWS = 1000
# Of very many classes fewer draws are made: 160 MB.
MOST_ENTRIES = 20_000_000
DRAW_SEED = 0


@dataclass(frozen=True, eq=False)
class UnknownClasses:
    """Points whose class was left out, and the share of unknown queries that they stand for.

    Parameters
    ----------
    confidence : array of shape (n,)
        Of their answers, in [0, 1].
    codes : array of shape (n,)
        Of their classes.
    share : float
        Expected share of unknown queries, in (0, 1).
    """

    confidence: FloatArray
    codes: IntArray
    share: float

    @property
    def n_classes(self) -> int:
        """How many classes were left out in turn."""
        return len(self._draws[1])

    @property
    def largest_share(self) -> float:
        """The share up to which promises hold."""
        return min(SHARE_MARGIN * self.share, max(LARGEST_SHARE, self.share))

    def count(self, n_known: int, threshold: float) -> tuple[int, int]:
        """How many unknown queries come with so many known ones, and how many are accepted."""
        expected = n_known * self.share / (1.0 - self.share)
        accepted = float((self.confidence >= threshold).mean())
        return round(expected), round(expected * accepted)

    def laxest_precise(
        self, confidence: FloatArray, correct: BoolArray, *, precision: float, certainty: float
    ) -> float:
        """Return the laxest threshold of which the precision is certain, or infinity.

        Parameters
        ----------
        confidence, correct : array of shape (n,)
            Of known points.
        precision : float
            Share of all accepted queries that shall be right, in (0, 1).
        certainty : float
            Share of all draws of points and classes whose threshold shall keep that, in (0, 1).
        """
        if self.n_classes < FEWEST_CLASSES:
            return inf
        ranks, levels = _ranks_and_levels(len(confidence), precision, 1.0 - certainty)
        thresholds, tie, accepted = _thresholds_at(confidence, ranks)
        right = _count_from(confidence[correct], thresholds)
        odds = self.largest_share / (1.0 - self.largest_share)
        unknown = odds * len(confidence) * self._accepted_shares(thresholds) / accepted
        # So many of the known that are accepted must be right, beside so many unknown ones.
        needed = np.minimum(precision * (1.0 + unknown), 1.0)
        chances = betainc(np.maximum(right, 1), accepted - right + 1, needed)
        p_values = np.where(right > 0, chances.mean(axis=0), 1.0)
        laxest, level = inf, 0.0
        for threshold, p_value, own_level in zip(
            thresholds, p_values, np.bincount(tie, levels), strict=True
        ):
            level += own_level
            if p_value <= level:
                laxest = float(threshold)
            else:
                level = 0.0
        return laxest

    def laxest_rejecting(
        self,
        confidence: FloatArray,
        correct: BoolArray,
        *,
        false_accept_rate: float,
        certainty: float,
    ) -> float:
        """Return the laxest threshold that keeps wrong and unknown answers out, or infinity.

        Parameters
        ----------
        confidence, correct : array of shape (n,)
            Of known points.
        false_accept_rate : float
            Share of the wrong answers and of the unknown queries, taken together, that may be
            accepted, in (0, 1).
        certainty : float
            As of `laxest_precise`.
        """
        if self.n_classes < FEWEST_CLASSES:
            return inf
        ranks = np.unique(np.linspace(1, len(confidence), 2 * N_RANKS).round().astype(np.int64))
        thresholds, _, _ = _thresholds_at(confidence, ranks)
        wrong = confidence[~correct]
        n_accepted = _count_from(wrong, thresholds)
        unknown = self._accepted_shares(thresholds)
        p_values = np.zeros(len(thresholds))
        # The rate rises or falls with the share of unknowns: it is largest at one of the ends.
        for share in (self.share / SHARE_MARGIN, self.largest_share):
            n_unknown = len(confidence) * share / (1.0 - share)
            allowed = false_accept_rate * (len(wrong) + n_unknown) - n_unknown * unknown
            if len(wrong):
                kept = betainc(
                    n_accepted + 1,
                    np.maximum(len(wrong) - n_accepted, 1e-9),
                    np.clip(allowed / len(wrong), 0.0, 1.0),
                )
            else:
                kept = (allowed >= 0.0).astype(np.float64)
            p_values = np.maximum(p_values, 1.0 - kept.mean(axis=0))
        failed = np.append(p_values > 1.0 - certainty, True)
        n_passed = int(failed.argmax())
        return float(thresholds[n_passed - 1]) if n_passed else inf

    def _accepted_shares(self, thresholds: FloatArray) -> FloatArray:
        """Shares of unknown queries that are accepted, as drawn, shape (n_draws, n_thresholds)."""
        places, sizes, weights = self._draws
        accepted = np.stack(
            [
                np.bincount(places[self.confidence >= each], minlength=len(sizes))
                for each in thresholds
            ],
            axis=1,
        )
        worst = (accepted / sizes[:, None]).max(axis=0) * sizes.mean()
        members = np.append(sizes, sizes.mean())
        return np.asarray(weights @ np.vstack([accepted, worst]) / (weights @ members)[:, None])

    @cached_property
    def _draws(self) -> tuple[IntArray, IntArray, FloatArray]:
        """Class of each point, sizes, and how often each class, and the worst, is drawn."""
        _, places, sizes = np.unique(self.codes, return_inverse=True, return_counts=True)
        rng = np.random.default_rng(DRAW_SEED)
        n_draws = max(1, min(N_DRAWS, MOST_ENTRIES // len(sizes)))
        chances = rng.dirichlet(np.ones(len(sizes) + 1), size=n_draws)
        n_to_come = max(1, round(len(sizes) * self.share / (1.0 - self.share)))
        return places, sizes, rng.multinomial(n_to_come, chances).astype(np.float64)


def _ranks_and_levels(
    n_points: int, precision: float, error_level: float
) -> tuple[IntArray, FloatArray]:
    """Ranks of the known points that are tested, ascending, and the level that each brings.

    They are fixed beforehand. The first that can be certified and one in the middle have half of
    the level each, and hand it on to the next as long as they pass.
    """
    first = ceil(log(error_level / 2) / log(precision))
    if first >= n_points:  # only all points together may suffice
        return np.array([n_points]), np.array([error_level])
    ranks = np.unique(np.linspace(first, n_points, N_RANKS).round().astype(np.int64))
    levels = np.zeros(len(ranks))
    levels[0] = error_level / 2
    levels[np.searchsorted(ranks, np.sqrt(first * n_points))] += error_level / 2
    return ranks, levels


def _thresholds_at(
    confidence: FloatArray, ranks: IntArray
) -> tuple[FloatArray, IntArray, IntArray]:
    """Thresholds, descending; which of them each rank is; and how many points each accepts."""
    negated, tie = np.unique(np.sort(-confidence)[ranks - 1], return_inverse=True)
    return -negated, tie, _count_from(confidence, -negated)


def _count_from(confidence: FloatArray, thresholds: FloatArray) -> IntArray:
    """How many are at or above each threshold."""
    ascending = np.sort(confidence)
    return len(ascending) - np.searchsorted(ascending, thresholds, side="left")
