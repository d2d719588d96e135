"""Reports, the page, the OpenAPI document, and answers that are no success."""

from collections.abc import Iterator
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from served_examples import DIMENSION, document_at, serving, sqlite_gallery
from starlette.testclient import TestClient

from nearsure.service.batching import WorkThreads
from nearsure.service.documents import LiveDocument
from nearsure.service.gallery import ServedGallery
from nearsure.service.page import PAGE, page_files

READ, WRITE = "r" * 20, "w" * 20


@pytest.fixture(scope="module")
def unchanged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    path = tmp_path_factory.mktemp("gallery") / "birds.sqlite"
    with serving(sqlite_gallery(path, n_each=5)) as client:
        yield client


@pytest.fixture
def client(tmp_path: Path) -> Iterator[TestClient]:
    with serving(sqlite_gallery(tmp_path / "birds.sqlite", n_each=15)) as client:
        yield client


def test_the_report_follows_the_gallery(client: TestClient) -> None:
    report = document_at(client, "/v1/report")
    assert report["about"]["n_gallery"] == 60
    assert report["about"]["queries"] == "leave-one-out"
    assert client.get("/v1/report").json() == report
    client.post("/v1/items/relabel", json={"ids": ["p000"], "label": "crane"})
    assert client.get("/v1/report").status_code == 202
    audit = document_at(client, "/v1/audit")
    assert audit["n_points"] == 60
    assert "p000" in [one["id"] for one in audit["suspects"]]
    suspect = next(one for one in audit["suspects"] if one["id"] == "p000")
    assert (suspect["label"], suspect["suggested"]) == ("crane", "heron")
    client.delete("/v1/items/p000")
    assert document_at(client, "/v1/audit")["n_points"] == 59


def test_a_report_that_was_overtaken_is_shown_for_a_while(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    service: Any = client.app
    gallery: ServedGallery = service.state.service.gallery
    made: list[int] = []

    def make(_: object) -> bytes:
        made.append(1)
        if len(made) == 1:
            gallery.remove(gallery.engine.fetch(["p001"]).ids)  # type: ignore[arg-type]
        return b"%d" % len(made)

    live = LiveDocument(gallery, make, WorkThreads(1, "test"))
    assert live.now() is None
    live.wait(10)
    assert live.now() == b"1"
    later = monotonic() + 100
    monkeypatch.setattr("nearsure.service.documents.monotonic", lambda: later)
    assert live.now() is None
    live.wait(10)
    assert live.now() == b"2"


def test_a_report_that_fails_is_no_failure_of_the_service(client: TestClient) -> None:
    service: Any = client.app

    def make(_: object) -> bytes:
        raise RuntimeError("password=hunter2")

    service.state.service.report = LiveDocument(
        service.state.service.gallery, make, WorkThreads(1, "test")
    )
    assert client.get("/v1/report").status_code == 202
    service.state.service.report.wait(10)
    answer = client.get("/v1/report")
    assert (answer.status_code, answer.json()["error"]) == (409, "no_document")
    assert "hunter2" not in answer.text


def test_the_page_and_all_that_it_loads(unchanged: TestClient) -> None:
    page = unchanged.get("/")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert "script-src 'self'" in page.headers["content-security-policy"]
    for name in page_files().keys() - {PAGE}:
        file = unchanged.get(f"/assets/{name}")
        assert file.status_code == 200
        kind = "text/css" if name.endswith(".css") else "text/javascript"
        assert file.headers["content-type"] == f"{kind}; charset=utf-8"
        again = unchanged.get(f"/assets/{name}", headers={"if-none-match": file.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
    other = unchanged.get("/assets/page.js", headers={"if-none-match": '"other"'})
    assert other.status_code == 200


@pytest.mark.parametrize(
    "name",
    ["", PAGE, "template.html", "..%2Fapp.py", "%2e%2e/%2e%2e/app.py", "page.js/", "/etc/passwd"],
)
def test_nothing_else_is_served(unchanged: TestClient, name: str) -> None:
    answer = unchanged.get(f"/assets/{name}")
    assert (answer.status_code, answer.json()["error"]) == (404, "not_found")


def test_what_is_not_there_and_what_is_not_taken(unchanged: TestClient) -> None:
    missing = unchanged.get("/v2/predict")
    assert (missing.status_code, missing.json()["error"]) == (404, "not_found")
    for method, address in (("GET", "/v1/predict"), ("DELETE", "/v1/model"), ("POST", "/healthz")):
        answer = unchanged.request(method, address)
        assert (answer.status_code, answer.json()["error"]) == (405, "method_not_allowed")
        assert "allow" in answer.headers
    assert unchanged.get("/docs").status_code == 404


def test_what_nobody_foresaw_is_said_without_details(
    unchanged: TestClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def breaks(*_: object) -> None:
        raise RuntimeError("password=hunter2")

    monkeypatch.setattr(ServedGallery, "predict", breaks)
    monkeypatch.setattr(ServedGallery, "stored", breaks)
    for answer in (
        unchanged.post("/v1/predict", json={"vector": [0.0] * DIMENSION}),
        unchanged.get("/v1/items/p001"),
    ):
        assert (answer.status_code, answer.json()["error"]) == (500, "internal_error")
        assert "hunter2" not in answer.text
        assert answer.headers["x-content-type-options"] == "nosniff"
    assert sum("A request failed" in record.message for record in caplog.records) == 2


def test_a_body_that_is_too_large_is_refused(tmp_path: Path) -> None:
    path = sqlite_gallery(tmp_path / "birds.sqlite", n_each=3)
    with serving(path, largest_body=1000) as client:
        answer = client.post("/v1/predict", json={"vector": [0.123456789] * 200})
        assert (answer.status_code, answer.json()["error"]) == (413, "body_too_large")


def test_tokens_decide_who_may_do_what(tmp_path: Path) -> None:
    path = sqlite_gallery(tmp_path / "birds.sqlite", n_each=3)
    reads = [
        ("POST", "/v1/predict", {"item": "p001"}),
        ("POST", "/v1/predict/batch", {"vectors": [[0.0] * DIMENSION]}),
        ("POST", "/v1/neighbors", {"item": "p001"}),
        ("GET", "/v1/items", None),
        ("GET", "/v1/items/p001", None),
        ("GET", "/v1/model", None),
        ("GET", "/v1/refit", None),
        ("GET", "/v1/threshold", None),
        ("GET", "/v1/threshold/for?precision=0.5", None),
        ("GET", "/v1/report", None),
        ("GET", "/v1/audit", None),
        ("POST", "/v1/map/places", {"points": [{"item": "p001"}]}),
        ("GET", "/metrics", None),
        ("GET", "/openapi.json", None),
    ]
    writes = [
        ("POST", "/v1/items", {"items": [{"label": "x", "vector": [0.0] * DIMENSION}]}),
        ("PATCH", "/v1/items/p001", {"label": "x"}),
        ("POST", "/v1/items/relabel", {"ids": ["p001"], "label": "x"}),
        ("DELETE", "/v1/items/p001", None),
        ("POST", "/v1/items/remove", {"ids": ["p002"]}),
        ("POST", "/v1/items/restore", {"ids": ["p002"]}),
        ("POST", "/v1/items/confirm", {"ids": ["p003"], "label": "egret"}),
        ("POST", "/v1/items/unconfirm", {"ids": ["p003"]}),
        ("PUT", "/v1/threshold", {"threshold": 0.5}),
        ("POST", "/v1/refit", None),
    ]
    with serving(path, read_tokens=(READ,), write_tokens=(WRITE,)) as client:
        for address in ("/", "/healthz", "/readyz", "/assets/page.js"):
            assert client.get(address).status_code == 200
        for method, address, body in reads + writes:
            answer = client.request(method, address, json=body)
            assert (answer.status_code, answer.json()["error"]) == (401, "unauthorized"), address
        client.headers["authorization"] = f"Bearer {READ}"
        for method, address, body in reads:
            assert client.request(method, address, json=body).status_code in (200, 202), address
        for method, address, body in writes:
            answer = client.request(method, address, json=body)
            assert (answer.status_code, answer.json()["error"]) == (403, "forbidden"), address
        assert client.get("/v1/model").json()["writable"] is False
        client.headers["authorization"] = f"Bearer {WRITE}"
        assert client.get("/v1/model").json()["writable"] is True
        for method, address, body in writes:
            assert client.request(method, address, json=body).status_code < 300, address


def test_the_openapi_document_names_every_address(unchanged: TestClient) -> None:
    document = unchanged.get("/openapi.json").json()
    addresses = {
        f"{method.upper()} {path}" for path, ways in document["paths"].items() for method in ways
    }
    assert addresses == {
        "GET /healthz",
        "GET /readyz",
        "GET /metrics",
        "GET /v1/model",
        "POST /v1/predict",
        "POST /v1/predict/batch",
        "POST /v1/predict/image",
        "POST /v1/neighbors",
        "POST /v1/compare",
        "POST /v1/map/places",
        "GET /v1/items",
        "POST /v1/items",
        "GET /v1/items/{item_id}",
        "PATCH /v1/items/{item_id}",
        "DELETE /v1/items/{item_id}",
        "POST /v1/items/relabel",
        "POST /v1/items/remove",
        "POST /v1/items/restore",
        "POST /v1/items/confirm",
        "POST /v1/items/unconfirm",
        "GET /v1/items/{item_id}/picture",
        "POST /v1/refit",
        "GET /v1/refit",
        "GET /v1/threshold",
        "GET /v1/threshold/for",
        "PUT /v1/threshold",
        "GET /v1/promise",
        "GET /v1/labels",
        "POST /v1/labels",
        "DELETE /v1/labels",
        "GET /v1/labels/queries",
        "GET /v1/report",
        "GET /v1/audit",
    }
    for path, ways in document["paths"].items():
        for route in ways.values():
            assert "summary" in route
            assert "503" in route["responses"] or path == "/healthz"
            for problem in (own for own in route["responses"] if own >= "400"):
                schema = route["responses"][problem]["content"]["application/json"]["schema"]
                assert schema["$ref"].endswith(("/Problem", "/Status"))


def test_the_examples_of_bodies_are_what_they_describe(unchanged: TestClient) -> None:
    from nearsure.service import schemas  # noqa: PLC0415

    document = unchanged.get("/openapi.json").json()
    n_checked = 0
    for ways in document["paths"].values():
        for route in ways.values():
            body = route.get("requestBody", {}).get("content", {}).get("application/json")
            if body is None:
                continue
            name = body["schema"]["$ref"].rpartition("/")[2]
            assert name in document["components"]["schemas"]
            getattr(schemas, name).model_validate(body["example"])
            n_checked += 1
    assert n_checked == 14


def test_references_of_the_openapi_document_lead_somewhere(unchanged: TestClient) -> None:
    document = unchanged.get("/openapi.json").json()
    known = set(document["components"]["schemas"])

    def references(part: object) -> Iterator[str]:
        if isinstance(part, dict):
            for key, value in part.items():
                if key == "$ref":
                    yield value
                else:
                    yield from references(value)
        elif isinstance(part, list):
            for value in part:
                yield from references(value)

    found = {reference.removeprefix("#/components/schemas/") for reference in references(document)}
    assert found <= known
    assert {"Query", "Answer", "Problem", "NewItem"} <= found
