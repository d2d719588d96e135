"""What thresholds and sets promise, and what queries get, over repeated splits of real data.

Half of every class is the gallery, the other half asks; nothing but the gallery is seen before.
Reference embeddings are not part of the project: NEARSURE_DATA says where they are.
"""

import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from scipy.stats import binom
from sklearn.datasets import load_digits

from benchmarks.report import finish, say
from nearsure import NEDClassifier
from nearsure.arrays import AnyArray
from nearsure.lab.protocols import gallery_half

FOLDER = Path(os.environ.get("NEARSURE_DATA", Path(__file__).parents[1] / ".." / "shared" / "data"))
SPLITS = 20
CERTAINTY = 0.95
ALPHA = 0.1
# More broken promises than this would happen once in a hundred if one in twenty may be broken.
MOST_BROKEN = float(binom.ppf(0.99, SPLITS, 1 - CERTAINTY))


def main() -> None:
    digits = load_digits(return_X_y=True)
    measure("digits", *digits, precision=0.98)
    birds, intents = (
        FOLDER / "cub200_unseen_embeddings.npz",
        FOLDER / "clinc150_minilm.npz",
    )
    if birds.exists():
        stored = np.load(birds)
        measure("CUB-200", stored["embeddings"], stored["labels"], precision=0.9)
    if intents.exists():
        stored = np.load(intents)
        parts = ("train", "val", "test")
        vectors = np.concatenate([stored[f"{part}_x"] for part in parts]).astype(np.float32)
        labels = np.concatenate([stored[f"{part}_y"] for part in parts])
        measure("CLINC150", vectors, labels, precision=0.99)
        other_writers(stored)
    if not (birds.exists() and intents.exists()):
        print("      decisions: birds or sentences skipped, NEARSURE_DATA names no such files")
    finish()


def other_writers(stored: Mapping[str, AnyArray]) -> None:
    """Print what CLINC150's own test part, which others wrote, makes of a promise."""
    gallery, queries = (stored[f"{part}_x"].astype(np.float32) for part in ("train", "test"))
    classifier = NEDClassifier().fit(gallery, stored["train_y"])
    prediction = classifier.predict_with_confidence(queries)
    accepted = classifier.accept_threshold(precision=0.99).accepts(prediction.confidence)
    right = (prediction.labels == stored["test_y"])[accepted].mean()
    alarm = "an alarm" if classifier.compare_queries(queries).alarm else "no alarm"
    print(f"      CLINC150, own split: 99% promised, {right:.2%} right, {alarm}")


def measure(name: str, vectors: AnyArray, labels: AnyArray, *, precision: float) -> None:
    """Print how often the promise was kept, and what it gave."""
    codes = np.unique(labels, return_inverse=True)[1]
    reached, broken, coverages, precisions, covered, sizes = 0, 0, [], [], [], []
    for seed in range(SPLITS):
        half = gallery_half(codes, seed=seed)
        classifier = NEDClassifier().fit(vectors[half], codes[half])
        prediction = classifier.predict_with_confidence(vectors[~half])
        right = prediction.labels == codes[~half]
        chosen = classifier.accept_threshold(precision=precision, certainty=CERTAINTY)
        accepted = chosen.accepts(prediction.confidence)
        if accepted.any():
            reached += 1
            broken += bool(right[accepted].mean() < precision)
            coverages.append(accepted.mean())
            precisions.append(right[accepted].mean())
        sets = classifier.predict_set(vectors[~half], alpha=ALPHA)
        covered.append(sets.contains(codes[~half]).mean())
        sizes.append(sets.sizes.mean())
    print(
        f"      {name}: {precision:.0%} promised in {reached} of {SPLITS} splits: "
        f"{np.mean(coverages):.1%} accepted, {np.mean(precisions):.2%} of them right "
        f"(worst {np.min(precisions):.2%})"
    )
    say(f"{name}, thresholds that broke their promise", broken, MOST_BROKEN, unit=f" of {reached}")
    print(
        f"      {name}: sets for {1 - ALPHA:.0%} hold the true class of {np.mean(covered):.2%} "
        f"of the queries ({np.min(covered):.2%} to {np.max(covered):.2%}), "
        f"{np.mean(sizes):.2f} classes on average"
    )


if __name__ == "__main__":
    main()
