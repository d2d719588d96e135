"""The main variants on corrupted queries, everything fitted on the clean gallery and frozen."""

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from nearsure.arrays import IntArray
from nearsure.lab.ablation.bases import Gallery, Searched
from nearsure.lab.ablation.competition import Competition
from nearsure.lab.ablation.measured import N_SIMULATIONS, Measured, mean_of, measure
from nearsure.lab.ablation.trial_result import VERSION
from nearsure.lab.ablation.trials import Labelled
from nearsure.lab.ablation.variants import MAIN_VARIANTS
from nearsure.lab.robust.frozen_support import FrozenSupport
from nearsure.lab.stages import Stage
from nearsure.robustness import CORRUPTIONS, SEVERITIES

CELLS = tuple(f"{name}-{severity}" for name in CORRUPTIONS for severity in SEVERITIES)
Track = Callable[[Iterable[str]], Iterable[str]]


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

    def to_dict(self) -> dict[str, Any]:
        """In JSON's types."""
        tables = {name: [row.to_dict() for row in getattr(self, name)] for name in _TABLES}
        return {**asdict(self), **tables}

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> Self:
        """The inverse of `to_dict`."""
        tables = {name: tuple(map(Measured.from_dict, fields[name])) for name in _TABLES}
        return cls(**{**fields, **tables})


_TABLES = ("clean", "mean")


def cached_corrupted(
    cache: Path,
    dataset: str,
    support: FrozenSupport,
    rows: IntArray,
    queries_of: Callable[[str], Labelled],
    *,
    k: int,
    track: Track = iter,
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
    track : callable
        Wraps the cells, to show progress.
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

    def compute() -> dict[str, Any]:
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
        by_variant = zip(*(measured(cell) for cell in track(CELLS)), strict=True)
        means = tuple(map(mean_of, by_variant))
        return CorruptedResult(
            dataset, k, len(support.codes), len(rows), len(CELLS), clean, means
        ).to_dict()

    found = Stage(cache, "ablation-corrupted", inputs).document("result", compute)
    return CorruptedResult.from_dict(found)
