"""`nearsure fit`: what is written is what Python would have fitted."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from cli_runs import jsonl, points, refused, succeeded, write_npz
from PIL import Image
from safetensors import SafetensorError

from nearsure import NEDClassifier, open_engine
from nearsure.cli import fit as fit_command
from nearsure.cli.outputs import spinner
from nearsure.engines.sqlite import SqliteEngine

NEEDS_PSYCOPG = pytest.mark.skipif(find_spec("psycopg") is None, reason="psycopg is not installed")


def same_answers(one: NEDClassifier, other: NEDClassifier) -> bool:
    queries, _ = points(40, seed=1)
    first, second = one.predict_with_confidence(queries), other.predict_with_confidence(queries)
    return bool(
        (first.labels == second.labels).all() and (first.confidence == second.confidence).all()
    )


def test_a_model_file_is_that_of_python_and_the_summary_tells_it(tmp_path: Path) -> None:
    gallery = write_npz(tmp_path / "g.npz", *points())
    model = tmp_path / "m.safetensors"
    said = succeeded("fit", gallery, "-o", model, "--json").json
    classifier = NEDClassifier().fit(*points())
    assert same_answers(NEDClassifier.load(model), classifier)
    fit, chosen = classifier.temperature_fit_, classifier.accept_threshold(precision=0.99)
    assert fit is not None
    assert said["temperature"] == classifier.temperature_
    assert (said["n_fitted"], said["n_missed"]) == (fit.n_points, fit.n_missed)
    assert (said["n_points"], said["n_classes"], said["dimension"], said["k"]) == (90, 3, 4, 50)
    assert (said["rule"], said["calibration"]) == ("adaptive", "shrunk")
    assert said["threshold"] == (chosen.threshold if chosen.reached else None)
    assert said["promise"] == str(chosen)
    shown = succeeded("fit", gallery, "-o", model).out
    assert f"{classifier.temperature_:.6g}" in shown
    assert shown.endswith(f"wrote {model}\n")


def test_names_that_a_model_file_cannot_keep_are_said_to_be_left_out(tmp_path: Path) -> None:
    vectors, labels = points()
    stdin = jsonl(vectors, labels.tolist(), [f"bird {row}" for row in range(90)])
    run = succeeded("fit", "-", "-o", tmp_path / "m.safetensors", stdin=stdin)
    assert "a model file names its points by row number" in run.err
    run = succeeded("fit", "-", "-o", tmp_path / "g.sqlite", stdin=stdin)
    assert run.err == ""


@pytest.mark.filterwarnings("default::nearsure.errors.UnknownsNotRecognizedWarning")
def test_every_option_reaches_the_classifier(tmp_path: Path) -> None:
    gallery, model = write_npz(tmp_path / "g.npz", *points()), tmp_path / "m.safetensors"
    words = ["-k", 7, "--rule", "sharpened", "--metric", "cosine", "--calibration", "none"]
    words += ["--prior", "uniform", "--unknown-share", 0.2, "--max-fit-samples", 60]
    words += ["--seed", 3, "--engine", "ivf"]
    succeeded("fit", gallery, "-o", model, *words)
    parameters = NEDClassifier.load(model).get_params()
    expected = {
        "n_neighbors": 7,
        "rule": "sharpened",
        "metric": "cosine",
        "calibration": "none",
        "prior": "uniform",
        "unknown_share": 0.2,
        "max_fit_samples": 60,
        "random_state": 3,
        "engine": "ivf",
    }
    assert {name: parameters[name] for name in expected} == expected
    succeeded("fit", gallery, "-o", model, "--max-fit-samples", "all", "-k", "all")
    assert NEDClassifier.load(model).max_fit_samples is None
    assert NEDClassifier.load(model).n_neighbors == "all"


def test_a_gallery_of_single_points_needs_a_temperature(tmp_path: Path) -> None:
    gallery = write_npz(tmp_path / "g.npz", points(5)[0], np.arange(5))
    model = tmp_path / "m.safetensors"
    assert "give the temperature" in refused("fit", gallery, "-o", model)
    said = succeeded("fit", gallery, "-o", model, "--temperature", 2.5, "--json").json
    assert (said["rule"], said["temperature"]) == ("ned", 2.5)
    assert NEDClassifier.load(model).temperature_ == 2.5


def test_a_model_that_cannot_be_written_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise SafetensorError("No space left on device")

    monkeypatch.setattr("nearsure.model_file.save_file", full)
    gallery = write_npz(tmp_path / "g.npz", *points())
    said = refused("fit", gallery, "-o", tmp_path / "m.safetensors")
    assert "cannot be written: No space left on device" in said


def test_every_kind_of_file_gives_the_same_fit(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    vectors, labels = points()
    np.save(tmp_path / "v.npy", vectors)
    (tmp_path / "l.txt").write_text("\n".join(labels))
    table = pa.table({"embedding": list(vectors), "label": labels.tolist()})
    parquet.write_table(table, tmp_path / "g.parquet")
    header = "label,a,b,c,d\n"
    rows = "".join(
        f"{label},{','.join(map(repr, vector))}\n"
        for label, vector in zip(labels, vectors.tolist(), strict=True)
    )
    (tmp_path / "g.csv").write_text(header + rows)
    stdin = jsonl(vectors, labels.tolist())
    (tmp_path / "g.jsonl").write_bytes(stdin)
    model = tmp_path / "m.safetensors"
    expected = NEDClassifier().fit(vectors, labels)
    for words in (
        [tmp_path / "v.npy", "--labels", tmp_path / "l.txt"],
        [tmp_path / "g.parquet", "--vectors-key", "embedding", "--labels-key", "label"],
        [tmp_path / "g.csv"],
        [tmp_path / "g.jsonl"],
        ["-"],
        ["-", "--input-format", "jsonl"],
    ):
        succeeded("fit", *words, "-o", model, stdin=stdin)
        assert same_answers(NEDClassifier.load(model), expected), words


@pytest.mark.parametrize("head", ["auto", "means", "logistic", "none"])
def test_a_head_is_chosen_and_said(tmp_path: Path, head: str) -> None:
    gallery = write_npz(tmp_path / "g.npz", *points())
    model = tmp_path / "m.safetensors"
    said = succeeded("fit", gallery, "-o", model, "--head", head, "--json").json
    expected = NEDClassifier(head=None if head == "none" else head).fit(*points())  # type: ignore[arg-type]
    found = expected.head_fit_
    assert said["head"] == (found and found.name)
    assert said["head_choice"] == (None if found is None else str(found))
    assert same_answers(NEDClassifier.load(model), expected)
    if head in ("means", "logistic"):
        assert said["head"] == head
    shown = succeeded("fit", gallery, "-o", model, "--head", head).out
    assert ("│ head " in shown) == (head != "none")


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_an_sqlite_gallery_holds_points_names_and_the_fit(tmp_path: Path, metric: str) -> None:
    vectors, labels = points()
    ids = [f"bird {row}" for row in range(90)]
    path = tmp_path / "g.sqlite"
    stdin = jsonl(vectors, labels.tolist(), ids)
    said = succeeded("fit", "-", "-o", path, "--metric", metric, "--json", stdin=stdin).json
    assert (said["engine"], said["metric"], said["n_points"]) == ("sqlite exact", metric, 90)
    with SqliteEngine(path) as engine:
        stored = engine.fetch(np.array(ids))
        assert stored.labels is not None
        assert stored.labels.tolist() == labels.tolist()
        np.testing.assert_array_equal(stored.vectors, vectors)
        (tmp_path / "kept").write_bytes(engine.notes["model"])
        kept = NEDClassifier.load(tmp_path / "kept", engine)
        in_memory = NEDClassifier(metric=metric).fit(vectors, labels)  # type: ignore[arg-type]
        assert kept.temperature_ == pytest.approx(in_memory.temperature_, rel=1e-6)
        queries, _ = points(40, seed=1)
        first, second = (
            one.predict_with_confidence(queries).confidence for one in (kept, in_memory)
        )
        np.testing.assert_allclose(first, second, rtol=1e-6)
    assert [path.name for path in tmp_path.glob(".*")] == []


def test_rows_without_names_are_numbered_and_integer_labels_stay_integers(tmp_path: Path) -> None:
    vectors, _ = points()
    gallery = write_npz(tmp_path / "g.npz", vectors, np.arange(90) % 3)
    succeeded("fit", gallery, "-o", tmp_path / "g.sqlite")
    with SqliteEngine(tmp_path / "g.sqlite") as engine:
        assert (engine.capabilities.ids, engine.capabilities.labels) == ("integer", "integer")
        stored = engine.fetch(np.array([4, 0]))
        assert stored.labels is not None
        assert stored.labels.tolist() == [1, 0]


def test_chunks_make_no_difference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gallery = write_npz(tmp_path / "g.npz", *points())
    whole = succeeded("fit", gallery, "-o", tmp_path / "a.sqlite", "--json").json
    monkeypatch.setattr("nearsure.cli.load.ROWS_AT_A_TIME", 7)
    assert succeeded("fit", gallery, "-o", tmp_path / "b.sqlite", "--json").json == whole


def test_a_gallery_is_replaced_only_when_that_is_said(tmp_path: Path) -> None:
    gallery, path = write_npz(tmp_path / "g.npz", *points()), tmp_path / "g.sqlite"
    succeeded("fit", gallery, "-o", path)
    assert "--replace" in refused("fit", gallery, "-o", path)
    smaller = write_npz(tmp_path / "s.npz", *points(30))
    with SqliteEngine(path) as engine:
        assert "has a writer already" in refused("fit", smaller, "-o", path, "--replace")
        assert engine.size() == 90
    succeeded("fit", smaller, "-o", path, "--replace")
    with SqliteEngine(path) as engine:
        assert engine.size() == 30


def test_a_gallery_is_fitted_again_where_it_is(tmp_path: Path) -> None:
    gallery, path = write_npz(tmp_path / "g.npz", *points()), tmp_path / "g.sqlite"
    succeeded("fit", gallery, "-o", path, "--metric", "cosine")
    said = succeeded("fit", path, "-k", 5, "--json").json
    assert (said["k"], said["metric"]) == (5, "cosine")
    with SqliteEngine(path) as engine:
        (tmp_path / "kept").write_bytes(engine.notes["model"])
        assert NEDClassifier.load(tmp_path / "kept", engine).n_neighbors_ == 5
    succeeded("fit", path, "-o", tmp_path / "beside.safetensors")
    engine_again = open_engine(str(path))
    assert NEDClassifier.load(tmp_path / "beside.safetensors", engine_again).n_neighbors_ == 50
    engine_again.close()


def test_pictures_become_thumbnails_of_their_points(tmp_path: Path) -> None:
    vectors, labels = points(30)
    (tmp_path / "photos").mkdir()
    Image.new("RGB", (400, 200), "red").save(tmp_path / "photos" / "0.png")
    lines = jsonl(vectors, labels.tolist()).decode().splitlines()
    documents = [json.loads(line) for line in lines]
    for row, document in enumerate(documents):
        document["image"] = f"{row}.png" if row < 2 else None
    (tmp_path / "g.jsonl").write_text("\n".join(map(json.dumps, documents)))
    path = tmp_path / "g.sqlite"
    words = ["--images-root", tmp_path / "photos"]
    run = succeeded("fit", tmp_path / "g.jsonl", "-o", path, *words)
    assert "1.png" in run.err
    with SqliteEngine(path) as engine:
        small = engine.picture(0)
        assert small is not None
        (tmp_path / "small.jpg").write_bytes(small)
        assert engine.picture(1) is None
        assert engine.picture(2) is None
    with Image.open(tmp_path / "small.jpg") as picture:
        assert picture.size == (320, 160)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["g.npz"], "Name an output file"),
        (["g.npz", "-o", "m.pickle"], "--output must end in .safetensors, or in .sqlite"),
        (["g.npz", "-o", "g.npz/m.safetensors"], "--output: g.npz/m.safetensors cannot be written"),
        (["postgres:me:secret@host", "-o", "m.safetensors"], "GALLERY must be a file"),
        (["g.npz", "-o", "m.safetensors", "-k", "0"], "-k must be auto, all or a whole number"),
        (["g.npz", "-o", "m.safetensors", "-k", "91"], "Got 91 instead"),
        (["g.npz", "-o", "m.safetensors", "--max-fit-samples", "auto"], "--max-fit-samples must"),
        (["g.npz", "-o", "m.safetensors", "--table", "x"], "without --into"),
        (["g.npz", "-o", "m.safetensors", "--labels-key", "y"], "no array 'y' (labels_key)"),
        (
            ["g.npz", "-o", "m.safetensors", "--unknown-share", "1"],
            "Got 1.0 instead. (--unknown-share)",
        ),
        (["g.npz", "-o", "m.safetensors", "--images-root", "."], "--images-root must be left out"),
        (["g.npz", "-o", "m.safetensors", "--pictures-key", "x"], "--pictures-key must be left"),
        (["g.npz", "-o", "m.safetensors", "--replace"], "--replace must be left out"),
        (["no.sqlite", "--engine", "hnsw"], "--engine must be left out"),
        (["no.sqlite", "--labels", "no.txt"], "--labels must be left out: the points are"),
        (["no.sqlite", "--vectors-key", "x"], "--vectors-key must be left out"),
        (["no.sqlite", "--labels-key", "x"], "--labels-key must be left out"),
        (["no.sqlite", "--ids-key", "x"], "--ids-key must be left out"),
        (["no.sqlite", "--pictures-key", "x"], "--pictures-key must be left out"),
        (["no.sqlite", "--input-format", "npz"], "--input-format must be left out"),
        (["no.sqlite", "--images-root", "no"], "--images-root must be left out"),
        (["no.sqlite", "--replace"], "--replace must be left out"),
        (["no.npz", "-o", "m.safetensors"], "no.npz"),
        (["no.sqlite"], "There is no gallery at no.sqlite"),
        (["no.sqlite", "--into", "postgres"], "--into must be left out: no.sqlite is a gallery"),
        (["postgresql://me:secret@host/db", "--into", "milvus"], "this address is a gallery"),
        (["g.npz", "--into", "redis://x:secret@y", "-o", "m.safetensors"], "--into must be"),
        (["g.npz", "--into", "postgres", "-o", "m.sqlite"], "--output must end in .safetensors."),
        (["g.npz", "--into", "postgres", "-o", "m.safetensors", "--engine", "ivf"], "--engine"),
        (
            ["g.npz", "--into", "postgres", "-o", "m.safetensors", "--engine-option", "secret"],
            "--engine-option must be NAME=VALUE",
        ),
        pytest.param(
            ["g.npz", "--into", "postgres", "-o", "m.safetensors", "--engine-option", "ef=3"],
            "--engine-option ef: there is no such option; allowed are ef_construction, ef_search",
            marks=NEEDS_PSYCOPG,
        ),
        pytest.param(
            ["g.npz", "--into", "postgres", "-o", "m.safetensors", "--collection", "x"],
            "--engine-option collection: there is no such option",
            marks=NEEDS_PSYCOPG,
        ),
    ],
)
def test_a_mistake_is_one_sentence_without_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], sentence: str
) -> None:
    monkeypatch.chdir(tmp_path)
    write_npz(tmp_path / "g.npz", *points())
    said = refused("fit", *words)
    assert sentence in said
    assert "secret" not in said
    assert [path.name for path in tmp_path.iterdir()] == ["g.npz"]


@pytest.mark.parametrize("name", ["new.safetensors", "new.sqlite"])
def test_two_commands_that_make_one_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """One wins, and the other says so."""
    first = write_npz(tmp_path / "first.npz", *points())
    second = write_npz(tmp_path / "second.npz", *points(60))
    words = "-o", tmp_path / name

    @contextmanager
    def overtaken(work: str) -> Iterator[None]:
        monkeypatch.setattr(fit_command, "spinner", spinner)
        succeeded("fit", second, *words)
        with spinner(work):
            yield

    monkeypatch.setattr(fit_command, "spinner", overtaken)
    assert f"{name} already exists" in refused("fit", first, *words)
    assert succeeded("audit", "--model", tmp_path / name, "--json").json["n_points"] == 60
    if name.endswith("safetensors"):
        # What was there before is replaced, as ever.
        succeeded("fit", first, *words)
        assert succeeded("audit", "--model", tmp_path / name, "--json").json["n_points"] == 90
    assert not list(tmp_path.glob(".*"))
