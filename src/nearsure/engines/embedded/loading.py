"""An approximate index of many points, made block by block."""

from collections.abc import Callable
from typing import TypeAlias

from nearsure.arrays import AnyArray, IntArray
from nearsure.engines.embedded.choice import ApproximateType, IndexSettings
from nearsure.engines.embedded.faiss_rows import FaissRows
from nearsure.engines.embedded.hnsw import HnswRows
from nearsure.engines.embedded.ivf import IvfRows, training_rows

# Few enough that memory for a block hardly counts, and many for threads to share.
BLOCK = 65_536

VectorsOf: TypeAlias = Callable[[IntArray | slice], AnyArray]
Progress: TypeAlias = Callable[[int], None]


def loaded_rows(
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
        Told how many points are in, after each block.
    """
    rows = _empty_rows(index, settings, vectors_of, n_points)
    rows.reserve(n_points)
    for start in range(0, n_points, BLOCK):
        rows.add(vectors_of(slice(start, start + BLOCK)))
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
