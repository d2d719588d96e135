"""The service keeps what its OpenAPI document promises, whatever is sent."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from copy import deepcopy
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar

import numpy as np
import pytest
import schemathesis
from hypothesis import HealthCheck, settings
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
from starlette.testclient import TestClient

from nearsure.engines.sqlite import SqliteEngine
from nearsure.errors import BrokenImageError
from nearsure.service import ServiceSettings, create_app

ApiCase: TypeAlias = "Case[Any]"
Test = TypeVar("Test", bound=Callable[..., None])
DIMENSION = 8
IDS = [f"p{i:03}" for i in range(300)]
WRITTEN_TO = ("/v1/items", "/v1/items/relabel", "/v1/items/remove", "/v1/refit")
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

    dimension = DIMENSION

    def __init__(self, kind: Literal["image", "text"]) -> None:
        self.kind: Literal["image", "text"] = kind

    def encode(self, inputs: Sequence[bytes] | Sequence[str]) -> NDArray[np.float32]:
        if not all(inputs):
            raise BrokenImageError("Image 1 cannot be decoded.")
        return np.array([[len(one)] * DIMENSION for one in inputs], np.float32)


def gallery_in(path: Path) -> str:
    """A new file with an item for each of `IDS`."""
    rng = np.random.default_rng(0)
    with SqliteEngine.create(path, DIMENSION) as engine:
        labels = np.array([f"class {i % 5}" for i in range(len(IDS))])
        engine.add(rng.normal(size=(len(IDS), DIMENSION)), np.array(IDS), labels)
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
    vector |= {"minItems": DIMENSION, "maxItems": DIMENSION}
    one_id = {"type": "string", "enum": IDS}
    ids = {"type": "array", "items": one_id, "minItems": 1, "maxItems": 3, "uniqueItems": True}
    bodies = made["components"]["schemas"]
    of_query = bodies["Query"]["properties"]
    of_query |= {"vector": vector, "item": one_id, "text": {"type": "string", "minLength": 1}}
    bodies["Query"] = one_of("vector", "item", "text", like=bodies["Query"])
    bodies["NewThreshold"] = one_of("threshold", "precision", like=bodies["NewThreshold"])
    bodies["BatchQuery"]["properties"]["vectors"]["items"] = vector
    bodies["NewItem"]["properties"]["vector"] = vector
    # Of several, two might have the same id.
    bodies["NewItems"]["properties"]["items"]["maxItems"] = 1
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
    assert (answers["reader"].status_code == 403) == changes


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
