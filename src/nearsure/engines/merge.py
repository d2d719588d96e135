"""The answers of several galleries as the answer of all of them together."""

from collections.abc import Sequence

import numpy as np

from nearsure.arrays import AnyArray
from nearsure.engines.contract import Found
from nearsure.engines.hits import nothing_of
from nearsure.errors import InvalidInputError


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
    _check(parts, k)
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


def one_after_another(parts: Sequence[Found]) -> Found:
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


def _check(parts: Sequence[Found], k: int) -> None:
    if k < 1 or not parts:
        raise InvalidInputError(
            f"k and the number of parts must be at least 1. Got {k} and {len(parts)} instead."
        )
    if len({len(part.ids) for part in parts}) > 1:
        raise InvalidInputError(
            "parts must answer the same queries. Got answers to "
            f"{', '.join(str(len(part.ids)) for part in parts)} queries instead."
        )
    for name in ("ids", "labels"):
        values = [getattr(part, name) for part in parts]
        kinds = {_kind(value) for value in values}
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
