"""What fitting T on the default sample costs, against all support points.

Needs the reference embeddings, which are not part of the project: NEARSURE_DATA says where.
"""

import os
from pathlib import Path

import numpy as np

from benchmarks.report import finish, say
from nearsure import NEDClassifier, Neighbors, fit_temperature, score
from nearsure.arrays import AnyArray, IntArray
from nearsure.index import ExactIndex
from nearsure.loo import search_leaving_one_out
from nearsure.metrics import expected_calibration_error
from nearsure.temperature import NegativeLogLikelihood

FOLDER = Path(os.environ.get("NEARSURE_DATA", Path(__file__).parents[1] / ".." / "shared" / "data"))
SEEDS = 30


def main() -> None:
    if not FOLDER.exists():
        print("      fit sample: skipped, NEARSURE_DATA names no folder with the embeddings")
        return
    birds = np.load(FOLDER / "cub200_unseen_embeddings.npz")
    codes = np.unique(birds["labels"], return_inverse=True)[1]
    own = _leave_one_out(birds["embeddings"], codes)
    measure("CUB-200", own, codes, own, codes)

    intents = np.load(FOLDER / "clinc150_minilm.npz")
    classes, codes = np.unique(intents["train_y"], return_inverse=True)
    gallery = intents["train_x"].astype(np.float32)
    sq_distances, ids = ExactIndex(gallery).search(intents["test_x"].astype(np.float32), 50)
    measure(
        "CLINC150",
        _leave_one_out(gallery, codes),
        codes,
        Neighbors(sq_distances, codes[ids], ids),
        np.searchsorted(classes, intents["test_y"]),
    )
    finish()


def measure(
    name: str, own: Neighbors, codes: IntArray, queries: Neighbors, query_codes: IntArray
) -> None:
    full = fit_temperature(own, codes)
    hit = (own.labels == codes[:, None]).any(axis=1)
    likelihood = NegativeLogLikelihood(own.take(hit), codes[hit])
    default = NEDClassifier().max_fit_samples or len(own)

    def ece(temperature: float) -> float:
        posterior = score(queries, temperature=temperature)
        return expected_calibration_error(posterior.confidence, posterior.labels == query_codes)

    full_ece = ece(full.temperature)
    for size in (1000, 4000, min(default, len(own))):
        temperatures, losses, shifts = [], [], []
        for seed in range(SEEDS):
            rows = np.random.default_rng(seed).choice(len(own), size, replace=False)
            temperature = fit_temperature(own.take(rows), codes[rows]).temperature
            temperatures.append(temperature)
            loss = likelihood(np.log(temperature))[0].mean()
            losses.append(100 * (loss / full.loss - 1))
            shifts.append(100 * abs(ece(temperature) - full_ece))
        spread = 100 * np.std(temperatures) / np.mean(temperatures)
        print(
            f"      {name}, {size} of {len(own)} points: T spreads by {spread:.1f}%, worst of "
            f"{SEEDS} seeds loses {max(losses):.3f}% likelihood and {max(shifts):.2f} points ECE"
        )
    say(f"{name}, likelihood lost by the default sample", max(losses), 0.2, unit="%")
    say(f"{name}, ECE moved by the default sample", max(shifts), 0.3, unit=" points")


def _leave_one_out(vectors: AnyArray, codes: IntArray) -> Neighbors:
    index = ExactIndex(vectors)
    return search_leaving_one_out(index, vectors, np.arange(len(codes)), codes, k=50)


if __name__ == "__main__":
    main()
