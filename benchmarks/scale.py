"""How cost grows: 10,000, 100,000 and 1,000,000 points of 128 numbers, exactly and through HNSW.

Each size runs in a process of its own. With ``--write FOLDER`` the figures go to a table and a
picture there, beside the machine that they were measured on.
"""

import argparse
import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

from benchmarks.report import finish, say
from benchmarks.scale_cost import Cost, measure
from benchmarks.scale_report import table, write

SIZES = (10_000, 100_000, 1_000_000)
INDEXES = ("exact", "hnsw")


def main() -> None:
    arguments = _arguments()
    if arguments.measure:
        index, n_points = arguments.measure.split(":")
        print(json.dumps(asdict(measure(index, int(n_points)))))
        return
    costs = []
    for n_points in arguments.sizes:
        for index in INDEXES:
            print(f"      {index}, {n_points:,} points ...", flush=True)
            command = [sys.executable, "-m", "benchmarks.scale", "--measure", f"{index}:{n_points}"]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            costs.append(Cost(**json.loads(done.stdout.splitlines()[-1])))
    print(table(costs))
    if arguments.write is not None:
        write(costs, arguments.write)
    largest = next(
        (cost for cost in costs if cost.n_points == SIZES[-1] and cost.index == "hnsw"), None
    )
    if largest is not None:
        say(
            "hnsw, 1,000,000 points: what NED adds to the bare search",
            100 * largest.added,
            5,
            unit="%",
        )
        say("hnsw, 1,000,000 points: fit of T on the default sample", largest.fit, 60, unit=" s")
        say(
            "hnsw, 1,000,000 points: memory, to vectors and links",
            largest.memory / largest.vectors_and_index,
            1.3,
        )
    finish()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--measure", help="one index and size, such as hnsw:10000, as JSON")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--write", type=Path, help="folder for the table and the picture")
    return parser.parse_args()


if __name__ == "__main__":
    main()
