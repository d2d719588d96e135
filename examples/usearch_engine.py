"""An index of usearch as an engine of nearsure, in memory: HNSW, labels in a dictionary."""
# ruff: noqa: D102, INP001  (the contract documents the methods)

from collections.abc import Iterator

import numpy as np
from usearch.index import Index

from nearsure.arrays import AnyArray
from nearsure.engines import Capabilities, Fingerprint, Hits, SimpleEngine, Stored
from nearsure.errors import InvalidInputError


class UsearchEngine(SimpleEngine):
    """Integer ids and labels; finds most neighbours, more of them with a larger `ef`."""

    capabilities = Capabilities(exact=False, holds_labels=True, ids="integer", labels="integer")
    name, one_thread = "usearch", True

    def __init__(self, dimension: int, ef: int = 128) -> None:
        super().__init__()
        self.dimension, self._ef = dimension, ef
        self._labels: dict[int, int] = {}
        self._index = Index(ndim=dimension, metric="l2sq", dtype="f32", expansion_search=ef)

    def fingerprint(self) -> Fingerprint:
        return {"engine": "usearch", "index": "hnsw", "dimension": self.dimension, "ef": self._ef}

    def count(self) -> int:
        return len(self._labels)

    def nearest(self, queries: AnyArray, limit: int) -> Hits:
        # One by one: an answer to several has places without a neighbour.
        found = [self._index.search(query, limit).keys.astype(np.int64) for query in queries]
        rows = np.repeat(np.arange(len(queries)), [len(keys) for keys in found])
        points = self._points(np.concatenate(found))
        return Hits(rows, points.ids, points.labels, points.vectors)

    def check_ids(self, ids: AnyArray) -> None:
        if len(ids) and ids.min() < 0:
            raise InvalidInputError(f"ids of usearch must be 0 or more. Got {ids.min()} instead.")

    def put(self, vectors: AnyArray, ids: AnyArray, labels: AnyArray | None) -> None:
        self.delete(np.array([own for own in ids.tolist() if own in self._labels]))
        self._index.add(ids, vectors)
        self._labels.update(zip(ids.tolist(), np.asarray(labels).tolist(), strict=True))

    def delete(self, ids: AnyArray) -> None:
        for own in ids.tolist():
            self._index.remove(own)
            del self._labels[own]

    def get(self, ids: AnyArray) -> Stored:
        return self._points(np.array([own for own in ids.tolist() if own in self._labels], int))

    def scan(self) -> Iterator[Stored]:
        with self.asking():
            points = self._points(np.array(sorted(self._labels), np.int64))
        yield Stored(points.ids, points.labels)

    def _points(self, ids: AnyArray) -> Stored:
        vectors = np.array([self._index[own] for own in ids.tolist()], np.float32)
        labels = np.array([self._labels[own] for own in ids.tolist()], np.int64)
        return Stored(ids, labels, vectors.reshape(-1, self.dimension))
