"""How many labels of a gallery are wrong, estimated from the support of made-up wrong labels.

Points are given a wrong label on purpose, and the support of each of these labels is noted. Every
real label then has a place in [0, 1]: the share of the made-up labels that have less support. Real
labels that are wrong are spread evenly over these places, because they are like the made-up ones;
labels that are right are crowded near 1 and ever rarer towards 0. So the flat part of the histogram
of places is the number of wrong labels. In the same way Storey estimates the share of true null
hypotheses from p-values (J. R. Stat. Soc. B 64, 2002).

Labels may be wrong at random, or confused with a class that the point resembles. The first have
nearly no support. The second have some, and are seen only where the rival class is sure.
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import softmax, xlogy

from nearsure.arrays import FloatArray

__all__ = ["LabelSupport", "WrongLabels", "estimate_wrong_labels"]

# Places that are looked at. Few right labels stand below the first among labels that are wrong at
# random; among confused labels there are more. Chosen on HWU64, TREC and digits among 0.5 to 0.9
# and 0.3 to 0.7: less of the first takes 1% of random labels for confused ones, more of the second
# finds twice as many wrong labels in TREC as it is.
RANDOM_UP_TO = 0.8
CONFUSABLE_UP_TO = 0.5
N_BINS = 20
# The density of right labels grows with one of these powers of the place.
POWERS = np.array([1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 10.0, 16.0])
N_STEPS = 400
N_RESAMPLES = 100
RANGE = (0.1, 0.9)
# The floor of `WrongLabels.floor` for as many confused labels as random ones, the power of their
# ratio with which it grows, and the largest, where ranks no longer change. Chosen on the same sets:
# a power of 2 costs average precision on confused labels, 1e-3 on 1% of random ones.
FLOOR, FLOOR_POWER, LARGEST_FLOOR = 1e-4, 3, 10.0
# Stands for no random labels in a ratio, and for no labels in a bin.
NONE = 1e-9


@dataclass(frozen=True, eq=False)
class LabelSupport:
    """Support of n labels and of the best other class at the same points, both of shape (n,)."""

    own: FloatArray
    rival: FloatArray

    @property
    def gap(self) -> FloatArray:
        """Own support less that of the rival, in [-1, 1]."""
        return self.own - self.rival

    def trust(self, floor: float = 0.0) -> FloatArray:
        """Own support as a share of both, in [0, 1]; below 0.5 the rival has more.

        Both get the floor. The larger it is, the more the order is that of the gap: it matters how
        sure the rival is, and less whether the label has little support or none.
        """
        trust: FloatArray = (self.own + floor) / (self.own + self.rival + 2 * floor)
        return trust


@dataclass(frozen=True)
class WrongLabels:
    """How many labels of a gallery are wrong; `estimate_wrong_labels` makes it.

    Parameters
    ----------
    n_random : float
        Labels that are wrong at random.
    n_confusable : float
        Labels of a class that the point resembles.
    low, high : float
        Range of the number of both: the 10% and 90% points of resampled estimates.
    """

    n_random: float
    n_confusable: float
    low: float
    high: float

    @property
    def n(self) -> int:
        """Both kinds."""
        return round(self.n_random + self.n_confusable)

    @property
    def between(self) -> tuple[int, int]:
        """The range in whole labels."""
        return int(self.low), int(np.ceil(self.high))

    @property
    def floor(self) -> float:
        """Floor of the trust by which labels are ranked.

        Random labels are found best by the share of support that is their own, confused ones by
        the gap: the more of the wrong labels are confused ones, the larger the floor.
        """
        ratio = self.n_confusable / max(self.n_random, NONE)
        return float(min(FLOOR * ratio**FLOOR_POWER, LARGEST_FLOOR))

    def __str__(self) -> str:
        low, high = self.between
        return f"about {self.n:,}, between {low:,} and {high:,}"


def estimate_wrong_labels(
    labels: LabelSupport, random: LabelSupport, confusable: LabelSupport, *, seed: int = 0
) -> WrongLabels:
    """Estimate the number of wrong labels from the support of made-up ones.

    Parameters
    ----------
    labels : LabelSupport
        Of the labels of the gallery.
    random, confusable : LabelSupport
        Of labels that are wrong at random, and of labels of a class that the point resembles.
    seed : int
        For the places of equal support, and for the range.

    Examples
    --------
    200 of 2,000 labels are wrong at random:

    >>> rng = np.random.default_rng(0)
    >>> def draw(n, low, high):
    ...     own = rng.uniform(low, high, n)
    ...     return LabelSupport(own, 1 - own)
    >>> random, confusable = draw(5000, 0.0, 0.2), draw(5000, 0.0, 0.5)
    >>> right, wrong = draw(1800, 0.4, 1.0), draw(200, 0.0, 0.2)
    >>> labels = LabelSupport(np.r_[right.own, wrong.own], np.r_[right.rival, wrong.rival])
    >>> print(estimate_wrong_labels(labels, random, confusable))
    about 196, between 177 and 225
    """
    rng = np.random.default_rng(seed)
    by_trust = _count_places(labels.trust(), random.trust(), RANDOM_UP_TO, rng)
    by_gap = _count_places(labels.gap, confusable.gap, CONFUSABLE_UP_TO, rng)
    random_by_gap = _count_places(random.gap, confusable.gap, CONFUSABLE_UP_TO, rng)
    n_random = _fit_flat_part(_resample(by_trust, rng), RANDOM_UP_TO, rng)
    # Random labels stand among the confused ones, at places that the made-up ones tell.
    known = n_random[:, None] * (random_by_gap / len(random.gap))
    n_confusable = _fit_flat_part(_resample(by_gap, rng), CONFUSABLE_UP_TO, rng, known)
    n_wrong = n_random + n_confusable
    # The flat parts of few points may add up to more than there are.
    fits = min(1.0, len(labels.own) / max(n_wrong[0], 1.0))
    low, high = np.minimum(np.quantile(n_wrong[1:], RANGE), len(labels.own))
    n_wrong = fits * n_wrong
    return WrongLabels(
        float(fits * n_random[0]),
        float(fits * n_confusable[0]),
        float(min(low, n_wrong[0])),
        float(max(high, n_wrong[0])),
    )


def _count_places(
    values: FloatArray, made_up: FloatArray, up_to: float, rng: np.random.Generator
) -> FloatArray:
    """Histogram of the places of values among made-up ones; equal ones are spread at random."""
    made_up = np.sort(made_up)
    first, last = (np.searchsorted(made_up, values, side) for side in ("left", "right"))
    places = (first + rng.random(len(values)) * (last - first + 1)) / (len(made_up) + 1)
    counts = np.histogram(places, np.linspace(0, up_to, N_BINS + 1))[0]
    return counts.astype(np.float64)


def _resample(counts: FloatArray, rng: np.random.Generator) -> FloatArray:
    """The counts, and below them draws of their expectations, shape (1 + n_resamples, n_bins).

    A gamma distribution is what a Poisson count says of its expectation.
    """
    return np.vstack([counts, rng.gamma(counts + 1 / N_BINS, size=(N_RESAMPLES, N_BINS))])


def _fit_flat_part(
    counts: FloatArray, up_to: float, rng: np.random.Generator, known: FloatArray | float = 0.0
) -> FloatArray:
    """Number of labels that are spread evenly over [0, 1], by maximum likelihood.

    Counts are taken as Poisson, with the expectation known + flat part + a power of the place.
    Which power it is, the likelihood tells more or less well: the first number is the mean over
    all powers, weighted by it, and the others, which tell the range, take one drawn by it.

    Parameters
    ----------
    counts : array of shape (n, N_BINS)
        Histograms over [0, up_to].
    up_to : float
        Where they end.
    rng : Generator
        For the powers.
    known : array of shape (n, N_BINS) or 0
        Expected labels of another kind.

    Returns
    -------
    array of shape (n,)
    """
    edges = np.linspace(0, 1, N_BINS + 1)
    shapes = np.diff(edges ** (POWERS[:, None] + 1), axis=1)
    counted = counts[:, None, :]
    expected = np.broadcast_to(known, counts.shape)[:, None, :] + NONE
    # Expectation maximisation: every bin is shared out among its parts.
    flat = np.repeat(np.maximum(counts.sum(axis=1, keepdims=True), 1) / 2, len(POWERS), axis=1)
    grown = flat
    for _ in range(N_STEPS):
        model = expected + flat[:, :, None] / N_BINS + grown[:, :, None] * shapes
        shared = counted / model
        flat, grown = flat * shared.mean(axis=2), grown * (shared * shapes).sum(axis=2)
    model = expected + flat[:, :, None] / N_BINS + grown[:, :, None] * shapes
    chances = softmax((xlogy(counted, model) - model).sum(axis=2), axis=1)
    drawn = (np.cumsum(chances, axis=1)[:, :-1] < rng.random((len(flat), 1))).sum(axis=1)
    numbers: FloatArray = flat[np.arange(len(flat)), drawn]
    numbers[0] = flat[0] @ chances[0]
    return numbers / up_to
