"""The evaluation of one experiment: metrics, curves, and a sweep over T."""

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from math import nan
from types import MappingProxyType

import numpy as np
from numpy.typing import ArrayLike

from nearsure.arrays import FloatArray, IntArray
from nearsure.comparison import RuleResult, compare_rules, score_by
from nearsure.errors import FitWarning
from nearsure.lab.protocols import ProtocolName, ProtocolNeighbors
from nearsure.metrics import (
    Bins,
    Interval,
    accuracy,
    bin_by_confidence,
    bootstrap_interval,
    debiased_calibration_error,
    expected_calibration_error,
)
from nearsure.neighbors import Neighbors
from nearsure.posterior import Posterior
from nearsure.rules import RULE_NAMES, RuleName, rule_weights
from nearsure.temperature import ObjectiveName, TemperatureFit, fit_temperature

DEFAULT_KS = (1, 2, 3, 5, 10, 20, 35, 50, 75, 100, 150, 200)
# How T may be fitted: the paper says that ECE was low, and not what T minimised.
OBJECTIVES: tuple[ObjectiveName, ...] = ("nll", "top_label")
# Where a curve has what must be fitted as a whole for each k, and hardly changes with it.
OTHER_KS = (5, 20, 50, 200)
# Of a band along a curve, which shows no digits.
BAND_RESAMPLES = 200

# Gives the posteriors of methods that need more than neighbours, by name, for a k.
Others = Callable[[int], Mapping[str, Posterior]]


@dataclass(frozen=True)
class NeighborCurve:
    """Accuracy and ECE of each rule against k; all is refitted for each k.

    Parameters
    ----------
    ks : tuple of int
        Numbers of neighbours, m of them.
    accuracy, ece : mapping of rule name to tuple of m floats
        Fractions; NaN where a rule was not asked.
    accuracy_bands : mapping of rule name to tuple of m pairs of floats
        Bootstrap intervals of the accuracy.
    """

    ks: tuple[int, ...]
    accuracy: Mapping[str, tuple[float, ...]]
    ece: Mapping[str, tuple[float, ...]]
    accuracy_bands: Mapping[str, tuple[tuple[float, ...], ...]] = field(default_factory=dict)

    def best_k(self, rule: str) -> int:
        """The k at which a rule is right most often; the smallest of equals."""
        return self.ks[int(np.nanargmax(self.accuracy[rule]))]

    def at(self, rule: str, k: int) -> tuple[int, float, float]:
        """k, accuracy and ECE of a rule at k, or at the largest k below where it was asked."""
        asked = ~np.isnan(self.accuracy[rule])
        place = max(i for i, some in enumerate(self.ks) if asked[i] and some <= k)
        return self.ks[place], self.accuracy[rule][place], self.ece[rule][place]


@dataclass(frozen=True)
class TemperatureReading:
    """NED with T fitted in one of two ways.

    Parameters
    ----------
    temperature : float
        T.
    accuracy, ece, debiased_ece : float
        Of NED with it; fractions.
    """

    temperature: float
    accuracy: float
    ece: float
    debiased_ece: float


@dataclass(frozen=True, eq=False)
class Evaluation:
    """How the rules did in one experiment; `evaluate` makes it.

    Parameters
    ----------
    protocol : {"all_against_others", "gallery_and_queries", "given_gallery"}
        Which points are the gallery, and which are queries.
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
    comparison : sequence of RuleResult
        Accuracy, ECE (15 bins of equal width), its floor and Brier score of each rule, and of
        what else was asked.
    curve : NeighborCurve
        Accuracy and ECE against k.
    reliability : mapping of rule name to Bins
        The bins of each rule's ECE.
    ned_gain : mapping of rule name to Interval
        NED's accuracy less that of each other rule on the same queries. Its interval is far
        narrower than the two accuracies' own would suggest, as they err on the same queries.
    notes : tuple of str
        What a reader must know: warnings of the fit, queries that are copies of gallery points.
    debiased_ece : mapping of rule name to Interval
        ECE with an estimate of what chance adds to it taken off, which the interval surrounds.
    readings : mapping of objective to TemperatureReading
        NED at this k with T fitted by likelihood, "nll", and by the log loss of "the answer is
        right", "top_label".
    seen_ks : mapping of rule name to int
        The k at which each rule is right most often on the classes that the embedding was trained
        on; empty where they are not at hand.
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
    comparison: Sequence[RuleResult]
    curve: NeighborCurve
    reliability: Mapping[str, Bins]
    ned_gain: Mapping[str, Interval]
    notes: tuple[str, ...]
    debiased_ece: Mapping[str, Interval] = field(default_factory=dict)
    readings: Mapping[str, TemperatureReading] = field(default_factory=dict)
    seen_ks: Mapping[str, int] = field(default_factory=dict)

    @property
    def rules(self) -> list[str]:
        """Names of all that was compared, in the order of the tables."""
        return [result.rule for result in self.comparison]

    def result_of(self, rule: str) -> RuleResult:
        """How one rule did."""
        return next(result for result in self.comparison if result.rule == rule)


def evaluate(
    found: ProtocolNeighbors,
    *,
    k: int,
    seed: int,
    n_resamples: int = 1000,
    ks: Sequence[int] | None = None,
    others: Others = lambda _: {},
    seen_ks: Mapping[str, int] = MappingProxyType({}),
) -> Evaluation:
    """Fit T on the gallery, then score the queries by the five rules, and by others.

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
    others : callable
        Posteriors of the same queries by other means, for a k: see `nearsure_posteriors`.
    seen_ks : mapping of str to int
        The best k of each rule on seen classes.

    Returns
    -------
    Evaluation
    """
    own, queries = found.own.first(k), found.queries.first(k)
    if ks is None:
        ks = curve_ks(found, k)
    fit, notes = fit_with_notes(own, found.own_codes)
    copies = int((queries.sq_distances[:, 0] == 0).sum())
    if copies:
        what = "another point" if found.protocol == "all_against_others" else "a gallery point"
        note = f"{copies} of {len(queries)} queries equal {what} exactly."
        notes += (f"{note} If these are the same items, the figures are too good.",)
    asked = others(k)
    posteriors = {rule: score_by(rule, queries, fit.temperature) for rule in RULE_NAMES}
    draw = partial(bootstrap_interval, seed=seed, n_resamples=n_resamples)
    correct, reliability, debiased = {}, {}, {}
    for rule, posterior in (posteriors | dict(asked)).items():
        correct[rule] = posterior.labels == found.query_codes
        scored = posterior.confidence, correct[rule]
        reliability[rule] = bin_by_confidence(*scored)
        debiased[rule] = draw(debiased_calibration_error, *scored)
    gains = {
        rule: np.subtract(correct["ned"], right, dtype=float)
        for rule, right in correct.items()
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
            others=asked,
            n_resamples=n_resamples,
        ).results,
        curve=neighbor_curve(
            found, ks, k=k, others=lambda some: asked if some == k else others(some), seed=seed
        ),
        reliability=reliability,
        ned_gain={rule: draw(np.mean, gain, bounds=(-1, 1)) for rule, gain in gains.items()},
        notes=notes,
        debiased_ece=debiased,
        readings={objective: _read(own, found, objective) for objective in OBJECTIVES},
        seen_ks=dict(seen_ks),
    )


def curve_ks(found: ProtocolNeighbors, k: int) -> list[int]:
    """The numbers of neighbours of a curve: some from 1 to what was searched, and k."""
    return sorted({k, *(some for some in DEFAULT_KS if some <= found.k)})


def neighbor_curve(
    found: ProtocolNeighbors,
    ks: Sequence[int],
    *,
    k: int,
    others: Others = lambda _: {},
    seed: int,
) -> NeighborCurve:
    """Accuracy and ECE of the five rules, and of others, at several k; T is fitted for each.

    Parameters
    ----------
    found, k, others
        As of `evaluate`; others are asked at k and at `OTHER_KS`.
    ks : sequence of int
        Numbers of neighbours, at most as many as were searched.
    seed : int
        Of the bands.
    """
    right: dict[str, dict[int, Interval]] = {}
    error: dict[str, dict[int, float]] = {}
    for some in ks:
        with warnings.catch_warnings():
            # A small k misses classes and one neighbour leaves T open: that is what is shown.
            warnings.simplefilter("ignore", FitWarning)
            temperature = fit_temperature(found.own.first(some), found.own_codes).temperature
        queries = found.queries.first(some)
        posteriors = {rule: score_by(rule, queries, temperature) for rule in RULE_NAMES}
        asked = others(some) if some == k or some in OTHER_KS else {}
        for rule, posterior in (posteriors | dict(asked)).items():
            correct = posterior.labels == found.query_codes
            band = bootstrap_interval(accuracy, correct, seed=seed, n_resamples=BAND_RESAMPLES)
            right.setdefault(rule, {})[some] = band
            ece = expected_calibration_error(posterior.confidence, correct)
            error.setdefault(rule, {})[some] = ece
    none = Interval(nan, nan, nan, 0.95)
    bands = {rule: [by_k.get(some, none) for some in ks] for rule, by_k in right.items()}
    return NeighborCurve(
        tuple(map(int, ks)),
        {rule: tuple(band.estimate for band in along) for rule, along in bands.items()},
        {rule: tuple(values.get(some, nan) for some in ks) for rule, values in error.items()},
        {rule: tuple((band.low, band.high) for band in along) for rule, along in bands.items()},
    )


def _read(own: Neighbors, found: ProtocolNeighbors, objective: ObjectiveName) -> TemperatureReading:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FitWarning)  # which the first fit has told
        fit = fit_temperature(own, found.own_codes, objective=objective)
    posterior = score_by("ned", found.queries.first(own.k), fit.temperature)
    scored = posterior.confidence, posterior.labels == found.query_codes
    return TemperatureReading(
        fit.temperature,
        accuracy(scored[1]),
        expected_calibration_error(*scored),
        debiased_calibration_error(*scored),
    )


def fit_with_notes(own: Neighbors, codes: IntArray) -> tuple[TemperatureFit, tuple[str, ...]]:
    """The fitted temperature, and what its fit warned of."""
    with collect_fit_warnings() as notes:
        fit = fit_temperature(own, codes)
    return fit, tuple(notes)


@contextmanager
def collect_fit_warnings() -> Iterator[list[str]]:
    """Collect the messages of fit warnings; other warnings are passed on."""
    notes: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", FitWarning)
        yield notes
    for warning in caught:
        if issubclass(warning.category, FitWarning):
            notes.append(str(warning.message))
        else:
            warnings.warn_explicit(
                warning.message, warning.category, warning.filename, warning.lineno
            )


# NED at other temperatures than the fitted one, for several k: what T costs and what it buys.
#
# One parameter sets both which neighbours count and how sharp the posterior is. The T that explains
# the data best need not be the one that is right most often; this shows how far apart they are.


DEFAULT_FACTORS = (0.25, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 2.8, 4.0, 5.6, 8.0)
Figures = tuple[float, float, float]
BASELINES: tuple[RuleName, ...] = ("knn", "dudani", "gou")


@dataclass(frozen=True)
class Sweep:
    """Accuracy and ECE of NED at multiples of the fitted T; `temperature_and_k_sweep` makes it.

    Parameters
    ----------
    protocol : {"all_against_others", "gallery_and_queries", "given_gallery"}
        Which points are the gallery, and which are queries.
    ks : tuple of int
        Numbers of neighbours, m of them.
    factors : tuple of float
        Multiples of the fitted T, ascending, f of them.
    temperatures : tuple of float
        The fitted T of each k.
    accuracy, ece : tuple of m tuples of f floats
        NED's, for each k and factor; fractions.
    voters : tuple of m tuples of f floats
        How many neighbours share the vote, see `effective_voters`; mean over the queries.
    baseline_accuracy, baseline_ece, baseline_voters : mapping of rule name to tuple of m floats
        Those of kNN, Dudani and Gou, which have no T.
    """

    protocol: ProtocolName
    ks: tuple[int, ...]
    factors: tuple[float, ...]
    temperatures: tuple[float, ...]
    accuracy: tuple[tuple[float, ...], ...]
    ece: tuple[tuple[float, ...], ...]
    voters: tuple[tuple[float, ...], ...]
    baseline_accuracy: Mapping[RuleName, tuple[float, ...]]
    baseline_ece: Mapping[RuleName, tuple[float, ...]]
    baseline_voters: Mapping[RuleName, tuple[float, ...]]

    def best_factor(self, k: int) -> float:
        """The multiple of T at which NED is right most often; the smallest of equals."""
        return self.factors[int(np.argmax(self.accuracy[self.ks.index(k)]))]

    def best_baseline(self, k: int) -> RuleName:
        """The baseline that is right most often."""
        place = self.ks.index(k)
        return max(BASELINES, key=lambda rule: self.baseline_accuracy[rule][place])


def temperature_and_k_sweep(
    found: ProtocolNeighbors, *, ks: Sequence[int], factors: Sequence[float] = DEFAULT_FACTORS
) -> Sweep:
    """Score NED at multiples of the T that is fitted for each k.

    Parameters
    ----------
    found : ProtocolNeighbors
        What a protocol found.
    ks : sequence of int
        Numbers of neighbours, at most as many as were searched.
    factors : sequence of float
        Multiples of T, ascending, greater than 0.

    Returns
    -------
    Sweep
    """
    temperatures = [fit_with_notes(found.own.first(k), found.own_codes)[0].temperature for k in ks]
    cut = [found.queries.first(k) for k in ks]

    def figures(rule: RuleName, neighbors: Neighbors, temperature: float) -> Figures:
        posterior = score_by(rule, neighbors, temperature)
        correct = posterior.labels == found.query_codes
        weights = rule_weights(neighbors, rule, temperature if rule == "ned" else None)
        error = expected_calibration_error(posterior.confidence, correct)
        return accuracy(correct), error, float(effective_voters(weights).mean())

    ned = [
        zip(*(figures("ned", neighbors, temperature * factor) for factor in factors), strict=True)
        for neighbors, temperature in zip(cut, temperatures, strict=True)
    ]
    others = {
        rule: list(zip(*(figures(rule, neighbors, 1.0) for neighbors in cut), strict=True))
        for rule in BASELINES
    }
    baselines = ({rule: cells[place] for rule, cells in others.items()} for place in range(3))
    columns = (*zip(*ned, strict=True), *baselines)
    return Sweep(found.protocol, tuple(ks), tuple(factors), tuple(temperatures), *columns)


def effective_voters(weights: ArrayLike) -> FloatArray:
    """How many equal votes say as much as these: (sum of w)^2 / sum of w^2, for each row.

    Parameters
    ----------
    weights : array-like of shape (n, k)
        Votes of the neighbours; at least one of each row above 0.

    Returns
    -------
    array of shape (n,)
        From 1, one neighbour decides, to k, all count the same.

    References
    ----------
    Kish, *Survey Sampling*, 1965.

    Examples
    --------
    >>> effective_voters([[1.0, 1.0, 1.0, 1.0], [1.0, 0.0, 0.0, 0.0], [2.0, 1.0, 1.0, 0.0]])
    array([4.        , 1.        , 2.66666667])
    """
    votes = np.asarray(weights, np.float64)
    effective: FloatArray = votes.sum(axis=1) ** 2 / (votes**2).sum(axis=1)
    return effective
