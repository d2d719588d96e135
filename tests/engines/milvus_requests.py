"""Requests of a Milvus engine, counted or cut off."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from nearsure.engines.milvus import MilvusEngine
from nearsure.engines.milvus.client import TooLargeError
from nearsure.errors import EngineUnavailableError


@contextmanager
def recorded(engine: MilvusEngine) -> Iterator[list[tuple[str, dict[str, Any]]]]:
    """List the methods that are asked for, with their options."""
    requests: list[tuple[str, dict[str, Any]]] = []
    ask = engine._connection.ask

    def recording(method: str, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401
        requests.append((method, options))
        return ask(method, *arguments, **options)

    with mock.patch.object(engine._connection, "ask", recording):
        yield requests


@contextmanager
def cut_off(engine: MilvusEngine, after: int) -> Iterator[None]:
    """Let so many changing requests through, and no more."""
    left = after
    ask = engine._connection.ask

    def failing(method: str, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401
        nonlocal left
        if method in {"upsert", "delete"}:
            if not left:
                raise EngineUnavailableError("The server went away.")
            left -= 1
        return ask(method, *arguments, **options)

    with mock.patch.object(engine._connection, "ask", failing):
        yield


@contextmanager
def limited(engine: MilvusEngine, *, upserted: int, read: int | None = None) -> Iterator[None]:
    """Refuse more rows of the gallery at once, written or read, as a server does."""
    ask = engine._connection.ask

    def limiting(method: str, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401
        of_gallery = arguments[:1] == (engine._points.name,)
        if of_gallery and method == "upsert" and len(arguments[1]) > upserted:
            raise TooLargeError("The message is too large.")
        answer = ask(method, *arguments, **options)
        is_whole = options.get("output_fields") == ["*"]
        if of_gallery and is_whole and read is not None and len(answer) > read:
            raise TooLargeError("The answer is too large.")
        return answer

    with mock.patch.object(engine._connection, "ask", limiting):
        yield
