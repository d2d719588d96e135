"""Whoever sends nonsense, or means harm, gets a problem that says so; others are still answered."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
import pytest
from served_examples import DIMENSION, refused, serving, sqlite_gallery
from starlette.testclient import TestClient

from nearsure.service.middleware import BodyLimit, LocalOnly

READ, WRITE = "hostile-read-token-1", "hostile-write-token-2"
ZERO, FAR = [0.0] * DIMENSION, [40.0] * DIMENSION
JSON = {"content-type": "application/json"}
BODIES = {
    "empty": b"",
    "blank": b"  \n",
    "half": b'{"vector": [1, 2',
    "two": b"{}{}",
    "quotes": b"{'vector': [1]}",
    "comma": b'{"vector": [1,]}',
    "brackets": b"[" * 100_000,
    "braces": b'{"vector":' * 100_000,
    "nested vector": b'{"vector":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "latin-1": '{"item": "é"}'.encode("latin-1"),
    "utf-16": '{"item": "p001"}'.encode("utf-16"),
    "surrogate bytes": b'{"item": "\xed\xa0\x80"}',
    "lone surrogate": b'{"item": "\\ud800"}',
    "lone surrogate as a name": b'{"\\udfff": 1}',
    "zero byte": b'{"item": "p001"}\x00',
    "long integer": b'{"vector": [' + b"1" * 5000 + b"]}",
    "array": b"[]",
    "text": b'"vector"',
    "null": b"null",
    "number": b"1e400",
}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """Nothing here changes its gallery."""
    path = tmp_path_factory.mktemp("gallery") / "birds.sqlite"
    with serving(sqlite_gallery(path, n_each=8)) as client:
        yield client
        # After all of it.
        assert client.get("/v1/items").json()["total"] == 32
        assert client.post("/v1/predict", json={"vector": ZERO}).status_code == 200


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """A service with tokens."""
    path = tmp_path_factory.mktemp("gallery") / "birds.sqlite"
    gallery = sqlite_gallery(path, n_each=2)
    with serving(gallery, read_tokens=(READ,), write_tokens=(WRITE,)) as client:
        yield client


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES.keys())
def test_what_is_no_json_of_ours_is_refused(client: TestClient, body: bytes) -> None:
    for method, address in (
        ("POST", "/v1/predict"),
        ("POST", "/v1/neighbors"),
        ("POST", "/v1/predict/batch"),
        ("POST", "/v1/items"),
        ("POST", "/v1/items/relabel"),
        ("POST", "/v1/items/remove"),
        ("PATCH", "/v1/items/p001"),
        ("PUT", "/v1/threshold"),
    ):
        refused(client.request(method, address, content=body, headers=JSON), 400, 422)


@pytest.mark.parametrize(
    "number",
    [
        *("1e400", "-1e400", "1" + "0" * 400, "NaN", "Infinity", "-Infinity", "1e39", "1.1e15"),
        *('"1"', "true", "null", "[1]", "{}", "0x10", "1_0", "+1", ".5", "01"),
    ],
)
def test_what_is_no_number_is_none_in_a_vector(client: TestClient, number: str) -> None:
    vector = f"[{', '.join([number] + ['0'] * (DIMENSION - 1))}]"
    for address, body in (
        ("/v1/predict", f'{{"vector": {vector}}}'),
        ("/v1/predict/batch", f'{{"vectors": [{ZERO}, {vector}]}}'),
        ("/v1/items", f'{{"items": [{{"label": "ibis", "vector": {vector}}}]}}'),
    ):
        refused(client.post(address, content=body, headers=JSON), 400, 422)


@pytest.mark.parametrize("count", ["-1", "1001", "1" + "0" * 400, "1e400", "1.5", '"3"', "true"])
def test_what_is_no_count_is_refused(client: TestClient, count: str) -> None:
    for name in ("neighbors", "classes"):
        body = f'{{"vector": {ZERO}, "{name}": {count}}}'
        refused(client.post("/v1/predict", content=body, headers=JSON), 422)
    whole = client.post(
        "/v1/predict", content=f'{{"vector": {ZERO}, "classes": 2.0}}', headers=JSON
    )
    assert len(whole.json()["classes"]) == 2


def test_of_two_values_of_one_name_the_last_holds(client: TestClient) -> None:
    body = f'{{"vector": [1], "vector": {ZERO}, "neighbors": 7, "neighbors": 2}}'
    answer = client.post("/v1/predict", content=body, headers=JSON)
    assert len(answer.json()["neighbors"]) == 2


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("item", "a\x00b"),
        ("item", "a\nb"),
        ("item", "x" * 1_000_000),
        ("item", ""),
        ("item", 7),
        ("text", "x" * 10_001),
        ("text", ""),
        ("x" * 1_000_000, 1),
        ("__class__", {}),
        ("vector", []),
        ("vector", [0.0] * (DIMENSION - 1)),
        ("vector", [0.0] * (DIMENSION + 1)),
        ("vector", [0.0] * 70_000),
        ("vector", {"0": 1.0}),
    ],
)
def test_a_query_of_wrong_parts_is_refused(client: TestClient, name: str, value: object) -> None:
    for address in ("/v1/predict", "/v1/neighbors"):
        refused(client.post(address, json={name: value}), 422)


@pytest.mark.parametrize("name", ["a\x00b", "\x1b[31m", "x" * 1_000_000, "", None, 1, ["a"]])
def test_what_cannot_be_a_name_is_refused(client: TestClient, name: object) -> None:
    items = [{"id": name or "", "label": "ibis", "vector": FAR}]
    refused(client.post("/v1/items", json={"items": items}), 422)
    refused(client.post("/v1/items", json={"items": [{"label": name, "vector": FAR}]}), 422)
    refused(client.patch("/v1/items/p001", json={"label": name}), 422)
    refused(client.post("/v1/items/relabel", json={"ids": [name], "label": "ibis"}), 422)
    refused(client.post("/v1/items/relabel", json={"ids": ["p001"], "label": name}), 422)
    refused(client.post("/v1/items/remove", json={"ids": [name]}), 422)


@pytest.mark.parametrize("text", ["\\ud800", "\\udc00x", "\\ud800\\ud800"])
def test_half_characters_are_refused_everywhere(tmp_path: Path, text: str) -> None:
    class LengthOfText:
        kind, dimension = "text", DIMENSION

        def encode(self, inputs: list[str]) -> Any:  # noqa: ANN401
            return np.array([[len(one.encode())] * DIMENSION for one in inputs], np.float32)

    encoder: Any = LengthOfText()
    with serving(sqlite_gallery(tmp_path / "birds.sqlite", n_each=2), encoder=encoder) as client:
        item = f'{{"id": "{text}", "label": "ibis", "vector": {FAR}}}'
        for method, address, body in (
            ("POST", "/v1/predict", f'{{"text": "{text}"}}'),
            ("POST", "/v1/items", f'{{"items": [{item}]}}'),
            ("PATCH", "/v1/items/p001", f'{{"label": "{text}"}}'),
        ):
            refused(client.request(method, address, content=body, headers=JSON), 400)


def test_other_content_and_compressed_content_are_refused(client: TestClient) -> None:
    body = json.dumps({"vector": ZERO}).encode()
    for kind in ("text/plain", "application/x-www-form-urlencoded", "application/jsonp", "é"):
        other = {b"content-type": kind.encode()}
        refused(client.post("/v1/predict", content=body, headers=other), 415)
    for coding, sent in (("gzip", gzip.compress(body)), ("br", body), ("identity, gzip", body)):
        headers = {**JSON, "content-encoding": coding}
        problem = refused(client.post("/v1/predict", content=sent, headers=headers), 415)
        assert "compressed" in problem["message"]
    plain = {**JSON, "content-encoding": "identity"}
    assert client.post("/v1/predict", content=body, headers=plain).status_code == 200


def many(beginning: str, part: str, end: str, megabytes: int = 7) -> str:
    return beginning + part * (megabytes * 2**20 // len(part)) + end


def test_millions_of_mistakes_are_not_counted_at_length(client: TestClient) -> None:
    names = ",".join(f'"{i:x}":0' for i in range(200_000))
    start = monotonic()
    for address, body in (
        ("/v1/predict/batch", many('{"vectors":[', '"",', '""]}')),
        ("/v1/predict/batch", many('{"vectors":[', "[[]],", "[]]}")),
        ("/v1/items", many('{"items":[', "0,", "0]}")),
        ("/v1/items/remove", many('{"ids":[', "0,", "0]}")),
        ("/v1/predict", many('{"vector":[', "{},", "0]}")),
        ("/v1/predict", f"{{{names}}}"),
    ):
        refused(client.post(address, content=body.encode(), headers=JSON), 422)
    # Told one by one they took minutes, and gigabytes.
    assert monotonic() - start < 20


def test_too_many_rows_and_too_many_bytes_are_refused(tmp_path: Path) -> None:
    path = sqlite_gallery(tmp_path / "birds.sqlite", n_each=8)
    with serving(path, largest_batch=3, largest_body=2000) as client:
        ids = [f"p{i:03}" for i in range(4)]
        for address, body in (
            ("/v1/predict/batch", {"vectors": [ZERO] * 4}),
            ("/v1/items", {"items": [{"label": "ibis", "vector": FAR}] * 4}),
            ("/v1/items/relabel", {"ids": ids, "label": "ibis"}),
            ("/v1/items/remove", {"ids": ids}),
        ):
            assert refused(client.post(address, json=body), 422)["error"] == "batch_too_large"
        small = b'{"item": "p001"}'
        assert client.post("/v1/predict", content=small, headers=JSON).status_code == 200
        refused(client.post("/v1/predict", content=small + b" " * 2000, headers=JSON), 413)
        chunks = (b" " * 100 for _ in range(30))
        refused(client.post("/v1/predict", content=chunks, headers=JSON), 413)
        assert client.get("/v1/items").json()["total"] == 32


def test_a_zero_vector_has_no_direction(tmp_path: Path) -> None:
    path = sqlite_gallery(tmp_path / "birds.sqlite", n_each=8, metric="cosine")
    # In single precision, the second is zero as well.
    tiny = [1e-60] * DIMENSION
    with serving(path) as client:
        for vector in (ZERO, tiny):
            refused(client.post("/v1/predict", json={"vector": vector}), 422)
            refused(client.post("/v1/predict/batch", json={"vectors": [FAR, vector]}), 422)
            items = [{"label": "ibis", "vector": vector}]
            refused(client.post("/v1/items", json={"items": items}), 422)
        assert client.get("/v1/items").json()["total"] == 32


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"Bearer",
        b"Bearer ",
        b"Basic " + WRITE.encode(),
        WRITE.encode(),
        b"Bearer " + WRITE.encode()[:-1],
        b"Bearer " + WRITE.encode() + b"x",
        b"Bearer  " + WRITE.encode(),
        b"Bearer " + WRITE.upper().encode(),
        b"Bearer " + b"x" * 100_000,
        b"Bearer \xff\xfe\x80" + b"x" * 20,
        b"Bearer " + READ.encode() + b", Bearer " + WRITE.encode(),
        b"Bearer null",
    ],
)
def test_whoever_has_no_token_learns_and_changes_nothing(closed: TestClient, value: bytes) -> None:
    stranger = {b"authorization": value}
    for method, address in (
        ("GET", "/v1/model"),
        ("GET", "/v1/items"),
        ("GET", f"/v1/items?token={WRITE}"),
        ("GET", "/metrics"),
        ("GET", "/openapi.json"),
        ("GET", "/nowhere"),
        ("HEAD", "/v1/model"),
        ("POST", "/v1/predict"),
        ("POST", "/v1/refit"),
        ("DELETE", "/v1/items/p001"),
        ("PUT", "/v1/threshold"),
        ("TRACE", "/v1/model"),
    ):
        answer = closed.request(method, address, headers=stranger)
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"] == "Bearer"
        if method != "HEAD":
            refused(answer, 401)
            assert READ not in answer.text
            assert WRITE not in answer.text
    for address in ("/healthz", "/readyz", "/", "/assets/page.js"):
        assert closed.get(address, headers=stranger).status_code == 200
    reader = {"authorization": f"Bearer {READ}"}
    refused(closed.delete("/v1/items/p001", headers=reader), 403)
    assert closed.get("/v1/items", headers=reader).json()["total"] == 8


@pytest.mark.parametrize("method", ["OPTIONS", "TRACE", "PROPFIND", "GETT"])
def test_other_methods_are_refused(client: TestClient, method: str) -> None:
    for address in ("/v1/predict", "/v1/items", "/v1/items/p001", "/v1/model", "/healthz", "/"):
        answer = client.request(method, address)
        assert answer.status_code == 405
        assert answer.headers["allow"]
        refused(answer, 405)
    assert client.head("/v1/predict").status_code == 405
    refused(client.delete("/v1/items"), 405)
    refused(client.post("/v1/model"), 405)


@pytest.mark.parametrize("guard", [LocalOnly, BodyLimit])
def test_what_breaks_in_a_guard_is_answered_as_everything_else(
    client: TestClient,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    guard: type,
) -> None:
    async def breaks(*_: object) -> None:
        raise RuntimeError("password=hunter2")

    monkeypatch.setattr(guard, "__call__", breaks)
    answer = client.get("/v1/model")
    assert refused(answer, 500)["error"] == "internal_error"
    assert "hunter2" not in answer.text
    assert "hunter2" in caplog.text
    assert answer.headers["x-content-type-options"] == "nosniff"
