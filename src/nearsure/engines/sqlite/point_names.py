"""Ids and labels of rows, in memory, so that an answer needs nothing from the file."""

from typing import Any

import numpy as np

from nearsure.arrays import AnyArray, BoolArray, IntArray
from nearsure.engines.contract import Found
from nearsure.engines.hits import nothing_of
from nearsure.engines.sqlite.schema import Kind, Layout
from nearsure.index.growing_rows import GrowingRows

# Names of points that are gone are cleared away when they are more than this, and than the others.
FEW_GONE = 1024


class PointNames:
    """The id and label of each row; rows are numbered upwards and never again the same.

    `put` may be called while others read, as nothing leads to a row before the index has it. Who
    calls `forget` or `relabel` is alone.

    Parameters
    ----------
    layout : Layout
        What ids and labels are.

    Examples
    --------
    >>> names = PointNames(Layout(dimension=2))
    >>> names.put(np.array([0, 4]), ["ann", "bob"], ["cat", "dog"])
    >>> found = Found(np.array([[1.0, 2.0, np.inf]]), np.array([[4, 0, -1]]), np.array([2]))
    >>> names.named(found, k=3).ids
    array([['bob', 'ann', '']], dtype='<U3')
    """

    def __init__(self, layout: Layout) -> None:
        self._rows = GrowingRows(np.empty(0, np.int64))
        self._ids = GrowingRows(_empty(layout.ids))
        self._labels = GrowingRows(_empty(layout.labels))
        self._is_there = GrowingRows(np.empty(0, np.bool_))
        # One object for each label, however many points have it.
        self._label_objects: dict[Any, Any] = {}
        self._n_gone = 0

    @property
    def rows(self) -> IntArray:
        """The rows of all points, ascending."""
        rows: IntArray = self._rows.rows[self._is_there.rows]
        return rows

    def put(self, rows: IntArray, ids: list[Any], labels: list[Any]) -> None:
        """Add rows beyond all others."""
        self._ids.append(_filled(self._ids, ids))
        self._labels.append(_filled(self._labels, self._shared(labels)))
        self._is_there.append(np.ones(len(rows), np.bool_))
        # Last: whoever knows a row finds its names.
        self._rows.append(rows)

    def forget(self, rows: IntArray) -> None:
        """Drop rows that the index does not find any more."""
        places = self._places(rows)
        self._is_there.put(places, np.zeros(len(places), np.bool_))
        self._n_gone += len(places)
        if self._n_gone > max(FEW_GONE, len(self._rows.rows) // 2):
            is_there: BoolArray = self._is_there.rows
            self._rows = GrowingRows(self._rows.rows[is_there])
            self._ids = GrowingRows(self._ids.rows[is_there])
            self._labels = GrowingRows(self._labels.rows[is_there])
            self._is_there = GrowingRows(is_there[is_there])
            self._n_gone = 0

    def relabel(self, rows: IntArray, labels: list[Any]) -> None:
        """Give rows other labels."""
        self._labels.put(self._places(rows), _filled(self._labels, self._shared(labels)))

    def named(self, found: Found, k: int) -> Found:
        """The k nearest of each query with ids and labels, equal distances in the order of ids.

        Parameters
        ----------
        found : Found
            What the index found: rows in the place of ids, and at least k columns.
        k : int
            How many to keep.
        """
        valid = found.ids >= 0
        places = np.where(valid, self._places(found.ids), 0)
        ids, labels = (_answer(table.rows, places, valid) for table in (self._ids, self._labels))
        sq_distances = found.sq_distances
        is_tied = (sq_distances[:, 1:] == sq_distances[:, :-1]) & valid[:, 1:]
        if is_tied.any():
            tied = np.flatnonzero(is_tied.any(axis=1))
            # What is missing stays behind: its distance is infinite.
            order = np.lexsort((ids[tied], sq_distances[tied]), axis=1)
            ids[tied] = np.take_along_axis(ids[tied], order, axis=1)
            labels[tied] = np.take_along_axis(labels[tied], order, axis=1)
        return Found(sq_distances[:, :k], ids[:, :k], np.minimum(found.counts, k), labels[:, :k])

    def _places(self, rows: IntArray) -> IntArray:
        known = self._rows.rows
        if not len(known) or known[-1] == len(known) - 1:
            return rows
        places: IntArray = np.searchsorted(known, rows)
        return places

    def _shared(self, labels: list[Any]) -> list[Any]:
        if self._labels.rows.dtype != object:
            return labels
        known = self._label_objects
        return [known.setdefault(label, label) for label in labels]


def _empty(kind: Kind) -> AnyArray:
    return np.empty(0, np.int64 if kind == "integer" else object)


def _filled(table: GrowingRows, values: list[Any]) -> AnyArray:
    return np.array(values, table.rows.dtype)


def _answer(names: AnyArray, places: IntArray, valid: BoolArray) -> AnyArray:
    """Names at places, and nothing where there is no point."""
    if not len(names):
        empty: AnyArray = np.full(places.shape, -1 if names.dtype == np.int64 else "")
        return empty
    own = names[places]
    if own.dtype == object:
        own = own.astype(str)
    own[~valid] = nothing_of(own)
    return own
