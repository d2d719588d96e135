"""Galleries with thousands of copies of one vector, against galleries without."""

import warnings
from collections.abc import Callable
from functools import partial
from statistics import median

import numpy as np

from benchmarks.report import finish, say, seconds
from nearsure import NEDClassifier
from nearsure.arrays import AnyArray, IntArray
from nearsure.classifier.parameters import RuleChoice
from nearsure.errors import FitWarning

N_FEATURES, N_CLASSES, ROUNDS = 64, 200, 3
# Points, and how many of them are copies of one.
SIZES = ((20_000, 5_000), (20_000, 20_000), (40_000, 40_000))
RULES: tuple[RuleChoice, ...] = ("auto", "ned")
# Queries at a time, and how often.
BATCHES = ((1, 40), (64, 8), (1000, 1))
BOUND = 3.0
LARGEST = 200_000


def main() -> None:
    # Labels of copies mean nothing, and every fit says so.
    warnings.simplefilter("ignore", FitWarning)
    for rule in RULES:
        for n_points, n_copies in SIZES:
            compare(rule, n_points, n_copies)
    for rule in RULES:
        vectors, labels = made(LARGEST, LARGEST)
        classifier = NEDClassifier(rule=rule)
        fit = seconds(partial(classifier.fit, vectors, labels))
        predict = seconds(partial(classifier.predict_with_confidence, vectors[:1000]))
        print(
            f"      {rule}: {LARGEST} identical vectors, fit {fit:.1f} s, "
            f"1000 queries {1000 * predict:.0f} ms"
        )
    finish()


def compare(rule: RuleChoice, n_points: int, n_copies: int) -> None:
    """Say how much longer copies take, each measured beside a gallery of as many points."""
    plain, copied = (Prepared(rule, n_points, n) for n in (1, n_copies))
    what = f"{rule}: {n_copies} of {n_points} identical"
    # By turns, so that whatever else the machine does slows down both.
    turns = [(seconds(copied.fit), seconds(plain.fit)) for _ in range(ROUNDS)]
    say(f"{what}, fit", median(ours / theirs for ours, theirs in turns), BOUND)
    for size, n_calls in BATCHES:
        turns = [
            (seconds(copied.asked(size, n_calls)), seconds(plain.asked(size, n_calls)))
            for _ in range(ROUNDS)
        ]
        ratio = median(ours / theirs for ours, theirs in turns)
        say(f"{what}, {size} queries at a time", ratio, BOUND)


class Prepared:
    """A gallery and queries: half of them points of the gallery, half of them nearby."""

    def __init__(self, rule: RuleChoice, n_points: int, n_copies: int) -> None:
        self.vectors, self.labels = made(n_points, n_copies)
        self.classifier = NEDClassifier(rule=rule)
        rng = np.random.default_rng(1)
        queries = self.vectors[rng.integers(0, n_points, 1000)]
        queries[::2] += np.float32(0.3) * rng.standard_normal((500, N_FEATURES), np.float32)
        self.queries = queries

    def fit(self) -> None:
        """Fit on the gallery."""
        self.classifier.fit(self.vectors, self.labels)

    def asked(self, size: int, n_calls: int) -> Callable[[], None]:
        """What asks for some queries at a time."""

        def ask() -> None:
            for start in range(0, size * n_calls, size):
                self.classifier.predict_with_confidence(self.queries[start : start + size])

        return ask


def made(n_points: int, n_copies: int) -> tuple[AnyArray, IntArray]:
    """Vectors about class centres, of which some, anywhere among them, are one and the same."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, N_CLASSES, n_points)
    centres = rng.standard_normal((N_CLASSES, N_FEATURES), np.float32)
    vectors: AnyArray = centres[labels] + rng.standard_normal((n_points, N_FEATURES), np.float32)
    vectors[rng.permutation(n_points)[:n_copies]] = vectors[0]
    return vectors, labels


if __name__ == "__main__":
    main()
