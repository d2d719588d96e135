"""Hits of queries one by one, gathered into arrays."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from nearsure.arrays import AnyArray
from nearsure.embedding_files.hit_set import HitSet
from nearsure.embedding_files.json_values import NameColumn, PlacedObject, name_array, shown
from nearsure.errors import EmbeddingsFileError

_FIELDS = ("distances", "labels", "ids", "truth", "id", "own_ids")


@dataclass(eq=False)
class _Gathered:
    distances: list[list[float]] = field(default_factory=list)
    labels: list[list[int | str]] = field(default_factory=list)
    ids: list[list[int | str]] = field(default_factory=list)
    own_ids: list[int | str] = field(default_factory=list)
    truth: list[int | str] = field(default_factory=list)


def hits_of_objects(name: str, objects: Iterable[PlacedObject]) -> HitSet:
    """The hits of queries of which each is an object such as ``{"distances": [..], ...}``.

    The first query says which of ids, truth and id there are.
    """
    gathered = _Gathered()
    # The truth is a label, too, and must be of the same type.
    labels, ids, own_ids = NameColumn("label"), NameColumn("id of a hit"), NameColumn("id")
    first: set[str] | None = None
    for place, fields in objects:
        there = {key for key in _FIELDS if fields.get(key) is not None}
        first = there if first is None else first
        _check_fields(place, fields, there, first)
        distances = _numbers(place, fields["distances"])
        gathered.distances.append(distances)
        gathered.labels.append(_names(place, fields, "labels", len(distances), labels))
        if "ids" in first:
            gathered.ids.append(_names(place, fields, "ids", len(distances), ids))
        if "truth" in first:
            gathered.truth.append(labels.checked(place, fields["truth"]))
        for key in first & {"id", "own_ids"}:
            gathered.own_ids.append(own_ids.checked(place, fields[key]))
    return _hit_set(name, gathered)


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


def _numbers(place: str, value: Any) -> list[float]:  # noqa: ANN401
    if not isinstance(value, list) or not set(map(type, value)) <= {int, float}:
        raise EmbeddingsFileError(
            f"{place} must have a list of numbers as its distances. Got {shown(value)} instead."
        )
    try:
        return [float(entry) for entry in value]
    except OverflowError:
        raise EmbeddingsFileError(f"{place} has a distance beyond the range of floats.") from None


def _names(
    place: str, fields: dict[str, Any], key: str, n: int, column: NameColumn
) -> list[int | str]:
    value = fields[key]
    if not isinstance(value, list) or len(value) != n:
        what = f"{len(value)}" if isinstance(value, list) else shown(value)
        raise EmbeddingsFileError(
            f"{place} must have a list of {n} {key}, one for each distance. Got {what} instead."
        )
    return [column.checked(place, entry) for entry in value]


def _hit_set(name: str, gathered: _Gathered) -> HitSet:
    counts = np.array([len(row) for row in gathered.distances], np.int64)
    if not counts.size or not counts.max():
        raise EmbeddingsFileError(f"{name} must hold at least one query with a hit. It has none.")
    return HitSet(
        _padded(gathered.distances, counts, np.inf),
        _padded_names(gathered.labels, counts),
        counts,
        _padded_names(gathered.ids, counts) if gathered.ids else None,
        name_array(gathered.own_ids) if gathered.own_ids else None,
        name_array(gathered.truth) if gathered.truth else None,
    )


def _padded_names(rows: list[list[int | str]], counts: AnyArray) -> AnyArray:
    is_text = any(isinstance(entry, str) for row in rows for entry in row[:1])
    return _padded(rows, counts, "" if is_text else -1)


def _padded(rows: list[Any], counts: AnyArray, padding: Any) -> AnyArray:  # noqa: ANN401
    k = int(counts.max())
    return np.array([[*row, *[padding] * (k - len(row))] for row in rows])
