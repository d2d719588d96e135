"""One line for each figure: what was measured, and whether it keeps its bound."""

import sys
from collections.abc import Callable
from time import perf_counter

BROKEN: list[str] = []


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
    verdict = "ok  " if kept else "FAIL" if binding else "MISS"
    print(f"{verdict}  {what}: {value:.3f}{unit}  (must be {relation} {bound}{unit})")
    if binding and not kept:
        BROKEN.append(what)


def finish() -> None:
    """Exit with an error if a bound was broken."""
    if BROKEN:
        sys.exit(f"{len(BROKEN)} of the bounds were broken")


def seconds(run: Callable[[], object]) -> float:
    """Wall time of one call."""
    start = perf_counter()
    run()
    return perf_counter() - start
