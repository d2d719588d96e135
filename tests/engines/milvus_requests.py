"""Requests of a Milvus engine, counted or cut off."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from nearsure.engines.milvus import MilvusEngine
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
        if method in {"create_collection", "upsert", "delete", "drop_collection"}:
            if not left:
                raise EngineUnavailableError("The server went away.")
            left -= 1
        return ask(method, *arguments, **options)

    with mock.patch.object(engine._connection, "ask", failing):
        yield
