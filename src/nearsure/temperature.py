"""The temperature T of NED: losses with derivatives, the search, the explanation."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq

from nearsure import schema
from nearsure.arrays import BoolArray, FloatArray, IntArray
from nearsure.errors import DegenerateTemperatureWarning, InvalidInputError, ManyMissesWarning
from nearsure.neighbors import Neighbors
from nearsure.validation import integer_codes

# Losses of leave-one-out points, which a temperature minimises, with derivatives by log T.
#
# Write s_i = |z - z_i|^2 - |z - z_1|^2 for the excess of a neighbour's distance, b = 1 / T, and
# E[s], E_c[s] for the means of s under NED's weights exp(-b s_i) over all neighbours and over those
# of class c. Then d log p(c) / db = E[s] - E_c[s], and every derivative below follows from this.
#
# An objective is built once from leave-one-out neighbours and called with log T; each call is one
# vectorised pass and returns the loss of every point and its derivative.


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


class Brier(_ClassSums):
    """Sum over the classes of (p(c) - 1[c is true])^2; a point that misses its class counts too.

    Examples
    --------
    >>> brier = Brier(Neighbors([[0.0, 1.0]], [[5, 6]]), np.array([5]))
    >>> brier(np.log(2.0))[0].round(3)
    array([0.285])
    """

    def __call__(self, log_temperature: float) -> tuple[FloatArray, FloatArray]:
        """Loss and derivative of every point."""
        shares, slopes = self.at(log_temperature)
        missing = 1.0 - self.sum_rows(self.is_true.astype(np.float64))
        residuals = shares - self.is_true
        return (self.sum_rows(residuals**2) + missing, 2.0 * self.sum_rows(residuals * slopes))


class TopLabelLogLoss(_ClassSums):
    """Log loss of the statement "the prediction is right", whose probability is the confidence.

    A point that misses its class is a wrong prediction and counts.

    Examples
    --------
    >>> top_label = TopLabelLogLoss(Neighbors([[0.0, 1.0]], [[5, 6]]), np.array([6]))
    >>> top_label(np.log(2.0))[0].round(3)
    array([0.974])
    """

    def __call__(self, log_temperature: float) -> tuple[FloatArray, FloatArray]:
        """Loss and derivative of every point."""
        shares, slopes = self.at(log_temperature)
        best_first = np.lexsort((self.codes, self.nearest, -shares, self.rows))
        best = best_first[self.row_starts]
        is_best = np.zeros(len(shares), np.bool_)
        is_best[best] = True
        right = self.is_true[best]
        # The doubt is summed from the other classes: 1 - p would round a small one to 0.
        doubt = np.maximum(self.sum_rows(np.where(is_best, 0.0, shares)), SMALLEST_DOUBT)
        probability = np.where(right, shares[best], doubt)
        slope = np.where(right, slopes[best], -slopes[best])
        return -np.log(probability), -slope / probability


def _excess(neighbors: Neighbors) -> FloatArray:
    """s_i, infinite on padding."""
    return neighbors.sq_distances - neighbors.sq_distances[:, :1]


GRID_POINTS = 25
# Steps of log T about a sample's minimum, among which that of all points is looked for.
NARROW_GRID = np.array([-4.0, -1.0, -0.3, -0.1, 0.0, 0.1, 0.3, 1.0, 4.0])
# The grid only has to find the right valley, for which this many points are enough.
GRID_SAMPLE = 1000
# At T = the smallest excess / 32 a neighbour that is farther weighs less than exp(-32); at 32 times
# the largest, all weigh the same within 3%. Nothing changes beyond either.
RANGE_FACTOR = 32.0
SMALLEST_EXCESS_QUANTILE = 0.001
TOO_MANY_MISSES = 0.1
# Where the curve is drawn beside what the search tries, in units of T.
CURVE_FACTORS = (0.01, 0.1, 0.3, 3.0, 10.0, 100.0)
# A loss that changes less than this over the whole range does not determine T.
FLAT = 1e-9
# Far below the standard error of any fit, which is rarely less than 1%.
LOG_TEMPERATURE_TOLERANCE = 1e-6
# One standard error of a likelihood: what a parameter may cost before the data reject it.
ONE_STANDARD_ERROR_OF_LIKELIHOOD = 0.5

Status = Literal["interior", "low", "high", "flat"]


@dataclass(frozen=True, eq=False)
class TemperatureFit(schema.Document):
    """A fitted temperature and what is known about it.

    Parameters
    ----------
    temperature : float
        T, in units of a squared distance.
    standard_error : float
        Standard error of T (sandwich estimate); NaN where the loss has no minimum inside the range.
    loss : float
        Mean loss of the points used, at T.
    objective : {"nll", "brier", "top_label"}
        Which loss.
    n_points : int
        Points that were given.
    n_used : int
        Points that the loss is a mean over.
    n_missed : int
        Points whose class is not among their neighbours. Under "nll" they are left out.
    curve_temperatures, curve_losses : array of shape (n_evaluated,)
        Temperatures, ascending, and the mean loss of all points used: dense about T, and at least
        two decades to either side.
    status : {"interior", "low", "high", "flat"}
        Where the minimum lies in the searched range; "flat" if the loss does not depend on T.
    """

    _owner: ClassVar = "The fit of the temperature"
    _table: ClassVar = {
        "temperature": schema.POSITIVE,
        "standard_error": schema.nullable(schema.number("a number of at least 0", 0.0)),
        "loss": schema.NUMBER,
        "objective": schema.one_of(*get_args(ObjectiveName)),
        "n_points": schema.integer(1),
        "n_used": schema.COUNT,
        "n_missed": schema.COUNT,
        "curve_temperatures": schema.list_of(schema.NUMBER),
        "curve_losses": schema.list_of(schema.NUMBER),
        "status": schema.one_of(*get_args(Status)),
    }
    temperature: float
    standard_error: float
    loss: float
    objective: ObjectiveName
    n_points: int
    n_used: int
    n_missed: int
    curve_temperatures: FloatArray
    curve_losses: FloatArray
    status: Status

    @property
    def miss_fraction(self) -> float:
        """Share of the points whose class is not among their neighbours."""
        return self.n_missed / self.n_points


def fit_temperature(
    neighbors: Neighbors, labels: ArrayLike, *, objective: ObjectiveName = "nll"
) -> TemperatureFit:
    """Find the temperature under which the support points explain each other best.

    Parameters
    ----------
    neighbors : Neighbors
        Neighbours of support points among the support set, without the points themselves:
        see `leave_one_out`.
    labels : array of shape (n,)
        Integer class codes of the points.
    objective : {"nll", "brier", "top_label"}
        "nll" is the paper's: -log p(true class). A point whose class is not among its neighbours
        has p = 0 at every T and is left out of it. "brier" (squared error over the classes) and
        "top_label" (log loss of "the prediction is right") keep such points.

    Returns
    -------
    TemperatureFit

    Warns
    -----
    ManyMissesWarning
        If more than a tenth of the points have no neighbour of their own class.
    DegenerateTemperatureWarning
        If the loss has no minimum inside the range that the distances span.

    Examples
    --------
    >>> points = Neighbors([[0.0, 1.0], [1.0, 2.0], [0.5, 3.0]], [[0, 1], [1, 0], [1, 0]])
    >>> fit = fit_temperature(points, [0, 0, 1])
    >>> round(fit.temperature, 3), fit.n_used, fit.n_missed
    (1.374, 3, 0)
    """
    codes = integer_codes(labels, len(neighbors))
    check_objective(objective)
    hit = (neighbors.labels == codes[:, None]).any(axis=1)
    n_missed = int(len(hit) - hit.sum())
    if n_missed == len(hit):
        raise InvalidInputError(
            "No point has a neighbour of its own class, so these neighbours say nothing about T. "
            "Search more neighbours, use a support set with two or more members in some classes, "
            "or give the temperature."
        )
    if n_missed > TOO_MANY_MISSES * len(hit):
        warnings.warn(
            f"{n_missed} of {len(hit)} support points have no neighbour of their own class among "
            f"k = {neighbors.k}. Confidence will be too high for such points: use a larger k, or "
            "give small classes more members.",
            ManyMissesWarning,
            stacklevel=2,
        )
    used = hit if objective == "nll" else neighbors.counts > 0
    if not used.all():
        neighbors, codes = neighbors.take(used), codes[used]
    some = slice(None, None, -(-len(neighbors) // GRID_SAMPLE))
    excess, unit = _in_units_of_excess(neighbors, some)
    loss = _MeanLoss(build_objective(objective, excess, codes))
    grid_loss = loss
    if len(codes[some]) < len(codes):
        grid_loss = _MeanLoss(build_objective(objective, excess.take(some), codes[some]))
    log_temperature, status = _minimum(loss, grid_loss, excess.take(some))
    if status != "interior" and grid_loss is not loss:
        log_temperature, status = _minimum(loss, loss, excess)  # no valley in the sample: ask all
    if status != "interior":
        warnings.warn(
            _explanation(status, neighbors, codes), DegenerateTemperatureWarning, stacklevel=2
        )
    for factor in CURVE_FACTORS:
        loss(log_temperature + np.log(factor))
    curve = sorted((log_t, mean) for log_t, (mean, _) in loss.evaluated.items())
    temperature = float(unit * np.exp(log_temperature))
    relative_error = loss.standard_error(log_temperature) if status == "interior" else np.nan
    return TemperatureFit(
        temperature=temperature,
        standard_error=temperature * relative_error,
        loss=loss(log_temperature),
        objective=objective,
        n_points=len(hit),
        n_used=len(neighbors),
        n_missed=n_missed,
        curve_temperatures=unit * np.exp([log_t for log_t, _ in curve]),
        curve_losses=np.array([mean for _, mean in curve]),
        status=status,
    )


class _MeanLoss:
    """The mean of an objective and its derivative as functions of log T, each computed once."""

    def __init__(self, objective: Objective) -> None:
        self._objective = objective
        self.n_points = 0
        self.evaluated: dict[float, tuple[float, float]] = {}

    def __call__(self, log_temperature: float) -> float:
        return self._at(float(log_temperature))[0]

    def slope(self, log_temperature: float) -> float:
        return self._at(float(log_temperature))[1]

    def _at(self, log_temperature: float) -> tuple[float, float]:
        if log_temperature not in self.evaluated:
            losses, slopes = self._objective(log_temperature)
            self.n_points = len(losses)
            self.evaluated[log_temperature] = float(losses.mean()), float(slopes.mean())
        return self.evaluated[log_temperature]

    def standard_error(self, log_temperature: float) -> float:
        """Sandwich estimate for log T: the root of the sum of g_i^2, over the sum of curvatures."""
        step = 0.02
        _, slopes = self._objective(log_temperature)
        above, below = self.slope(log_temperature + step), self.slope(log_temperature - step)
        curvature = (above - below) / (2 * step)
        if curvature <= 0:
            return float("nan")
        return float(np.sqrt(np.mean(slopes**2) / len(slopes)) / curvature)


def _in_units_of_excess(neighbors: Neighbors, some: slice) -> tuple[Neighbors, float]:
    """Distances beyond the nearest, in units of a typical one of some points, and that unit.

    NED depends on nothing else, and no scale of the data overflows in these units.
    """
    excess = neighbors.sq_distances - neighbors.sq_distances[:, :1]
    positive = _positive(excess[some])
    unit = float(np.median(positive)) if positive.size else 1.0
    return Neighbors(excess / unit, neighbors.labels, counts=neighbors.counts), unit


def _positive(excess: FloatArray) -> FloatArray:
    return excess[(excess > 0) & (excess < np.inf)]


def _minimum(loss: _MeanLoss, grid_loss: _MeanLoss, grid_points: Neighbors) -> tuple[float, Status]:
    """The log T that minimises a loss: a valley on a coarse grid, then a root of the slope.

    The grid may look at fewer points than the loss; they also bound its range.
    """
    positive = _positive(grid_points.sq_distances)
    if not positive.size:
        return 0.0, "flat"
    low = np.log(np.quantile(positive, SMALLEST_EXCESS_QUANTILE) / RANGE_FACTOR)
    high = np.log(positive.max() * RANGE_FACTOR)
    grid = np.linspace(low, high, GRID_POINTS)
    losses = np.array([grid_loss(log_t) for log_t in grid])
    best = int(losses.argmin())
    # An end of the range that is as good as the best, but for rounding, means there is no valley.
    low_is_best, high_is_best = losses[[0, -1]] <= losses[best] + FLAT
    if low_is_best and high_is_best:
        return 0.0, "flat"
    if low_is_best:
        return _largest_not_rejected(grid_loss, grid), "low"
    if high_is_best:
        return high, "high"
    near = grid
    if grid_loss is not loss:
        sampled = _bottom_of_valley(grid_loss, grid, best)
        near = sampled + NARROW_GRID
        best = len(near) // 2
    return _bottom_of_valley(loss, near, best), "interior"


def _bottom_of_valley(loss: _MeanLoss, grid: FloatArray, best: int) -> float:
    """The minimum about a point of the grid, from the first points beside it where it rises."""
    left, right = best - 1, best + 1
    while loss.slope(grid[left]) >= 0 and left > 0:
        left -= 1
    while loss.slope(grid[right]) <= 0 and right < len(grid) - 1:
        right += 1
    if loss.slope(grid[left]) < 0 < loss.slope(grid[right]):
        root = float(brentq(loss.slope, grid[left], grid[right], xtol=LOG_TEMPERATURE_TOLERANCE))
        if loss(root) <= min(mean for mean, _ in loss.evaluated.values()) + FLAT:
            return root
    # "top_label" jumps where a prediction changes, so its lowest value is at no root: scan for it.
    for log_t in np.linspace(grid[max(best - 3, 0)], grid[min(best + 3, len(grid) - 1)], 61):
        loss(log_t)
    return min(loss.evaluated, key=loss)


def _largest_not_rejected(loss: _MeanLoss, grid: FloatArray) -> float:
    """The largest log T whose likelihood is within one standard error of the limit T = 0.

    Where the loss falls all the way to T = 0, any T below this explains the points as well; the
    largest claims the least certainty.
    """
    allowed = loss(grid[0]) + ONE_STANDARD_ERROR_OF_LIKELIHOOD / loss.n_points
    rejected = next((i for i, log_t in enumerate(grid) if loss(log_t) > allowed), None)
    if rejected is None:
        return float(grid[-1])
    return float(
        brentq(lambda log_t: loss(log_t) - allowed, grid[rejected - 1], grid[rejected], xtol=1e-3)
    )


def _explanation(status: Status, neighbors: Neighbors, labels: IntArray) -> str:
    if status == "flat":
        return (
            "The loss is the same at every temperature (one neighbour or one class only, or all "
            "neighbours equally far), so T is not fitted: any would do as well."
        )
    if status == "high":
        return (
            "The loss falls up to T = infinity: near neighbours are no more often of the right "
            "class than far ones, and NED becomes kNN. Check that labels and distances belong "
            "together."
        )
    duplicates = int(
        ((neighbors.sq_distances[:, 0] == 0) & (neighbors.labels[:, 0] == labels)).sum()
    )
    if 2 * duplicates > len(labels):
        return (
            f"The loss falls down to T = 0: {duplicates} of {len(labels)} support points have an "
            "exact duplicate of their class in the support set (or found themselves), so "
            "everything farther than a duplicate looks worthless. Remove duplicates, or "
            "pass groups= to leave them out together. T is the largest that the data allow."
        )
    return (
        "The loss falls down to T = 0: the nearest neighbour is of the right class for every "
        "support point, so the data give no lower limit to T. T is the largest that the data "
        "allow. If that is because of near-duplicates, pass groups= to leave them out together."
    )
