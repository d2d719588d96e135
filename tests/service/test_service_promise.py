"""The promise of the threshold follows the queries that come, in a running service."""

import logging
from collections.abc import Iterator
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import numpy as np
import pytest
from served_examples import DIMENSION, LONGEST_WAIT, clusters, refitted, serving, sqlite_gallery
from starlette.testclient import TestClient

from nearsure import NEDClassifier
from nearsure.service import watch
from nearsure.service.promise import Promise, keep_promise
from nearsure.service.service import RunningService

FAR = 6.0


@pytest.fixture(autouse=True)
def _check_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the pauses that keep checks cheap."""
    monkeypatch.setattr(watch, "SHARE_OF_TIME", 1e9)


@pytest.fixture(scope="module")
def gallery(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = sqlite_gallery(tmp_path_factory.mktemp("made") / "birds.sqlite", n_each=150)
    with serving(path):
        pass
    return path


@pytest.fixture
def client(gallery: Path, tmp_path: Path) -> Iterator[TestClient]:
    own = tmp_path / "birds.sqlite"
    own.write_bytes(gallery.read_bytes())
    with serving(own, precision=0.9) as client:
        yield client


def ask(client: TestClient, n: int, seed: int, moved: float = 0.0) -> list[dict[str, Any]]:
    """Ask n queries at once, like the gallery or moved away from it."""
    vectors, _ = clusters(-(-n // 4), seed)
    rows = np.random.default_rng(seed).permutation(len(vectors))[:n]
    body = {"vectors": (vectors[rows] + moved).tolist()}
    answer = client.post("/v1/predict/batch", json=body)
    assert answer.status_code == 200, answer.text
    answers: list[dict[str, Any]] = answer.json()["answers"]
    return answers


def promise_of(client: TestClient) -> dict[str, Any]:
    promise: dict[str, Any] = client.get("/v1/promise").json()
    return promise


def promise_when(client: TestClient, **expected: object) -> dict[str, Any]:
    """The promise as soon as it is what is expected: it is looked at in the background."""
    deadline = monotonic() + LONGEST_WAIT
    while any((promise := promise_of(client))[name] != value for name, value in expected.items()):
        assert monotonic() < deadline, promise
        sleep(0.01)
    return promise


def n_checks(client: TestClient) -> int:
    return figure(client, "nearsure_promise_checks_total")


def figure(client: TestClient, name: str) -> int:
    lines = client.get("/metrics").text.splitlines()
    return int(float(next(line.split()[1] for line in lines if line.startswith(name + " "))))


def wait_for_checks(client: TestClient, n: int) -> None:
    deadline = monotonic() + LONGEST_WAIT
    while n_checks(client) < n:
        assert monotonic() < deadline
        sleep(0.01)


def ask_far(client: TestClient) -> dict[str, Any]:
    """Ask far queries until they are believed to differ."""
    ask(client, 60, seed=2, moved=FAR)
    wait_for_checks(client, 1)
    ask(client, 60, seed=3, moved=FAR)
    return promise_when(client, state="withdrawn")


def running(client: TestClient) -> RunningService:
    service: RunningService = client.app.state.service  # type: ignore[attr-defined]
    return service


def test_too_few_queries_say_nothing(client: TestClient) -> None:
    answers = ask(client, 29, seed=2, moved=FAR)
    assert {one["promise"] for one in answers} == {"holds"}
    promise = promise_of(client)
    assert (promise["state"], promise["checked"], promise["window"]) == ("holds", None, 29)
    assert (promise["n_queries"], promise["accuracy"], promise["reasons"]) == (0, None, [])
    assert n_checks(client) == 0


def test_the_promise_holds_for_queries_like_the_gallery(client: TestClient) -> None:
    before = client.get("/v1/threshold").json()["threshold"]
    ask(client, 400, seed=2)
    promise = promise_when(client, n_queries=400)
    assert (promise["state"], promise["reasons"], promise["threshold"]) == ("holds", [], before)
    assert promise["checked"] is not None
    assert {one["promise"] for one in ask(client, 4, seed=3)} == {"holds"}


def test_queries_far_away_withdraw_it_and_nothing_is_accepted(
    client: TestClient, caplog: pytest.LogCaptureFixture
) -> None:
    like = clusters(1, seed=9)[0][0].tolist()
    one = {"vector": like, "classes": 1, "neighbors": 0}
    assert client.post("/v1/predict", json=one).json()["accepted"] is True
    with caplog.at_level(logging.WARNING, "nearsure.service"):
        promise = ask_far(client)
    assert "they lie farther away" in promise["reasons"]
    assert "withdrawn" in promise["sentence"]
    assert (promise["threshold"], client.get("/v1/model").json()["threshold"]) == (None, None)
    assert 0 <= promise["accuracy"]["low"] < promise["accuracy"]["high"] <= 1
    assert "withdrawn" in caplog.text
    answer = client.post("/v1/predict", json=one).json()
    assert (answer["promise"], answer["accepted"]) == ("withdrawn", False)
    assert answer["confidence"] > client.get("/v1/threshold").json()["threshold"]
    assert {one["accepted"] for one in ask(client, 20, seed=5)} == {False}
    lines = client.get("/metrics").text.splitlines()
    states = [line for line in lines if line.startswith("nearsure_promise{")]
    assert sorted(states) == [
        'nearsure_promise{state="adjusted"} 0.0',
        'nearsure_promise{state="holds"} 0.0',
        'nearsure_promise{state="none"} 0.0',
        'nearsure_promise{state="withdrawn"} 1.0',
    ]
    assert figure(client, "nearsure_promise_alarms_total") >= 1
    assert figure(client, "nearsure_window_queries") == 141


def test_one_odd_window_touches_no_promise(client: TestClient) -> None:
    ask(client, 30, seed=2, moved=FAR)
    wait_for_checks(client, 1)
    assert promise_of(client)["state"] == "holds"
    # The next check looks at a window in which they are few.
    ask(client, 500, seed=3)
    wait_for_checks(client, 2)
    promise_when(client, state="holds", reasons=[])


def test_the_promise_holds_again_when_queries_do(client: TestClient) -> None:
    threshold = client.get("/v1/threshold").json()["threshold"]
    ask_far(client)
    for seed in range(5, 10):
        ask(client, 200, seed)
    promise = promise_when(client, state="holds", threshold=threshold)
    assert promise["reasons"] == []
    assert any(one["accepted"] for one in ask(client, 20, seed=12))


def test_an_adjusted_threshold_is_what_answers_are_accepted_by(client: TestClient) -> None:
    rng = np.random.default_rng(4)
    client.put("/v1/threshold", json={"precision": 0.75})
    plain = client.get("/v1/threshold").json()["threshold"]
    vectors, codes = clusters(60, seed=8)
    noisy = vectors + 0.9 * rng.normal(size=vectors.shape)
    rows = rng.permutation(len(codes))
    for place, some in enumerate((rows[:100], rows[100:])):
        body = {"vectors": noisy[some].tolist()}
        assert client.post("/v1/predict/batch", json=body).status_code == 200
        wait_for_checks(client, place + 1)
    promise = promise_when(client, state="adjusted")
    assert promise["threshold"] > plain
    answers = ask(client, 200, seed=11)
    for one in answers:
        assert one["promise"] == "adjusted"
        assert one["accepted"] == (one["confidence"] >= promise["threshold"])
    between = [one for one in answers if plain <= one["confidence"] < promise["threshold"]]
    assert between, "no answer tells the two thresholds apart"


def test_items_of_the_gallery_are_no_queries(client: TestClient) -> None:
    for place in range(40):
        assert client.post("/v1/predict", json={"item": f"p{place:03}"}).status_code == 200
    assert promise_of(client)["window"] == 0


def test_no_promise_is_told_where_none_was_asked_for(client: TestClient) -> None:
    assert client.put("/v1/threshold", json={}).status_code == 200
    assert {(one["promise"], one["accepted"]) for one in ask(client, 4, seed=2)} == {(None, None)}
    assert promise_of(client)["state"] is None
    client.put("/v1/threshold", json={"threshold": 0.2})
    ask(client, 60, seed=2, moved=FAR)
    wait_for_checks(client, 1)
    ask(client, 60, seed=3, moved=FAR)
    # Who sets a number insists on it, and is told of the difference nevertheless.
    promise = promise_when(client, n_queries=124)
    assert "they lie farther away" in promise["reasons"]
    assert (promise["state"], promise["threshold"]) == (None, 0.2)
    assert {(one["promise"], one["accepted"]) for one in ask(client, 9, seed=7)} == {(None, True)}


def test_a_precision_out_of_reach_promises_nothing(client: TestClient) -> None:
    client.put("/v1/threshold", json={"precision": 0.9999})
    assert {(one["promise"], one["accepted"]) for one in ask(client, 4, seed=2)} == {(None, False)}


def test_another_threshold_accepts_nothing_until_it_is_checked(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask_far(client)
    with monkeypatch.context() as patch:
        patch.setattr(watch.PromiseWatch, "start_if_due", lambda _: None)
        client.put("/v1/threshold", json={"precision": 0.5})
        pending = promise_of(client)
        assert (pending["state"], pending["checked"]) == ("withdrawn", None)
        assert {one["accepted"] for one in ask(client, 20, seed=5)} == {False}
    promise_when(client, n_queries=140)


def test_a_refit_begins_a_new_check(client: TestClient) -> None:
    ask_far(client)
    assert refitted(client)["state"] == "idle"
    promise = promise_when(client, n_queries=120)
    assert promise["state"] == "withdrawn"
    assert {one["model"] for one in ask(client, 3, seed=5)} == {2}


def test_a_refit_is_checked_without_another_query(client: TestClient) -> None:
    ask(client, 60, seed=2)
    wait_for_checks(client, 1)
    assert refitted(client)["model"] == 2
    wait_for_checks(client, 2)
    fit = running(client).gallery.fit
    assert (fit.number, fit.promise.n_queries) == (2, 60)


def test_a_threshold_that_comes_during_a_check_is_checked_after_it(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    gallery = running(client).gallery

    def keep(classifier: NEDClassifier, n_queries: int) -> Promise:
        if gallery.fit.threshold.threshold != 0.5:
            gallery.set_threshold(0.5)
        return keep_promise(classifier, n_queries)

    monkeypatch.setattr(watch, "keep_promise", keep)
    ask(client, 60, seed=2)
    wait_for_checks(client, 2)
    promise_when(client, n_queries=60)


def test_what_was_found_about_an_old_fit_is_not_said_of_the_new_one(client: TestClient) -> None:
    gallery = running(client).gallery
    old = gallery.fit
    assert gallery.use_promise(keep_promise(old.classifier, 31), old)
    assert promise_of(client)["n_queries"] == 31
    refitted(client)
    assert not gallery.use_promise(keep_promise(old.classifier, 77), old)
    new = gallery.fit
    client.put("/v1/threshold", json={"precision": 0.9})
    assert not gallery.use_promise(keep_promise(new.classifier, 77), new)
    assert promise_of(client)["n_queries"] == 0


def test_a_check_that_fails_fails_no_answer(
    client: TestClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as patch, caplog.at_level(logging.ERROR, "nearsure.service"):
        patch.setattr(watch, "keep_promise", fail)
        ask(client, 200, seed=2)
        deadline = monotonic() + LONGEST_WAIT
        while "could not be compared" not in caplog.text:
            assert monotonic() < deadline
            sleep(0.01)
        patch.setattr(watch, "PAUSE", 0.0)
        assert {one["promise"] for one in ask(client, 4, seed=3)} == {"holds"}
    running(client).watch._failed_until = 0.0
    assert promise_when(client, n_queries=204)["state"] == "holds"


def test_single_queries_fill_the_window_as_batches_do(client: TestClient) -> None:
    for vector in clusters(10, seed=2)[0].tolist():
        assert client.post("/v1/predict", json={"vector": vector}).json()["promise"] == "holds"
    assert client.post("/v1/neighbors", json={"vector": [0.1] * DIMENSION}).status_code == 200
    assert promise_of(client)["window"] == 41
    promise_when(client, n_queries=41)


def test_labels_settle_what_queries_far_away_have_withdrawn(client: TestClient) -> None:
    ask_far(client)
    # As if every answer were right.
    proposed = client.get("/v1/labels/queries?n=100").json()["queries"]
    body = {"queries": [{"key": one["key"], "label": one["answer"]["label"]} for one in proposed]}
    assert client.post("/v1/labels", json=body).json()["n_right"] == 100
    promise = promise_of(client)
    assert (promise["state"], promise["reasons"]) == ("holds", [])
    assert "labelled" in promise["sentence"]
    assert {one["promise"] for one in ask(client, 9, seed=5)} == {"holds"}
    client.delete("/v1/labels")
    promise_when(client, state="withdrawn")


def test_single_queries_with_names_are_compared_whoever_reads_the_figures(
    client: TestClient,
) -> None:
    vectors = clusters(60, seed=2)[0] + FAR
    for place, vector in enumerate(vectors[:200].tolist()):
        asked = {"vector": vector, "name": f"query {place}"}
        assert client.post("/v1/predict", json=asked).status_code == 200
        if place % 20 == 0:
            client.get("/metrics")
        if place in (60, 120):
            sleep(0.3)
    wait_for_checks(client, 1)
