"""`FaissEngine`, the engine of a gallery in this process."""

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, cast, get_args

import numpy as np
from numpy.typing import ArrayLike

from nearsure.arrays import AnyArray, BoolArray, IntArray
from nearsure.engines import checks
from nearsure.engines.contract import Capabilities, Effort, Fingerprint, Found, Metric, Stored
from nearsure.engines.embedded.approximate import (
    ApproximateStorage,
    CoarseCentre,
    Progress,
    load_rows,
)
from nearsure.engines.embedded.base import (
    INDEXES,
    Change,
    FaissRows,
    IndexSettings,
    IndexType,
    ReadersAndWriter,
    Storage,
    empty_found,
)
from nearsure.engines.embedded.exact import ExactStorage, chosen_index
from nearsure.engines.embedded.hnsw import HnswRows
from nearsure.engines.embedded.ivf import IvfRows
from nearsure.engines.embedded.serialization import restore_hnsw, restore_ivf
from nearsure.errors import InvalidInputError, ModelFileError
from nearsure.index import unit_vectors
from nearsure.index.rows import PointTable
from nearsure.schema import (
    COUNT,
    OBJECT,
    SCALAR,
    TEXT,
    check_fields,
    integer,
    list_of,
    one_of,
    reading,
)
from nearsure.validation import integer_ids, preview

if TYPE_CHECKING:
    from typing import Self

# Squares of larger numbers are infinite.
LARGEST_NUMBER = 1e150


def storage_from_state(
    index: str,
    dimension: int,
    settings: IndexSettings,
    numbers: Mapping[str, object],
    arrays: Mapping[str, AnyArray],
) -> Storage:
    """The inverse of a storage's `to_state`; `ModelFileError` if anything does not fit.

    Parameters
    ----------
    index : {"exact", "hnsw", "ivf"}
    dimension : int
    settings : IndexSettings
    numbers, arrays : mapping
        What `to_state` gave.
    """
    _check(index in ("exact", "hnsw", "ivf"), "index")
    labels = _integers(arrays, "labels")
    n_rows = len(labels)
    _check(n_rows > 0, "labels")
    ids = _integers(arrays, "ids", n_rows) if "ids" in arrays else np.arange(n_rows)
    if index == "exact":
        _check_distinct(ids)
        return ExactStorage(_floats(arrays, "vectors", (n_rows, dimension)), ids, labels)
    is_alive = _alive(arrays, n_rows)
    _check_distinct(ids if is_alive is None else ids[is_alive])
    centre = _floats(arrays, "centre", (dimension,)).astype(np.float64)
    moved = CoarseCentre(centre, float(_positive(numbers, "scale")))
    rows = _rows(index, settings, numbers, arrays, shape=(n_rows, dimension))
    return ApproximateStorage(rows, moved, PointTable(ids, labels, is_alive))


def _rows(
    index: str,
    settings: IndexSettings,
    numbers: Mapping[str, object],
    arrays: Mapping[str, AnyArray],
    *,
    shape: tuple[int, int],
) -> FaissRows:
    data, (n_rows, dimension) = _present(arrays, "index"), shape
    if index == "hnsw":
        nodes = _nodes(arrays, n_rows)
        graph = restore_hnsw(data, dimension, int(nodes.max()) + 1, settings.hnsw_links)
        return HnswRows(graph, nodes, settings)
    n_trained = int(_positive(numbers, "n_trained"))
    return IvfRows(restore_ivf(data, dimension, n_rows), n_trained, settings)


def _nodes(arrays: Mapping[str, AnyArray], n_rows: int) -> IntArray:
    if "nodes" not in arrays:
        return np.arange(n_rows)
    nodes = _integers(arrays, "nodes", n_rows)
    # Nodes are numbered in the order of their first rows.
    distinct, first_rows = np.unique(nodes, return_index=True)
    _check(np.array_equal(distinct, np.arange(len(distinct))), "nodes")
    _check(bool((np.diff(first_rows) > 0).all()), "nodes")
    return nodes


def _alive(arrays: Mapping[str, AnyArray], n_rows: int) -> BoolArray | None:
    if "dead_rows" not in arrays:
        return None
    dead = _integers(arrays, "dead_rows")
    _check(dead.size == 0 or 0 <= dead.min() <= dead.max() < n_rows, "dead_rows")
    is_alive = np.ones(n_rows, np.bool_)
    is_alive[dead] = False
    _check(bool(is_alive.any()), "dead_rows")
    return is_alive


def _integers(arrays: Mapping[str, AnyArray], name: str, n: int | None = None) -> IntArray:
    array = _present(arrays, name)
    _check(array.dtype == np.int64 and array.ndim == 1 and n in (None, len(array)), name)
    return array.copy()


def _floats(arrays: Mapping[str, AnyArray], name: str, shape: tuple[int, ...]) -> AnyArray:
    array = _present(arrays, name)
    _check(array.dtype in (np.float32, np.float64) and array.shape == shape, name)
    # NaN is not smaller, either.
    _check(not array.size or float(np.abs(array).max()) <= LARGEST_NUMBER, name)
    return array.copy()


def _positive(numbers: Mapping[str, object], name: str) -> float:
    value = numbers.get(name)
    # The square of a scale is a number, too.
    if not isinstance(value, int | float) or not 1e-100 < value < 1e100:  # noqa: PLR2004
        raise _broken(name)
    return value


def _present(arrays: Mapping[str, AnyArray], name: str) -> AnyArray:
    _check(name in arrays, name)
    return arrays[name]


def _check_distinct(ids: IntArray) -> None:
    _check(len(np.unique(ids)) == len(ids), "ids")


def _check(fits: bool, name: str) -> None:  # noqa: FBT001
    if not fits:
        raise _broken(name)


def _broken(name: str) -> ModelFileError:
    return ModelFileError(
        f"The model's gallery is broken: {name!r} is missing or does not fit the rest. "
        "Save the model again."
    )


PORTION = 100_000
DEFAULTS = IndexSettings()
log = logging.getLogger("nearsure.engines")

_STORED = {
    "dimension": integer(1),
    "metric": one_of(*get_args(Metric)),
    "index": one_of(*INDEXES),
    "size": COUNT,
    "settings": OBJECT,
    "shelf": OBJECT,
    "arrays": list_of(TEXT),
}


class FaissEngine:
    """A gallery in the memory of this process, searched by faiss.

    ``"exact"`` compares a query with every point. ``"hnsw"`` walks a graph of near neighbours, and
    ``"ivf"`` opens the nearest of many cells: both may miss a neighbour, but never return a point
    that was removed, nor fewer than k if there are k. They hold vectors once, in single precision,
    and compute distances by differences, which are right to about one part in a million.

    Removed points are passed over until a fifth of the index is dead; then it is rebuilt without
    them, which takes the time of a first load and, until it is done, the memory of both. Others can
    search meanwhile. A vector that many points share has one node in the graph of ``"hnsw"``.

    The same points, loaded by the same calls with the same settings, version of faiss and number of
    threads, give the same index of ``"ivf"``; of ``"hnsw"``, too, since faiss 1.15, and before that
    with ``build_threads=1``. What is restored from `to_state` answers the same to the last bit, and
    goes on so after the same changes.

    Parameters
    ----------
    dimension : int
        Length of a vector.
    index : {"auto", "exact", "hnsw", "ivf"}
        How points are found. ``"auto"`` decides by the number of points that are loaded first: up
        to 200,000 exactly, more than that by ``"hnsw"``. `index_type` and the log
        ``nearsure.engines`` tell which it was.
    metric : {"euclidean", "cosine"}
        ``"cosine"`` scales points and queries to unit length.
    settings : IndexSettings
        What ``"hnsw"`` and ``"ivf"`` are built and searched with.

    Attributes
    ----------
    index_type : {"auto", "exact", "hnsw", "ivf"}
        The index in use; ``"auto"`` before the first load.
    settings : IndexSettings

    Examples
    --------
    >>> engine = FaissEngine(dimension=2, index="hnsw")
    >>> engine.add(np.array([[0.0, 0.0], [3.0, 4.0]]), ids=np.array([10, 20]), labels=[0, 1])
    >>> found = engine.search(np.array([[0.0, 1.0]]), k=3)
    >>> found.sq_distances, found.ids, found.labels, found.counts
    (array([[ 1., 18., inf]]), array([[10, 20, -1]]), array([[ 0,  1, -1]]), array([2]))
    """

    def __init__(
        self,
        dimension: int,
        index: str = "auto",
        metric: Metric = "euclidean",
        settings: IndexSettings = DEFAULTS,
    ) -> None:
        if dimension < 1:
            raise InvalidInputError(f"dimension must be at least 1. Got {dimension} instead.")
        if metric not in ("euclidean", "cosine"):
            raise InvalidInputError(
                f"metric must be 'euclidean' or 'cosine'. Got {metric!r} instead."
            )
        chosen_index(index, 0)
        self._dimension = int(dimension)
        self._metric: Metric = metric
        self.index_type = index
        self.settings = settings
        self._storage: Storage | None = None
        self._lock = ReadersAndWriter()

    @classmethod
    def from_points(
        cls,
        vectors: ArrayLike,
        *,
        labels: ArrayLike,
        ids: ArrayLike | None = None,
        index: str = "auto",
        metric: Metric = "euclidean",
        settings: IndexSettings = DEFAULTS,
        progress: Progress | None = None,
    ) -> "Self":
        """An engine that holds these points.

        Parameters
        ----------
        vectors : array of shape (n, dimension)
            Finite.
        labels : array of shape (n,)
            Int64.
        ids : array of shape (n,), optional
            Distinct int64; by default 0, 1, 2, ...
        index, metric, settings
            As of the class.
        progress : callable, optional
            Called with the number of points that are in, while ``"hnsw"`` or ``"ivf"`` is built.

        Examples
        --------
        >>> engine = FaissEngine.from_points(np.eye(3), labels=[7, 8, 9])
        >>> engine.size(), engine.index_type
        (3, 'exact')
        """
        points = np.asarray(vectors)
        if points.ndim != 2:  # noqa: PLR2004
            raise InvalidInputError(
                "vectors must have the shape (n, dimension). "
                f"Got an array of shape {points.shape} instead."
            )
        engine = cls(points.shape[1], index, metric, settings)
        engine._add(points, np.arange(len(points)) if ids is None else ids, labels, progress)
        return engine

    @property
    def capabilities(self) -> Capabilities:
        """What it can do; before the first load, ``"auto"`` promises nothing exact."""
        return Capabilities(
            exact=self.index_type == "exact", holds_labels=True, ids="integer", labels="integer"
        )

    @property
    def dimension(self) -> int:
        """Length of a vector."""
        return self._dimension

    @property
    def metric(self) -> Metric:
        """Whether vectors are compared as they are, or at unit length."""
        return self._metric

    def fingerprint(self) -> Fingerprint:
        """Engine, index and its settings; `index` is "auto" before the first load."""
        settings = self.settings.of(self.index_type)
        metric = {} if self._metric == "euclidean" else {"metric": self._metric}
        return {"engine": "faiss", "index": self.index_type, **metric, **settings}

    def size(self) -> int:
        """How many points there are."""
        storage = self._storage
        return 0 if storage is None else len(storage)

    @property
    def effort(self) -> Effort | None:
        """How much of the index a search looks at; None for ``"exact"`` and before a load."""
        return self.settings.effort(self.index_type)

    def search(self, queries: AnyArray, k: int) -> Found:
        """The k nearest points of each query; see `Engine.search`."""
        return self._find(queries, k, None)

    def search_with_effort(self, queries: AnyArray, k: int, effort: int) -> Found:
        """The same with another effort than that of the settings."""
        checks.checked_effort(effort, self.effort)
        return self._find(queries, k, effort)

    def _find(self, queries: AnyArray, k: int, effort: int | None) -> Found:
        asked = self._scaled(checks.checked_queries(queries, self._dimension))
        k = checks.checked_k(k, self.capabilities)
        with self._lock.reading():
            if self._storage is None:
                return empty_found(len(asked), k)
            return self._storage.search(asked, k, effort)

    def add(self, vectors: AnyArray, ids: AnyArray, labels: AnyArray | None = None) -> None:
        """Add points, all or none; see `Engine.add`."""
        self._add(vectors, ids, labels, None)

    def remove(self, ids: AnyArray) -> None:
        """Remove points, all or none; see `Engine.remove`."""
        gone = checks.checked_ids(ids, self.capabilities)
        if gone.size:
            self._change(lambda storage: storage.removing(gone), gone)

    def relabel(self, ids: AnyArray, labels: AnyArray) -> None:
        """Give points other labels, all or none; see `Engine.relabel`."""
        own = checks.checked_ids(ids, self.capabilities)
        own_labels = checks.checked_labels(labels, len(own), self.capabilities)
        if own.size:
            self._change(lambda storage: storage.relabelling(own, own_labels), own)

    def fetch(self, ids: AnyArray) -> Stored:
        """Points with vectors and labels, in the order of `ids`, which may come twice."""
        checks.checked_ids(np.unique(np.asarray(ids)), self.capabilities)
        own = integer_ids(np.asarray(ids, np.int64))
        with self._lock.reading():
            if self._storage is None:
                if own.size:
                    raise _unknown(own)
                return Stored(own, own, np.empty((0, self._dimension)))
            return self._storage.fetch(own)

    def scan(self) -> Iterator[Stored]:
        """All ids and labels as they are when the first portion is taken."""
        with self._lock.reading():
            if self._storage is None:
                return
            ids, labels = self._storage.ids_and_labels()
        for start in range(0, len(ids), PORTION):
            portion = slice(start, start + PORTION)
            yield Stored(ids[portion], labels[portion])

    def close(self) -> None:
        """Nothing is open; the memory is given back when the engine is no longer referred to."""

    def to_state(self) -> tuple[dict[str, Any], dict[str, AnyArray]]:
        """The engine as what JSON can hold, and arrays; `from_state` makes it again.

        Points cannot change meanwhile, but be searched.
        """
        with self._lock.changing:
            numbers, arrays = ({}, {}) if self._storage is None else self._storage.to_state()
            state = {
                "dimension": self._dimension,
                "metric": self._metric,
                "index": self.index_type,
                "size": self.size(),
                "settings": asdict(self.settings),
                "shelf": dict(numbers),
                "arrays": sorted(arrays),
            }
        return state, arrays

    @classmethod
    def from_state(cls, state: Mapping[str, Any], arrays: Mapping[str, AnyArray]) -> "Self":
        """An engine from what `to_state` gave.

        Raises
        ------
        ModelFileError
            If anything is missing or does not fit the rest.

        Examples
        --------
        >>> engine = FaissEngine.from_points(np.eye(3), labels=[7, 8, 9], index="hnsw")
        >>> FaissEngine.from_state(*engine.to_state())
        FaissEngine(dimension=3, index='hnsw', metric='euclidean', size=3)
        """
        owner = "The engine in the model"
        check_fields(owner, state, _STORED)
        check_fields(owner, state["settings"], dict.fromkeys(asdict(IndexSettings()), SCALAR))
        with reading(owner):
            settings = IndexSettings(**state["settings"])
            engine = cls(state["dimension"], state["index"], state["metric"], settings)
            engine._restore(state, arrays)
        return engine

    def __repr__(self) -> str:
        return (
            f"FaissEngine(dimension={self._dimension}, index={self.index_type!r}, "
            f"metric={self._metric!r}, size={self.size()})"
        )

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        # A lock and a faiss index cannot be copied; what they stand for can.
        return type(self).from_state, self.to_state()

    def _restore(self, state: Mapping[str, Any], arrays: Mapping[str, AnyArray]) -> None:
        if sorted(arrays) != state["arrays"]:
            raise InvalidInputError(f"its arrays are {', '.join(sorted(arrays))}")
        if arrays:
            self._storage = storage_from_state(
                self.index_type, self._dimension, self.settings, state["shelf"], arrays
            )
        if self.size() != state["size"]:
            raise InvalidInputError(f"it holds {self.size()} points")

    def _add(
        self,
        vectors: ArrayLike,
        ids: ArrayLike,
        labels: ArrayLike | None,
        progress: Progress | None,
    ) -> None:
        points, new_ids, new_labels = checks.checked_points(
            vectors, ids, labels, dimension=self._dimension, capabilities=self.capabilities
        )
        points = self._scaled(points)
        own_labels = cast("IntArray", new_labels)

        def prepare() -> Change:
            if self._storage is not None:
                return self._storage.adding(points, new_ids, own_labels)
            index = chosen_index(self.index_type, len(points))
            storage = self._first_storage(index, points, new_ids, own_labels, progress)

            def begin() -> Storage:
                if self.index_type == "auto":
                    log.info("index %r was chosen for %d points", index, len(points))
                self.index_type = index
                return storage

            return begin

        self._make(prepare)

    def _first_storage(
        self,
        index: IndexType,
        points: AnyArray,
        ids: IntArray,
        labels: IntArray,
        progress: Progress | None,
    ) -> Storage:
        if index == "exact":
            # The caller's own array may change; what was scaled is a copy already.
            own = points if self._metric == "cosine" else points.copy()
            return ExactStorage(own, ids, labels)
        centre = CoarseCentre.of(points)

        def moved(rows: IntArray | slice) -> AnyArray:
            return centre.move(points[rows], "vectors")

        rows = load_rows(index, self.settings, moved, len(points), progress)
        return ApproximateStorage(rows, centre, PointTable(ids, labels))

    def _change(self, prepared_by: Callable[[Storage], Change], ids: IntArray) -> None:
        def prepare() -> Change:
            if self._storage is None:
                raise _unknown(ids)
            return prepared_by(self._storage)

        self._make(prepare)

    def _make(self, prepare: Callable[[], Change]) -> None:
        with self._lock.changing:
            change = prepare()
            with self._lock.alone():
                self._storage = change()

    def _scaled(self, vectors: AnyArray) -> AnyArray:
        return unit_vectors(vectors) if self._metric == "cosine" else vectors


def _unknown(ids: IntArray) -> InvalidInputError:
    return InvalidInputError(
        "ids must be those of points in the gallery. "
        f"Got {preview(ids.tolist())}, and the gallery is empty."
    )
