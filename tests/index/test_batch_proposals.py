"""Candidates by matrix products are those that a look at every distance finds."""

import numpy as np
import pytest

from nearsure.arrays import AnyArray
from nearsure.index.exact import VECTOR_BLOCK, ExactIndex, propose_together


def made(n_vectors: int, n_queries: int, width: int = 16) -> tuple[AnyArray, AnyArray]:
    rng = np.random.default_rng(n_vectors + n_queries)
    return (
        rng.standard_normal((n_queries, width), np.float32),
        rng.standard_normal((n_vectors, width), np.float32),
    )


@pytest.mark.parametrize("n_vectors", [9, 100, VECTOR_BLOCK, VECTOR_BLOCK + 1, 20_000])
@pytest.mark.parametrize("n_candidates", [1, 8])
def test_they_are_the_nearest(n_vectors: int, n_candidates: int) -> None:
    queries, vectors = made(n_vectors, 12)
    proposed = propose_together(queries, vectors, (vectors**2).sum(axis=1), n_candidates)
    assert proposed is not None
    rows, farthest = proposed
    for query, own, limit in zip(queries.astype(float), rows, farthest, strict=True):
        sq_distances = ((vectors - query) ** 2).sum(axis=1)
        assert set(own) == set(np.argsort(sq_distances)[:n_candidates])
        assert limit == pytest.approx(np.sort(sq_distances)[n_candidates - 1], rel=1e-4)


def test_sorted_classes_do_not_mislead_the_sample() -> None:
    queries, vectors = made(20_000, 12)
    vectors = vectors[np.argsort(vectors @ queries[0])]
    proposed = propose_together(queries, vectors, (vectors**2).sum(axis=1), 5)
    assert proposed is not None
    exact = ((vectors - queries[0].astype(float)) ** 2).sum(axis=1)
    assert set(proposed[0][0]) == set(np.argsort(exact)[:5])


def test_where_nothing_can_be_passed_over_it_gives_up() -> None:
    queries, _ = made(1, 12)
    same = np.ones((20_000, 16), np.float32)
    assert propose_together(queries, same, (same**2).sum(axis=1), 5) is None
    sq_distances, ids = ExactIndex(same).search(queries, 5)
    assert (ids == np.arange(5)).all()
    assert sq_distances[:, 0] == pytest.approx(((queries.astype(float) - 1) ** 2).sum(axis=1))


def test_what_overflows_is_not_proposed() -> None:
    queries, vectors = made(500, 4)
    queries[2] *= np.float32(1e30)
    proposed = propose_together(queries, vectors, (vectors**2).sum(axis=1), 5)
    assert proposed is not None
    assert (proposed[0][2] == -1).all()
    assert (proposed[0][[0, 1, 3]] >= 0).all()


def test_one_at_a_time_together_and_by_faiss_are_the_same_answers() -> None:
    queries, vectors = made(5000, 600)
    index = ExactIndex(vectors)
    all_at_once = index.search(queries, 7)
    for size in (1, 3, 4, 64, 512):
        parts = [index.search(queries[i : i + size], 7) for i in range(0, len(queries), size)]
        assert (np.concatenate([ids for _, ids in parts]) == all_at_once[1]).all()
        assert (np.concatenate([found for found, _ in parts]) == all_at_once[0]).all()
