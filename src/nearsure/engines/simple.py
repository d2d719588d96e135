"""An engine from six requests that any vector store has; the contract's rules are kept here."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock
from typing import Literal

import numpy as np

from nearsure.arrays import AnyArray
from nearsure.engines import checks
from nearsure.engines.contract import Capabilities, Fingerprint, Found, Stored
from nearsure.engines.hits import (
    SPARE_CANDIDATES,
    Hits,
    arrange_points,
    concatenate_found,
    found_from_hits,
)
from nearsure.errors import EngineUnavailableError


class SimpleEngine(ABC):
    """Checks, errors, batches, ranking and ties for an adapter that only speaks to its store.

    Changes look whether ids are there and then write, in two requests: one process may write at a
    time. A change is one call of `put` or `delete`, which must be whole or not at all.

    Attributes
    ----------
    capabilities, dimension, metric
        As the contract has them; a subclass sets them.
    name : str
        What the store is called in messages.
    batch : int
        How many queries a request may hold.
    unreachable : tuple of exception types
        What the client raises when its store is gone. Its text is not passed on, as it may quote a
        password.
    one_thread : bool
        Whether the client takes one call at a time.
    """

    capabilities: Capabilities
    dimension: int
    metric: Literal["euclidean", "cosine"] = "euclidean"
    name: str = "The engine"
    batch: int = 64
    unreachable: tuple[type[Exception], ...] = ()
    one_thread: bool = False

    def __init__(self) -> None:
        self._lock = RLock()

    @abstractmethod
    def fingerprint(self) -> Fingerprint:
        """All that decides which neighbours are found."""

    @abstractmethod
    def count(self) -> int:
        """How many points there are."""

    @abstractmethod
    def nearest(self, queries: AnyArray, limit: int) -> Hits:
        """The nearest points of some queries, in any order, with their vectors."""

    @abstractmethod
    def put(self, vectors: AnyArray, ids: AnyArray, labels: AnyArray | None) -> None:
        """Write points, in the place of those with the same ids."""

    @abstractmethod
    def delete(self, ids: AnyArray) -> None:
        """Remove points that are there."""

    @abstractmethod
    def get(self, ids: AnyArray) -> Stored:
        """Those points that are there, with vectors and labels, in any order."""

    @abstractmethod
    def scan(self) -> Iterator[Stored]:
        """All ids and labels, in portions, ids ascending."""

    def size(self) -> int:
        """How many points there are."""
        with self.asking():
            return self.count()

    def search(self, queries: AnyArray, k: int) -> Found:
        """The k nearest points of each query."""
        queries = checks.checked_queries(queries, self.dimension)
        limit = checks.checked_k(k, self.capabilities) + SPARE_CANDIDATES
        parts = []
        for start in range(0, len(queries), self.batch):
            some = queries[start : start + self.batch]
            with self.asking():
                hits = self.nearest(some, limit)
            parts.append(found_from_hits(some, hits, k))
        return concatenate_found(parts)

    def add(self, vectors: AnyArray, ids: AnyArray, labels: AnyArray | None = None) -> None:
        """Add points whose ids are new."""
        vectors, ids, labels = checks.checked_points(
            vectors, ids, labels, dimension=self.dimension, capabilities=self.capabilities
        )
        with self._lock, self.asking():
            checks.check_none_there(self.get(ids).ids.tolist())
            self.put(vectors, ids, labels)

    def remove(self, ids: AnyArray) -> None:
        """Remove points."""
        with self._lock, self.asking():
            self.delete(self.fetch(ids).ids)

    def relabel(self, ids: AnyArray, labels: AnyArray) -> None:
        """Give points other labels."""
        with self._lock, self.asking():
            stored = self.fetch(ids)
            labels = checks.checked_labels(labels, len(stored.ids), self.capabilities)
            self.put(np.asarray(stored.vectors), stored.ids, labels)

    def fetch(self, ids: AnyArray) -> Stored:
        """Points in the order of `ids`."""
        wanted = checks.checked_ids(ids, self.capabilities)
        with self.asking():
            stored = self.get(wanted)
        return arrange_points(stored, wanted)

    def close(self) -> None:  # noqa: B027 - it need not be overridden
        """Nothing by default: the client belongs to the caller."""

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Requests inside raise `EngineUnavailableError` if the store is gone."""
        if self.one_thread:
            self._lock.acquire()
        try:
            yield
        except self.unreachable:
            raise EngineUnavailableError(f"{self.name} cannot be reached. Try again.") from None
        finally:
            if self.one_thread:
                self._lock.release()
