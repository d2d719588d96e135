"""What is read of an address, and that nothing of a password is ever shown."""

import traceback

import pytest

from nearsure.engines.milvus import MilvusEngine
from nearsure.engines.milvus.client import address_of
from nearsure.errors import EngineUnavailableError, InvalidInputError


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
