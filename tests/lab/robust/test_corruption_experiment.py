"""Corrupted queries of a small model: figures by hand, the same queries before and after."""

from pathlib import Path

import pytest
import torch
from small_experiments import (
    SEED,
    accuracy,
    corrupted_by,
    queries_of,
    right_by_1nn,
    small_model,
)

from nearsure.lab.network import on_sphere, to_tensor
from nearsure.lab.robust.methods import Method
from nearsure.lab.robust.model import RobustModel, damaged_rows
from nearsure.robustness import corrupt, corruption_rng

pytestmark = pytest.mark.usefixtures("few_corruptions")

KINDS = (("fog", 2), ("fog", 5), ("contrast", 2), ("contrast", 5))


@pytest.mark.parametrize("n", [None, 9, 15])
def test_corrupted_queries_are_searched_among_the_clean_ones(
    model: RobustModel, n: int | None
) -> None:
    every, strict = corrupted_by(model, n)
    rows = damaged_rows(model.strict, n, seed=SEED)
    asked = rows[model.strict.may_ask(rows)]
    assert every.n_queries == len(rows) == (n or 24)
    assert strict.n_queries == len(asked) == min(n or 12, 12)
    assert (every.n_gallery, strict.n_gallery) == (24, 12)
    found = [(v.variant.name, v.variant.severity) for v in every.variants]
    assert tuple(found) == KINDS
    for place, (name, severity) in enumerate(KINDS):
        damaged = [
            corrupt(queries_of(model).read(int(row)), name, severity, rng)
            for row in rows
            for rng in [corruption_rng(SEED, int(row), name, severity)]
        ]
        with torch.inference_mode():
            vectors = on_sphere(model.embedder(to_tensor(damaged))).numpy()
        assert accuracy(every, place) == pytest.approx(
            right_by_1nn(model, vectors, rows, strict=False)
        )
        assert accuracy(strict, place) == pytest.approx(
            right_by_1nn(model, vectors[: len(asked)], asked, strict=True)
        )


def test_clean_figures_are_of_the_same_queries(model: RobustModel) -> None:
    every, strict = corrupted_by(model, 9)
    rows = damaged_rows(model.strict, 9, seed=SEED)
    vectors = model.run.embeddings("queries")[rows]
    for evaluation in (every, strict):
        clean = evaluation.clean.of(Method("1nn")).accuracy.estimate
        expected = right_by_1nn(model, vectors, rows, strict=evaluation is strict)
        assert clean == pytest.approx(expected)


def test_a_gallery_of_its_own(tmp_path: Path) -> None:
    (found,) = corrupted_by(small_model(tmp_path, epochs=4, gallery=True))
    assert found.protocol == "given_gallery"
    assert (found.n_queries, found.n_gallery) == (8, 16)
