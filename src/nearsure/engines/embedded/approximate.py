"""Approximate storage: HNSW or IVF, loaded in blocks, centred for float32."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from nearsure.arrays import AnyArray, FloatArray, IntArray
from nearsure.engines.contract import Found, Stored
from nearsure.engines.embedded.base import (
    ApproximateType,
    Arrays,
    Change,
    FaissRows,
    IndexSettings,
    Numbers,
    Storage,
    found_of,
)
from nearsure.engines.embedded.hnsw import HnswRows
from nearsure.engines.embedded.ivf import IvfRows, training_rows
from nearsure.engines.embedded.serialization import index_bytes
from nearsure.errors import InvalidInputError
from nearsure.index.rows import PointTable
from nearsure.progress import tracked

if TYPE_CHECKING:
    from typing import Self

# Vectors near the origin, moved there by numbers so coarse that float32 loses nothing.
#
# faiss holds float32. Far from the origin a vector in double precision would lose the digits in
# which it differs from its neighbours, so a centre is subtracted first. It has fewer digits than a
# float32 number, and is zero unless it is far beyond the spread of the vectors: the difference of a
# float32 number near it is a float32 number again, and what was put in comes out to the last bit.


SAMPLE = 1000
CENTRE_BLOCK = 8192
# Squares of differences, summed over some ten thousand numbers, stay finite below this.
LARGEST = 1e16
ORDINARY = 2.0**20
# Beyond this many times the spread, and with so many bits of the 24 of a float32 number, the
# difference from any vector of the cloud has no more than 24 bits.
FAR = 4
CENTRE_BITS = 20


@dataclass(frozen=True, eq=False)
class CoarseCentre:
    """What to subtract from vectors and then divide them by.

    Parameters
    ----------
    centre : array of shape (dimension,)
        Zero for embeddings about the origin.
    scale : float
        A power of two, and 1 for vectors of any ordinary size.

    Examples
    --------
    >>> moved = CoarseCentre.of(np.array([[1000.5, 0.1], [1001.25, 0.2], [1002.0, 0.3]]))
    >>> moved.centre
    array([1001.25,    0.  ])
    """

    centre: FloatArray
    scale: float

    @classmethod
    def of(cls, vectors: AnyArray) -> "Self":
        """The centre and scale that serve these vectors."""
        sample = vectors[:: -(-len(vectors) // SAMPLE)].astype(np.float64)
        # Medians, so that outliers do not matter.
        middle = np.median(sample, axis=0)
        spread = float(np.median(np.abs(sample - middle).max(axis=1)))
        # One point, or copies of one, give no idea how far others will be.
        is_far = (np.abs(middle) > FAR * spread) & (spread > 0)
        centre = np.where(is_far, _coarse(middle), 0.0)
        size = float(np.median(np.abs(sample - centre).max(axis=1)))
        is_ordinary = not size or 1 / ORDINARY < size < ORDINARY
        return cls(centre, 1.0 if is_ordinary else float(2.0 ** np.ceil(np.log2(size))))

    @property
    def is_nothing(self) -> bool:
        """Whether vectors stay as they are."""
        return self.scale == 1.0 and not self.centre.any()

    def move(self, vectors: AnyArray, name: str) -> AnyArray:
        """Vectors as faiss holds them, float32; the same array if it is that already."""
        if self.is_nothing:
            with np.errstate(over="ignore"):
                moved: AnyArray = np.ascontiguousarray(vectors, np.float32)
        else:
            moved = np.empty(vectors.shape, np.float32)
            for start in range(0, len(vectors), CENTRE_BLOCK):
                block = slice(start, start + CENTRE_BLOCK)
                with np.errstate(over="ignore"):
                    moved[block] = (vectors[block] - self.centre) / self.scale
        if not (moved.min() > -LARGEST and moved.max() < LARGEST):
            raise InvalidInputError(
                f"{name} must lie within {LARGEST * self.scale:.3g} of the points that were loaded "
                "first, as faiss computes in single precision. Got larger numbers. index='exact' "
                "takes them."
            )
        return moved

    def move_back(self, moved: AnyArray) -> AnyArray:
        """Vectors as they were given: float32 if they stayed as they are, otherwise float64."""
        return moved if self.is_nothing else moved * self.scale + self.centre


def _coarse(numbers: FloatArray) -> FloatArray:
    """Numbers, rounded to few binary digits."""
    significands, exponents = np.frexp(numbers)
    coarse: FloatArray = np.ldexp(np.rint(significands * 2.0**CENTRE_BITS), exponents - CENTRE_BITS)
    return coarse


# Few enough that memory for a block hardly counts, and many for threads to share.
LOAD_BLOCK = 65_536

VectorsOf: TypeAlias = Callable[[IntArray | slice], AnyArray]
Progress: TypeAlias = Callable[[int], None]


def load_rows(
    index: ApproximateType,
    settings: IndexSettings,
    vectors_of: VectorsOf,
    n_points: int,
    progress: Progress | None = None,
) -> FaissRows:
    """Make an index and put points into it.

    Parameters
    ----------
    index : {"hnsw", "ivf"}
    settings : IndexSettings
    vectors_of : callable
        Gives the float32 vectors of some of the points, shape (n, dimension).
    n_points : int
        How many points there are.
    progress : callable, optional
        Called with the number of points that are in, after each block.
    """
    rows = _empty_rows(index, settings, vectors_of, n_points)
    rows.reserve(n_points)
    starts = range(0, n_points, LOAD_BLOCK)
    for start in tracked("building the index", starts, len(starts)):
        rows.add(vectors_of(slice(start, start + LOAD_BLOCK)))
        if progress is not None:
            progress(rows.n_rows)
    return rows


def _empty_rows(
    index: ApproximateType, settings: IndexSettings, vectors_of: VectorsOf, n_points: int
) -> FaissRows:
    if index == "hnsw":
        return HnswRows.empty(vectors_of(slice(0, 1)).shape[1], settings)
    sample = vectors_of(training_rows(n_points, settings))
    return IvfRows.for_points(sample, n_points, settings)


# When more than this share of the rows is dead, the index is rebuilt without them.
DEAD_SHARE = 0.2
# Queries that found too few are searched for again, first with this much more effort.
MORE_EFFORT = 8


class ApproximateStorage:
    """Approximate search over rows that stay where they are.

    Parameters
    ----------
    rows : FaissRows
        The vectors, moved by `centre`.
    centre : CoarseCentre
        What they were moved by.
    table : PointTable
        Ids and labels of the rows.
    """

    def __init__(self, rows: FaissRows, centre: CoarseCentre, table: PointTable) -> None:
        self._rows = rows
        self._centre = centre
        self._table = table
        self._select()

    def __len__(self) -> int:
        return self._table.n_alive

    def search(self, queries: AnyArray, k: int, effort: int | None = None) -> Found:
        """The k nearest points, nearly always; k in any case, if there are so many."""
        moved = self._centre.move(queries, "queries")
        n_found, selection = min(k, len(self)), self._selection
        distances, rows = self._rows.search(moved, n_found, selection, effort)
        for times in (MORE_EFFORT, None):
            lacking = np.flatnonzero(rows[:, -1] < 0)
            if not lacking.size:
                break
            distances[lacking], rows[lacking] = (
                self._rows.search_all(moved[lacking], n_found, selection)
                if times is None
                else self._rows.search(moved[lacking], n_found, selection, effort, times)
            )
        sq_distances = distances.astype(np.float64)
        if self._centre.scale != 1.0:
            sq_distances *= self._centre.scale**2
        labels = self._table.labels[rows]
        return found_of(sq_distances, self._table.ids.of(rows), labels, k, sorted_ties=False)

    def adding(self, vectors: AnyArray, ids: IntArray, labels: IntArray) -> Change:
        """Add points; into a new index if this one is far too small for them."""
        self._table.check_new(ids)
        moved = self._centre.move(vectors, "vectors")
        if self._rows.is_outgrown_by(len(self) + len(ids)):
            grown = self._rebuild(self._table.alive_rows(), moved, ids, labels)
            return lambda: grown

        def add() -> Storage:
            n_before = self._rows.n_rows
            self._table.reserve(len(ids))
            try:
                self._rows.add(moved)
            except BaseException:
                # faiss cannot take rows back: what it has taken is dead.
                strays = np.arange(n_before, self._rows.n_rows)
                self._table.append(ids[: len(strays)], labels[: len(strays)])
                self._table.mark_deleted(strays)
                self._select()
                raise
            self._table.append(ids, labels)
            self._select()
            return self

        return add

    def removing(self, ids: IntArray) -> Change:
        """Remove points; with a new index if too many rows would be dead."""
        removed = self._table.rows_of(ids)
        n_left = len(self) - len(removed)
        if not n_left:
            return lambda: None
        if self._rows.n_rows - n_left > DEAD_SHARE * self._rows.n_rows:
            kept = np.setdiff1d(self._table.alive_rows(), removed, assume_unique=True)
            left = self._rebuild(kept)
            return lambda: left

        def remove() -> Storage:
            self._table.mark_deleted(removed)
            self._select()
            return self

        return remove

    def relabelling(self, ids: IntArray, labels: IntArray) -> Change:
        """Give points other labels."""
        rows = self._table.rows_of(ids)

        def relabel() -> Storage:
            self._table.relabel(rows, labels)
            return self

        return relabel

    def fetch(self, ids: IntArray) -> Stored:
        """Points with vectors and labels."""
        rows = self._table.rows_of(ids)
        vectors = self._centre.move_back(self._rows.vectors_of(rows))
        return Stored(ids, self._table.labels[rows], vectors)

    def ids_and_labels(self) -> tuple[IntArray, IntArray]:
        """Of all points, by ascending id."""
        return self._table.by_id()

    def to_state(self) -> tuple[Numbers, Arrays]:
        """The index as bytes, and what is kept beside it."""
        table, nodes = self._table, self._rows.nodes
        arrays = {
            "index": index_bytes(self._rows.index),
            "centre": self._centre.centre,
            "labels": table.labels.copy(),
        }
        if not table.ids.are_rows:
            arrays["ids"] = table.ids.values.copy()
        if table.is_alive is not None:
            arrays["dead_rows"] = np.flatnonzero(~table.is_alive)
        if nodes is not None:
            arrays["nodes"] = nodes.copy()
        return {"scale": self._centre.scale, "n_trained": self._rows.n_trained}, arrays

    def _rebuild(
        self,
        kept: IntArray,
        moved: AnyArray | None = None,
        new_ids: IntArray | None = None,
        new_labels: IntArray | None = None,
    ) -> "Self":
        """A storage of some rows of this one, and new points behind them."""
        ids, labels = self._table.ids.of(kept), self._table.labels[kept]
        if new_ids is not None and new_labels is not None:
            ids, labels = np.append(ids, new_ids), np.append(labels, new_labels)
        places = np.arange(len(ids))

        def vectors_of(some: IntArray | slice) -> AnyArray:
            wanted = places[some]
            old = self._rows.vectors_of(kept[wanted[wanted < len(kept)]])
            if moved is None:
                return old
            return np.concatenate([old, moved[wanted[wanted >= len(kept)] - len(kept)]])

        rows = load_rows(self._rows.kind, self._rows.settings, vectors_of, len(ids))
        return type(self)(rows, self._centre, PointTable(ids, labels))

    def _select(self) -> None:
        """Update which rows a search may find."""
        is_alive = self._table.is_alive
        self._selection = None if is_alive is None else self._rows.selected(is_alive)
