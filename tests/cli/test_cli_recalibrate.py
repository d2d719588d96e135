"""`nearsure recalibrate`: labelled queries change a model, and queries to label are chosen."""

from pathlib import Path

import numpy as np
import pytest
from cli_runs import fitted_model, points, refused, succeeded, write_npz

from nearsure import NEDClassifier

QUERIES, TRUTH = points(120, seed=1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recalibrate")
    fitted_model(folder)
    write_npz(folder / "labelled.npz", QUERIES, TRUTH)
    return folder


def recalibrate(folder: Path, *words: object) -> tuple[object, ...]:
    return ("recalibrate", folder / "labelled.npz", "-m", folder / "model.safetensors", *words)


def test_the_written_model_is_that_of_the_library(folder: Path) -> None:
    output = folder / "recalibrated.safetensors"
    said = succeeded(*recalibrate(folder, "-o", output, "--precision", 0.8, "--json")).json
    own = NEDClassifier.load(folder / "model.safetensors")
    found = own.recalibrate(QUERIES, TRUTH)
    promise = own.accept_threshold(precision=0.8)
    assert said["n_labelled"] == 120
    assert said["n_right"] == found.n_right
    assert said["mean_confidence"] == found.mean_after
    assert said["promise"] == str(promise)
    assert said["threshold"] == promise.threshold
    written = NEDClassifier.load(output)
    np.testing.assert_array_equal(
        written.predict_with_confidence(QUERIES).confidence,
        own.predict_with_confidence(QUERIES).confidence,
    )


def test_it_says_what_it_rests_on(folder: Path) -> None:
    run = succeeded(*recalibrate(folder, "-o", folder / "other.safetensors"))
    said = " ".join(run.out.split())
    assert "120 labelled queries" in said
    assert "at least 95% right" in said
    assert "other.safetensors" in said


def test_predictions_name_the_labelled_queries(folder: Path) -> None:
    output = folder / "named.safetensors"
    succeeded(*recalibrate(folder, "-o", output))
    run = succeeded("predict", folder / "labelled.npz", "-m", output, "--precision", 0.7)
    assert "from 120 labelled queries" in run.err


def test_an_sqlite_gallery_keeps_it_inside(folder: Path) -> None:
    gallery = write_npz(folder / "points.npz", *points())
    succeeded("fit", gallery, "-o", folder / "points.sqlite")
    model = ("-m", folder / "points.sqlite")
    succeeded("recalibrate", folder / "labelled.npz", *model)
    run = succeeded("predict", folder / "labelled.npz", *model, "--precision", 0.7)
    assert "from 120 labelled queries" in run.err
    said = refused("recalibrate", folder / "labelled.npz", *model, "-o", folder / "x.safetensors")
    assert "points.sqlite keeps its fit inside" in said


def test_queries_to_label_are_chosen(folder: Path) -> None:
    said = succeeded(*recalibrate(folder, "--choose", 30, "--seed", 2, "--json")).json
    own = NEDClassifier.load(folder / "model.safetensors")
    rows = own.choose_queries_to_label(QUERIES, 30, seed=2)
    assert [record["row"] for record in said] == rows.tolist()
    assert [record["predicted"] for record in said] == own.predict(QUERIES[rows]).tolist()
    succeeded(*recalibrate(folder, "--choose", 30, "-o", folder / "to_label.csv"))
    assert (folder / "to_label.csv").read_text().startswith("row,predicted,confidence")


@pytest.mark.parametrize(
    ("words", "what"),
    [
        ((), "Name an output file"),
        (("-o", "model.npz"), "--output must end in .safetensors"),
        (("--choose", 5, "--precision", 0.9), "--choose fits nothing"),
        (("--choose", 500, "--json"), "at most the number of queries, 120"),
        (("-o", "new.safetensors", "--precision", 0), "strictly between 0 and 1"),
    ],
)
def test_mistakes(folder: Path, words: tuple[object, ...], what: str) -> None:
    assert what in refused(*recalibrate(folder, *words))
    assert not Path("new.safetensors").exists()


def test_labels_that_the_gallery_lacks(folder: Path) -> None:
    labels = np.where(np.arange(120) == 0, "emu", TRUTH)
    write_npz(folder / "emu.npz", QUERIES, labels)
    model = ("-m", folder / "model.safetensors", "-o", folder / "never.safetensors")
    assert "['emu'] besides" in refused("recalibrate", folder / "emu.npz", *model)
    assert not (folder / "never.safetensors").exists()
