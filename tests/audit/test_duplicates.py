"""Near duplicates across classes: every pair checked one by one."""

import numpy as np
import pytest
from made_galleries import blobs, leave_one_out_neighbors, padded

from nearsure import Neighbors
from nearsure.audit import near_duplicates_across_classes
from nearsure.errors import InvalidInputError


@pytest.mark.parametrize("relative_threshold", [0.0, 0.01, 0.5, 2.0])
def test_pairs_are_those_of_a_search_through_all(relative_threshold: float) -> None:
    vectors, codes = blobs(n_classes=4, per_class=15, spread=1.5, seed=0)
    vectors[7] = vectors[50]
    vectors[20] = vectors[40] + 0.01
    vectors = vectors.astype(np.float32).astype(np.float64)
    neighbors = leave_one_out_neighbors(vectors, codes, len(codes) - 1)
    sq_distances = ((vectors[:, None] - vectors) ** 2).sum(axis=2)
    nearest = np.min(sq_distances + np.diag(np.full(len(codes), np.inf)), axis=1)
    threshold = relative_threshold * np.median(nearest)
    expected = sorted(
        (sq_distances[i, j], i, j)
        for i in range(len(codes))
        for j in range(i + 1, len(codes))
        if codes[i] != codes[j] and sq_distances[i, j] <= threshold
    )
    found = near_duplicates_across_classes(neighbors, codes, relative_threshold=relative_threshold)
    assert found.threshold == pytest.approx(threshold, rel=1e-6)
    assert found.ids.tolist() == [[i, j] for _, i, j in expected]
    np.testing.assert_allclose(found.sq_distances, [d for d, _, _ in expected], rtol=1e-6)
    np.testing.assert_array_equal(found.codes, codes[found.ids])
    assert len(found) >= 1


def test_planted_pairs_and_no_others() -> None:
    vectors, codes = blobs(n_classes=10, per_class=20, spread=0.3, seed=1)
    vectors[3] = vectors[100] + 0.001
    vectors[150] = vectors[60]
    vectors[5] = vectors[6]  # of one class: no contradiction
    found = near_duplicates_across_classes(leave_one_out_neighbors(vectors, codes, 10), codes)
    assert found.ids.tolist() == [[60, 150], [3, 100]]
    assert found.sq_distances[0] == 0


def test_a_pair_seen_from_one_side_only_is_found_once() -> None:
    neighbors = Neighbors([[1.0], [0.0], [4.0]], [[2], [0], [1]], ids=[[2], [0], [1]])
    found = near_duplicates_across_classes(neighbors, [0, 1, 2])
    assert found.ids.tolist() == [[0, 1]]


def test_two_roundings_of_one_distance_are_one_pair() -> None:
    neighbors = Neighbors([[2e-8], [1e-8], [1.0], [1.0], [1.0]], [[1], [0], [0], [2], [2]],
        ids=[[1], [0], [0], [4], [3]])  # fmt: skip
    found = near_duplicates_across_classes(neighbors, [0, 1, 2, 2, 2])
    assert found.ids.tolist() == [[0, 1]]
    assert found.sq_distances.tolist() == [1e-8]


def test_scale_does_not_matter() -> None:
    vectors, codes = blobs(n_classes=4, per_class=15, spread=1.5, seed=0)
    small = near_duplicates_across_classes(
        leave_one_out_neighbors(vectors, codes, 10), codes, relative_threshold=1.0
    )
    large = near_duplicates_across_classes(
        leave_one_out_neighbors(64 * vectors, codes, 10), codes, relative_threshold=1.0
    )
    assert len(small) > 3
    np.testing.assert_array_equal(small.ids, large.ids)


def test_own_ids_and_no_neighbours_at_all() -> None:
    neighbors = Neighbors([[0.0], [0.0]], [[1], [0]], ids=[["b"], ["a"]])
    found = near_duplicates_across_classes(neighbors, [0, 1], ids=["a", "b"])
    assert found.ids.tolist() == [["a", "b"]]
    rows = Neighbors([[0.0], [0.0]], [[1], [0]], ids=[[1], [0]])
    nobody = near_duplicates_across_classes(padded(rows, np.array([0, 0])), [0, 1])
    assert nobody.ids.shape == nobody.codes.shape == (0, 2)


@pytest.mark.parametrize("relative_threshold", [-1.0, np.inf, np.nan])
def test_threshold_must_be_finite(relative_threshold: float) -> None:
    neighbors = Neighbors([[0.0], [0.0]], [[1], [0]], ids=[[1], [0]])
    with pytest.raises(InvalidInputError, match="relative_threshold must be a finite number >= 0"):
        near_duplicates_across_classes(neighbors, [0, 1], relative_threshold=relative_threshold)
