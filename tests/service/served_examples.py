"""Galleries and apps for the tests of the service, and what every refusal looks like."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import Any, Literal

import numpy as np
from starlette.testclient import TestClient

from nearsure.arrays import AnyArray, IntArray
from nearsure.encoders import Encoder
from nearsure.engines.contract import Engine
from nearsure.engines.sqlite import SqliteEngine
from nearsure.service import ServiceSettings, create_app

DIMENSION = 6
NAMES = np.array(["heron", "egret", "stork", "crane"])
LONGEST_WAIT = 20.0
# What no refusal may show.
INSIDE = ("Traceback", "site-packages", "nearsure/", ".py", "sqlite", "keeper", "dbname")


def clusters(n_each: int = 30, seed: int = 0) -> tuple[AnyArray, IntArray]:
    """Points of four classes that overlap a little: float32 vectors, codes."""
    rng = np.random.default_rng(seed)
    codes = np.repeat(np.arange(len(NAMES)), n_each)
    centres = np.random.default_rng(1).normal(size=(len(NAMES), DIMENSION)) * 1.5
    return (centres[codes] + rng.normal(size=(len(codes), DIMENSION))).astype(np.float32), codes


def sqlite_gallery(
    path: Path, n_each: int = 30, metric: Literal["euclidean", "cosine"] = "euclidean"
) -> Path:
    """A file with `clusters`, whose ids are p000, p001, ..."""
    vectors, codes = clusters(n_each)
    with SqliteEngine.create(path, DIMENSION, metric=metric) as engine:
        if n_each:
            engine.add(vectors, np.array([f"p{i:03}" for i in range(len(codes))]), NAMES[codes])
    return path


@contextmanager
def serving(
    gallery: Path | str = "given",
    *,
    engine: Engine | None = None,
    encoder: Encoder | None = None,
    **settings: Any,  # noqa: ANN401 - those of the service
) -> Iterator[TestClient]:
    """A client of an app that runs within the block."""
    app = create_app(ServiceSettings(str(gallery), **settings), engine=engine, encoder=encoder)
    with TestClient(app, base_url="http://localhost", raise_server_exceptions=True) as client:
        yield client


def refitted(client: TestClient) -> dict[str, Any]:
    """Ask for a fit, and wait until it has ended."""
    started = client.post("/v1/refit")
    assert started.status_code == 202, started.text
    deadline = monotonic() + LONGEST_WAIT
    while (state := client.get("/v1/refit").json())["state"] == "running":
        assert monotonic() < deadline
        sleep(0.02)
    outcome: dict[str, Any] = state
    return outcome


def document_at(client: TestClient, address: str) -> dict[str, Any]:
    """A document that is made in the background."""
    deadline = monotonic() + LONGEST_WAIT
    while (answer := client.get(address)).status_code == 202:
        assert answer.json() == {"status": "making"}
        assert int(answer.headers["retry-after"]) >= 1
        assert monotonic() < deadline
        sleep(0.02)
    assert answer.status_code == 200, answer.text
    document: dict[str, Any] = answer.json()
    return document


def refused(answer: Any, *statuses: int) -> dict[str, str]:  # noqa: ANN401
    """The problem of an answer, which tells nothing of the inside."""
    assert answer.status_code in statuses, answer.text
    assert answer.headers["content-type"] == "application/json"
    problem: dict[str, str] = answer.json()
    assert set(problem) == {"error", "message"}
    assert len(problem["message"]) < 1000
    for inside in INSIDE:
        assert inside not in answer.text
    return problem
