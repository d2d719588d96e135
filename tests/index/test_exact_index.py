"""The exact index against a float64 brute force, bit for bit."""

import copy
import math
from collections.abc import Iterator

import faiss
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import DTypeLike
from threadpoolctl import threadpool_limits

from nearsure.arrays import AnyArray, FloatArray, IntArray
from nearsure.errors import InvalidInputError
from nearsure.index import exact, unit_vectors
from nearsure.index import exact as distinct_vectors
from nearsure.index.exact import SPARE_CANDIDATES, ExactIndex, fingerprints

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


@pytest.mark.parametrize("n_queries", [1, 3, 30])
def test_a_nearest_vector_whose_squared_length_float32_cannot_hold(n_queries: int) -> None:
    vectors = np.random.default_rng(22).normal(size=(300, 1)).astype(np.float32)
    vectors[:6], vectors[6] = 1.5e19, 1.85e19  # the square of the last alone overflows
    assert_is_brute_force(vectors, np.full((n_queries, 1), 1.8e19, np.float32), 3)


def test_more_candidates_than_vectors_that_float32_can_hold_apart() -> None:
    vectors = np.random.default_rng(33).normal(size=(3000, 2)).astype(np.float32)
    # The sample that tells how large vectors are is every third of them.
    vectors[1::3] *= 1e25
    vectors[2::3] *= 1e25
    assert_is_brute_force(vectors, vectors[:30:3], 1200)


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
        return candidates, nearest_left_out / self._held.conditioning.scale**2


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
            return np.tile(last, (len(queries), 1)), np.full(
                len(queries), 1.0 / self._held.conditioning.scale**2
            )

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


# Many identical vectors.


class Work:
    """What searches cost, counted in every index there is."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.n_pairs_scanned = self.n_exact_distances = self.n_tables = 0
        propose, settle = ExactIndex._propose, ExactIndex._exact_sq_distances

        def counted_propose(
            index: ExactIndex, queries: AnyArray, n_candidates: int
        ) -> tuple[IntArray, FloatArray]:
            self.n_pairs_scanned += len(queries) * len(index)
            return propose(index, queries, n_candidates)

        def counted_settle(
            index: ExactIndex, queries: AnyArray, candidates: IntArray
        ) -> FloatArray:
            self.n_exact_distances += candidates.size
            return settle(index, queries, candidates)

        def counted_prints(vectors: AnyArray) -> IntArray:
            self.n_tables += 1
            return fingerprints(vectors)

        monkeypatch.setattr(ExactIndex, "_propose", counted_propose)
        monkeypatch.setattr(ExactIndex, "_exact_sq_distances", counted_settle)
        monkeypatch.setattr(distinct_vectors, "fingerprints", counted_prints)


@both_types
@pytest.mark.parametrize("n_copies", [1000, 3999, 4000])
@pytest.mark.parametrize("n_queries", [1, 64, 600])
def test_identical_vectors_cost_little_more_than_others(
    monkeypatch: pytest.MonkeyPatch, dtype: DTypeLike, n_copies: int, n_queries: int
) -> None:
    rng = np.random.default_rng(40)
    vectors = rng.normal(size=(4000, 8)).astype(dtype)
    vectors[rng.permutation(4000)[:n_copies]] = vectors[0]
    queries = np.repeat(vectors[:1], n_queries, axis=0)
    index, work = ExactIndex(vectors), Work(monkeypatch)
    # The first search comes across them: two scans of everything, one of what is distinct.
    index.search(queries, 5)
    assert work.n_pairs_scanned <= 3 * n_queries * 4000
    assert work.n_exact_distances <= n_queries * 3 * (5 + 4 * SPARE_CANDIDATES)
    # The next ones look at distinct vectors alone.
    n_pairs, n_distances = work.n_pairs_scanned, work.n_exact_distances
    for _ in range(3):
        index.search(queries, 5)
    assert work.n_pairs_scanned - n_pairs <= 3 * n_queries * 4000
    assert work.n_exact_distances - n_distances <= 3 * n_queries * 3 * (5 + SPARE_CANDIDATES)
    assert work.n_tables == 1


def test_few_copies_and_equal_distances_of_distinct_vectors_take_no_table(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = np.random.default_rng(41)
    vectors = rng.normal(size=(2000, 4))
    vectors[:20] = vectors[0]
    work = Work(monkeypatch)
    ExactIndex(vectors).search(vectors[:30], 5)
    assert work.n_tables == 0
    # All on one sphere, and one pair among them: looked for once, and no copy of the vectors kept.
    circle = np.repeat(np.eye(400), 2, axis=0) * np.tile([1.0, -1.0], 400)[:, None]
    circle[1] = circle[0]
    index = ExactIndex(circle)
    for _ in range(3):
        assert_same(index.search(np.zeros((2, 400)), 5), brute_force(circle, np.zeros((2, 400)), 5))
    assert work.n_tables == 1
    assert index._distinct is None


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_any_copies_and_ties_are_answered_as_by_brute_force(data: st.DataObject) -> None:
    seed = data.draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    dtype = data.draw(st.sampled_from([np.float32, np.float64]))
    n, width = data.draw(st.integers(60, 400)), data.draw(st.integers(1, 3))
    grid = data.draw(st.booleans())  # on a grid, distinct vectors tie as well
    offset = data.draw(st.sampled_from([0.0, 1000.0]))

    def draw(n_drawn: int) -> AnyArray:
        drawn = rng.integers(-2, 3, (n_drawn, width)) if grid else rng.normal(size=(n_drawn, width))
        return (drawn + offset).astype(dtype)

    vectors = draw(n)
    for _ in range(data.draw(st.integers(0, 4))):
        clump = rng.permutation(n)[: data.draw(st.integers(1, n))]
        vectors[clump] = vectors[clump[0]]
    vectors[rng.random(vectors.shape) < 0.1] *= -1.0 if offset == 0.0 else 1.0  # -0.0 is 0.0
    ids = rng.permutation(3 * n)[:n] - n if data.draw(st.booleans()) else np.arange(n)
    index = ExactIndex(vectors.copy(), ids)
    points = dict(zip(ids.tolist(), vectors, strict=True))
    for _ in range(3):
        queries = np.vstack([draw(20), index.vectors[rng.integers(0, len(index), 20)]])
        assert_holds(index, points, queries, data.draw(st.integers(1, len(index))))
        if data.draw(st.booleans()):
            added = np.repeat(index.vectors[:1], data.draw(st.integers(1, 30)), axis=0)
            points |= dict(zip(index.add(added).tolist(), added.copy(), strict=True))
        else:
            gone = rng.choice(list(points), len(points) // 3, replace=False)
            index.remove(index.rows_of(gone))
            for own in gone.tolist():
                del points[own]


# Vectors that come and go.


def brute_force_by_id(vectors: AnyArray, ids: IntArray, queries: AnyArray, k: int) -> Found:
    """`brute_force` over the vectors in the order of their ids, with their ids."""
    order = np.argsort(ids)
    sq_distances, rows = brute_force(vectors[order], queries, k)
    return sq_distances, ids[order][rows]


def assert_holds(index: ExactIndex, points: dict[int, AnyArray], queries: AnyArray, k: int) -> None:
    """The index answers as if it had been made of these points."""
    ids = np.array(list(points))
    vectors = np.stack(list(points.values()))
    assert len(index) == len(points)
    np.testing.assert_array_equal(np.sort(index.ids), np.sort(ids))
    np.testing.assert_array_equal(index.vectors[index.rows_of(ids)], vectors)
    np.testing.assert_array_equal(index.ids[index.rows_of(ids)], ids)
    for asked in (queries, queries[:3], queries[:1]):
        found = index.search(asked, k)
        assert_same(found, brute_force_by_id(vectors, ids, asked, k))
        by_row = index.search_rows(asked, k)
        assert_same((by_row[0], index.ids_of(by_row[1])), found)


@both_types
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("offset", [0.0, 1000.0])
def test_any_changes_leave_the_answers_of_the_vectors_alone(
    dtype: DTypeLike, seed: int, offset: float
) -> None:
    rng = np.random.default_rng([23, seed])

    def draw(n: int) -> AnyArray:  # on a grid, where duplicates and ties abound
        return (rng.integers(-2, 3, (n, 3)) + offset).astype(dtype)

    vectors = draw(70)
    before = vectors.copy()
    index, points = ExactIndex(vectors), dict(enumerate(vectors.copy()))
    for _ in range(25):
        if rng.random() < 0.5:
            added = draw(int(rng.integers(1, 30)))
            ids = rng.choice(10**6, len(added), replace=False) if rng.random() < 0.3 else None
            points |= dict(zip(index.add(added, ids).tolist(), added, strict=True))
        else:
            gone = rng.choice(list(points), int(rng.integers(1, len(points) // 2)), replace=False)
            index.remove(index.rows_of(gone))
            for own in gone.tolist():
                del points[own]
            if len(points) < 40:
                added = draw(40)
                points |= dict(zip(index.add(added).tolist(), added, strict=True))
        assert_holds(index, points, draw(25), 4)
    np.testing.assert_array_equal(vectors, before)


@both_types
def test_ties_are_in_the_order_of_ids_that_are_not_in_the_order_of_rows(dtype: DTypeLike) -> None:
    ids = np.random.default_rng(24).permutation(300) - 150
    index = ExactIndex(np.zeros((300, 2), dtype), ids)
    for n_queries in (1, 30):
        found = index.search(np.ones((n_queries, 2)), 5)[1]
        np.testing.assert_array_equal(found, [[-150, -149, -148, -147, -146]] * n_queries)


def test_new_ids_count_on_from_the_largest_ever_used() -> None:
    index = ExactIndex(np.zeros((3, 1)))
    index.remove([2])
    np.testing.assert_array_equal(index.add(np.zeros((2, 1))), [3, 4])
    np.testing.assert_array_equal(index.add(np.zeros((2, 1)), [100, -7]), [100, -7])
    index.remove(index.rows_of([100]))
    assert index.next_id == 101
    np.testing.assert_array_equal(index.add(np.zeros((1, 1))), [101])
    np.testing.assert_array_equal(np.sort(index.ids), [-7, 0, 1, 3, 4, 101])
    np.testing.assert_array_equal(ExactIndex(np.zeros((1, 1)), [-9]).add([[0.0]]), [0])
    np.testing.assert_array_equal(ExactIndex(np.zeros((1, 1)), next_id=8).add([[0.0]]), [8])


def test_ids_may_take_all_64_bits_but_no_more() -> None:
    ends = np.array([-(2**63), 2**63 - 1])
    index = ExactIndex(np.array([[1.0], [2.0]]), ends)
    np.testing.assert_array_equal(index.search(np.zeros((1, 1)), 2)[1], [ends])
    np.testing.assert_array_equal(index.rows_of(ends), [0, 1])
    # The largest id does not keep others from being counted on from the rest.
    np.testing.assert_array_equal(index.add(np.zeros((1, 1))), [0])
    full = ExactIndex(np.zeros((1, 1)), np.array([2**62 - 1]))
    with pytest.raises(InvalidInputError, match="is used already"):
        full.add(np.zeros((1, 1)))
    with pytest.raises(InvalidInputError, match="at most"):
        index.add(np.zeros((1, 1)), np.array([2**63], np.uint64))
    np.testing.assert_array_equal(index.add(np.zeros((1, 1)), np.array([3], np.uint64)), [3])


def test_nothing_is_copied_before_the_first_change_and_nothing_written_after() -> None:
    vectors = np.random.default_rng(25).normal(size=(50, 4)).astype(np.float32)
    vectors.flags.writeable = False
    index = ExactIndex(vectors)
    assert index.vectors is vectors
    assert index._held.proposing is vectors
    index.remove([0])
    assert not np.shares_memory(index.vectors, vectors)
    assert index._held.proposing is index.vectors
    index.add(np.zeros((1, 4)))
    assert index._held.proposing is index.vectors
    assert index.vectors.dtype == np.float32


def test_room_grows_by_a_factor_so_that_few_additions_copy() -> None:
    index = ExactIndex(np.zeros((1, 2), np.float32))
    rooms: list[AnyArray | None] = []
    for number in range(2000):
        index.add(np.full((1, 2), number, np.float32))
        if not rooms or index.vectors.base is not rooms[-1]:
            rooms.append(index.vectors.base)
    assert len(rooms) < 25  # the logarithm of 2000 to the base 1.5 is 18.7
    np.testing.assert_array_equal(index.vectors[1:, 0], np.arange(2000))


@pytest.mark.parametrize("length", [1e3, 1e10, 1e25, 1e150])
@pytest.mark.parametrize("n_added", [1, 30, 150])
@pytest.mark.parametrize("start", [0.0, 1e-60, 1.0])
def test_vectors_added_far_outside_the_old_scale(length: float, n_added: int, start: float) -> None:
    rng = np.random.default_rng(26)
    vectors = rng.normal(size=(120, 3)) * start
    added = rng.normal(size=(n_added, 3)) * length
    index = BoundedIndex(vectors)
    index.add(added)
    queries = np.vstack([vectors[:10] * 1.1, added[:10] * 1.1, (vectors[:5] + added[:1]) / 2])
    points = dict(enumerate(np.vstack([vectors, added])))
    assert_holds(index, points, queries, 5)
    assert_holds(index, points, queries[::-1], 5)
    index.remove(np.arange(100))
    assert_holds(index, {i: v for i, v in points.items() if i >= 100}, queries, 5)


@pytest.mark.parametrize("length", [1e10, 1e18, 1e25, 1e37])
@pytest.mark.parametrize("n_added", [1, 80])
def test_float32_vectors_added_far_outside_the_old_scale(length: float, n_added: int) -> None:
    rng = np.random.default_rng(27)
    vectors = rng.normal(size=(90, 3)).astype(np.float32)
    added = (rng.normal(size=(n_added, 3)) * length).astype(np.float32)
    index = BoundedIndex(vectors)
    index.add(added)
    points = dict(enumerate(np.vstack([vectors, added])))
    queries = np.vstack([vectors[:25], added[:5] * np.float32(1.1)])
    assert_holds(index, points, queries, 5)
    assert_holds(index, points, queries[::-1], 40)  # more than are near: faiss runs out of them


def test_a_gallery_that_has_moved_away_is_centred_anew() -> None:
    rng = np.random.default_rng(28)
    index = BoundedIndex(rng.normal(size=(500, 16)))
    for _ in range(10):
        index.add(rng.normal(size=(50, 16)) + 1e4)
        index.remove(index.rows_of(np.sort(index.ids)[:50]))
    index.search(rng.normal(size=(30, 16)) + 1e4, 5)
    assert index.proposed == [5 + SPARE_CANDIDATES]  # certified at once


@pytest.mark.parametrize("n_at_a_time", [1, 10, 300])
def test_a_gallery_that_has_grown_elsewhere_is_centred_anew(n_at_a_time: int) -> None:
    rng = np.random.default_rng(32)
    index = BoundedIndex(rng.normal(size=(100, 16)))
    for _ in range(0, 300, n_at_a_time):
        index.add(rng.normal(size=(n_at_a_time, 16)) + 1e4)
    index.search(rng.normal(size=(30, 16)) + 1e4, 5)
    assert index.proposed == [5 + SPARE_CANDIDATES]


def test_a_copy_changes_apart_from_the_original() -> None:
    rng = np.random.default_rng(29)
    vectors = rng.normal(size=(60, 3))
    index = ExactIndex(vectors)
    index.add(rng.normal(size=(5, 3)))
    points = dict(enumerate(index.vectors.copy()))
    twin = copy.deepcopy(index)
    twin.remove([0, 1, 2])
    twin.add(np.zeros((3, 3)))
    assert_holds(index, points, vectors[:25], 4)
    twin_points = {i: v for i, v in points.items() if i > 2}
    assert_holds(twin, twin_points | dict.fromkeys((65, 66, 67), np.zeros(3)), vectors[:25], 4)


@pytest.mark.parametrize(
    ("vectors", "ids", "message"),
    [
        (np.zeros((1, 3)), None, r"shape \(n, 2\)"),
        (np.zeros(2), None, r"shape \(n, 2\)"),
        ([["a", "b"]], None, "numbers"),
        ([[0.0, np.nan]], None, "finite"),
        ([[0.0, np.inf]], None, "finite"),
        ([[0.0, 1e39]], None, "finite in float32"),
        (np.zeros((2, 2)), [7], "one integer for each of 2 points"),
        (np.zeros((2, 2)), [7, 7], "7 more than once"),
        (np.zeros((2, 2)), [77, 3], "Got 3, which the gallery holds already"),
        (np.zeros((2, 2)), [7.0, 8.0], "64-bit integers"),
        (np.zeros((2, 2)), [[7, 8]], "one dimension"),
    ],
)
def test_a_refused_addition_changes_nothing(
    vectors: AnyArray, ids: list[int] | None, message: str
) -> None:
    start = np.random.default_rng(30).normal(size=(40, 2)).astype(np.float32)
    index = ExactIndex(start)
    with pytest.raises(InvalidInputError, match=message):
        index.add(vectors, ids)
    assert index.next_id == 40
    assert_holds(index, dict(enumerate(start)), start[:25], 4)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([40], "lie in"),
        ([-1], "lie in"),
        ([3, 3], "more than once"),
        (list(range(40)), "At least one"),
        ([1.0], "rows must be 64-bit integers"),
    ],
)
def test_a_refused_removal_changes_nothing(rows: list[int], message: str) -> None:
    start = np.random.default_rng(31).normal(size=(40, 2))
    index = ExactIndex(start)
    with pytest.raises(InvalidInputError, match=message):
        index.remove(rows)
    assert_holds(index, dict(enumerate(start)), start[:25], 4)


def test_unknown_ids_are_named() -> None:
    index = ExactIndex(np.zeros((3, 2)))
    with pytest.raises(InvalidInputError, match=r"Got -1, 3, which it does not hold"):
        index.rows_of([0, -1, 3])
    index.remove([0])
    with pytest.raises(InvalidInputError, match=r"Got 0, 7, 8, 9, 10 and 1 more, which"):
        index.rows_of([2, 0, 7, 8, 9, 10, 11])


def test_a_next_id_in_use_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="next_id must be at least 3"):
        ExactIndex(np.zeros((3, 2)), next_id=2)


# Unit vectors.


@both_types
@pytest.mark.parametrize(
    "row", [[-3.0, -4.0], [-3.0, 0.0], [0.0, -1e-30], [-1e30, -1e30], [5.0, -12.0], [-2.0, 1.0]]
)
def test_a_unit_vector_points_where_its_vector_does(dtype: DTypeLike, row: list[float]) -> None:
    (unit,) = unit_vectors(np.array([row], dtype))
    assert unit.dtype == dtype
    length = math.hypot(*row)
    assert unit.tolist() == pytest.approx([entry / length for entry in row], rel=1e-6)


def test_a_zero_vector_among_others_is_named() -> None:
    with pytest.raises(InvalidInputError, match="Row 1 is a zero vector"):
        unit_vectors(np.array([[-1.0, -2.0], [0.0, 0.0], [3.0, 0.0]]))
