"""Items with odd ids and labels, integers beyond 2^53, and writers at the same time."""

import json
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
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

from nearsure.engines.embedded import FaissEngine
from nearsure.engines.sqlite import SqliteEngine
from nearsure.service import ServiceSettings, create_app
from nearsure.service.items import free_integers

ZERO, FAR = [0.0] * DIMENSION, [40.0] * DIMENSION
ODD_IDS = [
    "a/b",
    "/a//b/",
    "a b",
    "  ",
    "100%",
    "%41",
    "a?b=c",
    "a#b",
    "a\\b",
    "é☃𝄞",
    "../../etc/passwd",
    "'; DROP TABLE points; --",
    "<script>alert(1)</script>",
    "relabel",
    "remove",
    "picture",
    "a/picture",
]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """Each test leaves its gallery as it was."""
    path = tmp_path_factory.mktemp("gallery") / "birds.sqlite"
    with serving(sqlite_gallery(path, n_each=8)) as client:
        yield client


@pytest.fixture
def changing(tmp_path: Path) -> Iterator[TestClient]:
    with serving(sqlite_gallery(tmp_path / "birds.sqlite", n_each=8)) as client:
        yield client


@pytest.mark.parametrize("own", ODD_IDS)
def test_an_id_may_be_any_printable_text(client: TestClient, own: str) -> None:
    items = [{"id": own, "label": own, "vector": FAR}]
    assert client.post("/v1/items", json={"items": items}).json() == {"ids": [own]}
    refused(client.post("/v1/items", json={"items": items}), 409)
    # This client decodes an address twice.
    address = f"/v1/items/{quote(quote(own, safe='') if '%' in own else own, safe='')}"
    expected = {"id": own, "label": own, "vector": None, "text": None}
    assert client.get(address).json() == expected
    assert client.get(f"{address}?vector=true").json() == {**expected, "vector": FAR}
    assert refused(client.get(f"{address}/picture"), 404)["error"] == "no_picture"
    assert client.get("/v1/items", params={"label": own}).json()["items"] == [expected]
    assert client.post("/v1/predict", json={"item": own}).status_code == 200
    assert client.patch(address, json={"label": "egret"}).json() == {"changed": 1}
    assert client.delete(address).json() == {"changed": 1}
    assert refused(client.post("/v1/predict", json={"item": own}), 404)
    assert client.get("/v1/items").json()["total"] == 32


@pytest.mark.parametrize("own", [".", ".."])
def test_dots_that_addresses_cannot_hold_are_reached_in_bodies(
    client: TestClient, own: str
) -> None:
    items = [{"id": own, "label": "ibis", "vector": FAR}]
    assert client.post("/v1/items", json={"items": items}).status_code == 201
    assert client.post("/v1/predict", json={"item": own}).status_code == 200
    assert client.post("/v1/items/relabel", json={"ids": [own], "label": "x"}).is_success
    # A client makes /v1/items/ or /v1/ of it, which are nothing.
    refused(client.delete(f"/v1/items/{own}"), 404, 405, 422)
    assert client.post("/v1/items/remove", json={"ids": [own]}).json() == {"changed": 1}


def test_what_is_not_there_cannot_be_changed(client: TestClient) -> None:
    for answer in (
        client.get("/v1/items/nobody"),
        client.get("/v1/items/nobody/picture"),
        client.patch("/v1/items/nobody", json={"label": "ibis"}),
        client.delete("/v1/items/nobody"),
        client.post("/v1/items/relabel", json={"ids": ["p001", "nobody"], "label": "ibis"}),
        client.post("/v1/items/remove", json={"ids": ["p001", "nobody"]}),
        client.post("/v1/predict", json={"item": "nobody"}),
    ):
        assert refused(answer, 404)["error"] == "no_such_item"
    twice = {"ids": ["p001", "p001"]}
    refused(client.post("/v1/items/remove", json=twice), 422)
    refused(client.post("/v1/items/relabel", json={**twice, "label": "ibis"}), 422)
    item = {"id": "new", "label": "ibis", "vector": FAR}
    refused(client.post("/v1/items", json={"items": [item, item]}), 422)
    problem = refused(client.post("/v1/items", json={"items": [item, {**item, "id": "p001"}]}), 409)
    assert problem["error"] == "item_exists"


def test_a_class_may_lose_its_last_item_and_the_gallery_may_not(changing: TestClient) -> None:
    herons = [f"p{i:03}" for i in range(8)]
    others = [f"p{i:03}" for i in range(8, 32)]
    assert changing.post("/v1/items/relabel", json={"ids": herons, "label": "egret"}).is_success
    answer = changing.post("/v1/predict", json={"vector": ZERO, "classes": 100}).json()
    assert "heron" not in [one["label"] for one in answer["classes"] if one["probability"]]
    assert changing.post("/v1/items/remove", json={"ids": others}).json() == {"changed": 24}
    problem = refused(changing.post("/v1/items/remove", json={"ids": herons}), 409)
    assert problem["error"] == "last_item"
    assert changing.post("/v1/items/remove", json={"ids": herons[1:]}).is_success
    refused(changing.delete("/v1/items/p000"), 409)
    refused(changing.post("/v1/refit"), 409)
    refused(changing.get("/v1/threshold/for?precision=0.9"), 409)
    refused(changing.put("/v1/threshold", json={"precision": 0.9}), 409)
    refused(changing.post("/v1/predict", json={"item": "p000"}), 422)
    assert changing.post("/v1/predict", json={"vector": ZERO}).json()["label"] == "egret"
    items = [{"label": "ibis", "vector": FAR}] * 3
    assert changing.post("/v1/items", json={"items": items}).status_code == 201
    assert changing.post("/v1/predict", json={"vector": FAR}).json()["label"] == "ibis"


def added(client: TestClient, *ids: int | None) -> list[int]:
    """The ids of new items, some of which are given theirs."""
    items = [
        {"label": "1", "vector": FAR, **({} if own is None else {"id": str(own)})} for own in ids
    ]
    answer = client.post("/v1/items", json={"items": items})
    assert answer.status_code == 201, answer.text
    return [int(own) for own in answer.json()["ids"]]


def test_the_largest_integer_leaves_other_ids_to_be_made(tmp_path: Path) -> None:
    vectors, codes = clusters(8)
    last, path = 2**63 - 1, tmp_path / "numbers.sqlite"
    with SqliteEngine.create(path, DIMENSION, ids="integer", labels="integer") as engine:
        engine.add(vectors, np.arange(32), codes)
    with serving(path) as client:
        assert added(client, None, last, None) == [32, last, 33]
        assert added(client, None) == [34]
        assert added(client, 36, None, None) == [36, 37, 38]
        assert added(client, -1, None) == [-1, 39]
        refused(client.post("/v1/items", json={"items": [{"id": str(last + 1)}]}), 422)
        assert refitted(client)["state"] == "idle"
    with serving(path) as client:
        assert added(client, None) == [40]
        # Without what lies beyond, there is still a gap in between.
        assert added(client, *range(last - 9, last - 1)) == [*range(last - 9, last - 1)]
        assert added(client, None, None) == [41, 42]
    with serving(path) as client:
        assert added(client, None, None) == [43, 44]


def test_ids_that_somebody_else_has_taken_are_not_tried_for_ever() -> None:
    vectors, codes = clusters(8)
    engine = FaissEngine.from_points(vectors, labels=codes)
    with serving(engine=engine) as client:
        assert added(client, None) == [32]
        engine.add(vectors[:1], np.array([33]), codes[:1])
        nameless = {"items": [{"label": "1", "vector": FAR}]}
        assert refused(client.post("/v1/items", json=nameless), 409)["error"] == "item_exists"
        assert added(client, None) == [34]


@given(ids=st.sets(st.integers(-3, 12)), n_wanted=st.integers(0, 12), cut=st.integers(0, 5))
def test_free_integers_are_in_a_row_and_free(ids: set[int], n_wanted: int, cut: int) -> None:
    everything = np.array(sorted(ids), np.int64)
    found = free_integers([everything[:cut], everything[cut:]], n_wanted, range(10))
    assert not ids & set(found)
    runs = "".join(" x"[number not in ids] for number in range(10)).split(" ")
    beyond, widest = len(runs[-1]), max(map(len, runs))
    assert len(found) == (beyond if beyond >= n_wanted else widest)
    assert set(found) <= set(range(10))


def take_away(client: TestClient, monkeypatch: pytest.MonkeyPatch, own: str) -> None:
    """Have an item removed behind the back of whoever has just seen that it is there."""
    gallery = client.app.state.service.gallery  # type: ignore[attr-defined]
    fetch = gallery.engine.fetch

    def fetch_and_remove(ids: Any) -> Any:  # noqa: ANN401
        found = fetch(ids)
        monkeypatch.undo()
        gallery.engine.remove(np.array([own]))
        return found

    monkeypatch.setattr(gallery.engine, "fetch", fetch_and_remove)


@pytest.mark.parametrize(
    ("method", "address", "body"),
    [
        ("POST", "/v1/predict", {"item": "p003"}),
        ("POST", "/v1/neighbors", {"item": "p003"}),
        ("PATCH", "/v1/items/p003", {"label": "egret"}),
        ("DELETE", "/v1/items/p003", None),
        ("POST", "/v1/items/relabel", {"ids": ["p002", "p003"], "label": "egret"}),
        ("POST", "/v1/items/remove", {"ids": ["p002", "p003"]}),
        ("GET", "/v1/items/p003/picture", None),
    ],
)
def test_an_item_that_is_removed_meanwhile_is_not_there(
    changing: TestClient,
    monkeypatch: pytest.MonkeyPatch,
    method: str,
    address: str,
    body: dict[str, Any] | None,
) -> None:
    take_away(changing, monkeypatch, "p003")
    problem = refused(changing.request(method, address, json=body), 404)
    if not address.endswith("picture"):
        assert "p003" in problem["message"]
    assert changing.get("/v1/items/p002").status_code == 200
    assert changing.get("/v1/items").json()["total"] == 31


def write_some(client: TestClient, number: int, made: list[str], failures: list[str]) -> None:
    """Add three items, remove the first and relabel the second, six times."""
    for round_ in range(6):
        new: list[dict[str, Any]] = [{"label": f"w{number}", "vector": FAR}] * 3
        ids = client.post("/v1/items", json={"items": new}).json()["ids"]
        gone = client.delete(f"/v1/items/{ids[0]}")
        other = client.patch(f"/v1/items/{ids[1]}", json={"label": f"r{round_}"})
        failures.extend(answer.text for answer in (gone, other) if not answer.is_success)
        made.extend(ids)


def ask_until(done: Event, client: TestClient, failures: list[str]) -> None:
    while not done.is_set():
        for query in ({"vector": FAR}, {"item": "p001"}):
            answer = client.post("/v1/predict", json=query)
            if answer.status_code != 200 or not 0 <= answer.json()["confidence"] <= 1:
                failures.append(answer.text)


def test_many_writers_at_once_lose_nothing(changing: TestClient) -> None:
    made: list[str] = []
    failures: list[str] = []
    done = Event()
    askers = [Thread(target=ask_until, args=(done, changing, failures)) for _ in range(2)]
    writers = [Thread(target=write_some, args=(changing, i, made, failures)) for i in range(6)]
    for thread in (*askers, *writers):
        thread.start()
    for thread in writers:
        thread.join()
    done.set()
    for thread in askers:
        thread.join()
    assert failures == []
    assert len(set(made)) == len(made) == 6 * 6 * 3
    model = changing.get("/v1/model").json()
    assert model["size"] == changing.get("/v1/items").json()["total"] == 32 + 6 * 6 * 2
    assert model["n_classes"] == 4 + 6 + 6
    for label in [f"{kind}{number}" for kind in "wr" for number in range(6)]:
        assert changing.get("/v1/items", params={"label": label}).json()["total"] == 6


def test_one_item_is_removed_and_added_by_one_only(changing: TestClient) -> None:
    statuses: list[int] = []

    def send(method: str) -> None:
        item = {"id": "only", "label": "ibis", "vector": FAR}
        if method == "POST":
            answer = changing.post("/v1/items", json={"items": [item]})
        else:
            answer = changing.delete("/v1/items/p001")
        statuses.append(answer.status_code)

    threads = [Thread(target=send, args=(kind,)) for kind in ("POST", "DELETE") for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(statuses) == [200, 201] + [404] * 5 + [409] * 5
    assert changing.get("/v1/items").json()["total"] == 32


FAR_AWAY = [40.0] * DIMENSION
# The last integer that every JavaScript knows from its neighbours.
LAST = 2**53 - 1
# A browser reads each of these as the same number as another.
FIRST_ID = LAST + 1
LABELS = np.array([-LAST - 2, -LAST - 1, LAST + 1, LAST + 2])
N_ITEMS = 32


def integers_in(found: Any) -> Iterator[int]:  # noqa: ANN401 - whatever JSON holds
    if isinstance(found, dict | list):
        for part in found.values() if isinstance(found, dict) else found:
            yield from integers_in(part)
    elif isinstance(found, int):
        yield found


def told(answer: Any) -> Any:  # noqa: ANN401
    """An answer, once no integer in it is too large."""
    assert answer.is_success, answer.text
    document = answer.json()
    assert [one for one in integers_in(document) if abs(one) > LAST] == []
    return document


@pytest.fixture
def counting(tmp_path: Path) -> Iterator[TestClient]:
    vectors, codes = clusters(N_ITEMS // 4)
    # So that the audit has something to tell: a duplicate with a doubtful label.
    vectors[1] = vectors[9]
    path = tmp_path / "numbers.sqlite"
    with SqliteEngine.create(path, DIMENSION, ids="integer", labels="integer") as engine:
        engine.add(vectors, FIRST_ID + np.arange(N_ITEMS), LABELS[codes])
    with serving(path) as counting:
        yield counting


TEXTS = [str(FIRST_ID + i) for i in range(N_ITEMS)]
LABEL_TEXTS = {str(label) for label in LABELS.tolist()}


def check_answer(answer: dict[str, Any]) -> None:
    assert answer["label"] in LABEL_TEXTS
    assert {one["label"] for one in answer["classes"]} <= LABEL_TEXTS
    check_neighbors(answer["neighbors"])


def check_neighbors(neighbors: list[dict[str, Any]]) -> None:
    assert neighbors
    assert {one["id"] for one in neighbors} <= set(TEXTS)
    assert {one["label"] for one in neighbors} <= LABEL_TEXTS


def test_answers_to_queries(counting: TestClient) -> None:
    for query in ({"vector": FAR_AWAY}, {"item": TEXTS[3]}):
        check_answer(told(counting.post("/v1/predict", json=query)))
        check_neighbors(told(counting.post("/v1/neighbors", json=query))["neighbors"])
    body = {"vectors": [FAR_AWAY] * 2, "neighbors": 3, "classes": 4}
    for answer in told(counting.post("/v1/predict/batch", json=body))["answers"]:
        check_answer(answer)


def test_items_one_by_one_and_page_by_page(counting: TestClient) -> None:
    for text in TEXTS[:3]:
        assert told(counting.get(f"/v1/items/{text}"))["id"] == text
    seen: list[str] = []
    after: dict[str, str] = {}
    while True:
        page = told(counting.get("/v1/items", params={"limit": 5, **after}))
        seen += [item["id"] for item in page["items"]]
        assert {item["label"] for item in page["items"]} <= LABEL_TEXTS
        if page["next"] is None:
            break
        after = {"after": page["next"]}
    assert seen == TEXTS
    few = told(counting.get("/v1/items", params={"label": str(LABELS[3]), "limit": 1}))
    assert (few["total"], few["items"][0]["label"]) == (8, str(LABELS[3]))


def test_audit_and_report(counting: TestClient) -> None:
    document_at(counting, "/v1/audit")
    audit = told(counting.get("/v1/audit"))
    suspect = audit["suspects"][0]
    names = (suspect["id"], suspect["label"], suspect["suggested"])
    assert names == (TEXTS[1], str(LABELS[0]), str(LABELS[1]))
    pair = audit["duplicates"][0]
    assert {pair["first_id"], pair["second_id"]} == {TEXTS[1], TEXTS[9]}
    assert {pair["first_label"], pair["second_label"]} == {str(LABELS[0]), str(LABELS[1])}
    document_at(counting, "/v1/report")
    report = told(counting.get("/v1/report"))
    assert {one["label"] for one in report["classes"]} == LABEL_TEXTS
    assert {one["id"] for one in report["mistakes"]} <= set(TEXTS)
    assert report["mistakes"]


def test_changes_reach_the_item_that_is_named(counting: TestClient) -> None:
    new, other = str(LAST + 100), str(LAST + 101)
    items = [{"id": own, "label": str(LABELS[2]), "vector": FAR_AWAY} for own in (new, other)]
    assert told(counting.post("/v1/items", json={"items": items})) == {"ids": [new, other]}
    without_id = {"label": str(LABELS[2]), "vector": FAR_AWAY}
    assert told(counting.post("/v1/items", json={"items": [without_id]})) == {
        "ids": [str(LAST + 102)]
    }
    told(counting.patch(f"/v1/items/{new}", json={"label": str(LABELS[0])}))
    told(counting.post("/v1/items/relabel", json={"ids": [other], "label": str(LABELS[1])}))
    assert told(counting.get(f"/v1/items/{new}"))["label"] == str(LABELS[0])
    assert told(counting.get(f"/v1/items/{other}"))["label"] == str(LABELS[1])
    told(counting.delete(f"/v1/items/{new}"))
    assert told(counting.get(f"/v1/items/{other}"))["id"] == other
    told(counting.post("/v1/items/remove", json={"ids": [other]}))
    for gone in (new, other):
        assert f"no item {gone}." in refused(counting.get(f"/v1/items/{gone}"), 404)["message"]
    assert (
        TEXTS[0]
        in refused(counting.post("/v1/items", json={"items": [{**items[0], "id": TEXTS[0]}]}), 409)[
            "message"
        ]
    )


@pytest.mark.parametrize("own", [0, 7, -7, LAST, -LAST])
def test_integers_that_every_browser_counts_stay_numbers(counting: TestClient, own: int) -> None:
    item = {"id": str(own), "label": str(own), "vector": FAR_AWAY}
    assert told(counting.post("/v1/items", json={"items": [item]})) == {"ids": [own]}
    answer = told(counting.post("/v1/predict", json={"vector": FAR_AWAY, "neighbors": 1}))
    assert (answer["neighbors"][0]["id"], answer["neighbors"][0]["label"]) == (own, own)
    stored = told(counting.get(f"/v1/items/{own}"))
    assert stored == {"id": own, "label": own, "vector": None, "text": None}


@pytest.mark.parametrize("own", [2**63 - 1, -(2**63)])
def test_the_ends_of_the_integers_are_ids_and_labels(counting: TestClient, own: int) -> None:
    item = {"id": str(own), "label": str(own), "vector": FAR_AWAY}
    assert told(counting.post("/v1/items", json={"items": [item]})) == {"ids": [str(own)]}
    assert told(counting.get(f"/v1/items/{own}"))["label"] == str(own)
    assert told(counting.post("/v1/predict", json={"vector": FAR_AWAY, "neighbors": 1}))[
        "neighbors"
    ][0]["id"] == str(own)
    told(counting.delete(f"/v1/items/{own}"))


def test_the_document_says_so() -> None:
    schemas = create_app(ServiceSettings("not opened")).openapi()["components"]["schemas"]
    for kind, names in {
        "Answer": ["label"],
        "NeighborShown": ["id", "label"],
        "ClassShare": ["label"],
        "Item": ["id", "label"],
    }.items():
        for name in names:
            told_of = schemas[kind]["properties"][name]
            integer = next(one for one in told_of["anyOf"] if one["type"] == "integer")
            assert (integer["minimum"], integer["maximum"]) == (-LAST, LAST)
            assert "text" in told_of["description"]
    assert str(LAST) in json.dumps(schemas["Added"])
