"""Who may read and who may write: bearer tokens, of which only digests are kept."""

import hmac
from collections.abc import Iterable
from enum import Enum
from hashlib import sha256
from ipaddress import ip_address
from typing import TypeAlias

from fastapi import Depends
from fastapi.openapi.models import HTTPBearer
from fastapi.security.base import SecurityBase
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from nearsure.errors import ConfigError
from nearsure.service.errors import ProblemError

SHORTEST_TOKEN, LONGEST_TOKEN = 16, 512
# Where the rights of a request stand in its ASGI scope.
RIGHTS = "nearsure.rights"
# They hold no data: the page asks for a token, and then shows it itself.
OPEN_PATHS = frozenset({"/", "/healthz", "/readyz"})
OPEN_FOLDER = "/assets/"

HeaderList: TypeAlias = Iterable[tuple[bytes, bytes]]


class Rights(Enum):
    """What the sender of a request may do."""

    NOTHING = 0
    READ = 1
    WRITE = 2


class Tokens:
    """The tokens of a service, kept as digests; nothing of them can be shown.

    Parameters
    ----------
    read : iterable of str
        Tokens that may ask.
    write : iterable of str
        Tokens that may ask and change.

    Raises
    ------
    ConfigError
        If a token is too short to be a secret, too long, or has characters that no header carries.

    Examples
    --------
    >>> tokens = Tokens(read=["a-long-read-token"], write=["a-long-write-token"])
    >>> tokens
    Tokens(1 read, 1 write)
    >>> tokens.rights([(b"authorization", b"Bearer a-long-read-token")])
    <Rights.READ: 1>
    >>> Tokens().rights([])
    <Rights.WRITE: 2>
    """

    def __init__(self, read: Iterable[str] = (), write: Iterable[str] = ()) -> None:
        self._read = [_digest_of(token, "read") for token in read]
        self._write = [_digest_of(token, "write") for token in write]

    def __repr__(self) -> str:
        return f"Tokens({len(self._read)} read, {len(self._write)} write)"

    def __bool__(self) -> bool:
        return bool(self._read or self._write)

    def rights(self, headers: HeaderList) -> Rights:
        """What a request with these headers may do; everything if there are no tokens.

        Raises
        ------
        ProblemError
            With status 401: no token, several, a malformed one, or one that is not known.
        """
        if not self:
            return Rights.WRITE
        rights = self._rights_of(bearer_digest(headers))
        if rights is Rights.NOTHING:
            raise _unauthorized("The token is unknown. Ask whoever runs the service for one.")
        return rights

    def known_digest(self, headers: HeaderList) -> bytes | None:
        """Digest of the request's token, if it is one of these."""
        try:
            digest = bearer_digest(headers) if self else None
        except ProblemError:
            return None
        if digest is None or self._rights_of(digest) is Rights.NOTHING:
            return None
        return digest

    def _rights_of(self, digest: bytes) -> Rights:
        # All are compared, also after a match, so that the time reveals nothing about any.
        reads = [hmac.compare_digest(digest, known) for known in self._read]
        writes = [hmac.compare_digest(digest, known) for known in self._write]
        if any(writes):
            return Rights.WRITE
        return Rights.READ if any(reads) else Rights.NOTHING


class Authenticate:
    """ASGI middleware that refuses requests without a token before their body is read.

    Everything but health, readiness, the page and its assets needs a token. The rights go into the
    scope, where `may_read` and `may_write` find them.
    """

    def __init__(self, app: ASGIApp, tokens: Tokens) -> None:
        self.app = app
        self.tokens = tokens

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Look at the token of a request."""
        if needs_token(scope):
            scope[RIGHTS] = self.tokens.rights(scope["headers"])
        await self.app(scope, receive, send)


def needs_token(scope: Scope) -> bool:
    """Whether a request needs a token."""
    # A browser asks whether it may ask (OPTIONS) without the token.
    return scope["method"] != "OPTIONS" and not is_open(scope["path"])


def is_open(path: str) -> bool:
    """Whether a path needs no token: health, readiness, the page and its assets."""
    return path in OPEN_PATHS or path.startswith(OPEN_FOLDER)


class _Needed(SecurityBase):
    """Dependency of a route: 403 without some rights. It stands in the OpenAPI document."""

    def __init__(self, needed: Rights) -> None:
        self.model = HTTPBearer(description="Authorization: Bearer TOKEN")
        self.scheme_name = "token"
        self._needed = needed

    # Not a plain function: FastAPI would run that in a thread.
    async def __call__(self, request: Request) -> None:
        """Pass if `Authenticate` has found rights that suffice."""
        if rights_of(request).value < self._needed.value:
            raise ProblemError(
                403,
                "forbidden",
                "This token may only read. Changes need a write token.",
                {"www-authenticate": 'Bearer error="insufficient_scope"'},
            )


may_read, may_write = Depends(_Needed(Rights.READ)), Depends(_Needed(Rights.WRITE))


def rights_of(request: Request) -> Rights:
    """What the sender of a request may do, as `Authenticate` has found it."""
    rights: Rights = request.scope.get(RIGHTS, Rights.NOTHING)
    return rights


def bearer_digest(headers: HeaderList) -> bytes:
    """Digest of the one token in ``Authorization: Bearer TOKEN``.

    Raises
    ------
    ProblemError
        With status 401, if there is not exactly one well-formed token.
    """
    values = [value for name, value in headers if name == b"authorization"]
    if not values:
        raise _unauthorized("This needs a token: Authorization: Bearer TOKEN.")
    if len(values) > 1:
        raise _unauthorized("There must be one Authorization header. Got several instead.")
    scheme, _, token = values[0].partition(b" ")
    if scheme.lower() != b"bearer":
        raise _unauthorized("The Authorization header must be of the form Bearer TOKEN.")
    if not _is_well_formed(token):
        raise _unauthorized(
            f"A token has {SHORTEST_TOKEN} to {LONGEST_TOKEN} printable ASCII characters without "
            "spaces. The one that was sent does not."
        )
    return sha256(token).digest()


def check_listening(host: str, tokens: Tokens) -> None:
    """Refuse to serve other machines without tokens.

    Raises
    ------
    ConfigError
        If there are no tokens and the host is not a loopback address.
    """
    if not tokens and not is_loopback(host):
        raise ConfigError(
            "Without tokens the service listens on this machine only: host must be 127.0.0.1, ::1 "
            f"or localhost. Got {host!r} instead. Set a read or write token to listen there."
        )


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a host of this name.

    Examples
    --------
    >>> [is_loopback(host) for host in ("localhost", "127.0.0.2", "::1", "0.0.0.0", "example.org")]
    [True, True, True, False, False]
    """
    if host.lower() == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _unauthorized(message: str) -> ProblemError:
    return ProblemError(401, "unauthorized", message, {"www-authenticate": "Bearer"})


def _digest_of(token: str, kind: str) -> bytes:
    try:
        encoded = token.encode("ascii")
    except UnicodeEncodeError:
        encoded = b""
    if not _is_well_formed(encoded):
        # The token itself is not shown: a short one may be a prefix of the secret.
        raise ConfigError(
            f"A {kind} token must have {SHORTEST_TOKEN} to {LONGEST_TOKEN} printable ASCII "
            f"characters without spaces. Got one of {len(token)} characters instead. Make one "
            'with: python -c "import secrets; print(secrets.token_urlsafe(32))"'
        ) from None
    return sha256(encoded).digest()


def _is_well_formed(token: bytes) -> bool:
    n_bytes = len(token)
    return SHORTEST_TOKEN <= n_bytes <= LONGEST_TOKEN and all(33 <= byte <= 126 for byte in token)  # noqa: PLR2004 - printable ASCII
