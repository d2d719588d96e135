"""Where the address comes from, and that its password is shown nowhere."""

import logging
from collections.abc import Iterator

import postgres_server
import pytest
from postgres_server import N_POINTS, PASSWORD, USER, Server, free_port
from psycopg.conninfo import conninfo_to_dict

from nearsure.engines.postgres import PostgresEngine
from nearsure.engines.postgres.pool import URI_VARIABLE, address_of
from nearsure.errors import (
    EngineError,
    GalleryNotFoundError,
    InvalidInputError,
)

server = postgres_server.server
engine = postgres_server.engine


def chain_of(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def test_secrets_are_shown_nowhere(
    server: Server,
    engine: PostgresEngine,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    secret = "hush-hush"  # noqa: S105 - it is nobody's
    monkeypatch.setenv("PGPASSWORD", secret)
    caplog.set_level(logging.DEBUG)
    there = f"127.0.0.1:{server.port}"
    shown = [repr(engine), str(engine), repr(engine._address), str(dict(engine.fingerprint()))]
    addresses = [
        f"postgresql://{USER}:{secret}@{there}/postgres",
        f"postgresql://{USER}@{there}/postgres?password={secret}",
        f"host=127.0.0.1 port={server.port} user={USER} password='{secret}' dbname=postgres",
        f"postgresql://{USER}@{there}/postgres",
        f"postgresql://{USER}:{secret}@127.0.0.1:{free_port()}/postgres",
        # Addresses that are not well formed: an @ and a : that were not encoded, an odd field.
        f"postgresql://{USER}:a@{secret}@{there}/postgres",
        f"postgresql://{USER}:{secret}@host:{secret}/postgres",
        f"postgresql://{USER}:{secret}%zz@{there}/postgres",
        f"postgres://{USER}:x@{there}/postgres?pasword={secret}",
        f"{USER}:{secret}@{there}",
        # A / that was not encoded: what is behind it would be the name of a database.
        f"postgresql://{USER}:123/{secret}@{there}/postgres",
        f"postgres://{USER}:123/a@{secret}@{there}/postgres",
        f"postgresql://{USER}/{secret}:x@{there}/postgres",
        f"postgresql://{USER}?password={secret}@{there}/postgres",
        f"dbname=postgresql://{USER}:{secret}@{there}/postgres",
    ]
    for address in addresses:
        for open_it in (PostgresEngine, lambda uri: PostgresEngine.create(uri, dimension=3)):
            with pytest.raises((EngineError, InvalidInputError)) as caught:
                open_it(address)
            shown += [f"{link!s} {link!r}" for link in chain_of(caught.value)]
    with pytest.raises(GalleryNotFoundError) as missing:
        PostgresEngine(server.uri, table="no such table")
    shown += [f"{link!s} {link!r}" for link in chain_of(missing.value)]
    shown.append(caplog.text)
    for text in shown:
        assert secret not in text
        assert PASSWORD not in text
        assert server.uri not in text


def test_address_from_the_environment(
    server: Server, engine: PostgresEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = engine._names.table
    monkeypatch.setenv(URI_VARIABLE, server.uri)
    with PostgresEngine(table=table) as other:
        assert other.size() == N_POINTS
        assert str(server.port) in repr(other)
    monkeypatch.delenv(URI_VARIABLE)
    for name, value in {
        "PGHOST": "127.0.0.1",
        "PGPORT": str(server.port),
        "PGUSER": USER,
        "PGPASSWORD": PASSWORD,
        "PGDATABASE": "postgres",
    }.items():
        monkeypatch.setenv(name, value)
    with PostgresEngine(table=table) as other:
        assert other.size() == N_POINTS
        assert "libpq" in repr(other)


def test_an_encoded_at_is_part_of_a_user() -> None:
    address = address_of("postgresql://ann%40home:s3%2Fcr%40et@db:5433/shop", timeout=5)
    parts = conninfo_to_dict(address.conninfo)
    assert (parts["user"], parts["password"], parts["dbname"]) == ("ann@home", "s3/cr@et", "shop")
    assert "s3" not in address.shown
