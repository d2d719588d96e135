"""Clients that leave in the middle: no failure of the service, and none in its log."""

import asyncio
import logging
from pathlib import Path

import pytest
from asgi_calls import make_scope
from served_examples import serving, sqlite_gallery
from starlette.types import Message

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
