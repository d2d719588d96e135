"""Run benchmarks, each in a process of its own, so that none inherits the other's memory.

    python -m benchmarks                      those of speed, on an idle machine
    python -m benchmarks --quality            those of answers and promises, which takes hours
    python -m benchmarks service sparse       some
    python -m benchmarks service --write      and put their rows into docs/speed.md

At the end stands one table of all figures, their bounds, and how long each benchmark took.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter

from benchmarks.report import FIGURES

SPEED = (
    "throughput",
    "single_query",
    "identical_vectors",
    "memory",
    "sparse",
    "fit_sample",
    "scale",
    "server_engines",
    "service",
)
# What is right or wrong whatever else the machine does.
QUALITY = (
    "corruptions",
    "unknowns",
    "decisions",
    "promises",
    "label_audit",
    "drift",
    "recalibration",
    "few_members",
)
BENCHMARKS = SPEED + QUALITY
HEAD = "| benchmark | measured | printed | bound | kept |", "| --- | --- | --- | --- | --- |"
PAGE = Path(__file__).parent.parent / "docs" / "speed.md"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(BENCHMARKS))
    parser.add_argument("--quality", action="store_true", help="those that time nothing")
    parser.add_argument("--write", action="store_true", help=f"put the rows into docs/{PAGE.name}")
    arguments = parser.parse_args()
    if arguments.names and arguments.quality:
        parser.error("NAME and --quality exclude each other.")
    if unknown := set(arguments.names) - set(BENCHMARKS):
        parser.error(f"NAME must be one of {', '.join(BENCHMARKS)}. Got {', '.join(unknown)}.")
    rows: dict[str, list[str]] = {}
    broken: list[str] = []
    took: list[str] = []
    for name in arguments.names or (QUALITY if arguments.quality else SPEED):
        print(f"== {name}", flush=True)
        start = perf_counter()
        rows[name], failed = run(name)
        took.append(f"{name} {perf_counter() - start:.0f} s")
        if failed:
            broken.append(name)
    print("\n".join(["", *HEAD, *(row for own in rows.values() for row in own)]))
    print(f"\nIt took: {', '.join(took)}.")
    if arguments.write:
        PAGE.write_text(put_in(PAGE.read_text(encoding="utf-8"), rows), encoding="utf-8")
    if broken:
        sys.exit(f"bounds broken in: {', '.join(broken)}")


def run(name: str) -> tuple[list[str], bool]:
    """The rows of one benchmark, and whether it failed."""
    with tempfile.TemporaryDirectory() as folder:
        figures = Path(folder) / "figures"
        figures.touch()
        done = subprocess.run(
            [sys.executable, "-m", f"benchmarks.{name}"],
            check=False,
            env={**os.environ, FIGURES: str(figures)},
        )
        lines = figures.read_text(encoding="utf-8").splitlines()
    rows = [" | ".join([f"| {name}", *json.loads(line)]) + " |" for line in lines]
    return rows, done.returncode != 0


def put_in(page: str, rows: dict[str, list[str]]) -> str:
    """A page whose table has new rows for some benchmarks, and those it had for the others."""
    before, table, after = page.partition("\n".join(HEAD) + "\n")
    if not table:
        sys.exit(f"{PAGE} has no table to put the rows into: {HEAD[0]}")
    lines = after.splitlines()
    end = next((i for i, line in enumerate(lines) if not line), len(lines))
    kept = {
        name: [one for one in lines[:end] if one.startswith(f"| {name} |")] for name in BENCHMARKS
    }
    new = [row for name in BENCHMARKS for row in rows.get(name) or kept[name]]
    return "\n".join([before + table + "\n".join(new), *lines[end:], ""])


if __name__ == "__main__":
    main()
