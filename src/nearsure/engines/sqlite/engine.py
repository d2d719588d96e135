"""A gallery in one SQLite file."""

import logging
import os
import weakref
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import numpy as np

from nearsure.arrays import AnyArray
from nearsure.engines import checks
from nearsure.engines.contract import Found
from nearsure.engines.embedded import IndexSettings, chosen_index
from nearsure.engines.embedded.readers_and_writer import ReadersAndWriter
from nearsure.engines.sqlite.changes import Changes
from nearsure.engines.sqlite.connection import GalleryFile, shown_as
from nearsure.engines.sqlite.creation import create_gallery
from nearsure.engines.sqlite.failures import closed
from nearsure.engines.sqlite.file_check import check_contents
from nearsure.engines.sqlite.index_cache import IndexCache
from nearsure.engines.sqlite.memory import Memory
from nearsure.engines.sqlite.notes import Notes
from nearsure.engines.sqlite.pictures import put_pictures
from nearsure.engines.sqlite.point_rows import PointRows
from nearsure.engines.sqlite.schema import Kind, Layout, Metric, Precision, read_layout
from nearsure.engines.sqlite.stored_gallery import StoredGallery
from nearsure.errors import EngineAccessError, EngineError
from nearsure.whole_files import resolved

log = logging.getLogger("nearsure.engines")


class SqliteEngine(StoredGallery):
    """A gallery in one SQLite file, searched by faiss in the memory of this process.

    A change is one transaction, on the disk when the call returns: it outlasts the end of the
    process at any moment, and a loss of power. Searches go on meanwhile, and see a change whole or
    not at all. Vectors come back to the last bit in the precision of the gallery.

    One process has a gallery open at a time; the lock is the system's, and goes when the process
    does. Other programs may read the file, but must not write it. It needs a local disk, and one
    name: a file with hard links is refused. If it is removed or replaced while it is open, or its
    log or lock is, every change, and everything that is read from it, is an
    ``EngineUnavailableError`` from then on: nothing is acknowledged that nobody would find.

    Beside the file stand SQLite's own ``-wal`` and ``-shm`` while it is open, a ``.lock``, and for
    ``"hnsw"`` and ``"ivf"`` an ``.index``, which may be deleted: it only saves the time to build
    the index when the gallery is opened. A gallery from elsewhere is checked when it is opened, but
    faiss reads an ``.index`` that came with it without much care: delete that of a stranger.

    Parameters
    ----------
    path : str or path-like
        The file; `create` makes a new one.
    index : {"auto", "exact", "hnsw", "ivf"}
        How points are found; see `FaissEngine`. ``"auto"`` is what the gallery was created with,
        and if that is ``"auto"``, too, it is decided by the number of points when the gallery is
        opened: up to 200,000 exactly, more than that by ``"hnsw"``.
    settings : IndexSettings, optional
        What ``"hnsw"`` and ``"ivf"`` are built and searched with; by default what the gallery was
        created with.
    timeout : float
        Seconds to wait for other programs that lock the file.

    Attributes
    ----------
    notes : mutable mapping of str to bytes
        Anything that is to be kept with the gallery, such as a fitted model; each assignment is a
        transaction, and so is an ``update`` of several.
    changes : Changes
        Which points were changed since some moment, also by a process that was killed.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = Path(folder.name) / "animals.sqlite"
    >>> with SqliteEngine.create(path, dimension=2) as engine:
    ...     engine.add(np.array([[0.0, 0.0], [3.0, 4.0]]), ["tom", "rex"], ["cat", "dog"])
    >>> with SqliteEngine(path) as engine:
    ...     found = engine.search(np.array([[0.0, 1.0]]), k=2)
    ...     found.sq_distances, found.ids.tolist(), found.labels.tolist()
    (array([[ 1., 18.]]), [['tom', 'rex']], [['cat', 'dog']])
    >>> folder.cleanup()
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        index: str = "auto",
        settings: IndexSettings | None = None,
        timeout: float = 5.0,
    ) -> None:
        chosen_index(index, 0)
        self._file = file = GalleryFile(_resolved(path), timeout)
        # An engine that is forgotten lets others have the file, too.
        weakref.finalize(self, file.close)
        self._lock = ReadersAndWriter()
        try:
            with file.reading() as connection:
                self._layout = read_layout(connection, file.shown)
                check_contents(connection, self._layout, file.shown)
            self._points = PointRows(self._layout)
            self._settings = settings or self._layout.settings
            self._index = self._layout.index if index == "auto" else index
            self._memory: Memory | None = self._loaded()
            self.changes = Changes(file, self._layout)
        except BaseException:
            file.close()
            raise
        self._is_cached = self._memory.is_cached
        # Decided here, not with the first points: a fingerprint does not change with them.
        self.index_type = self._memory.index.index_type
        self._index = self.index_type
        self.notes: MutableMapping[str, bytes] = Notes(file)

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        dimension: int,
        *,
        metric: Metric = "euclidean",
        ids: Kind = "text",
        labels: Kind = "text",
        precision: Precision = "float32",
        index: str = "auto",
        settings: IndexSettings | None = None,
        timeout: float = 5.0,
    ) -> Self:
        """Make a new gallery and open it.

        Parameters
        ----------
        path : str or path-like
            Where nothing is yet.
        dimension : int
            Length of a vector.
        metric : {"euclidean", "cosine"}
            ``"cosine"`` compares vectors at unit length; they are kept as they are given.
        ids, labels : {"text", "integer"}
            What names a point, and its class.
        precision : {"float32", "float64"}
            In which vectors are kept.
        index, settings, timeout
            As of the class; index and settings are remembered.
        """
        layout = Layout(
            dimension, metric, ids, labels, precision, index, settings or IndexSettings()
        )
        create_gallery(_resolved(path), layout)
        return cls(path, timeout=timeout)

    def size(self) -> int:
        """How many points there are; an error if the file is not where it was any more."""
        n_points = self._opened().index.size()
        self._file.check_in_place()
        return n_points

    def search(self, queries: AnyArray, k: int) -> Found:
        """The k nearest points of each query; see `Engine.search`."""
        asked = checks.checked_queries(queries, self.dimension)
        k = checks.checked_k(k, self.capabilities)
        with self._lock.reading():
            return self._opened().search(asked, k)

    def add(self, vectors: AnyArray, ids: AnyArray, labels: AnyArray | None = None) -> None:
        """Add points, all or none; see `Engine.add`."""
        points, own, own_labels = checks.checked_points(
            vectors, ids, labels, dimension=self.dimension, capabilities=self.capabilities
        )
        stored, named = self._layout.stored(points), np.asarray(own_labels)
        with self._changing() as memory:
            with self._file.reading() as connection:
                self._points.check_new(connection, own)
                rows = self._points.next_row(connection) + np.arange(len(own))

            def commit() -> None:
                self._is_cached = False
                with self._file.writing() as writer:
                    self._points.insert(writer, rows, own, named, stored)
                    self.changes.record(writer, own)
                # Nothing leads to these before the index has the rows.
                memory.names.put(rows, own.tolist(), named.tolist())

            with self._in_step(), memory.index.committing(commit):
                memory.add(rows, stored)

    def remove(self, ids: AnyArray) -> None:
        """Remove points and their pictures, all or none; see `Engine.remove`."""
        own = checks.checked_ids(ids, self.capabilities)
        with self._changing() as memory:
            with self._file.reading() as connection:
                rows = self._points.rows_of(connection, own)
            if not len(rows):
                return

            def commit() -> None:
                self._is_cached = False
                with self._file.writing() as writer:
                    self._points.delete(writer, rows)
                    self.changes.record(writer, own)

            with self._in_step():
                with memory.index.committing(commit):
                    memory.index.remove(rows)
                # Whoever has found these rows before has to name them still.
                with self._lock.alone():
                    memory.names.forget(rows)

    def relabel(self, ids: AnyArray, labels: AnyArray) -> None:
        """Give points other labels, all or none; see `Engine.relabel`."""
        own = checks.checked_ids(ids, self.capabilities)
        named = checks.checked_labels(labels, len(own), self.capabilities)
        with self._changing() as memory:
            with self._file.reading() as connection:
                rows = self._points.rows_of(connection, own)
            if not len(rows):
                return
            with self._in_step():
                with self._file.writing() as writer:
                    self._points.relabel(writer, rows, named)
                    self.changes.record(writer, own)
                with self._lock.alone():
                    memory.names.relabel(rows, named.tolist())

    def put_pictures(self, pictures: Mapping[str, bytes] | Mapping[int, bytes]) -> None:
        """Keep small pictures of points, all or none, in the place of earlier ones.

        Parameters
        ----------
        pictures : mapping of id to bytes
            Each the content of an image file. A picture goes when its point is removed.
        """
        own = checks.checked_ids(np.array(list(pictures)), self.capabilities)
        with self._changing(), self._file.writing() as writer:
            put_pictures(writer, self._points.rows_of(writer, own), list(pictures.values()))

    def close(self) -> None:
        """Keep the index beside the file, and let others have the gallery."""
        with self._lock.changing:
            memory = self._memory
            with self._lock.alone():
                self._memory = None
            if memory is not None and not self._is_cached:
                IndexCache(self._file).write(memory.index)
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @contextmanager
    def _changing(self) -> Iterator[Memory]:
        """One change at a time, and only while the gallery is open."""
        with self._lock.changing:
            yield self._opened()

    @contextmanager
    def _in_step(self) -> Iterator[None]:
        """Load memory from the file again if it could not follow what was committed inside."""
        before = self._file.n_commits
        try:
            yield
        except BaseException as error:
            if self._file.n_commits == before or self._file.is_lost:
                raise
            self._reload()
            if not isinstance(error, Exception):
                raise
            # The change is in the file and, by now, in memory: it has been made.
            log.warning("%s was loaded again after %r", self._file.shown, error)

    def _reload(self) -> None:
        try:
            memory = self._loaded()
        except BaseException as error:
            with self._lock.alone():
                self._memory = None
            raise EngineError(
                f"A change of {self._file.shown} is in the file, but could not be loaded into "
                "memory. Close the gallery and open it again."
            ) from error
        with self._lock.alone():
            self._memory = memory

    def _loaded(self) -> Memory:
        return Memory.of(self._file, self._layout, self._index, self._settings)

    def _opened(self) -> Memory:
        memory = self._memory
        if memory is None:
            raise closed(self._file.shown)
        return memory


def _resolved(path: str | os.PathLike[str]) -> Path:
    try:
        return resolved(Path(path))
    except OSError as error:
        raise EngineAccessError(f"{shown_as(Path(path))}: {error.strerror}.") from error
