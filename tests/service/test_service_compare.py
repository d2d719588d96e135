"""Two vectors, items, texts or images compared over HTTP, as the library compares them."""

from base64 import b64encode
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from numpy.typing import NDArray
from served_examples import DIMENSION, NAMES, clusters, refitted, serving, sqlite_gallery
from starlette.testclient import TestClient

from nearsure import PairConfidence
from nearsure.engines.sqlite import SqliteEngine
from nearsure.service.schemas import Comparison


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    path = tmp_path_factory.mktemp("gallery") / "birds.sqlite"
    with serving(sqlite_gallery(path)) as client:
        yield client


def compare(client: TestClient, first: object, second: object, **more: object) -> Any:  # noqa: ANN401
    return client.post("/v1/compare", json={"first": first, "second": second, **more})


def test_two_are_compared_as_the_library_does(client: TestClient) -> None:
    vectors, codes = clusters()
    pairs = PairConfidence(base_rate=0.1).fit(vectors, NAMES[codes])
    two = {"vector": vectors[0].tolist()}, {"vector": vectors[40].tolist()}
    said = Comparison.model_validate(compare(client, *two, base_rate=0.1).json())
    # The library drew its pairs from points in the same order.
    assert said.probability == pytest.approx(pairs.probability(vectors[:1], vectors[40:41])[0])
    assert said.sq_distance == pytest.approx(((vectors[0] - vectors[40]) ** 2).sum(), rel=1e-5)
    assert (said.base_rate, said.model) == (0.1, 1)
    # Six pairs of classes cannot promise that at most 1% of others are accepted.
    assert said.accepted is None
    assert "add classes" in said.sentence

    by_item = compare(client, {"item": "p000"}, {"item": "p040"}, base_rate=0.1).json()
    assert by_item == compare(client, *two, base_rate=0.1).json()
    # Classes overlap: one pair of the same may be farther apart than one of two.
    fellows, others = (
        [compare(client, {"item": "p000"}, {"item": f"p{row:03}"}).json() for row in rows]
        for rows in (range(1, 11), range(40, 50))
    )
    assert sum(one["probability"] for one in fellows) > sum(one["probability"] for one in others)


def test_cosine_compares_directions(tmp_path: Path) -> None:
    """Length tells nothing: not the probability, and not the distance that it is of."""
    with serving(sqlite_gallery(tmp_path / "x.sqlite", metric="cosine")) as client:
        first, second = (clusters()[0][row].astype(float) for row in (0, 40))
        said = compare(client, {"vector": first.tolist()}, {"vector": second.tolist()}).json()
        cosine = first @ second / np.linalg.norm(first) / np.linalg.norm(second)
        assert said["sq_distance"] == pytest.approx(2.0 - 2.0 * cosine, rel=1e-5)
        longer = {"vector": (3.0 * first).tolist()}
        again = compare(client, longer, {"vector": second.tolist()}).json()
        assert again["sq_distance"] == pytest.approx(said["sq_distance"], rel=1e-5)
        assert again["probability"] == pytest.approx(said["probability"], rel=1e-5)


def test_many_classes_accept_what_is_near(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    codes = np.repeat(np.arange(30), 6)
    centres = 5.0 * rng.standard_normal((30, DIMENSION))
    vectors = (centres[codes] + 0.3 * rng.standard_normal((180, DIMENSION))).astype(np.float32)
    path = tmp_path / "many.sqlite"
    with SqliteEngine.create(path, DIMENSION) as engine:
        engine.add(vectors, np.array([f"p{i:03}" for i in range(180)]), codes.astype(str))
    with serving(path) as client:
        assert compare(client, {"item": "p000"}, {"item": "p001"}).json()["accepted"] is True
        assert compare(client, {"item": "p000"}, {"item": "p100"}).json()["accepted"] is False
        assert client.delete("/v1/items/p001").status_code in (200, 204)
        assert compare(client, {"item": "p000"}, {"item": "p002"}).json()["model"] == 1
        refitted(client)
        assert compare(client, {"item": "p000"}, {"item": "p002"}).json()["model"] == 2


def test_mistakes_are_named(client: TestClient) -> None:
    item = {"item": "p000"}
    for first, status, words in (
        ({}, 422, "Exactly one"),
        ({"item": "p000", "vector": [0.0] * DIMENSION}, 422, "Got 2"),
        ({"item": "nobody"}, 404, "no item"),
        ({"vector": [0.0]}, 422, str(DIMENSION)),
        ({"text": "a"}, 501, "text encoder"),
        ({"image": "!"}, 422, "base64"),
        ({"image": "aaaa"}, 501, "image encoder"),
    ):
        answer = compare(client, first, item)
        assert (answer.status_code, words in answer.json()["message"]) == (status, True), first
    assert compare(client, item, item, base_rate=1.0).status_code == 422
    assert client.post("/v1/compare", json={"first": item}).status_code == 422


class Lengths:
    """Encodes by length."""

    dimension = DIMENSION

    def __init__(self, kind: Literal["image", "text"]) -> None:
        self.kind: Literal["image", "text"] = kind

    def encode(self, contents: Sequence[str | bytes]) -> NDArray[np.float32]:
        return np.array([[len(one)] * DIMENSION for one in contents], np.float32)


@pytest.mark.parametrize("kind", ["text", "image"])
def test_what_an_encoder_reads_is_compared(tmp_path: Path, kind: Literal["image", "text"]) -> None:
    with serving(sqlite_gallery(tmp_path / "x.sqlite"), encoder=Lengths(kind)) as client:
        content = "ab" if kind == "text" else b64encode(b"ab").decode()
        by_content = compare(client, {kind: content}, {"item": "p000"})
        by_vector = compare(client, {"vector": [2.0] * DIMENSION}, {"item": "p000"})
        assert by_content.status_code == 200
        assert by_content.json() == by_vector.json()


def test_a_gallery_without_pairs_says_so(tmp_path: Path) -> None:
    path = tmp_path / "one.sqlite"
    with SqliteEngine.create(path, 2) as engine:
        vectors = np.random.default_rng(0).standard_normal((20, 2)).astype(np.float32)
        engine.add(vectors, np.array([f"p{i}" for i in range(20)]), np.array(["a"] * 20))
    with serving(path) as client:
        answer = compare(client, {"item": "p0"}, {"item": "p1"})
        assert (answer.status_code, answer.json()["error"]) == (409, "no_pairs")
