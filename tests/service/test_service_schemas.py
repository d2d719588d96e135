"""The OpenAPI document holds, and bodies are read strictly."""

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from copy import deepcopy
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar

import numpy as np
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from schemathesis import Case, GenerationMode
from schemathesis.config import (
    CoveragePhaseConfig,
    ExamplesPhaseConfig,
    GenerationConfig,
    PhasesConfig,
    ProjectConfig,
    ProjectsConfig,
    SchemathesisConfig,
)
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
)
from served_examples import DIMENSION, refused, serving, sqlite_gallery
from starlette.testclient import TestClient

from nearsure.engines.sqlite import SqliteEngine
from nearsure.errors import BrokenImageError
from nearsure.service import ServiceSettings, create_app, schemas

ApiCase: TypeAlias = "Case[Any]"
Test = TypeVar("Test", bound=Callable[..., None])
N_NUMBERS = 8
IDS = [f"p{i:03}" for i in range(300)]
CHANGES = ("relabel", "remove", "restore", "confirm", "unconfirm")
WRITTEN_TO = ("/v1/items", *(f"/v1/items/{one}" for one in CHANGES), "/v1/refit", "/v1/labels")
CLASSES = [f"class {i}" for i in range(5)]
# What others have asked.
PRIVATE = "/v1/labels/queries"
READ, WRITE = "a-token-to-read-with", "a-token-to-write-with"
SENT_AS = {"nobody": "", "reader": f"Bearer {READ}", "writer": f"Bearer {WRITE}"}
# There may be no encoder of the kind that is asked for, or an item may be gone.
NOT_HERE = (404, 409, 501)
KEPT: list[Any] = [
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
# By hand: NEARSURE_SCHEMA_EXAMPLES=500.
MORE = int(os.environ.get("NEARSURE_SCHEMA_EXAMPLES", "0"))


class FakeEncoder:
    """A vector out of the length of a text or an image."""

    dimension = N_NUMBERS

    def __init__(self, kind: Literal["image", "text"]) -> None:
        self.kind: Literal["image", "text"] = kind

    def encode(self, inputs: Sequence[bytes] | Sequence[str]) -> NDArray[np.float32]:
        if not all(inputs):
            raise BrokenImageError("Image 1 cannot be decoded.")
        return np.array([[len(one)] * N_NUMBERS for one in inputs], np.float32)


def gallery_in(path: Path) -> str:
    """A new file with an item for each of `IDS`."""
    rng = np.random.default_rng(0)
    with SqliteEngine.create(path, N_NUMBERS) as engine:
        labels = np.array([CLASSES[i % len(CLASSES)] for i in range(len(IDS))])
        engine.add(rng.normal(size=(len(IDS), N_NUMBERS)), np.array(IDS), labels)
    return str(path)


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, TestClient]]:
    """A service for everybody with a text encoder, and one with tokens and an image encoder."""
    folder = tmp_path_factory.mktemp("galleries")
    everybody = ServiceSettings(gallery_in(folder / "open.sqlite"))
    known = ServiceSettings(
        gallery_in(folder / "closed.sqlite"), read_tokens=(READ,), write_tokens=(WRITE,)
    )
    apps = {
        "open": create_app(everybody, encoder=FakeEncoder("text")),
        "closed": create_app(known, encoder=FakeEncoder("image")),
    }
    with ExitStack() as stack:
        yield {
            name: stack.enter_context(TestClient(app, base_url="http://localhost"))
            for name, app in apps.items()
        }


def document() -> dict[str, Any]:
    return create_app(ServiceSettings("not opened")).openapi()


def narrowed() -> dict[str, Any]:
    """The document for this gallery: vectors of its dimension, ids that it holds.

    What fits the general one is nearly always refused, and would leave the rest unasked.
    """
    made = deepcopy(document())
    vector: dict[str, Any] = {
        "type": "array",
        "items": {"type": "number", "minimum": -1e15, "maximum": 1e15},
    }
    vector |= {"minItems": N_NUMBERS, "maxItems": N_NUMBERS}
    one_id = {"type": "string", "enum": IDS}
    ids = {"type": "array", "items": one_id, "minItems": 1, "maxItems": 3, "uniqueItems": True}
    bodies = made["components"]["schemas"]
    of_query = bodies["Query"]["properties"]
    of_query |= {"vector": vector, "item": one_id, "text": {"type": "string", "minLength": 1}}
    bodies["Query"] = one_of("vector", "item", "text", like=bodies["Query"])
    bodies["Compared"]["properties"] |= {
        "vector": vector,
        "item": one_id,
        "text": {"type": "string", "minLength": 1},
        "image": {"type": "string", "enum": ["YWJj"]},
    }
    bodies["Compared"] = one_of("vector", "item", "text", "image", like=bodies["Compared"])
    bodies["NewThreshold"] = one_of("threshold", "precision", like=bodies["NewThreshold"])
    text = {"type": "string", "minLength": 1, "maxLength": 20}
    of_batch = bodies["BatchQuery"]["properties"]
    for name, part in (("vectors", vector), ("texts", text)):
        of_batch[name] = {"type": "array", "items": part, "minItems": 1, "maxItems": 40}
    del of_batch["names"], of_batch["images"]
    bodies["BatchQuery"] = one_of("vectors", "texts", like=bodies["BatchQuery"])
    bodies["NewItem"]["properties"] |= {"vector": vector, "text": text}
    del bodies["NewItem"]["properties"]["image"]
    bodies["NewItem"] = one_of("vector", "text", like=bodies["NewItem"])
    for kind in bodies["NewItem"]["oneOf"]:
        kind["required"].append("label")
    of_labelled = bodies["LabelledQuery"]["properties"]
    of_labelled |= {"vector": vector, "label": {"type": "string", "enum": CLASSES}}
    of_labelled["key"] = {"type": "integer", "minimum": 0}
    bodies["LabelledQuery"] = one_of("key", "vector", like=bodies["LabelledQuery"])
    for kind in bodies["LabelledQuery"]["oneOf"]:
        kind["required"].append("label")
    # Of several, two might have the same id.
    bodies["NewItems"]["properties"]["items"]["maxItems"] = 1
    bodies["LabelledQueries"]["properties"]["queries"]["maxItems"] = 1
    for name in ("Relabelling", "Removal"):
        bodies[name]["properties"]["ids"] = ids
    for operations in made["paths"].values():
        for operation in operations.values():
            for parameter in operation.get("parameters", ()):
                if parameter["name"] == "item_id":
                    parameter["schema"] = one_id
    return made


def one_of(*names: str, like: dict[str, Any]) -> dict[str, Any]:
    """Objects that have exactly one of these properties."""
    kinds = []
    for name in names:
        kind = deepcopy(like) | {"required": [name]}
        for other in set(names) - {name}:
            del kind["properties"][other]
        kinds.append(kind)
    return {"oneOf": kinds}


def requests_of(
    made: dict[str, Any], *, thoroughly: bool, modes: list[GenerationMode]
) -> Callable[[Test], Test]:
    """A decorator for tests of a case, which runs them for every operation of a document."""
    phases = PhasesConfig(
        examples=ExamplesPhaseConfig(enabled=True),
        coverage=CoveragePhaseConfig(enabled=thoroughly),
    )
    generation = GenerationConfig(modes=modes, deterministic=True, with_security_parameters=False)
    project = ProjectConfig(phases=phases, generation=generation)
    config = SchemathesisConfig(projects=ProjectsConfig(default=project))
    decorator: Callable[[Test], Test] = schemathesis.openapi.from_dict(
        made, config=config
    ).parametrize()
    return decorator


def examples(number: int) -> settings:
    return settings(
        max_examples=MORE or number,
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )


def sent(case: ApiCase, client: TestClient, authorization: str = "") -> Any:  # noqa: ANN401
    """The answer to a case, from whoever shows this."""
    request = case.as_transport_kwargs(base_url="http://localhost")
    # The service knows no cookies, and this client takes bytes as its content only.
    del request["cookies"]
    if "data" in request:
        request["content"] = request.pop("data")
    request["headers"].pop("authorization", None)
    if authorization:
        request["headers"]["authorization"] = authorization
    return client.request(**request)


every_operation = requests_of(document(), thoroughly=True, modes=list(GenerationMode))
every_operation_here = requests_of(narrowed(), thoroughly=False, modes=[GenerationMode.POSITIVE])


@every_operation
@examples(20)
def test_whatever_is_sent_the_document_holds(
    case: ApiCase, services: dict[str, TestClient]
) -> None:
    answer = sent(case, services["open"])
    assert answer.status_code < 500 or answer.status_code == 501
    case.validate_response(answer, checks=[*KEPT, negative_data_rejection])


@every_operation_here
@examples(10)
def test_what_fits_the_gallery_is_done(case: ApiCase, services: dict[str, TestClient]) -> None:
    answer = sent(case, services["open"])
    assert answer.is_success or answer.status_code in NOT_HERE, answer.text
    case.validate_response(answer, checks=KEPT)


@every_operation_here
@examples(5)
def test_tokens_open_what_the_document_says(case: ApiCase, services: dict[str, TestClient]) -> None:
    path, method = case.operation.path, case.operation.method.lower()
    answers = {name: sent(case, services["closed"], token) for name, token in SENT_AS.items()}
    for answer in answers.values():
        case.validate_response(answer, checks=KEPT)
    assert answers["writer"].is_success or answers["writer"].status_code in NOT_HERE
    needs_token = path not in ("/healthz", "/readyz")
    assert (answers["nobody"].status_code == 401) == needs_token
    changes = method not in ("get", "post") or (method == "post" and path in WRITTEN_TO)
    assert (answers["reader"].status_code == 403) == (changes or path == PRIVATE)


def test_head_is_answered_wherever_the_document_has_get(services: dict[str, TestClient]) -> None:
    client = services["open"]
    for path, operations in document()["paths"].items():
        address = path.replace("{item_id}", IDS[0])
        answer = client.head(address)
        assert answer.status_code != 405 or "get" not in operations, path
        assert (answer.status_code == 405) == (client.get(address).status_code == 405), path
        assert answer.content == b""
        assert "head" not in operations
    counted = 'nearsure_requests_total{method="HEAD",route="/v1/model",status="200"}'
    assert counted in client.get("/metrics").text


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
