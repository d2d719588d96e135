"""Galleries of overlapping Gaussian classes, and queries of the same."""

from typing import Any

import numpy as np

from nearsure import NEDClassifier
from nearsure.arrays import AnyArray, FloatArray, IntArray


def drawn(
    n: int = 150,
    *,
    seed: int = 0,
    n_classes: int = 3,
    dimension: int = 4,
    spread: float = 1.2,
    centre_seed: int = 99,
) -> tuple[FloatArray, IntArray]:
    """Points and labels; the classes are the same for every `seed`."""
    centres = spread * np.random.default_rng(centre_seed).normal(size=(n_classes, dimension))
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, n_classes, n)
    labels[:n_classes] = np.arange(n_classes)
    return centres[labels] + rng.normal(size=(n, dimension)), labels


def answers(classifier: NEDClassifier, Q: AnyArray) -> dict[str, AnyArray]:
    """All that a classifier says about queries, by label, and not by code."""
    prediction = classifier.predict_with_confidence(Q)
    posterior = prediction.posterior
    said: dict[str, Any] = {
        "labels": prediction.labels,
        "confidence": prediction.confidence,
        "ranked": classifier.classes_[posterior.codes],
        "probabilities": posterior.probabilities,
        "indptr": posterior.indptr,
        "sq_distances": prediction.neighbors.sq_distances,
    }
    if prediction.p_known is not None:
        said |= {"p_known": prediction.p_known, "verdicts": prediction.verdicts}
    return said


def assert_same_answers(one: NEDClassifier, other: NEDClassifier, Q: AnyArray) -> None:
    """To the last bit."""
    said, expected = answers(one, Q), answers(other, Q)
    assert said.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_array_equal(said[name], values, err_msg=name)
