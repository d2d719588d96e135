"""Small galleries, labelled queries, and reports on them."""

from functools import cache
from typing import Any

import numpy as np

from nearsure import NEDClassifier
from nearsure.arrays import AnyArray, FloatArray
from nearsure.report import Metric, Report, query_report

NAMES = np.array(["wren", "owl", "kiwi", "emu"])
FEW = 40


def drawn(
    n: int, *, seed: int, n_classes: int = 3, spread: float = 1.2
) -> tuple[FloatArray, AnyArray]:
    """Overlapping classes: the same for every seed, and every one of them is there."""
    centres = spread * np.random.default_rng(99).normal(size=(len(NAMES), 4))
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, n_classes, n)
    codes[:n_classes] = np.arange(n_classes)
    return centres[codes] + rng.normal(size=(n, 4)), NAMES[codes]


def fitted(n: int = 120, **parameters: Any) -> NEDClassifier:  # noqa: ANN401
    return NEDClassifier(**parameters).fit(*drawn(n, seed=0))


@cache
def usual() -> tuple[NEDClassifier, FloatArray, AnyArray, Report]:
    """A classifier, queries, of which some are of a class that it lacks, and the report."""
    classifier = fitted()
    queries, labels = drawn(200, seed=1, n_classes=4)
    report = query_report(classifier, queries, labels, title="Birds", n_resamples=FEW)
    return classifier, queries, labels, report


def metric(report: Report, key: str) -> Metric:
    (found,) = [one for one in report.metrics if one.key == key]
    return found
