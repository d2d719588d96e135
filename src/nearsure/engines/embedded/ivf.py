"""Rows in cells around centres: IVF of faiss, of which a search opens the nearest cells."""

from math import isqrt
from typing import TYPE_CHECKING, Any

import numpy as np

from nearsure.arrays import AnyArray, BoolArray, IntArray
from nearsure.engines.embedded.base import (
    ApproximateType,
    IndexSettings,
    Selection,
    faiss,
    selector_of,
    threads,
)

if TYPE_CHECKING:
    from typing import Self

MOST_CELLS = 65_536
# Fewer points than this do not determine the centre of a cell.
POINTS_OF_A_CELL = 39
SAMPLE_OF_A_CELL = 64
# Twice as many cells are due when there are four times as many points.
GROWTH = 4


class IvfRows:
    """Float32 vectors in an `IndexIVFFlat`.

    Parameters
    ----------
    index : faiss.IndexIVFFlat
        The cells.
    n_trained : int
        For how many points they were made.
    settings : IndexSettings
        How they are made and searched.
    """

    def __init__(self, index: Any, n_trained: int, settings: IndexSettings) -> None:  # noqa: ANN401
        self.index = index
        self.n_trained = n_trained
        self.settings = settings
        # Where each row lies, 8 bytes a row: vectors are read by it.
        index.set_direct_map_type(faiss.DirectMap.NoMap)
        index.make_direct_map(True)  # noqa: FBT003

    @classmethod
    def for_points(cls, vectors: AnyArray, n_points: int, settings: IndexSettings) -> "Self":
        """Cells without rows.

        Parameters
        ----------
        vectors : array of shape (n, dimension), float32
            A random sample of the points, from which the centres are computed.
        n_points : int
            How many points there are going to be.
        settings : IndexSettings
        """
        quantizer = faiss.IndexFlatL2(vectors.shape[1])
        n_cells = min(cells_for(n_points, settings), len(vectors))
        index = faiss.IndexIVFFlat(quantizer, vectors.shape[1], n_cells)
        index.cp.seed = settings.seed
        index.cp.min_points_per_centroid = 1  # cells_for has seen to it
        with threads(settings.build_threads):
            index.train(vectors)
        return cls(index, n_points, settings)

    @property
    def kind(self) -> ApproximateType:
        """Which index it is."""
        return "ivf"

    @property
    def nodes(self) -> None:
        """Every row is a row of the faiss index."""

    @property
    def n_rows(self) -> int:
        """How many rows there are."""
        return int(self.index.ntotal)

    def reserve(self, n_rows: int) -> None:
        """Cells grow on their own."""

    def add(self, vectors: AnyArray) -> None:
        """Add rows."""
        n_before = self.n_rows
        try:
            with threads(self.settings.build_threads):
                self.index.add(vectors)
        except BaseException:
            self._cut(n_before)
            raise

    def search(
        self,
        queries: AnyArray,
        k: int,
        selection: Selection | None,
        effort: int | None = None,
        times: int = 1,
    ) -> tuple[AnyArray, IntArray]:
        """The k nearest rows of the nearest cells."""
        return self._search(queries, k, selection, times * (effort or self.settings.ivf_probes))

    def search_all(
        self, queries: AnyArray, k: int, selection: Selection | None
    ) -> tuple[AnyArray, IntArray]:
        """The k nearest rows of all cells."""
        return self._search(queries, k, selection, self.index.nlist)

    def _search(
        self, queries: AnyArray, k: int, selection: Selection | None, n_probes: int
    ) -> tuple[AnyArray, IntArray]:
        options = faiss.SearchParametersIVF(
            nprobe=min(n_probes, self.index.nlist), **selector_of(selection)
        )
        distances, rows = self.index.search(queries, k, params=options)
        return distances, rows

    def _cut(self, n_rows: int) -> None:
        """Take back rows of an addition that failed; they are the last in their cells."""
        cells = self.index.invlists
        for cell in range(self.index.nlist):
            size = cells.list_size(cell)
            if size:
                rows = faiss.rev_swig_ptr(cells.get_ids(cell), size)
                cells.resize(cell, int((rows < n_rows).sum()))
        self.index.direct_map.array.resize(n_rows)
        self.index.ntotal = n_rows

    def selected(self, row_mask: BoolArray) -> Selection:
        """A selection for `search`."""
        return Selection(row_mask, row_mask)

    def vectors_of(self, rows: IntArray) -> AnyArray:
        """The vectors of rows."""
        vectors: AnyArray = self.index.reconstruct_batch(rows)
        return vectors

    def is_outgrown_by(self, n_points: int) -> bool:
        """Whether so many points should have more cells."""
        wanted = cells_for(n_points, self.settings)
        return n_points >= GROWTH * self.n_trained and wanted > self.index.nlist


def cells_for(n_points: int, settings: IndexSettings) -> int:
    """How many cells serve this many points.

    Examples
    --------
    >>> cells_for(1_000_000, IndexSettings()), cells_for(1000, IndexSettings())
    (4000, 25)
    """
    wanted = settings.ivf_cells or min(4 * isqrt(n_points), MOST_CELLS)
    return max(1, min(wanted, n_points // POINTS_OF_A_CELL))


def training_rows(n_points: int, settings: IndexSettings) -> IntArray:
    """A seeded sample of rows to compute the centres from."""
    n_sampled = min(n_points, SAMPLE_OF_A_CELL * cells_for(n_points, settings))
    rows = np.random.default_rng(settings.seed).choice(n_points, n_sampled, replace=False)
    return np.sort(rows)
