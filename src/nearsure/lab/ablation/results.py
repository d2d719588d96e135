"""Numbers that the ablation measured, cached, and paired by split."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import t
from tqdm import tqdm

from nearsure.arrays import IntArray
from nearsure.lab.ablation.trials import Condition, Labelled, Trial
from nearsure.lab.ablation.variants import (
    DEFAULT,
    MAIN_VARIANTS,
    PROBE_VARIANTS,
    SLOW_VARIANTS,
    Competition,
    Gallery,
    Searched,
)
from nearsure.lab.cache import CachedStep, to_plain
from nearsure.lab.robust.methods import Method
from nearsure.lab.robust.model import FrozenSupport
from nearsure.metrics import (
    Interval,
    accuracy,
    bootstrap_interval,
    brier_score,
    calibration_floor,
    expected_calibration_error,
)
from nearsure.posterior import Posterior
from nearsure.robustness import CORRUPTIONS, SEVERITIES

N_SIMULATIONS = 500
MEASURES = ("accuracy", "ece", "floor", "brier", "overconfidence")


@dataclass(frozen=True)
class Measured:
    """One row.

    Parameters
    ----------
    variant : str
        Name of the variant.
    accuracy, ece : float
        Fractions; ECE with 15 bins of equal width.
    floor : float
        Expected ECE of a perfectly calibrated forecaster with the same confidences.
    brier : float
        Over all classes, in [0, 2].
    overconfidence : float
        Mean confidence less accuracy.
    accuracy_interval, ece_interval : Interval, optional
        Bootstrap over the queries.
    """

    variant: str
    accuracy: float
    ece: float
    floor: float
    brier: float
    overconfidence: float
    accuracy_interval: Interval | None = None
    ece_interval: Interval | None = None

    @property
    def excess(self) -> float:
        """ECE less its floor; below 0 by chance."""
        return self.ece - self.floor

    def to_dict(self) -> dict[str, Any]:
        """In JSON's types; intervals only where there are any."""
        return {name: to_plain(value) for name, value in vars(self).items() if value is not None}


def measure(
    variant: Method,
    posterior: Posterior,
    codes: IntArray,
    *,
    seed: int,
    n_resamples: int | None = None,
) -> Measured:
    """Measure a posterior.

    Parameters
    ----------
    variant : Method
        The variant.
    posterior : Posterior
        Of n queries.
    codes : array of shape (n,)
        Their true classes.
    seed : int
        Of the floor and the bootstrap.
    n_resamples : int, optional
        Of the intervals; none are made without it.
    """
    confidence, correct = posterior.confidence, posterior.labels == codes
    intervals: dict[str, Interval] = {}
    if n_resamples is not None:
        resample = partial(bootstrap_interval, seed=seed, n_resamples=n_resamples)
        intervals["accuracy_interval"] = resample(accuracy, correct)
        intervals["ece_interval"] = resample(expected_calibration_error, confidence, correct)
    return Measured(
        variant.name,
        accuracy=float(correct.mean()),
        ece=expected_calibration_error(confidence, correct),
        floor=calibration_floor(confidence, seed=seed, n_simulations=N_SIMULATIONS),
        brier=brier_score(posterior, codes),
        overconfidence=float(confidence.mean() - correct.mean()),
        **intervals,
    )


def mean_of(rows: Sequence[Measured]) -> Measured:
    """The mean of each measure over rows of one variant.

    Parameters
    ----------
    rows : sequence of Measured
        At least one, all of the same variant.
    """
    means: dict[str, Any] = {
        name: float(np.mean([getattr(row, name) for row in rows])) for name in MEASURES
    }
    return Measured(rows[0].variant, **means)


# Raised when a variant means something else, so that old numbers are not taken for new ones.
VERSION = 2
# Of variants that share no code with the others' fits.
OTHER_VERSIONS: dict[tuple[Method, ...], int] = {SLOW_VARIANTS: 1, PROBE_VARIANTS: 2, (DEFAULT,): 3}
SINGLE: tuple[Condition, ...] = ("given", "all")


@dataclass(frozen=True)
class TrialResult:
    """What was measured in one trial.

    Parameters
    ----------
    dataset, condition, seed
        Which trial; see `Trial`.
    k : int
        Neighbours.
    n_gallery, n_queries, n_classes : int
        How large it is.
    rows : tuple of Measured
        One for each variant.
    notes : tuple of str
        What the fits warned of.
    """

    dataset: str
    condition: Condition
    seed: int
    k: int
    n_gallery: int
    n_queries: int
    n_classes: int
    rows: tuple[Measured, ...]
    notes: tuple[str, ...]


def run_trial(trial: Trial, variants: Sequence[Method], *, k: int, n_resamples: int) -> TrialResult:
    """Fit all variants on the gallery and measure them on the queries.

    Parameters
    ----------
    trial : Trial
        Gallery and queries.
    variants : sequence of Method
        The variants to measure.
    k : int
        Neighbours; fewer where the gallery has no more.
    n_resamples : int
        Of the intervals of the main variants, where the split is the only one.
    """
    k = min(k, len(trial.gallery.codes) - 1)
    gallery, queries = trial.searched(k)
    competition = Competition.fit(gallery, variants)
    codes = trial.asking.codes
    with_intervals = MAIN_VARIANTS if trial.condition in SINGLE else ()
    rows = [
        measure(
            variant,
            posterior,
            codes,
            seed=trial.seed,
            n_resamples=n_resamples if variant in with_intervals else None,
        )
        for variant, posterior in competition.posteriors(queries)
    ]
    return TrialResult(
        trial.dataset,
        trial.condition,
        trial.seed,
        k,
        len(trial.gallery.codes),
        len(codes),
        gallery.n_classes,
        tuple(rows),
        competition.notes,
    )


def join(parts: Sequence[TrialResult]) -> TrialResult:
    """What was measured of several sets of variants in one trial, as the first describes it."""
    rows = tuple(row for part in parts for row in part.rows)
    notes = dict.fromkeys(note for part in parts for note in part.notes)
    return replace(parts[0], rows=rows, notes=tuple(notes))


def cached_trial(
    cache: Path, trial: Trial, variants: Sequence[Method], *, k: int, n_resamples: int
) -> TrialResult:
    """What `run_trial` gives, kept in a folder of stages; that of probes under no k."""
    inputs = {
        "dataset": trial.dataset,
        "gallery": trial.gallery.key,
        "queries": trial.asking.key,
        "condition": trial.condition,
        "seed": trial.seed,
        "k": None if tuple(variants) == PROBE_VARIANTS else k,
        "variants": [variant.name for variant in variants],
        "n_simulations": N_SIMULATIONS,
        "n_resamples": n_resamples if trial.condition in SINGLE else None,
        "version": OTHER_VERSIONS.get(tuple(variants), VERSION),
    }
    return CachedStep(cache, "ablation", inputs).result(
        TrialResult, "result", lambda: run_trial(trial, variants, k=k, n_resamples=n_resamples)
    )


CELLS = tuple(f"{name}-{severity}" for name in CORRUPTIONS for severity in SEVERITIES)


@dataclass(frozen=True)
class CorruptedResult:
    """What was measured on one data set.

    Parameters
    ----------
    dataset : str
        Name of the data.
    k, n_gallery, n_queries, n_cells : int
        Neighbours, gallery points, queries, corruptions times severities.
    clean, mean : tuple of Measured
        Each main variant on the clean queries, and on the corrupted ones: mean over the cells.
    """

    dataset: str
    k: int
    n_gallery: int
    n_queries: int
    n_cells: int
    clean: tuple[Measured, ...]
    mean: tuple[Measured, ...]


def cached_corrupted(
    cache: Path,
    dataset: str,
    support: FrozenSupport,
    rows: IntArray,
    queries_of: Callable[[str], Labelled],
    *,
    k: int,
) -> CorruptedResult:
    """Fit on the clean gallery, score every cell, and keep the means.

    Parameters
    ----------
    cache : Path
        Folder of stages.
    dataset : str
        Name of the data.
    support, rows, queries_of
        As `sources.corrupted` gives them.
    k : int
        Neighbours.
    """
    gallery = Labelled(support.vectors, support.codes)
    inputs = {
        "dataset": dataset,
        "gallery": gallery.key,
        "clean": queries_of("clean").key,
        "cells": list(CELLS),
        "k": k,
        "variants": [variant.name for variant in MAIN_VARIANTS],
        "n_simulations": N_SIMULATIONS,
        "version": VERSION,
    }

    def compute() -> CorruptedResult:
        own = Searched(support.own_neighbors(k), support.vectors)
        competition = Competition.fit(Gallery(own, support.codes), MAIN_VARIANTS)

        def measured(cell: str) -> tuple[Measured, ...]:
            queries = queries_of(cell)
            found = Searched(support.neighbors(queries.vectors, rows, k), queries.vectors)
            return tuple(
                measure(variant, posterior, queries.codes, seed=0)
                for variant, posterior in competition.posteriors(found)
            )

        clean = measured("clean")
        cells = tqdm(CELLS, desc=f"{dataset}, corrupted", disable=None)
        by_variant = zip(*map(measured, cells), strict=True)
        means = tuple(map(mean_of, by_variant))
        n_gallery, n_cells = len(support.codes), len(CELLS)
        return CorruptedResult(dataset, k, n_gallery, len(rows), n_cells, clean, means)

    stage = CachedStep(cache, "ablation-corrupted", inputs)
    return stage.result(CorruptedResult, "result", compute)


@dataclass(frozen=True)
class Group:
    """Trials of one data set under one condition at one k, which differ in the seed alone.

    Parameters
    ----------
    trials : tuple of TrialResult
        By seed. Slow variants may be in some only.
    """

    trials: tuple[TrialResult, ...]

    @property
    def first(self) -> TrialResult:
        """For what all have in common."""
        return self.trials[0]

    @property
    def variants(self) -> list[Method]:
        """Who was measured at least once, in the order of the trials."""
        names = dict.fromkeys(row.variant for trial in self.trials for row in trial.rows)
        return list(map(Method.from_name, names))

    def measured(self, variants: Sequence[Method]) -> list[Method]:
        """Those that were measured at least once."""
        return [variant for variant in variants if variant in self.variants]

    def rows(self, variant: Method) -> dict[int, Measured]:
        """What was measured of a variant, by seed."""
        return {
            trial.seed: row
            for trial in self.trials
            for row in trial.rows
            if row.variant == variant.name
        }

    def mean(self, variant: Method) -> Measured:
        """Mean over the seeds."""
        return mean_of(list(self.rows(variant).values()))

    def paired(self, variants: Sequence[Method]) -> "Group":
        """The splits in which all of these were measured, so that their means compare."""
        seeds = set.intersection(*(set(self.rows(variant)) for variant in variants))
        return Group(tuple(trial for trial in self.trials if trial.seed in seeds))

    @property
    def n_splits(self) -> int:
        """How many splits there are; a trial of slow variants alone is of a split that has one."""
        return len({trial.seed for trial in self.trials})

    def best(self, variants: Sequence[Method], measure: str, *, most: bool = False) -> Method:
        """The variant whose mean is least, or greatest; the earlier one of equals."""
        sign = -1.0 if most else 1.0
        return min(variants, key=lambda variant: sign * float(getattr(self.mean(variant), measure)))


@dataclass(frozen=True)
class AblationResults:
    """Everything that was measured.

    Parameters
    ----------
    trials : tuple of TrialResult
        In the order of the plan.
    corrupted : tuple of CorruptedResult
        One for each data set with corrupted queries.
    skipped : tuple of str
        What is missing, and why.
    """

    trials: tuple[TrialResult, ...]
    corrupted: tuple[CorruptedResult, ...] = ()
    skipped: tuple[str, ...] = ()

    @property
    def datasets(self) -> list[str]:
        """Names of the data sets of the trials."""
        return list(dict.fromkeys(trial.dataset for trial in self.trials))

    def groups(self, condition: Condition) -> list[Group]:
        """The trials of one condition, by data set, then by k."""
        chosen = [trial for trial in self.trials if trial.condition == condition]
        return [
            Group(tuple(found))
            for dataset in self.datasets
            for k in sorted({trial.k for trial in chosen})
            if (found := [t for t in chosen if (t.dataset, t.k) == (dataset, k)])
        ]


LEVEL = 0.95


def t_interval(values: ArrayLike) -> Interval:
    """Mean of a few numbers with Student's interval; its ends are NaN for a single number.

    Parameters
    ----------
    values : array of shape (n,)
        One for each seed.

    Examples
    --------
    >>> interval = t_interval([1.0, 2.0, 3.0])
    >>> round(interval.low, 3), interval.estimate, round(interval.high, 3)
    (-0.484, 2.0, 4.484)
    """
    numbers = np.asarray(values, np.float64)
    mean = float(numbers.mean())
    if len(numbers) == 1:
        return Interval(mean, float("nan"), float("nan"), LEVEL)
    error = float(numbers.std(ddof=1)) / float(np.sqrt(len(numbers)))
    reach = float(t.ppf((1 + LEVEL) / 2, len(numbers) - 1)) * error
    return Interval(mean, mean - reach, mean + reach, LEVEL)


def difference(group: Group, one: Method, other: Method, measure: str) -> Interval:
    """What `one` has more than `other`, on the seeds that both were measured with.

    Parameters
    ----------
    group : Group
        The trials.
    one, other : Method
        Whom to compare.
    measure : {"accuracy", "ece", "floor", "brier", "overconfidence"}
        In what.
    """
    ours, theirs = group.rows(one), group.rows(other)
    seeds = [seed for seed in ours if seed in theirs]
    return t_interval([getattr(ours[s], measure) - getattr(theirs[s], measure) for s in seeds])
