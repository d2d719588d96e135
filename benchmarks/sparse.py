"""A million queries over a hundred thousand classes with 50 neighbours each, in memory."""

import resource

import numpy as np

from benchmarks.report import finish, say, seconds
from nearsure import Neighbors, score

N_QUERIES, N_CLASSES, K = 1_000_000, 100_000, 50


def main() -> None:
    rng = np.random.default_rng(0)
    sq_distances = np.sort(rng.random((N_QUERIES, K)), axis=1)
    neighbors = Neighbors(sq_distances, rng.integers(0, N_CLASSES, (N_QUERIES, K)))
    elapsed = seconds(lambda: score(neighbors, temperature=0.05, n_classes=N_CLASSES).confidence)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    dense = 8 * N_QUERIES * N_CLASSES / 2**30
    print(f"      scored in {elapsed:.1f} s, {peak:.1f} GiB at the peak; dense: {dense:.0f} GiB")
    say("peak memory, neighbours and all, to the dense result", peak / dense, 0.01)
    finish()


if __name__ == "__main__":
    main()
