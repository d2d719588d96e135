"""Settings: what is unknown or not allowed is named, and files of either kind are read."""

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from nearsure.errors import ConfigError
from nearsure.lab.config import (
    DatasetSettings,
    ModelSettings,
    RunSettings,
    TrainingSettings,
    apply_changes,
    read_changes,
)

PRESET = RunSettings(dataset=DatasetSettings(name="glyphs", image_size=32))


def test_an_unknown_key_at_the_top_is_named_with_those_that_exist() -> None:
    with pytest.raises(ConfigError) as caught:
        apply_changes(PRESET, {"sead": 3}, source="my.toml")
    assert str(caught.value) == (
        "my.toml: there is no setting 'sead'; allowed are dataset, model, training, seed"
    )


@pytest.mark.parametrize(
    ("part", "settings"),
    [("dataset", DatasetSettings), ("model", ModelSettings), ("training", TrainingSettings)],
)
def test_an_unknown_key_of_a_part_is_named_with_those_of_the_part(
    part: str, settings: type[DatasetSettings]
) -> None:
    with pytest.raises(ConfigError) as caught:
        apply_changes(PRESET, {part: {"colour": 1}}, source="my.toml")
    expected = ", ".join(settings.model_fields)
    assert str(caught.value).endswith(
        f"there is no setting '{part}.colour'; allowed are {expected}"
    )


def test_every_mistake_is_named_at_once() -> None:
    changes = {"seed": -1, "training": {"loss": "contrastive", "warmup": 1}, "flavour": 2}
    with pytest.raises(ConfigError) as caught:
        apply_changes(PRESET, changes, source="my.toml")
    for word in ("seed", "-1", "training.loss", "'contrastive'", "training.warmup", "flavour"):
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "key", "value"),
    [
        ({"dataset": {"image_size": 8}}, "dataset.image_size", "8"),
        ({"dataset": {"name": "mnist"}}, "dataset.name", "'mnist'"),
        ({"dataset": "glyphs"}, "dataset", "'glyphs'"),
        ({"training": {"epochs": float("inf")}}, "training.epochs", "inf"),
        ({"training": {"epochs": float("nan")}}, "training.epochs", "nan"),
        ({"training": {"smallest_crop": 0}}, "training.smallest_crop", "0"),
        ({"model": {"trained": "head"}}, "model", "a head needs an embedding_size"),
        (
            {"model": {"backbone": "small-cnn", "trained": "nothing"}},
            "model",
            "trained must be 'all'",
        ),
    ],
)
def test_a_bad_value_is_named_with_its_key(changes: dict[str, Any], key: str, value: str) -> None:
    with pytest.raises(ConfigError, match=f"^my.toml: {key}: ") as caught:
        apply_changes(PRESET, changes, source="my.toml")
    assert value in str(caught.value)


def test_changes_replace_what_they_name_and_nothing_else() -> None:
    done = apply_changes(PRESET, {"training": {"epochs": 3}, "seed": 7}, source="x")
    assert done.training == PRESET.training.model_copy(update={"epochs": 3.0})
    assert (done.seed, done.dataset, done.model) == (7, PRESET.dataset, PRESET.model)


def test_a_whole_number_means_the_same_however_it_came_into_the_settings() -> None:
    """Caches are named by the JSON of the settings, where 10 is not 10.0."""
    again = apply_changes(PRESET, {"training": {"epochs": 10}}, source="x")
    assert again.model_dump_json() == PRESET.model_dump_json()


def test_toml_and_json_say_the_same(tmp_path: Path) -> None:
    toml, jsn = tmp_path / "a.toml", tmp_path / "a.JSON"
    toml.write_text('seed = 4\n[training]\nloss = "triplet"\nepochs = 2.5\n')
    jsn.write_text(json.dumps({"seed": 4, "training": {"loss": "triplet", "epochs": 2.5}}))
    assert read_changes(toml) == read_changes(jsn)
    done = apply_changes(PRESET, read_changes(toml), source="a.toml")
    assert (done.seed, done.training.loss, done.training.epochs) == (4, "triplet", 2.5)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.toml", b"seed: 3"),
        ("a.json", b"{'seed': 3}"),
        ("a.toml", b"\xff\xfe"),
        ("no.toml", None),
    ],
)
def test_a_file_that_is_neither_is_named(tmp_path: Path, name: str, content: bytes | None) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match="cannot be read as TOML or JSON") as caught:
        read_changes(path)
    assert str(path) in str(caught.value)


def test_json_that_holds_no_table_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("[1, 2]")
    with pytest.raises(ConfigError, match="must hold a table of settings"):
        read_changes(tmp_path / "a.json")


def test_settings_come_back_from_their_json() -> None:
    run = apply_changes(
        PRESET,
        {
            "dataset": {"name": "cub200", "root": Path("birds"), "part": "tuning"},
            "model": {"trained": "head", "embedding_size": 12},
        },
        source="x",
    )
    assert RunSettings.model_validate_json(run.model_dump_json()) == run


def test_settings_do_not_change() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        PRESET.seed = 3


def test_n_pairs_makes_pairs_of_as_many_images() -> None:
    training = TrainingSettings(classes_per_batch=16, images_per_class=4)
    pairs = PRESET.model_copy(update={"training": training}).with_loss("n-pairs").training
    assert (pairs.classes_per_batch, pairs.images_per_class) == (32, 2)
    assert PRESET.with_loss("triplet").training == PRESET.training.model_copy(
        update={"loss": "triplet"}
    )
