"""What an engine lists: hits refined, sorted, cut, counted and merged; points put in order."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from nearsure.arrays import AnyArray, FloatArray, IntArray
from nearsure.engines.checks import check_all_there
from nearsure.engines.contract import Found, Kind, Metric, Stored
from nearsure.errors import GalleryMismatchError, InvalidInputError
from nearsure.index.exact import unit_vectors

# Engines rank in single precision. This many more than k are asked for and ranked again in double
# precision, so that near ties at the k-th place come out as exact search has them.
SPARE_CANDIDATES = 8


@dataclass(frozen=True, eq=False)
class Hits:
    """Neighbours of several queries in one list, in any order.

    Parameters
    ----------
    queries : array of shape (n_hits,)
        Row number of the query that each hit answers.
    ids : array of shape (n_hits,)
        Int64 or strings.
    labels : array of shape (n_hits,), optional
        Int64 or strings.
    vectors : array of shape (n_hits, dimension), optional
        The points themselves, from which distances are recomputed.
    sq_distances : array of shape (n_hits,), optional
        Squared Euclidean distances; needed where there are no vectors.
    """

    queries: IntArray
    ids: AnyArray
    labels: AnyArray | None = None
    vectors: AnyArray | None = None
    sq_distances: FloatArray | None = None


def with_vectors(hits: Hits, vectors: AnyArray, metric: Metric) -> Hits:
    """Hits whose distances are computed from their vectors, under cosine at unit length.

    A zero vector has no direction, and so no distance under cosine: it is left out.
    """
    if metric == "euclidean":
        return replace(hits, vectors=vectors)
    kept = np.flatnonzero(vectors.any(axis=1))
    return replace(_select(hits, kept), vectors=unit_vectors(vectors[kept].astype(np.float64)))


def with_distances(
    hits: Hits, distances: FloatArray, convert: Callable[[AnyArray], FloatArray]
) -> Hits:
    """Hits with an engine's own distances, converted; those without one are left out."""
    kept = np.flatnonzero(~np.isnan(distances))
    return replace(_select(hits, kept), sq_distances=convert(distances[kept]))


def _select(hits: Hits, rows: IntArray) -> Hits:
    labels = None if hits.labels is None else hits.labels[rows]
    return Hits(hits.queries[rows], hits.ids[rows], labels)


def found_from_hits(queries: AnyArray, hits: Hits, k: int) -> Found:
    """The k nearest hits of each query, in the form that the contract asks for.

    Parameters
    ----------
    queries : array of shape (n, dimension)
        The queries, as they were given.
    hits : Hits
        What the engine listed; a query may have any number of hits, also none.
    k : int
        How many to keep.

    Examples
    --------
    >>> queries, places = np.zeros((2, 1)), np.array([[3.0], [1.0], [1.0]])
    >>> hits = Hits(np.array([0, 0, 0]), ids=np.array([7, 9, 8]), vectors=places)
    >>> found = found_from_hits(queries, hits, k=2)
    >>> found.sq_distances, found.ids, found.counts
    (array([[ 1.,  1.],
           [inf, inf]]), array([[ 8,  9],
           [-1, -1]]), array([2, 0]))
    """
    sq_distances = _sq_distances(queries, hits)
    order = np.lexsort((hits.ids, sq_distances, hits.queries))
    rows = hits.queries[order]
    n_hits = np.bincount(rows, minlength=len(queries))
    firsts = np.cumsum(n_hits) - n_hits
    places = np.arange(len(rows)) - firsts[rows]
    kept = places < k
    order, rows, places = order[kept], rows[kept], places[kept]

    def table(values: AnyArray, missing: float | str) -> AnyArray:
        filled = np.full((len(queries), k), missing, values.dtype)
        filled[rows, places] = values[order]
        return filled

    return Found(
        table(sq_distances, np.inf),
        table(hits.ids, nothing_of(hits.ids)),
        np.minimum(n_hits, k),
        None if hits.labels is None else table(hits.labels, nothing_of(hits.labels)),
    )


def nothing_of(values: AnyArray) -> int | str:
    """What stands where there is no id or label: -1 among integers, "" among strings."""
    return -1 if values.dtype.kind in "iu" else ""


def _sq_distances(queries: AnyArray, hits: Hits) -> FloatArray:
    if hits.vectors is None:
        if hits.sq_distances is None:
            raise InvalidInputError("Hits must have vectors or sq_distances. Got neither.")
        return np.maximum(np.asarray(hits.sq_distances, np.float64), 0.0)
    exact = np.empty(len(hits.ids))
    # Some hundred at a time: the differences of all, in double precision, would take much memory.
    for start in range(0, len(exact), 8192):
        part = slice(start, start + 8192)
        differences = np.subtract(hits.vectors[part], queries[hits.queries[part]], dtype=np.float64)
        exact[part] = np.einsum("nm,nm->n", differences, differences)
    return exact


def merge_found(parts: Sequence[Found], k: int) -> Found:
    """The k nearest of what several disjoint galleries found for the same queries.

    If every part holds the k nearest of its gallery, the result is what one search over all of
    them gives: the same distances, to the last bit, and equal ones in the order of ids. Results of
    merging may be merged further, in any order.

    Parameters
    ----------
    parts : sequence of Found
        Answers to the same queries, at least one. No point may be in two of them.
    k : int
        How many to keep.

    Examples
    --------
    >>> one = Found(np.array([[1.0, 4.0]]), np.array([[7, 9]]), np.array([2]))
    >>> other = Found(np.array([[1.0, np.inf]]), np.array([[3, -1]]), np.array([1]))
    >>> merged = merge_found([one, other], k=2)
    >>> merged.sq_distances, merged.ids, merged.counts
    (array([[1., 1.]]), array([[3, 7]]), array([2]))
    """
    _check_kinds(parts)
    valid = np.concatenate(
        [np.arange(part.ids.shape[1]) < part.counts[:, None] for part in parts], axis=1
    )
    ids = np.concatenate([part.ids for part in parts], axis=1)
    _check_disjoint(ids, valid)
    sq_distances = np.concatenate([part.sq_distances for part in parts], axis=1)
    nearest = np.lexsort((ids, sq_distances, ~valid), axis=1)[:, :k]
    counts = np.minimum(valid.sum(axis=1), k)
    behind = np.arange(k) >= counts[:, None]

    def kept(values: AnyArray, nothing: float | str) -> AnyArray:
        # Fewer than k may have been found by all together.
        table = np.full((len(values), k), nothing, values.dtype)
        table[:, : nearest.shape[1]] = np.take_along_axis(values, nearest, axis=1)
        table[behind] = nothing
        return table

    labels = [part.labels for part in parts if part.labels is not None]
    all_labels = np.concatenate(labels, axis=1) if labels else None
    return Found(
        kept(sq_distances, np.inf),
        kept(ids, nothing_of(ids)),
        counts,
        None if all_labels is None else kept(all_labels, nothing_of(all_labels)),
    )


def concatenate_found(parts: Sequence[Found]) -> Found:
    """The answers to several batches of queries as the answer to all of them, in their order.

    Parameters
    ----------
    parts : sequence of Found
        With as many neighbours each, at least one.
    """
    if len(parts) == 1:
        return parts[0]
    labels = [part.labels for part in parts if part.labels is not None]
    return Found(
        np.concatenate([part.sq_distances for part in parts]),
        np.concatenate([part.ids for part in parts]),
        np.concatenate([part.counts for part in parts]),
        np.concatenate(labels) if labels else None,
    )


def select_points(points: Stored, rows: IntArray | slice) -> Stored:
    """Some of several points."""

    def select(values: AnyArray | None) -> AnyArray | None:
        return None if values is None else np.asarray(values)[rows]

    return Stored(points.ids[rows], select(points.labels), select(points.vectors))


def concatenate_points(parts: Sequence[Stored]) -> Stored:
    """The points of several parts, at least one, which all hold the same columns."""
    labels = [part.labels for part in parts if part.labels is not None]
    vectors = [part.vectors for part in parts if part.vectors is not None]
    return Stored(
        np.concatenate([part.ids for part in parts]),
        np.concatenate(labels) if labels else None,
        np.concatenate(vectors) if vectors else None,
    )


def arrange_points(points: Stored, ids: AnyArray) -> Stored:
    """Points in the order of `ids`, which may come twice; an error if any is not there."""
    row_of = {own: row for row, own in enumerate(points.ids.tolist())}
    check_all_there(ids, row_of)
    rows = np.array([row_of[own] for own in ids.tolist()], np.int64)
    return replace(select_points(points, rows), ids=ids)


def array_of_kind(values: list[Any], kind: Kind) -> AnyArray:
    """Ids or labels that a store returned, as nearsure has them."""
    other = set(map(type, values)) - {int if kind == "integer" else str}
    if other:
        got = ", ".join("NULL" if own is type(None) else own.__name__ for own in other)
        raise GalleryMismatchError(
            f"All ids, and all labels, of this gallery must be of one kind, {kind}. The store "
            f"holds {got}, too. Give every point a label of this kind, or open the gallery with "
            "label_field=None and keep the labels in nearsure."
        )
    return np.array(values, np.int64 if kind == "integer" else str)


def in_order(points: Stored, portion: int = 10_000) -> Iterator[Stored]:
    """Points in portions, ids ascending, as a scan gives them."""
    order = np.argsort(points.ids)
    for start in range(0, len(order), portion):
        yield select_points(points, order[start : start + portion])


def replace_rows(found: Found, rows: IntArray, others: Found) -> Found:
    """An answer in which some rows are those of another."""
    together = concatenate_found([found, others])
    order = np.arange(len(found.ids))
    order[rows] = len(order) + np.arange(len(rows))
    return Found(
        together.sq_distances[order],
        together.ids[order],
        together.counts[order],
        None if together.labels is None else together.labels[order],
    )


def _check_kinds(parts: Sequence[Found]) -> None:
    if len({len(part.ids) for part in parts}) > 1:
        raise InvalidInputError(
            "parts must answer the same queries. Got answers to "
            f"{', '.join(str(len(part.ids)) for part in parts)} queries instead."
        )
    for name in ("ids", "labels"):
        kinds = {_kind(getattr(part, name)) for part in parts}
        if len(kinds) > 1:
            raise InvalidInputError(
                f"{name} of all parts must be of one kind. Got {' and '.join(sorted(kinds))} "
                "instead."
            )


def _kind(values: AnyArray | None) -> str:
    if values is None:
        return "none"
    return "integers" if values.dtype.kind in "iu" else "text"


def _check_disjoint(ids: AnyArray, valid: AnyArray) -> None:
    ordered = np.lexsort((ids, ~valid), axis=1)
    ids, valid = (np.take_along_axis(values, ordered, axis=1) for values in (ids, valid))
    twice = (ids[:, 1:] == ids[:, :-1]) & valid[:, 1:]
    if twice.any():
        raise InvalidInputError(
            "No point may be in two parts: it would count twice. "
            f"Got the id {ids[:, 1:][twice][0]!s} in two of them."
        )
