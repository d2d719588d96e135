"""`load_hits`: search results of any engine, from a file."""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nearsure.arrays import AnyArray, BoolArray, FloatArray, IntArray
from nearsure.embedding_files.arrays import Arrays, listing, open_arrays
from nearsure.embedding_files.parquet import read_rows
from nearsure.embedding_files.rows import StoredArray, as_names
from nearsure.embedding_files.source import Source, open_source
from nearsure.embedding_files.tables import (
    NameColumn,
    PlacedObject,
    csv_header,
    csv_records,
    is_written_integer,
    json_objects,
    name_array,
    shorten,
)
from nearsure.errors import EmbeddingsFileError, InvalidInputError


@dataclass(frozen=True, eq=False)
class HitSet:
    """The hits of n queries, at most k each, in the engine's order and its own distances.

    Parameters
    ----------
    distances : array of shape (n, k)
        As the engine gives them: of any convention, in any order; infinity behind `counts`.
    neighbor_labels : array of shape (n, k)
        Integers or texts; -1 or "" behind `counts`.
    counts : array of shape (n,)
        How many hits each query has.
    ids : array of shape (n, k), optional
        Of the hits, integers or texts; -1 or "" behind `counts`.
    own_ids : array of shape (n,), optional
        Of the queries, integers or texts.
    truth : array of shape (n,), optional
        The true label of each query, of the kind of `neighbor_labels`.

    Examples
    --------
    >>> hits = HitSet(np.array([[0.1, 0.4]]), np.array([["owl", "wren"]]), np.array([2]))
    >>> len(hits), hits.k
    (1, 2)
    """

    distances: FloatArray
    neighbor_labels: AnyArray
    counts: IntArray
    ids: AnyArray | None = None
    own_ids: AnyArray | None = None
    truth: AnyArray | None = None

    def __post_init__(self) -> None:
        shape = self.distances.shape
        if len(shape) != 2 or 0 in shape:  # noqa: PLR2004
            raise InvalidInputError(
                "distances must be of shape (n, k) with at least one query and one hit. "
                f"Got shape {shape} instead."
            )
        for name, array, expected in (
            ("neighbor_labels", self.neighbor_labels, shape),
            ("counts", self.counts, shape[:1]),
            ("ids", self.ids, shape),
            ("own_ids", self.own_ids, shape[:1]),
            ("truth", self.truth, shape[:1]),
        ):
            if array is not None and array.shape != expected:
                raise InvalidInputError(
                    f"{name} must be of shape {expected}, to go with distances of shape {shape}. "
                    f"Got shape {array.shape} instead."
                )
        if self.counts.min() < 0 or self.counts.max() > shape[1]:
            raise InvalidInputError(
                f"counts must lie in [0, {shape[1]}]. "
                f"Got {self.counts.min()} to {self.counts.max()} instead."
            )
        bad = np.flatnonzero((~np.isfinite(self.distances) & self.valid).any(axis=1))
        if bad.size:
            raise InvalidInputError(
                f"distances must be finite. Query {bad[0]} has NaN or infinity ({bad.size} such "
                "queries): leave such hits out."
            )
        if self.truth is not None and _kind(self.truth) != _kind(self.neighbor_labels):
            raise InvalidInputError(
                "truth and the labels of hits must both be integers or both be texts. "
                f"Got {self.truth.dtype} and {self.neighbor_labels.dtype} instead."
            )

    @property
    def k(self) -> int:
        """How many hits a query has at most."""
        return int(self.distances.shape[1])

    @property
    def valid(self) -> AnyArray:
        """Mask of shape (n, k), False behind `counts`."""
        return np.arange(self.k) < self.counts[:, None]

    def __len__(self) -> int:
        return len(self.distances)


def _kind(labels: AnyArray) -> str:
    return "text" if labels.dtype.kind == "U" else "integer"


_PIECE = 1 << 16


def hits_of_arrays(source: Source) -> HitSet:
    """Read the arrays distances and labels, and ids, counts, own_ids and truth if there are any."""
    stored = open_arrays(source)
    distances = _array_numbers(source, stored, "distances", "f")
    labels = _array_names(source, stored, "labels")
    if distances is None or labels is None:
        missing = "labels" if distances is not None else "distances"
        raise EmbeddingsFileError(f"{source} has no array {missing!r}. It holds {listing(stored)}.")
    if distances.ndim != 2 or labels.shape != distances.shape:  # noqa: PLR2004
        raise EmbeddingsFileError(
            f"'distances' and 'labels' in {source} must both be of shape (n, k). "
            f"It holds {listing(stored)}."
        )
    ids = _array_names(source, stored, "ids")
    counts = _array_numbers(source, stored, "counts", "iu")
    if counts is None:
        counts = _count_hits(source, distances, ids)
    padding = np.arange(distances.shape[1]) >= counts.reshape(-1, 1)
    if padding.shape == distances.shape and padding.any():
        distances = np.where(padding, np.inf, distances)
        labels = _pad_names(labels, padding)
        ids = _pad_names(ids, padding) if ids is not None and ids.shape == padding.shape else ids
    return HitSet(
        distances.astype(np.float64),
        labels,
        counts.astype(np.int64),
        ids,
        _array_names(source, stored, "own_ids"),
        _array_names(source, stored, "truth"),
    )


def _count_hits(source: Source, distances: AnyArray, ids: AnyArray | None) -> AnyArray:
    """Without counts every entry is a hit, unless its id is -1, as faiss fills up."""
    n, k = distances.shape
    if ids is None or ids.dtype.kind != "i" or ids.shape != (n, k):
        return np.full(n, k)
    hits = ids != -1
    behind = hits[:, 1:] & ~hits[:, :-1]
    if behind.any():
        row = int(np.flatnonzero(behind.any(axis=1))[0])
        raise EmbeddingsFileError(
            f"'ids' in {source} must have -1, for no hit, at the end of a row only. "
            f"Row {row} has it before a hit."
        )
    counts: AnyArray = hits.sum(axis=1)
    return counts


def _pad_names(names: AnyArray, padding: BoolArray) -> AnyArray:
    if names.dtype.kind == "U":
        return np.where(padding, "", names)
    signed = names.astype(np.int64) if names.dtype.kind == "b" else names
    return np.where(padding, -1, signed)


def _array_numbers(source: Source, stored: Arrays, name: str, kinds: str) -> AnyArray | None:
    if name not in stored:
        return None
    if stored[name].kind not in f"{kinds}iu":
        raise EmbeddingsFileError(
            f"{name!r} in {source} must be {'numbers' if 'f' in kinds else 'integers'}. "
            f"It holds {listing(stored)}."
        )
    return _whole(stored[name])


def _array_names(source: Source, stored: Arrays, name: str) -> AnyArray | None:
    if name not in stored:
        return None
    array = _whole(stored[name])
    flat = as_names(name, f"{name!r} in {source}", array.reshape(-1), "Entry {}".format)
    return flat.reshape(array.shape)


def _whole(array: StoredArray) -> AnyArray:
    pieces = list(array.pieces(_PIECE))
    return np.concatenate(pieces) if pieces else np.empty([length or 0 for length in array.shape])


_FIELDS = ("distances", "labels", "ids", "truth", "id", "own_ids")


def hits_of_objects(name: str, objects: Iterable[PlacedObject]) -> HitSet:
    """The hits of queries of which each is an object such as ``{"distances": [..], ...}``.

    Every query must have those of ids, truth and id that the first one has.
    """
    read: dict[str, list[Any]] = {key: [] for key in _FIELDS}
    # The truth is a label, too, and must be of the same type.
    labels, ids, own_ids = NameColumn("label"), NameColumn("id of a hit"), NameColumn("id")
    first: set[str] | None = None
    for place, fields in objects:
        there = {key for key in _FIELDS if fields.get(key) is not None}
        first = there if first is None else first
        _check_fields(place, fields, there, first)
        distances = _row_numbers(place, fields["distances"])
        read["distances"].append(distances)
        read["labels"].append(_row_names(place, fields, "labels", len(distances), labels))
        if "ids" in first:
            read["ids"].append(_row_names(place, fields, "ids", len(distances), ids))
        if "truth" in first:
            read["truth"].append(labels.check(place, fields["truth"]))
        for key in first & {"id", "own_ids"}:
            read["own_ids"].append(own_ids.check(place, fields[key]))
    counts = np.array([len(row) for row in read["distances"]], np.int64)
    if not counts.size or not counts.max():
        raise EmbeddingsFileError(f"{name} must hold at least one query with a hit. It has none.")
    return HitSet(
        _pad_rows(read["distances"], counts, np.inf),
        _pad_row_names(read["labels"], counts),
        counts,
        _pad_row_names(read["ids"], counts) if read["ids"] else None,
        name_array(read["own_ids"]) if read["own_ids"] else None,
        name_array(read["truth"]) if read["truth"] else None,
    )


def _check_fields(place: str, fields: dict[str, Any], there: set[str], first: set[str]) -> None:
    for key in ("distances", "labels"):
        if key not in there:
            raise EmbeddingsFileError(
                f"{place} has no {key!r}. It has {', '.join(map(repr, fields)) or 'nothing'}."
            )
    if there != first:
        raise EmbeddingsFileError(
            f"{place} has {', '.join(sorted(there))}, and the first query "
            f"{', '.join(sorted(first))}: every query must have the same."
        )
    if {"id", "own_ids"} <= there:
        raise EmbeddingsFileError(f"{place} has 'id' and 'own_ids', which are the same: keep one.")


def _row_numbers(place: str, value: Any) -> list[float]:  # noqa: ANN401
    if not isinstance(value, list) or not set(map(type, value)) <= {int, float}:
        raise EmbeddingsFileError(
            f"{place} must have a list of numbers as its distances. Got {shorten(value)} instead."
        )
    try:
        return [float(entry) for entry in value]
    except OverflowError:
        raise EmbeddingsFileError(f"{place} has a distance beyond the range of floats.") from None


def _row_names(
    place: str, fields: dict[str, Any], key: str, n: int, column: NameColumn
) -> list[int | str]:
    value = fields[key]
    if not isinstance(value, list) or len(value) != n:
        what = f"{len(value)}" if isinstance(value, list) else shorten(value)
        raise EmbeddingsFileError(
            f"{place} must have a list of {n} {key}, one for each distance. Got {what} instead."
        )
    return [column.check(place, entry) for entry in value]


def _pad_row_names(rows: list[list[int | str]], counts: AnyArray) -> AnyArray:
    is_text = any(isinstance(entry, str) for row in rows for entry in row[:1])
    return _pad_rows(rows, counts, "" if is_text else -1)


def _pad_rows(rows: list[Any], counts: AnyArray, padding: Any) -> AnyArray:  # noqa: ANN401
    k = int(counts.max())
    return np.array([[*row, *[padding] * (k - len(row))] for row in rows])


_NEEDED = ("query", "distance", "label")
_OPTIONAL = ("neighbor", "truth")


def objects_of_table(source: Source) -> Iterator[PlacedObject]:
    """The queries in the order in which they first come, whose hits may stand apart.

    Labels and truths together, and ids, are integers if all are written as such, else texts.
    """
    header = csv_header(source)
    places = _places(source, header)
    queries: dict[str, dict[str, Any]] = {}
    for place, row in csv_records(source, header):
        cells = {name: row[column] for name, column in places.items()}
        query = queries.setdefault(
            cells["query"],
            {"distances": [], "labels": [], "ids": [], "truth": cells.get("truth")},
        )
        query["distances"].append(_number(place, cells["distance"]))
        query["labels"].append(cells["label"])
        query["ids"].append(cells.get("neighbor"))
        if cells.get("truth") != query["truth"]:
            raise EmbeddingsFileError(
                f"{place} has the truth {cells['truth']!r}, and the same query had "
                f"{query['truth']!r} before: a query has one."
            )
    every = list(queries.values())
    truths = [query["truth"] for query in every if query["truth"]]
    # Text and number of one label would be two classes.
    as_label = _type_of([*truths, *(label for query in every for label in query["labels"])])
    as_own_id = _type_of(queries)
    ids = [name for query in every for name in query["ids"]] if "neighbor" in places else []
    as_id = _type_of(ids)
    for name, query in queries.items():
        query["id"] = as_own_id(name)
        query["labels"] = [as_label(label) for label in query["labels"]]
        query["ids"] = [as_id(neighbor) for neighbor in query["ids"]] if ids else None
        query["truth"] = as_label(query["truth"]) if query["truth"] else None
        yield f"Query {name!r} of {source}", query


def _type_of(names: Iterable[str]) -> type[int] | type[str]:
    return int if all(map(is_written_integer, names)) else str


def _places(source: Source, header: list[str]) -> dict[str, int]:
    names = [name.strip().lower() for name in header]
    for name in (*_NEEDED, *_OPTIONAL):
        if names.count(name) > 1 or (name in _NEEDED and name not in names):
            raise EmbeddingsFileError(
                f"{source} must have one column {name!r}, for a row for each hit: "
                f"{','.join(_NEEDED)} and, if there are, {','.join(_OPTIONAL)}. "
                f"Its first line is {header}."
            )
    return {name: names.index(name) for name in (*_NEEDED, *_OPTIONAL) if name in names}


def _number(place: str, cell: str) -> float:
    try:
        return float(cell)
    except ValueError:
        raise EmbeddingsFileError(
            f"{place} must have a number as its distance. Got {cell!r} instead."
        ) from None


def load_hits(source: str | Path, *, format: str | None = None) -> HitSet:  # noqa: A002
    """Read what an engine returned for some queries.

    Parameters
    ----------
    source : path or "-"
        An .npz, .safetensors, .jsonl, .ndjson, .parquet or .csv file, or "-" for standard input.

        - Arrays: distances and labels of shape (n, k); optional ids (n, k), counts (n,), truth
          (n,), own_ids (n,). Without counts, trailing ids of -1 are taken as no hits, as faiss
          pads.
        - A line of JSON, or a row of a Parquet file with columns of lists: ``{"distances": [..],
          "labels": [..], "ids": [..], "truth": .., "id": ..}``, of which distances and labels must
          be there. Queries may have different numbers of hits.
        - CSV: a row for each hit, with a header query,distance,label and optionally neighbor (the
          hit's id) and truth.
    format : str, optional
        npz, safetensors, jsonl, parquet or csv, in place of what the suffix says.

    Returns
    -------
    HitSet

    Raises
    ------
    EmbeddingsFileError
        If the file is missing, broken, or lacks a part.
    """
    with ExitStack() as stack:
        opened = open_source(source, format, stack)
        try:
            if opened.format in ("npz", "safetensors"):
                return hits_of_arrays(opened)
            return hits_of_objects(opened.name, _objects(opened))
        except InvalidInputError as error:
            raise EmbeddingsFileError(f"{opened} does not hold hits: {error}") from error


def _objects(source: Source) -> Iterator[PlacedObject]:
    if source.format == "jsonl":
        return json_objects(source)
    if source.format == "csv":
        return objects_of_table(source)
    if source.format == "parquet":
        return _objects_of_parquet(source)
    raise EmbeddingsFileError(
        f"{source} must be npz, safetensors, jsonl, parquet or csv to hold hits. "
        f"Got {source.format} instead."
    )


def _objects_of_parquet(source: Source) -> Iterator[PlacedObject]:
    for first_row, batch in read_rows(source):
        for row, fields in enumerate(batch.to_pylist(), first_row):
            yield f"Row {row} of {source}", fields
