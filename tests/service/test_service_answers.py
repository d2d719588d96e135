"""Answers, and the threshold from which they are accepted."""

from pathlib import Path

import numpy as np
import pytest
from served_examples import DIMENSION, clusters, refitted, serving, sqlite_gallery

from nearsure import NEDClassifier, Neighbors
from nearsure.engines.sqlite import SqliteEngine
from nearsure.service.answers import Answers, ThresholdInUse, make_answers
from nearsure.service.store import THRESHOLD

FAR = [40.0] * DIMENSION


def test_a_threshold_is_set_kept_and_used(tmp_path: Path) -> None:
    path = sqlite_gallery(tmp_path / "birds.sqlite")
    query = {"vector": clusters()[0][0].tolist()}
    with serving(path) as client:
        assert client.get("/v1/threshold").json()["threshold"] is None
        confidence = client.post("/v1/predict", json=query).json()["confidence"]
        for threshold, accepted in ((confidence, True), (np.nextafter(confidence, 2), False)):
            put = client.put("/v1/threshold", json={"threshold": min(1.0, threshold)}).json()
            assert (put["threshold"], put["precision"]) == (min(1.0, threshold), None)
            assert client.post("/v1/predict", json=query).json()["accepted"] is accepted
        refitted(client)
        assert client.get("/v1/threshold").json() == put
    with serving(path, precision=0.9) as client:
        # It was set, and so is not chosen.
        assert client.get("/v1/threshold").json() == put
        assert client.get("/v1/model").json()["threshold"] == put["threshold"]
        none = client.put("/v1/threshold", json={}).json()
        assert (none["threshold"], none["precision"]) == (None, None)
        assert client.post("/v1/predict", json=query).json()["accepted"] is None


def test_a_threshold_for_a_precision_is_chosen_anew_after_a_fit(tmp_path: Path) -> None:
    path = sqlite_gallery(tmp_path / "birds.sqlite")
    with serving(path, precision=0.7) as client:
        first = client.get("/v1/threshold").json()
        assert first == client.get("/v1/threshold/for?precision=0.7").json()
        stricter = client.get("/v1/threshold/for?precision=0.7&certainty=0.999").json()
        assert stricter["threshold"] is None or stricter["threshold"] > first["threshold"]
        ids = [f"p{i:03}" for i in range(0, 120, 5)]
        client.post("/v1/items/relabel", json={"ids": ids, "label": "heron"})
        assert client.get("/v1/threshold").json() == first
        refitted(client)
        second = client.get("/v1/threshold").json()
        assert (second["precision"], second["threshold"]) != (0.7, first["threshold"])
        expected = client.get("/v1/threshold/for?precision=0.7").json()
        assert second == expected
    with SqliteEngine(path) as engine:
        kept = ThresholdInUse.from_bytes(engine.notes[THRESHOLD])
        assert (kept.model, kept.document()) == (2, second)
        # As if the process had ended between a new fit and its threshold.
        engine.notes[THRESHOLD] = ThresholdInUse(0.123, 0.7, "old", 1).to_bytes()
    with serving(path) as client:
        assert client.get("/v1/threshold").json() == second


def test_a_precision_that_cannot_be_promised_accepts_nothing(tmp_path: Path) -> None:
    with serving(sqlite_gallery(tmp_path / "birds.sqlite"), precision=0.9999) as client:
        in_use = client.get("/v1/threshold").json()
        assert (in_use["threshold"], in_use["precision"]) == (None, 0.9999)
        answer = client.post("/v1/predict", json={"vector": FAR}).json()
        assert answer["accepted"] is False
        assert 'nearsure_answers_total{accepted="no"} 1.0' in client.get("/metrics").text


def test_a_threshold_that_is_none_is_refused(tmp_path: Path) -> None:
    bodies = [{"threshold": 2}, {"precision": 1}, {"threshold": 0.5, "precision": 0.5}, {"x": 1}]
    with serving(sqlite_gallery(tmp_path / "birds.sqlite", n_each=5)) as client:
        answers = [client.put("/v1/threshold", json=body) for body in bodies]
        queries = ("", "?precision=0", "?precision=nan", "?precision=0.9&certainty=1")
        answers += [client.get(f"/v1/threshold/for{query}") for query in queries]
        for answer in answers:
            assert (answer.status_code, answer.json()["error"]) == (422, "invalid_request")


def answers(threshold: ThresholdInUse) -> Answers:
    """Of two queries, the second without neighbours, as an approximate engine may find none."""
    classifier = NEDClassifier(temperature=1.0).fit([[0.0], [1.0]], ["cat", "dog"])
    found = Neighbors(
        [[0.1, 0.9], [np.inf, np.inf]], [[0, 1], [-1, -1]], ids=[[0, 1], [-1, -1]], counts=[2, 0]
    )
    return make_answers(classifier, classifier._predicted(found), threshold, 1)


@pytest.mark.parametrize(
    ("threshold", "expected"),
    [
        (ThresholdInUse(threshold=0.0), [True, False]),
        (ThresholdInUse(threshold=0.99), [False, False]),
        (ThresholdInUse(precision=0.9), [False, False]),
        (ThresholdInUse(), [None, None]),
    ],
)
def test_who_is_accepted(threshold: ThresholdInUse, expected: list[bool | None]) -> None:
    given = answers(threshold)
    assert [given.accepted(row) for row in range(2)] == expected
    assert given.document(0, neighbors=2, classes=2)["accepted"] == expected[0]
    assert given.neighbors(1, 5) == []
