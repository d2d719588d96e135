"""A table of PostgreSQL behind the service, and a server that dies while it is asked."""

import sys
from collections.abc import Iterator
from pathlib import Path
from time import monotonic, sleep

import numpy as np
import pytest
from served_examples import DIMENSION, NAMES, clusters, document_at, refitted, refused, serving
from starlette.testclient import TestClient

from nearsure.engines.postgres import PostgresEngine
from nearsure.service import service

sys.path.append(str(Path(__file__).parents[1] / "engines"))
from postgres_server import PASSWORD, Server

FAR = [40.0] * DIMENSION


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.remove()


def check_unready(client: TestClient) -> None:
    answer = client.get("/readyz")
    assert (answer.status_code, answer.json()["status"]) == (503, "unavailable")
    assert PASSWORD not in answer.text
    assert "127.0.0.1" not in answer.text


def test_a_table_is_served_and_found_again(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Whether it is ready is looked at each time.
    monkeypatch.setattr(service, "FRESH_SECONDS", 0.0)
    vectors, codes = clusters(8)
    table = server.new_name()
    with PostgresEngine.create(
        server.uri, dimension=DIMENSION, table=table, label_kind="text"
    ) as engine:
        engine.add(vectors, np.arange(len(codes)), NAMES[codes])
    options = {"table": table, "timeout": 2}
    model = tmp_path / "fit"
    with serving(server.uri, engine_options=options, model=model) as client:
        about = client.get("/v1/model")
        assert about.json()["engine"]["engine"] == "postgres"
        assert PASSWORD not in about.text
        assert "127.0.0.1" not in about.text
        new = [{"label": "ibis", "vector": FAR}] * 2
        assert client.post("/v1/items", json={"items": new}).json() == {"ids": [32, 33]}
        assert client.post("/v1/predict", json={"vector": FAR}).json()["label"] == "ibis"
        assert client.patch("/v1/items/32", json={"label": "kiwi"}).json() == {"changed": 1}
        assert refitted(client) == {"state": "idle", "model": 2, "message": None}
        assert client.post("/v1/items/remove", json={"ids": ["0", "1"]}).json() == {"changed": 2}

        assert client.get("/readyz").json() == {"status": "ok"}
        server.kill()
        for method, address, body in (
            ("POST", "/v1/predict", {"vector": FAR}),
            ("POST", "/v1/predict", {"item": "7"}),
            ("POST", "/v1/items", {"items": new}),
            ("PATCH", "/v1/items/7", {"label": "kiwi"}),
            ("GET", "/v1/items", None),
            ("POST", "/v1/refit", None),
        ):
            answer = client.request(method, address, json=body)
            assert refused(answer, 503)["error"] == "engine_unavailable"
            assert answer.headers["retry-after"] == "1"
        assert client.get("/healthz").status_code == 200
        check_unready(client)
        # The figures are there, though one of them is not.
        assert "nearsure_gallery_items NaN" in client.get("/metrics").text
        client.get("/v1/audit")
        deadline = monotonic() + 20
        while (audit := client.get("/v1/audit")).status_code == 202:
            assert monotonic() < deadline
            sleep(0.02)
        refused(audit, 503)

        server.start()
        deadline = monotonic() + 20
        while client.get("/readyz").status_code == 503:
            assert monotonic() < deadline
            sleep(0.1)
        answer = client.post("/v1/predict", json={"vector": FAR, "neighbors": 2}).json()
        assert sorted(one["label"] for one in answer["neighbors"]) == ["ibis", "kiwi"]
        assert client.post("/v1/items", json={"items": new}).json() == {"ids": [34, 35]}
        deadline = monotonic() + 20
        while client.get("/v1/audit").status_code == 503:
            assert monotonic() < deadline
            sleep(0.1)
        assert document_at(client, "/v1/audit")["n_points"] == 34
        before = client.get("/v1/model").json()
        assert (before["model"], before["size"], before["n_classes"]) == (2, 34, 6)

    with serving(server.uri, engine_options=options, model=model) as client:
        assert client.get("/v1/model").json() == before
        assert client.get("/v1/items/32").json()["label"] == "kiwi"


@pytest.mark.parametrize(
    ("statements", "reason"),
    [
        (("TRUNCATE {}",), "must hold points to be answered from"),
        (
            ("ALTER TABLE {} ALTER COLUMN label DROP NOT NULL", "UPDATE {} SET label = NULL"),
            "Every point must have a value in the column 'label'",
        ),
    ],
    ids=["truncated", "without labels"],
)
def test_what_others_do_to_a_table_is_not_blamed_on_the_client(
    server: Server,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    statements: tuple[str, ...],
    reason: str,
) -> None:
    vectors, codes = clusters(8)
    table = server.new_name()
    with PostgresEngine.create(
        server.uri, dimension=DIMENSION, table=table, label_kind="text"
    ) as engine:
        engine.add(vectors, np.arange(len(codes)), NAMES[codes])
    with serving(server.uri, engine_options={"table": table}, model=tmp_path / "fit") as client:
        assert client.post("/v1/predict", json={"vector": FAR}).status_code == 200
        server.run(*(statement.format(table) for statement in statements))
        answer = client.post("/v1/predict", json={"vector": FAR})
        assert refused(answer, 503)["error"] == "engine_unavailable"
        assert reason in caplog.text
