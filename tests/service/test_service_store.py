"""What is kept of a fit, and how a service continues from it."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from served_examples import DIMENSION, NAMES, clusters, refitted, serving, sqlite_gallery

from nearsure import NEDClassifier
from nearsure.engines.embedded import FaissEngine
from nearsure.engines.sqlite import SqliteEngine
from nearsure.errors import ModelFileError
from nearsure.model_file import model_bytes, read_model_bytes
from nearsure.service import ServiceSettings
from nearsure.service.answers import ThresholdInUse, make_fixed_threshold
from nearsure.service.gallery import ServedGallery
from nearsure.service.service import open_gallery
from nearsure.service.store import (
    MODEL,
    NUMBER,
    THRESHOLD,
    FileStore,
    Fit,
    keep,
    read_kept,
)

FAR = [40.0] * DIMENSION


@contextmanager
def cut_off(path: Path, **settings: float) -> Iterator[ServedGallery]:
    """A gallery whose process ends with the block, without being told before."""
    gallery = open_gallery(ServiceSettings(str(path), **settings)).gallery  # type: ignore[arg-type]
    yield gallery
    gallery.engine.close()


def ids_from(first: int, end: int) -> np.ndarray:
    return np.array([f"p{i:03}" for i in range(first, end)])


def test_a_precision_is_used_that_comes_with_a_later_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = sqlite_gallery(tmp_path / "birds.sqlite", n_each=15)
    with cut_off(path) as gallery:
        assert gallery.fit.threshold.precision is None
    for precision in (0.5, 0.6):
        with cut_off(path, precision=precision) as gallery:
            chosen = gallery.fit.threshold
            assert chosen.document() == gallery.threshold_for(precision, 0.95).document()
            assert chosen.precision == precision
    # Without one, that of the last start stays.
    with cut_off(path) as gallery:
        assert gallery.fit.threshold == chosen
        gallery.set_threshold(None)
        assert gallery.refit().threshold.is_set
    assert "is used instead of" not in caplog.text
    # That there be none was asked for, and is said.
    with cut_off(path, precision=0.6) as gallery:
        in_use = gallery.fit.threshold
        assert (in_use.threshold, in_use.precision, in_use.model) == (None, None, 2)
        assert "is used instead of precision 0.6: No threshold is set" in caplog.text
        assert gallery.use_threshold(gallery.threshold_for(0.7, 0.95))
        assert gallery.refit().threshold.is_set
    caplog.clear()
    with cut_off(path, precision=0.6) as gallery:
        assert gallery.fit.threshold.precision == 0.7
        assert "is used instead of precision 0.6" in caplog.text


def test_a_gallery_of_one_item_keeps_its_fit(tmp_path: Path) -> None:
    path = sqlite_gallery(tmp_path / "birds.sqlite", n_each=3)
    with SqliteEngine(path) as engine:
        engine.notes[MODEL] = NEDClassifier(n_neighbors=9, engine=engine).fit_engine().to_bytes()
    with cut_off(path, precision=0.5) as gallery:
        gallery.refit()
        gallery.set_threshold(0.77)
        gallery.remove(ids_from(1, 12))
    vectors, codes = clusters(5)
    with serving(path, precision=0.5) as client:
        model = client.get("/v1/model").json()
        assert (model["model"], model["size"], model["threshold"]) == (2, 1, 0.77)
        assert client.post("/v1/predict", json={"vector": FAR}).json()["label"] == "heron"
        items = [
            {"label": label, "vector": vector}
            for label, vector in zip(NAMES[codes].tolist(), vectors.tolist(), strict=True)
        ]
        assert client.post("/v1/items", json={"items": items}).status_code == 201
        assert refitted(client) == {"state": "idle", "model": 3, "message": None}
        model = client.get("/v1/model").json()
        assert (model["threshold"], model["k"]) == (0.77, 9)


def test_a_gallery_that_was_emptied_goes_on_with_its_number(tmp_path: Path) -> None:
    path = sqlite_gallery(tmp_path / "birds.sqlite", n_each=3)
    with cut_off(path) as gallery:
        gallery.set_threshold(0.77)
    with SqliteEngine(path) as engine:
        engine.remove(ids_from(0, 12))
    vectors, codes = clusters(3)
    with cut_off(path) as gallery:
        assert not gallery.is_fitted
        gallery.add(vectors, NAMES[codes], [None] * 12)
        fit = gallery.refit()
        assert (fit.number, fit.threshold.threshold) == (2, 0.77)


def test_a_precision_waits_for_a_gallery_that_can_say_something(tmp_path: Path) -> None:
    path = sqlite_gallery(tmp_path / "birds.sqlite", n_each=3)
    with cut_off(path) as gallery:
        gallery.remove(ids_from(1, 12))
    with serving(path, precision=0.5) as client:
        in_use = client.get("/v1/threshold").json()
        assert (in_use["threshold"], in_use["precision"]) == (None, 0.5)
        assert client.post("/v1/predict", json={"vector": FAR}).json()["accepted"] is False


def test_what_has_changed_is_known_after_a_kill(tmp_path: Path) -> None:
    path = sqlite_gallery(tmp_path / "birds.sqlite", n_each=10)
    with cut_off(path) as gallery:
        # Classes have the sizes that they had before.
        gallery.relabel(ids_from(0, 10), np.array(["egret"]))
        gallery.relabel(ids_from(10, 20), np.array(["heron"]))
        assert gallery.fit.share_changed == 0.5
    with cut_off(path) as gallery:
        assert gallery.fit.share_changed == 0.5
        gallery.remove(ids_from(0, 5))
        gallery.add(np.zeros((5, DIMENSION), np.float32), np.full(5, "heron"), [None] * 5)
        assert gallery.fit.share_changed == 25 / 40
    with cut_off(path) as gallery:
        assert gallery.fit.share_changed == 25 / 40
        gallery.refit()
        assert gallery.fit.share_changed == 0
        gallery.relabel(ids_from(30, 34), np.array(["ibis"]))
    # Also after one who could say goodbye.
    for _ in range(2):
        with serving(path) as client:
            assert client.get("/v1/model").json()["share_changed"] == 4 / 40


def test_changes_since_a_fit_from_elsewhere_are_known_after_a_kill(tmp_path: Path) -> None:
    path = sqlite_gallery(tmp_path / "birds.sqlite", n_each=10)
    with cut_off(path) as gallery:
        gallery.relabel(ids_from(0, 10), np.array(["egret"]))
    with SqliteEngine(path) as engine:
        engine.notes[MODEL] = NEDClassifier(engine=engine).fit_engine().to_bytes()
    for n_changed in (0, 4, 8):
        with cut_off(path) as gallery:
            assert gallery.fit.number == 2
            assert gallery.fit.share_changed == n_changed / 40
            gallery.relabel(ids_from(n_changed, n_changed + 4), np.array(["stork"]))


def test_another_engine_knows_how_many_must_have_changed(tmp_path: Path) -> None:
    vectors, codes = clusters(10)
    engine = FaissEngine.from_points(vectors, labels=codes)
    settings = ServiceSettings("given", model=tmp_path / "fit")
    open_gallery(settings, engine=engine)
    engine.relabel(np.arange(6), np.full(6, 3))
    # Each is missed in one class and found in another.
    assert open_gallery(settings, engine=engine).gallery.fit.share_changed == 6 / 40


def test_a_fit_is_one_transaction_of_the_file(tmp_path: Path) -> None:
    path = sqlite_gallery(tmp_path / "birds.sqlite", n_each=5)
    with cut_off(path) as gallery:
        engine = gallery.engine
        assert isinstance(engine, SqliteEngine)
        written: list[set[str]] = []
        engine._file._writer.set_trace_callback(
            lambda statement: (
                written.append({statement.split("'")[1]})
                if statement.startswith("REPLACE INTO notes")
                else written.append({statement})
                if statement == "COMMIT"
                else None
            )
        )
        gallery.refit()
        first = written.index({"COMMIT"})
        assert set().union(*written[:first]) == {MODEL, NUMBER, THRESHOLD}


def test_damaged_notes_do_not_stop_a_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = sqlite_gallery(tmp_path / "birds.sqlite", n_each=5)
    with cut_off(path) as gallery:
        gallery.set_threshold(0.77)
    with SqliteEngine(path) as engine:
        engine.notes[THRESHOLD] = b"{}x"
    with cut_off(path, precision=0.5) as gallery:
        assert (gallery.fit.number, gallery.fit.threshold.precision) == (1, 0.5)
        assert "threshold that was kept cannot be read" in caplog.text
        # Chosen anew, and kept.
    with cut_off(path) as gallery:
        assert gallery.fit.threshold.precision == 0.5


def test_a_fit_that_was_altered_is_an_error_at_the_start(tmp_path: Path) -> None:
    path = sqlite_gallery(tmp_path / "birds.sqlite", n_each=15)
    with cut_off(path):
        pass
    with SqliteEngine(path) as engine:
        manifest, tensors = read_model_bytes(engine.notes[MODEL])
        for name, value, sentence in (
            ("rule", {"name": "ned"}, "The rule cannot be read: 'calibrator' is missing"),
            ("n_neighbors", "many", "'n_neighbors' must be an integer"),
        ):
            engine.notes[MODEL] = model_bytes(manifest | {name: value}, tensors)
            with pytest.raises(ModelFileError, match=sentence):
                open_gallery(ServiceSettings("given"), engine)
        counts = tensors | {"class_counts": tensors["class_counts"].astype(np.float64)}
        engine.notes[MODEL] = model_bytes(manifest, counts)
        with pytest.raises(ModelFileError, match="'class_counts' must be an array of int64"):
            open_gallery(ServiceSettings("given"), engine)


BY_HAND = make_fixed_threshold(0.77, 4)


class Model:
    """Of a classifier, only its bytes."""

    def __init__(self, content: bytes) -> None:
        self.content = content

    def to_bytes(self) -> bytes:
        return self.content


def fit_of(number: int, content: bytes, last_change: int | None = None) -> Fit:
    model: Any = Model(content)
    threshold = ThresholdInUse(0.1 * number, 0.9, f"of {number}", number)
    return Fit(model, number, threshold, last_change=last_change)


def test_a_fit_comes_back() -> None:
    notes: dict[str, bytes] = {}
    assert read_kept(notes, None) is None
    keep(fit_of(4, b"four", 17), notes)
    kept = read_kept(notes, None)
    assert kept is not None
    assert (kept.model, kept.number, kept.last_change) == (b"four", 4, 17)
    assert kept.threshold == fit_of(4, b"four").threshold


class Killed(BaseException):
    """The end of a process."""


class CutOff(FileStore):
    """Files, of which only so many are written."""

    left = 0

    def update(self, notes: Any, /) -> None:  # noqa: ANN401
        for name, content in notes.items():
            if not self.left:
                raise Killed
            self.left -= 1
            super().update({name: content})


@pytest.mark.parametrize(
    ("n_written", "content", "number"),
    [(0, b"four", 4), (1, b"four", 6), (2, b"five", 5), (3, b"five", 5)],
)
def test_a_kill_between_files_does_no_harm(
    tmp_path: Path, n_written: int, content: bytes, number: int
) -> None:
    notes = CutOff(tmp_path / "fit")
    notes.left = 3
    keep(fit_of(4, b"four"), notes)
    notes.left = n_written
    if n_written < 3:
        with pytest.raises(Killed):
            keep(fit_of(5, b"five"), notes)
    else:
        keep(fit_of(5, b"five"), notes)
    for _ in range(2):
        kept = read_kept(FileStore(tmp_path / "fit"), None)
        assert kept is not None
        # A number that was given to one fit is never that of another.
        assert (kept.model, kept.number) == (content, number)
        # One of another fit is chosen again when it starts.
        assert kept.threshold is not None
        assert kept.threshold.model == (5 if n_written == 3 else 4)


@pytest.mark.parametrize(
    "damaged",
    [
        b"",
        b"{}x",
        b"[1]",
        b"null",
        b"7",
        b"\xff",
        b'{"x": 1}',
        b'{"threshold": "x", "number": "x"}',
        b'{"number": 1e400, "threshold": 1e400}',
        b"[" * 100_000,
    ],
)
def test_damaged_notes_are_given_up(damaged: bytes, caplog: pytest.LogCaptureFixture) -> None:
    notes: dict[str, bytes] = {}
    keep(fit_of(4, b"four"), notes)
    notes.update({THRESHOLD: damaged})
    kept = read_kept(notes, None)
    assert kept is not None
    assert (kept.number, kept.threshold) == (4, None)
    assert "threshold that was kept cannot be read" in caplog.text
    notes.update({THRESHOLD: BY_HAND.to_bytes(), NUMBER: damaged})
    for _ in range(2):
        kept = read_kept(notes, None)
        assert kept is not None
        assert (kept.number, kept.threshold) == (5, BY_HAND)
    assert json.loads(notes.get(NUMBER) or b"")["number"] == 5


@pytest.mark.parametrize("number", [2.0, -0.1, float("nan"), "0.5", [1]])
def test_what_is_no_threshold_is_not_read(number: object) -> None:
    for name, value in (
        ("threshold", number),
        ("precision", number),
        ("sentence", 1),
        ("model", "x"),
    ):
        with pytest.raises(ValueError, match="no threshold"):
            ThresholdInUse.from_bytes(json.dumps({name: value}).encode())


def test_a_fit_from_elsewhere_is_numbered_for_good() -> None:
    class Changes:
        n_changes = 30

        def last(self) -> int:
            return self.n_changes

    changes: Any = Changes()
    notes: dict[str, bytes] = {}
    keep(fit_of(4, b"four", 17), notes)
    notes.update({MODEL: b"another"})
    kept = read_kept(notes, changes)
    assert kept is not None
    assert (kept.number, kept.last_change) == (5, None)
    changes.n_changes = 40
    kept = read_kept(notes, changes)
    assert kept is not None
    assert (kept.number, kept.last_change) == (5, 30)
