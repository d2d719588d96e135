"""Evaluations of damaged queries: T of the clean gallery, nothing twice, nothing by mistake."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from small_experiments import (
    FEW,
    N_RESAMPLES,
    SEED,
    K,
    attacked_by,
    corrupted_by,
    small_model,
)

from nearsure.errors import NearsureError
from nearsure.lab.cache import to_plain
from nearsure.lab.robust import damaged
from nearsure.lab.robust.model import RobustModel

pytestmark = pytest.mark.usefixtures("few_corruptions")


def test_t_is_that_of_the_clean_gallery_whatever_the_damage(model: RobustModel) -> None:
    for evaluation in (*corrupted_by(model), *attacked_by(model)):
        frozen = model.frozen[evaluation.protocol]
        assert evaluation.temperature_fit.temperature == frozen.temperature_fit.temperature
        assert evaluation.model == "small"
        assert (evaluation.seed, evaluation.n_resamples, evaluation.k) == (SEED, N_RESAMPLES, K)


def test_nothing_is_corrupted_attacked_or_scored_twice(
    cache: Path, model: RobustModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = [*corrupted_by(model), *attacked_by(model)]
    for module, name in (
        (damaged, "corrupt"),
        (damaged, "perturb"),
        (damaged, "evaluate_variants"),
    ):
        monkeypatch.setattr(module, name, None)
    again = small_model(cache)
    found = [*corrupted_by(again), *attacked_by(again)]
    assert [to_plain(one) for one in found] == [to_plain(one) for one in first]


def test_other_queries_are_other_numbers(model: RobustModel) -> None:
    found = [corrupted_by(model)[0], corrupted_by(model, 9)[0]]
    found += [attacked_by(model)[0], attacked_by(replace(model, seed=5))[0]]
    for changes in ({"small_steps": 3}, {"attacked_queries": 5}):
        found += [attacked_by(model, FEW.model_copy(update=changes))[0]]
    found += [corrupted_by(replace(model, k=3))[0], *corrupted_by(replace(model, seed=5))]
    assert len({json.dumps(to_plain(one)) for one in found}) == len(found)


def test_a_cached_evaluation_of_another_version_is_named(model: RobustModel) -> None:
    corrupted_by(model, 7)
    folders = {path.parent for path in model.cache.glob("robust-evaluation-*/evaluation.json")}
    for folder in folders:
        text = (folder / "evaluation.json").read_text()
        (folder / "evaluation.json").write_text(text.replace('"k":', '"neighbours":'))
    with pytest.raises(NearsureError, match="was written by another version") as caught:
        corrupted_by(model, 7)
    assert any(str(folder) in str(caught.value) for folder in folders)
    for folder in folders:
        (folder / "evaluation.json").unlink()
