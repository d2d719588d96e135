"""Tokens of the service: from the environment or a file, never from what is typed."""

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from nearsure.cli.saying import tell
from nearsure.errors import ConfigError

READ_VARIABLE, WRITE_VARIABLE = "NEARSURE_READ_TOKENS", "NEARSURE_WRITE_TOKENS"
SCOPES = ("read", "write")
OTHERS_MAY_READ = 0o077
MAKE_ONE = 'make one with: python -c "import secrets; print(secrets.token_urlsafe(32))"'


@dataclass(frozen=True)
class GivenTokens:
    """Who may ask, and who may change anything."""

    read: tuple[str, ...] = field(default=(), repr=False)
    write: tuple[str, ...] = field(default=(), repr=False)


def given_tokens(file: Path | None, environment: Mapping[str, str] = os.environ) -> GivenTokens:
    """The tokens of the environment and of a file together.

    Parameters
    ----------
    file : path or None
        TOML: ``read = ["..."]`` and ``write = ["..."]``, or either.
    environment : mapping
        ``NEARSURE_READ_TOKENS`` and ``NEARSURE_WRITE_TOKENS``, separated by commas.

    Raises
    ------
    ConfigError
        If the file, or a variable that is set, holds no token.

    Examples
    --------
    >>> given_tokens(None, {"NEARSURE_READ_TOKENS": "one, two"}).read
    ('one', 'two')
    """
    of_file = {} if file is None else _in_file(file)
    return GivenTokens(
        read=(*_listed(READ_VARIABLE, environment), *of_file.get("read", ())),
        write=(*_listed(WRITE_VARIABLE, environment), *of_file.get("write", ())),
    )


def _listed(name: str, environment: Mapping[str, str]) -> tuple[str, ...]:
    if name not in environment:
        return ()
    tokens = tuple(token.strip() for token in environment[name].split(",") if token.strip())
    if not tokens:
        # Whoever sets it wants tokens, and would be served without.
        raise ConfigError(
            f"{name} must hold tokens, separated by commas. It is empty: {MAKE_ONE}, or unset it."
        )
    return tokens


def _in_file(path: Path) -> dict[str, tuple[str, ...]]:
    try:
        stored = tomllib.loads(path.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        # Not what is wrong with it: that may quote a token.
        raise ConfigError(
            f'{path} must be TOML, such as read = ["..."] and write = ["..."]. It is not.'
        ) from error
    for name, tokens in stored.items():
        are_tokens = isinstance(tokens, list) and all(
            isinstance(token, str) and token.strip() for token in tokens
        )
        if name not in SCOPES or not are_tokens:
            raise ConfigError(
                f"{path} must hold lists of tokens called read and write, and nothing else."
            )
    if not any(stored.values()):
        raise ConfigError(f"{path} must hold a token, as read or write. It holds none: {MAKE_ONE}.")
    if path.stat().st_mode & OTHERS_MAY_READ:
        tell(f"warning: others may read the tokens in {path}: chmod 600 {path}")
    return {name: tuple(token.strip() for token in tokens) for name, tokens in stored.items()}
