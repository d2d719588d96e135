"""What a service acknowledges is what the engine holds, whoever else writes or fits meanwhile."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Event, Thread
from time import sleep
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

from nearsure.arrays import AnyArray
from nearsure.engines.contract import Found
from nearsure.engines.embedded import FaissEngine
from nearsure.engines.sqlite import SqliteEngine
from nearsure.errors import EngineUnavailableError
from nearsure.service import ServiceSettings
from nearsure.service.service import open_gallery

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
