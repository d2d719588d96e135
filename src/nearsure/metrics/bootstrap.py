"""Bootstrap intervals for any metric, within the range that the metric declares."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import inf, isinf, isnan, nan
from typing import TYPE_CHECKING, ParamSpec, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike

from nearsure.arrays import FloatArray, IntArray
from nearsure.errors import InvalidInputError
from nearsure.progress import tracked
from nearsure.validation import (
    check_open_fraction,
    check_positive_integer,
    check_same_length,
    generator_of,
)

if TYPE_CHECKING:
    from typing import Self

Parameters = ParamSpec("Parameters")


@dataclass(frozen=True)
class MetricTraits:
    """The range of a metric, and what it estimates.

    Attributes
    ----------
    low, high : float
        The smallest and the largest value.
    plug_in : callable
        The metric's true value if the data were the whole population: the metric itself, except
        for one that corrects for the finite sample.
    """

    low: float
    high: float
    plug_in: Callable[..., float]


_DECLARED: dict[Callable[..., float], MetricTraits] = {}


def bounded(
    low: float, high: float, *, plug_in: Callable[..., float] | None = None
) -> Callable[[Callable[Parameters, float]], Callable[Parameters, float]]:
    """Declare the range of the decorated metric, which is returned unchanged.

    Parameters
    ----------
    low, high : float
        The smallest and the largest value.
    plug_in : callable, optional
        A function of the same arguments, if the metric is a corrected form of it.
    """

    def declare(metric: Callable[Parameters, float]) -> Callable[Parameters, float]:
        _DECLARED[metric] = MetricTraits(low, high, plug_in or metric)
        return metric

    return declare


def traits_of(metric: Callable[..., float]) -> MetricTraits:
    """Return what a metric declares, looking through ``functools.partial``.

    Parameters
    ----------
    metric : callable
        A metric of this package, a partial of one, or any other function.

    Returns
    -------
    MetricTraits
        For a function that declares nothing: no bounds, and the function itself as plug-in.

    Examples
    --------
    >>> from functools import partial
    >>> from nearsure.metrics import expected_calibration_error
    >>> traits = traits_of(partial(expected_calibration_error, n_bins=10))
    >>> traits.low, traits.high
    (0.0, 1.0)
    """
    if isinstance(metric, partial):
        inner = traits_of(metric.func)
        plug_in = partial(inner.plug_in, *metric.args, **metric.keywords)
        return MetricTraits(inner.low, inner.high, plug_in)
    return _DECLARED.get(metric, MetricTraits(-inf, inf, metric))


@runtime_checkable
class Rows(Protocol):
    """Data by row that is not an array, such as a posterior."""

    def __len__(self) -> int: ...

    def take(self, rows: IntArray) -> "Self":
        """Return the given rows, with repeats."""
        ...


@dataclass(frozen=True)
class Interval:
    """A metric's value and the interval around it.

    Attributes
    ----------
    estimate : float
        The metric on the data.
    low, high : float
        Ends of the interval for the metric's true value. Both NaN if it could not be had.
    level : float
        The nominal chance that such an interval holds the true value.
    n_undefined : int
        Resamples on which the metric was NaN; they are left out.
    """

    estimate: float
    low: float
    high: float
    level: float
    n_undefined: int = 0

    def __post_init__(self) -> None:
        if self.low > self.high:
            raise InvalidInputError(
                f"The low end of an interval must not be above its high end. "
                f"Got {self.low} and {self.high} instead."
            )


def bootstrap_interval(
    metric: Callable[..., float],
    *data: ArrayLike | Rows,
    seed: int | np.random.Generator,
    n_resamples: int = 1000,
    level: float = 0.95,
    bounds: tuple[float, float] | None = None,
) -> Interval:
    """Return a metric and its basic bootstrap interval, resampling rows.

    Parameters
    ----------
    metric : callable
        Takes ``data`` as positional arguments and returns a float. Bind options beforehand:
        ``functools.partial(expected_calibration_error, n_bins=10)``.
    *data : array-like of shape (n, ...) or Posterior
        Arguments of the metric. The same rows are drawn from each; anything with a length and a
        method ``take(rows)`` will do in place of an array.
    seed : int or numpy.random.Generator
        Source of the resamples.
    n_resamples : int, default=1000
        Number of resamples.
    level : float, default=0.95
        Nominal coverage of the interval, in (0, 1).
    bounds : tuple of float, optional
        Range that the interval is clipped to. By default the range of the metric if it is one of
        this package, and no clipping otherwise.

    Returns
    -------
    Interval
        The estimate and the interval.

    Notes
    -----
    Why *basic* and not percentile: a plug-in calibration error is biased upward, and on a resample
    of the data, where the accuracy of each bin scatters once more, it is biased upward again. The
    percentiles of the resamples are then off by twice the bias and may lie wholly above the
    estimate. The basic interval ``[e + p - q_high, e + p - q_low]`` of an estimate e takes the
    resamples' distance from p as the estimate's distance from the truth, and so takes the bias
    off. Here p is the truth of a world whose population is the data: e itself, except that the
    debiased calibration error has the plug-in ECE as p, which its own resamples estimate. As the
    interval is one for the truth and not around the estimate, it may lie below a strongly biased
    estimate.

    The nominal level is reached for means at once, for calibration errors only with many rows per
    bin. In simulations of a forecaster that is over-confident by 0.1, with 15 bins, the interval
    at 0.95 held the true ECE in 85 % of the cases at 300 rows, 90 % at 1000 and 94 % at 2000.
    No bootstrap is to be trusted for an absolute gap that is 0 in truth: if the ECE is near its
    :func:`~nearsure.metrics.calibration_floor`, the interval often misses 0, and the floor is the
    better yardstick.

    A resample on which the metric is NaN (the AUROC of rows that are all right) is left out and
    counted in ``n_undefined``. If those are more than a tail of the interval,
    ``(1 - level) / 2`` of the resamples, they could move an end anywhere, and both ends are NaN.
    An infinite estimate (a likelihood of rows with probability 0) has itself as both ends: a row
    that happened has a positive chance, so the true mean is infinite too.

    The means :func:`~nearsure.metrics.brier_score` and
    :func:`~nearsure.metrics.negative_log_likelihood` of very many rows are faster from their
    row scores: ``bootstrap_interval(np.mean, row_brier_scores(posterior, labels), seed=0,
    bounds=(0, 2))`` gives the same interval.

    References
    ----------
    Davison, Hinkley: Bootstrap Methods and their Application, section 5.2. Cambridge 1997.

    Examples
    --------
    >>> from nearsure.metrics import accuracy
    >>> interval = bootstrap_interval(accuracy, [True] * 80 + [False] * 20, seed=0)
    >>> interval.estimate, round(interval.low, 2), round(interval.high, 2)
    (0.8, 0.72, 0.88)
    """
    rng = generator_of(seed)
    n_resamples = check_positive_integer("n_resamples", n_resamples)
    level = check_open_fraction("level", level)
    traits = traits_of(metric)
    low, high = (traits.low, traits.high) if bounds is None else bounds
    if not -inf <= low <= high <= inf:
        raise InvalidInputError(
            f"The 'bounds' parameter must be a low and a high end, in this order. "
            f"Got {bounds!r} instead."
        )
    sources = [_as_rows(values) for values in data]
    if not sources:
        raise InvalidInputError(
            "A bootstrap must have data to resample. Got only the metric instead: pass the "
            "metric's arguments after it."
        )
    check_same_length(**{f"data[{i}]": len(source) for i, source in enumerate(sources)})
    n_rows = len(sources[0])
    if n_rows == 0:
        raise InvalidInputError(
            "The data of a bootstrap must have at least one row. Got none instead."
        )

    estimate = float(metric(*sources))
    if isinf(estimate):
        return Interval(estimate, estimate, estimate, level)
    values = np.empty(n_resamples)
    for draw in tracked("resampling", range(n_resamples), n_resamples):
        rows = rng.integers(0, n_rows, size=n_rows)
        values[draw] = metric(*(_take(source, rows) for source in sources))
    plug_in = float(traits.plug_in(*sources))
    return basic_interval(estimate, values, plug_in, level, (low, high))


def basic_interval(
    estimate: float,
    resampled: FloatArray,
    plug_in: float,
    level: float,
    bounds: tuple[float, float],
) -> Interval:
    """The basic interval of an estimate from its resamples; `bootstrap_interval` explains it."""
    defined = resampled[~np.isnan(resampled)]
    n_undefined = len(resampled) - len(defined)
    tail = (1.0 - level) / 2.0
    if isnan(estimate) or n_undefined > tail * len(resampled):
        return Interval(estimate, nan, nan, level, n_undefined)
    # An observed value for each quantile, as interpolation between infinities would be NaN.
    q_low, q_high = np.quantile(defined, (tail, 1.0 - tail), method="inverted_cdf")
    centre = estimate + plug_in
    ends = np.clip((centre - q_high, centre - q_low), *bounds)
    return Interval(estimate, float(ends[0]), float(ends[1]), level, n_undefined)


def _as_rows(values: ArrayLike | Rows) -> FloatArray | Rows:
    if isinstance(values, Rows) and not isinstance(values, np.ndarray):
        return values
    array = np.asarray(values)
    if array.ndim == 0:
        raise InvalidInputError(
            f"The data of a bootstrap must be arrays of shape (n, ...) or have a length and "
            f"take(rows). Got {values!r} instead: bind options with functools.partial."
        )
    return array


def _take(source: FloatArray | Rows, rows: IntArray) -> FloatArray | Rows:
    return source[rows] if isinstance(source, np.ndarray) else source.take(rows)
