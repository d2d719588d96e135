"""Exact storage: every query is compared with every point."""

import numpy as np

from nearsure.arrays import AnyArray, IntArray
from nearsure.engines.contract import Found, Stored
from nearsure.engines.embedded.base import Arrays, Change, Numbers, Storage, found_of
from nearsure.index import ExactIndex
from nearsure.index.rows import GrowingRows


class ExactStorage:
    """Exact search.

    Parameters
    ----------
    vectors : array of shape (n, dimension), float32 or float64
        At least one; they belong to the storage from now on.
    ids, labels : array of shape (n,)
        Int64; ids are distinct.
    """

    def __init__(self, vectors: AnyArray, ids: IntArray, labels: IntArray) -> None:
        own_ids = None if np.array_equal(ids, np.arange(len(ids))) else ids
        self._index = ExactIndex(vectors, own_ids)
        self._labels = GrowingRows(labels)

    def __len__(self) -> int:
        return len(self._index)

    def search(self, queries: AnyArray, k: int) -> Found:
        """The k nearest points, without fail."""
        sq_distances, rows = self._index.search_rows(queries, min(k, len(self)))
        ids, labels = self._index.ids_of(rows), self._labels.rows[rows]
        return found_of(sq_distances, ids, labels, k, sorted_ties=True)

    def adding(self, vectors: AnyArray, ids: IntArray, labels: IntArray) -> Change:
        """Add points, in the precision of the first."""

        def add() -> Storage:
            self._labels.reserve(len(labels))
            self._index.add(vectors, ids)
            self._labels.append(labels)
            return self

        return add

    def removing(self, ids: IntArray) -> Change:
        """Remove points."""
        rows = self._index.rows_of(ids)

        def remove() -> Storage | None:
            if len(rows) == len(self):
                return None
            self._labels.remove(self._index.remove(rows))
            return self

        return remove

    def relabelling(self, ids: IntArray, labels: IntArray) -> Change:
        """Give points other labels."""
        rows = self._index.rows_of(ids)

        def relabel() -> Storage:
            self._labels.put(rows, labels)
            return self

        return relabel

    def fetch(self, ids: IntArray) -> Stored:
        """Points with vectors and labels."""
        rows = self._index.rows_of(ids)
        return Stored(ids, self._labels.rows[rows], self._index.vectors[rows])

    def ids_and_labels(self) -> tuple[IntArray, IntArray]:
        """Of all points, by ascending id."""
        ids = self._index.ids
        order = np.argsort(ids)
        return ids[order], self._labels.rows[order]

    def to_state(self) -> tuple[Numbers, Arrays]:
        """Vectors, ids and labels; the answer depends on nothing else."""
        arrays = {
            "vectors": self._index.vectors.copy(),
            "ids": self._index.ids.copy(),
            "labels": self._labels.rows.copy(),
        }
        return {}, arrays
