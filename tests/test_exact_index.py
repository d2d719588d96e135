"""The exact index against a float64 brute force, bit for bit."""

import math
from collections.abc import Iterator

import faiss
import numpy as np
import pytest
from numpy.typing import DTypeLike
from threadpoolctl import threadpool_limits

from nearsure.arrays import AnyArray, FloatArray, IntArray
from nearsure.index import exact
from nearsure.index.exact import SPARE_CANDIDATES, ExactIndex

Found = tuple[FloatArray, IntArray]
both_types = pytest.mark.parametrize("dtype", [np.float32, np.float64])


def brute_force(vectors: AnyArray, queries: AnyArray, k: int) -> Found:
    """All sums of squared differences in float64, sorted by distance and then by id."""
    vectors, queries = (np.ascontiguousarray(array, np.float64) for array in (vectors, queries))
    distances = np.empty((len(queries), len(vectors)))
    for row, query in enumerate(queries):
        differences = vectors - query
        distances[row] = np.vecdot(differences, differences)
    ids = np.argsort(distances, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(distances, ids, axis=1), ids


def assert_same(ours: Found, theirs: Found) -> None:
    np.testing.assert_array_equal(ours[1], theirs[1])
    np.testing.assert_array_equal(ours[0], theirs[0])


def assert_is_brute_force(vectors: AnyArray, queries: AnyArray, k: int) -> None:
    """For all queries at once (faiss by blocks), few (faiss by rows) and a lone one (BLAS)."""
    index, expected = BoundedIndex(vectors), brute_force(vectors, queries, k)
    assert_same(index.search(queries, k), expected)
    assert_same(index.search(queries[:3], k), (expected[0][:3], expected[1][:3]))
    assert_same(index.search(queries[:1], k), (expected[0][:1], expected[1][:1]))


class BoundedIndex(ExactIndex):
    """An exact index that fails instead of asking for ever, and says for how many it asked."""

    def __init__(self, vectors: AnyArray) -> None:
        super().__init__(vectors)
        self.proposed: list[int] = []
        self.rounds = 0

    def _propose(self, queries: AnyArray, n_candidates: int) -> tuple[IntArray, FloatArray]:
        self.proposed.append(n_candidates)
        return super()._propose(queries, n_candidates)

    def _exact_sq_distances(self, queries: AnyArray, candidates: IntArray) -> FloatArray:
        self.rounds += 1
        assert self.rounds < 100, "the search does not end"
        return super()._exact_sq_distances(queries, candidates)


# What it finds.


@both_types
@pytest.mark.parametrize("n_features", [1, 2, 3, 17, 128])
@pytest.mark.parametrize("k", [1, 5, 40])
def test_random_vectors(dtype: DTypeLike, n_features: int, k: int) -> None:
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(400, n_features)).astype(dtype)
    assert_is_brute_force(vectors, rng.normal(size=(50, n_features)).astype(dtype), k)


@pytest.mark.parametrize("types", [(np.float32, np.float64), (np.float64, np.float32)])
def test_queries_and_vectors_of_different_precision(types: tuple[DTypeLike, DTypeLike]) -> None:
    rng = np.random.default_rng(1)
    vectors, queries = rng.normal(size=(300, 6)), rng.normal(size=(30, 6))
    assert_is_brute_force(vectors.astype(types[0]), queries.astype(types[1]), 7)


def test_distances_are_the_true_ones() -> None:
    rng = np.random.default_rng(2)
    vectors, queries = rng.normal(size=(100, 50)), rng.normal(size=(5, 50))
    sq_distances, ids = ExactIndex(vectors).search(queries, 10)
    true = [
        [math.fsum((a - b) ** 2 for a, b in zip(query, vectors[i], strict=True)) for i in row]
        for query, row in zip(queries, ids, strict=True)
    ]
    np.testing.assert_allclose(sq_distances, true, rtol=1e-14)
    assert sq_distances.dtype == np.float64
    assert ids.dtype == np.int64


@both_types
def test_integers_have_exact_distances_and_ties_in_the_order_of_ids(dtype: DTypeLike) -> None:
    rng = np.random.default_rng(3)
    vectors, queries = rng.integers(-3, 4, (500, 3)), rng.integers(-3, 4, (60, 3))
    sq_distances, ids = BoundedIndex(vectors.astype(dtype)).search(queries.astype(dtype), 12)
    for row, query in enumerate(queries.tolist()):
        pairs = sorted(
            (sum((a - b) ** 2 for a, b in zip(query, vector, strict=True)), i)
            for i, vector in enumerate(vectors.tolist())
        )
        assert list(zip(sq_distances[row], ids[row], strict=True)) == pairs[:12]


@both_types
@pytest.mark.parametrize("n_duplicates", [SPARE_CANDIDATES + 2, 100, 450])
def test_more_duplicates_than_spare_candidates(dtype: DTypeLike, n_duplicates: int) -> None:
    rng = np.random.default_rng(4)
    vectors = rng.normal(size=(500, 5)).astype(dtype)
    vectors[rng.permutation(500)[:n_duplicates]] = vectors[0]
    queries = np.vstack([vectors[:1], vectors[:1] + 0.1, vectors[40:70]]).astype(dtype)
    assert_is_brute_force(vectors, queries, 4)


@both_types
@pytest.mark.parametrize("value", [0.0, 1.0, 0.1, 1e10])
def test_identical_vectors_come_in_the_order_of_ids(dtype: DTypeLike, value: float) -> None:
    vectors = np.full((300, 4), value, dtype)
    queries = np.array([[value] * 4, [1.0, 2.0, 3.0, 4.0]] * 15, dtype)
    assert_is_brute_force(vectors, queries, 6)
    np.testing.assert_array_equal(ExactIndex(vectors).search(queries, 6)[1][0], np.arange(6))


@both_types
@pytest.mark.parametrize("n_support", [1, 2, 3, 100])
def test_all_support_vectors_may_be_asked_for(dtype: DTypeLike, n_support: int) -> None:
    rng = np.random.default_rng(5)
    vectors = rng.normal(size=(n_support, 3)).astype(dtype)
    assert len(ExactIndex(vectors)) == n_support
    assert_is_brute_force(vectors, rng.normal(size=(25, 3)).astype(dtype), n_support)


def test_no_queries_give_no_answers() -> None:
    sq_distances, ids = ExactIndex(np.zeros((5, 2))).search(np.zeros((0, 2)), 3)
    assert sq_distances.shape == ids.shape == (0, 3)


@both_types
def test_arrays_may_be_read_only_and_strided_and_stay_as_they_are(dtype: DTypeLike) -> None:
    rng = np.random.default_rng(6)
    vectors = np.asfortranarray(rng.normal(size=(800, 5)).astype(dtype))[::2]
    queries = rng.normal(size=(60, 10)).astype(dtype)[:, ::-2]
    before = vectors.copy(), queries.copy()
    vectors.flags.writeable = queries.flags.writeable = False
    assert_is_brute_force(vectors, queries, 5)
    np.testing.assert_array_equal(vectors, before[0])
    np.testing.assert_array_equal(queries, before[1])


# Where float32 alone would go wrong.


@pytest.mark.parametrize("scale", [1e-140, 1e-30, 1e-10, 1e10, 1e30, 1e140])
def test_float64_of_any_scale(scale: float) -> None:
    rng = np.random.default_rng(7)
    vectors, queries = rng.normal(size=(400, 5)) * scale, rng.normal(size=(40, 5)) * scale
    assert_is_brute_force(vectors, queries, 6)


@pytest.mark.parametrize("scale", [1e-42, 1e-30, 1e-7, 1e7, 1e30, 1e37])
def test_float32_of_any_scale(scale: float) -> None:
    rng = np.random.default_rng(8)
    vectors = (rng.normal(size=(400, 5)) * scale).astype(np.float32)
    assert_is_brute_force(vectors, (rng.normal(size=(40, 5)) * scale).astype(np.float32), 6)


@both_types
@pytest.mark.parametrize("offset", [10.0, 1000.0, 1e6])
def test_vectors_far_from_the_origin(dtype: DTypeLike, offset: float) -> None:
    rng = np.random.default_rng(9)
    vectors = (rng.normal(size=(400, 16)) + offset).astype(dtype)
    assert_is_brute_force(vectors, (rng.normal(size=(40, 16)) + offset).astype(dtype), 6)


def test_a_common_offset_does_not_change_the_answer() -> None:
    rng = np.random.default_rng(10)
    vectors, queries = rng.normal(size=(400, 16)), rng.normal(size=(40, 16))
    sq_distances, ids = ExactIndex(vectors).search(queries, 6)
    shifted, shifted_ids = ExactIndex(vectors + 1000).search(queries + 1000, 6)
    np.testing.assert_array_equal(shifted_ids, ids)
    np.testing.assert_allclose(shifted, sq_distances, rtol=1e-9)


@both_types
@pytest.mark.parametrize("length", [1e2, 1e4, 1e8])
def test_an_outlier_in_the_gallery(dtype: DTypeLike, length: float) -> None:
    rng = np.random.default_rng(11)
    vectors = rng.normal(size=(400, 8)).astype(dtype)
    vectors[17] *= length
    queries = np.vstack([rng.normal(size=(40, 8)), vectors[17] * 0.9]).astype(dtype)
    assert_is_brute_force(vectors, queries, 5)


@pytest.mark.parametrize("length", [1e20, 3e22, 1e23, 1e30])
def test_outliers_that_leave_the_others_next_to_nothing_in_float32(length: float) -> None:
    rng = np.random.default_rng(12)
    for _ in range(5):
        vectors = rng.normal(size=(800, 4))
        vectors[0], vectors[1] = length, -length  # the centre stays where the others are
        assert_is_brute_force(vectors, rng.normal(size=(40, 4)), 5)


@both_types
@pytest.mark.parametrize("distance", [1e3, 1e8, 1e20, 1e30])
def test_queries_far_from_all_vectors(dtype: DTypeLike, distance: float) -> None:
    rng = np.random.default_rng(13)
    vectors = rng.normal(size=(400, 4)).astype(dtype)
    assert_is_brute_force(vectors, (rng.normal(size=(40, 4)) * distance).astype(dtype), 5)


@pytest.mark.parametrize("n_support", [5, 400])
@both_types
def test_queries_beyond_the_range_of_float32(dtype: DTypeLike, n_support: int) -> None:
    vectors = np.random.default_rng(14).normal(size=(n_support, 2)).astype(dtype)
    assert_is_brute_force(vectors, np.full((3, 2), 1e39), 2)


def test_vectors_so_close_that_their_scale_squared_is_zero() -> None:
    vectors = np.array([[0.0], [1e-170], [3e-170]])
    assert_is_brute_force(vectors, vectors, 2)


# The same bits whatever the batch and the threads.


@pytest.fixture
def restored_faiss_threads() -> Iterator[None]:
    n_threads = faiss.omp_get_max_threads()
    yield
    faiss.omp_set_num_threads(n_threads)


def large_case(dtype: DTypeLike, n_features: int = 24) -> tuple[AnyArray, AnyArray]:
    rng = np.random.default_rng(15)
    vectors = rng.normal(size=(2000, n_features)) + 3.0
    return vectors.astype(dtype), (rng.normal(size=(150, n_features)) + 3.0).astype(dtype)


@both_types
@pytest.mark.parametrize("batch", [1, 7, 19, 20, 21, 149])
def test_batch_size_does_not_show(dtype: DTypeLike, batch: int) -> None:
    vectors, queries = large_case(dtype)
    index = ExactIndex(vectors)
    parts = [
        index.search(queries[start : start + batch], 6) for start in range(0, len(queries), batch)
    ]
    together = np.vstack([part[0] for part in parts]), np.vstack([part[1] for part in parts])
    assert_same(together, index.search(queries, 6))


@both_types
@pytest.mark.usefixtures("restored_faiss_threads")
@pytest.mark.parametrize("n_threads", [1, 2, 3])
@pytest.mark.parametrize("n_features", [24, 1000])
def test_thread_count_does_not_show(
    monkeypatch: pytest.MonkeyPatch, dtype: DTypeLike, n_threads: int, n_features: int
) -> None:
    vectors, queries = large_case(dtype, n_features)
    expected = brute_force(vectors, queries[:40], 6)
    faiss.omp_set_num_threads(n_threads)
    monkeypatch.setattr(faiss, "omp_get_max_threads", lambda: n_threads)
    with threadpool_limits(n_threads):
        assert_same(ExactIndex(vectors).search(queries[:40], 6), expected)
        assert_same(ExactIndex(vectors).search(queries[:1], 6), (expected[0][:1], expected[1][:1]))


@pytest.mark.usefixtures("restored_faiss_threads")
@pytest.mark.parametrize("n_features", [8192, 8193, 12_000])
def test_very_long_vectors(n_features: int) -> None:
    rng = np.random.default_rng(16)
    vectors, queries = rng.normal(size=(40, n_features)), rng.normal(size=(3, n_features))
    answers = []
    for n_threads in (1, 2):
        faiss.omp_set_num_threads(n_threads)
        with threadpool_limits(n_threads):
            index = ExactIndex(vectors)
            answers += [index.search(queries, 4)]
            lone = [index.search(queries[row : row + 1], 4) for row in range(3)]
            answers += [(np.vstack([d for d, _ in lone]), np.vstack([i for _, i in lone]))]
    for answer in answers[1:]:
        assert_same(answer, answers[0])
    expected = brute_force(vectors, queries, 4)
    np.testing.assert_array_equal(answers[0][1], expected[1])
    np.testing.assert_allclose(answers[0][0], expected[0], rtol=1e-13)


@pytest.mark.parametrize("name", ["QUERY_BLOCK", "DIFFERENCE_BLOCK"])
@pytest.mark.parametrize("size", [1, 7, 149, 1 << 30])
def test_blocks_do_not_show(monkeypatch: pytest.MonkeyPatch, name: str, size: int) -> None:
    vectors, queries = large_case(np.float64)
    expected = brute_force(vectors, queries[:50], 5)
    monkeypatch.setattr(exact, name, size)
    assert_same(ExactIndex(vectors).search(queries[:50], 5), expected)


# The certificate.


class AdversarialIndex(BoundedIndex):
    """Proposes the farthest points, or random ones, and states truly what it left out."""

    def __init__(self, vectors: AnyArray, *, farthest: bool) -> None:
        super().__init__(vectors)
        self.farthest = farthest
        self.rng = np.random.default_rng(17)

    def _propose(self, queries: AnyArray, n_candidates: int) -> tuple[IntArray, FloatArray]:
        self.proposed.append(n_candidates)
        distances, ids = brute_force(self.vectors, queries, len(self))
        order = np.argsort(
            -distances if self.farthest else self.rng.random(distances.shape), axis=1
        )
        proposed, left_out = order[:, :n_candidates], order[:, n_candidates:]
        nearest_left_out = np.take_along_axis(distances, left_out, axis=1).min(axis=1)
        candidates = np.sort(np.take_along_axis(ids, proposed, axis=1), axis=1)
        return candidates, nearest_left_out / self._scale**2


@pytest.mark.parametrize("farthest", [True, False])
@pytest.mark.parametrize("n_queries", [1, 30])
@both_types
def test_wrong_candidates_lead_to_more_candidates_not_to_a_wrong_answer(
    dtype: DTypeLike, n_queries: int, *, farthest: bool
) -> None:
    rng = np.random.default_rng(18)
    vectors = rng.normal(size=(1000, 6)).astype(dtype)
    queries = rng.normal(size=(n_queries, 6)).astype(dtype)
    index = AdversarialIndex(vectors, farthest=farthest)
    assert_same(index.search(queries, 5), brute_force(vectors, queries, 5))
    assert index.proposed[0] == 5 + SPARE_CANDIDATES
    assert len(index.proposed) > 2
    assert (np.diff(index.proposed) > 0).all()


@pytest.mark.parametrize("beyond", [0.0, -1.0, np.nan])
def test_candidates_without_a_certificate_are_never_believed(
    monkeypatch: pytest.MonkeyPatch, beyond: float
) -> None:
    def worthless(
        _: ExactIndex, queries: AnyArray, n_candidates: int
    ) -> tuple[IntArray, FloatArray]:
        candidates = np.tile(np.arange(n_candidates), (len(queries), 1))
        return candidates, np.full(len(queries), beyond)

    monkeypatch.setattr(ExactIndex, "_propose", worthless)
    rng = np.random.default_rng(19)
    vectors, queries = rng.normal(size=(500, 4)), rng.normal(size=(9, 4))
    assert_same(ExactIndex(vectors).search(queries, 3), brute_force(vectors, queries, 3))


def test_a_point_left_out_at_the_very_distance_of_the_last_found_is_looked_for() -> None:
    # All are equally far, so the smallest ids are the answer; the largest are proposed first.
    class FromTheEnd(BoundedIndex):
        def _propose(self, queries: AnyArray, n_candidates: int) -> tuple[IntArray, FloatArray]:
            self.proposed.append(n_candidates)
            last = np.arange(len(self) - n_candidates, len(self))
            return np.tile(last, (len(queries), 1)), np.full(len(queries), 1.0 / self._scale**2)

    index = FromTheEnd(np.array([[1.0], [-1.0]] * 100))
    sq_distances, ids = index.search(np.zeros((4, 1)), 3)
    np.testing.assert_array_equal(ids, [[0, 1, 2]] * 4)
    np.testing.assert_array_equal(sq_distances, 1.0)


@both_types
@pytest.mark.parametrize("offset", [0.0, 1000.0])
@pytest.mark.parametrize("n_queries", [1, 5, 60])
def test_ordinary_vectors_are_certified_at_once(
    dtype: DTypeLike, offset: float, n_queries: int
) -> None:
    rng = np.random.default_rng(20)
    vectors = (rng.normal(size=(1000, 32)) + offset).astype(dtype)
    queries = (rng.normal(size=(n_queries, 32)) + offset).astype(dtype)
    index = BoundedIndex(vectors)
    index.search(queries, 5)
    assert index.proposed == [5 + SPARE_CANDIDATES]


def test_only_the_uncertain_queries_are_asked_again() -> None:
    rng = np.random.default_rng(21)
    vectors = rng.normal(size=(1000, 8))
    vectors[:25] = vectors[0]  # more duplicates than candidates: the first cannot be certain
    queries = np.vstack([vectors[:1], rng.normal(size=(39, 8)) + 1.0])
    asked = []

    class Recording(BoundedIndex):
        def _propose(self, queries: AnyArray, n_candidates: int) -> tuple[IntArray, FloatArray]:
            asked.append(len(queries))
            return super()._propose(queries, n_candidates)

    assert_same(Recording(vectors).search(queries, 5), brute_force(vectors, queries, 5))
    assert asked == [40, 1]
