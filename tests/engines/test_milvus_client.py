"""Files and servers that cannot be used: which error, and no secret in it."""

import errno
import fcntl
import gc
import logging
import os
import re
import signal
import socket
import traceback
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from pymilvus import MilvusException

from nearsure.engines.milvus import MilvusEngine, client
from nearsure.engines.milvus.client import Connection, Failure, address_of, kind_of, nearsure_error
from nearsure.errors import (
    EngineAccessError,
    EngineError,
    EngineUnavailableError,
    GalleryMismatchError,
    GalleryNotFoundError,
    InvalidInputError,
)

grpc: Any = import_module("grpc")
VECTORS, IDS, LABELS = np.eye(3), np.arange(3), np.arange(3)


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[MilvusEngine]:
    engine = MilvusEngine.create(3, str(tmp_path / "gallery.db"), timeout=2)
    engine.add(VECTORS, IDS, LABELS)
    yield engine
    engine.close()


@pytest.fixture
def nobody() -> Iterator[int]:
    """A port where nobody listens."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    for make in (MilvusEngine, lambda uri: MilvusEngine.create(3, uri)):
        with pytest.raises(GalleryNotFoundError):
            make(str(tmp_path / "nowhere" / "gallery.db"))


def test_opening_makes_no_file(tmp_path: Path) -> None:
    with pytest.raises(GalleryNotFoundError):
        MilvusEngine(str(tmp_path / "gallery.db"))
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_written() -> None:
    # Not even the superuser makes a folder there.
    with pytest.raises(EngineAccessError, match=r"gallery\.db"):
        MilvusEngine.create(3, "/sys/gallery.db")


def test_a_file_that_is_none_of_milvus(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "notes.db"
    path.write_text("shopping list")
    with pytest.raises(GalleryMismatchError, match=r"notes\.db"):
        MilvusEngine(str(path))
    assert path.read_text() == "shopping list"
    assert capfd.readouterr().err == ""


def test_a_file_that_another_process_has_open(engine: MilvusEngine, tmp_path: Path) -> None:
    engine.close()
    path = tmp_path / "gallery.db"
    # Such a lock keeps out whoever opens the file anew, this process included.
    with (path / "LOCK").open("r+") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(EngineUnavailableError, match="another process"):
            MilvusEngine(str(path))
    again = MilvusEngine(str(path))
    assert again.size() == 3
    again.close()


def test_a_collection_that_was_dropped(engine: MilvusEngine) -> None:
    engine._connection.ask("drop_collection", "gallery")
    with pytest.raises(GalleryNotFoundError):
        engine.search(VECTORS, 1)


def test_a_collection_that_was_released_is_loaded_again(engine: MilvusEngine) -> None:
    engine._connection.ask("release_collection", "gallery")
    assert engine.search(VECTORS, 1).ids[:, 0].tolist() == [0, 1, 2]


class Answers:
    """A client that raises some errors before it answers."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.n_closed = 0

    def query(self, *_: Any, **__: Any) -> list[dict[str, int]]:  # noqa: ANN401
        if self.errors:
            raise self.errors.pop(0)
        return [{"count(*)": 5}]

    upsert = query

    def has_collection(self, *_: Any, **__: Any) -> bool:  # noqa: ANN401
        return False

    def close(self) -> None:
        self.n_closed += 1


class Status(grpc.RpcError):  # type: ignore[misc]
    def __init__(self, code: Any) -> None:  # noqa: ANN401
        self._code = code

    def code(self) -> Any:  # noqa: ANN401
        return self._code

    def details(self) -> str:
        return "token=hunter2 was bad"


GONE = MilvusException(2, "Fail connecting to server on localhost")
SLOW = Status(grpc.StatusCode.DEADLINE_EXCEEDED)
WAKING = MilvusException(503, "channel not available")


@pytest.mark.parametrize(
    ("errors", "n_clients"), [([GONE], 2), ([WAKING, WAKING], 1), ([GONE, WAKING], 2)]
)
def test_what_passes_is_waited_for(
    engine: MilvusEngine, errors: list[Exception], n_clients: int
) -> None:
    client = Answers(*errors)
    with (
        mock.patch.object(engine._connection, "_client", client),
        mock.patch.object(engine._connection, "_new_client", return_value=client),
    ):
        assert engine.size() == 5
    assert client.n_closed == n_clients - 1


@pytest.mark.parametrize("errors", [[GONE, GONE], [SLOW]])
def test_what_lasts_is_an_error(engine: MilvusEngine, errors: list[Exception]) -> None:
    client = Answers(*errors)
    with (
        mock.patch.object(engine._connection, "_client", client),
        mock.patch.object(engine._connection, "_new_client", return_value=client),
        pytest.raises(EngineUnavailableError),
    ):
        engine.size()
    assert not client.errors


@pytest.mark.parametrize("errors", [[GONE, GONE], [SLOW]])
def test_a_change_whose_answer_did_not_come(engine: MilvusEngine, errors: list[Exception]) -> None:
    client = Answers(*errors)
    with (
        mock.patch.object(engine._connection, "_client", client),
        mock.patch.object(engine._connection, "_new_client", return_value=client),
        pytest.raises(EngineUnavailableError, match=r"unknown.*size\(\)") as raised,
    ):
        engine._points._upsert([])
    assert "sk again" not in str(raised.value)


def test_a_change_after_which_nobody_is_there(engine: MilvusEngine, nobody: int) -> None:
    """It may have been made before the server went; one that was never sent was not."""
    elsewhere = Connection(address_of(str(engine._connection._address.shown)), 1, may_create=False)
    gone = nearsure_error(Failure.GONE, f"Milvus at {nobody}", "refused.")
    with mock.patch.object(elsewhere, "_new_client", side_effect=gone):
        with (
            mock.patch.object(elsewhere, "_client", Answers(GONE)),
            pytest.raises(EngineUnavailableError, match="unknown"),
        ):
            elsewhere.ask("upsert", "gallery", [])
        with (
            mock.patch.object(elsewhere, "_client", None),
            pytest.raises(EngineUnavailableError) as raised,
        ):
            elsewhere.ask("upsert", "gallery", [])
    assert "unknown" not in str(raised.value)
    elsewhere.close()


@pytest.mark.parametrize(
    ("error", "failure"),
    [
        (MilvusException(100, "collection not found[collection=x]"), Failure.MISSING),
        (MilvusException(101, "collection not loaded"), Failure.RELEASED),
        (MilvusException(1401, "permission deny"), Failure.REFUSED),
        (MilvusException(65535, "Milvus Proxy is not ready yet. please wait"), Failure.WAKING),
        (MilvusException(1, "no idea"), Failure.OTHER),
        (MilvusException(1100, "invalid parameter"), Failure.OTHER),
        (MilvusException(grpc.StatusCode.UNAVAILABLE, "Retry run out"), Failure.GONE),
        (Status(grpc.StatusCode.UNAUTHENTICATED), Failure.REFUSED),
        (Status(grpc.StatusCode.RESOURCE_EXHAUSTED), Failure.TOO_LARGE),
        (Status(grpc.StatusCode.UNKNOWN), Failure.OTHER),
        (MilvusException(8, "request is rejected by grpc RateLimiter"), Failure.WAKING),
        (MilvusException(1, "results exceed the maxOutputSize Limit"), Failure.TOO_LARGE),
    ],
)
def test_what_errors_mean(error: Exception, failure: Failure) -> None:
    assert kind_of(error) is failure


@pytest.mark.parametrize("in_uri", [True, False])
def test_a_server_that_is_not_there_and_no_secret(
    nobody: int, capfd: pytest.CaptureFixture[str], *, in_uri: bool
) -> None:
    records: list[str] = []

    class Listening(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            records.append(self.format(record))

    loggers = [logging.getLogger(name) for name in (None, "pymilvus", "grpc")]
    levels = [logger.level for logger in loggers]
    listening = Listening()
    for logger in loggers:
        logger.addHandler(listening)
        logger.setLevel(logging.DEBUG)
    user_info, token = ("ann:hunter2@", None) if in_uri else ("", "ann:hunter2")
    try:
        with pytest.raises(EngineUnavailableError, match=f"127.0.0.1:{nobody}") as raised:
            MilvusEngine(f"http://{user_info}127.0.0.1:{nobody}", token=token)
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.removeHandler(listening)
            logger.setLevel(level)
    assert raised.value.__context__ is None
    said = "".join(traceback.format_exception(raised.value))
    output = capfd.readouterr()
    for text in (said, *records, output.out, output.err):
        assert "hunter2" not in text
        assert "YW5uOmh1bnRlcjI" not in text  # the same as it travels
    assert not [record for record in records if "Traceback" in record]


def test_secrets_that_a_server_quotes(tmp_path: Path) -> None:
    token = "ann:hunter2"  # noqa: S105
    engine = MilvusEngine.create(3, str(tmp_path / "gallery.db"), token=token)
    client = Answers(MilvusException(65535, "bad ann:hunter2, or hunter2, or token=abc"))
    with (
        mock.patch.object(engine._connection, "_client", client),
        pytest.raises(EngineError) as raised,
    ):
        engine.size()
    assert "***" in str(raised.value)
    assert "hunter2" not in str(raised.value) + repr(engine) + repr(engine._connection)
    assert "abc" not in str(raised.value)
    engine.close()


# What is read of an address, and that nothing of a password is ever shown.


@pytest.mark.parametrize(
    "uri",
    [
        "wilma:hunter2@db:19530",
        "wilma:hunter2@my.db",
        "hunter2@my.db",
        "wilma:x/hunter2@my.db",
        "http:wilma:hunter2@db:19530",
        "http://wilma:hun/ter2@db:19530",
        "http://wilma:12/hunter2@db:19530",
        "http://wilma:12#hunter2@db:19530",
        "http://wilma:12?hunter2@db:19530",
        "http://wilma:hunter2@db:port",
        "http://wilma:hunter2@db:99999",
        "http://wilma:hunter2@[::1:19530",
        "http://wilma:hun[ter2@db:19530",
        "http://wilma:hunter2@",
        "http://wilma:hunter2@db:19530/gallery.db",
        "milvus://wilma:hunter2@db:19530",
        "wilma:hunter2://db:19530",
        "hunter2",
    ],
)
@pytest.mark.parametrize("make", [MilvusEngine, lambda uri: MilvusEngine.create(3, uri)])
def test_an_address_that_cannot_be_read_is_not_shown(
    uri: str, make: type[MilvusEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InvalidInputError, match="uri must be") as raised:
        make(uri)
    said = "".join(traceback.format_exception(raised.value, chain=True)[-1:])
    assert raised.value.__context__ is None
    for part in ("hunter2", "ter2", "hun[", "wilma", "19530"):
        assert part not in said
    monkeypatch.setenv("NEARSURE_MILVUS_URI", uri)
    with pytest.raises(InvalidInputError, match="uri must be"):
        MilvusEngine()


@pytest.mark.parametrize(
    ("uri", "shown", "token"),
    [
        ("http://db:19530", "http://db:19530", ""),
        ("HTTPS://db/shop", "https://db/shop", ""),
        ("http://[::1]:19530", "http://[::1]:19530", ""),
        ("https://ann:s3cret@db:19530/shop?x=1", "https://db:19530/shop", "ann:s3cret"),
        ("https://key@db", "https://db", "key"),
        ("http://ann:p@ss@db:1", "http://db:1", "ann:p@ss"),
    ],
)
def test_servers(uri: str, shown: str, token: str) -> None:
    address = address_of(uri)
    assert (address.shown, address.token, address.is_file) == (shown, token, False)
    assert address_of(uri, "other").token == "other"  # noqa: S105
    assert not token or token not in repr(address)


@pytest.mark.parametrize("path", ["gallery.db", "/data/ann@work/gallery.db", "./ann@work.db"])
def test_paths(path: str) -> None:
    address = address_of(path)
    assert (address.shown, address.is_file, address.secrets) == (path, True, ())


def test_all_forms_of_a_token_are_secret() -> None:
    assert set(address_of("http://db:1", "ann:hunter2").secrets) == {
        "ann:hunter2",
        "hunter2",
        "YW5uOmh1bnRlcjI=",
    }


def test_a_token_travels_apart_from_the_address() -> None:
    with pytest.raises(EngineUnavailableError) as raised:
        MilvusEngine("http://wilma:p@ss%2Fword@127.0.0.1:1", timeout=1)
    assert "127.0.0.1:1 " in str(raised.value)
    for part in ("p@ss", "word", "wilma"):
        assert part not in str(raised.value)


# Engines while they are open: forks, full disks, slow indexes, and how they are given back.


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "gallery.db")


def test_a_closed_engine(engine: MilvusEngine) -> None:
    engine.close()
    with pytest.raises(EngineError, match="closed"):
        engine.size()


def test_no_file_is_left_open(engine: MilvusEngine, tmp_path: Path) -> None:
    engine.close()
    held = [fd.readlink() for fd in Path("/proc/self/fd").iterdir() if fd.exists()]
    assert not [path for path in held if path.is_relative_to(tmp_path)]


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.EROFS, EngineAccessError),
        (errno.EACCES, EngineAccessError),
        (errno.ENOSPC, EngineError),
    ],
)
def test_a_disk_that_takes_nothing_more(
    engine: MilvusEngine, number: int, kind: type[EngineError]
) -> None:
    """Reads go on; once the disk is mended, writes do."""
    log = import_module("milvus_lite.storage.wal").WAL
    changes: list[Callable[[], None]] = [
        lambda: engine.add(VECTORS + 1, IDS + 10, LABELS),
        lambda: engine.relabel(IDS[:1], LABELS[1:2]),
        lambda: engine.remove(IDS[:1]),
    ]
    failing = mock.Mock(side_effect=OSError(number, os.strerror(number)))
    with (
        mock.patch.object(log, "write_insert", failing),
        mock.patch.object(log, "write_delete", failing),
    ):
        for change in changes:
            with pytest.raises(kind, match=re.escape(os.strerror(number))) as raised:
                change()
            assert type(raised.value) is kind
        assert engine.size() == 3
        assert engine.search(VECTORS, 5).counts.tolist() == [3, 3, 3]
    engine.add(VECTORS + 1, IDS + 10, LABELS)
    assert engine.size() == 6


def test_a_fork_leaves_the_engine_to_the_parent(engine: MilvusEngine) -> None:
    uses: list[Callable[[], object]] = [
        engine.size,
        lambda: engine.add(VECTORS + 1, IDS + 10, LABELS),
        lambda: list(engine.scan()),
    ]
    child = os.fork()
    if not child:
        signal.alarm(20)
        n_refused = 0
        for use in uses:
            try:
                use()
            except EngineError as error:
                n_refused += "forked" in str(error)
        engine.close()
        os._exit(n_refused)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == len(uses)
    engine.add(VECTORS + 1, IDS + 10, LABELS)
    assert engine.size() == 6


@pytest.mark.parametrize("n_looks", [3, None])
def test_an_index_is_waited_for(engine: MilvusEngine, n_looks: int | None) -> None:
    """Not for ever; and the points are there all the same."""
    n_looked = 0
    ask = engine._connection.ask

    def answering(method: str, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401
        nonlocal n_looked
        if method != "describe_index":
            return ask(method, *arguments, **options)
        n_looked += 1
        return {"state": "Finished", "pending_index_rows": 0 if n_looked == n_looks else 5}

    with (
        mock.patch.object(engine._connection, "ask", answering),
        mock.patch.object(engine._connection, "timeout", 0.3),
    ):
        if n_looks is None:
            with pytest.raises(EngineUnavailableError, match=r"5 rows.*finish_index"):
                engine.finish_index()
        else:
            engine.finish_index()
            assert n_looked == n_looks
    assert engine.size() == 3


def test_two_engines_on_one_file(path: str) -> None:
    with MilvusEngine.create(3, path) as one:
        other = MilvusEngine(path)
        one.add(VECTORS, IDS, LABELS)
    with pytest.raises(EngineError, match="closed"):
        one.size()
    assert other.size() == 3
    other.close()


def test_a_forgotten_engine_gives_its_file_back(path: str) -> None:
    engine = MilvusEngine.create(3, path)
    assert Path(path) in client._open_files
    del engine
    gc.collect()
    assert Path(path) not in client._open_files
