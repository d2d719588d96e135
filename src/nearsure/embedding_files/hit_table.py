"""Hits from a CSV file with a row for each hit."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from nearsure.embedding_files.csv_rows import csv_header, csv_records
from nearsure.embedding_files.json_values import PlacedObject
from nearsure.embedding_files.sources import Source
from nearsure.embedding_files.written_integers import is_written_integer
from nearsure.errors import EmbeddingsFileError

_NEEDED = ("query", "distance", "label")
_OPTIONAL = ("neighbor", "truth")


@dataclass(eq=False)
class _Query:
    distances: list[float] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    neighbors: list[str] = field(default_factory=list)
    truth: str | None = None


def objects_of_table(source: Source) -> Iterator[PlacedObject]:
    """The queries in the order in which they first come, whose hits may stand apart.

    Labels and truths together, and ids, are integers if all are written as such, else texts.
    """
    header = csv_header(source)
    places = _places(source, header)
    queries: dict[str, _Query] = {}
    for place, row in csv_records(source, header):
        query = queries.setdefault(row[places["query"]], _Query())
        query.distances.append(_number(place, row[places["distance"]]))
        query.labels.append(row[places["label"]])
        if "neighbor" in places:
            query.neighbors.append(row[places["neighbor"]])
        if "truth" in places:
            truth = row[places["truth"]]
            if query.truth not in (None, truth):
                raise EmbeddingsFileError(
                    f"{place} has the truth {truth!r}, and the same query had {query.truth!r} "
                    "before: a query has one."
                )
            query.truth = truth
    return _typed(source, queries, places)


def _typed(
    source: Source, queries: dict[str, _Query], places: dict[str, int]
) -> Iterator[PlacedObject]:
    every = queries.values()
    # Text and number of one label would be two classes.
    labels = [label for query in every for label in [*query.labels, query.truth or "0"]]
    as_label = int if all(map(is_written_integer, labels)) else str
    ids = [neighbor for query in every for neighbor in query.neighbors]
    as_id = int if all(map(is_written_integer, ids)) else str
    as_own_id = int if all(map(is_written_integer, queries)) else str
    for name, query in queries.items():
        fields: dict[str, Any] = {
            "id": as_own_id(name),
            "distances": query.distances,
            "labels": [as_label(label) for label in query.labels],
        }
        if "neighbor" in places:
            fields["ids"] = [as_id(neighbor) for neighbor in query.neighbors]
        if query.truth is not None:
            fields["truth"] = as_label(query.truth) if query.truth else None
        yield f"Query {name!r} of {source}", fields


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
