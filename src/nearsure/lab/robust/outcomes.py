"""What every method did on one set of queries, as numbers that go to JSON and come back."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from nearsure.errors import InvalidInputError
from nearsure.lab.robust.joint_bootstrap import (
    DECIMALS,
    LEVEL,
    MEASURE_NAMES,
    Measures,
    basic_interval,
)
from nearsure.lab.robust.methods import METHODS, NED, Method
from nearsure.metrics import Interval

INTERVALS = (*MEASURE_NAMES, "overconfidence", "accuracy_less_ned", "ece_less_ned")


@dataclass(frozen=True)
class MethodResult:
    """How one method did.

    Parameters
    ----------
    method : Method
        Which.
    accuracy, ece : Interval
        Fractions; ECE with 15 bins of equal width.
    ece_floor : float
        Expected ECE of a perfectly calibrated forecaster with the same confidences.
    confidence : Interval
        Mean confidence.
    confidently_wrong : Interval
        Share of all queries that are wrong with a confidence of 0.9 or more.
    confidence_when_wrong : Interval
        Mean confidence of the wrong answers; NaN where there is none.
    top_label_brier : Interval
        Mean squared difference between the confidence and being right (1) or wrong (0). Unlike
        ECE it is not to be had cheaply by saying the same of every query.
    overconfidence : Interval
        Mean confidence less accuracy. Its size is at most the ECE, and unlike the ECE it is not
        raised by chance.
    accuracy_less_ned, ece_less_ned : Interval
        This method's less that of NED as it is, on the same queries.
    """

    method: Method
    accuracy: Interval
    ece: Interval
    ece_floor: float
    confidence: Interval
    confidently_wrong: Interval
    confidence_when_wrong: Interval
    top_label_brier: Interval
    overconfidence: Interval
    accuracy_less_ned: Interval
    ece_less_ned: Interval

    def interval(self, name: str) -> Interval:
        """One of the intervals by its name."""
        if name not in INTERVALS:
            raise InvalidInputError(f"'name' must be one of {INTERVALS}. Got {name!r} instead.")
        found: Interval = getattr(self, name)
        return found

    def to_dict(self) -> dict[str, Any]:
        """In JSON's types: an interval is its estimate and its two ends."""
        ends = {name: _interval_to_list(self.interval(name)) for name in INTERVALS}
        return {**ends, "ece_floor": self.ece_floor}

    @classmethod
    def from_dict(cls, method: Method, fields: dict[str, Any]) -> Self:
        """The inverse of `to_dict`."""
        ends = {name: _interval_from_list(fields[name]) for name in INTERVALS}
        return cls(method, ece_floor=fields["ece_floor"], **ends)


@dataclass(frozen=True)
class Outcome:
    """How all methods did on the queries as one variant has them, or in the mean over variants.

    Parameters
    ----------
    results : tuple of MethodResult
        In the order of `METHODS`.
    n_variants : int
        How many the mean is over; 1 for a variant itself.
    """

    results: tuple[MethodResult, ...]
    n_variants: int = 1

    def of(self, method: Method) -> MethodResult:
        """How one method did."""
        return next(result for result in self.results if result.method == method)

    def lowest_ece(self, methods: Iterable[Method] = METHODS) -> MethodResult:
        """The method with the lowest ECE; the first of equal ones."""
        return min(map(self.of, methods), key=lambda result: result.ece.estimate)

    def to_dict(self) -> dict[str, Any]:
        """In JSON's types."""
        by_method = {result.method.key: result.to_dict() for result in self.results}
        return {"n_variants": self.n_variants, "methods": by_method}

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> Self:
        """The inverse of `to_dict`."""
        by_method = fields["methods"]
        results = (MethodResult.from_dict(method, by_method[method.key]) for method in METHODS)
        return cls(tuple(results), fields["n_variants"])


def outcome_of(measures: Measures, floors: list[float], *, n_variants: int = 1) -> Outcome:
    """Intervals from measures on the queries and on their resamples.

    Parameters
    ----------
    measures : Measures
        Of one variant, or of the mean over some.
    floors : list of float
        ECE floor of every method.
    n_variants : int
        How many the mean is over.
    """
    ned = METHODS.index(NED)
    results = []
    for place, method in enumerate(METHODS):
        intervals = {
            name: basic_interval(getattr(measures, name)[:, place]) for name in MEASURE_NAMES
        }
        too_sure = measures.confidence[:, place] - measures.accuracy[:, place]
        intervals["overconfidence"] = basic_interval(too_sure, low=-1.0)
        for name in ("accuracy", "ece"):
            values = getattr(measures, name)
            intervals[f"{name}_less_ned"] = basic_interval(
                values[:, place] - values[:, ned], low=-1.0
            )
        floor = round(floors[place], DECIMALS)
        results.append(MethodResult(method, ece_floor=floor, **intervals))
    return Outcome(tuple(results), n_variants)


def _interval_to_list(interval: Interval) -> list[float | int | None]:
    numbers = (interval.estimate, interval.low, interval.high)
    ends: list[float | int | None] = [None if np.isnan(end) else end for end in numbers]
    return [*ends, interval.n_undefined] if interval.n_undefined else ends


def _interval_from_list(entries: list[Any]) -> Interval:
    estimate, low, high = (np.nan if end is None else end for end in entries[:3])
    return Interval(estimate, low, high, LEVEL, *entries[3:])
