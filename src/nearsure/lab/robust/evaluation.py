"""Outcomes of methods on changed queries, with a joint bootstrap."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from nearsure.arrays import AnyArray, FloatArray, IntArray
from nearsure.lab.cache import to_plain
from nearsure.lab.protocols import ProtocolName
from nearsure.lab.robust.methods import (
    DEFAULT,
    METHODS,
    NED,
    NEIGHBORS_ALONE,
    FrozenMethods,
    Method,
    Scores,
)
from nearsure.lab.robust.settings import Variant
from nearsure.metrics import Interval, calibration_floor
from nearsure.metrics.bootstrap import basic_interval
from nearsure.metrics.calibration_error import width_bins
from nearsure.neighbors import Neighbors
from nearsure.temperature import TemperatureFit

if TYPE_CHECKING:
    from typing import Self

# One set of resampled queries for every variant and method, and fast sums over all of them.
#
# Variants show the same queries, so an interval for a mean over variants, or for a difference
# between methods, must draw the same queries in all of them. With bins of equal width a query's bin
# does not change when it is drawn again. So the calibration error of a resample is made of sums of
# ``confidence - correct`` over the drawn queries of each bin, and those of all resamples are one
# product of matrices: how often each query was drawn, times the summands.


N_BINS = 15
SURE = 0.9
LEVEL = 0.95
# Numbers are kept to this many decimals: far beyond the bootstrap's noise, and short of the last
# bits, which depend on how many threads did the sums.
DECIMALS = 7
# Drawn queries that are floating-point numbers at once; the result does not depend on it.
BLOCK_ENTRIES = 1 << 21


# Of every method, columns, on the queries (row 0) and on each resample (the other rows).
Measures = Mapping[str, FloatArray]


class JointBootstrap:
    """How often each query is drawn in each resample, the same for all that is measured.

    Parameters
    ----------
    n_queries : int
        Queries to draw from, and to draw.
    seed : int
        Source of the draws. They are those of `bootstrap_interval` with this seed.
    n_resamples : int
        How many times.
    """

    def __init__(self, n_queries: int, *, seed: int, n_resamples: int) -> None:
        self.n_queries = n_queries
        rng = np.random.default_rng(seed)
        # Row 0 is the data themselves. A byte is enough: a query is drawn once on average, and 256
        # times with a chance below 1e-500.
        self._drawn = np.ones((1 + n_resamples, n_queries), np.uint8)
        for row in self._drawn[1:]:
            chosen = rng.integers(0, n_queries, size=n_queries)
            row[:] = np.bincount(chosen, minlength=n_queries)

    def sums(self, summands: FloatArray) -> FloatArray:
        """Sums over the queries and over each resample, shape (1 + n_resamples, m).

        Parameters
        ----------
        summands : array of shape (n_queries, m)
            What each query adds.
        """
        step = max(1, BLOCK_ENTRIES // self.n_queries)
        blocks = range(0, len(self._drawn), step)
        return np.concatenate(
            [self._drawn[first : first + step].astype(np.float64) @ summands for first in blocks]
        )

    def measure(self, scores: Scores) -> Measures:
        """Every measure of every method; see `MethodResult`."""
        confidence, correct = scores.confidence.T, scores.correct.T

        # Summed in groups of columns, so that memory stays bounded by a few columns a method.
        def mean(summands: AnyArray) -> FloatArray:
            return self.sums(summands.astype(np.float64)) / self.n_queries

        right = mean(correct)
        wrong_confidence, wrong = mean(np.where(correct, 0.0, confidence)), 1.0 - right
        return {
            "accuracy": right,
            "ece": self._calibration_errors(scores),
            "confidence": mean(confidence),
            "confidently_wrong": mean(~correct & (confidence >= SURE)),
            "confidence_when_wrong": np.divide(
                wrong_confidence, wrong, out=np.full_like(wrong, np.nan), where=wrong > 0
            ),
            "top_label_brier": mean((confidence - correct) ** 2),
        }

    def _calibration_errors(self, scores: Scores) -> FloatArray:
        n_methods = len(scores.confidence)
        gaps = np.zeros((self.n_queries, n_methods, N_BINS))
        queries = np.arange(self.n_queries)
        for method in range(n_methods):
            confidence, correct = scores.confidence[method], scores.correct[method]
            gaps[queries, method, width_bins(confidence, N_BINS)] = confidence - correct
        totals = self.sums(gaps.reshape(self.n_queries, -1))
        absolute = np.abs(totals).reshape(-1, n_methods, N_BINS)
        return np.asarray(absolute.sum(axis=2) / self.n_queries, np.float64)


def mean_of(measures: Sequence[Measures]) -> Measures:
    """The mean over variants, in the data and in each resample."""
    return {name: np.mean([found[name] for found in measures], axis=0) for name in measures[0]}


def interval_of(values: FloatArray, *, low: float = 0.0) -> Interval:
    """The basic bootstrap interval of a measure.

    Parameters
    ----------
    values : array of shape (1 + n_resamples,)
        The measure on the data and on each resample; NaN where it is not defined.
    low : float
        The least that the measure may be; the most is 1.
    """
    estimate = float(values[0])
    found = basic_interval(estimate, values[1:], estimate, LEVEL, (low, 1.0))
    estimate, low, high = (round(end, DECIMALS) for end in (estimate, found.low, found.high))
    return Interval(estimate, low, high, LEVEL, found.n_undefined)


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
        ECE it is not low for a constant confidence.
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
        found: Interval = getattr(self, name)
        return found

    def to_dict(self) -> dict[str, Any]:
        """In JSON's types: an interval is its estimate and its two ends."""
        ends = {name: _interval_to_list(self.interval(name)) for name in INTERVALS}
        return {**ends, "ece_floor": self.ece_floor}

    @classmethod
    def from_dict(cls, method: Method, stored: dict[str, Any]) -> "Self":
        """The inverse of `to_dict`."""
        ends = {name: _interval_from_list(stored[name]) for name in INTERVALS}
        return cls(method, ece_floor=stored["ece_floor"], **ends)


INTERVALS = tuple(
    field.name for field in fields(MethodResult) if field.name not in {"method", "ece_floor"}
)


@dataclass(frozen=True)
class Outcome:
    """How all methods did on the queries as one variant has them, or in the mean over variants.

    Parameters
    ----------
    results : tuple of MethodResult
        In the order of `METHODS`.
    n_variants : int
        How many the mean is over; 1 for a variant itself.
    head_gain, head_ece_change : Interval or None
        Accuracy and ECE of nearsure with its head less those of its neighbours alone, on the same
        queries; None in files that have neither.
    """

    results: tuple[MethodResult, ...]
    n_variants: int = 1
    head_gain: Interval | None = None
    head_ece_change: Interval | None = None

    def of(self, method: Method) -> MethodResult:
        """How one method did."""
        return next(result for result in self.results if result.method == method)

    def lowest_ece(self, methods: Iterable[Method] = METHODS) -> MethodResult:
        """The method with the lowest ECE; the first of equal ones."""
        allowed = set(methods)
        asked = [result for result in self.results if result.method in allowed]
        return min(asked, key=lambda result: result.ece.estimate)

    def to_dict(self) -> dict[str, Any]:
        """In JSON's types."""
        by_method = {_key(result.method): result.to_dict() for result in self.results}
        changes = {name: getattr(self, name) for name in HEAD_CHANGES}
        return {
            "n_variants": self.n_variants,
            "methods": by_method,
            **{name: _interval_to_list(change) for name, change in changes.items() if change},
        }

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> "Self":
        """The inverse of `to_dict`."""
        by_method = fields["methods"]
        results = (
            MethodResult.from_dict(method, by_method[_key(method)])
            for method in METHODS
            if _key(method) in by_method
        )
        changes = {
            name: _interval_from_list(fields[name]) for name in HEAD_CHANGES if name in fields
        }
        return cls(tuple(results), fields["n_variants"], **changes)


HEAD_CHANGES = ("head_gain", "head_ece_change")


def outcome_of(measured: Sequence[Measures]) -> Outcome:
    """Intervals of the mean over variants.

    Parameters
    ----------
    measured : sequence of Measures
        Of one variant or more, each with the "ece_floor" of every method.
    """
    mean = dict(mean_of(measured))
    floors, ned = mean.pop("ece_floor"), METHODS.index(NED)
    changes = {
        "overconfidence": mean["confidence"] - mean["accuracy"],
        "accuracy_less_ned": mean["accuracy"] - mean["accuracy"][:, [ned]],
        "ece_less_ned": mean["ece"] - mean["ece"][:, [ned]],
    }
    results = []
    for place, method in enumerate(METHODS):
        intervals = {name: interval_of(values[:, place]) for name, values in mean.items()}
        for name, values in changes.items():
            intervals[name] = interval_of(values[:, place], low=-1.0)
        floor = round(float(floors[place]), DECIMALS)
        results.append(MethodResult(method, ece_floor=floor, **intervals))
    alone, whole = METHODS.index(NEIGHBORS_ALONE), METHODS.index(DEFAULT)
    by_head = (mean[name][:, whole] - mean[name][:, alone] for name in ("accuracy", "ece"))
    return Outcome(
        tuple(results), len(measured), *(interval_of(values, low=-1.0) for values in by_head)
    )


def _key(method: Method) -> str:
    return f"{method.base}-{method.step}"


def _interval_to_list(interval: Interval) -> list[float | int | None]:
    ends: list[float | int | None] = to_plain([interval.estimate, interval.low, interval.high])
    return [*ends, interval.n_undefined] if interval.n_undefined else ends


def _interval_from_list(entries: list[Any]) -> Interval:
    estimate, low, high = (np.nan if end is None else end for end in entries[:3])
    return Interval(estimate, low, high, LEVEL, *entries[3:])


# The floor of one variant is then known to about 2% of itself, and their mean far better.
FLOOR_SIMULATIONS = 100
# Squared distance of an image to itself when two forms of one network embed it.
SAME = 1e-10


@dataclass(frozen=True)
class VariantOutcome:
    """How all methods did on the queries after one change.

    Parameters
    ----------
    variant : Variant
        The change.
    outcome : Outcome
        What came of it.
    """

    variant: Variant
    outcome: Outcome

    def to_dict(self) -> dict[str, Any]:
        """In JSON's types: the variant before the entries of the outcome."""
        return {"variant": asdict(self.variant), **self.outcome.to_dict()}

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> "Self":
        """The inverse of `to_dict`."""
        return cls(Variant(**fields["variant"]), Outcome.from_dict(fields))


@dataclass(frozen=True)
class RobustEvaluation:
    """How all methods did on the same queries, clean and changed; `evaluate_variants` makes it.

    Parameters
    ----------
    model : str
        What embedded the images.
    protocol : {"all_against_others", "gallery_and_queries", "given_gallery"}
        Gallery and queries: a changed query is never searched against its own clean image.
    n_gallery, n_queries, n_classes : int
        Clean points in the gallery, queries, and classes in the gallery.
    n_unknown_queries : int
        Queries of a class that the gallery lacks; each counts as wrong.
    k : int
        Neighbours of every rule.
    seed, n_resamples : int
        Of the intervals and the ECE floors.
    temperature_fit : TemperatureFit
        T, fitted on the clean gallery.
    clean : Outcome
        The same queries, unchanged.
    variants : tuple of VariantOutcome
        Every change.
    mean : Outcome or None
        Mean over all corruptions and severities; None where there is no corruption.
    by_corruption : mapping of str to Outcome
        Mean over the severities of each.
    by_severity : mapping of int to Outcome
        Mean over the corruptions at each.
    notes : tuple of str
        What a reader must know.
    """

    model: str
    protocol: ProtocolName
    n_gallery: int
    n_queries: int
    n_unknown_queries: int
    n_classes: int
    k: int
    seed: int
    n_resamples: int
    temperature_fit: TemperatureFit
    clean: Outcome
    variants: tuple[VariantOutcome, ...]
    mean: Outcome | None
    by_corruption: Mapping[str, Outcome]
    by_severity: Mapping[int, Outcome]
    notes: tuple[str, ...] = ()

    @property
    def corruptions(self) -> tuple[VariantOutcome, ...]:
        """The corrupted variants."""
        return tuple(found for found in self.variants if found.variant.family == "corruption")

    @property
    def attacks(self) -> tuple[VariantOutcome, ...]:
        """The attacked variants."""
        return tuple(found for found in self.variants if found.variant.family == "attack")


def evaluate_variants(
    model: str,
    protocol: ProtocolName,
    frozen: FrozenMethods,
    *,
    clean: tuple[Neighbors, IntArray],
    variants: Iterable[tuple[Variant, Neighbors, IntArray]],
    seed: int = 0,
    n_resamples: int = 1000,
) -> RobustEvaluation:
    """Score the same queries, clean and changed in several ways.

    Intervals are joint: a resample draws the same queries in every variant, so those of means
    over variants and of differences between methods are right, too.

    Parameters
    ----------
    model : str
        What embedded the images.
    protocol : {"all_against_others", "gallery_and_queries", "given_gallery"}
        Which points are the gallery, and which are queries.
    frozen : FrozenMethods
        Fitted on the clean gallery. Nothing here changes it.
    clean : tuple of Neighbors and array of shape (n,)
        Neighbours of the clean queries in the gallery, and their class codes.
    variants : iterable of (Variant, Neighbors, array of shape (n,))
        The same queries after each change, in the same order; taken one at a time, so a generator
        needs no more memory than one of them.
    seed : int
        Of the resamples and floors.
    n_resamples : int
        Resamples of every interval.

    Returns
    -------
    RobustEvaluation
    """
    neighbors, codes = clean
    draws = JointBootstrap(len(neighbors), seed=seed, n_resamples=n_resamples)

    def measure(found: Neighbors, found_codes: IntArray) -> Measures:
        scores = frozen.scores(found, found_codes)
        floors = [
            calibration_floor(row, seed=seed, n_bins=N_BINS, n_simulations=FLOOR_SIMULATIONS)
            for row in scores.confidence
        ]
        return {**draws.measure(scores), "ece_floor": np.array(floors)}

    base = measure(*clean)
    measured = {variant: measure(changed, its_codes) for variant, changed, its_codes in variants}
    corruptions = {v: found for v, found in measured.items() if v.severity is not None}

    def mean_by(trait: str) -> dict[Any, Outcome]:
        groups: dict[Any, list[Measures]] = {}
        for variant, found in corruptions.items():
            groups.setdefault(getattr(variant, trait), []).append(found)
        return {value: outcome_of(group) for value, group in groups.items()}

    by_corruption, by_severity = mean_by("name"), mean_by("severity")
    n_full = len(by_corruption) * len(by_severity)
    return RobustEvaluation(
        model=model,
        protocol=protocol,
        n_gallery=len(frozen.gallery_codes),
        n_queries=len(neighbors),
        n_unknown_queries=int((~np.isin(codes, frozen.gallery_codes)).sum()),
        n_classes=len(np.unique(frozen.gallery_codes)),
        k=frozen.k,
        seed=seed,
        n_resamples=n_resamples,
        temperature_fit=frozen.temperature_fit,
        clean=outcome_of([base]),
        variants=tuple(VariantOutcome(v, outcome_of([found])) for v, found in measured.items()),
        mean=outcome_of(list(corruptions.values())) if corruptions else None,
        by_corruption=by_corruption,
        by_severity={severity: by_severity[severity] for severity in sorted(by_severity)},
        notes=frozen.notes + _notes(protocol, neighbors, len(corruptions), n_full),
    )


def _notes(
    protocol: ProtocolName, clean: Neighbors, n_corruptions: int, n_full: int
) -> tuple[str, ...]:
    notes = []
    if protocol == "all_against_others":
        notes.append(
            "T and the calibrators were fitted on the clean images of all points, among them "
            "those that ask. Clean figures are a little too good, those of isotonic regression, "
            "which has many parameters, most of all."
        )
    copies = int((clean.sq_distances[:, 0] <= SAME).sum())
    if copies:
        notes.append(
            f"{copies} of {len(clean)} clean queries equal a gallery point but for rounding. If "
            "these are the same items, the figures are too good."
        )
    if n_corruptions != n_full:
        notes.append(
            "Not every corruption has every severity, so means over severities or corruptions "
            f"are not of the same things: {n_corruptions} variants in place of {n_full}."
        )
    return tuple(notes)


# Calibrated 1NN has one confidence for all queries: a rate.
BASELINE_RULES = ("knn", "dudani", "gou")
CALIBRATED_BASELINES = tuple(
    method for method in METHODS if method.base in BASELINE_RULES and method.step != "raw"
)


def best_baseline(outcomes: Sequence[Outcome]) -> Method:
    """The calibrated kNN, Dudani or Gou with the lowest mean ECE over some outcomes.

    It is chosen on the very queries that it is then shown on, which favours it a little.

    Parameters
    ----------
    outcomes : sequence of Outcome
        At least one.
    """

    def total_ece(method: Method) -> float:
        return sum(outcome.of(method).ece.estimate for outcome in outcomes)

    return min(CALIBRATED_BASELINES, key=total_ece)
