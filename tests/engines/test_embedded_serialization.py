"""The embedded engine as numbers and arrays, and back; and what is refused."""

import json
import pickle
from typing import Any

import numpy as np
import pytest

from nearsure.arrays import AnyArray
from nearsure.engines.embedded import FaissEngine, IndexSettings
from nearsure.engines.embedded.base import faiss
from nearsure.errors import ModelFileError

INDEXES = ("exact", "hnsw", "ivf")
N = 600


def made_vectors(n: int = N, seed: int = 5) -> AnyArray:
    return np.random.default_rng(seed).normal(size=(n, 8)).astype(np.float32)


def made_engine(index: str, **settings: int) -> FaissEngine:
    """Points with ids out of order, copies and removed ones."""
    vectors, ids = made_vectors(), np.random.default_rng(6).permutation(N) + 50
    vectors[30:60] = vectors[0]
    engine = FaissEngine.from_points(
        vectors, ids=ids, labels=np.arange(N), index=index, settings=IndexSettings(**settings)
    )
    engine.remove(ids[:40])
    return engine


def states_equal(one: FaissEngine, other: FaissEngine) -> bool:
    (numbers, arrays), (other_numbers, other_arrays) = one.to_state(), other.to_state()
    return (
        numbers == other_numbers
        and arrays.keys() == other_arrays.keys()
        and all(np.array_equal(arrays[name], other_arrays[name]) for name in arrays)
    )


@pytest.mark.parametrize("index", INDEXES)
@pytest.mark.parametrize("copied_by", ["state", "pickle"])
def test_answers_are_the_same_to_the_last_bit(index: str, copied_by: str) -> None:
    engine, queries = made_engine(index), made_vectors(50, seed=7)
    state, arrays = engine.to_state()
    state = json.loads(json.dumps(state))
    assert all(array.dtype.kind in "iuf" for array in arrays.values())
    if copied_by == "state":
        restored = FaissEngine.from_state(state, arrays)
    else:
        restored = pickle.loads(pickle.dumps(engine))  # noqa: S301
    for first in (5000, 6000):
        one, other = engine.search(queries, 20), restored.search(queries, 20)
        np.testing.assert_array_equal(one.sq_distances, other.sq_distances)
        np.testing.assert_array_equal(one.ids, other.ids)
        np.testing.assert_array_equal(np.asarray(one.labels), np.asarray(other.labels))
        # And so it goes on after the same changes.
        for changed in (engine, restored):
            changed.add(queries[:10], np.arange(10) + first, np.arange(10))
            changed.remove(np.array([first, first + 1]))
        queries = queries[20:]
    assert states_equal(engine, restored)


@pytest.mark.parametrize("index", INDEXES)
def test_nothing_restored_is_nothing(index: str) -> None:
    restored = FaissEngine.from_state(*FaissEngine(8, index, "cosine").to_state())
    assert (restored.size(), restored.index_type, restored.metric) == (0, index, "cosine")
    assert restored.search(made_vectors(1), 3).counts.tolist() == [0]


@pytest.mark.parametrize("index", ["hnsw", "ivf"])
def test_the_same_seed_gives_the_same_index(index: str) -> None:
    first, again = (made_engine(index, build_threads=1) for _ in range(2))
    assert states_equal(first, again)
    assert not states_equal(first, made_engine(index, build_threads=1, seed=1))


@pytest.mark.parametrize("index", INDEXES)
def test_every_part_is_needed(index: str) -> None:
    state, arrays = made_engine(index).to_state()
    for name in arrays:
        with pytest.raises(ModelFileError):
            FaissEngine.from_state(state, {own: arrays[own] for own in arrays if own != name})
    for name in state:
        with pytest.raises(ModelFileError):
            FaissEngine.from_state({own: state[own] for own in state if own != name}, arrays)


@pytest.mark.parametrize(
    "changes",
    [
        {"dimension": 9},
        {"dimension": "8"},
        {"size": 559},
        {"index": "auto"},
        {"metric": "l1"},
        {"settings": {"hnsw_links": 0}},
        {"settings": {"seed": "0"}},
        {"settings": {"unheard_of": 1}},
        {"shelf": {"scale": 0.0, "n_trained": 600}},
        {"shelf": {"scale": "1"}},
        {"shelf": None},
    ],
)
@pytest.mark.parametrize("index", ["hnsw", "ivf"])
def test_numbers_that_do_not_fit(index: str, changes: dict[str, Any]) -> None:
    state, arrays = made_engine(index).to_state()
    with pytest.raises(ModelFileError):
        FaissEngine.from_state(state | changes, arrays)


def broken_arrays(arrays: dict[str, AnyArray]) -> list[dict[str, AnyArray]]:
    """Each array shorter, of another type, or with a number that cannot be."""
    others = []
    for name, array in arrays.items():
        others += [
            {name: array[:-1]},
            {name: array.astype(np.float16)},
            {name: array[None]},
        ]
        if name in ("ids", "nodes", "dead_rows"):
            odd = array.copy()
            odd[-1] = {"ids": odd[-2], "nodes": 10**6, "dead_rows": 10**6}[name]
            others.append({name: odd})
        if name in ("centre", "vectors"):
            others.append({name: np.full_like(array, np.nan)})
    return others


@pytest.mark.parametrize("index", INDEXES)
def test_arrays_that_do_not_fit(index: str) -> None:
    state, arrays = made_engine(index).to_state()
    for other in broken_arrays(arrays):
        with pytest.raises(ModelFileError):
            FaissEngine.from_state(state, arrays | other)


def test_an_index_of_another_kind_or_size() -> None:
    state, arrays = made_engine("hnsw").to_state()
    vectors = made_vectors(570)
    flat, small, wide = faiss.IndexFlatL2(8), faiss.IndexHNSWFlat(8, 32), faiss.IndexHNSWFlat(9, 32)
    product = faiss.IndexHNSWFlat(8, 32, faiss.METRIC_INNER_PRODUCT)
    for other in (flat, small, product):
        other.add(vectors[:570] if other is flat else vectors[: len(vectors) - (other is small)])
    wide.add(np.ones((570, 9), np.float32))
    for other in (flat, small, wide, product):
        with pytest.raises(ModelFileError):
            FaissEngine.from_state(state, arrays | {"index": faiss.serialize_index(other)})


def test_a_graph_of_other_links_is_another() -> None:
    state, arrays = made_engine("hnsw", hnsw_links=8).to_state()
    state["settings"]["hnsw_links"] = 16
    with pytest.raises(ModelFileError, match="graph"):
        FaissEngine.from_state(state, arrays)


def test_links_that_lead_nowhere_are_not_followed() -> None:
    engine = made_engine("hnsw")
    state, arrays = engine.to_state()
    index = faiss.deserialize_index(arrays["index"])
    links = faiss.rev_swig_ptr(index.hnsw.neighbors.data(), index.hnsw.neighbors.size())
    levels = faiss.vector_to_array(index.hnsw.levels)
    offsets = faiss.vector_to_array(index.hnsw.offsets)
    low, high = int(np.flatnonzero(levels == 1)[0]), int(np.flatnonzero(levels > 1)[0])
    for place, node in (
        (0, index.ntotal),
        (0, -2),
        # A node without links on the upper level, linked to there.
        (int(offsets[high]) + 2 * engine.settings.hnsw_links, low),
    ):
        before, links[place] = int(links[place]), node
        with pytest.raises(ModelFileError):
            FaissEngine.from_state(state, arrays | {"index": faiss.serialize_index(index)})
        links[place] = before
    index.hnsw.entry_point = low
    with pytest.raises(ModelFileError):
        FaissEngine.from_state(state, arrays | {"index": faiss.serialize_index(index)})


@pytest.mark.parametrize("index", ["hnsw", "ivf"])
def test_bytes_at_random_do_no_harm(index: str) -> None:
    engine, queries = made_engine(index), made_vectors(20)
    state, arrays = engine.to_state()
    data, random, n_refused = arrays["index"], np.random.default_rng(8), 0
    for turn in range(150):
        odd = data.copy()
        if turn % 3 == 0:
            odd = odd[: random.integers(len(odd))]
        else:
            # The head of the file holds the sizes.
            odd[random.integers(400 if turn % 3 == 1 else len(odd))] ^= random.integers(1, 256)
        try:
            restored = FaissEngine.from_state(state, arrays | {"index": odd})
        except ModelFileError:
            n_refused += 1
        else:
            assert np.isfinite(restored.search(queries, 10).sq_distances).all()
    assert n_refused >= 50
