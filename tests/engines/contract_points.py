"""Points that an engine is to hold, and what naive search in double precision says of them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from nearsure.arrays import AnyArray, FloatArray
from nearsure.engines.contract import Engine, Found
from nearsure.index import unit_vectors

DIMENSION = 12
N_CLASSES = 8
ABSOLUTE_TOLERANCE = 1e-9


@dataclass(frozen=True, eq=False)
class Points:
    """Vectors under ids of an engine's kind, with labels if it holds them; all read-only."""

    ids: AnyArray
    vectors: AnyArray
    labels: AnyArray | None

    def __post_init__(self) -> None:
        for array in (self.ids, self.vectors, self.labels):
            if array is not None:
                array.setflags(write=False)

    def __len__(self) -> int:
        return len(self.ids)

    def take(self, rows: AnyArray | slice) -> "Points":
        labels = None if self.labels is None else self.labels[rows].copy()
        return Points(self.ids[rows].copy(), self.vectors[rows].copy(), labels)

    def and_also(self, others: "Points") -> "Points":
        labels = None
        if self.labels is not None and others.labels is not None:
            labels = np.concatenate([self.labels, others.labels])
        return Points(
            np.concatenate([self.ids, others.ids]),
            np.concatenate([self.vectors, others.vectors]),
            labels,
        )


def clusters(
    n: int, *, seed: int, dimension: int = DIMENSION, offset: float = 0.0, spread: float = 0.5
) -> tuple[AnyArray, AnyArray]:
    """Vectors in float32 around a few centres that every seed shares, and the centre of each."""
    centres = np.random.default_rng(0).normal(size=(N_CLASSES, dimension))
    random = np.random.default_rng([1, seed])
    classes = random.integers(N_CLASSES, size=n)
    noise = spread * random.normal(size=(n, dimension))
    return (centres[classes] + noise + offset).astype(np.float32), classes


def points_for(
    engine: Engine, n: int, *, seed: int = 0, first: int = 0, offset: float = 0.0
) -> Points:
    """n points for this engine, whose ids are not in order."""
    vectors, classes = clusters(n, seed=seed, dimension=engine.dimension, offset=offset)
    numbers = np.random.default_rng([2, seed]).permutation(n) + first
    return Points(ids_for(engine, numbers.tolist()), vectors, labels_for(engine, classes.tolist()))


def ids_for(engine: Engine, numbers: Sequence[int]) -> AnyArray:
    """Ids of the engine's kind, one for each number."""
    if engine.capabilities.ids == "integer":
        return np.array(numbers, np.int64)
    return np.array([f"point {number}" for number in numbers], str)


def labels_for(engine: Engine, codes: Sequence[int]) -> AnyArray | None:
    """Labels of the engine's kind, one for each code; None if it holds none."""
    if not engine.capabilities.holds_labels:
        return None
    if engine.capabilities.labels == "integer":
        return np.array(codes, np.int64)
    return np.array([f"class {code}" for code in codes], str)


def all_sq_distances(engine: Engine, queries: AnyArray, vectors: AnyArray) -> FloatArray:
    """Squared Euclidean distances of all pairs, as the engine's metric means them."""
    queries, vectors = queries.astype(np.float64), vectors.astype(np.float64)
    if engine.metric == "cosine":
        queries, vectors = unit_vectors(queries), unit_vectors(vectors)
    distances: FloatArray = ((queries[:, None, :] - vectors[None, :, :]) ** 2).sum(axis=2)
    return distances


def allowed_error(engine: Engine, sq_distances: FloatArray, relative: float) -> FloatArray:
    """How far a distance may be off: unit vectors are stored in single precision."""
    allowed = ABSOLUTE_TOLERANCE + relative * sq_distances
    if engine.metric == "cosine":
        allowed = allowed + 5e-7 * np.sqrt(sq_distances)
    return allowed


def check_answer(
    engine: Engine, found: Found, points: Points, queries: AnyArray, *, relative: float = 1e-6
) -> float:
    """Assert that an answer is right as far as it goes, and return its recall.

    Shapes, kinds, order, ties, padding, and the distance and label of each id. What may be missing
    is for the caller to say: an exact engine has recall 1.
    """
    sq_distances = all_sq_distances(engine, queries, points.vectors)
    n, k = found.sq_distances.shape
    check_form(engine, found, len(queries))
    row_of = {own: row for row, own in enumerate(points.ids.tolist())}
    n_true = min(k, len(points))
    n_hit = 0
    for i in range(n):
        ids = found.ids[i, : found.counts[i]].tolist()
        assert set(ids) <= set(row_of), f"ids that are not there: {set(ids) - set(row_of)}"
        rows = [row_of[own] for own in ids]
        true = sq_distances[i, rows]
        errors = np.abs(found.sq_distances[i, : len(rows)] - true)
        allowed = allowed_error(engine, true, relative)
        assert (errors <= allowed).all(), f"wrong by {errors.max()} at distances of {true}"
        if points.labels is not None and found.labels is not None:
            assert found.labels[i, : len(rows)].tolist() == points.labels[rows].tolist()
        nearest = np.sort(sq_distances[i])[:n_true]
        if n_true:
            n_hit += int((true <= nearest[-1] + allowed_error(engine, true, relative)).sum())
    return n_hit / (n * n_true) if n_true else 1.0


def check_form(engine: Engine, found: Found, n_queries: int) -> None:
    """Assert all that can be said of an answer without knowing the points."""
    capabilities = engine.capabilities
    n, k = found.sq_distances.shape
    assert n == n_queries
    assert found.sq_distances.dtype == np.float64
    assert found.ids.shape == (n, k)
    assert found.counts.shape == (n,)
    assert found.ids.dtype.kind == ("i" if capabilities.ids == "integer" else "U")
    assert (found.labels is not None) == capabilities.holds_labels
    valid = np.arange(k) < found.counts[:, None]
    assert np.isfinite(found.sq_distances[valid]).all()
    assert (found.sq_distances[valid] >= 0).all()
    assert np.isposinf(found.sq_distances[~valid]).all()
    assert (found.ids[~valid] == (-1 if capabilities.ids == "integer" else "")).all()
    if found.labels is not None:
        assert found.labels.shape == (n, k)
        assert found.labels.dtype.kind == ("i" if capabilities.labels == "integer" else "U")
    for i in range(n):
        distances = found.sq_distances[i, : found.counts[i]]
        ids = found.ids[i, : found.counts[i]]
        assert len(set(ids.tolist())) == len(ids), "an id came twice in one answer"
        assert (distances[1:] >= distances[:-1]).all(), "distances must ascend"
        tied = distances[1:] == distances[:-1]
        assert (ids[1:][tied] > ids[:-1][tied]).all(), "ties must be in the order of ids"
