"""Limits of size, time, rate and number of requests; security headers; disconnects."""

import asyncio
import json
import logging
from pathlib import Path
from time import monotonic

import pytest
from asgi_calls import (
    Reply,
    answer_ok,
    broken,
    call,
    echo,
    make_scope,
    read_body,
)
from served_examples import serving, sqlite_gallery
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nearsure.service.auth import Tokens
from nearsure.service.middleware import (
    SMALL,
    BodyLimit,
    InFlightLimit,
    Problems,
    RateLimit,
    SecurityHeaders,
)

TOKEN, OTHER_TOKEN = "first-token-0123456", "other-token-0123456"


def ask(app: ASGIApp, scope: Scope | None = None, chunks: tuple[bytes, ...] = (b"",)) -> Reply:
    return asyncio.run(call(Problems(app), scope or make_scope(), chunks))


def body_limit(
    app: ASGIApp, largest_body: int = 10**6, patience: float = 10.0, **options: int
) -> BodyLimit:
    return BodyLimit(app, largest_body, patience, **options)


class TestBodyLimit:
    def test_as_large_as_allowed_passes(self) -> None:
        app = body_limit(echo, 10)
        declared = make_scope(headers=[("content-length", "10")])
        assert ask(app, declared, (b"12345", b"67890")).body == b"1234567890"
        assert ask(app, chunks=(b"12345", b"", b"67890")).body == b"1234567890"

    def test_a_declared_excess_is_refused_unread(self) -> None:
        reply = ask(body_limit(broken, 10), make_scope(headers=[("content-length", "11")]))
        assert reply.status == 413
        assert reply.json()["error"] == "body_too_large"
        assert "may have 10 bytes" in reply.json()["message"]

    @pytest.mark.parametrize(
        "headers",
        [
            [],
            [("transfer-encoding", "chunked"), ("content-length", "5")],
            [("content-length", "-5")],
            [("content-length", "1_0")],
            [("content-length", "")],
        ],
    )
    def test_an_excess_on_the_way_is_refused(self, headers: list[tuple[str, str]]) -> None:
        reply = ask(body_limit(echo, 10), make_scope(headers=headers), (b"12345", b"67890", b"1"))
        assert reply.status == 413
        assert reply.json()["error"] == "body_too_large"

    @pytest.mark.parametrize("declares", [True, False])
    def test_all_together_may_not_be_too_much_and_it_recovers(self, declares: bool) -> None:  # noqa: FBT001
        part = bytes(SMALL)
        headers = [("content-length", str(2 * SMALL))] if declares else []

        async def run() -> None:
            gate = Gate(after_body=True)
            app = body_limit(gate, 2 * SMALL, largest_together=5 * SMALL)
            scope = make_scope(headers=headers)
            held = [asyncio.create_task(call(app, scope, (part, part))) for _ in range(2)]
            await asyncio.sleep(0.01)
            late = await call(Problems(app), scope, (part, part))
            assert late.status == 503
            assert late.headers["retry-after"] == "1"
            assert late.json()["error"] == "overloaded"
            # There is still room for one that is smaller, and for all that are small.
            held.append(asyncio.create_task(call(app, make_scope(), (part,))))
            small = make_scope(headers=[("content-length", "5")])
            held.append(asyncio.create_task(call(app, small, (b"small",))))
            await asyncio.sleep(0.01)
            gate.open.set()
            assert [(await task).status for task in held] == 4 * [200]
            assert app.under_way == 0
            assert (await call(app, scope, (part, part))).status == 200
            with pytest.raises(KeyError):
                await call(app, make_scope(path="/breaks"), (part, part))
            assert app.under_way == 0

        asyncio.run(run())

    def test_one_of_the_largest_may_always_come(self) -> None:
        app = body_limit(echo, 3 * SMALL, largest_together=SMALL)
        assert ask(app, chunks=(bytes(3 * SMALL),)).status == 200

    def test_an_answer_that_was_begun_is_not_answered_twice(self) -> None:
        async def eager(scope: Scope, receive: Receive, send: Send) -> None:
            assert scope["type"] == "http"
            await send({"type": "http.response.start", "status": 200, "headers": []})
            while (await receive()).get("more_body"):
                pass

        with pytest.raises(Exception, match="may have 3 bytes"):
            ask(body_limit(eager, 3), chunks=(b"12", b"34"))

    def test_errors_of_the_app_are_its_own(self) -> None:
        with pytest.raises(KeyError, match="/v1/predict"):
            asyncio.run(call(body_limit(broken), make_scope()))


class TestSlowBody:
    def test_a_body_that_drips_is_refused_in_time(self) -> None:
        sent: list[Message] = []

        async def drip() -> Message:
            await asyncio.sleep(0.02)
            return {"type": "http.request", "body": b"x", "more_body": True}

        async def send(message: Message) -> None:
            sent.append(message)

        start = monotonic()
        asyncio.run(Problems(body_limit(echo, patience=0.2))(make_scope(), drip, send))
        assert 0.15 < monotonic() - start < 2
        assert sent[0]["status"] == 408
        assert (b"connection", b"close") in sent[0]["headers"]
        assert json.loads(sent[1]["body"])["error"] == "body_too_slow"

    def test_the_app_may_take_longer_than_the_body(self) -> None:
        async def slow(scope: Scope, receive: Receive, send: Send) -> None:
            assert scope["type"] == "http"
            assert (await receive())["body"] == b"all"
            await asyncio.sleep(0.15)
            assert (await receive())["type"] == "http.disconnect"
            await answer_ok(send)

        assert ask(body_limit(slow, patience=0.05), chunks=(b"all",)).status == 200


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def from_client(address: str = "10.0.0.1", token: str | None = None, path: str = "/v1/x") -> Scope:
    headers = [] if token is None else [("authorization", f"Bearer {token}")]
    return make_scope("GET", path, headers, (address, 5000))


class TestRateLimit:
    def make(self, rate: float, **options: int) -> tuple[RateLimit, Clock]:
        clock = Clock()
        tokens = Tokens([TOKEN, OTHER_TOKEN])
        return RateLimit(echo, rate, tokens, clock=clock, **options), clock

    def test_ten_seconds_worth_at_once_and_then_the_rate(self) -> None:
        app, clock = self.make(2)
        assert [ask(app, from_client()).status for _ in range(22)] == 20 * [200] + 2 * [429]
        clock.now += 0.5
        assert [ask(app, from_client()).status for _ in range(2)] == [200, 429]
        clock.now += 1000
        assert [ask(app, from_client()).status for _ in range(21)] == 20 * [200] + [429]

    def test_retry_after_is_when_it_works_again(self) -> None:
        app, clock = self.make(0.05)  # One request in 20 s; the bucket holds one.
        assert ask(app, from_client()).status == 200
        reply = ask(app, from_client())
        assert reply.status == 429
        assert reply.json()["error"] == "too_many_requests"
        assert reply.headers["retry-after"] == "20"
        clock.now += 19.9
        assert ask(app, from_client()).headers["retry-after"] == "1"
        clock.now += 0.2
        assert ask(app, from_client()).status == 200

    def test_clients_do_not_share(self) -> None:
        app, _ = self.make(0.1)
        for scope in (
            from_client("10.0.0.1"),
            from_client("10.0.0.2"),
            from_client("10.0.0.1", TOKEN),
            from_client("10.0.0.1", OTHER_TOKEN),
            from_client("2001:db8::1"),
            from_client("2001:db8:0:1::1"),
        ):
            assert [ask(app, scope).status for _ in range(2)] == [200, 429]

    def test_a_token_is_one_client_wherever_it_comes_from(self) -> None:
        app, _ = self.make(0.1)
        assert ask(app, from_client("10.0.0.1", TOKEN)).status == 200
        assert ask(app, from_client("10.0.0.2", TOKEN)).status == 429

    def test_made_up_tokens_and_neighbouring_addresses_stay_one_client(self) -> None:
        app, _ = self.make(0.1)
        guesses = [f"guess-{i}-0123456789" for i in range(3)]
        assert [ask(app, from_client("10.0.0.1", guess)).status for guess in guesses] == [
            200,
            429,
            429,
        ]
        networks = [f"2001:db8::{i}:1" for i in range(3)]
        assert [ask(app, from_client(address)).status for address in networks] == [200, 429, 429]

    def test_health_and_the_page_are_free(self) -> None:
        app, _ = self.make(0.1)
        for path in ("/healthz", "/readyz", "/", "/assets/page.js"):
            assert all(ask(app, from_client(path=path)).status == 200 for _ in range(30))
        assert ask(app, from_client()).status == 200

    def test_the_table_is_bounded_and_forgets_the_most_silent(self) -> None:
        app, _ = self.make(0.1, largest_table=3)
        for last in (1, 2, 3, 1, 4):  # 1 is fresh again when 4 comes, so 2 is forgotten.
            ask(app, from_client(f"10.0.0.{last}"))
        assert list(app._buckets) == ["10.0.0.3", "10.0.0.1", "10.0.0.4"]
        for last in range(1000):
            ask(app, from_client(f"10.1.{last // 256}.{last % 256}"))
        assert len(app._buckets) == 3

    def test_a_request_without_an_address_is_limited_too(self) -> None:
        app, _ = self.make(0.1)
        scope = make_scope("GET", client=None)
        assert [ask(app, scope).status for _ in range(2)] == [200, 429]


class Gate:
    """An app whose requests stay under way until it is opened."""

    def __init__(self, *, after_body: bool = False) -> None:
        self.open = asyncio.Event()
        self.entered = 0
        self.after_body = after_body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.entered += 1
        body = await read_body(receive) if self.after_body else None
        if scope["path"] == "/breaks":
            raise KeyError("broken")
        if scope["path"] not in ("/healthz", "/readyz"):
            await self.open.wait()
        if body is None:
            body = await read_body(receive)
        await answer_ok(send, body)


class TestInFlightLimit:
    def test_what_is_too_much_is_refused_at_once_and_it_recovers(self) -> None:
        async def run() -> None:
            gate = Gate()
            app = InFlightLimit(gate, 3)
            taken = [asyncio.create_task(call(app, make_scope(), (b"x",))) for _ in range(3)]
            await asyncio.sleep(0.01)

            async def must_not_read() -> Message:
                raise AssertionError("the body was read")

            sent: list[Message] = []

            async def send(message: Message) -> None:
                sent.append(message)

            start = monotonic()
            for _ in range(100):
                await Problems(app)(make_scope(), must_not_read, send)
            assert monotonic() - start < 1
            assert {message["status"] for message in sent[::2]} == {503}
            assert (b"retry-after", b"1") in sent[0]["headers"]
            assert json.loads(sent[1]["body"])["error"] == "overloaded"
            assert gate.entered == 3
            for path in ("/healthz", "/readyz"):
                assert (await call(app, make_scope("GET", path))).status == 200
            gate.open.set()
            assert [(await task).status for task in taken] == [200, 200, 200]
            assert app.under_way == 0
            assert (await call(app, make_scope())).status == 200

        asyncio.run(run())

    def test_a_place_is_free_again_after_an_error_or_a_cancel(self) -> None:
        async def run() -> None:
            app = InFlightLimit(Gate(), 1)
            for _ in range(3):
                with pytest.raises(KeyError):
                    await call(app, make_scope(path="/breaks"))
            task = asyncio.create_task(call(app, make_scope()))
            await asyncio.sleep(0.01)
            assert app.under_way == 1
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert app.under_way == 0

        asyncio.run(run())


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


PATHS = ("/v1/predict", "/v1/predict/batch", "/v1/neighbors", "/v1/items", "/v1/predict/image")


@pytest.mark.parametrize("declares", [True, False])
def test_a_client_that_leaves_while_it_sends_is_no_failure(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    declares: bool,  # noqa: FBT001
) -> None:
    caplog.set_level(logging.INFO)
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def leave(path: str) -> None:
        rest: list[Message] = [{"type": "http.request", "body": b"{", "more_body": True}]

        async def receive() -> Message:
            return rest.pop() if rest else {"type": "http.disconnect"}

        kind = "image/png" if path.endswith("image") else "application/json"
        headers = [("host", "localhost"), ("content-type", kind)]
        if declares:
            headers.append(("content-length", "100"))
        await client.app(make_scope("POST", path, headers), receive, send)

    with serving(sqlite_gallery(tmp_path / "a.sqlite")) as client:
        for path in PATHS:
            asyncio.run(leave(path))
        figures = client.get("/metrics").text
    statuses = [message["status"] for message in sent if message["type"] == "http.response.start"]
    assert statuses == len(PATHS) * [400]
    assert 'status="500"' not in figures
    assert [record for record in caplog.records if record.levelno > logging.INFO] == []
