"""Items are seen, added, relabelled and removed, and stay so."""

from base64 import b64encode
from collections.abc import Iterator
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from PIL import Image
from served_examples import (
    DIMENSION,
    NAMES,
    clusters,
    refitted,
    refused,
    serving,
    sqlite_gallery,
)
from starlette.testclient import TestClient

from nearsure import NEDClassifier
from nearsure.arrays import AnyArray
from nearsure.engines.contract import Capabilities, Found, Stored
from nearsure.engines.embedded import FaissEngine
from nearsure.engines.sqlite import SqliteEngine
from nearsure.errors import EngineError
from nearsure.service.items import find_page, new_ids

FAR = [40.0] * DIMENSION
PNG = b"\x89PNG\r\n\x1a\n and so on"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return sqlite_gallery(tmp_path / "birds.sqlite", n_each=8)


@pytest.fixture(scope="module")
def unchanged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """A gallery for what is only read, or refused."""
    path = tmp_path_factory.mktemp("gallery") / "birds.sqlite"
    with serving(sqlite_gallery(path, n_each=8)) as client:
        yield client


@pytest.fixture
def client(path: Path) -> Iterator[TestClient]:
    with serving(path) as client:
        yield client


@pytest.fixture(scope="module")
def counting() -> Iterator[TestClient]:
    """A gallery whose ids and labels are integers."""
    vectors, codes = clusters(8)
    with serving(engine=FaissEngine.from_points(vectors, labels=codes)) as client:
        yield client


def pages(client: TestClient, **options: str) -> list[dict[str, Any]]:
    found, after = [], None
    while True:
        query = {**options, "limit": "5"} | ({} if after is None else {"after": after})
        page = client.get("/v1/items", params=query).json()
        found.append(page)
        after = page["next"]
        if after is None:
            return found


def test_pages_show_every_item_once(unchanged: TestClient) -> None:
    found = pages(unchanged)
    items = [item for page in found for item in page["items"]]
    assert [item["id"] for item in items] == [f"p{i:03}" for i in range(32)]
    assert [item["label"] for item in items] == NAMES[clusters(8)[1]].tolist()
    assert {page["total"] for page in found} == {32}
    assert [len(page["items"]) for page in found] == [5] * 6 + [2]


def test_pages_of_one_label(unchanged: TestClient) -> None:
    found = pages(unchanged, label="stork")
    items = [item for page in found for item in page["items"]]
    assert [item["id"] for item in items] == [f"p{i:03}" for i in range(16, 24)]
    assert {page["total"] for page in found} == {8}
    assert pages(unchanged, label="nobody") == [{"items": [], "next": None, "total": 0}]


def test_an_engine_that_only_scans_has_the_same_pages(path: Path) -> None:
    class ScanningEngine:
        """What the contract demands, and no more."""

        def __init__(self, engine: SqliteEngine) -> None:
            self.capabilities, self.scan, self.size = engine.capabilities, engine.scan, engine.size

    with SqliteEngine(path) as engine:
        scanning: Any = ScanningEngine(engine)
        beside = Mock(side_effect=AssertionError)
        for after in (None, "p003", "p0035", "p031", "a", "z"):
            for label in (None, "egret", "nobody"):
                for limit in (1, 7, 8, 100):
                    asked: Any = {"after": after, "limit": limit, "label": label}
                    here = find_page(engine, beside, **asked)
                    assert find_page(scanning, beside, **asked) == here


@pytest.mark.parametrize("query", ["limit=0", "limit=1001", "limit=x", "after=", "label=%00"])
def test_a_page_that_is_none_is_refused(unchanged: TestClient, query: str) -> None:
    answer = unchanged.get(f"/v1/items?{query}")
    assert (answer.status_code, answer.json()["error"]) == (422, "invalid_request")


def test_an_item_has_its_vector_if_it_is_asked_for(unchanged: TestClient) -> None:
    assert unchanged.get("/v1/items/p009").json() == {
        "id": "p009",
        "label": "egret",
        "vector": None,
        "text": None,
    }
    item = unchanged.get("/v1/items/p009?vector=true").json()
    assert np.array_equal(np.float32(item["vector"]), clusters(8)[0][9])
    missing = unchanged.get("/v1/items/p099")
    assert (missing.status_code, missing.json()["error"]) == (404, "no_such_item")


def test_new_items_count_at_once_and_after_a_restart(path: Path) -> None:
    new = [{"id": f"new/{i} %", "label": "ibis", "vector": FAR} for i in range(3)]
    with serving(path) as client:
        added = client.post("/v1/items", json={"items": new})
        assert (added.status_code, added.json()) == (201, {"ids": [one["id"] for one in new]})
        answer = client.post("/v1/predict", json={"vector": FAR, "neighbors": 3}).json()
        assert answer["label"] == "ibis"
        assert [one["id"] for one in answer["neighbors"]] == [one["id"] for one in new]
        model = client.get("/v1/model").json()
        assert (model["size"], model["n_classes"]) == (35, 5)
        assert model["share_changed"] == pytest.approx(3 / 35)
    with serving(path) as client:
        assert client.post("/v1/predict", json={"vector": FAR}).json()["label"] == "ibis"
        assert client.get("/v1/items/new%2F1%20%25").json()["label"] == "ibis"
        model = client.get("/v1/model").json()
        assert (model["model"], model["size"], model["n_classes"]) == (1, 35, 5)
        assert model["share_changed"] == pytest.approx(3 / 35)


def test_vectors_that_are_compared_by_cosine_are_kept_as_they_are_sent(tmp_path: Path) -> None:
    path = sqlite_gallery(tmp_path / "cosine.sqlite", n_each=0, metric="cosine")
    vector = [3.0, 4.0, 0.0, 0.0, 0.0, 0.0]
    with serving(path) as client:
        for n_fits in range(2):
            assert client.get("/v1/model").json()["model"] == n_fits
            items = [
                {"id": f"{n_fits}{label}{i}", "label": label, "vector": [*vector[:5], number]}
                for i in range(3)
                for label, number in (("a", 0.0), ("b", 9.0))
            ]
            assert client.post("/v1/items", json={"items": items}).status_code == 201
            kept = client.get(f"/v1/items/{n_fits}a0?vector=true").json()["vector"]
            assert kept == vector
            assert refitted(client)["state"] == "idle"


def test_texts_are_cut_where_many_are_shown(tmp_path: Path) -> None:
    text = "".join(f"word {i}, " for i in range(100))
    with serving(sqlite_gallery(tmp_path / "texts.sqlite")) as client:
        item = {"id": "long", "label": "ibis", "vector": FAR, "text": text}
        assert client.post("/v1/items", json={"items": [item]}).status_code == 201
        assert client.get("/v1/items/long").json()["text"] == text
        (shown,) = client.get("/v1/items?label=ibis").json()["items"]
        assert shown["text"] == text[:300]
        for address in ("/v1/predict", "/v1/neighbors"):
            nearest = client.post(address, json={"vector": FAR, "neighbors": 1}).json()
            assert [one["text"] for one in nearest["neighbors"]] == [text[:300]]


@pytest.mark.parametrize("look", ["pictures", "texts"])
def test_items_whose_looks_cannot_be_kept_are_not_added(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, look: str
) -> None:
    def fail(*_: object) -> None:
        raise EngineError("The disk is full.")

    file = BytesIO()
    Image.new("RGB", (8, 8)).save(file, "PNG")
    looks = {"image": b64encode(file.getvalue()).decode(), "text": "a bird"}
    items = [{"id": f"new {i}", "label": "ibis", "vector": FAR, **looks} for i in range(2)]
    with serving(sqlite_gallery(tmp_path / "birds.sqlite")) as client:
        with monkeypatch.context() as broken:
            broken.setattr(SqliteEngine, f"put_{look}", fail)
            problem = refused(client.post("/v1/items", json={"items": items}), 503)
            assert problem["error"] == "engine_unavailable"
            assert client.get("/v1/items").json()["total"] == 120
            assert client.get("/v1/model").json()["size"] == 120
            broken.setattr(SqliteEngine, "remove", fail)
            problem = refused(client.post("/v1/items", json={"items": items}), 503)
            assert problem["error"] == "partly_added"
            assert "The 2 items were added, but not all" in problem["message"]
            assert client.get("/v1/items?label=ibis").json()["total"] == 2
        client.post("/v1/items/remove", json={"ids": ["new 0", "new 1"]})
        assert client.post("/v1/items", json={"items": items}).status_code == 201
        assert client.get("/v1/items/new%201").json()["text"] == "a bird"


def test_items_that_are_refused_leave_no_class_behind(client: TestClient) -> None:
    app: Any = client.app
    classifier = app.state.service.gallery.fit.classifier
    before = classifier.classes_.tolist()
    for i in range(3):
        items = [
            {"label": "another", "vector": FAR},
            {"id": "p003", "label": f"junk {i}", "vector": FAR},
        ]
        answer = client.post("/v1/items", json={"items": items})
        assert (answer.status_code, answer.json()["error"]) == (409, "item_exists")
        assert "'p003'" in answer.json()["message"]
    assert classifier.classes_.tolist() == before


def test_items_without_an_id_are_given_different_ones(client: TestClient) -> None:
    new = [{"label": "ibis", "vector": FAR}] * 3
    ids = client.post("/v1/items", json={"items": new}).json()["ids"]
    assert len(set(ids)) == 3
    assert [client.get(f"/v1/items/{own}").json()["label"] for own in ids] == ["ibis"] * 3


@pytest.mark.parametrize(
    ("items", "status"),
    [
        ([{"id": "new", "label": "ibis", "vector": FAR}, {"label": "x", "vector": [1.0]}], 422),
        ([{"id": "new", "label": "ibis", "vector": FAR}] * 2, 422),
        (
            [
                {"id": "new", "label": "ibis", "vector": FAR},
                {"id": "p001", "label": "ibis", "vector": FAR},
            ],
            409,
        ),
        ([{"id": "new", "label": "ibis", "vector": FAR}, {"label": "", "vector": FAR}], 422),
        ([], 422),
    ],
)
def test_of_items_of_which_one_cannot_be_added_none_is(
    unchanged: TestClient, items: list[Any], status: int
) -> None:
    answer = unchanged.post("/v1/items", json={"items": items})
    assert answer.status_code == status
    assert unchanged.get("/v1/items").json()["total"] == 32
    assert unchanged.get("/v1/items/new").status_code == 404
    assert "ibis" not in unchanged.post("/v1/predict", json={"vector": FAR}).text


def test_a_label_can_be_changed(path: Path) -> None:
    with serving(path) as client:
        changed = client.patch("/v1/items/p000", json={"label": "ibis"})
        assert changed.json() == {"changed": 1}
        several = client.post("/v1/items/relabel", json={"ids": ["p001", "p002"], "label": "egret"})
        assert several.json() == {"changed": 2}
        assert client.get("/v1/model").json()["share_changed"] == pytest.approx(3 / 32)
    with serving(path) as client:
        labels = [client.get(f"/v1/items/p00{i}").json()["label"] for i in range(4)]
        assert labels == ["ibis", "egret", "egret", "heron"]
        assert client.get("/v1/model").json()["n_classes"] == 5


def test_items_can_be_removed(path: Path) -> None:
    with serving(path) as client:
        assert client.delete("/v1/items/p000").json() == {"changed": 1}
        removed = client.post("/v1/items/remove", json={"ids": [f"p{i:03}" for i in range(1, 8)]})
        assert removed.json() == {"changed": 7}
        model = client.get("/v1/model").json()
        assert (model["size"], model["n_classes"]) == (24, 3)
        assert client.delete("/v1/items/p000").status_code == 404
    with serving(path) as client:
        assert client.get("/v1/items").json()["total"] == 24
        assert client.get("/v1/items/p007").status_code == 404


@pytest.mark.parametrize(
    ("address", "body"),
    [
        ("/v1/items/relabel", {"ids": ["p001", "nobody"], "label": "egret"}),
        ("/v1/items/remove", {"ids": ["p001", "nobody"]}),
    ],
)
def test_of_items_of_which_one_is_missing_none_is_changed(
    unchanged: TestClient, address: str, body: dict[str, Any]
) -> None:
    answer = unchanged.post(address, json=body)
    assert answer.status_code == 404
    assert "'nobody'" in answer.json()["message"]
    assert "'p001'" not in answer.json()["message"]
    assert unchanged.get("/v1/items/p001").json()["label"] == "heron"
    twice = unchanged.post(address, json={**body, "ids": ["p001", "p001"]})
    assert (twice.status_code, twice.json()["error"]) == (422, "invalid_input")


def test_one_item_stays(client: TestClient) -> None:
    every = {"ids": [f"p{i:03}" for i in range(32)]}
    answer = client.post("/v1/items/remove", json=every)
    assert (answer.status_code, answer.json()["error"]) == (409, "last_item")
    assert client.post("/v1/items/remove", json={"ids": every["ids"][1:]}).status_code == 200
    assert client.post("/v1/predict", json={"vector": FAR}).json()["label"] == "heron"
    alone = client.post("/v1/predict", json={"item": "p000"})
    assert alone.status_code == 422


def test_integers_are_text_in_addresses_and_numbers_in_answers(counting: TestClient) -> None:
    new = [{"label": "9", "vector": FAR}, {"id": "50", "label": "9", "vector": FAR}]
    assert counting.post("/v1/items", json={"items": new}).json() == {"ids": [51, 50]}
    more = {"items": [{"label": "9", "vector": FAR}]}
    assert counting.post("/v1/items", json=more).json() == {"ids": [52]}
    assert counting.get("/v1/items/50").json()["label"] == 9
    assert counting.patch("/v1/items/50", json={"label": "-3"}).json() == {"changed": 1}
    answer = counting.post("/v1/predict", json={"item": "50", "neighbors": 2}).json()
    assert answer["label"] == 9
    assert [one["id"] for one in answer["neighbors"]] == [51, 52]
    page = counting.get("/v1/items?limit=2&after=30").json()
    assert [item["id"] for item in page["items"]] == [31, 50]
    assert (page["next"], page["total"]) == ("50", 35)
    assert [item["id"] for item in counting.get("/v1/items?label=-3").json()["items"]] == [50]


@pytest.mark.parametrize(
    "name", ["x", "1.0", "\uff11", "9223372036854775808", "9" * 190, "1_0", "-"]
)
def test_what_is_no_integer_is_refused(counting: TestClient, name: str) -> None:
    answers = [
        counting.get(f"/v1/items/{name}"),
        counting.get("/v1/items", params={"after": name}),
        counting.get("/v1/items", params={"label": name}),
        counting.delete(f"/v1/items/{name}"),
        counting.patch("/v1/items/0", json={"label": name}),
        counting.post("/v1/predict", json={"item": name}),
        counting.post("/v1/items", json={"items": [{"id": name, "label": "1", "vector": FAR}]}),
        counting.post("/v1/items", json={"items": [{"label": name, "vector": FAR}]}),
    ]
    assert {answer.status_code for answer in answers} == {422}
    assert {answer.json()["error"] for answer in answers} == {"invalid_input"}


def test_made_ids_are_beyond_all_that_are_given() -> None:
    class Counting:
        capabilities = Capabilities(exact=True, holds_labels=True)

    engine: Any = Counting()
    assert new_ids([None, "12", None, "3"], engine, range(7, 20)).tolist() == [13, 12, 14, 3]
    assert new_ids([None, "3"], engine, range(7, 20)).tolist() == [7, 3]
    # Unless there is no room for them.
    assert new_ids([None, "8", None, "19"], engine, range(7, 20)).tolist() == [7, 8, 9, 19]


def test_pictures_are_shown_where_there_are_some(path: Path) -> None:
    with SqliteEngine(path) as engine:
        engine.put_pictures({"p001": PNG, "p002": b"<script>"})
    with serving(path) as client:
        picture = client.get("/v1/items/p001/picture")
        assert (picture.content, picture.headers["content-type"]) == (PNG, "image/png")
        for own in ("p000", "p002"):
            answer = client.get(f"/v1/items/{own}/picture")
            assert (answer.status_code, answer.json()["error"]) == (404, "no_picture")
        assert client.get("/v1/items/p999/picture").json()["error"] == "no_such_item"


def test_labels_that_are_kept_beside_the_engine_are_shown_but_not_changed(tmp_path: Path) -> None:
    vectors, codes = clusters(8)

    class WithoutLabels:
        """An engine that holds vectors alone."""

        def __init__(self) -> None:
            self._engine = FaissEngine.from_points(vectors, labels=codes)
            self.capabilities = Capabilities(exact=True, holds_labels=False)

        def __getattr__(self, name: str) -> Any:  # noqa: ANN401
            return getattr(self._engine, name)

        def search(self, queries: AnyArray, k: int) -> Found:
            return replace(self._engine.search(queries, k), labels=None)

        def fetch(self, ids: AnyArray) -> Stored:
            return replace(self._engine.fetch(ids), labels=None)

        def scan(self) -> Iterator[Stored]:
            return (replace(part, labels=None) for part in self._engine.scan())

    engine: Any = WithoutLabels()
    fitted = NEDClassifier(engine=engine).fit_engine(NAMES[codes], np.arange(32))
    fitted.save(tmp_path / "fit")
    with serving(engine=engine, model=tmp_path / "fit") as client:
        assert client.get("/v1/items/9").json()["label"] == "egret"
        page = client.get("/v1/items?label=stork&limit=3").json()
        assert [item["id"] for item in page["items"]] == [16, 17, 18]
        assert (page["items"][0]["label"], page["total"]) == ("stork", 8)
        assert client.post("/v1/predict", json={"item": "9"}).status_code == 200
        for answer in (
            client.delete("/v1/items/9"),
            client.patch("/v1/items/9", json={"label": "stork"}),
            client.post("/v1/items", json={"items": [{"label": "stork", "vector": FAR}]}),
        ):
            assert (answer.status_code, answer.json()["error"]) == (409, "labels_elsewhere")


def test_an_engine_without_pictures_has_none(counting: TestClient) -> None:
    assert counting.get("/v1/items/1/picture").json()["error"] == "no_picture"


@pytest.mark.parametrize("part", ["", "-wal", ".lock"])
def test_a_write_that_nobody_would_find_is_not_acknowledged(
    path: Path, part: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Its file was removed under the service."""
    with serving(path) as client:
        path.with_name(path.name + part).unlink()
        added = {"items": [{"id": "new", "label": "egret", "vector": FAR}]}
        for answer in (
            client.post("/v1/items", json=added),
            client.patch("/v1/items/p000", json={"label": "egret"}),
            client.delete("/v1/items/p000"),
        ):
            assert answer.status_code == 503, answer.text
            assert answer.json()["error"] == "engine_unavailable"
    assert f"{path.name}{part} was removed or replaced" in caplog.text
