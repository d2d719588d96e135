"""Every answer tells a browser to trust nothing else."""

import asyncio

import pytest
from asgi_calls import call, echo, make_scope
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nearsure.service.middleware import InFlightLimit, Problems, SecurityHeaders


def policy_of(header: str) -> dict[str, list[str]]:
    parts = (part.split() for part in header.split(";"))
    return {name: sources for name, *sources in parts}


@pytest.mark.parametrize(
    "path",
    ["/", "/v1/predict", "/assets/page.js", "/healthz", "/none", "/metrics", "/openapi.json"],
)
def test_every_answer_has_them(path: str) -> None:
    headers = asyncio.run(call(SecurityHeaders(echo), make_scope("GET", path))).headers
    assert policy_of(headers["content-security-policy"]) == {
        "default-src": ["'none'"],
        "script-src": ["'self'"],
        "style-src": ["'self'"],
        "img-src": ["'self'", "data:", "blob:"],
        "connect-src": ["'self'"],
        "base-uri": ["'none'"],
        "form-action": ["'none'"],
        "frame-ancestors": ["'none'"],
    }
    assert "unsafe" not in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cross-origin-opener-policy"] == "same-origin"
    assert headers["cross-origin-resource-policy"] == "same-origin"
    assert "camera=()" in headers["permissions-policy"]
    assert headers["cache-control"] == "no-store"


def test_an_answer_that_says_how_long_it_lasts_keeps_that() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        del scope, receive
        head = [(b"cache-control", b"no-cache")]
        await send({"type": "http.response.start", "status": 200, "headers": head})
        await send({"type": "http.response.body"})

    sent = asyncio.run(headers_of(SecurityHeaders(app)))
    assert [value for name, value in sent if name == b"cache-control"] == [b"no-cache"]


async def headers_of(app: ASGIApp) -> list[tuple[bytes, bytes]]:
    """All of them, also those that come twice."""
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    await app(make_scope(), unread, send)
    headers: list[tuple[bytes, bytes]] = sent[0]["headers"]
    return headers


async def unread() -> Message:
    raise AssertionError("nobody reads")


def test_refusals_have_them_too() -> None:
    reply = asyncio.run(call(SecurityHeaders(Problems(InFlightLimit(echo, 0))), make_scope()))
    assert reply.status == 503
    assert "content-security-policy" in reply.headers
    assert reply.headers["retry-after"] == "1"


def test_the_list_of_the_app_is_left_alone() -> None:
    own = [(b"content-length", b"0")]

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        del scope, receive
        await send({"type": "http.response.start", "status": 200, "headers": own})
        await send({"type": "http.response.body", "body": b""})

    for _ in range(2):
        assert asyncio.run(call(SecurityHeaders(app), make_scope())).status == 200
    assert own == [(b"content-length", b"0")]


def test_an_answer_without_headers_gets_them() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        del scope, receive
        await send({"type": "http.response.start", "status": 204})
        await send({"type": "http.response.body"})

    reply = asyncio.run(call(SecurityHeaders(app), make_scope()))
    assert reply.headers["x-frame-options"] == "DENY"
