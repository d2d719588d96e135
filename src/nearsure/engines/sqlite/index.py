"""What a gallery has in memory: the index and the names of its points; its cache beside the file.

A row of the gallery has one vector for good, so a cache from earlier is brought up to date by the
rows that have come and gone. Its checksum, which the gallery holds, shows that it is not from
another copy of the gallery: nothing of another file is given to faiss.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors import SafetensorError

from nearsure.arrays import AnyArray, BoolArray, IntArray
from nearsure.engines.contract import Found, Kind
from nearsure.engines.embedded import FaissEngine, IndexSettings, chosen_index
from nearsure.engines.embedded.base import Change
from nearsure.engines.hits import SPARE_CANDIDATES, nothing_of
from nearsure.engines.sqlite.file import DatabaseFile, beside
from nearsure.engines.sqlite.points import PointRows
from nearsure.engines.sqlite.schema import RESTORE, Layout
from nearsure.errors import EngineError, InvalidInputError, NearsureError
from nearsure.index.rows import GrowingRows, PointTable
from nearsure.model_file import read_model, sha256_of, write_model

if TYPE_CHECKING:
    from typing import Self

CACHE_SUFFIX = ".index"
CHECKSUM = "index_cache"
# An index that has less than this share in common with the gallery is rebuilt.
LEAST_COMMON = 0.5
# Names of points that are gone are cleared away when they are more than this, and than the others.
FEW_GONE = 1024
log = logging.getLogger("nearsure.engines")


class CommittedIndex(FaissEngine):
    """A `FaissEngine` over the rows of a file; its labels mean nothing.

    What it would refuse it refuses before the file is changed, as a change is prepared first; and
    what the file refuses does not come here, as a change is made last.

    Examples
    --------
    >>> index = CommittedIndex(dimension=2)
    >>> with index.committing(lambda: print(index.size(), "point")):
    ...     index.add_rows(np.array([7]), np.zeros((1, 2)))
    0 point
    >>> index.size()
    1
    """

    _commit: Callable[[], None] | None = None

    @contextmanager
    def committing(self, commit: Callable[[], None]) -> Iterator[None]:
        """Let the change inside be committed by this call; one writer at a time."""
        self._commit = commit
        try:
            yield
        finally:
            self._commit = None

    def add_rows(self, rows: IntArray, vectors: AnyArray) -> None:
        """Add rows of the file."""
        self.add(vectors, rows, np.zeros(len(rows), np.int64))

    def _make(self, prepare: Callable[[], Change]) -> None:
        with self._lock.changing:
            change = prepare()
            if self._commit is not None:
                self._commit()
            with self._lock.alone():
                self._storage = change()


def read_cache(file: DatabaseFile, like: CommittedIndex) -> CommittedIndex | None:
    """The index of the cache, if it is of this gallery and made as `like` is."""
    path = beside(file.path, CACHE_SUFFIX)
    if like.index_type == "exact" or not path.is_file():
        return None
    try:
        with file.reading() as connection:
            found = connection.execute("SELECT value FROM settings WHERE name = ?", (CHECKSUM,))
            expected = found.fetchone()
        if expected is None or expected[0] != sha256_of(path):
            return None
        manifest, arrays = read_model(path)
        index = CommittedIndex.from_state(manifest["state"], arrays)
        return index if _make(index) == _make(like) else None
    except (NearsureError, OSError, KeyError, TypeError, ValueError) as error:
        log.warning("The index beside %s is not used: %s", file.shown, error)
        return None


def write_cache(file: DatabaseFile, index: CommittedIndex) -> None:
    """Keep an index that fits what the gallery holds now; whatever goes wrong is no error."""
    if file.read_only or index.index_type == "exact" or not index.size():
        return
    path = beside(file.path, CACHE_SUFFIX)
    try:
        file.check_in_place()
        state, arrays = index.to_state()
        write_model(path, {"state": state}, arrays)
        checksum = sha256_of(path)
        # Last: a gallery with no checksum, or another one, rebuilds its index.
        with file.writing() as connection:
            connection.execute("REPLACE INTO settings VALUES (?, ?)", (CHECKSUM, checksum))
    except (NearsureError, OSError, SafetensorError, MemoryError) as error:
        log.warning("The index of %s could not be kept: %s", file.shown, error)


def _make(index: CommittedIndex) -> tuple[Any, ...]:
    return (index.index_type, index.dimension, index.metric, index.settings)


class PointNames:
    """The id and label of each row; rows are numbered upwards and never again the same.

    `put` may be called while others read, as nothing leads to a row before the index has it.
    `forget` and `relabel` are called while nobody reads.

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
        self._ids = GrowingRows(_empty(layout.ids))
        self._table = PointTable(np.empty(0, np.int64), _empty(layout.labels))
        # One object for each label, however many points have it.
        self._label_objects: dict[Any, Any] = {}

    @property
    def rows(self) -> IntArray:
        """The rows of all points, ascending."""
        return self._table.ids.of(self._table.alive_rows())

    def put(self, rows: IntArray, ids: list[Any], labels: list[Any]) -> None:
        """Add rows beyond all others."""
        is_first = not len(self._ids.rows)
        self._ids.append(np.array(ids, self._ids.rows.dtype))
        if is_first:
            self._table = PointTable(rows, self._label_array(labels))
        else:
            self._table.append(rows, self._label_array(labels))

    def forget(self, rows: IntArray) -> None:
        """Drop rows that the index does not find any more."""
        self._table.mark_deleted(self._table.rows_of(rows))
        n_rows = len(self._ids.rows)
        if n_rows - self._table.n_alive > max(FEW_GONE, n_rows // 2):
            alive = self._table.alive_rows()
            self._ids = GrowingRows(self._ids.rows[alive])
            self._table = PointTable(self._table.ids.of(alive), self._table.labels[alive])

    def relabel(self, rows: IntArray, labels: list[Any]) -> None:
        """Give rows other labels."""
        self._table.relabel(self._table.rows_of(rows), self._label_array(labels))

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
        places = found.ids
        if not self._table.ids.are_rows:
            places = np.searchsorted(self._table.ids.values, found.ids)
        ids, labels = (
            _named_at(places, names, valid) for names in (self._ids.rows, self._table.labels)
        )
        sq_distances = found.sq_distances
        is_tied = (sq_distances[:, 1:] == sq_distances[:, :-1]) & valid[:, 1:]
        if is_tied.any():
            tied = np.flatnonzero(is_tied.any(axis=1))
            # What is missing stays behind: its distance is infinite.
            order = np.lexsort((ids[tied], sq_distances[tied]), axis=1)
            ids[tied] = np.take_along_axis(ids[tied], order, axis=1)
            labels[tied] = np.take_along_axis(labels[tied], order, axis=1)
        return Found(sq_distances[:, :k], ids[:, :k], np.minimum(found.counts, k), labels[:, :k])

    def _label_array(self, labels: list[Any]) -> AnyArray:
        dtype = self._table.labels.dtype
        if dtype.kind == "O":
            labels = [self._label_objects.setdefault(label, label) for label in labels]
        return np.array(labels, dtype)


def _empty(kind: Kind) -> AnyArray:
    return np.empty(0, np.int64 if kind == "integer" else object)


def _named_at(places: IntArray, names: AnyArray, valid: BoolArray) -> AnyArray:
    """Names at places, and nothing where there is no point."""
    if not len(names):
        return np.full(places.shape, nothing_of(names))
    own = names[np.where(valid, places, 0)]
    if own.dtype == object:
        own = own.astype(str)
    own[~valid] = nothing_of(own)
    return own


@dataclass(eq=False)
class Memory:
    """Index and names, in step with the file.

    Parameters
    ----------
    index : CommittedIndex
        Its ids are rows of the file.
    names : PointNames
        Ids and labels of these rows.
    is_cached : bool
        Whether the file beside the gallery holds just this index.
    """

    index: CommittedIndex
    names: PointNames
    is_cached: bool

    @classmethod
    def of(cls, file: DatabaseFile, layout: Layout, index: str, settings: IndexSettings) -> "Self":
        """What a file holds; the index is built, or taken from beside the file."""
        points, names = PointRows(layout), PointNames(layout)
        with file.reading() as connection:
            for portion in points.names(connection):
                rows, ids, labels = (list(column) for column in zip(*portion, strict=True))
                names.put(np.array(rows, np.int64), ids, labels)
            rows_there = names.rows
            empty = CommittedIndex(
                layout.dimension, chosen_index(index, len(rows_there)), layout.metric, settings
            )
            if not len(rows_there):
                return cls(empty, names, is_cached=False)
            cached = read_cache(file, empty)
            if cached is not None:
                held = np.concatenate(
                    [np.empty(0, np.int64), *(part.ids for part in cached.scan())]
                )
                new, gone = np.setdiff1d(rows_there, held), np.setdiff1d(held, rows_there)
                if len(new) + len(gone) <= LEAST_COMMON * len(rows_there):
                    vectors = points.vectors_of_rows(connection, new)
                    if _bring_up_to_date(cached, new, vectors, gone):
                        return cls(cached, names, is_cached=not (len(new) or len(gone)))
            vectors = points.all_vectors(connection, len(rows_there))
        built = _build(empty, rows_there, vectors, file.shown)
        write_cache(file, built)
        return cls(built, names, is_cached=True)

    def search(self, queries: AnyArray, k: int, effort: int | None = None) -> Found:
        """The k nearest points of each query."""
        asked = queries, k + SPARE_CANDIDATES
        found = (
            self.index.search(*asked)
            if effort is None
            else self.index.search_with_effort(*asked, effort)
        )
        return self.names.named(found, k)


def _bring_up_to_date(
    index: CommittedIndex, new: IntArray, vectors: AnyArray, gone: IntArray
) -> bool:
    """Bring an index up to date, if it can take the new vectors."""
    try:
        if len(new):
            index.add_rows(new, vectors)
        index.remove(gone)
    except InvalidInputError:
        return False
    return True


def _build(empty: CommittedIndex, rows: IntArray, vectors: AnyArray, shown: str) -> CommittedIndex:
    for kind in (empty.index_type, "exact"):
        index = CommittedIndex(empty.dimension, kind, empty.metric, empty.settings)
        try:
            index.add_rows(rows, vectors)
        except InvalidInputError as error:
            log.warning("An index %r of %s cannot be built: %s", kind, shown, error)
        else:
            return index
    raise EngineError(
        f"{shown} holds vectors that no index takes; another program has written them. {RESTORE}"
    )
