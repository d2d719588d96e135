"""One line for each figure: what was measured, and whether it keeps its bound."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

BROKEN: list[str] = []
# Names the file in which the figures of all benchmarks come together.
FIGURES = "NEARSURE_BENCH_FIGURES"


def say(
    what: str,
    value: float,
    bound: float,
    *,
    at_least: bool = False,
    unit: str = "x",
    binding: bool = True,
) -> None:
    """Print a figure beside its bound; `finish` fails if any that is binding was broken."""
    kept = value >= bound if at_least else value <= bound
    relation = ">=" if at_least else "<="
    verdict = "ok" if kept else "FAIL" if binding else "MISS"
    print(f"{verdict:<6}{what}: {value:.3f}{unit}  (must be {relation} {bound}{unit})")
    _keep(what, f"{value:,.3f}{unit}", f"{relation} {bound:,}{unit}", verdict)
    if binding and not kept:
        BROKEN.append(what)


def note(what: str, value: float, *, unit: str = "x") -> None:
    """Print a figure that has no bound."""
    print(f"{'':<6}{what}: {value:.3f}{unit}")
    _keep(what, f"{value:,.3f}{unit}", "", "")


def _keep(*cells: str) -> None:
    if FIGURES in os.environ:
        with Path(os.environ[FIGURES]).open("a", encoding="utf-8") as file:
            file.write(json.dumps(cells) + "\n")


def finish() -> None:
    """Exit with an error if a bound was broken."""
    if BROKEN:
        sys.exit(f"{len(BROKEN)} of the bounds were broken")


def seconds(run: Callable[[], object]) -> float:
    """Wall time of one call."""
    start = perf_counter()
    run()
    return perf_counter() - start
