"""Figures for Prometheus, and one line a request in the access log."""

import asyncio
import logging
import re

import numpy as np
import pytest
from asgi_calls import broken, call, echo, make_scope
from fastapi import APIRouter, FastAPI
from prometheus_client.parser import text_string_to_metric_families
from starlette.types import ASGIApp, Receive, Scope, Send

from nearsure.service.batching import MicroBatcher
from nearsure.service.middleware import InFlightLimit, Problems
from nearsure.service.telemetry import CONFIDENCES, Measurements, RequestRecorder


def figures(measurements: Measurements) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """All samples, read back by Prometheus' own parser."""
    families = text_string_to_metric_families(measurements.text().decode())
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }


def key(name: str, **labels: str) -> tuple[str, frozenset[tuple[str, str]]]:
    return f"nearsure_{name}", frozenset(labels.items())


def small_app(measurements: Measurements) -> RequestRecorder:
    app = FastAPI()
    router = APIRouter(prefix="/v1")

    @router.get("/items/{name}")
    async def item(name: str) -> str:
        if name == "breaks":
            raise KeyError(name)
        return name

    app.include_router(router)
    return RequestRecorder(app, measurements)


def test_requests_count_by_route_template_method_and_status() -> None:
    measurements = Measurements()
    app = small_app(measurements)
    for path in ("/v1/items/a", "/v1/items/b", "/v1/nothing", "/wp-admin"):
        asyncio.run(call(app, make_scope("GET", path)))
    for method in ("POST", "PROPFIND", "INVENTED"):
        asyncio.run(call(app, make_scope(method, "/v1/items/a")))
    with pytest.raises(KeyError):
        asyncio.run(call(app, make_scope("GET", "/v1/items/breaks")))
    seen = figures(measurements)
    route = "/v1/items/{name}"
    assert seen[key("requests_total", route=route, method="GET", status="200")] == 2
    assert seen[key("requests_total", route=route, method="GET", status="500")] == 1
    assert seen[key("requests_total", route="other", method="GET", status="404")] == 2
    assert seen[key("request_seconds_count", route=route, method="GET")] == 3
    assert seen[key("request_seconds_bucket", route=route, method="GET", le="30.0")] == 3
    methods = {dict(labels).get("method") for _, labels in seen}
    assert methods == {None, "GET", "POST", "other"}


def test_made_up_paths_make_no_new_series() -> None:
    measurements = Measurements()
    app = small_app(measurements)
    asyncio.run(call(app, make_scope("GET", "/v1/none")))
    before = figures(measurements).keys()
    for i in range(50):
        asyncio.run(call(app, make_scope("GET", f"/v1/none/{i}")))
    assert figures(measurements).keys() == before


def test_the_histogram_of_confidence_counts_as_defined() -> None:
    measurements = Measurements()
    rng = np.random.default_rng(0)
    confidence = np.concatenate([rng.random(500), CONFIDENCES, [0.0, 1.0, 1.0 + 1e-12]])
    for part in np.array_split(confidence, 7):
        measurements.count_answers(part, None)
    seen = figures(measurements)
    for bound in CONFIDENCES[:-1]:
        expected = sum(value <= bound for value in confidence)
        assert seen[key("confidence_bucket", le=str(bound))] == expected
    assert seen[key("confidence_bucket", le="1.0")] == len(confidence)
    assert seen[key("confidence_bucket", le="+Inf")] == len(confidence)
    assert seen[key("confidence_count")] == len(confidence)
    assert seen[key("confidence_sum")] == pytest.approx(confidence.sum())


def test_answers_count_by_what_became_of_them() -> None:
    measurements = Measurements()
    measurements.count_answers(
        np.array([0.9, 0.8, 0.1]), np.array([True, True, False]), n_unknown=1
    )
    measurements.count_answers(np.array([0.5, 0.5]), None)
    measurements.count_answers(np.array([0.2]), np.array([False]), n_unknown=1)
    seen = figures(measurements)
    assert seen[key("answers_total", accepted="yes")] == 2
    assert seen[key("answers_total", accepted="no")] == 2
    assert seen[key("answers_total", accepted="undecided")] == 2
    assert seen[key("unknown_answers_total")] == 2


def test_the_state_is_asked_for_when_it_is_read() -> None:
    measurements = Measurements()
    state = {"queue": 0, "size": 10, "model": 1}
    measurements.queue.set_function(lambda: state["queue"])
    measurements.size.set_function(lambda: state["size"])
    measurements.model.set_function(lambda: state["model"])
    assert figures(measurements)[key("gallery_items")] == 10
    state.update(queue=5, size=11, model=2)
    seen = figures(measurements)
    assert seen[key("queue_length")] == 5
    assert seen[key("gallery_items")] == 11
    assert seen[key("model_number")] == 2


def test_batches_of_the_batcher_are_seen() -> None:
    measurements = Measurements()

    async def run() -> None:
        batcher = MicroBatcher(
            lambda rows: rows.tolist(), largest_queue=10, on_batch=measurements.batches.observe
        )
        await asyncio.gather(*(batcher.ask(np.zeros(2)) for _ in range(5)))
        await batcher.ask(np.zeros(2))
        await batcher.close()

    asyncio.run(run())
    seen = figures(measurements)
    assert seen[key("batch_size_count")] == 2
    assert seen[key("batch_size_sum")] == 6
    assert seen[key("batch_size_bucket", le="1.0")] == 1


def test_two_apps_do_not_share_figures() -> None:
    first, second = Measurements(), Measurements()
    first.batches.observe(3)
    assert figures(second)[key("batch_size_count")] == 0
    assert first.content_type.startswith("text/plain")


LINE = re.compile(r"[0-9a-f.:-]+ [!-~]+ [!-~]+ [0-9]{3} [0-9]+\.[0-9] ms")


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "nearsure.access")
    return caplog


def logged(app: ASGIApp) -> RequestRecorder:
    return RequestRecorder(app, Measurements())


def test_one_line_says_who_what_and_how_it_ended(log: pytest.LogCaptureFixture) -> None:
    asyncio.run(call(logged(echo), make_scope(), (b"the body",)))
    asyncio.run(call(logged(Problems(InFlightLimit(echo, 0))), make_scope("GET", "/v1/items/7")))
    texts = log.messages
    assert texts[0].startswith("10.0.0.1 POST /v1/predict 200 ")
    assert texts[1].startswith("10.0.0.1 GET /v1/items/7 503 ")
    assert all(LINE.fullmatch(text) for text in texts)


def test_query_bodies_and_headers_do_not_appear(log: pytest.LogCaptureFixture) -> None:
    scope = make_scope(headers=[("authorization", "Bearer secret-token-01234"), ("x-key", "hush")])
    asyncio.run(call(logged(echo), scope, (b'{"vector": [0.125]}',)))
    for secret in ("secret", "hush", "0.125", "?"):
        assert secret not in log.messages[0]


@pytest.mark.parametrize(
    "path",
    [
        "/v1/items/a\n10.0.0.9 GET / 200 1.0 ms",
        "/v1/items/a\r\nb",
        "/v1/items/\x1b[31mred",
        "/v1/items/\u2028new line",
        "/v1/items/\udcff",
        "/v1/items/" + 5000 * "long",
    ],
)
def test_a_path_stays_one_short_printable_word(path: str, log: pytest.LogCaptureFixture) -> None:
    scope = make_scope()
    scope["path"] = path
    asyncio.run(call(logged(echo), scope))
    assert len(log.messages) == 1
    text = log.messages[0]
    assert LINE.fullmatch(text)
    assert len(text) < 1000


def test_an_app_that_raises_has_its_line(log: pytest.LogCaptureFixture) -> None:
    with pytest.raises(KeyError):
        asyncio.run(call(logged(broken), make_scope()))
    assert " 500 " in log.messages[0]


def test_probes_are_written_only_if_they_fail(log: pytest.LogCaptureFixture) -> None:
    async def not_ready(scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["path"] == "/readyz"
        await receive()
        await send({"type": "http.response.start", "status": 503, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    for path in ("/healthz", "/readyz", "/metrics"):
        asyncio.run(call(logged(echo), make_scope("GET", path)))
    assert not log.messages
    asyncio.run(call(logged(not_ready), make_scope("GET", "/readyz", client=None)))
    assert log.messages[0].startswith("- GET /readyz 503 ")
