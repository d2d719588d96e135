"""A faiss index as bytes and back, every number checked before use.

faiss does not check what it reads: a link to a node that is not there would crash the process. So
the kind and sizes of all parts are compared with the model before anything is searched.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any

import numpy as np

from nearsure.arrays import AnyArray, IntArray
from nearsure.engines.embedded.base import faiss
from nearsure.errors import ModelFileError

HNSW_MARK, IVF_MARK = b"IHNf", b"IwFl"
BLOCK = 65_536
# faiss has one limit for all threads.
_limit_lock = Lock()


def index_bytes(index: Any) -> AnyArray:  # noqa: ANN401
    """A faiss index as an array of uint8."""
    data: AnyArray = faiss.serialize_index(index)
    return data


def restore_hnsw(data: AnyArray, dimension: int, n_nodes: int, n_links: int) -> Any:  # noqa: ANN401
    """The HNSW index of these bytes; an error unless it is one, whole and of this size."""
    index = _read(data, HNSW_MARK, faiss.IndexHNSWFlat, dimension, n_nodes)
    storage = faiss.downcast_index(index.storage)
    _check(type(storage) in (faiss.IndexFlatL2, faiss.IndexFlat), "its vectors")
    _check((storage.d, storage.ntotal) == (dimension, n_nodes), "its vectors")
    _check(storage.metric_type == faiss.METRIC_L2, "its metric")
    _check(storage.codes.size() == 4 * dimension * n_nodes, "its vectors")
    _check_finite(faiss.rev_swig_ptr(storage.get_xb(), n_nodes * dimension))
    fresh = faiss.IndexHNSWFlat(dimension, n_links)
    for name in ("cum_nneighbor_per_level", "assign_probas"):
        own, usual = (faiss.vector_to_array(getattr(graph.hnsw, name)) for graph in (index, fresh))
        _check(np.array_equal(own, usual), "its graph")
    _check_links(index.hnsw, n_nodes)
    return index


def restore_ivf(data: AnyArray, dimension: int, n_rows: int) -> Any:  # noqa: ANN401
    """The IVF index of these bytes; an error unless it is one, whole and of this size."""
    index = _read(data, IVF_MARK, faiss.IndexIVFFlat, dimension, n_rows)
    quantizer = faiss.downcast_index(index.quantizer)
    _check(type(quantizer) in (faiss.IndexFlatL2, faiss.IndexFlat), "the centres of its cells")
    _check(
        (quantizer.d, quantizer.ntotal, quantizer.metric_type)
        == (dimension, index.nlist, faiss.METRIC_L2),
        "the centres of its cells",
    )
    _check(quantizer.codes.size() == 4 * dimension * index.nlist, "the centres of its cells")
    cells = faiss.downcast_InvertedLists(index.invlists)
    _check(type(cells) is faiss.ArrayInvertedLists and cells.nlist == index.nlist, "its cells")
    _check(cells.code_size == 4 * dimension == index.code_size, "its cells")
    rows = []
    for cell in range(index.nlist):
        size = cells.list_size(cell)
        if size:
            rows.append(faiss.rev_swig_ptr(cells.get_ids(cell), size))
            codes = faiss.rev_swig_ptr(cells.get_codes(cell), size * cells.code_size)
            _check_finite(codes.view(np.float32))
    _check(
        np.array_equal(np.sort(np.concatenate(rows)), np.arange(n_rows)), "the rows of its cells"
    )
    return index


def _read(data: AnyArray, mark: bytes, kind: Any, dimension: int, n_rows: int) -> Any:  # noqa: ANN401
    # The mark is looked at first: other kinds of index may open files or run long.
    _check(data.dtype == np.uint8 and data.ndim == 1, "its form")
    _check(data[: len(mark)].tobytes() == mark, "its kind")
    rest = np.ascontiguousarray(data).data

    def portion(size: int) -> bytes:
        nonlocal rest
        taken, rest = rest[:size].tobytes(), rest[size:]
        return taken

    try:
        with _nothing_larger_than(len(data)):
            index: Any = faiss.read_index(faiss.PyCallbackIOReader(portion))
    except (RuntimeError, MemoryError) as error:
        raise ModelFileError(_message("its bytes")) from error
    _check(not rest, "its length")
    _check(isinstance(index, kind) and index.is_trained, "its kind")
    _check((index.d, index.ntotal) == (dimension, n_rows), "its size")
    _check(index.metric_type == faiss.METRIC_L2, "its metric")
    return index


@contextmanager
def _nothing_larger_than(n_bytes: int) -> Iterator[None]:
    """Let faiss, where it can, refuse sizes that cannot be true rather than ask for the memory."""
    if not hasattr(faiss, "set_deserialization_vector_byte_limit"):
        yield
        return
    with _limit_lock:
        before = faiss.get_deserialization_vector_byte_limit()
        faiss.set_deserialization_vector_byte_limit(min(before, n_bytes))
        try:
            yield
        finally:
            faiss.set_deserialization_vector_byte_limit(before)


def _check_links(hnsw: Any, n_nodes: int) -> None:  # noqa: ANN401
    levels = faiss.vector_to_array(hnsw.levels)
    offsets = faiss.vector_to_array(hnsw.offsets).astype(np.int64)
    starts = faiss.vector_to_array(hnsw.cum_nneighbor_per_level).astype(np.int64)
    what = "its graph"
    _check(len(levels) == n_nodes and len(offsets) == n_nodes + 1, what)
    _check(levels.min() >= 1 and levels.max() < len(starts), what)
    _check(offsets[0] == 0 and np.array_equal(np.diff(offsets), starts[levels]), what)
    _check(hnsw.neighbors.size() == offsets[-1], what)
    _check(0 <= hnsw.entry_point < n_nodes, what)
    _check(hnsw.max_level == levels[hnsw.entry_point] - 1, what)
    links: IntArray = faiss.rev_swig_ptr(hnsw.neighbors.data(), hnsw.neighbors.size())
    _check(links.min() >= -1 and links.max() < n_nodes, what)
    for level in range(1, int(levels.max())):
        nodes = np.flatnonzero(levels > level)
        own = offsets[nodes, None] + np.arange(starts[level], starts[level + 1])
        linked = links[own]
        # Who is linked to on a level must have links of its own there.
        _check((levels[linked[linked >= 0]] > level).all(), what)


def _check_finite(numbers: AnyArray) -> None:
    for start in range(0, len(numbers), BLOCK):
        _check(np.isfinite(numbers[start : start + BLOCK]).all(), "its vectors")


def _check(fits: bool | np.bool_, what: str) -> None:  # noqa: FBT001
    if not fits:
        raise ModelFileError(_message(what))


def _message(what: str) -> str:
    return (
        f"The faiss index in the model does not fit the model: {what}. The file has been altered, "
        "or was written by another version of faiss. Save the model again."
    )
