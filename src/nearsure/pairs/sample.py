"""Pairs of a gallery's own points, drawn so that no large class rules."""

from dataclasses import dataclass

import numpy as np

from nearsure.arrays import BoolArray, FloatArray, IntArray

# Pairs of each kind, about. More change no digit that a report shows.
MOST_PAIRS = 50_000
MOST_SAME_PER_CLASS = 100
# Classes up to this size have all their pairs listed; of larger ones pairs are drawn.
LISTED_SIZE = 64
# So many times as many are drawn, as some are of one group or come twice.
SPARE = 4


@dataclass(frozen=True, eq=False)
class PairSample:
    """Pairs, whether they are the same, and how much each counts.

    Parameters
    ----------
    rows : array of shape (n, 2)
        Places of the two points.
    classes : array of shape (n, 2)
        Codes of their classes.
    weights : array of shape (n,)
        Same pairs sum to 1, each class as much as any other; so do different ones, each pair of
        classes as much as any other.
    """

    rows: IntArray
    classes: IntArray
    weights: FloatArray

    @property
    def same(self) -> BoolArray:
        """Which pairs are of one class, shape (n,)."""
        return np.asarray(self.classes[:, 0] == self.classes[:, 1])


def draw_pairs(codes: IntArray, groups: IntArray, rng: np.random.Generator) -> PairSample:
    """Draw same and different pairs; none has two points of one group.

    Parameters
    ----------
    codes : array of shape (n,)
        Class codes from 0 on, each with a point.
    groups : array of shape (n,)
        Points of one group are near-copies: two of them are no evidence.
    rng : numpy.random.Generator
        What draws.

    Returns
    -------
    PairSample
        It may lack pairs of either kind.

    Examples
    --------
    >>> sample = draw_pairs(np.array([0, 0, 1]), np.arange(3), np.random.default_rng(0))
    >>> sample.rows[sample.same].tolist()
    [[0, 1]]
    """
    order = np.argsort(codes, kind="stable")
    members = np.split(order, np.cumsum(np.bincount(codes))[:-1])
    same = _draw_same(members, groups, rng)
    different = _draw_different(members, groups, rng)
    rows = np.vstack([same, different])
    classes = codes[rows]
    weights = np.concatenate([weigh_equally(classes[: len(same)]), weigh_equally(codes[different])])
    return PairSample(rows, classes, weights)


def _draw_same(members: list[IntArray], groups: IntArray, rng: np.random.Generator) -> IntArray:
    wanted = max(1, min(MOST_SAME_PER_CLASS, MOST_PAIRS // len(members)))
    drawn = []
    for own in members:
        if len(own) <= LISTED_SIZE:
            places = np.column_stack(np.triu_indices(len(own), 1))
            places = rng.permutation(places)
        else:
            first = rng.integers(len(own), size=SPARE * wanted)
            second = (first + rng.integers(1, len(own), size=SPARE * wanted)) % len(own)
            # In the order of the draws, without those that come twice.
            both = np.sort(np.column_stack([first, second]), axis=1)
            places = both[np.sort(np.unique(both, axis=0, return_index=True)[1])]
        pairs = own[places]
        drawn.append(pairs[groups[pairs[:, 0]] != groups[pairs[:, 1]]][:wanted])
    return np.concatenate(drawn)


def _draw_different(
    members: list[IntArray], groups: IntArray, rng: np.random.Generator
) -> IntArray:
    n_classes, sizes = len(members), np.array([len(own) for own in members])
    if n_classes * (n_classes - 1) // 2 <= MOST_PAIRS:
        classes = np.column_stack(np.triu_indices(n_classes, 1))
        classes = np.repeat(classes, -(-MOST_PAIRS // max(len(classes), 1)), axis=0)
    else:
        first = rng.integers(n_classes, size=MOST_PAIRS)
        second = (first + rng.integers(1, n_classes, size=MOST_PAIRS)) % n_classes
        classes = np.sort(np.column_stack([first, second]), axis=1)
    places = (rng.random(classes.shape) * sizes[classes]).astype(np.int64)
    starts = np.cumsum(sizes) - sizes
    rows = np.concatenate(members)[starts[classes] + places]
    rows = np.unique(rows, axis=0)
    return np.asarray(rows[groups[rows[:, 0]] != groups[rows[:, 1]]], np.int64)


def weigh_equally(classes: IntArray) -> FloatArray:
    """Weights that sum to 1, each class or pair of classes with as much as any other."""
    if not len(classes):
        return np.zeros(0)
    pairs = np.sort(classes, axis=1)
    _, own, counts = np.unique(pairs, axis=0, return_inverse=True, return_counts=True)
    return np.asarray(1.0 / (len(counts) * counts[own.ravel()]))
