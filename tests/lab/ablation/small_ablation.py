"""Gaussian classes that take seconds, and results that take none, as they are made up."""

from functools import cache

import numpy as np

from nearsure.lab.ablation.results import AblationResults, CorruptedResult, Measured, TrialResult
from nearsure.lab.ablation.trials import Condition, Labelled
from nearsure.lab.ablation.variants import (
    DEFAULT,
    MAIN_VARIANTS,
    PROBE_VARIANTS,
    SLOW_VARIANTS,
    VARIANTS,
)
from nearsure.lab.robust.methods import Method
from nearsure.metrics import Interval

K = 50
EVERY = (*VARIANTS, *PROBE_VARIANTS, DEFAULT)


@cache
def points(seed: int = 0, n_classes: int = 8, n_each: int = 20) -> Labelled:
    rng = np.random.default_rng(seed)
    codes = np.repeat(np.arange(n_classes), n_each)
    centres = 1.2 * rng.standard_normal((n_classes, 4))
    return Labelled(centres[codes] + 0.8 * rng.standard_normal((len(codes), 4)), codes)


@cache
def results() -> AblationResults:
    """Two data sets, two splits and two k, and all else that a run measures."""
    rng = np.random.default_rng(0)

    def trial(
        dataset: str,
        condition: Condition,
        seed: int = 0,
        k: int = K,
        variants: tuple[Method, ...] = EVERY,
    ) -> TrialResult:
        rows = tuple(_any_row(rng, v, single=condition in {"given", "all"}) for v in variants)
        return TrialResult(dataset, condition, seed, k, 100, 90, 5, rows, ())

    halves = [
        trial(name, "half", seed, k)
        for name in ("first", "second")
        for seed in range(2)
        for k in (20, K)
    ]
    others = [trial("second", "given"), trial("first", "scarce")]
    others.append(trial("first", "all", variants=VARIANTS))
    slow = [trial("first", "half", variants=SLOW_VARIANTS)]
    tables = (tuple(_any_row(rng, v, single=False) for v in MAIN_VARIANTS) for _ in range(2))
    damaged = CorruptedResult("first", K, 80, 80, 75, *tables)
    return AblationResults((*halves, *others, *slow), (damaged,), ("third: it is not there",))


def _any_row(rng: np.random.Generator, variant: Method, *, single: bool) -> Measured:
    lowest, highest = (0.6, 0.0, 0.0, 0.4, -0.1), (0.64, 0.2, 0.02, 0.6, 0.1)
    accuracy, ece, floor, brier, above = rng.uniform(lowest, highest).tolist()
    if not single or variant not in MAIN_VARIANTS:
        return Measured(variant.name, accuracy, ece, floor, brier, above)
    ends = (Interval(value, value / 2, 2 * value, 0.95) for value in (accuracy, ece))
    return Measured(variant.name, accuracy, ece, floor, brier, above, *ends)


def made_up(name: str, **changes: float) -> Measured:
    figures = {
        "accuracy": 0.6,
        "ece": 0.03,
        "floor": 0.02,
        "brier": 0.5,
        "overconfidence": 0.01,
    }
    return Measured(name, **{**figures, **changes})  # type: ignore[arg-type]


def made_up_trial(rows: list[Measured], seed: int = 0) -> TrialResult:
    return TrialResult("own", "half", seed, K, 100, 90, 5, tuple(rows), ())
