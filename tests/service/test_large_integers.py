"""Integers that a browser cannot count travel as text, and are taken back as text."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from refusals import refused
from served_examples import DIMENSION, clusters, document_at, serving
from starlette.testclient import TestClient

from nearsure.engines.sqlite import SqliteEngine
from nearsure.service import ServiceSettings, create_app

FAR = [40.0] * DIMENSION
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
def client(tmp_path: Path) -> Iterator[TestClient]:
    vectors, codes = clusters(N_ITEMS // 4)
    # So that the audit has something to tell: a duplicate with a label that nobody believes.
    vectors[1] = vectors[9]
    path = tmp_path / "numbers.sqlite"
    with SqliteEngine.create(path, DIMENSION, ids="integer", labels="integer") as engine:
        engine.add(vectors, FIRST_ID + np.arange(N_ITEMS), LABELS[codes])
    with serving(path) as client:
        yield client


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


def test_answers_to_queries(client: TestClient) -> None:
    for query in ({"vector": FAR}, {"item": TEXTS[3]}):
        check_answer(told(client.post("/v1/predict", json=query)))
        check_neighbors(told(client.post("/v1/neighbors", json=query))["neighbors"])
    body = {"vectors": [FAR] * 2, "neighbors": 3, "classes": 4}
    for answer in told(client.post("/v1/predict/batch", json=body))["answers"]:
        check_answer(answer)


def test_items_one_by_one_and_page_by_page(client: TestClient) -> None:
    for text in TEXTS[:3]:
        assert told(client.get(f"/v1/items/{text}"))["id"] == text
    seen: list[str] = []
    after: dict[str, str] = {}
    while True:
        page = told(client.get("/v1/items", params={"limit": 5, **after}))
        seen += [item["id"] for item in page["items"]]
        assert {item["label"] for item in page["items"]} <= LABEL_TEXTS
        if page["next"] is None:
            break
        after = {"after": page["next"]}
    assert seen == TEXTS
    few = told(client.get("/v1/items", params={"label": str(LABELS[3]), "limit": 1}))
    assert (few["total"], few["items"][0]["label"]) == (8, str(LABELS[3]))


def test_audit_and_report(client: TestClient) -> None:
    document_at(client, "/v1/audit")
    audit = told(client.get("/v1/audit"))
    suspect = audit["suspects"][0]
    names = (suspect["id"], suspect["label"], suspect["suggested"])
    assert names == (TEXTS[1], str(LABELS[0]), str(LABELS[1]))
    pair = audit["duplicates"][0]
    assert {pair["first_id"], pair["second_id"]} == {TEXTS[1], TEXTS[9]}
    assert {pair["first_label"], pair["second_label"]} == {str(LABELS[0]), str(LABELS[1])}
    document_at(client, "/v1/report")
    report = told(client.get("/v1/report"))
    assert {one["label"] for one in report["classes"]} == LABEL_TEXTS
    assert {one["id"] for one in report["mistakes"]} <= set(TEXTS)
    assert report["mistakes"]


def test_changes_reach_the_item_that_is_named(client: TestClient) -> None:
    new, other = str(LAST + 100), str(LAST + 101)
    items = [{"id": own, "label": str(LABELS[2]), "vector": FAR} for own in (new, other)]
    assert told(client.post("/v1/items", json={"items": items})) == {"ids": [new, other]}
    without_id = {"label": str(LABELS[2]), "vector": FAR}
    assert told(client.post("/v1/items", json={"items": [without_id]})) == {
        "ids": [str(LAST + 102)]
    }
    told(client.patch(f"/v1/items/{new}", json={"label": str(LABELS[0])}))
    told(client.post("/v1/items/relabel", json={"ids": [other], "label": str(LABELS[1])}))
    assert told(client.get(f"/v1/items/{new}"))["label"] == str(LABELS[0])
    assert told(client.get(f"/v1/items/{other}"))["label"] == str(LABELS[1])
    told(client.delete(f"/v1/items/{new}"))
    assert told(client.get(f"/v1/items/{other}"))["id"] == other
    told(client.post("/v1/items/remove", json={"ids": [other]}))
    for gone in (new, other):
        assert f"no item {gone}." in refused(client.get(f"/v1/items/{gone}"), 404)["message"]
    assert (
        TEXTS[0]
        in refused(client.post("/v1/items", json={"items": [{**items[0], "id": TEXTS[0]}]}), 409)[
            "message"
        ]
    )


@pytest.mark.parametrize("own", [0, 7, -7, LAST, -LAST])
def test_integers_that_every_browser_counts_stay_numbers(client: TestClient, own: int) -> None:
    item = {"id": str(own), "label": str(own), "vector": FAR}
    assert told(client.post("/v1/items", json={"items": [item]})) == {"ids": [own]}
    answer = told(client.post("/v1/predict", json={"vector": FAR, "neighbors": 1}))
    assert (answer["neighbors"][0]["id"], answer["neighbors"][0]["label"]) == (own, own)
    assert told(client.get(f"/v1/items/{own}")) == {"id": own, "label": own, "vector": None}


@pytest.mark.parametrize("own", [2**63 - 1, -(2**63)])
def test_the_ends_of_the_integers_are_ids_and_labels(client: TestClient, own: int) -> None:
    item = {"id": str(own), "label": str(own), "vector": FAR}
    assert told(client.post("/v1/items", json={"items": [item]})) == {"ids": [str(own)]}
    assert told(client.get(f"/v1/items/{own}"))["label"] == str(own)
    assert told(client.post("/v1/predict", json={"vector": FAR, "neighbors": 1}))["neighbors"][0][
        "id"
    ] == str(own)
    told(client.delete(f"/v1/items/{own}"))


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
