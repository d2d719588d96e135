"""Bodies of far too many parts are refused before anything is made of them."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused
from served_examples import DIMENSION, serving, sqlite_gallery
from starlette.testclient import TestClient

from nearsure.service import schemas

JSON = {"content-type": "application/json"}
FAR = [40.0] * DIMENSION
# Every mark that is counted, as text has it.
ODD = '[{:,\\"\\\\}]'
MANY = 200_000
TOO_MANY = {
    "vectors": ("POST", "/v1/predict/batch", schemas.BatchQuery, '{"vectors":[%s]}', "[1]"),
    "empty vectors": ("POST", "/v1/predict/batch", schemas.BatchQuery, '{"vectors":[%s]}', "[]"),
    "items": (
        "POST",
        "/v1/items",
        schemas.NewItems,
        '{"items":[%s]}',
        '{"label":"a","vector":[1]}',
    ),
    "no items": ("POST", "/v1/items", schemas.NewItems, '{"items":[%s]}', "{}"),
    "relabelled": (
        *("POST", "/v1/items/relabel", schemas.Relabelling),
        *('{"label":"a","ids":[%s]}', '"a"'),
    ),
    "removed": ("POST", "/v1/items/remove", schemas.Removal, '{"ids":[%s]}', '"a"'),
    "ids in a vector": ("POST", "/v1/predict", schemas.Query, '{"vector":[%s]}', '"a"'),
    "numbers": ("POST", "/v1/predict", schemas.Query, '{"vector":[%s]}', "1"),
    "nested": ("POST", "/v1/neighbors", schemas.Query, '{"vector":[%s]}', "[{}]"),
    "keys": ("POST", "/v1/predict", schemas.Query, "{%s}", '"a":0'),
    "keys of a batch": ("POST", "/v1/items/remove", schemas.Removal, "{%s}", '"a":0'),
    "keys of a label": ("PATCH", "/v1/items/p001", schemas.NewLabel, "{%s}", '"label":"a"'),
    "keys of a threshold": ("PUT", "/v1/threshold", schemas.NewThreshold, "{%s}", '"threshold":1'),
    "never ended": ("POST", "/v1/predict/batch", schemas.BatchQuery, '{"vectors":[%s', "[1]"),
    "after text": (
        *("POST", "/v1/predict/batch", schemas.BatchQuery),
        *(f'{{"{ODD * 20_000}":0,"vectors":[%s]}}', "[1]"),
    ),
}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    path = tmp_path_factory.mktemp("gallery") / "birds.sqlite"
    with serving(sqlite_gallery(path, n_each=8)) as client:
        yield client


@pytest.mark.parametrize("name", TOO_MANY)
def test_a_body_of_too_many_parts_is_never_parsed(
    client: TestClient, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    method, address, kind, outline, part = TOO_MANY[name]
    parsed: list[bytes] = []

    def parse(body: bytes, **_: Any) -> None:  # noqa: ANN401
        parsed.append(body)

    monkeypatch.setattr(kind, "model_validate_json", parse)
    body = (outline % ",".join([part] * MANY)).encode()
    problem = refused(client.request(method, address, content=body, headers=JSON), 422)
    assert problem["error"] in ("batch_too_large", "invalid_request")
    assert parsed == []


def test_text_may_hold_what_is_counted_elsewhere(tmp_path: Path) -> None:
    """As large a batch as may be, with names of nothing else."""
    with serving(sqlite_gallery(tmp_path / "birds.sqlite", n_each=8), largest_batch=300) as client:
        label = json.loads(f'"{ODD * 20}"')
        items = [
            {"id": f"{label[:-5]}{place:05}", "label": label, "vector": FAR} for place in range(300)
        ]
        assert client.post("/v1/items", json={"items": items}).status_code == 201
        ids = [item["id"] for item in items]
        for address, body in (
            ("/v1/items/relabel", {"ids": ids, "label": label}),
            ("/v1/items/remove", {"ids": ids}),
        ):
            assert client.post(address, json=body).json() == {"changed": 300}
        assert client.post("/v1/predict/batch", json={"vectors": [FAR] * 300}).is_success
        text = {"text": json.loads(f'"{ODD * 1000}"')}
        assert refused(client.post("/v1/predict", json=text), 501)["error"] == "no_text_encoder"


def test_a_few_too_many_are_counted_for_whoever_sent_them(client: TestClient) -> None:
    """The sentence says how many came, as long as somebody may have miscounted."""
    several = client.post("/v1/predict/batch", json={"vectors": [FAR] * 1030})
    assert "Got 1030" in refused(several, 422)["message"]
    wide = client.post("/v1/predict", json={"vector": [0.0] * 4096})
    assert "Vector 0 has 4096" in refused(wide, 422)["message"]


VALUES = st.recursive(
    st.none() | st.integers() | st.text(alphabet='[{:,"\\}] aé\n'),
    lambda parts: st.lists(parts) | st.dictionaries(st.text(alphabet='[{:,"\\} é'), parts),
    max_leaves=30,
)


def marks_of(value: Any) -> dict[bytes, int]:  # noqa: ANN401
    """How often each mark stands outside of text, counted on what was parsed."""
    if isinstance(value, str):
        return counted(quotes=2)
    if not isinstance(value, list | dict):
        return counted()
    parts = [marks_of(part) for part in (value.values() if isinstance(value, dict) else value)]
    is_dict = isinstance(value, dict)
    own = counted(
        lists=not is_dict,
        objects=is_dict,
        keys=len(value) * is_dict,
        commas=max(0, len(value) - 1),
        quotes=2 * len(value) * is_dict,
    )
    return {mark: sum(one[mark] for one in (own, *parts)) for mark in own}


def counted(
    *, lists: int = 0, objects: int = 0, keys: int = 0, commas: int = 0, quotes: int = 0
) -> dict[bytes, int]:
    return {b"[": lists, b"{": objects, b":": keys, b",": commas, b'"': quotes}


@given(value=VALUES, portion=st.integers(1, 40), ascii_only=st.booleans())
def test_marks_are_counted_outside_of_text_alone(
    value: object, portion: int, *, ascii_only: bool
) -> None:
    body = json.dumps(value, ensure_ascii=ascii_only).encode()
    outside = b"".join(schemas.outside_text(body, portion))
    assert {mark: outside.count(mark) for mark in marks_of(value)} == marks_of(value)
