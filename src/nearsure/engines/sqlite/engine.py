"""`SqliteEngine`: points in one file, their index in memory."""

import logging
import os
import shutil
import sqlite3
import weakref
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from nearsure.arrays import AnyArray
from nearsure.atomic import Draft, resolved
from nearsure.engines import checks
from nearsure.engines.contract import Capabilities, Effort, Fingerprint, Found, Kind, Metric, Stored
from nearsure.engines.embedded import IndexSettings, chosen_index
from nearsure.engines.embedded.base import ReadersAndWriter
from nearsure.engines.sqlite import schema
from nearsure.engines.sqlite.file import (
    DatabaseFile,
    FileLock,
    beside,
    check_only_name,
    closed_error,
    connect,
    shown_as,
    translate_errors,
)
from nearsure.engines.sqlite.index import CACHE_SUFFIX, Memory, write_cache
from nearsure.engines.sqlite.points import READ_AT_ONCE, Changes, Notes, PointRows, has_texts
from nearsure.engines.sqlite.schema import Layout, Precision
from nearsure.errors import (
    EngineAccessError,
    EngineError,
    EngineUnavailableError,
    GalleryMismatchError,
    GalleryNotFoundError,
    InvalidInputError,
    NearsureError,
)

if TYPE_CHECKING:
    from typing import Self

# What a gallery that was deleted may have left: SQLite would take its log for one of the new file.
LEFTOVERS = ("-wal", "-shm", "-journal", CACHE_SUFFIX)
# Copied at a time; progress is reported after each.
PAGES = 4096


def create_gallery(path: Path, layout: Layout) -> None:
    """Make an empty gallery.

    It is made under another name and renamed, so that no moment leaves half a gallery.
    """
    shown = shown_as(path)
    with translate_errors(shown):
        path.parent.mkdir(parents=True, exist_ok=True)
    with closing(FileLock(path, shown)):
        if path.exists():
            raise GalleryMismatchError(
                f"{shown} already exists. Open it with SqliteEngine(path), or choose another name."
            )
        try:
            draft = Draft.of(path)
            try:
                with (
                    translate_errors(shown),
                    closing(sqlite3.connect(draft.path, isolation_level=None)) as connection,
                ):
                    connection.execute("BEGIN")
                    schema.create_tables(connection, layout)
                    connection.execute("COMMIT")
                put_in_place(draft.path, path)
            finally:
                draft.discard()
        except NearsureError:
            raise
        except OSError as error:
            raise EngineAccessError(f"{shown} cannot be made: {error.strerror}.") from error


def put_in_place(made: Path, path: Path) -> None:
    """Give a closed gallery the name of another, whose lock is held, and of which nothing stays."""
    if path.exists():
        # Its log goes into it first: should this process end here, it is as it was.
        with suppress(sqlite3.Error), closing(sqlite3.connect(path)) as old:
            _, n_logged, n_moved = old.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            if n_moved < n_logged:
                raise EngineUnavailableError(
                    f"{shown_as(path)} is being read as it was before its last change, and cannot "
                    "be replaced meanwhile. Wait until it has been read, and ask again."
                )
    for suffix in LEFTOVERS:
        beside(path, suffix).unlink(missing_ok=True)
    made.replace(path)
    _sync_folder(path.parent)


def copy_gallery(source: Path, copy: Path, advance: Callable[[int], None]) -> None:
    """Copy a gallery as it is at this moment, also while a service changes it, and check the copy.

    Parameters
    ----------
    source : Path
        The gallery; what its log holds is copied, too.
    copy : Path
        A new file, closed and without a log at the end.
    advance : callable
        Called with the number of bytes that were copied since the last call.

    Raises
    ------
    GalleryNotFoundError
        If there is no file.
    GalleryMismatchError
        If it is no gallery, or holds what no gallery does.
    EngineError
        If it is damaged, or cannot be read or written.
    """
    shown = shown_as(source)
    if not source.is_file():
        raise GalleryNotFoundError(f"There is no file {shown}.")
    check_only_name(source, shown)
    # With the right to write, no log is left behind; without it, the file can still be read.
    mode: Literal["rw", "ro", "ro&immutable=1"] = "rw" if os.access(source, os.W_OK) else "ro"
    if not os.access(source.parent, os.W_OK) and not beside(source, "-wal").exists():
        # As on a disk of backups: SQLite could make no log there to share it by.
        mode = "ro&immutable=1"
    before = _written(source)
    # Readable to this user alone until it has the rights of the source.
    copy.touch(mode=0o600)
    of_copy = f"The copy of {shown}"
    with (
        translate_errors(shown),
        closing(connect(source, mode)) as own,
        closing(sqlite3.connect(copy, isolation_level=None)) as copied,
    ):
        schema.check_is_gallery(own, shown)
        page_size = own.execute("PRAGMA page_size").fetchone()[0]
        n_left = own.execute("PRAGMA page_count").fetchone()[0]

        def progress(_: int, remaining: int, __: int) -> None:
            nonlocal n_left
            advance((n_left - remaining) * page_size)
            n_left = remaining

        # One state from the first page to the last, whatever is written meanwhile.
        own.execute("BEGIN")
        own.execute("SELECT COUNT(*) FROM settings").fetchone()
        with translate_errors(of_copy):
            own.backup(copied, pages=PAGES, progress=progress)
            # As every gallery is: otherwise its first reader would lock its first writer out.
            copied.execute("PRAGMA journal_mode = WAL")
            copied.execute("PRAGMA trusted_schema = OFF")
            _check_whole(copied, shown)
    if mode == "ro&immutable=1" and _written(source) != before:
        raise EngineUnavailableError(f"{shown} was written while it was copied. Copy it again.")
    shutil.copymode(source, copy)


def _written(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_mtime_ns, found.st_size


def _check_whole(connection: sqlite3.Connection, shown: str) -> None:
    found = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    if found != "ok":
        raise EngineError(f"{shown} is damaged: {' '.join(found.split())}. Take an earlier backup.")
    schema.check_tables(connection, shown)
    schema.check_contents(connection, schema.read_layout(connection, shown), shown)


def _sync_folder(folder: Path) -> None:
    """Let the new name outlast a loss of power."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


log = logging.getLogger("nearsure.engines")
# Points that one check reads.
CHECKED_AT_ONCE = 1000


class SqliteEngine:
    """A gallery in one SQLite file, searched by faiss in the memory of this process.

    A change is one transaction, on the disk when the call returns: it outlasts the end of the
    process at any moment, and a loss of power. Searches go on meanwhile, and see a change whole or
    not at all. Vectors come back to the last bit in the precision of the gallery.

    A gallery has one writer at a time; the lock is the system's, and goes when the process does.
    Any number of readers (``read_only=True``) may have it open meanwhile: each sees it as it was
    when it was opened, whole, until it is closed. Other programs must not write the file. It needs
    a local disk, and one name: a file with hard links is refused. If it is removed or replaced
    while a writer has it open, or its log or lock is, every change, and everything that is read
    from it, is an ``EngineUnavailableError`` from then on: nothing is acknowledged that would not
    be found again.

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
    read_only : bool
        Whether to be a reader: it takes no lock, and every change is an ``EngineAccessError``.

    Attributes
    ----------
    capabilities, dimension, metric
        As the contract has them.
    notes : mutable mapping of str to bytes
        Anything that is to be kept with the gallery, such as a fitted model; each assignment is a
        transaction, and so is an ``update`` of several.
    has_texts : bool
        Whether any text is kept.
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
        read_only: bool = False,
    ) -> None:
        chosen_index(index, 0)
        self._file = file = DatabaseFile(_resolve(path), timeout, read_only=read_only)
        # An engine that is forgotten lets others have the file, too.
        weakref.finalize(self, file.close)
        self._lock = ReadersAndWriter()
        try:
            with file.reading() as connection:
                self._layout = schema.read_layout(connection, file.shown)
                schema.check_contents(connection, self._layout, file.shown)
            self._points = PointRows(self._layout)
            self._settings = settings or self._layout.settings
            self._index = self._layout.index if index == "auto" else index
            self._memory: Memory | None = self._load()
            self.changes = Changes(file, self._layout)
            with file.reading() as connection:
                self.has_texts = has_texts(connection)
        except BaseException:
            file.close()
            raise
        # Decided here, not with the first points: a fingerprint does not change with them.
        self._index = self.index_type = self._memory.index.index_type
        self._fingerprint = _fingerprint(self._layout, self.index_type, self._settings)
        self.dimension = self._layout.dimension
        self.metric = self._layout.metric
        self.capabilities = Capabilities(
            exact=self.index_type == "exact",
            holds_labels=True,
            ids=self._layout.ids,
            labels=self._layout.labels,
        )
        self._checked_up_to: str | int | None = None
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
    ) -> "Self":
        """Make a new gallery and open it.

        Parameters
        ----------
        path : str or path-like
            Where nothing is yet; missing folders are made.
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
        create_gallery(_resolve(path), layout)
        return cls(path, timeout=timeout)

    def fingerprint(self) -> Fingerprint:
        """Engine, index and its settings; metric and precision where they are not the usual."""
        return dict(self._fingerprint)

    def size(self) -> int:
        """How many points there are; an error if the file is not where it was any more."""
        n_points = self._require_open().index.size()
        self._file.check_in_place()
        return n_points

    @property
    def effort(self) -> Effort | None:
        """How much of the index a search looks at; None for ``"exact"``."""
        return self._settings.effort(self.index_type)

    def search(self, queries: AnyArray, k: int) -> Found:
        """The k nearest points of each query; see `Engine.search`."""
        return self._find(queries, k, None)

    def search_with_effort(self, queries: AnyArray, k: int, effort: int) -> Found:
        """The same with another effort than that of the settings."""
        checks.checked_effort(effort, self.effort)
        return self._find(queries, k, effort)

    def _find(self, queries: AnyArray, k: int, effort: int | None) -> Found:
        k = checks.checked_k(k, self.capabilities)
        with self._lock.reading():
            return self._require_open().search(queries, k, effort)

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
                memory.is_cached = False
                with self._file.writing() as writer:
                    self._points.insert(writer, rows, Stored(own, named, stored))
                    self.changes.record(writer, own)
                # Nothing leads to these before the index has the rows.
                memory.names.put(rows, own.tolist(), named.tolist())

            with self._in_step(), memory.index.committing(commit):
                memory.index.add_rows(rows, stored)

    def remove(self, ids: AnyArray) -> None:
        """Remove points, their pictures and texts, all or none; see `Engine.remove`."""
        own = checks.checked_ids(ids, self.capabilities)
        with self._changing() as memory:
            with self._file.reading() as connection:
                rows = self._points.rows_of(connection, own)
            if not len(rows):
                return

            def commit() -> None:
                memory.is_cached = False
                with self._file.writing() as writer:
                    self._points.delete(writer, rows)
                    self.changes.record(writer, own)

            with self._in_step():
                with memory.index.committing(commit):
                    memory.index.remove(rows)
                # Searches that have found these rows before still need their names.
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

    def fetch(self, ids: AnyArray) -> Stored:
        """Points with vectors and labels, in the order of `ids`, which may come twice."""
        given = np.asarray(ids)
        distinct, places = np.unique(given, return_inverse=True)
        known = checks.checked_ids(given if given.ndim != 1 else distinct, self.capabilities)
        with self._file.reading() as connection:
            return self._points.fetch(connection, known[places])

    def scan(self) -> Iterator[Stored]:
        """All ids and labels in portions, ids ascending; each portion as it is when it is taken."""
        portion = self.page(limit=READ_AT_ONCE)
        while len(portion.ids):
            yield portion
            portion = self.page(after=portion.ids[-1].item(), limit=READ_AT_ONCE)

    def page(
        self, after: str | int | None = None, limit: int = 100, label: str | int | None = None
    ) -> Stored:
        """Some ids and labels, ids ascending, without vectors.

        Parameters
        ----------
        after : str or int, optional
            Only ids beyond this one, which need not be there; by default from the first on.
        limit : int
            How many at most.
        label : str or int, optional
            Only points with this label.
        """
        if limit < 1:
            raise InvalidInputError(f"limit must be at least 1. Got {limit} instead.")
        first = None if after is None else self._checked_id(after)
        with self._file.reading() as connection:
            return self._points.page(connection, first, int(limit), self._checked_label(label))

    def count(self, label: str | int | None = None) -> int:
        """How many points have a label; by default, how many there are."""
        if label is None:
            return self.size()
        with self._file.reading() as connection:
            return self._points.count(connection, self._checked_label(label))

    def picture(self, own_id: str | int) -> bytes | None:
        """The picture of a point; None if there is none, or no such point."""
        wanted = self._checked_id(own_id)
        with self._file.reading() as connection:
            return self._points.picture(connection, wanted)

    def texts(self, ids: AnyArray) -> dict[str | int, str]:
        """The texts of points by id; what has none, or is not there, is left out."""
        if not self.has_texts:
            return {}
        with self._file.reading() as connection:
            return self._points.texts(connection, np.asarray(ids))

    def text(self, own_id: str | int) -> str | None:
        """The text of a point; None if there is none, or no such point."""
        wanted = self._checked_id(own_id)
        return self.texts(np.array([wanted])).get(wanted)

    def check(self) -> None:
        """An error unless the file can be read now, whatever was read of it before.

        It reads what the tables are, and some points, the next time those behind them: little
        enough to be asked every second. Points that could not be read are tried again.
        """
        with self._file.reading() as connection:
            # What a connection remembers need not be in the file any more.
            connection.execute("PRAGMA shrink_memory")
            schema.check_tables(connection, self._file.shown)
            ids = self._points.page(connection, self._checked_up_to, CHECKED_AT_ONCE, None).ids
            self._points.fetch(connection, ids)
        self._checked_up_to = ids[-1].item() if len(ids) == CHECKED_AT_ONCE else None

    def put_pictures(self, pictures: Mapping[str, bytes] | Mapping[int, bytes]) -> None:
        """Keep small pictures of points, all or none, in the place of earlier ones.

        Parameters
        ----------
        pictures : mapping of id to bytes
            Each the content of an image file. A picture goes when its point is removed.
        """
        own = checks.checked_ids(np.array(list(pictures)), self.capabilities)
        with self._changing(), self._file.writing() as writer:
            rows = self._points.rows_of(writer, own)
            self._points.put_pictures(writer, rows, list(pictures.values()))

    def put_texts(self, texts: Mapping[str, str] | Mapping[int, str]) -> None:
        """Keep the texts that points were made of, all or none, in the place of earlier ones.

        Parameters
        ----------
        texts : mapping of id to str
            A text goes when its point is removed.
        """
        own = checks.checked_ids(np.array(list(texts)), self.capabilities)
        with self._changing(), self._file.writing() as writer:
            rows = self._points.rows_of(writer, own)
            self._points.put_texts(writer, rows, list(texts.values()))
        self.has_texts = True

    def close(self) -> None:
        """Keep the index beside the file, and let others have the gallery."""
        with self._lock.changing:
            memory = self._memory
            with self._lock.alone():
                self._memory = None
            if memory is not None and not memory.is_cached:
                write_cache(self._file, memory.index)
            self._file.close()

    def __enter__(self) -> "Self":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return (
            f"SqliteEngine({self._file.shown!r}, dimension={self.dimension}, "
            f"index={self.index_type!r}, metric={self.metric!r})"
        )

    @contextmanager
    def _changing(self) -> Iterator[Memory]:
        """One change at a time, and only while the gallery is open."""
        with self._lock.changing:
            yield self._require_open()

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
            memory = self._load()
        except BaseException as error:
            with self._lock.alone():
                self._memory = None
            raise EngineError(
                f"A change of {self._file.shown} is in the file, but could not be loaded into "
                "memory. Close the gallery and open it again."
            ) from error
        with self._lock.alone():
            self._memory = memory

    def _load(self) -> Memory:
        return Memory.of(self._file, self._layout, self._index, self._settings)

    def _require_open(self) -> Memory:
        memory = self._memory
        if memory is None:
            raise closed_error(self._file.shown)
        return memory

    def _checked_id(self, own_id: str | int) -> str | int:
        checked: str | int = checks.checked_ids(np.array([own_id]), self.capabilities)[0].item()
        return checked

    def _checked_label(self, label: str | int | None) -> str | int | None:
        if label is None:
            return None
        own: str | int = checks.checked_labels(np.array([label]), 1, self.capabilities)[0].item()
        return own


def _fingerprint(layout: Layout, index_type: str, settings: IndexSettings) -> Fingerprint:
    usual = (("metric", layout.metric, "euclidean"), ("precision", layout.precision, "float32"))
    unusual = {name: value for name, value, default in usual if value != default}
    return {"engine": "sqlite", "index": index_type, **unusual, **settings.of(index_type)}


def _resolve(path: str | os.PathLike[str]) -> Path:
    try:
        return resolved(Path(path))
    except OSError as error:
        raise EngineAccessError(f"{shown_as(Path(path))}: {error.strerror}.") from error
