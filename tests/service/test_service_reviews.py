"""Reviews: labels that a person confirms, removals that are undone, places on the map."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from served_examples import (
    DIMENSION,
    clusters,
    document_at,
    refitted,
    refused,
    serving,
    sqlite_gallery,
)
from starlette.testclient import TestClient

from nearsure.arrays import AnyArray, BoolArray
from nearsure.engines.sqlite import SqliteEngine
from nearsure.errors import EngineError
from nearsure.report.map import fit_plane
from nearsure.service.reviews import CONFIRMED, ConfirmedLabels, RemovedItems

PICTURE = b"\xff\xd8\xff a picture"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A gallery with a label that is wrong."""
    path = sqlite_gallery(tmp_path / "birds.sqlite")
    with SqliteEngine(path) as engine:
        engine.relabel(np.array(["p000"]), np.array(["crane"]))
    return path


def listed(client: TestClient) -> set[str]:
    audit = document_at(client, "/v1/audit")
    assert len(audit["suspects"]) == audit["n_suspects"]
    return {one["id"] for one in audit["suspects"]}


def change(client: TestClient, name: str, *ids: str, **more: str) -> Any:  # noqa: ANN401
    return client.post(f"/v1/items/{name}", json={"ids": list(ids), **more})


def test_a_confirmed_label_is_no_suspect_until_it_or_its_vector_changes(path: Path) -> None:
    with serving(path) as client:
        before = listed(client)
        assert "p000" in before
        assert change(client, "confirm", "p000", label="crane").json() == {"changed": 1}
        assert listed(client) == before - {"p000"}
        assert document_at(client, "/v1/audit")["n_confirmed"] == 1
        assert "p000" not in {
            one["id"] for one in document_at(client, "/v1/report")["audit"]["suspects"]
        }
        refitted(client)
        assert "p000" not in listed(client)
    # It survives a restart.
    with serving(path) as client:
        assert "p000" not in listed(client)
        change(client, "relabel", "p000", label="stork")
        assert "p000" in listed(client)
        change(client, "relabel", "p000", label="crane")
        assert "p000" not in listed(client)
        change(client, "unconfirm", "p000")
        assert "p000" in listed(client)
        change(client, "confirm", "p000", label="crane")
        # Another vector under the same id and label.
        vector = client.get("/v1/items/p001?vector=true").json()["vector"]
        change(client, "remove", "p000")
        item = {"id": "p000", "label": "crane", "vector": vector}
        client.post("/v1/items", json={"items": [item]})
        assert "p000" in listed(client)


def test_what_cannot_be_confirmed(path: Path) -> None:
    with serving(path) as client:
        problem = refused(change(client, "confirm", "p000", label="heron"), 409)
        assert problem["error"] == "other_label"
        assert refused(change(client, "confirm", "p999", label="heron"), 404)
        assert refused(change(client, "unconfirm", "p999"), 404)
        assert refused(client.post("/v1/items/confirm", json={"ids": ["p000"]}), 422)
        # All or none.
        refused(change(client, "confirm", "p000", "p001", label="crane"), 409)
        assert "p000" in listed(client)


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_a_removal_is_undone(tmp_path: Path, metric: Any) -> None:  # noqa: ANN401
    path = sqlite_gallery(tmp_path / "birds.sqlite", metric=metric)
    with SqliteEngine(path) as engine:
        engine.put_pictures({"p007": PICTURE})
    with serving(path) as client:
        before = client.get("/v1/items/p007?vector=true").json()
        change(client, "confirm", "p007", label=before["label"])
        assert change(client, "remove", "p007", "p008").json() == {"changed": 2}
        assert refused(client.get("/v1/items/p007"), 404)
        assert change(client, "restore", "p007", "p008").json() == {"changed": 2}
        after = client.get("/v1/items/p007?vector=true").json()
        assert after == before
        gallery = client.app.state.service.gallery  # type: ignore[attr-defined]
        assert gallery.confirmed(np.array(["p007", "p008"])).tolist() == [True, False]
        assert client.get("/v1/items/p007/picture").content == PICTURE
        assert refused(client.get("/v1/items/p008/picture"), 404)["error"] == "no_picture"
        for name in ("p007", "p999"):
            problem = refused(change(client, "restore", name), 404)
            assert problem["error"] == "not_removed"
        change(client, "remove", "p007")
        client.post("/v1/items", json={"items": [{**before, "label": "stork"}]})
        assert refused(change(client, "restore", "p007"), 409)["error"] == "item_exists"
        assert client.get("/v1/items/p007").json()["label"] == "stork"


@pytest.mark.parametrize("look", ["pictures", "texts"])
def test_a_removal_is_undone_whole_or_not_at_all(
    path: Path, look: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with SqliteEngine(path) as engine:
        engine.put_pictures({"p007": PICTURE})
        engine.put_texts({"p007": "a bird"})
    with serving(path) as client:
        change(client, "remove", "p007", "p008")
        with monkeypatch.context() as broken:
            broken.setattr(SqliteEngine, f"put_{look}", fail)
            assert refused(change(client, "restore", "p007", "p008"), 503)
            assert refused(client.get("/v1/items/p007"), 404)
            assert refused(client.get("/v1/items/p008"), 404)
        assert change(client, "restore", "p007", "p008").json() == {"changed": 2}
        assert client.get("/v1/items/p007").json()["text"] == "a bird"
        assert client.get("/v1/items/p007/picture").content == PICTURE


def fail(*_: object) -> None:
    raise EngineError("The disk is full.")


def test_a_confirmed_suspect_that_is_removed_while_the_audit_runs(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(path) as client:
        change(client, "confirm", "p000", label="crane")
        gallery = client.app.state.service.gallery  # type: ignore[attr-defined]
        named = ConfirmedLabels.named
        calls: list[AnyArray] = []

        def remove_then(self: ConfirmedLabels, ids: AnyArray) -> BoolArray:
            found = named(self, ids)
            if not calls:
                calls.append(ids)
                gallery.remove(np.array(["p000"]))
            return found

        monkeypatch.setattr(ConfirmedLabels, "named", remove_then)
        audit = document_at(client, "/v1/audit")
        assert (len(calls), audit["n_points"]) == (1, 119)
        assert "p000" not in {one["id"] for one in audit["suspects"]}


def test_only_the_last_removals_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nearsure.service.reviews.MOST_REMOVED", 2)
    with SqliteEngine(sqlite_gallery(tmp_path / "birds.sqlite", n_each=2)) as engine:
        removed = RemovedItems(engine)
        for name in ("p000", "p001", "p002"):
            ids = np.array([name])
            found = engine.fetch(ids)
            removed.keep(removed.read(ids, np.asarray(found.labels), np.asarray(found.vectors)))
        assert removed.missing(np.array(["p000", "p001", "p002"])) == ["p000"]
        # What one request removes can be put back as a whole.
        ids = np.array(["p000", "p001", "p003"])
        found = engine.fetch(ids)
        removed.keep(removed.read(ids, np.asarray(found.labels), np.asarray(found.vectors)))
        assert removed.missing(ids) == []


@pytest.mark.parametrize("broken", [b"{", b"[]", b'{"p000": 1}', b"[" * 10_000])
def test_confirmations_that_cannot_be_read_are_given_up(broken: bytes) -> None:
    notes = {CONFIRMED: broken}
    confirmed = ConfirmedLabels(notes)
    assert len(confirmed) == 0
    ids, labels, vectors = np.array([3, 4]), np.array(["a", "b"]), np.eye(2)
    confirmed.add(ids, labels, vectors)
    again = ConfirmedLabels(notes)
    assert again.match(ids, labels, vectors).tolist() == [True, True]
    assert again.match(ids, labels[::-1], vectors).tolist() == [False, False]
    assert again.match(ids, labels, 2 * vectors).tolist() == [False, False]
    assert again.named(np.array([4, 5])).tolist() == [True, False]


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_places_are_those_of_the_map(tmp_path: Path, metric: Any) -> None:  # noqa: ANN401
    with serving(sqlite_gallery(tmp_path / "birds.sqlite", metric=metric)) as client:
        vectors = clusters()[0].astype(np.float64)
        if metric == "cosine":
            vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        plane = fit_plane(vectors)
        asked = [{"item": "p003"}, {"vector": (3.0 * vectors[5]).tolist()}]

        def places() -> Any:  # noqa: ANN401
            answer = client.post("/v1/map/places", json={"points": asked}).json()["places"]
            return [(one["x"], one["y"]) for one in answer]

        first = places()
        expected = plane.places([vectors[3], (1 if metric == "cosine" else 3) * vectors[5]])
        np.testing.assert_allclose(first, expected, atol=1e-5)
        drawn = document_at(client, "/v1/report")["map"]
        at = drawn["ids"].index("p003")
        assert (drawn["x"][at], drawn["y"][at]) == pytest.approx(first[0], abs=1e-4)
        # Points stay where they are as long as the fit does.
        item = {"label": "heron", "vector": [50.0] * DIMENSION}
        client.post("/v1/items", json={"items": [item]})
        assert places() == first
        assert refused(client.post("/v1/map/places", json={"points": []}), 422)
        assert refused(client.post("/v1/map/places", json={"points": [{"item": "p999"}]}), 404)
        assert refused(client.post("/v1/map/places", json={"points": [{"text": "owl"}]}), 501)
        assert refused(client.post("/v1/map/places", json={"points": [{}]}), 422)
