"""Outcomes of methods on changed queries, with a joint bootstrap."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np

from nearsure.arrays import FloatArray, IntArray
from nearsure.lab.cache import fields_from_plain, fields_to_plain
from nearsure.lab.protocols import ProtocolName
from nearsure.lab.robust.methods import METHODS, NED, FrozenMethods, Method, Scores
from nearsure.lab.robust.settings import Variant
from nearsure.metrics import Interval, calibration_floor
from nearsure.metrics.calibration_error import width_bins
from nearsure.neighbors import Neighbors
from nearsure.rules import RuleName
from nearsure.temperature import TemperatureFit
from nearsure.validation import check_positive_integer, generator_of

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


@dataclass(frozen=True, eq=False)
class Measures:
    """Numbers of every method on the queries (row 0) and on each resample (the other rows).

    Parameters
    ----------
    accuracy : array of shape (1 + n_resamples, n_methods)
        Share of queries whose label is right.
    ece : array of the same shape
        Expected calibration error, 15 bins of equal width.
    confidence : array of the same shape
        Mean confidence.
    confidently_wrong : array of the same shape
        Share of queries, of all, that are wrong with a confidence of 0.9 or more.
    confidence_when_wrong : array of the same shape
        Mean confidence of the wrong answers; NaN where none is wrong.
    top_label_brier : array of the same shape
        Mean squared difference between confidence and being right (1) or wrong (0).
    """

    accuracy: FloatArray
    ece: FloatArray
    confidence: FloatArray
    confidently_wrong: FloatArray
    confidence_when_wrong: FloatArray
    top_label_brier: FloatArray


MEASURE_NAMES: tuple[str, ...] = tuple(Measures.__dataclass_fields__)


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
        self.n_queries = check_positive_integer("n_queries", n_queries)
        n_resamples = check_positive_integer("n_resamples", n_resamples)
        rng = generator_of(seed)
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
        """Every measure of every method."""
        confidence, correct = scores.confidence.T, scores.correct.T
        # Summed in groups of columns, so that memory stays bounded by a few columns a method.
        right = self.sums(correct.astype(np.float64)) / self.n_queries
        wrong_confidence = self.sums(np.where(correct, 0.0, confidence)) / self.n_queries
        wrong = 1.0 - right
        return Measures(
            accuracy=right,
            ece=self._calibration_errors(scores),
            confidence=self.sums(confidence) / self.n_queries,
            confidently_wrong=self.sums((~correct & (confidence >= SURE)).astype(np.float64))
            / self.n_queries,
            confidence_when_wrong=np.divide(
                wrong_confidence, wrong, out=np.full_like(wrong, np.nan), where=wrong > 0
            ),
            top_label_brier=self.sums((confidence - correct) ** 2) / self.n_queries,
        )

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


def mean_of(measures: list[Measures]) -> Measures:
    """The mean over variants, in the data and in each resample."""
    return Measures(
        **{
            name: np.mean([getattr(found, name) for found in measures], axis=0)
            for name in MEASURE_NAMES
        }
    )


def basic_interval(values: FloatArray, *, low: float = 0.0, high: float = 1.0) -> Interval:
    """The basic bootstrap interval of an estimate, `values[0]`, from its resamples, the rest.

    It is the interval of `bootstrap_interval`, which says why it is not the percentile one.

    Parameters
    ----------
    values : array of shape (1 + n_resamples,)
        The measure on the data and on each resample; NaN where it is not defined.
    low, high : float
        Range of the measure, which the interval is clipped to.
    """
    estimate, resampled = float(values[0]), values[1:]
    defined = resampled[~np.isnan(resampled)]
    n_undefined = len(resampled) - len(defined)
    tail = (1.0 - LEVEL) / 2.0
    if np.isnan(estimate) or n_undefined > tail * len(resampled):
        ends = np.full(2, np.nan)
    else:
        q_low, q_high = np.quantile(defined, (tail, 1.0 - tail), method="inverted_cdf")
        ends = np.clip((2 * estimate - q_high, 2 * estimate - q_low), low, high)
    return Interval(
        round(estimate, DECIMALS),
        round(float(ends[0]), DECIMALS),
        round(float(ends[1]), DECIMALS),
        LEVEL,
        n_undefined,
    )


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
    def from_dict(cls, fields: dict[str, Any]) -> Self:
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

    def to_dict(self) -> dict[str, Any]:
        """In JSON's types; NaN becomes None."""
        return fields_to_plain(self)

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> Self:
        """The inverse of `to_dict`."""
        evaluation: Self = fields_from_plain(cls, fields)
        return evaluation


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
    base = _Measured.of(draws, frozen.scores(neighbors, codes), seed)
    measured: dict[Variant, _Measured] = {}
    for variant, changed, changed_codes in variants:
        measured[variant] = _Measured.of(draws, frozen.scores(changed, changed_codes), seed)
    corruptions = {v: found for v, found in measured.items() if v.severity is not None}
    names = dict.fromkeys(variant.name for variant in corruptions)
    severities = sorted({v.severity for v in corruptions if v.severity is not None})
    return RobustEvaluation(
        model=model,
        protocol=protocol,
        n_gallery=frozen.n_gallery,
        n_queries=len(neighbors),
        n_unknown_queries=int((~np.isin(codes, frozen.gallery_codes)).sum()),
        n_classes=len(np.unique(frozen.gallery_codes)),
        k=frozen.k,
        seed=seed,
        n_resamples=n_resamples,
        temperature_fit=frozen.temperature_fit,
        clean=base.outcome(),
        variants=tuple(VariantOutcome(v, found.outcome()) for v, found in measured.items()),
        mean=_mean(list(corruptions.values())) if corruptions else None,
        by_corruption={
            name: _mean([found for v, found in corruptions.items() if v.name == name])
            for name in names
        },
        by_severity={
            severity: _mean([found for v, found in corruptions.items() if v.severity == severity])
            for severity in severities
        },
        notes=frozen.notes + _notes(protocol, neighbors, corruptions, len(names) * len(severities)),
    )


@dataclass(frozen=True, eq=False)
class _Measured:
    """Measures of one variant on all resamples, and the floors."""

    measures: Measures
    floors: list[float]

    @classmethod
    def of(cls, draws: JointBootstrap, scores: Scores, seed: int) -> Self:
        floors = [
            calibration_floor(row, seed=seed, n_bins=N_BINS, n_simulations=FLOOR_SIMULATIONS)
            for row in scores.confidence
        ]
        return cls(draws.measure(scores), floors)

    def outcome(self) -> Outcome:
        return outcome_of(self.measures, self.floors)


def _mean(measured: list[_Measured]) -> Outcome:
    floors = np.mean([found.floors for found in measured], axis=0).tolist()
    return outcome_of(
        mean_of([found.measures for found in measured]), floors, n_variants=len(measured)
    )


def _notes(
    protocol: ProtocolName, clean: Neighbors, corruptions: Mapping[Variant, _Measured], n_full: int
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
    if len(corruptions) != n_full:
        notes.append(
            "Not every corruption has every severity, so means over severities or corruptions "
            f"are not of the same things: {len(corruptions)} variants in place of {n_full}."
        )
    return tuple(notes)


# Calibrated 1NN has one confidence for all queries: a rate.
BASELINE_RULES: tuple[RuleName, ...] = ("knn", "dudani", "gou")
CALIBRATED_BASELINES = tuple(
    method for method in METHODS if method.rule in BASELINE_RULES and method.calibration != "raw"
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
