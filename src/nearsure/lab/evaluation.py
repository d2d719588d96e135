"""Everything that is known about one experiment, as numbers that go to JSON and come back."""

import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np

from nearsure.arrays import FloatArray, IntArray
from nearsure.comparison import TITLES, RuleComparison, RuleResult, compare_rules, score_by
from nearsure.displays import NeighborCurveDisplay
from nearsure.errors import FitWarning, InvalidInputError
from nearsure.lab.protocols import ProtocolName, ProtocolNeighbors
from nearsure.metrics import Bins, Interval, bin_by_confidence, bootstrap_interval
from nearsure.neighbors import Neighbors
from nearsure.rules import RULE_NAMES, RuleName
from nearsure.temperature import TemperatureFit, fit_temperature

DEFAULT_KS = (1, 2, 3, 5, 10, 20, 35, 50, 75, 100, 150, 200)
INTERVALS = ("accuracy", "ece", "brier")


@dataclass(frozen=True)
class NeighborCurve:
    """Accuracy and ECE of each rule against k; T is fitted anew for each k.

    Parameters
    ----------
    ks : tuple of int
        Numbers of neighbours, m of them.
    accuracy, ece : mapping of rule name to tuple of m floats
        Fractions.
    """

    ks: tuple[int, ...]
    accuracy: Mapping[RuleName, tuple[float, ...]]
    ece: Mapping[RuleName, tuple[float, ...]]


@dataclass(frozen=True, eq=False)
class Evaluation:
    """How the five rules did in one experiment; `evaluate` makes it.

    Parameters
    ----------
    protocol : {"all_against_others", "gallery_and_queries", "given_gallery"}
        Who was asked.
    n_gallery, n_queries, n_classes : int
        Points in the gallery, queries, and classes in the gallery.
    n_unknown_queries : int
        Queries of a class that the gallery lacks; each counts as wrong.
    k : int
        Neighbours that the comparison uses.
    seed, n_resamples : int
        Of the bootstrap intervals and the ECE floors.
    temperature_fit : TemperatureFit
        T at this k, with its standard error and the share of misses.
    comparison : RuleComparison
        Accuracy, ECE (15 bins of equal width), its floor and Brier score of each rule.
    curve : NeighborCurve
        Accuracy and ECE against k.
    reliability : mapping of rule name to Bins
        The bins of each rule's ECE.
    ned_gain : mapping of rule name to Interval
        NED's accuracy less that of each other rule on the same queries. Its interval is far
        narrower than the two accuracies' own would suggest, as they err on the same queries.
    notes : tuple of str
        What a reader must know: warnings of the fit, queries that are copies of gallery points.
    """

    protocol: ProtocolName
    n_gallery: int
    n_queries: int
    n_unknown_queries: int
    n_classes: int
    k: int
    seed: int
    n_resamples: int
    temperature_fit: TemperatureFit
    comparison: RuleComparison
    curve: NeighborCurve
    reliability: Mapping[RuleName, Bins]
    ned_gain: Mapping[RuleName, Interval]
    notes: tuple[str, ...]

    def result_of(self, rule: RuleName) -> RuleResult:
        """How one rule did."""
        return next(result for result in self.comparison.results if result.rule == rule)

    def to_dict(self) -> dict[str, Any]:
        """The evaluation as numbers, strings, lists and dictionaries; what is NaN becomes None."""
        fields = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return {
            **fields,
            "temperature_fit": self.temperature_fit.to_dict(),
            "comparison": [_without_nan(asdict(result)) for result in self.comparison.results],
            "curve": _without_nan(asdict(self.curve)),
            "reliability": {
                rule: _without_nan(asdict(bins)) for rule, bins in self.reliability.items()
            },
            "ned_gain": {rule: asdict(gain) for rule, gain in self.ned_gain.items()},
            "notes": list(self.notes),
        }

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> Self:
        """The inverse of `to_dict`."""
        try:
            curve = fields["curve"]
            return cls(
                **{
                    **fields,
                    "temperature_fit": TemperatureFit.from_dict(fields["temperature_fit"]),
                    "comparison": RuleComparison(tuple(map(_result_of, fields["comparison"]))),
                    "curve": NeighborCurve(
                        tuple(curve["ks"]),
                        {rule: tuple(values) for rule, values in curve["accuracy"].items()},
                        {rule: tuple(values) for rule, values in curve["ece"].items()},
                    ),
                    "reliability": {
                        rule: _bins_of(bins) for rule, bins in fields["reliability"].items()
                    },
                    "ned_gain": {
                        rule: _interval_of(gain) for rule, gain in fields["ned_gain"].items()
                    },
                    "notes": tuple(fields["notes"]),
                }
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise InvalidInputError(
                f"The fields of an evaluation must be those that to_dict gives. {error!r}: was "
                "this written by another version, or is it something else?"
            ) from error

    def to_json(self) -> str:
        """The evaluation as JSON."""
        return json.dumps(self.to_dict(), allow_nan=False, indent=1)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The inverse of `to_json`."""
        try:
            fields = json.loads(text)
        except ValueError as error:
            raise InvalidInputError(f"An evaluation must be valid JSON: {error}.") from error
        return cls.from_dict(fields)


def evaluate(
    found: ProtocolNeighbors,
    *,
    k: int,
    seed: int,
    n_resamples: int = 1000,
    ks: Sequence[int] | None = None,
) -> Evaluation:
    """Fit T on the gallery, then score the queries by the five rules.

    Parameters
    ----------
    found : ProtocolNeighbors
        What a protocol found.
    k : int
        Neighbours to use in the comparison, at most as many as were searched.
    seed : int
        Seed of the bootstrap.
    n_resamples : int
        Resamples of each interval.
    ks : sequence of int, optional
        Numbers of neighbours of the curve; by default some from 1 to what was searched, and `k`.

    Returns
    -------
    Evaluation
    """
    own, queries = found.own.first(k), found.queries.first(k)
    if ks is None:
        ks = sorted({k, *(some for some in DEFAULT_KS if some <= found.k)})
    fit, notes = fit_with_notes(own, found.own_codes)
    copies = int((queries.sq_distances[:, 0] == 0).sum())
    if copies:
        what = "another point" if found.protocol == "all_against_others" else "a gallery point"
        note = f"{copies} of {len(queries)} queries equal {what} exactly."
        notes += (f"{note} If these are the same items, the figures are too good.",)
    reliability, correct = {}, {}
    for rule in RULE_NAMES:
        posterior = score_by(rule, queries, fit.temperature)
        correct[rule] = posterior.labels == found.query_codes
        reliability[rule] = bin_by_confidence(posterior.confidence, correct[rule])
    ned_gain: dict[RuleName, Interval] = {
        rule: bootstrap_interval(
            np.mean,
            np.subtract(correct["ned"], correct[rule], dtype=np.float64),
            seed=seed,
            n_resamples=n_resamples,
            bounds=(-1.0, 1.0),
        )
        for rule in RULE_NAMES
        if rule != "ned"
    }
    return Evaluation(
        protocol=found.protocol,
        n_gallery=len(found.own),
        n_queries=len(queries),
        n_unknown_queries=found.n_unknown_queries,
        n_classes=found.n_classes,
        k=k,
        seed=seed,
        n_resamples=n_resamples,
        temperature_fit=fit,
        comparison=compare_rules(
            queries,
            found.query_codes,
            temperature=fit.temperature,
            seed=seed,
            n_resamples=n_resamples,
        ),
        curve=_curve(found, ks),
        reliability=reliability,
        ned_gain=ned_gain,
        notes=notes,
    )


def fit_with_notes(own: Neighbors, codes: IntArray) -> tuple[TemperatureFit, tuple[str, ...]]:
    """The fitted temperature, and what its fit warned of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", FitWarning)
        fit = fit_temperature(own, codes)
    for warning in caught:
        if not issubclass(warning.category, FitWarning):
            warnings.warn_explicit(
                warning.message, warning.category, warning.filename, warning.lineno
            )
    return fit, tuple(str(w.message) for w in caught if issubclass(w.category, FitWarning))


def _curve(found: ProtocolNeighbors, ks: Sequence[int]) -> NeighborCurve:
    display = NeighborCurveDisplay.from_neighbors(
        found.queries, found.query_codes, own=found.own, own_labels=found.own_codes, ks=ks
    )

    def by_rule(by_title: Mapping[str, Any]) -> dict[RuleName, tuple[float, ...]]:
        return {rule: tuple(map(float, by_title[TITLES[rule]])) for rule in RULE_NAMES}

    return NeighborCurve(
        tuple(map(int, ks)), by_rule(display.accuracy), by_rule(display.calibration_error)
    )


def _without_nan(value: Any) -> Any:  # noqa: ANN401
    """The same value in JSON's terms: lists for arrays and tuples, None for NaN."""
    if isinstance(value, dict):
        return {key: _without_nan(entry) for key, entry in value.items()}
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [_without_nan(entry) for entry in value]
    return None if isinstance(value, float) and np.isnan(value) else value


def _result_of(fields: dict[str, Any]) -> RuleResult:
    return RuleResult(**{**fields, **{name: _interval_of(fields[name]) for name in INTERVALS}})


def _interval_of(fields: dict[str, Any]) -> Interval:
    ends = {name: _number(fields[name]) for name in ("estimate", "low", "high")}
    return Interval(**{**fields, **ends})


def _bins_of(fields: dict[str, Any]) -> Bins:
    return Bins(
        np.array(fields["edges"]),
        np.array(fields["counts"], np.int64),
        _numbers(fields["mean_confidence"]),
        _numbers(fields["accuracy"]),
    )


def _numbers(entries: list[float | None]) -> FloatArray:
    return np.array([_number(entry) for entry in entries], np.float64)


def _number(entry: float | None) -> float:
    return np.nan if entry is None else entry
