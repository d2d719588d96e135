"""Tables that users made: what is accepted, what is read, and what is refused with a remedy."""

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import numpy as np
import postgres_server
import psycopg
import pytest
from postgres_server import USER, Server

from nearsure.engines.postgres import PostgresEngine
from nearsure.errors import (
    GalleryMismatchError,
    GalleryNotFoundError,
    InvalidInputError,
    UnusableGalleryError,
)

server = postgres_server.server

ROWS = "VALUES (3, 'b', '[0,0,1]'), (1, 'a', '[0,1,0]'), (2, 'a', '[2,0,0]')"


@pytest.fixture
def shop(server: Server) -> Iterator[Server]:
    server.run(f"CREATE SCHEMA shop AUTHORIZATION {USER}")
    yield server
    server.run("DROP SCHEMA shop CASCADE")


def make(shop: Server, columns: str, rows: str | None = ROWS) -> None:
    """A table shop.items that the user owns."""
    shop.run(
        f"CREATE TABLE shop.items ({columns})",
        f"ALTER TABLE shop.items OWNER TO {USER}",
        *([] if rows is None else ["INSERT INTO shop.items (id, label, embedding) " + rows]),
    )


def opened(shop: Server, **options: Any) -> PostgresEngine:  # noqa: ANN401
    return PostgresEngine(shop.uri, **{"table": "shop.items", **options})


def check_is_gallery(engine: PostgresEngine) -> None:
    """Every method works on the three rows, and on one more."""
    held = engine.capabilities.holds_labels
    found = engine.search(np.array([[0.0, 0.9, 0.0]]), 3)
    assert found.ids.tolist() == [[1, 3, 2]]
    np.testing.assert_allclose(found.sq_distances, [[0.01, 1.81, 4.81]], rtol=1e-6)
    assert (found.labels is not None) == held
    if found.labels is not None:
        assert found.labels.tolist() == [["a", "b", "a"]]
    engine.add(np.array([[5.0, 5.0, 5.0]]), np.array([9]), np.array(["c"]) if held else None)
    if held:
        engine.relabel(np.array([9, 1]), np.array(["d", "e"]))
    assert [portion.ids.tolist() for portion in engine.scan()] == [[1, 2, 3, 9]]
    stored = engine.fetch(np.array([9, 1]))
    assert stored.vectors is not None
    assert stored.vectors.tolist() == [[5, 5, 5], [0, 1, 0]]
    assert stored.labels is None or stored.labels.tolist() == ["d", "e"]
    engine.remove(np.array([9]))
    if held:
        engine.relabel(np.array([1]), np.array(["a"]))
    assert engine.size() == 3


@pytest.mark.parametrize(
    "columns",
    [
        "id int PRIMARY KEY, label text, embedding vector(3)",
        "id smallint PRIMARY KEY, label varchar(5) NOT NULL, embedding vector",
        "id bigint NOT NULL UNIQUE, label text, embedding halfvec(3), price int DEFAULT 7",
    ],
)
def test_columns_of_many_types(shop: Server, columns: str) -> None:
    make(shop, columns)
    with opened(shop) as engine:
        check_is_gallery(engine)


@pytest.mark.parametrize("index", ["exact", "hnsw"])
@pytest.mark.parametrize("refine", [True, False])
@pytest.mark.parametrize(
    ("table", "columns"),
    [
        ("given", ("given", "hits", "vector")),
        ("nearsure_query", ("nearsure_query", "number", "nearsure_points")),
        ("nearsure_points", ("nearsure distance", "nearsure_label", "nearsure_id")),
        ("nearest", ("nearsure_id", "nearsure distance", "nearsure_label")),
        ("taken", ("nearsure_label", "nearsure_id", "nearsure distance")),
    ],
)
def test_names_that_statements_use_themselves(
    shop: Server, table: str, columns: tuple[str, str, str], index: str, *, refine: bool
) -> None:
    own_id, label, vector = columns
    shop.run(
        f'CREATE TABLE shop."{table}" '
        f'("{own_id}" int PRIMARY KEY, "{label}" text, "{vector}" vector(3))',
        f'ALTER TABLE shop."{table}" OWNER TO {USER}',
        f'CREATE INDEX ON shop."{table}" USING hnsw ("{vector}" vector_l2_ops)',
        f'INSERT INTO shop."{table}" ("{own_id}", "{label}", "{vector}") {ROWS}',
    )
    names = {"id_column": own_id, "label_column": label, "vector_column": vector}
    with opened(shop, table=f"shop.{table}", index=index, refine=refine, **names) as engine:
        check_is_gallery(engine)


@pytest.mark.parametrize("name", ["a\0b", "a\ud800"])
def test_names_that_no_table_has(server: Server, name: str) -> None:
    for parameter in ("table", "id_column", "label_column", "vector_column"):
        with pytest.raises(InvalidInputError, match="Names of tables and columns"):
            PostgresEngine(server.uri, **{"table": "gallery", parameter: name})  # type: ignore[arg-type]


def test_names_are_quoted(shop: Server) -> None:
    table = 'It"ems; DROP TABLE x; --'
    shop.run(
        'CREATE TABLE shop."It""ems; DROP TABLE x; --" ("the id" bigint PRIMARY KEY, '
        '"distance" text, "Vector ""v""" vector(3))',
        f'ALTER TABLE shop."It""ems; DROP TABLE x; --" OWNER TO {USER}',
        'INSERT INTO shop."It""ems; DROP TABLE x; --" ' + ROWS,
    )
    names = {"id_column": "the id", "label_column": "distance", "vector_column": 'Vector "v"'}
    with opened(shop, table=f"shop.{table}", **names) as engine:
        check_is_gallery(engine)
        engine.create_index("hnsw")
    with opened(shop, table=f"shop.{table}", index="hnsw", **names) as engine:
        check_is_gallery(engine)
    with pytest.raises(InvalidInputError, match="%"):
        opened(shop, id_column="50%")


def test_without_labels(shop: Server) -> None:
    make(shop, "id bigint PRIMARY KEY, label text, embedding vector(3)")
    with opened(shop, label_column=None) as engine:
        check_is_gallery(engine)
        with pytest.raises(InvalidInputError):
            engine.relabel(np.array([1]), np.array(["a"]))


def test_uuids_are_text(shop: Server) -> None:
    ids = [str(UUID(int=7 * 10**30 + i)) for i in (5, 1, 3)]
    make(shop, "id uuid PRIMARY KEY, embedding vector(2)", None)
    with opened(shop, label_column=None) as engine:
        engine.add(np.array([[0.0, 0.0], [0.0, 1.0], [0.0, 0.0]]), np.array(ids))
        assert engine.search(np.zeros((1, 2)), 2).ids.tolist() == [[ids[2], ids[0]]]
        assert [portion.ids.tolist() for portion in engine.scan()] == [sorted(ids)]
        for unknown in ("no uuid", ids[0].upper() + "a", str(UUID(int=9))):
            with pytest.raises(InvalidInputError):
                engine.fetch(np.array([ids[0], unknown]))
            with pytest.raises(InvalidInputError):
                engine.remove(np.array([ids[0], unknown]))
        engine.remove(np.array(ids[:1]))
        assert engine.size() == 2


def test_text_in_a_language_is_scanned_as_python_sorts(shop: Server) -> None:
    collation = shop.run(
        "SELECT collname FROM pg_collation WHERE collname IN ('en-x-icu', 'unicode', 'ucs_basic') "
        "ORDER BY collname LIMIT 1"
    )[0][0]
    make(shop, f'id text COLLATE "{collation}" PRIMARY KEY, embedding vector(1)', None)
    ids = np.array(["b", "B", "a", "_", "ä", "Z", "é", "z"])
    with opened(shop, label_column=None) as engine:
        engine.add(np.ones((len(ids), 1)), ids)
        assert [portion.ids.tolist() for portion in engine.scan()] == [sorted(ids.tolist())]
        assert engine.search(np.ones((1, 1)), 4).ids[0].tolist() == sorted(ids.tolist())[:4]


def test_rows_without_a_vector_are_no_points(shop: Server) -> None:
    make(shop, "id bigint PRIMARY KEY, label text, embedding vector(3)")
    shop.run("INSERT INTO shop.items VALUES (7, 'x', NULL)")
    with opened(shop) as engine:
        check_is_gallery(engine)
        with pytest.raises(InvalidInputError):
            engine.fetch(np.array([7]))
        with pytest.raises(InvalidInputError):
            engine.remove(np.array([7]))
        with pytest.raises(InvalidInputError, match="7"):
            engine.add(np.ones((1, 3)), np.array([7]), np.array(["a"]))


@pytest.mark.parametrize("kind", ["text", "bigint"])
def test_rows_without_a_label_are_an_error(shop: Server, kind: str) -> None:
    make(shop, f"id bigint PRIMARY KEY, label {kind}, embedding vector(3)", None)
    shop.run("INSERT INTO shop.items VALUES (1, '1', '[1,1,1]'), (2, NULL, '[1,1,0]')")
    with opened(shop) as engine:
        for call in (
            lambda: engine.search(np.ones((1, 3)), 2),
            lambda: list(engine.scan()),
            lambda: engine.fetch(np.array([1, 2])),
        ):
            with pytest.raises(UnusableGalleryError, match=r"column 'label'.* label_column=None"):
                call()


def test_what_a_column_cannot_hold(shop: Server) -> None:
    make(shop, "id int PRIMARY KEY, label smallint, embedding halfvec(3)", None)
    with opened(shop) as engine:
        one, label = np.ones((1, 3)), np.array([1])
        with pytest.raises(InvalidInputError, match="int4"):
            engine.add(one, np.array([2**31]), label)
        with pytest.raises(InvalidInputError, match="int2"):
            engine.add(one, np.array([1]), np.array([2**15]))
        with pytest.raises(InvalidInputError, match="65504"):
            engine.add(1e5 * one, np.array([1]), label)
        assert engine.size() == 0
    make_other = "ALTER TABLE shop.items ADD COLUMN price int NOT NULL"
    shop.run(make_other)
    with opened(shop) as engine, pytest.raises(GalleryMismatchError, match="price"):
        engine.add(one, np.array([1]), label)


@pytest.mark.parametrize(
    ("columns", "options", "error", "text"),
    [
        ("id int PRIMARY KEY, embedding vector(3)", {}, GalleryMismatchError, "label_column"),
        (
            "id int PRIMARY KEY, embedding vector(3)",
            {"label_column": None, "vector_column": "vec"},
            GalleryMismatchError,
            "id, embedding",
        ),
        ("id int, embedding vector(3)", {"label_column": None}, GalleryMismatchError, "primary"),
        (
            "id int UNIQUE, embedding vector(3)",
            {"label_column": None},
            GalleryMismatchError,
            "not null",
        ),
        (
            "id float PRIMARY KEY, embedding vector(3)",
            {"label_column": None},
            GalleryMismatchError,
            "int8.*float8",
        ),
        (
            "id int PRIMARY KEY, embedding real[]",
            {"label_column": None},
            GalleryMismatchError,
            "vector.*float4",
        ),
        (
            "id int PRIMARY KEY, embedding vector",
            {"label_column": None},
            GalleryMismatchError,
            "dimension",
        ),
        (
            "id int PRIMARY KEY, embedding vector(3)",
            {"label_column": None, "index": "hnsw"},
            GalleryMismatchError,
            "create_index",
        ),
        (
            "id int PRIMARY KEY, embedding vector(3)",
            {"table": "shop.Items"},
            GalleryNotFoundError,
            "case-sensitive",
        ),
        ("id int PRIMARY KEY", {"table": "nowhere.items"}, GalleryNotFoundError, "nowhere"),
        ("id int PRIMARY KEY", {"index": "flat"}, InvalidInputError, "ivfflat"),
        ("id int PRIMARY KEY", {"metric": "l1"}, InvalidInputError, "cosine"),
        ("id int PRIMARY KEY", {"ef_search": 1001}, InvalidInputError, "1000"),
        ("id int PRIMARY KEY", {"pool_size": 0}, InvalidInputError, "pool_size"),
        ("id int PRIMARY KEY", {"timeout": float("nan")}, InvalidInputError, "timeout"),
    ],
)
def test_what_cannot_be_a_gallery(
    shop: Server, columns: str, options: dict[str, Any], error: type[Exception], text: str
) -> None:
    make(shop, columns, None)
    with pytest.raises(error, match=text):
        opened(shop, **options)


def test_a_view_is_no_table(shop: Server) -> None:
    make(shop, "id int PRIMARY KEY, label text, embedding vector(3)")
    shop.run(
        "CREATE VIEW shop.seen AS SELECT * FROM shop.items", "GRANT ALL ON shop.seen TO public"
    )
    with pytest.raises(GalleryMismatchError, match="must be a table"):
        opened(shop, table="shop.seen")


def test_the_index_must_be_the_one(shop: Server) -> None:
    make(shop, "id int PRIMARY KEY, label text, embedding vector(3)")
    with opened(shop) as engine:
        engine.create_index("hnsw", m=4, ef_construction=9)
    with pytest.raises(GalleryMismatchError, match="vector_l2_ops"):
        opened(shop, index="hnsw", metric="cosine")
    with pytest.raises(GalleryMismatchError, match="ivfflat"):
        opened(shop, index="ivfflat")
    with opened(shop, index="hnsw") as engine:
        assert engine.fingerprint().items() >= {"m": 4, "ef_construction": 9}.items()
        engine.create_index("hnsw", m=5)
        assert engine.fingerprint().items() >= {"m": 5, "ef_construction": 64}.items()
        engine.create_index("ivfflat", lists=2)
    with pytest.raises(GalleryMismatchError, match="Drop the others"):
        opened(shop, index="hnsw")
    with opened(shop) as engine, pytest.raises(InvalidInputError, match="lists"):
        engine.create_index("hnsw", lists=2)


def test_indexes_of_other_columns_are_left_alone(shop: Server) -> None:
    make(shop, "id int PRIMARY KEY, label text, other vector(3), embedding vector(3)", None)
    shop.run(
        "CREATE INDEX before ON shop.items USING hnsw (other vector_l2_ops)",
        "CREATE INDEX own ON shop.items USING hnsw (embedding vector_l2_ops) WITH (m = 5)",
        "CREATE INDEX after ON shop.items USING hnsw (other vector_l2_ops)",
        "CREATE INDEX of_expression ON shop.items "
        "USING hnsw ((l2_normalize(embedding)::vector(3)) vector_l2_ops)",
    )

    def numbers() -> dict[str, int]:
        rows = shop.run(
            "SELECT c.relname, c.oid FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid "
            "WHERE i.indrelid = 'shop.items'::regclass"
        )
        return dict(rows)

    at_first = numbers()
    with opened(shop, index="hnsw") as engine:
        engine.add(np.eye(3), np.array([1, 2, 3]), np.array(["a", "b", "c"]))
        loaded = numbers()
        assert {name for name in at_first if loaded[name] != at_first[name]} == {"own"}
        assert engine.search(np.eye(3), 1).ids.tolist() == [[1], [2], [3]]
        engine.create_index("hnsw", m=6)
        assert engine.fingerprint()["m"] == 6
    rebuilt = numbers()
    assert len(rebuilt) == len(at_first)
    assert at_first.keys() - rebuilt.keys() == {"own"}
    assert {name for name in rebuilt if rebuilt[name] == loaded.get(name)} == (
        at_first.keys() - {"own"}
    )


def test_a_partial_index_does_not_count(shop: Server) -> None:
    make(shop, "id int PRIMARY KEY, label text, embedding vector(3)")
    shop.run("CREATE INDEX ON shop.items USING hnsw (embedding vector_l2_ops) WHERE id > 1")
    with pytest.raises(GalleryMismatchError, match="Got none"):
        opened(shop, index="hnsw")


def test_inner_product_is_for_unit_vectors(shop: Server) -> None:
    make(shop, "id int PRIMARY KEY, label text, embedding vector(3)")
    with pytest.raises(GalleryMismatchError, match="unit length"):
        opened(shop, metric="inner_product")
    shop.run("UPDATE shop.items SET embedding = l2_normalize(embedding)")
    with opened(shop, metric="inner_product") as engine:
        found = engine.search(np.array([[3.0, 4.0, 0.0]]), 2)
        assert found.ids.tolist() == [[1, 2]]
        np.testing.assert_allclose(found.sq_distances, [[2 - 1.6, 2 - 1.2]], rtol=1e-6)
        # One that came later, and by another way: its length would put it first.
        for vector in ("[0,0.9,0.5]", "[9,0,9]", "[0,0,0]"):
            shop.run(f"INSERT INTO shop.items VALUES (7, 'x', '{vector}')")  # noqa: S608
            with pytest.raises(GalleryMismatchError, match="unit length"):
                engine.search(np.array([[3.0, 4.0, 0.0]]), 2)
            shop.run("DELETE FROM shop.items WHERE id = 7")
        assert engine.search(np.array([[3.0, 4.0, 0.0]]), 2).ids.tolist() == [[1, 2]]


def test_extension_outside_of_the_search_path(server: Server) -> None:
    server.run("CREATE DATABASE apart")
    uri = server.admin_uri.removesuffix("postgres") + "apart"
    try:
        with psycopg.connect(uri, autocommit=True) as connection:
            connection.execute("CREATE SCHEMA tools")
            with pytest.raises(GalleryNotFoundError, match="CREATE EXTENSION"):
                PostgresEngine(uri)
            connection.execute("CREATE EXTENSION vector SCHEMA tools")
        for index in ("exact", "hnsw", "ivfflat"):
            with PostgresEngine.create(uri, dimension=2, table=index, index=index) as engine:
                engine.add(np.eye(2), np.array([4, 3]), np.array([1, 2]))
                assert engine.search(np.ones((1, 2)), 2).ids.tolist() == [[3, 4]]
                engine.relabel(np.array([3]), np.array([5]))
                assert engine.fetch(np.array([3])).labels == [5]
    finally:
        server.run("DROP DATABASE apart WITH (FORCE)")


def test_create_makes_no_table_twice(shop: Server) -> None:
    options: dict[str, Any] = {"table": "shop.new", "dimension": 3}
    with PostgresEngine.create(shop.uri, **options) as engine:
        engine.add(np.ones((1, 3)), np.array([1]), np.array([1]))
        with pytest.raises(GalleryMismatchError, match="already exists"):
            PostgresEngine.create(shop.uri, **options)
        assert engine.size() == 1
    columns = shop.run(
        "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute "
        "WHERE attrelid = 'shop.new'::regclass AND attnum > 0"
    )
    assert dict(columns) == {
        "id": "bigint",
        "label": "bigint",
        "embedding": "vector(3)",
        "metadata": "jsonb",
    }


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"dimension": 0}, "16000"),
        ({"dimension": 3, "id_kind": "uuid"}, "id_kind"),
        ({"dimension": 3, "index": "hnsw", "lists": 3}, "ef_construction"),
        ({"dimension": 3, "metric": "l2"}, "euclidean"),
        ({"dimension": 3, "pool_size": 0}, "pool_size"),
        ({"dimension": 3, "timeout": 0}, "timeout"),
        ({"dimension": 3, "timeout": float("inf")}, "timeout"),
        ({"dimension": 3, "statement_timeout": -1}, "statement_timeout"),
        ({"dimension": 3, "statement_timeout": 3e6}, "statement_timeout"),
    ],
)
def test_create_refuses(shop: Server, options: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidInputError, match=text):
        PostgresEngine.create(shop.uri, table="shop.new", **options)
    assert shop.run("SELECT to_regclass('shop.new')") == [(None,)]


def test_dimension_beyond_an_index(shop: Server) -> None:
    with pytest.raises(GalleryMismatchError, match="2000 dimensions"):
        PostgresEngine.create(shop.uri, table="shop.new", dimension=2001, index="hnsw")
    with pytest.raises(GalleryNotFoundError):
        opened(shop, table="shop.new")
