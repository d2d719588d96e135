"""Tokens: who may do what, and that nothing of a token is ever shown."""

import asyncio
import logging
from hashlib import sha256
from unittest.mock import patch

import pytest
from asgi_calls import Reply, answer_ok, call, echo, make_scope
from fastapi import FastAPI
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nearsure.errors import ConfigError
from nearsure.service import ServiceSettings
from nearsure.service.auth import (
    Authenticate,
    Rights,
    Tokens,
    bearer_digest,
    check_listening,
    is_loopback,
    may_read,
    may_write,
)
from nearsure.service.errors import ProblemError
from nearsure.service.middleware import Guarded, LocalOnly, Problems
from nearsure.service.telemetry import Measurements, RequestRecorder

READ, WRITE = "reads-0123456789abcdef", "writes-0123456789abcdef"
TOKENS = Tokens([READ, "another-read-token-0"], ["another-write-token", WRITE])


def shown(value: str) -> list[tuple[bytes, bytes]]:
    return [(b"authorization", value.encode("latin-1"))]


@pytest.mark.parametrize(
    ("value", "rights"),
    [
        (f"Bearer {READ}", Rights.READ),
        (f"bearer {WRITE}", Rights.WRITE),
        ("Bearer another-read-token-0", Rights.READ),
        ("BEARER another-write-token", Rights.WRITE),
    ],
)
def test_each_token_gives_its_rights(value: str, rights: Rights) -> None:
    assert TOKENS.rights(shown(value)) is rights


def test_a_token_of_both_kinds_may_write() -> None:
    assert Tokens([READ], [READ]).rights(shown(f"Bearer {READ}")) is Rights.WRITE


@pytest.mark.parametrize(
    ("headers", "message"),
    [
        ([], "needs a token"),
        ([*shown(f"Bearer {READ}"), *shown(f"Bearer {READ}")], "one Authorization header"),
        (shown(f"Basic {READ}"), "of the form Bearer TOKEN"),
        (shown(READ), "of the form Bearer TOKEN"),
        (shown(""), "of the form Bearer TOKEN"),
        (shown("Bearer"), "16 to 512 printable ASCII"),
        (shown("Bearer "), "16 to 512 printable ASCII"),
        (shown(f"Bearer  {READ}"), "16 to 512 printable ASCII"),
        (shown(f"Bearer {READ} "), "16 to 512 printable ASCII"),
        (shown(f"Bearer {READ[:15]}"), "16 to 512 printable ASCII"),
        (shown("Bearer " + 513 * "x"), "16 to 512 printable ASCII"),
        (shown("Bearer " + 10_000_000 * "x"), "16 to 512 printable ASCII"),
        (shown(f"Bearer {READ}\xe9"), "16 to 512 printable ASCII"),
        (shown(f"Bearer {READ}\x00"), "16 to 512 printable ASCII"),
        (shown(f"Bearer {READ[:-1]}"), "unknown"),
        (shown(f"Bearer {READ}f"), "unknown"),
        (shown(f"Bearer {READ.upper()}"), "unknown"),
        (shown(f"Bearer {sha256(READ.encode()).hexdigest()}"), "unknown"),
    ],
)
def test_whatever_is_no_known_token_is_turned_away(
    headers: list[tuple[bytes, bytes]], message: str
) -> None:
    with pytest.raises(ProblemError, match=message) as raised:
        TOKENS.rights(headers)
    assert raised.value.status == 401
    assert raised.value.error == "unauthorized"
    assert raised.value.headers == {"www-authenticate": "Bearer"}
    assert TOKENS.known_digest(headers) is None


COMPARE = "nearsure.service.auth.hmac.compare_digest"


def test_every_token_is_compared_whichever_matches() -> None:
    for token in (READ, WRITE, "no-such-token-at-all"):
        with patch("nearsure.service.auth.hmac.compare_digest", return_value=False) as compare:
            TOKENS.known_digest(shown(f"Bearer {token}"))
            assert compare.call_count == 4
        with patch("nearsure.service.auth.hmac.compare_digest", return_value=True) as compare:
            TOKENS.known_digest(shown(f"Bearer {token}"))
            assert compare.call_count == 4


def test_without_tokens_everybody_may_write() -> None:
    assert Tokens().rights([]) is Rights.WRITE
    assert Tokens().rights(shown("nonsense")) is Rights.WRITE
    assert not Tokens()
    assert Tokens(read=[READ])
    assert Tokens(write=[WRITE])


@pytest.mark.parametrize(
    "token", ["", "short", READ[:15], 513 * "x", "with some spaces in it", "nicht-ascii-äöüß-äöüß"]
)
def test_tokens_that_are_no_secrets_are_refused_at_the_start(token: str) -> None:
    with pytest.raises(ConfigError, match="must have 16 to 512 printable ASCII") as raised:
        Tokens(read=[READ, token])
    assert f"Got one of {len(token)} characters" in str(raised.value)
    if token:
        assert token not in str(raised.value)
        assert token not in repr(raised.value.__context__)


def test_nothing_of_a_token_can_be_shown(caplog: pytest.LogCaptureFixture) -> None:
    secrets = [READ, WRITE, sha256(READ.encode()).hexdigest(), repr(sha256(READ.encode()).digest())]
    texts = [repr(TOKENS), str(TOKENS)]
    for value in (f"Bearer {READ}x", f"Basic {READ}", f"Bearer {READ}\xe9"):
        with pytest.raises(ProblemError) as raised:
            TOKENS.rights(shown(value))
        texts += [str(raised.value), repr(raised.value), raised.value.body().decode()]
    app = RequestRecorder(Problems(Authenticate(echo, TOKENS)), Measurements())
    with caplog.at_level(logging.DEBUG):
        for token in (READ, WRITE, f"{READ}x"):
            asked = make_scope(headers=[("authorization", f"Bearer {token}")])
            reply = asyncio.run(call(app, asked))
            texts += [reply.body.decode(), repr(reply.headers)]
    assert "POST /v1/predict 401" in caplog.text
    for text in [*texts, caplog.text]:
        assert not any(secret in text for secret in secrets)


def test_strangers_are_turned_away_before_their_body_is_read() -> None:
    async def must_not_read() -> Message:
        raise AssertionError("the body was read")

    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    asyncio.run(Problems(Authenticate(echo, TOKENS))(make_scope(), must_not_read, send))
    assert sent[0]["status"] == 401


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/", 200),
        ("GET", "/healthz", 200),
        ("GET", "/readyz", 200),
        ("GET", "/assets/page.js", 200),
        ("OPTIONS", "/v1/predict", 200),
        ("GET", "/metrics", 401),
        ("GET", "/openapi.json", 401),
        ("GET", "/v1/items", 401),
        ("GET", "//v1/items", 401),
        ("GET", "/V1/items", 401),
        ("GET", "/assets", 401),
        ("GET", "/healthz/../v1/items", 401),
    ],
)
def test_only_what_holds_no_data_is_open(method: str, path: str, status: int) -> None:
    reply = asyncio.run(call(Problems(Authenticate(echo, TOKENS)), make_scope(method, path)))
    assert reply.status == status


def app_with_routes() -> FastAPI:
    app = FastAPI()
    app.add_middleware(Problems)

    @app.get("/v1/items", dependencies=[may_read])
    async def read() -> str:
        return "read"

    @app.post("/v1/items", dependencies=[may_write])
    async def write() -> str:
        return "written"

    return app


def ask(app: ASGIApp, method: str, token: str | None) -> Reply:
    headers = [] if token is None else [("authorization", f"Bearer {token}")]
    return asyncio.run(call(Problems(app), make_scope(method, "/v1/items", headers)))


def test_routes_that_no_rights_were_found_for_are_closed() -> None:
    assert {ask(app_with_routes(), "GET", token).status for token in (None, READ, WRITE)} == {403}


def test_routes_need_their_scope() -> None:
    asked = Authenticate(app_with_routes(), TOKENS)
    statuses = {
        (method, token): ask(asked, method, token).status
        for method in ("GET", "POST")
        for token in (None, READ, WRITE)
    }
    assert statuses == {
        ("GET", None): 401,
        ("GET", READ): 200,
        ("GET", WRITE): 200,
        ("POST", None): 401,
        ("POST", READ): 403,
        ("POST", WRITE): 200,
    }
    refused = ask(asked, "POST", READ)
    assert refused.headers["www-authenticate"] == 'Bearer error="insufficient_scope"'
    assert refused.json()["error"] == "forbidden"
    assert ask(asked, "GET", None).headers["www-authenticate"] == "Bearer"


def test_the_scheme_stands_in_the_openapi_document() -> None:
    document = app_with_routes().openapi()
    scheme = document["components"]["securitySchemes"]["token"]
    assert (scheme["type"], scheme["scheme"]) == ("http", "bearer")
    assert document["paths"]["/v1/items"]["post"]["security"] == [{"token": []}]


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST", "127.0.0.1", "127.8.8.8", "::1"])
def test_without_tokens_loopback_is_allowed(host: str) -> None:
    assert is_loopback(host)
    check_listening(host, Tokens())


@pytest.mark.parametrize(
    "host",
    ["0.0.0.0", "::", "", "192.168.1.2", "example.org", "localhost.example.org", "127.1"],  # noqa: S104 - it is refused
)
def test_without_tokens_no_other_host_is_allowed(host: str) -> None:
    with pytest.raises(ConfigError, match="Set a read or write token"):
        check_listening(host, Tokens())
    check_listening(host, TOKENS)


@pytest.mark.parametrize(
    ("method", "host", "origin", "status"),
    [
        ("POST", "localhost:8000", None, 200),
        ("POST", "127.0.0.1:8000", "http://127.0.0.1:8000", 200),
        ("POST", "[::1]:8000", "http://[::1]:8000", 200),
        ("POST", "localhost", "https://tools.example.org", 200),
        ("GET", "localhost", "https://evil.example.org", 200),
        ("POST", "localhost:8000", "https://evil.example.org", 403),
        ("DELETE", "localhost:8000", "http://localhost:9000", 403),
        ("POST", "localhost:8000", "null", 403),
        ("POST", "localhost:8000", "http://[", 403),
        ("POST", "localhost:8000", "http://[::1]]:x", 403),
        ("POST", "localhost:8000", "localhost:8000", 403),
        ("GET", "evil.example.org:8000", None, 403),
        ("GET", "localhost.evil.example.org", None, 403),
        ("GET", "localhost@evil.example.org", None, 403),
        ("GET", "", None, 403),
        ("GET", "[::1", None, 403),
    ],
)
def test_without_tokens_foreign_pages_are_refused(
    method: str, host: str, origin: str | None, status: int
) -> None:
    headers = [("host", host), *([("origin", origin)] if origin is not None else [])]
    app = Problems(LocalOnly(echo, origins=("https://tools.example.org",)))
    assert asyncio.run(call(app, make_scope(method, headers=headers))).status == status


@pytest.mark.parametrize("origin", ["*", "null"])
def test_without_tokens_pages_of_any_host_cannot_be_allowed(origin: str) -> None:
    origins = ("https://tools.example.org", origin)
    with pytest.raises(ConfigError, match="must name the pages that may call") as error:
        ServiceSettings("a.sqlite", cors_origins=origins)
    assert repr(origin) in str(error.value)
    ServiceSettings("a.sqlite", cors_origins=origins, read_tokens=(READ,))
    ServiceSettings("a.sqlite", cors_origins=origins, write_tokens=(WRITE,))


def test_a_digest_is_of_the_whole_token() -> None:
    assert bearer_digest(shown(f"Bearer {READ}")) == sha256(READ.encode()).digest()


def test_other_kinds_of_connections_pass() -> None:
    seen: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        del receive, send
        seen.append(scope["type"])

    async def nothing() -> Message:
        return {}

    async def nowhere(message: Message) -> None:
        await answer_ok(nowhere, repr(message).encode())

    guarded = Guarded(app, [LocalOnly, lambda inner: Authenticate(inner, TOKENS)])
    asyncio.run(guarded({"type": "lifespan"}, nothing, nowhere))
    assert seen == ["lifespan"]
