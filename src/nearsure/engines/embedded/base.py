"""Storage of points, settings of indexes, and the form of their answers."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Condition, Lock
from typing import Any, Literal, Protocol, TypeAlias

import faiss as _faiss
import numpy as np

from nearsure.arrays import AnyArray, BoolArray, FloatArray, IntArray
from nearsure.engines.contract import Effort, Found, Stored
from nearsure.errors import InvalidInputError

Arrays: TypeAlias = dict[str, AnyArray]
Numbers: TypeAlias = Mapping[str, float | int | str | None]


class Storage(Protocol):
    """At least one point, found again by id or by nearness.

    Changes take two steps. `adding`, `removing` and `relabelling` check and prepare, while others
    read, and change nothing. What they return makes the change, while nobody reads, and returns the
    storage to use from then on; None if no point is left.
    """

    def __len__(self) -> int: ...

    def search(self, queries: AnyArray, k: int, effort: int | None = None) -> Found:
        """The k nearest points, padded where there are fewer."""

    def adding(self, vectors: AnyArray, ids: IntArray, labels: IntArray) -> "Change":
        """Add points."""

    def removing(self, ids: IntArray) -> "Change":
        """Remove points."""

    def relabelling(self, ids: IntArray, labels: IntArray) -> "Change":
        """Give points other labels."""

    def fetch(self, ids: IntArray) -> Stored:
        """Points with vectors and labels."""

    def ids_and_labels(self) -> tuple[IntArray, IntArray]:
        """Of all points, by ascending id; copies."""

    def to_state(self) -> tuple[Numbers, Arrays]:
        """All that it takes to make the same storage."""


Change: TypeAlias = Callable[[], Storage | None]


ApproximateType: TypeAlias = Literal["hnsw", "ivf"]
IndexType: TypeAlias = Literal["exact", "hnsw", "ivf"]
INDEXES = ("auto", "exact", "hnsw", "ivf")


@dataclass(frozen=True)
class IndexSettings:
    """What the approximate indexes are built and searched with.

    Parameters
    ----------
    hnsw_links : int
        Links of a node of the graph on each level, and twice as many on the lowest. They take 8
        bytes each.
    hnsw_ef_construction : int
        Candidates that are kept while a point is linked. More make a better graph, more slowly.
    hnsw_ef_search : int
        Candidates that are kept while a query is answered, and never fewer than k + 16. More find
        more of the true neighbours, more slowly.
    ivf_cells : int, optional
        How many cells there are, though not more than one for 39 points; by default four times the
        square root of the number of points. When there are four times as many points as the cells
        were made for, and more cells are due, they are rebuilt.
    ivf_probes : int
        How many cells a query opens.
    seed : int
        Of what is drawn: the levels of nodes, and the points that the cells are made from.
    build_threads : int, optional
        How many threads build an index; by default as many as faiss uses anyway.

    Notes
    -----
    The defaults were measured on 1,000,000 vectors of 128 numbers in 20,000 classes of some 24
    intrinsic dimensions, with k = 50. HNSW took 330 seconds of one core to build and found 99.7% of
    the neighbours; with 40 candidates at construction it took 210 seconds and found 99.5%, with 100
    it found 99.8%. IVF took 90 seconds and found 99.0%. Vectors that are mostly noise need more
    candidates, or exact search.
    """

    hnsw_links: int = 32
    hnsw_ef_construction: int = 80
    hnsw_ef_search: int = 128
    ivf_cells: int | None = None
    ivf_probes: int = 32
    seed: int = 0
    build_threads: int | None = None

    def __post_init__(self) -> None:
        smallest = {
            "hnsw_links": 2,
            "hnsw_ef_construction": 1,
            "hnsw_ef_search": 1,
            "ivf_cells": 1,
            "ivf_probes": 1,
            "seed": 0,
            "build_threads": 1,
        }
        may_be_left_out = ("ivf_cells", "build_threads")
        for name, least in smallest.items():
            value = getattr(self, name)
            if value is None and name in may_be_left_out:
                continue
            if not isinstance(value, int) or isinstance(value, bool) or not least <= value < 2**31:
                raise InvalidInputError(
                    f"{name} must be an integer of at least {least}. Got {value!r} instead."
                )

    def effort(self, index: str) -> Effort | None:
        """How much of this index is searched; None if all of it is."""
        if index == "hnsw":
            return Effort("ef_search", self.hnsw_ef_search, 2**31 - 1)
        return Effort("probes", self.ivf_probes, 2**31 - 1) if index == "ivf" else None

    def of(self, index: str) -> dict[str, int | None]:
        """Those that decide which neighbours this index finds."""
        if index == "hnsw":
            return {
                "links": self.hnsw_links,
                "ef_construction": self.hnsw_ef_construction,
                "ef_search": self.hnsw_ef_search,
                "seed": self.seed,
            }
        if index == "ivf":
            return {"cells": self.ivf_cells, "probes": self.ivf_probes, "seed": self.seed}
        return {}


faiss: Any = _faiss


class Selection:
    """Rows that a search may find.

    Parameters
    ----------
    row_mask : array of shape (n_rows,)
        Which rows count.
    faiss_mask : array of shape (n_faiss_rows,)
        Which rows of the faiss index stand for any of them.
    """

    def __init__(self, row_mask: BoolArray, faiss_mask: BoolArray) -> None:
        self.row_mask = row_mask
        self._faiss_mask = faiss_mask
        self._n_selected = int(faiss_mask.sum())
        # faiss keeps a pointer to the bits, so they live as long as the selector.
        self._bits = np.packbits(faiss_mask, bitorder="little")
        self.selector: Any = faiss.IDSelectorBitmap(self._bits)

    def nearest(
        self, distances: AnyArray, found: IntArray, k: int, n_needed: int
    ) -> tuple[AnyArray, IntArray]:
        """The first k that are selected among what a search without a selector found.

        Parameters
        ----------
        distances, found : array of shape (n, n_found)
            Ascending; rows of the faiss index, with -1 for padding. n_found is at least k.
        k : int
            How many to keep.
        n_needed : int
            Where fewer than these are selected, though there are more, the last of the k is
            given as missing: too few were looked at.

        Returns
        -------
        distances, found : array of shape (n, k)
        """
        selected = self._faiss_mask[found] & (found >= 0)
        first = np.argsort(~selected, axis=1, kind="stable")[:, :k]
        counts = selected.sum(axis=1)
        found = np.take_along_axis(found, first, axis=1)
        found[np.arange(k) >= counts[:, None]] = -1
        found[counts < min(n_needed, self._n_selected), -1] = -1
        return np.take_along_axis(distances, first, axis=1), found


def selector_of(selection: Selection | None) -> dict[str, Any]:
    """The selector as an option of faiss's search parameters, if there is one."""
    return {} if selection is None else {"sel": selection.selector}


def mask_of(selection: Selection | None) -> BoolArray | None:
    """The rows that count; None if all do."""
    return None if selection is None else selection.row_mask


class FaissRows(Protocol):
    """Float32 vectors in numbered rows, which faiss searches; rows are added, never removed."""

    index: Any
    """The faiss index."""
    settings: IndexSettings
    """How it is built and searched."""

    @property
    def kind(self) -> ApproximateType:
        """Which index it is."""

    @property
    def n_rows(self) -> int:
        """How many rows there are."""

    @property
    def n_trained(self) -> int | None:
        """For how many points it was trained; None if it is not."""

    def reserve(self, n_rows: int) -> None:
        """Make room for the first rows."""

    def add(self, vectors: AnyArray) -> None:
        """Add float32 rows behind the last."""

    def search(
        self,
        queries: AnyArray,
        k: int,
        selection: Selection | None,
        effort: int | None = None,
        times: int = 1,
    ) -> tuple[AnyArray, IntArray]:
        """The k nearest rows, as faiss finds them: squared distances and rows, padded with -1.

        `effort` is how much of the index is searched, None as much as the settings say; `times`
        is how many times as much.
        """

    def search_all(
        self, queries: AnyArray, k: int, selection: Selection | None
    ) -> tuple[AnyArray, IntArray]:
        """The same, with every row looked at."""

    def selected(self, row_mask: BoolArray) -> Selection:
        """A selection for `search`; good until rows are added."""

    def vectors_of(self, rows: IntArray) -> AnyArray:
        """The float32 vectors of some rows."""

    def is_outgrown_by(self, n_points: int) -> bool:
        """Whether so many points would be better served by an index made for them."""

    @property
    def nodes(self) -> IntArray | None:
        """The row of the faiss index that stands for each row; None if that is the row itself."""


@contextmanager
def threads(n_threads: int | None) -> Iterator[None]:
    """Let faiss use this many threads, in calls from this thread; None leaves it as it is."""
    if n_threads is None:
        yield
        return
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(n_threads)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)


def found_of(
    sq_distances: FloatArray, ids: IntArray, labels: IntArray, k: int, *, sorted_ties: bool
) -> Found:
    """An answer of full rows, each cut or padded to k.

    Parameters
    ----------
    sq_distances, ids, labels : array of shape (n, n_found)
        Ascending in each row; n_found is at most k. They are the answer's from now on.
    k : int
        How many were asked for.
    sorted_ties : bool
        Whether equal distances are in the order of ids already.

    Examples
    --------
    >>> tied = np.array([[0.5, 2.0, 2.0]]), np.array([[4, 9, 7]]), np.array([[0, 1, 2]])
    >>> found = found_of(*tied, 3, sorted_ties=False)
    >>> found.ids, found.labels
    (array([[4, 7, 9]]), array([[0, 2, 1]]))
    """
    n, n_found = ids.shape
    if not sorted_ties:
        is_tied = sq_distances[:, 1:] == sq_distances[:, :-1]
        # One look at all; ties are rare, and only their rows are put in order.
        if is_tied.any():
            rows = np.flatnonzero(is_tied.any(axis=1))
            order = np.lexsort((ids[rows], sq_distances[rows]), axis=1)
            ids[rows] = np.take_along_axis(ids[rows], order, axis=1)
            labels[rows] = np.take_along_axis(labels[rows], order, axis=1)
    if n_found < k:
        sq_distances = _padded(sq_distances, k, np.inf)
        ids, labels = _padded(ids, k, -1), _padded(labels, k, -1)
    return Found(sq_distances, ids, np.full(n, n_found), labels)


def empty_found(n: int, k: int) -> Found:
    """The answer of an engine without points."""
    missing = np.full((n, k), -1)
    return Found(np.full((n, k), np.inf), missing, np.zeros(n, np.int64), missing.copy())


def _padded(values: AnyArray, k: int, nothing: float) -> AnyArray:
    padded = np.full((len(values), k), nothing, values.dtype)
    padded[:, : values.shape[1]] = values
    return padded


class ReadersAndWriter:
    """A lock that is shared by readers and owned by a writer.

    A writer holds `changing` from the first look to the end, so that there is one at a time, and
    enters `alone` only to put its work in place. Readers wait from when it asks to be alone.

    Examples
    --------
    >>> lock = ReadersAndWriter()
    >>> with lock.reading(), lock.reading():
    ...     pass
    >>> with lock.changing, lock.alone():
    ...     pass
    """

    def __init__(self) -> None:
        self.changing = Lock()
        self._turn = Condition()
        self._n_readers = 0
        self._is_claimed = False

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Read among others, while nothing changes."""
        with self._turn:
            self._turn.wait_for(lambda: not self._is_claimed)
            self._n_readers += 1
        try:
            yield
        finally:
            with self._turn:
                self._n_readers -= 1
                self._turn.notify_all()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Change something, while nobody reads; only within `changing`."""
        try:
            with self._turn:
                self._is_claimed = True
                self._turn.wait_for(lambda: not self._n_readers)
            yield
        finally:
            with self._turn:
                self._is_claimed = False
                self._turn.notify_all()
