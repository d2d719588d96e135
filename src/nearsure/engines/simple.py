"""An engine from six requests that any vector store has; the contract's rules are kept here."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from threading import RLock
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from nearsure.arrays import AnyArray
from nearsure.engines import checks
from nearsure.engines.changes import ChangeName, Changes
from nearsure.engines.contract import Capabilities, Effort, Fingerprint, Found, Metric, Stored
from nearsure.engines.hits import (
    SPARE_CANDIDATES,
    Hits,
    arrange_points,
    array_of_kind,
    concatenate_found,
    concatenate_points,
    found_from_hits,
    with_vectors,
)
from nearsure.errors import EngineUnavailableError, InvalidInputError, NearsureError
from nearsure.index import unit_vectors

if TYPE_CHECKING:
    from typing import Self


class SimpleEngine(ABC):
    """Checks, errors, batches, ranking and ties for an adapter that only speaks to its store.

    Changes look whether ids are there and then write, in two requests: one process may write at a
    time. A call of `put`, `delete` or `put_labels` must be whole or not at all. A change of more
    than `portion` points is several calls; if it is cut off between two of them, the engine raises
    `PartialGalleryError` until the change has been repeated or, for a load, taken back with
    `remove` of the same ids. Vectors are stored in single precision.

    Attributes
    ----------
    capabilities, dimension, metric
        As the contract has them; a subclass sets them.
    name : str
        What the store is called in messages.
    batch : int
        How many queries a request may hold.
    portion : int or None
        How many points a request may hold; None if there is no limit.
    unreachable : tuple of exception types
        What the client raises when its store is gone. Its text is not passed on, as it may quote a
        password.
    one_thread : bool
        Whether the client takes one call at a time.
    """

    capabilities: Capabilities
    dimension: int
    metric: Metric = "euclidean"
    name: str = "The engine"
    batch: int = 64
    portion: int | None = None
    unreachable: tuple[type[Exception], ...] = ()
    one_thread: bool = False

    def __init__(self) -> None:
        self._lock = RLock()
        self._changes = Changes(self.name)

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

    def get_ids(self, ids: AnyArray) -> list[Any]:
        """Those ids that are there; by default their points are read whole."""
        return cast("list[Any]", self.get(ids).ids.tolist())

    @property
    def effort(self) -> Effort | None:
        """How much of its index the store searches; None if there is nothing to choose."""
        return None

    def nearest_with_effort(self, queries: AnyArray, limit: int, effort: int) -> Hits:
        """The same as `nearest` with another effort, where there is one to choose."""
        raise NotImplementedError

    def check_ids(self, ids: AnyArray) -> None:  # noqa: B027 - it need not be overridden
        """Raise an error for ids that the store cannot hold, before anything is written."""

    def put_labels(self, ids: AnyArray, labels: AnyArray) -> None:
        """Give points that are there other labels; by default they are rewritten."""
        self.put(np.asarray(self._stored(ids).vectors), ids, labels)

    def translate(self, error: Exception) -> NearsureError | None:
        """What an error of the client means; None to leave it as it is."""
        if isinstance(error, self.unreachable):
            return EngineUnavailableError(f"{self.name} cannot be reached. Try again.")
        return None

    def size(self) -> int:
        """How many points there are."""
        self._changes.check_whole()
        with self.asking():
            return self.count()

    def search(self, queries: AnyArray, k: int) -> Found:
        """The k nearest points of each query."""
        return self._search(queries, k, self.nearest)

    def search_with_effort(self, queries: AnyArray, k: int, effort: int) -> Found:
        """The same with another effort."""
        checks.checked_effort(effort, self.effort)
        return self._search(queries, k, partial(self.nearest_with_effort, effort=effort))

    def _search(self, queries: AnyArray, k: int, nearest: Callable[..., Hits]) -> Found:
        queries = checks.checked_queries(queries, self.dimension)
        limit = checks.checked_k(k, self.capabilities) + SPARE_CANDIDATES
        if self.metric == "cosine":
            queries = unit_vectors(queries)
        sent = checks.single_precision(queries, "queries")
        self._changes.check_whole()
        parts = []
        for part in _slices(len(queries), self.batch):
            with self.asking():
                hits = nearest(sent[part], limit)
            if hits.vectors is not None:
                hits = with_vectors(hits, hits.vectors, self.metric)
            parts.append(found_from_hits(queries[part], hits, k))
        return concatenate_found(parts)

    def add(self, vectors: AnyArray, ids: AnyArray, labels: AnyArray | None = None) -> None:
        """Add points whose ids are new."""
        vectors, ids, labels = checks.checked_points(
            vectors, ids, labels, dimension=self.dimension, capabilities=self.capabilities
        )
        vectors = checks.single_precision(vectors, "vectors")
        if self.metric == "cosine":
            checks.check_direction(vectors)

        def check() -> None:
            # The first load is the largest as a rule, and has nothing to look up.
            if self.count():
                checks.check_none_there(self._ids_there(ids))

        def write(part: slice) -> None:
            self.put(vectors[part], ids[part], None if labels is None else labels[part])

        self._change("add", ids, check, write)

    def remove(self, ids: AnyArray) -> None:
        """Remove points."""
        ids = checks.checked_ids(ids, self.capabilities)

        def check() -> None:
            checks.check_all_there(ids, set(self._ids_there(ids)))

        self._change("remove", ids, check, lambda part: self.delete(ids[part]))

    def relabel(self, ids: AnyArray, labels: AnyArray) -> None:
        """Give points other labels."""
        if not self.capabilities.holds_labels:
            raise InvalidInputError("This gallery holds no labels to change.")
        ids = checks.checked_ids(ids, self.capabilities)
        labels = checks.checked_labels(labels, len(ids), self.capabilities)

        def check() -> None:
            checks.check_all_there(ids, set(self._ids_there(ids)))

        self._change("relabel", ids, check, lambda part: self.put_labels(ids[part], labels[part]))

    def fetch(self, ids: AnyArray) -> Stored:
        """Points in the order of `ids`."""
        wanted = checks.checked_ids(ids, self.capabilities)
        self._changes.check_whole()
        with self.asking():
            return self._stored(wanted)

    def close(self) -> None:  # noqa: B027 - it need not be overridden
        """Nothing by default: the client belongs to the caller."""

    def __enter__(self) -> "Self":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Requests inside raise errors of nearsure where the client raises its own."""
        if self.one_thread:
            self._lock.acquire()
        try:
            with translating(self.translate):
                yield
        finally:
            if self.one_thread:
                self._lock.release()

    def _change(
        self,
        kind: ChangeName,
        ids: AnyArray,
        check: Callable[[], object],
        write: Callable[[slice], None],
    ) -> None:
        """Check, unless a change that was cut off is repeated or taken back, and write."""
        self.check_ids(ids)
        parts = list(_slices(len(ids), self.portion))
        with self._lock, self.asking():
            change, is_repeated = self._changes.begin(kind, ids, takes_several=len(parts) > 1)
            if not is_repeated:
                check()
            with self._changes.noting(change):
                for part in parts:
                    write(part)

    def _ids_there(self, ids: AnyArray) -> list[Any]:
        parts = _slices(len(ids), self.portion)
        return [own for part in parts for own in self.get_ids(ids[part])]

    def _stored(self, ids: AnyArray) -> Stored:
        """Points in the order of `ids`."""
        parts = [self.get(ids[part]) for part in _slices(len(ids), self.portion)]
        return arrange_points(concatenate_points(parts) if parts else self._no_points(), ids)

    def _no_points(self) -> Stored:
        kinds = self.capabilities
        labels = None if kinds.labels is None else array_of_kind([], kinds.labels)
        vectors = np.empty((0, self.dimension), np.float32)
        return Stored(array_of_kind([], kinds.ids), labels, vectors)


@contextmanager
def translating(translate: Callable[[Exception], NearsureError | None]) -> Iterator[None]:
    """Inside, what a client raises is raised as what it means to nearsure."""
    try:
        yield
    except NearsureError:
        raise
    except Exception as error:
        meant = translate(error)
        if meant is None:
            raise
        raise meant from None


def _slices(n: int, step: int | None) -> Iterator[slice]:
    for start in range(0, n, step or max(n, 1)):
        yield slice(start, start + (step or n))
