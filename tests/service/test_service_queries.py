"""What is asked with a vector, an item, a text, an image or many vectors at once."""

import io
from base64 import b64encode
from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Thread
from typing import Any, Literal

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from served_examples import DIMENSION, NAMES, clusters, refused, serving, sqlite_gallery
from starlette.testclient import TestClient

from nearsure import NEDClassifier
from nearsure.engines.embedded import FaissEngine
from nearsure.engines.sqlite import SqliteEngine
from nearsure.errors import BrokenImageError
from nearsure.service.schemas import Answer


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """Nothing here changes its gallery."""
    path = tmp_path_factory.mktemp("gallery") / "birds.sqlite"
    with serving(sqlite_gallery(path)) as client:
        yield client


@pytest.fixture(scope="module")
def classifier() -> NEDClassifier:
    """The same gallery in memory."""
    vectors, codes = clusters()
    return NEDClassifier().fit(vectors, NAMES[codes])


def test_a_vector_is_answered_as_the_classifier_does(
    client: TestClient, classifier: NEDClassifier
) -> None:
    query = np.zeros((1, DIMENSION), np.float32)
    expected = classifier.predict_with_confidence(query)
    answer = client.post("/v1/predict", json={"vector": [0.0] * DIMENSION, "neighbors": 1000})
    said = Answer.model_validate(answer.json())
    assert answer.status_code == 200
    assert said.label == expected.labels[0]
    assert said.confidence == pytest.approx(expected.confidence[0])
    assert (said.accepted, said.verdict, said.p_known, said.model) == (None, None, None, 1)
    codes, probabilities = expected.posterior.top(len(NAMES))
    assert [one.label for one in said.classes] == classifier.classes_[codes[0]].tolist()
    assert [one.probability for one in said.classes] == pytest.approx(probabilities[0].tolist())
    ids = expected.neighbors.ids
    assert ids is not None
    assert [one.id for one in said.neighbors] == [f"p{i:03}" for i in ids[0]]
    assert [one.sq_distance for one in said.neighbors] == pytest.approx(
        expected.neighbors.sq_distances[0].tolist(), rel=1e-5
    )
    shares = classifier.vote_shares(expected.neighbors)[0]
    assert [one.share for one in said.neighbors] == pytest.approx(shares.tolist(), rel=1e-4)
    assert sum(one.share for one in said.neighbors) == pytest.approx(1.0)


@pytest.mark.parametrize("head", ["means", None])
def test_an_answer_says_what_neighbours_and_class_support(tmp_path: Path, head: str | None) -> None:
    vectors, codes = clusters()
    path = sqlite_gallery(tmp_path / "g.sqlite")
    with SqliteEngine(path) as engine:
        kept = NEDClassifier(engine=engine, head=head).fit_engine()  # type: ignore[arg-type]
        engine.notes["model"] = kept.to_bytes()
    classifier = NEDClassifier(head=head).fit(vectors, NAMES[codes])  # type: ignore[arg-type]
    query = vectors[:1] + 0.5
    support = classifier.support(classifier.predict_with_confidence(query))
    with serving(path) as client:
        said = client.post("/v1/predict", json={"vector": query[0].tolist()}).json()
        model = client.get("/v1/model").json()
    assert model["head"] == head
    if support.head is None:
        assert said["p_neighbors"] is said["p_head"] is model["head_choice"] is None
    else:
        assert said["p_neighbors"] == pytest.approx(support.neighbors[0], rel=1e-4)
        assert said["p_head"] == pytest.approx(support.head[0], rel=1e-4)
        assert model["head_choice"].startswith("Class means are used beside the neighbours: with")


def test_as_many_neighbours_and_classes_are_shown_as_were_asked_for(client: TestClient) -> None:
    query = {"vector": [0.0] * DIMENSION, "neighbors": 3, "classes": 1}
    answer = client.post("/v1/predict", json=query).json()
    assert (len(answer["neighbors"]), len(answer["classes"])) == (3, 1)
    neighbors = client.post("/v1/neighbors", json=query).json()
    assert neighbors == {"neighbors": answer["neighbors"]}
    answer = client.post("/v1/predict", json={**query, "neighbors": 0}).json()
    assert answer["neighbors"] == []


def test_an_item_leaves_itself_out(client: TestClient, classifier: NEDClassifier) -> None:
    answer = client.post("/v1/predict", json={"item": "p007", "neighbors": 1000}).json()
    expected = classifier.predict_own([7])
    assert answer["label"] == expected.labels[0]
    assert answer["confidence"] == pytest.approx(expected.confidence[0])
    assert "p007" not in [one["id"] for one in answer["neighbors"]]
    neighbors = client.post("/v1/neighbors", json={"item": "p007"}).json()["neighbors"]
    assert neighbors == answer["neighbors"][:10]


def test_a_batch_says_the_same_as_its_vectors_alone(client: TestClient) -> None:
    vectors = np.random.default_rng(3).normal(size=(5, DIMENSION)).round(3).tolist()
    batch = client.post("/v1/predict/batch", json={"vectors": vectors, "neighbors": 2}).json()
    for vector, answer in zip(vectors, batch["answers"], strict=True):
        alone = client.post(
            "/v1/predict", json={"vector": vector, "neighbors": 2, "classes": 1}
        ).json()
        assert alone["label"] == answer["label"]
        assert alone["confidence"] == pytest.approx(answer["confidence"])
        assert [one["id"] for one in alone["neighbors"]] == [
            one["id"] for one in answer["neighbors"]
        ]


def test_unknowns_have_a_verdict(tmp_path: Path) -> None:
    path = sqlite_gallery(tmp_path / "birds.sqlite")
    model = tmp_path / "fit.safetensors"
    vectors, codes = clusters()
    engine = FaissEngine.from_points(vectors, labels=codes)
    NEDClassifier(engine=engine, unknown_share=0.2).fit_engine().save(model)
    with serving(engine=engine, model=model) as client:
        near = client.post("/v1/predict", json={"vector": vectors[3].tolist()}).json()
        far = client.post("/v1/predict", json={"vector": [90.0] * DIMENSION}).json()
        assert client.get("/v1/model").json()["unknown_share"] == 0.2
        assert "nearsure_unknown_answers_total 1.0" in client.get("/metrics").text
    assert near["verdict"] in ("known", "ambiguous")
    assert far["verdict"] == "unknown"
    assert far["p_known"] < near["p_known"]
    assert path.exists()


def test_queries_that_come_together_each_get_their_own_answer(client: TestClient) -> None:
    vectors = np.random.default_rng(5).normal(size=(24, DIMENSION)).round(3).tolist()
    alone = [client.post("/v1/predict", json={"vector": vector}).json() for vector in vectors]
    together: list[Any] = [None] * len(vectors)

    def ask(place: int) -> None:
        together[place] = client.post("/v1/predict", json={"vector": vectors[place]}).json()

    threads = [Thread(target=ask, args=(i,)) for i in range(len(vectors))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for own, other in zip(alone, together, strict=True):
        assert own["label"] == other["label"]
        assert own["confidence"] == pytest.approx(other["confidence"])


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ({}, "Got 0"),
        ({"vector": [0.0] * DIMENSION, "item": "p001"}, "Got 2"),
        ({"vector": [0.0]}, f"must have {DIMENSION} numbers"),
        ({"vector": [1e300] * DIMENSION}, "within"),
        ({"vector": [0.0] * DIMENSION, "k": 3}, "k: "),
        ({"vector": "abc"}, "vector: "),
        ({"vector": [0.0] * DIMENSION, "neighbors": -1}, "neighbors: "),
        ({"vector": [0.0] * DIMENSION, "classes": 0}, "classes: "),
        ({"item": ""}, "item: "),
        ({"item": "a\nb"}, "item: "),
        ([1, 2], "body: "),
    ],
)
def test_a_query_that_is_none_is_refused(client: TestClient, query: object, told: str) -> None:
    answer = client.post("/v1/predict", json=query)
    assert answer.status_code == 422
    assert set(answer.json()) == {"error", "message"}
    assert told in answer.json()["message"]


@pytest.mark.parametrize(
    "body", [b"", b"{", b'{"vector": [NaN]}', b"\xff\xfe", b"[" * 100_000, b'{"item": "\\ud800"}']
)
def test_what_cannot_be_read_is_the_clients_mistake(client: TestClient, body: bytes) -> None:
    for address in ("/v1/predict", "/v1/predict/batch", "/v1/items", "/v1/items/relabel"):
        answer = client.post(address, content=body, headers={"content-type": "application/json"})
        assert answer.status_code in (400, 422)
        assert set(answer.json()) == {"error", "message"}


def test_other_content_than_json_is_refused(client: TestClient) -> None:
    answer = client.post("/v1/predict", content=b"{}", headers={"content-type": "text/plain"})
    assert (answer.status_code, answer.json()["error"]) == (415, "unsupported_media_type")


def test_an_unknown_item_is_not_found(client: TestClient) -> None:
    answer = client.post("/v1/predict", json={"item": "p999"})
    assert (answer.status_code, answer.json()["error"]) == (404, "no_such_item")
    assert "p999" in answer.json()["message"]


def test_a_batch_may_not_be_larger_than_was_set(tmp_path: Path) -> None:
    with serving(sqlite_gallery(tmp_path / "birds.sqlite"), largest_batch=2) as client:
        vectors = [[0.0] * DIMENSION] * 3
        answer = client.post("/v1/predict/batch", json={"vectors": vectors})
        assert (answer.status_code, answer.json()["error"]) == (422, "batch_too_large")
        removal = client.post("/v1/items/remove", json={"ids": ["p001", "p002", "p003"]})
        assert removal.json()["error"] == "batch_too_large"


def test_by_cosine_the_length_of_a_vector_does_not_matter(tmp_path: Path) -> None:
    with serving(sqlite_gallery(tmp_path / "birds.sqlite", metric="cosine")) as client:
        assert client.get("/v1/model").json()["metric"] == "cosine"
        vector = np.random.default_rng(2).normal(size=DIMENSION)
        short, long = (
            client.post("/v1/predict", json={"vector": (scale * vector).tolist()}).json()
            for scale in (1e-3, 1e3)
        )
        assert short["label"] == long["label"]
        assert short["confidence"] == pytest.approx(long["confidence"], rel=1e-4)
        zero = client.post("/v1/predict", json={"vector": [0.0] * DIMENSION})
        assert zero.status_code == 422
        assert "zero" in zero.json()["message"]


class FakeEncoder:
    """The numbers of a text, or the bytes of a file, as a vector."""

    dimension = DIMENSION

    def __init__(self, kind: Literal["image", "text"]) -> None:
        self.kind: Literal["image", "text"] = kind

    def encode(self, inputs: Sequence[bytes] | Sequence[str]) -> NDArray[np.float32]:
        for place, one in enumerate(inputs, 1):
            if one == b"broken":
                raise BrokenImageError(f"Image {place} cannot be decoded.")
        rows = [
            [float(n) for n in one.split()] if isinstance(one, str) else list(one) for one in inputs
        ]
        return np.array(rows, np.float32)


def test_a_text_is_encoded(tmp_path: Path) -> None:
    path = sqlite_gallery(tmp_path / "birds.sqlite")
    with serving(path, encoder=FakeEncoder("text")) as client:
        assert client.get("/v1/model").json()["encoder"] == "text"
        by_text = client.post("/v1/predict", json={"text": "1 2 3 4 5 6"}).json()
        by_vector = client.post("/v1/predict", json={"vector": [1, 2, 3, 4, 5, 6]}).json()
        assert by_text == by_vector
        image = client.post(
            "/v1/predict/image", content=b"123456", headers={"content-type": "image/png"}
        )
        assert (image.status_code, image.json()["error"]) == (501, "no_image_encoder")


def test_an_image_is_encoded(tmp_path: Path) -> None:
    path = sqlite_gallery(tmp_path / "birds.sqlite")
    png = {"content-type": "image/png"}
    with serving(path, encoder=FakeEncoder("image")) as client:
        by_image = client.post(
            "/v1/predict/image?neighbors=2&classes=1",
            content=bytes([1, 2, 3, 4, 5, 6]),
            headers=png,
        ).json()
        query = {"vector": [1, 2, 3, 4, 5, 6], "neighbors": 2, "classes": 1}
        assert by_image == client.post("/v1/predict", json=query).json()
        broken = client.post("/v1/predict/image", content=b"broken", headers=png)
        assert (broken.status_code, broken.json()["error"]) == (422, "invalid_input")
        other = client.post(
            "/v1/predict/image", content=b"x", headers={"content-type": "text/html"}
        )
        assert other.status_code == 415
        text = client.post("/v1/predict", json={"text": "1 2 3 4 5 6"})
        assert (text.status_code, text.json()["error"]) == (501, "no_text_encoder")
        asked = client.post("/v1/predict/image?neighbors=x", content=b"x", headers=png)
        assert (asked.status_code, asked.json()["error"]) == (422, "invalid_request")


def test_several_texts_at_once(tmp_path: Path) -> None:
    """More than are encoded together; names and texts are those of recent queries."""
    path = sqlite_gallery(tmp_path / "birds.sqlite")
    texts = [f"{i} 2 3 4 5 6" for i in range(40)]
    with serving(path, encoder=FakeEncoder("text")) as client:
        by_text = client.post("/v1/predict/batch", json={"texts": texts}).json()
        vectors = [[float(n) for n in text.split()] for text in texts]
        assert by_text == client.post("/v1/predict/batch", json={"vectors": vectors}).json()
        for wrong in ({}, {"texts": texts, "vectors": vectors}, {"texts": texts, "names": ["x"]}):
            refused(client.post("/v1/predict/batch", json=wrong), 422)
        refused(client.post("/v1/predict/batch", json={"images": ["AAAA"]}), 501)


def test_several_images_at_once(tmp_path: Path) -> None:
    path = sqlite_gallery(tmp_path / "birds.sqlite")
    contents = [bytes([i, 2, 3, 4, 5, 6]) for i in range(40)]
    with serving(path, encoder=FakeEncoder("image")) as client:
        images = [b64encode(one).decode() for one in contents]
        by_image = client.post("/v1/predict/batch", json={"images": images}).json()
        vectors = [list(one) for one in contents]
        assert by_image == client.post("/v1/predict/batch", json={"vectors": vectors}).json()
        images[33] = b64encode(b"broken").decode()
        broken = client.post("/v1/predict/batch", json={"images": images})
        assert refused(broken, 422)["message"].startswith("Image 34 cannot be decoded")
        images[33] = "\x80"
        assert (
            "base64"
            in refused(client.post("/v1/predict/batch", json={"images": images}), 422)["message"]
        )


def test_items_are_added_by_text(tmp_path: Path) -> None:
    """The text is kept, and stands beside the item wherever it is shown."""
    path = sqlite_gallery(tmp_path / "birds.sqlite")
    new = [
        {"id": "by text", "label": "heron", "text": "90 2 3 4 5 6"},
        {"id": "by vector", "label": "heron", "vector": [91, 2, 3, 4, 5, 6], "text": "a heron"},
        {"id": "bare", "label": "heron", "vector": [92, 2, 3, 4, 5, 6]},
    ]
    texts = {"by text": "90 2 3 4 5 6", "by vector": "a heron", "bare": None}
    with serving(path, encoder=FakeEncoder("text")) as client:
        assert client.post("/v1/items", json={"items": new}).status_code == 201
        answer = client.post("/v1/predict", json={"text": "90 2 3 4 5 6", "neighbors": 3}).json()
        assert {one["id"]: one["text"] for one in answer["neighbors"]} == texts
        assert answer["neighbors"][0]["sq_distance"] == 0
        for name, text in texts.items():
            assert client.get(f"/v1/items/{name}").json()["text"] == text
        page = client.get("/v1/items?limit=3").json()["items"]
        assert {one["id"]: one["text"] for one in page} == texts
        for change in ("remove", "restore"):
            assert client.post(f"/v1/items/{change}", json={"ids": ["by text"]}).is_success
        assert client.get("/v1/items/by text").json()["text"] == texts["by text"]
        for wrong in ({"label": "x"}, {"label": "x", "text": "1", "image": "AAAA"}):
            refused(client.post("/v1/items", json={"items": [wrong]}), 422)
        by_image = {"label": "x", "image": "AAAA"}
        refused(client.post("/v1/items", json={"items": [by_image]}), 501)
    with SqliteEngine(path) as engine:
        assert engine.texts(np.array(list(texts))) == {
            name: text for name, text in texts.items() if text
        }


def test_items_are_added_by_image(tmp_path: Path) -> None:
    path = sqlite_gallery(tmp_path / "birds.sqlite")
    file = io.BytesIO()
    Image.new("RGB", (900, 300), "red").save(file, "PNG")
    image = b64encode(file.getvalue()).decode()
    with serving(path, encoder=FirstBytes()) as client:
        new = [{"id": "red", "label": "heron", "image": image}, {"label": "heron", "image": image}]
        added = client.post("/v1/items", json={"items": new})
        assert added.status_code == 201
        for name in added.json()["ids"]:
            picture = client.get(f"/v1/items/{name}/picture")
            assert Image.open(io.BytesIO(picture.content)).size == (320, 107)
        unreadable = {"label": "x", "vector": [0.0] * DIMENSION, "image": "AAAA"}
        refused(client.post("/v1/items", json={"items": [unreadable]}), 422)
    vectors, codes = clusters(8)
    with serving(engine=FaissEngine.from_points(vectors, labels=codes)) as client:
        beside = {"label": "1", "vector": [0.0] * DIMENSION, "text": "a heron"}
        problem = refused(client.post("/v1/items", json={"items": [beside]}), 409)
        assert problem["error"] == "no_looks"


class FirstBytes(FakeEncoder):
    def __init__(self) -> None:
        super().__init__("image")

    def encode(self, inputs: Sequence[bytes] | Sequence[str]) -> NDArray[np.float32]:
        return np.array([list(bytes(one)[:DIMENSION]) for one in inputs], np.float32)  # type: ignore[arg-type]
