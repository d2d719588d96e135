"""Recent queries are labelled, and confidence and promises rest on the labels."""

import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from numpy.typing import NDArray
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
from nearsure.engines.sqlite import SqliteEngine
from nearsure.service import watch
from nearsure.service.labels import MOST_LABELS
from nearsure.service.store import fit_gallery

READ, WRITE = "read-" + 16 * "r", "write-" + 16 * "w"


class Stretched:
    """An encoder whose vectors differ with the length of what they are made of."""

    dimension = DIMENSION

    def __init__(self, kind: Literal["image", "text"]) -> None:
        self.kind: Literal["image", "text"] = kind

    def encode(self, inputs: Sequence[bytes] | Sequence[str]) -> NDArray[np.float32]:
        return np.array([[len(one) / 100] * DIMENSION for one in inputs], np.float32)


@pytest.fixture(autouse=True)
def keys_from_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "time", lambda: 0.0)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = sqlite_gallery(tmp_path_factory.mktemp("made") / "birds.sqlite", n_each=100)
    with serving(path):
        pass
    return path


@pytest.fixture
def path(made: Path, tmp_path: Path) -> Path:
    own = tmp_path / "birds.sqlite"
    own.write_bytes(made.read_bytes())
    return own


@pytest.fixture
def client(path: Path) -> Iterator[TestClient]:
    with serving(path) as client:
        yield client


# Their labels differ from those that the gallery gives more often than its own points' do.
VECTORS, CODES = clusters(50, seed=3)
VECTORS = VECTORS + np.random.default_rng(0).normal(size=VECTORS.shape).astype(np.float32)
TRUTH = NAMES[CODES]


def ask(client: TestClient, **more: object) -> list[dict[str, Any]]:
    answer = client.post("/v1/predict/batch", json={"vectors": VECTORS.tolist(), **more})
    assert answer.status_code == 200, answer.text
    answers: list[dict[str, Any]] = answer.json()["answers"]
    return answers


def proposed(client: TestClient, query: str = "") -> list[dict[str, Any]]:
    answer = client.get(f"/v1/labels/queries{query}")
    assert answer.status_code == 200, answer.text
    queries: list[dict[str, Any]] = answer.json()["queries"]
    return queries


def labelled(client: TestClient, rows: range | list[int]) -> Any:  # noqa: ANN401
    """Label queries, whose keys are their rows."""
    body = [{"key": row, "label": TRUTH[row]} for row in rows]
    return client.post("/v1/labels", json={"queries": body})


def confidence_of(client: TestClient) -> list[float]:
    return [one["confidence"] for one in ask(client)]


def recalibrated(rows: range | list[int]) -> NEDClassifier:
    """What the classifier learns from the same labels."""
    vectors, codes = clusters(100)
    classifier = NEDClassifier().fit(vectors, NAMES[codes])
    classifier.recalibrate(VECTORS[list(rows)], TRUTH[list(rows)])
    return classifier


def test_recent_queries_are_proposed_with_their_answers(client: TestClient) -> None:
    answers = ask(client)
    queries = proposed(client)
    keys = [one["key"] for one in queries]
    assert len(set(keys)) == len(keys) == 20
    for one in queries:
        answer = one["answer"]
        assert answer["label"] == answers[one["key"]]["label"]
        assert answer["confidence"] == pytest.approx(answers[one["key"]]["confidence"])
        assert len(answer["neighbors"]) == 5
        assert 1 <= len(answer["classes"]) <= len(NAMES)
    confidence = [one["answer"]["confidence"] for one in queries]
    assert min(confidence) < 0.7
    assert max(confidence) > 0.95
    assert [one["key"] for one in proposed(client)] == keys
    assert [one["key"] for one in proposed(client, "?seed=1")] != keys
    assert len(proposed(client, "?n=100")) == 100


def test_too_few_queries_are_no_sample(client: TestClient) -> None:
    vectors = VECTORS[:29].tolist()
    client.post("/v1/predict/batch", json={"vectors": vectors})
    problem = refused(client.get("/v1/labels/queries"), 409)
    assert problem["error"] == "too_few_queries"
    client.post("/v1/predict/batch", json={"vectors": VECTORS[29:30].tolist()})
    assert len(proposed(client, "?n=100")) == 30


def test_a_person_sees_names_texts_and_pictures(path: Path) -> None:
    with serving(path, encoder=Stretched("text")) as client:
        ask(client, names=[f"photo {row}" for row in range(len(VECTORS))])
        client.post("/v1/predict", json={"text": "a heron by the river", "name": "chat 7"})
        client.post("/v1/predict", json={"vector": [0.5] * DIMENSION, "name": "alone"})
        window = client.app.state.service.watch.window.read()  # type: ignore[attr-defined]
        assert [look.name for look in window.looks[:2]] == ["photo 0", "photo 1"]
        assert (window.looks[-2].name, window.looks[-2].text) == ("chat 7", "a heron by the river")
        assert window.looks[-1].name == "alone"
        shown = {one["key"]: one["name"] for one in proposed(client)}
        assert all(name == f"photo {key}" for key, name in shown.items() if key < len(VECTORS))
    picture = io.BytesIO()
    Image.new("RGB", (900, 600), "red").save(picture, "PNG")
    with serving(path, encoder=Stretched("image")) as client:
        answer = client.post(
            "/v1/predict/image",
            content=picture.getvalue(),
            headers={"content-type": "image/png"},
        )
        assert answer.status_code == 200
        service = client.app.state.service  # type: ignore[attr-defined]
        service._pictures.submit(lambda: None).result(10)
        (look,) = service.watch.window.read().looks
        assert look.picture.startswith("data:image/jpeg;base64,")
        assert len(look.picture) < 4000


def test_labels_teach_what_they_teach_the_classifier(client: TestClient) -> None:
    ask(client)
    rows = range(0, 200, 2)
    document = labelled(client, rows).json()
    expected = recalibrated(rows)
    learned = expected.recalibrated_
    assert learned is not None
    assert (document["n_labels"], document["n_right"]) == (100, learned.n_right)
    assert document["mean_after"] == pytest.approx(learned.mean_after, rel=1e-6)
    assert document["sentence"] == str(learned)
    assert [one["precision"] for one in document["promises"]] == [0.9, 0.95, 0.99]
    assert document["promises"][0]["sentence"] == str(expected.accept_threshold(precision=0.9))
    assert document["model"] == 2
    prediction = expected.predict_with_confidence(VECTORS[:20])
    assert confidence_of(client)[:20] == pytest.approx(prediction.confidence.tolist(), rel=1e-6)
    assert client.get("/v1/labels").json() == document


def test_labels_add_up_and_the_last_word_counts(client: TestClient) -> None:
    ask(client)
    labelled(client, range(40))
    assert labelled(client, range(40, 60)).json()["n_labels"] == 60
    # The same query as a vector, and with another label.
    wrong = {"vector": VECTORS[3].tolist(), "label": NAMES[(CODES[3] + 1) % 4]}
    before = client.get("/v1/labels").json()
    after = client.post("/v1/labels", json={"queries": [wrong]}).json()
    assert after["n_labels"] == 60
    assert abs(after["n_right"] - before["n_right"]) == 1
    assert labelled(client, [3]).json()["n_right"] == before["n_right"]


def test_labelled_queries_are_not_proposed_again(client: TestClient) -> None:
    ask(client)
    labelled(client, range(150))
    assert {one["key"] for one in proposed(client, "?n=100")} == set(range(150, 200))
    client.delete("/v1/labels")
    assert len(proposed(client, "?n=100")) == 100


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_queries_that_were_labelled_as_vectors_are_not_proposed(
    metric: Literal["euclidean", "cosine"], tmp_path: Path
) -> None:
    path = sqlite_gallery(tmp_path / "own.sqlite", n_each=100, metric=metric)
    body = [{"vector": VECTORS[row].tolist(), "label": TRUTH[row]} for row in range(150)]
    with serving(path) as client:
        assert client.post("/v1/labels", json={"queries": body[:100]}).json()["n_labels"] == 100
        ask(client)
        assert client.post("/v1/labels", json={"queries": body}).json()["n_labels"] == 150
        assert {one["key"] for one in proposed(client, "?n=100")} == set(range(150, 200))
    with serving(path) as client:
        ask(client)
        assert {one["key"] for one in proposed(client, "?n=100")} == set(range(150, 200))


def test_labels_outlive_a_restart_and_a_refit_until_they_are_forgotten(path: Path) -> None:
    with serving(path, precision=0.8) as client:
        before = confidence_of(client)
        labelled(client, range(100))
        learned, sentence = confidence_of(client), client.get("/v1/threshold").json()["sentence"]
        assert learned != before
        assert "labelled queries" in sentence
    with serving(path, precision=0.8) as client:
        assert confidence_of(client) == learned
        assert client.get("/v1/threshold").json()["sentence"] == sentence
        assert client.get("/v1/labels").json()["n_labels"] == 100
        refitted(client)
        assert confidence_of(client) == pytest.approx(learned)
        assert client.get("/v1/labels").json()["n_labels"] == 100
        forgotten = client.delete("/v1/labels").json()
        assert (forgotten["n_labels"], forgotten["promises"]) == (0, [])
        assert confidence_of(client) == pytest.approx(before)
        assert "labelled" not in client.get("/v1/threshold").json()["sentence"]
    with serving(path) as client:
        assert confidence_of(client) == pytest.approx(before)


def test_labels_that_come_during_a_refit_are_known_to_the_new_fit(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask(client)
    n_fits = 0

    def fit_slowly(*arguments: Any) -> NEDClassifier:  # noqa: ANN401
        nonlocal n_fits
        n_fits += 1
        classifier = fit_gallery(*arguments)
        if n_fits == 1:
            assert labelled(client, range(50)).status_code == 200
        return classifier

    monkeypatch.setattr("nearsure.service.gallery.fit_gallery", fit_slowly)
    assert refitted(client) == {"state": "idle", "model": 3, "message": None}
    assert n_fits == 2
    assert client.get("/v1/labels").json()["n_labels"] == 50


def test_changes_of_the_gallery_are_counted_across_labels(client: TestClient) -> None:
    ask(client)
    new = [{"label": "heron", "vector": row} for row in VECTORS[:30].tolist()]
    client.post("/v1/items", json={"items": new})
    before = client.get("/v1/model").json()
    labelled(client, range(30, 60))
    after = client.get("/v1/model").json()
    assert after["share_changed"] == pytest.approx(before["share_changed"])
    assert after["share_changed"] == pytest.approx(30 / 430)
    assert (after["size"], after["n_classes"]) == (430, 4)


def test_a_query_of_no_class_counts_as_wrong_where_such_are_expected(path: Path) -> None:
    with SqliteEngine(path) as engine:
        classifier = NEDClassifier(engine=engine, unknown_share=0.2).fit_engine()
        engine.notes["model"] = classifier.to_bytes()
    with serving(path) as client:
        ask(client)
        body = [{"key": row, "label": TRUTH[row]} for row in range(30)]
        none = [{"key": row, "label": None} for row in range(30, 40)]
        document = client.post("/v1/labels", json={"queries": body + none}).json()
        alone = client.post("/v1/labels", json={"queries": body}).json()
        assert document["n_labels"] == alone["n_labels"] == 40
        assert document["n_right"] <= 30
        misspelt = {"queries": [*body, {"key": 50, "label": "herron"}]}
        assert "'herron'" in refused(client.post("/v1/labels", json=misspelt), 422)["message"]
        assert client.get("/v1/labels").json() == alone


def test_what_cannot_be_learned_from_is_refused(client: TestClient) -> None:
    ask(client)
    before = confidence_of(client)

    def refusal(status: int, *queries: dict[str, object]) -> dict[str, str]:
        return refused(client.post("/v1/labels", json={"queries": list(queries)}), status)

    heron: dict[str, object] = {"label": "heron"}
    many = [{"key": row, **heron} for row in range(30)]
    assert refusal(409, *many[:19])["error"] == "too_few_labels"
    assert refusal(404, {"key": 4000, **heron})["error"] == "no_such_query"
    assert refusal(422, *many, many[0])["message"] == "The keys must differ. Got one twice."
    vector = VECTORS[0].tolist()
    for one in ({"key": 1, "vector": vector, **heron}, heron):
        assert "exactly one of key and vector" in refusal(422, one)["message"]
    assert "6 numbers" in refusal(422, {"vector": [1.0], **heron})["message"]
    assert "null" in refusal(422, *many, {"key": 31, "label": None})["message"]
    for others in (many, many[:19]):
        assert "'penguin'" in refusal(422, *others, {"key": 31, "label": "penguin"})["message"]
    refusal(422, {"key": -1, **heron})
    refusal(422, {"key": 1})
    assert refused(client.post("/v1/labels", json={"queries": []}), 422)
    names = {"vectors": [vector], "names": ["a", "b"]}
    assert "as many names" in refused(client.post("/v1/predict/batch", json=names), 422)["message"]
    assert client.get("/v1/labels").json()["n_labels"] == 0
    assert confidence_of(client) == before


def test_labels_are_bounded(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    ask(client)
    monkeypatch.setattr("nearsure.service.labels.MOST_LABELS", 30)
    assert labelled(client, range(30)).status_code == 200
    assert refused(labelled(client, [30]), 409)["error"] == "too_many_labels"
    assert labelled(client, [5]).status_code == 200
    assert MOST_LABELS > 1000


def test_who_may_only_read_sees_no_queries_of_others_and_gives_no_labels(path: Path) -> None:
    with serving(path, read_tokens=(READ,), write_tokens=(WRITE,)) as client:
        client.headers["authorization"] = f"Bearer {WRITE}"
        ask(client)
        assert len(proposed(client)) == 20
        client.headers["authorization"] = f"Bearer {READ}"
        refused(client.get("/v1/labels/queries"), 403)
        refused(labelled(client, range(30)), 403)
        refused(client.delete("/v1/labels"), 403)
        assert client.get("/v1/labels").status_code == 200
        assert client.get("/v1/promise").status_code == 200


def test_nothing_is_learned_before_there_is_a_fit(tmp_path: Path) -> None:
    with serving(sqlite_gallery(tmp_path / "empty.sqlite", n_each=0)) as client:
        for address in ("/v1/labels", "/v1/labels/queries", "/v1/promise"):
            assert refused(client.get(address), 409)["error"] in (
                "not_fitted_yet",
                "too_few_queries",
            )
        body = {"queries": [{"vector": [0.0] * DIMENSION, "label": "heron"}]}
        assert refused(client.post("/v1/labels", json=body), 409)["error"] == "not_fitted_yet"


def test_keys_of_another_start_name_no_query(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(path) as client:
        ask(client)
        proposed = client.get("/v1/labels/queries").json()["queries"]
    monkeypatch.setattr(watch, "time", lambda: 1.0)
    with serving(path) as client:
        ask(client)
        body = {"queries": [{"key": one["key"], "label": NAMES[0]} for one in proposed]}
        problem = refused(client.post("/v1/labels", json=body), 404)
        assert problem["error"] == "no_such_query"


def test_queries_that_were_proposed_can_be_labelled_when_others_came(client: TestClient) -> None:
    ask(client)
    proposed = client.get("/v1/labels/queries").json()["queries"]
    rng = np.random.default_rng(9)
    for _ in range(6):
        body: dict[str, Any] = {"vectors": rng.normal(size=(100, DIMENSION)).tolist()}
        client.post("/v1/predict/batch", json=body)
    body = {"queries": [{"key": one["key"], "label": one["answer"]["label"]} for one in proposed]}
    assert client.post("/v1/labels", json=body).json()["n_labels"] == 20


def test_copies_of_a_query_are_one_label(client: TestClient) -> None:
    query = {"vector": [0.5] * DIMENSION, "label": NAMES[0]}
    problem = refused(client.post("/v1/labels", json={"queries": [query] * 60}), 409)
    assert problem["error"] == "too_few_labels"
