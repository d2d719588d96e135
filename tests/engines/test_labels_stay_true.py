"""Labels in this process, and in the engines whose contract has no classifier of its own."""

from typing import Literal

import numpy as np
import pytest
from contract_points import DIMENSION
from label_machine import LabelMachine, OwnLabelMachine, run_machine
from numpy_engine import NumpyEngine

from nearsure import NEDClassifier
from nearsure.arrays import AnyArray
from nearsure.engines.contract import Engine
from nearsure.engines.embedded import FaissEngine


@pytest.mark.parametrize("index", ["exact", "hnsw", "ivf"])
def test_labels_in_an_engine_of_faiss(index: Literal["exact", "hnsw", "ivf"]) -> None:
    run_machine(lambda: LabelMachine(lambda: FaissEngine(DIMENSION, index=index), Engine.close), 40)


@pytest.mark.parametrize("index", ["exact", "hnsw"])
def test_labels_in_memory(index: str) -> None:
    def fitted(vectors: AnyArray, ids: AnyArray, labels: AnyArray, _: Engine) -> NEDClassifier:
        assert ids.tolist() == list(range(len(ids)))
        return NEDClassifier(3, rule="1nn", engine=index).fit(vectors, labels)

    run_machine(lambda: OwnLabelMachine(lambda: NumpyEngine(DIMENSION), Engine.close, fitted), 20)


def test_a_class_of_another_writer_is_not_taken_for_a_new_one() -> None:
    """The shortest way to a wrong label that was ever acknowledged."""
    engine = NumpyEngine(2, labels="text")
    engine.add(np.eye(2), np.arange(2), np.array(["a", "b"]))
    engine.add(np.eye(2) + 1, np.arange(2, 4), np.array(["a", "b"]))
    classifier = NEDClassifier(1, rule="1nn", engine=engine).fit_engine()
    engine.relabel(np.array([1]), np.array(["new1"]))
    classifier.remove([1], allow_empty_class=True)
    classifier.add(np.zeros((1, 2)), ["new2"], ids=[900])
    stored = engine.fetch(np.array([900])).labels
    assert stored is not None
    assert stored.tolist() == ["new2"]
