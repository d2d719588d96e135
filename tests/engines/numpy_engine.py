"""The smallest engine that keeps the contract: a dictionary and naive search."""

from collections.abc import Iterator
from threading import RLock
from typing import Any, Literal

import numpy as np

from nearsure.arrays import AnyArray
from nearsure.engines.checks import checked_ids, checked_k, checked_labels, checked_points
from nearsure.engines.checks import checked_queries as checked_matrix
from nearsure.engines.contract import Capabilities, Fingerprint, Found, Stored
from nearsure.engines.hits import Hits, found_from_hits
from nearsure.errors import InvalidInputError
from nearsure.index import unit_vectors

Kind = Literal["integer", "text"]
Store = dict[Any, tuple[AnyArray, Any]]


class NumpyEngine:
    """Exact search in memory; `store` may be handed on to another engine."""

    def __init__(
        self,
        dimension: int,
        *,
        ids: Kind = "integer",
        labels: Kind | None = "integer",
        metric: Literal["euclidean", "cosine"] = "euclidean",
        largest_k: int | None = None,
        store: Store | None = None,
    ) -> None:
        self.dimension = dimension
        self.metric: Literal["euclidean", "cosine"] = metric
        self.capabilities = Capabilities(
            exact=True,
            holds_labels=labels is not None,
            ids=ids,
            labels=labels,
            largest_k=largest_k,
        )
        self.store: Store = {} if store is None else store
        self._lock = RLock()

    def fingerprint(self) -> Fingerprint:
        return {"engine": "numpy", "metric": self.metric}

    def size(self) -> int:
        return len(self.store)

    def search(self, queries: AnyArray, k: int) -> Found:
        queries = checked_matrix(queries, self.dimension)
        k = checked_k(k, self.capabilities)
        if self.metric == "cosine":
            queries = unit_vectors(queries)
        with self._lock:
            ids = self._array(list(self.store), self.capabilities.ids)
            stored = self._stored(ids)
        n, n_points = len(queries), len(ids)
        assert stored.vectors is not None
        labels = stored.labels
        hits = Hits(
            np.repeat(np.arange(n), n_points),
            np.tile(ids, n),
            None if labels is None else np.tile(labels, n),
            np.tile(stored.vectors, (n, 1)),
        )
        return found_from_hits(queries, hits, k)

    def add(self, vectors: AnyArray, ids: AnyArray, labels: AnyArray | None = None) -> None:
        points, own_ids, own_labels = checked_points(
            vectors, ids, labels, dimension=self.dimension, capabilities=self.capabilities
        )
        if self.metric == "cosine":
            points = unit_vectors(points)
        single = points.astype(np.float32)
        named = [None] * len(own_ids) if own_labels is None else own_labels.tolist()
        with self._lock:
            if there := [own for own in own_ids.tolist() if own in self.store]:
                raise InvalidInputError(f"ids must be new. Got {there[:5]}, which are there.")
            new = dict(zip(own_ids.tolist(), zip(single, named, strict=True), strict=True))
            self.store.update(new)

    def remove(self, ids: AnyArray) -> None:
        with self._lock:
            for own in self._known(ids).tolist():
                del self.store[own]

    def relabel(self, ids: AnyArray, labels: AnyArray) -> None:
        if not self.capabilities.holds_labels:
            raise InvalidInputError("This engine holds no labels to change.")
        with self._lock:
            known = self._known(ids).tolist()
            own_labels = checked_labels(labels, len(known), self.capabilities)
            for own, label in zip(known, own_labels.tolist(), strict=True):
                self.store[own] = (self.store[own][0], label)

    def fetch(self, ids: AnyArray) -> Stored:
        with self._lock:
            return self._stored(self._known(ids))

    def scan(self) -> Iterator[Stored]:
        with self._lock:
            all_ids = self._array(sorted(self.store), self.capabilities.ids)
            stored = self._stored(all_ids)
        for start in range(0, len(all_ids), 100):
            part = slice(start, start + 100)
            yield Stored(all_ids[part], None if stored.labels is None else stored.labels[part])

    def close(self) -> None:
        """Nothing is to be given back."""

    def _known(self, ids: AnyArray) -> AnyArray:
        own_ids = checked_ids(ids, self.capabilities)
        if unknown := [own for own in own_ids.tolist() if own not in self.store]:
            raise InvalidInputError(f"ids must be there. Got {unknown[:5]}, which are not.")
        return own_ids

    def _stored(self, ids: AnyArray) -> Stored:
        entries = [self.store[own] for own in ids.tolist()]
        vectors = np.array([vector for vector, _ in entries], np.float32)
        labels = self.capabilities.labels
        return Stored(
            ids,
            None if labels is None else self._array([label for _, label in entries], labels),
            vectors.reshape(len(entries), self.dimension),
        )

    def _array(self, values: list[Any], kind: Kind) -> AnyArray:
        return np.array(values, np.int64 if kind == "integer" else str)
