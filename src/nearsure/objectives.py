"""What a temperature is judged by: losses of leave-one-out points, with derivatives by log T.

Write s_i = |z - z_i|^2 - |z - z_1|^2 for the excess of a neighbour's distance, b = 1 / T, and
E[s], E_c[s] for the means of s under NED's weights exp(-b s_i) over all neighbours and over those
of class c. Then d log p(c) / db = E[s] - E_c[s], and every derivative below follows from this.

An objective is built once from leave-one-out neighbours and called with log T; each call is one
vectorised pass and returns the loss of every point and its derivative.
"""

from collections.abc import Callable
from typing import Literal, get_args

import numpy as np

from nearsure.arrays import BoolArray, FloatArray, IntArray
from nearsure.errors import InvalidInputError
from nearsure.neighbors import PADDING_LABEL, Neighbors

ObjectiveName = Literal["nll", "brier", "top_label"]
Objective = Callable[[float], tuple[FloatArray, FloatArray]]

# A wrong prediction with confidence 1 at every T would cost infinitely much; it costs 35 nats.
SMALLEST_DOUBT = 1e-15


def build_objective(name: ObjectiveName, neighbors: Neighbors, labels: IntArray) -> Objective:
    """Build the objective of that name from leave-one-out neighbours and the points' true codes."""
    check_objective(name)
    if name == "nll":
        return NegativeLogLikelihood(neighbors, labels)
    return Brier(neighbors, labels) if name == "brier" else TopLabelLogLoss(neighbors, labels)


def check_objective(name: str) -> None:
    """Raise an error that names the objectives if `name` is not one of them."""
    if name not in get_args(ObjectiveName):
        names = ", ".join(repr(allowed) for allowed in get_args(ObjectiveName))
        raise InvalidInputError(f"objective must be one of {names}. Got {name!r} instead.")


class NegativeLogLikelihood:
    """-log p(true class). Every point must have a neighbour of its own class.

    Examples
    --------
    >>> nll = NegativeLogLikelihood(Neighbors([[0.0, 1.0]], [[5, 6]]), np.array([5]))
    >>> losses, derivatives = nll(np.log(2.0))
    >>> losses.round(3), derivatives.round(3)
    (array([0.474]), array([0.189]))
    """

    def __init__(self, neighbors: Neighbors, labels: IntArray) -> None:
        self._excess = _excess(neighbors)
        # Padding weighs 0, but 0 * infinity is no number.
        self._finite_excess = self._excess
        if not neighbors.is_full:
            self._finite_excess = np.where(neighbors.valid, self._excess, 0.0)
        rows, columns = np.nonzero(neighbors.labels == labels[:, None])
        # The first neighbour of the own class in each row; shifting by its excess keeps the
        # likelihood of a point whose own class is far away from underflowing to log 0.
        self._starts = np.flatnonzero(np.diff(rows, prepend=-1))
        own = self._excess[rows, columns]
        self._own_nearest = own[self._starts]
        self._own_excess = own - self._own_nearest[rows]
        # Reused by every call: fresh pages would cost as much as the exponentials.
        self._weights = np.empty_like(self._excess)

    def __call__(self, log_temperature: float) -> tuple[FloatArray, FloatArray]:
        """Loss and derivative of every point."""
        inverse = np.exp(-log_temperature)
        weights = np.multiply(self._excess, -inverse, out=self._weights)
        np.exp(weights, out=weights)
        own_weights = np.exp(-inverse * self._own_excess)
        total = weights.sum(axis=1)
        own_total = np.add.reduceat(own_weights, self._starts)
        mean = np.vecdot(weights, self._finite_excess) / total
        own_mean = self._own_nearest + (
            np.add.reduceat(own_weights * self._own_excess, self._starts) / own_total
        )
        losses = np.log(total) - np.log(own_total) + inverse * self._own_nearest
        return losses, inverse * (mean - own_mean)


class _ClassSums:
    """Sums over the classes of each point, in a layout that is sorted once."""

    def __init__(self, neighbors: Neighbors, labels: IntArray) -> None:
        by_class = np.argsort(neighbors.labels, axis=1, kind="stable")
        codes = np.take_along_axis(neighbors.labels, by_class, axis=1)
        self._excess = np.take_along_axis(_excess(neighbors), by_class, axis=1)
        starts_class = np.ones(codes.shape, np.bool_)
        starts_class[:, 1:] = codes[:, 1:] != codes[:, :-1]
        self._starts = np.flatnonzero(starts_class)
        self.rows = self._starts // neighbors.k
        self.row_starts = np.flatnonzero(np.diff(self.rows, prepend=-1))
        self.codes = codes.ravel()[self._starts]
        self.is_true: BoolArray = self.codes == labels[self.rows]
        self.nearest = self._excess.ravel()[self._starts]
        self._padding = self.codes == PADDING_LABEL

    def at(self, log_temperature: float) -> tuple[FloatArray, FloatArray]:
        """p(c) of each class of each point, and its derivative by log T."""
        inverse = np.exp(-log_temperature)
        weights = np.exp(-inverse * self._excess).ravel()
        votes = np.add.reduceat(weights, self._starts)
        # 0 * inf on padding, which has no votes.
        moments = np.where(np.isinf(self._excess), 0.0, self._excess).ravel() * weights
        moments = np.add.reduceat(moments, self._starts)
        total = self.sum_rows(votes)[self.rows]
        mean = self.sum_rows(moments)[self.rows] / total
        shares = votes / total
        return shares, -inverse * (shares * mean - moments / total)

    def sum_rows(self, entries: FloatArray) -> FloatArray:
        return np.add.reduceat(entries, self.row_starts)


class Brier:
    """Sum over the classes of (p(c) - 1[c is true])^2; a point that misses its class counts too.

    Examples
    --------
    >>> brier = Brier(Neighbors([[0.0, 1.0]], [[5, 6]]), np.array([5]))
    >>> brier(np.log(2.0))[0].round(3)
    array([0.285])
    """

    def __init__(self, neighbors: Neighbors, labels: IntArray) -> None:
        self._sums = _ClassSums(neighbors, labels)

    def __call__(self, log_temperature: float) -> tuple[FloatArray, FloatArray]:
        """Loss and derivative of every point."""
        sums = self._sums
        shares, slopes = sums.at(log_temperature)
        missing = 1.0 - sums.sum_rows(sums.is_true.astype(np.float64))
        residuals = shares - sums.is_true
        return (
            sums.sum_rows(residuals**2) + missing,
            2.0 * sums.sum_rows(residuals * slopes),
        )


class TopLabelLogLoss:
    """Log loss of the statement "the prediction is right", whose probability is the confidence.

    A point that misses its class is a wrong prediction and counts.

    Examples
    --------
    >>> top_label = TopLabelLogLoss(Neighbors([[0.0, 1.0]], [[5, 6]]), np.array([6]))
    >>> top_label(np.log(2.0))[0].round(3)
    array([0.974])
    """

    def __init__(self, neighbors: Neighbors, labels: IntArray) -> None:
        self._sums = _ClassSums(neighbors, labels)

    def __call__(self, log_temperature: float) -> tuple[FloatArray, FloatArray]:
        """Loss and derivative of every point."""
        sums = self._sums
        shares, slopes = sums.at(log_temperature)
        best_first = np.lexsort((sums.codes, sums.nearest, -shares, sums.rows))
        best = best_first[sums.row_starts]
        is_best = np.zeros(len(shares), np.bool_)
        is_best[best] = True
        right = sums.is_true[best]
        # The doubt is summed from the other classes: 1 - p would round a small one to 0.
        doubt = np.maximum(sums.sum_rows(np.where(is_best, 0.0, shares)), SMALLEST_DOUBT)
        probability = np.where(right, shares[best], doubt)
        slope = np.where(right, slopes[best], -slopes[best])
        return -np.log(probability), -slope / probability


def _excess(neighbors: Neighbors) -> FloatArray:
    """s_i, infinite on padding."""
    return neighbors.sq_distances - neighbors.sq_distances[:, :1]
