"""Recipes: runs are what they are called, whatever is changed."""

from pathlib import Path
from typing import Any

import pytest

from nearsure.errors import ConfigError
from nearsure.lab.config import LOSSES
from nearsure.lab.recipes import BEFORE, check_losses, recipe

ROOT = Path("birds")


def test_glyphs_have_a_run_for_each_loss() -> None:
    runs = recipe("glyphs", seed=3).runs
    assert tuple(runs) == LOSSES
    for loss, run in runs.items():
        assert (run.training.loss, run.seed, run.model.trained) == (loss, 3, "all")


@pytest.mark.parametrize("dataset", ["cub200", "cars196", "sop", "inshop", "class-folders"])
def test_data_sets_on_disk_start_before_training(dataset: str) -> None:
    runs = recipe(dataset, root=ROOT).runs
    assert tuple(runs) == (BEFORE, *LOSSES)
    assert {(run.dataset.name, run.dataset.root) for run in runs.values()} == {(dataset, ROOT)}
    trained = {name: run.model.trained for name, run in runs.items()}
    assert trained == {BEFORE: "nothing"} | dict.fromkeys(LOSSES, "all")


def test_changes_reach_every_run() -> None:
    changes = {"dataset": {"image_size": 64}, "training": {"epochs": 1.5}}
    for run in recipe("cub200", root=ROOT, seed=9, changes=changes).runs.values():
        assert (run.dataset.image_size, run.training.epochs, run.seed) == (64, 1.5, 9)


def test_n_pairs_makes_pairs_of_a_changed_batch() -> None:
    changes = {"training": {"classes_per_batch": 6, "images_per_class": 4}}
    runs = recipe("glyphs", changes=changes).runs
    pairs, triplet = runs["n-pairs"].training, runs["triplet"].training
    assert (triplet.classes_per_batch, triplet.images_per_class) == (6, 4)
    assert (pairs.classes_per_batch, pairs.images_per_class) == (12, 2)


def test_before_training_stays_untrained_when_the_model_changes() -> None:
    changes = {"model": {"trained": "head", "embedding_size": 16}}
    runs = recipe("cub200", root=ROOT, changes=changes).runs
    assert (runs[BEFORE].model.trained, runs[BEFORE].model.embedding_size) == ("nothing", None)
    assert {runs[loss].model.trained for loss in LOSSES} == {"head"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"training": {"loss": "triplet"}}, "my.toml: training.loss must not be given"),
        ({"dataset": {"name": "cub200"}}, "my.toml: dataset.name must be 'glyphs'"),
        ({"seed": 3}, "my.toml: seed must not be given"),
        ({"dataset": {"root": "x"}}, "my.toml: dataset.root must not be given"),
        ({"model": {"trained": "nothing"}}, "my.toml: model.trained must be 'head' or 'all'"),
        ({"training": 3}, "my.toml: training: "),
        ({"modle": {}}, "my.toml: there is no setting 'modle'"),
    ],
)
def test_changes_that_would_misname_a_run_are_refused(
    changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        recipe("glyphs", changes=changes, source="my.toml")


def test_only_some_losses_keep_what_comes_before() -> None:
    chosen = recipe("cub200", root=ROOT).only(check_losses(["proxy-nca", "triplet"]))
    assert tuple(chosen.runs) == (BEFORE, "triplet", "proxy-nca")


def test_the_main_run_is_the_first_that_was_trained() -> None:
    whole = recipe("cub200", root=ROOT)
    assert whole.main == "normalized-softmax"
    assert whole.only(["proxy-nca"]).main == "proxy-nca"
    assert whole.only([]).main == BEFORE


def test_the_part_is_that_of_the_images() -> None:
    assert recipe("glyphs").part == "standard"
    assert recipe("glyphs", changes={"dataset": {"part": "tuning"}}).part == "tuning"


def test_mistakes_of_the_caller_are_named() -> None:
    with pytest.raises(ConfigError, match=r"one of glyphs, cub200.* Got 'birds' instead"):
        recipe("birds")
    with pytest.raises(ConfigError, match="cub200 needs its folder: --root"):
        recipe("cub200")
    with pytest.raises(ConfigError, match="root must not be given"):
        recipe("glyphs", root=ROOT)
    with pytest.raises(ConfigError, match=r"one of normalized-softmax.* Got arcface, x\."):
        check_losses(["arcface", "triplet", "x"])
