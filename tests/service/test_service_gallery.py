"""The gallery that answers while it is changed and refitted."""

import json
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from threading import Event, Thread
from time import monotonic, sleep
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from served_examples import (
    DIMENSION,
    NAMES,
    clusters,
    document_at,
    refitted,
    serving,
    sqlite_gallery,
)
from starlette.testclient import TestClient

from nearsure import NEDClassifier
from nearsure.arrays import AnyArray
from nearsure.engines.contract import Found, Stored
from nearsure.engines.embedded import FaissEngine
from nearsure.engines.sqlite import SqliteEngine
from nearsure.errors import (
    ConfigError,
    EngineUnavailableError,
    InvalidInputError,
    PartialGalleryError,
)
from nearsure.service import ServiceSettings, create_app
from nearsure.service.errors import Overloaded
from nearsure.service.gallery import ServedGallery
from nearsure.service.service import open_gallery
from nearsure.service.store import MODEL, NUMBER, FileStore

FAR = [40.0] * DIMENSION


def test_the_first_fit_is_kept_in_the_file(tmp_path: Path) -> None:
    path = sqlite_gallery(tmp_path / "birds.sqlite")
    with serving(path) as client:
        first = client.post("/v1/predict", json={"vector": [0.5] * DIMENSION}).json()
    with SqliteEngine(path) as engine:
        model = engine.notes[MODEL]
        numbered = json.loads(engine.notes[NUMBER])
        assert numbered["number"] == 1
    with serving(path) as client:
        assert client.post("/v1/predict", json={"vector": [0.5] * DIMENSION}).json() == first
    with SqliteEngine(path) as engine:
        assert engine.notes[MODEL] == model


def test_a_fit_that_was_made_elsewhere_is_used_and_numbered_anew(tmp_path: Path) -> None:
    path, file = sqlite_gallery(tmp_path / "birds.sqlite"), tmp_path / "model"
    with serving(path) as client:
        assert client.get("/v1/model").json()["k"] == 50
    with SqliteEngine(path) as engine:
        NEDClassifier(n_neighbors=7, engine=engine, unknown_share=0.1).fit_engine().save(file)
        engine.notes[MODEL] = file.read_bytes()
    with serving(path) as client:
        model = client.get("/v1/model").json()
        assert (model["model"], model["k"], model["unknown_share"]) == (2, 7, 0.1)
        assert refitted(client) == {"state": "idle", "model": 3, "message": None}
        model = client.get("/v1/model").json()
        assert (model["k"], model["unknown_share"]) == (7, 0.1)


def test_another_engine_has_its_fit_in_files(tmp_path: Path) -> None:
    vectors, codes = clusters()
    engine = FaissEngine.from_points(vectors, labels=codes)
    model = tmp_path / "fit.safetensors"
    with serving(engine=engine, model=model, precision=0.8) as client:
        refitted(client)
        in_use = client.get("/v1/threshold").json()
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        "fit.safetensors",
        "fit.safetensors.model_number",
        "fit.safetensors.threshold",
    ]
    with serving(engine=engine, model=model) as client:
        assert client.get("/v1/model").json()["model"] == 2
        assert client.get("/v1/threshold").json() == in_use


def test_what_cannot_be_served_is_said_before_it_starts(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="no folder"):
        FileStore(tmp_path / "nowhere" / "fit")
    path = sqlite_gallery(tmp_path / "birds.sqlite", n_each=3)

    class Encoder:
        kind = "text"
        dimension = DIMENSION + 1

        def encode(self, inputs: object) -> None:
            raise NotImplementedError

    encoder: Any = Encoder()
    with pytest.raises(ConfigError, match="vectors of 7 numbers"):
        open_gallery(ServiceSettings(str(path)), encoder=encoder)
    # The file was released.
    open_gallery(ServiceSettings(str(path))).gallery.close()


class Halves:
    """A text encoder with a version."""

    kind, dimension, version = "text", DIMENSION, "1"

    def encode(self, inputs: list[str]) -> AnyArray:
        return np.full((len(inputs), DIMENSION), 0.5, np.float32)


def test_the_encoder_of_the_gallery_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Another is refused; if its version is not there, vectors are still served."""
    path = sqlite_gallery(tmp_path / "birds.sqlite", n_each=8)
    module = ModuleType("encoder_of_the_gallery")
    module.Halves, module.Other = Halves, Halves  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    with SqliteEngine(path) as engine:
        classifier = NEDClassifier(engine=engine).fit_engine()
        classifier.encoder_ = "encoder_of_the_gallery:Halves 1"
        engine.notes["model"] = classifier.to_bytes()
    # A file does not choose which code is run.
    with serving(path) as client:
        assert client.get("/v1/model").json()["encoder"] is None
    assert "only if it is named: --encoder encoder_of_the_gallery:Halves" in caplog.text
    monkeypatch.setattr(
        "nearsure.service.service.find_stored_encoder", lambda made_by: made_by.partition(" ")[0]
    )
    with serving(path) as client:
        assert client.get("/v1/model").json()["encoder"] == "text"
        assert client.post("/v1/predict", json={"text": "any"}).status_code == 200
        # A refit keeps it.
        client.post("/v1/refit")
    with pytest.raises(ConfigError, match="made by the encoder 'encoder_of_the_gallery:Halves 1'"):
        open_gallery(ServiceSettings(str(path), encoder="encoder_of_the_gallery:Other"))
    monkeypatch.setattr(Halves, "version", "2")
    with serving(path) as client:
        assert client.get("/v1/model").json()["encoder"] is None
    assert "only vectors" in caplog.text


def test_an_empty_gallery_can_be_filled_and_fitted(tmp_path: Path) -> None:
    path = sqlite_gallery(tmp_path / "birds.sqlite", n_each=0)
    vectors, codes = clusters(8)
    with serving(path, precision=0.5) as client:
        assert client.get("/readyz").json() == {"status": "ok"}
        model = client.get("/v1/model").json()
        assert (model["model"], model["size"], model["dimension"]) == (0, 0, DIMENSION)
        for method, address, body in (
            ("POST", "/v1/predict", {"vector": FAR}),
            ("POST", "/v1/predict/batch", {"vectors": [FAR]}),
            ("POST", "/v1/neighbors", {"item": "p001"}),
            ("GET", "/v1/threshold", None),
            ("GET", "/v1/threshold/for?precision=0.9", None),
            ("PUT", "/v1/threshold", {"threshold": 0.5}),
            ("GET", "/v1/report", None),
            ("GET", "/v1/audit", None),
        ):
            answer = client.request(method, address, json=body)
            assert (answer.status_code, answer.json()["error"]) == (409, "not_fitted_yet"), address
        refused = client.post("/v1/refit")
        assert (refused.status_code, refused.json()["error"]) == (409, "too_few_items")
        assert client.get("/v1/items").json() == {"items": [], "next": None, "total": 0}
        items = [
            {"label": label, "vector": vector}
            for label, vector in zip(NAMES[codes].tolist(), vectors.tolist(), strict=True)
        ]
        ids = client.post("/v1/items", json={"items": items}).json()["ids"]
        assert client.patch(f"/v1/items/{ids[0]}", json={"label": "ibis"}).status_code == 200
        assert client.delete(f"/v1/items/{ids[0]}").status_code == 200
        assert client.post("/v1/predict", json={"vector": FAR}).status_code == 409
        assert refitted(client) == {"state": "idle", "model": 1, "message": None}
        assert client.post("/v1/predict", json={"vector": FAR}).status_code == 200
        assert client.get("/v1/threshold").json()["precision"] == 0.5
    with serving(path) as client:
        assert client.get("/v1/model").json()["model"] == 1


class HeldEngine:
    """An engine whose scan, the first step of a fit, waits until it is released."""

    def __init__(self, engine: FaissEngine) -> None:
        self._engine = engine
        self.reached, self.released = Event(), Event()
        self.released.set()

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self._engine, name)

    def fetch(self, ids: AnyArray) -> Stored:
        stored = self._engine.fetch(ids)
        # A fit fetches many points at once; a write looks at its own.
        if len(ids) > 20:
            self.reached.set()
            assert self.released.wait(20)
        return stored


def held_engine() -> Any:  # noqa: ANN401 - an engine for the service
    vectors, codes = clusters()
    return HeldEngine(FaissEngine.from_points(vectors, labels=codes))


def test_queries_and_writes_go_on_while_a_fit_is_made() -> None:
    engine = held_engine()
    with serving(engine=engine, precision=0.6) as client:
        before = client.get("/v1/threshold").json()
        engine.reached.clear()
        engine.released.clear()
        assert client.post("/v1/refit").json()["state"] == "running"
        assert engine.reached.wait(20)
        assert client.post("/v1/refit").json()["state"] == "running"
        assert client.post("/v1/predict", json={"vector": FAR}).json()["model"] == 1
        new = {"items": [{"label": "7", "vector": FAR}] * 4}
        ids = client.post("/v1/items", json=new).json()["ids"]
        assert client.patch("/v1/items/0", json={"label": "3"}).status_code == 200
        assert client.post("/v1/predict", json={"vector": FAR}).json()["label"] == 7
        assert client.get("/v1/threshold").json() == before
        engine.released.set()
        service: Any = client.app
        service.state.service.refits.wait(20)
        assert client.get("/v1/refit").json() == {"state": "idle", "model": 2, "message": None}
        answer = client.post("/v1/predict", json={"vector": FAR, "neighbors": 4}).json()
        assert (answer["model"], answer["label"]) == (2, 7)
        assert [one["id"] for one in answer["neighbors"]] == ids
        model = client.get("/v1/model").json()
        # What was written meanwhile is counted, and known to be newer than the fit.
        assert (model["size"], model["n_classes"]) == (124, 5)
        assert model["share_changed"] == pytest.approx(5 / 124)
        counts = service.state.service.gallery.fit.classifier.class_counts_
        assert counts.tolist() == [29, 30, 30, 31, 4]


def test_a_point_that_goes_while_a_fit_is_made_does_not_break_it() -> None:
    engine = held_engine()
    with serving(engine=engine) as client:
        engine.reached.clear()
        engine.released.clear()
        client.post("/v1/refit")
        assert engine.reached.wait(20)
        # The points of the fit are drawn already, and are searched for after this.
        gone = {"ids": [str(i) for i in range(5, 20)]}
        assert client.post("/v1/items/remove", json=gone).json() == {"changed": 15}
        engine.released.set()
        service: Any = client.app
        service.state.service.refits.wait(20)
        assert client.get("/v1/refit").json()["state"] == "idle"
        model = client.get("/v1/model").json()
        # It has started over, without them.
        assert (model["model"], model["size"]) == (2, 105)
        assert model["share_changed"] == 0.0
        counts = service.state.service.gallery.fit.classifier.class_counts_
        assert counts.tolist() == [15, 30, 30, 30]


class VanishingEngine(HeldEngine):
    """Of the points that something reads all of, one is removed each time, while `left` lasts."""

    gallery: ServedGallery
    left = 0
    removed = 0

    def fetch(self, ids: AnyArray) -> Stored:
        if len(ids) > 20 and self.left:
            self.left -= 1
            self.removed += 1
            self.gallery.remove(ids[:1])
        return self._engine.fetch(ids)


@contextmanager
def vanishing() -> Iterator[tuple[TestClient, VanishingEngine]]:
    vectors, codes = clusters()
    engine: Any = VanishingEngine(FaissEngine.from_points(vectors, labels=codes))
    with serving(engine=engine) as client:
        app: Any = client.app
        engine.gallery = app.state.service.gallery
        yield client, engine


def test_a_fit_starts_over_three_times_and_then_gives_up() -> None:
    with vanishing() as (client, engine):
        engine.left = 3
        assert refitted(client) == {"state": "idle", "model": 2, "message": None}
        model = client.get("/v1/model").json()
        assert (engine.removed, model["size"], model["share_changed"]) == (3, 117, 0.0)
        engine.left = 100
        state = refitted(client)
        assert (state["state"], state["model"], engine.removed) == ("failed", 2, 7)
        assert "started over 3 times" in state["message"]
        assert client.post("/v1/predict", json={"vector": FAR}).json()["model"] == 2
        assert client.get("/v1/model").json()["share_changed"] == pytest.approx(4 / 113)
        engine.left = 0
        assert refitted(client) == {"state": "idle", "model": 3, "message": None}
        assert client.get("/v1/model").json()["share_changed"] == 0.0


def test_a_threshold_starts_over_three_times_and_then_gives_up() -> None:
    address = "/v1/threshold/for?precision=0.6"
    with vanishing() as (client, engine):
        engine.left = 3
        assert client.get(address).status_code == 200
        engine.left = 100
        client.delete("/v1/items/119")
        answer = client.get(address)
        assert (answer.status_code, answer.json()["error"]) == (503, "overloaded")
        assert "started over 3 times" in answer.json()["message"]
        assert engine.removed == 7
        engine.left = 0
        assert client.get(address).status_code == 200


@pytest.mark.parametrize("address", ["/v1/report", "/v1/audit"])
def test_a_document_starts_over_three_times_and_then_says_why_there_is_none(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with vanishing() as (client, engine):
        engine.left = 3
        assert document_at(client, address)
        client.delete("/v1/items/119")
        engine.left = 100
        app: Any = client.app
        live = getattr(app.state.service, address.rpartition("/")[2])
        live._last = None
        assert client.get(address).status_code == 202
        live.wait(20)
        answer = client.get(address)
        assert (answer.status_code, answer.json()["error"]) == (503, "overloaded")
        assert "started over 3 times" in answer.json()["message"]
        engine.left = 0
        # It is rebuilt after a while, though nothing has changed since.
        later = monotonic() + 100
        monkeypatch.setattr("nearsure.service.documents.monotonic", lambda: later)
        assert document_at(client, address)


def test_a_fit_that_fails_leaves_the_old_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: NEDClassifier) -> NEDClassifier:
        raise failure

    failure: Exception = InvalidInputError("It cannot be.")
    vectors, codes = clusters(8)
    with serving(engine=FaissEngine.from_points(vectors, labels=codes)) as client:
        monkeypatch.setattr(NEDClassifier, "refit", fails)
        assert refitted(client) == {"state": "failed", "model": 1, "message": "It cannot be."}
        failure = RuntimeError("password=hunter2")
        state = refitted(client)
        assert state["state"] == "failed"
        assert "hunter2" not in state["message"]
        assert client.post("/v1/predict", json={"vector": FAR}).json()["model"] == 1
        monkeypatch.undo()
        assert refitted(client) == {"state": "idle", "model": 2, "message": None}


def test_refits_under_load_are_never_seen_half(tmp_path: Path) -> None:
    path = sqlite_gallery(tmp_path / "birds.sqlite", n_each=15)
    stopped, problems, numbers = Event(), [], []
    with serving(path) as client:

        def ask() -> None:
            while not stopped.is_set():
                answer = client.post("/v1/predict", json={"item": "p003"})
                if answer.status_code != 200:
                    problems.append(answer.text)
                else:
                    numbers.append(answer.json()["model"])

        def write() -> None:
            for i in range(1000):
                if stopped.is_set():
                    return
                items = [{"id": f"n{i}", "label": "ibis", "vector": FAR}]
                added = client.post("/v1/items", json={"items": items})
                removed = client.delete(f"/v1/items/n{i}")
                if (added.status_code, removed.status_code) != (201, 200):
                    problems.append(added.text + removed.text)

        threads = [Thread(target=ask), Thread(target=ask), Thread(target=write)]
        for thread in threads:
            thread.start()
        states = [refitted(client) for _ in range(3)]
        stopped.set()
        for thread in threads:
            thread.join()
        service: Any = client.app
        counts = service.state.service.gallery.fit.classifier.class_counts_
    assert problems == []
    assert [state["model"] for state in states] == [2, 3, 4]
    assert sorted(counts[counts > 0].tolist()) == [15] * 4
    assert set(numbers) <= {1, 2, 3, 4}


def test_changes_that_nobody_counted_show_in_the_share(tmp_path: Path) -> None:
    path = sqlite_gallery(tmp_path / "birds.sqlite")
    with serving(path):
        pass
    with SqliteEngine(path) as engine:
        ids = np.array([f"n{i}" for i in range(30)])
        engine.add(np.ones((30, DIMENSION)), ids, np.full(30, "ibis"))
    for _ in range(2):
        with serving(path) as client:
            model = client.get("/v1/model").json()
            assert (model["size"], model["n_classes"]) == (150, 5)
            assert model["share_changed"] == pytest.approx(30 / 150)
    with serving(path) as client:
        refitted(client)
        assert client.get("/v1/model").json()["share_changed"] == 0.0


def test_an_engine_that_went_away_is_said_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(*_: object) -> None:
        raise EngineUnavailableError("It is gone: host=db.example.org")

    vectors, codes = clusters(8)
    engine = FaissEngine.from_points(vectors, labels=codes)
    with serving(engine=engine) as client:
        for name in ("search", "fetch", "add", "scan"):
            monkeypatch.setattr(engine, name, gone)
        for answer in (
            client.post("/v1/predict", json={"vector": FAR}),
            client.get("/v1/items"),
            client.get("/v1/items/3"),
            client.post("/v1/items", json={"items": [{"label": "1", "vector": FAR}]}),
        ):
            assert (answer.status_code, answer.json()["error"]) == (503, "engine_unavailable")
            assert answer.headers["retry-after"] == "1"
            assert "example.org" not in answer.text
        monkeypatch.undo()
        assert client.post("/v1/predict", json={"vector": FAR}).status_code == 200


def test_the_app_knows_no_gallery_before_it_starts() -> None:
    app = create_app(ServiceSettings("nowhere.sqlite"))
    assert app.state.status == "starting"


ROUNDS = 6


def _label_of(client: Any, item: str) -> str:  # noqa: ANN401
    answer: str = client.get(f"/v1/items/{item}").json()["label"]
    return answer


class _Interrupted(SqliteEngine):
    """Something happens once, in the middle of the next search."""

    happens: Callable[[], object] | None = None

    def search(self, queries: AnyArray, k: int) -> Found:
        happens, self.happens = self.happens, None
        if happens is not None:
            happens()
        return super().search(queries, k)


def test_a_label_given_during_a_refit_is_not_stored_for_the_next_item(tmp_path: Path) -> None:
    engine = _Interrupted(sqlite_gallery(tmp_path / "birds.sqlite"))
    gallery = open_gallery(ServiceSettings("given"), engine).gallery
    for number in range(ROUNDS):
        during, after = np.array([f"during {number}"]), np.array([f"after {number}"])
        engine.happens = partial(gallery.relabel, np.array(["p001"]), during)
        gallery.refit()
        assert engine.happens is None
        gallery.relabel(np.array(["p002"]), after)
        stored = engine.fetch(np.array(["p001", "p002"])).labels
        assert stored is not None
        assert stored.tolist() == [during[0], after[0]]
    gallery.close()
    with SqliteEngine(tmp_path / "birds.sqlite") as reopened:
        kept = reopened.fetch(np.array(["p001", "p002"])).labels
        assert kept is not None
        assert kept.tolist() == [f"during {ROUNDS - 1}", f"after {ROUNDS - 1}"]


def test_a_label_given_before_a_crash_is_not_stored_for_the_next_item(tmp_path: Path) -> None:
    """Without `close`, as after a kill: the fit that was kept does not know the label."""
    path = sqlite_gallery(tmp_path / "birds.sqlite")
    with serving(path) as client:
        refitted(client)
    with SqliteEngine(path) as engine:
        engine.relabel(np.array(["p001"]), np.array(["before"]))
    with serving(path) as client:
        assert client.patch("/v1/items/p002", json={"label": "after"}).json() == {"changed": 1}
        assert [_label_of(client, item) for item in ("p001", "p002")] == ["before", "after"]
        assert document_at(client, "/v1/audit")


def test_classes_that_stay_empty_are_forgotten_at_a_refit(tmp_path: Path) -> None:
    with serving(sqlite_gallery(tmp_path / "birds.sqlite")) as client:
        for number in range(20):
            client.patch("/v1/items/p001", json={"label": f"name {number}"})
        refitted(client)
        classifier = client.app.state.service.gallery.fit.classifier  # type: ignore[attr-defined]
        assert sorted(classifier.classes_) == sorted([*NAMES, "name 19"])
        assert client.get("/v1/model").json()["n_classes"] == 5


class _Slow(FaissEngine):
    """A removal is answered some time after it was made."""

    removed: Event

    def remove(self, ids: AnyArray) -> None:
        super().remove(ids)
        self.removed.set()
        sleep(0.1)


def test_a_removal_that_is_not_answered_yet_starts_a_reader_over() -> None:
    vectors, codes = clusters()
    engine = _Slow.from_points(vectors, labels=codes)
    engine.removed = Event()
    gallery = open_gallery(ServiceSettings("given"), engine).gallery
    calls: list[int] = []

    def read(_: object, number: int) -> str:
        calls.append(number)
        ids = np.concatenate([part.ids for part in engine.scan()])
        if len(calls) == 1:
            Thread(target=gallery.remove, args=(np.array([5]),)).start()
            engine.removed.wait()
        engine.fetch(ids)
        return "read"

    assert gallery.read_whole(read) == "read"
    assert len(calls) == 2


class _Lost(FaissEngine):
    """The outcome of a change is not known."""

    def relabel(self, ids: AnyArray, labels: AnyArray) -> None:
        super().relabel(ids, labels)
        raise EngineUnavailableError("The connection broke.")


def test_a_change_of_unknown_outcome_counts_as_one() -> None:
    vectors, codes = clusters()
    gallery = open_gallery(
        ServiceSettings("given"), _Lost.from_points(vectors, labels=codes)
    ).gallery
    chosen, version = gallery.threshold_for(0.9, 0.95), gallery.version
    assert gallery.threshold_for(0.9, 0.95) is chosen
    with pytest.raises(EngineUnavailableError):
        gallery.relabel(np.array([5]), np.array([1]))
    assert gallery.version != version
    assert gallery.threshold_for(0.9, 0.95) is not chosen


def test_two_services_on_one_engine_store_their_own_labels() -> None:
    vectors, codes = clusters()
    engine = FaissEngine.from_points(vectors, labels=codes)
    one, two = (open_gallery(ServiceSettings("given"), engine).gallery for _ in range(2))
    for number in range(ROUNDS):
        first, second = np.array([100 + number]), np.array([200 + number])
        one.relabel(np.array([1]), first)
        two.stored(np.array([1]))
        two.relabel(np.array([1]), first + 1000)
        two.relabel(np.array([2]), second)
        one.relabel(np.array([3]), second + 1000)
        stored = engine.fetch(np.array([1, 2, 3])).labels
        assert stored is not None
        assert stored.tolist() == [1100 + number, 200 + number, 1200 + number]
        if number % 2:
            one.refit()


def test_readers_see_the_label_of_the_item_that_they_found(tmp_path: Path) -> None:
    """Each item has labels that begin with its own number, whoever gives them."""
    places = np.eye(4, DIMENSION, dtype=np.float32) * 10
    names = np.array([f"{number}-{copy}" for number in range(4) for copy in "ab"])
    path = tmp_path / "items.sqlite"
    SqliteEngine.create(path, DIMENSION).close()
    with SqliteEngine(path) as engine:
        engine.add(places.repeat(2, axis=0), names, np.array([f"{name[0]} -" for name in names]))
        galleries = [open_gallery(ServiceSettings("given"), engine).gallery for _ in range(2)]

        def write(number: int) -> None:
            for count in range(40):
                galleries[number % 2].relabel(names[[number]], np.array([f"{number // 2} {count}"]))

        def read(seed: int) -> list[tuple[str, str]]:
            found = []
            for number in np.random.default_rng(seed).integers(4, size=60).tolist():
                (answers, row), *_ = galleries[seed % 2].predict(places[[number]])
                found += [(own["id"], own["label"]) for own in answers.neighbors(row, 4)]
            return found

        with ThreadPoolExecutor(6) as pool:
            writers = [pool.submit(write, number) for number in range(3)]
            readers = [pool.submit(read, seed) for seed in range(3)]
            for writer in writers:
                writer.result()
            read_labels = [pair for reader in readers for pair in reader.result()]
    assert len(read_labels) == 3 * 60 * 4
    assert [own for own, label in read_labels if own[0] != label[0]] == []


def test_readers_do_not_start_over_after_additions_alone() -> None:
    vectors, codes = clusters()
    engine = FaissEngine.from_points(vectors, labels=codes)
    gallery = open_gallery(ServiceSettings("given"), engine).gallery
    calls: list[int] = []

    def read(label: int) -> None:
        calls.append(label)
        gallery.add(vectors[:1], np.array([label]), [None])
        raise LookupError("an error of its own")

    with pytest.raises(LookupError, match="its own"):
        gallery.read_whole(lambda *_: read(int(codes[0])))
    assert len(calls) == 1
    # A new class is a label that a reader has no name for.
    with pytest.raises(Overloaded, match="started over 3 times"):
        gallery.read_whole(lambda *_: read(100 + len(calls)))
    assert len(calls) == 1 + 4


class _CutOff(FaissEngine):
    """A change of several requests breaks off after the first; Milvus has such."""

    breaks_off = False
    unfinished: frozenset[int] | None = None

    def add(self, vectors: AnyArray, ids: AnyArray, labels: AnyArray | None = None) -> None:
        if self.breaks_off:
            super().add(vectors[:1], ids[:1], None if labels is None else labels[:1])
            self.unfinished = frozenset(ids.tolist())
            raise EngineUnavailableError("The connection broke.")
        super().add(vectors, ids, labels)

    def remove(self, ids: AnyArray) -> None:
        if self.unfinished is None:
            super().remove(ids)
        elif self.unfinished != frozenset(ids.tolist()):
            self._check_whole()
        else:
            self.unfinished = None
            super().remove(ids[:1])

    def fetch(self, ids: AnyArray) -> Stored:
        self._check_whole()
        return super().fetch(ids)

    def scan(self) -> Iterator[Stored]:
        self._check_whole()
        yield from super().scan()

    def _check_whole(self) -> None:
        if self.unfinished is not None:
            raise PartialGalleryError("add() was cut off.")


@pytest.mark.parametrize("is_fitted", [True, False])
def test_an_addition_that_was_cut_off_is_taken_back_by_removing_its_items(is_fitted: bool) -> None:  # noqa: FBT001
    vectors, codes = clusters()
    n_before = len(codes) if is_fitted else 1
    engine = _CutOff.from_points(vectors[:n_before], labels=codes[:n_before])
    gallery = open_gallery(ServiceSettings("given"), engine).gallery
    assert gallery.is_fitted == is_fitted
    engine.breaks_off, names = True, ["1000", "1001", "1002"]
    with pytest.raises(EngineUnavailableError):
        gallery.add(vectors[:3], codes[:3], names)
    with pytest.raises(PartialGalleryError):
        gallery.remove(np.array([0]))
    with pytest.raises(PartialGalleryError):
        gallery.stored(np.array([0]))
    assert gallery.remove(np.array([1000, 1001, 1002])) == 3
    assert engine.size() == n_before
    gallery.stored(np.array([0]))
    if is_fitted:
        assert gallery.fit.classifier.class_counts_.sum() == n_before
        gallery.remove(np.array([0]))
        assert gallery.fit.classifier.class_counts_.sum() == n_before - 1
