"""Whether a file holds what a gallery does: anybody may have written it.

Triggers and views would run with every statement, and values of other kinds or lengths than the
tables declare would fail deep inside, so that a file with any of these is not opened.
"""

import sqlite3
from contextlib import closing
from functools import lru_cache
from typing import TypeAlias

from nearsure.engines.sqlite.schema import Layout, changes_table, create_tables, read_layout
from nearsure.errors import GalleryMismatchError

# Kind, name and table; and the statement that made it.
Name: TypeAlias = tuple[str, str, str]
# Rows are numbered upwards, and must not come to the end of the numbers.
LARGEST_NUMBER = 2**62


def check_tables(connection: sqlite3.Connection, shown: str) -> None:
    """An error unless a file has the tables of a gallery, and nothing else."""
    there = _objects(connection)
    # By name first: whoever reads a view of the name of a table runs it.
    usual, perhaps = _expected(Layout(1))
    _check_same(there.keys() ^ usual.keys(), perhaps.keys() - usual.keys(), shown)
    own = read_layout(connection, shown)
    # The tables depend on these alone.
    _, perhaps = _expected(
        Layout(own.dimension, ids=own.ids, labels=own.labels, precision=own.precision)
    )
    _check_same({name for name in there if there[name] != perhaps[name]}, set(), shown)


def check_contents(connection: sqlite3.Connection, layout: Layout, shown: str) -> None:
    """An error unless all values are of the kinds and lengths that the tables declare."""
    wanted = {
        "ids": layout.ids,
        "labels": layout.labels,
        "n_bytes": layout.n_bytes,
        "largest": LARGEST_NUMBER,
    }
    strange = {
        "points": "typeof(id) != :ids OR typeof(label) != :labels OR typeof(vector) != 'blob' "
        "OR length(vector) != :n_bytes OR row NOT BETWEEN 0 AND :largest",
        "notes": "typeof(name) != 'text' OR typeof(content) != 'blob'",
        "sqlite_sequence": "typeof(seq) != 'integer' OR seq NOT BETWEEN 0 AND :largest",
    }
    if ("table", "changes", "changes") in _objects(connection):
        strange["changes"] = "typeof(id) != :ids"
    for table, condition in strange.items():
        found = connection.execute(
            f"SELECT 1 FROM {table} WHERE {condition} LIMIT 1",  # noqa: S608
            wanted,
        )
        if found.fetchone() is not None:
            raise GalleryMismatchError(
                f"{shown} holds values in its table {table!r} that no gallery with its settings "
                "does; another program has written them. Restore it from a backup: nearsure "
                "restore BACKUP FILE"
            )


def _objects(connection: sqlite3.Connection) -> dict[Name, str]:
    found = connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_master")
    return {(kind, name, of): " ".join(str(sql).split()) for kind, name, of, sql in found}


@lru_cache(maxsize=16)
def _expected(layout: Layout) -> tuple[dict[Name, str], dict[Name, str]]:
    """What a gallery always has, and what it may have."""
    with closing(sqlite3.connect(":memory:")) as model:
        create_tables(model, layout)
        usual = _objects(model)
        model.execute(changes_table(layout))
        return usual, _objects(model)


def _check_same(different: set[Name], allowed: set[Name], shown: str) -> None:
    if different - allowed:
        kind, name, _ = min(different - allowed, key=str)
        raise GalleryMismatchError(
            f"{shown} is not as nearsure makes a gallery: see its {kind} {name!r}. Another "
            "program has altered it, perhaps to do harm. Restore it from a backup: nearsure "
            "restore BACKUP FILE"
        )
