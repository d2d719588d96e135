"""The tables of an .sqlite gallery, and checks that a file has them."""

import json
import operator
import sqlite3
from contextlib import closing
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from typing import Any, Literal, TypeAlias, cast

import numpy as np

from nearsure.arrays import AnyArray
from nearsure.engines.contract import Kind, Metric
from nearsure.engines.embedded import IndexSettings, chosen_index
from nearsure.errors import GalleryMismatchError, InvalidInputError

Precision: TypeAlias = Literal["float32", "float64"]

APPLICATION_ID = int.from_bytes(b"nsur", "big")
VERSION = 1
RESTORE = "Restore it from a backup: nearsure restore BACKUP FILE"
# Bytes that SQLite takes in one value.
LARGEST_VECTOR = 10**9
COLUMNS: dict[Kind, str] = {"integer": "INTEGER", "text": "TEXT"}
_ALLOWED = {
    "metric": ("euclidean", "cosine"),
    "ids": ("integer", "text"),
    "labels": ("integer", "text"),
    "precision": ("float32", "float64"),
}


@dataclass(frozen=True)
class Layout:
    """What was decided when a gallery was created.

    Parameters
    ----------
    dimension : int
        Length of a vector.
    metric : {"euclidean", "cosine"}
    ids, labels : {"integer", "text"}
        What names a point, and its class.
    precision : {"float32", "float64"}
        In which vectors are kept.
    index : {"auto", "exact", "hnsw", "ivf"}
        The index that is used unless another is asked for.
    settings : IndexSettings
        Its settings, likewise.
    """

    dimension: int
    metric: Metric = "euclidean"
    ids: Kind = "text"
    labels: Kind = "text"
    precision: Precision = "float32"
    index: str = "auto"
    settings: IndexSettings = field(default_factory=IndexSettings)

    def __post_init__(self) -> None:
        for name, allowed in _ALLOWED.items():
            value = getattr(self, name)
            if value not in allowed:
                raise InvalidInputError(
                    f"{name} must be {' or '.join(map(repr, allowed))}. Got {value!r} instead."
                )
        chosen_index(self.index, 0)
        largest = LARGEST_VECTOR // self.dtype.itemsize
        if int(self.dimension) != self.dimension or not 1 <= self.dimension <= largest:
            raise InvalidInputError(
                f"dimension must be an integer from 1 to {largest}. Got {self.dimension!r} instead."
            )

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of a vector in the file: little-endian on every machine."""
        return np.dtype("<f4" if self.precision == "float32" else "<f8")

    @property
    def n_bytes(self) -> int:
        """Of a vector in the file."""
        return self.dtype.itemsize * int(self.dimension)

    def stored(self, vectors: AnyArray) -> AnyArray:
        """Vectors in the precision of the file, which may refuse what is too large for it."""
        with np.errstate(over="ignore"):
            own = vectors.astype(self.dtype)
        if not np.isfinite(own).all():
            raise InvalidInputError(
                "vectors must be within the range of float32, in which this gallery keeps them. "
                "Got larger numbers."
            )
        return own

    def vectors_of(self, blobs: list[bytes]) -> AnyArray:
        """Vectors, shape (n, dimension), from what the file holds."""
        read = np.frombuffer(b"".join(blobs), self.dtype)
        return read.reshape(len(blobs), self.dimension).astype(self.dtype.newbyteorder("="))

    def array(self, values: list[Any], kind: Kind) -> AnyArray:
        """Ids or labels as an engine hands them out."""
        return np.array(values, np.int64 if kind == "integer" else str)


def create_tables(connection: sqlite3.Connection, layout: Layout) -> None:
    """Make an empty database a gallery, within the transaction that is open."""
    statements = (
        # AUTOINCREMENT: the number of a row that is gone never comes again, so that
        # a row has one vector for good.
        f"""CREATE TABLE points (
            row INTEGER PRIMARY KEY AUTOINCREMENT,
            id {COLUMNS[layout.ids]} NOT NULL UNIQUE,
            label {COLUMNS[layout.labels]} NOT NULL,
            vector BLOB NOT NULL
                CHECK (typeof(vector) = 'blob' AND length(vector) = {layout.n_bytes})
        )""",
        "CREATE INDEX points_by_label ON points (label, id)",
        """CREATE TABLE pictures (
            row INTEGER PRIMARY KEY REFERENCES points (row) ON DELETE CASCADE,
            picture BLOB NOT NULL
        )""",
        "CREATE TABLE notes (name TEXT PRIMARY KEY, content BLOB NOT NULL) WITHOUT ROWID",
        "CREATE TABLE settings (name TEXT PRIMARY KEY, value) WITHOUT ROWID",
        f"PRAGMA application_id = {APPLICATION_ID}",
        f"PRAGMA user_version = {VERSION}",
    )
    for statement in statements:
        connection.execute(statement)
    settings = {**asdict(layout), "dimension": int(layout.dimension)}
    settings["settings"] = json.dumps(settings["settings"])
    connection.executemany("INSERT INTO settings VALUES (?, ?)", settings.items())


def changes_table(layout: Layout) -> str:
    """The statement that makes the table of changes, which not every gallery has."""
    # AUTOINCREMENT: a later change has a larger number, also when earlier ones are forgotten.
    return (
        "CREATE TABLE changes (number INTEGER PRIMARY KEY AUTOINCREMENT, "
        f"id {COLUMNS[layout.ids]} NOT NULL UNIQUE)"
    )


def texts_table() -> str:
    """The statement that makes the table of texts, which not every gallery has."""
    return (
        "CREATE TABLE texts (row INTEGER PRIMARY KEY REFERENCES points (row) ON DELETE CASCADE, "
        "text TEXT NOT NULL)"
    )


def check_is_gallery(connection: sqlite3.Connection, shown: str) -> None:
    """An error unless the file is a gallery that this version can read."""
    application, version = (
        connection.execute(f"PRAGMA {name}").fetchone()[0]
        for name in ("application_id", "user_version")
    )
    if application != APPLICATION_ID:
        raise GalleryMismatchError(
            f"{shown} is an SQLite database, but not a gallery of nearsure. Check the path, or "
            "make a gallery in another file: SqliteEngine.create(path, dimension)."
        )
    if version > VERSION:
        raise GalleryMismatchError(
            f"{shown} is a gallery of version {version}, and this nearsure reads up to {VERSION}. "
            "Upgrade nearsure: pip install --upgrade nearsure"
        )


def read_layout(connection: sqlite3.Connection, shown: str) -> Layout:
    """What was decided when the gallery was created."""
    stored = dict(connection.execute("SELECT name, value FROM settings"))
    try:
        own = {name: stored[name] for name in Layout.__dataclass_fields__}
        own["settings"] = IndexSettings(**json.loads(cast("str", own["settings"])))
        # SQLite keeps 16.0 as a number of another kind than 16.
        own["dimension"] = operator.index(own["dimension"])
        return Layout(**own)
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise GalleryMismatchError(
            f"{shown} has settings that this nearsure does not understand: "
            f"{str(error).rstrip('.')}. {RESTORE}"
        ) from error


# Whether a file holds what a gallery does: anybody may have written it.
#
# Triggers and views would run with every statement, and values of other kinds or lengths than the
# tables declare would fail deep inside, so that a file with any of these is not opened.


# Kind, name and table; and the statement that made it.
Name: TypeAlias = tuple[str, str, str]
# Rows are numbered upwards, and must not come to the end of the numbers.
LARGEST_NUMBER = 2**62


def check_tables(connection: sqlite3.Connection, shown: str) -> None:
    """An error unless a file has the tables of a gallery, and nothing else."""
    there = _objects(connection)
    # By name first: reading a view that has the name of a table runs it.
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
    there = _objects(connection)
    if ("table", "changes", "changes") in there:
        strange["changes"] = "typeof(id) != :ids"
    if ("table", "texts", "texts") in there:
        strange["texts"] = "typeof(text) != 'text'"
    for table, condition in strange.items():
        found = connection.execute(
            f"SELECT 1 FROM {table} WHERE {condition} LIMIT 1",  # noqa: S608
            wanted,
        )
        if found.fetchone() is not None:
            raise GalleryMismatchError(
                f"{shown} holds values in its table {table!r} that no gallery with its settings "
                f"does; another program has written them. {RESTORE}"
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
        model.execute(texts_table())
        return usual, _objects(model)


def _check_same(different: set[Name], allowed: set[Name], shown: str) -> None:
    if different - allowed:
        kind, name, _ = min(different - allowed, key=str)
        raise GalleryMismatchError(
            f"{shown} is not as nearsure makes a gallery: see its {kind} {name!r}. Another "
            f"program has altered it, perhaps to do harm. {RESTORE}"
        )
