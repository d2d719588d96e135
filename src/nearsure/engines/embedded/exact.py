"""Exact search in memory: every query is compared with every point."""

from collections.abc import Iterator
from typing import Literal, cast

import numpy as np

from nearsure.arrays import AnyArray, IntArray
from nearsure.engines.contract import Capabilities, Fingerprint, Found, Stored
from nearsure.engines.embedded.base import (
    INDEXES,
    Arrays,
    Change,
    IndexType,
    Numbers,
    Storage,
    empty_found,
    found_of,
)
from nearsure.errors import InvalidInputError
from nearsure.index import ExactIndex
from nearsure.index.rows import GrowingRows

# Up to here exact search takes a millisecond a query, in a batch and on two cores, and no build.
LARGEST_EXACT = 200_000


def chosen_index(index: str, n_points: int) -> IndexType:
    """The index that a name stands for, for this many points.

    Examples
    --------
    >>> chosen_index("auto", 5000), chosen_index("auto", 1_000_000), chosen_index("ivf", 5000)
    ('exact', 'hnsw', 'ivf')
    """
    if index == "auto":
        return "exact" if n_points <= LARGEST_EXACT else "hnsw"
    if index not in INDEXES:
        raise InvalidInputError(
            f"index must be one of {', '.join(INDEXES)}. Got {index!r} instead."
        )
    return cast("IndexType", index)


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

    def search(self, queries: AnyArray, k: int, effort: int | None = None) -> Found:
        """The k nearest points, without fail, whatever the effort."""
        del effort
        sq_distances, rows = self._index.search_rows(queries, min(k, len(self)))
        ids, labels = self._index.ids_of(rows), self._labels.rows[rows]
        if k <= len(self):
            return Found(sq_distances, ids, np.full(len(ids), k), labels)
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


class MemoryEngine(ExactStorage):
    """The points of one classifier, which nobody else changes.

    Its vectors are the caller's, without a copy until the first change, and its labels class codes.
    `FaissEngine` is for points that are searched and changed from several threads.
    """

    capabilities = Capabilities(exact=True, holds_labels=True, ids="integer", labels="integer")
    metric: Literal["euclidean"] = "euclidean"

    @property
    def dimension(self) -> int:
        """Length of a vector."""
        return int(self._index.vectors.shape[1])

    def points(self) -> Stored:
        """All points in the order in which they are kept, which removals change.

        The vectors are a view, which cannot be written to, until the next change.
        """
        vectors = self._index.vectors.view()
        vectors.flags.writeable = False
        return Stored(self._index.ids.copy(), self._labels.rows.copy(), vectors)

    def fingerprint(self) -> Fingerprint:
        """Exact search by faiss."""
        return {"engine": "faiss", "index": "exact"}

    def size(self) -> int:
        """How many points there are."""
        return len(self)

    def add(self, vectors: AnyArray, ids: AnyArray, labels: AnyArray | None = None) -> None:
        """Add points, all or none, in time that does not depend on how many there are."""
        self.adding(vectors, ids, np.asarray(labels))()

    def remove(self, ids: AnyArray) -> None:
        """Remove points, all or none, in time that does not depend on how many there are."""
        self.removing(ids)()

    def relabel(self, ids: AnyArray, labels: AnyArray) -> None:
        """Give points other labels, all or none."""
        self.relabelling(ids, labels)()

    def scan(self) -> Iterator[Stored]:
        """All ids and labels, in one portion."""
        yield Stored(*self.ids_and_labels())

    def close(self) -> None:
        """Nothing is open."""

    def search_other_labels(self, queries: AnyArray, label: int, k: int) -> Found:
        """The k nearest points that have another label than this."""
        rows = np.flatnonzero(self._labels.rows != label)
        if not rows.size:
            return empty_found(len(queries), 1)
        others = ExactStorage(
            self._index.vectors[rows], self._index.ids_of(rows), self._labels.rows[rows]
        )
        return others.search(queries, min(k, len(rows)))
