"""What the bootstrap has to know of a metric, declared at the metric."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import ParamSpec

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


def declare(
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

    def declared(metric: Callable[Parameters, float]) -> Callable[Parameters, float]:
        _DECLARED[metric] = MetricTraits(low, high, plug_in or metric)
        return metric

    return declared


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
