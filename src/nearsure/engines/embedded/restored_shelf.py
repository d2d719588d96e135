"""A shelf from the arrays of a model, which are not trusted."""

from collections.abc import Mapping

import numpy as np

from nearsure.arrays import AnyArray, BoolArray, IntArray
from nearsure.engines.embedded.approximate_shelf import ApproximateShelf
from nearsure.engines.embedded.choice import IndexSettings
from nearsure.engines.embedded.coarse_centre import CoarseCentre
from nearsure.engines.embedded.exact_shelf import ExactShelf
from nearsure.engines.embedded.faiss_rows import FaissRows
from nearsure.engines.embedded.hnsw import HnswRows
from nearsure.engines.embedded.ivf import IvfRows
from nearsure.engines.embedded.point_table import PointTable
from nearsure.engines.embedded.shelf import Shelf
from nearsure.engines.embedded.stored_index import restored_hnsw, restored_ivf
from nearsure.errors import ModelFileError


def restored_shelf(
    index: str,
    dimension: int,
    settings: IndexSettings,
    numbers: Mapping[str, object],
    arrays: Mapping[str, AnyArray],
) -> Shelf:
    """The inverse of a shelf's `to_state`; `ModelFileError` if anything does not fit.

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
        return ExactShelf(_floats(arrays, "vectors", (n_rows, dimension)), ids, labels)
    is_alive = _alive(arrays, n_rows)
    _check_distinct(ids if is_alive is None else ids[is_alive])
    centre = _floats(arrays, "centre", (dimension,)).astype(np.float64)
    moved = CoarseCentre(centre, float(_positive(numbers, "scale")))
    rows = _rows(index, settings, numbers, arrays, shape=(n_rows, dimension))
    return ApproximateShelf(rows, moved, PointTable(ids, labels, is_alive))


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
        graph = restored_hnsw(data, dimension, int(nodes.max()) + 1, settings.hnsw_links)
        return HnswRows(graph, nodes, settings)
    n_trained = int(_positive(numbers, "n_trained"))
    return IvfRows(restored_ivf(data, dimension, n_rows), n_trained, settings)


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
    _check(bool(np.isfinite(array).all()), name)
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
