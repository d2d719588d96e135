"""One line a request, with nothing secret in it and no way to forge one."""

import asyncio
import logging
import re

import pytest
from asgi_calls import broken, call, echo, make_scope
from starlette.types import ASGIApp, Receive, Scope, Send

from nearsure.service.middleware import InFlightLimit, Problems
from nearsure.service.telemetry import Measurements, RequestRecorder

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
