"""Answers of several galleries, merged."""

import numpy as np
import pytest

from nearsure.engines import Found
from nearsure.engines.hits import merge_found
from nearsure.errors import InvalidInputError


def found(rows: list[list[tuple[float, int]]], k: int, *, text: bool = False) -> Found:
    """Hits of each query, padded."""
    sq_distances = np.full((len(rows), k), np.inf)
    ids = np.full((len(rows), k), "" if text else -1, np.dtype("U9" if text else np.int64))
    for query, row in enumerate(rows):
        for place, (sq_distance, own_id) in enumerate(sorted(row)[:k]):
            sq_distances[query, place] = sq_distance
            ids[query, place] = str(own_id) if text else own_id
    counts = np.array([min(len(row), k) for row in rows])
    labels = np.where(ids == ("" if text else -1), -1, 10 * ids.astype(np.int64) if not text else 7)
    return Found(sq_distances, ids, counts, labels)


@pytest.mark.parametrize("n_parts", [1, 2, 5])
@pytest.mark.parametrize("k", [1, 4, 30])
def test_naive_merge(n_parts: int, k: int) -> None:
    """Many ties; parts of different length; fewer hits than k; also pair by pair."""
    rng = np.random.default_rng(0)
    parts, everything = [], [[] for _ in range(20)]  # type: ignore[var-annotated]
    for part in range(n_parts):
        rows = []
        for query in range(20):
            ids = part * 100 + rng.permutation(100)[: rng.integers(0, 7)]
            row = [(float(rng.integers(0, 4)), int(own)) for own in ids]
            rows.append(row)
            everything[query] += row
        parts.append(found(rows, max(k, 7)))
    expected = found(everything, k)
    one_by_one = parts[0]
    for part_found in parts[1:]:
        one_by_one = merge_found([part_found, one_by_one], k)
    for merged in (
        merge_found(parts, k),
        merge_found(parts[::-1], k),
        merge_found([one_by_one], k),
    ):
        np.testing.assert_array_equal(merged.sq_distances, expected.sq_distances)
        np.testing.assert_array_equal(merged.ids, expected.ids)
        np.testing.assert_array_equal(merged.counts, expected.counts)
        np.testing.assert_array_equal(merged.labels, expected.labels)


def test_text_ids_of_different_length() -> None:
    one = Found(np.array([[1.0]]), np.array([["b"]]), np.array([1]))
    other = Found(np.array([[1.0, np.inf]]), np.array([["aaaa", ""]]), np.array([1]))
    merged = merge_found([one, other], 3)
    assert merged.ids.tolist() == [["aaaa", "b", ""]]
    assert merged.counts.tolist() == [2]
    assert merged.labels is None


def test_padding_is_no_hit_however_near_it_looks() -> None:
    odd = Found(np.array([[2.0, 0.0]]), np.array([[5, 0]]), np.array([1]))
    merged = merge_found([odd, Found(np.array([[3.0]]), np.array([[6]]), np.array([1]))], 3)
    assert merged.ids.tolist() == [[5, 6, -1]]
    assert merged.sq_distances.tolist() == [[2.0, 3.0, np.inf]]


def test_what_cannot_be_merged() -> None:
    one = found([[(1.0, 1)]], 2)
    with pytest.raises(InvalidInputError, match="Got the id 1 in two of them"):
        merge_found([one, found([[(2.0, 1)]], 2)], 2)
    with pytest.raises(InvalidInputError, match="ids of all parts must be of one kind"):
        merge_found([one, found([[]], 2, text=True)], 2)
    with pytest.raises(InvalidInputError, match="labels of all parts must be of one kind"):
        merge_found([one, Found(one.sq_distances, one.ids + 5, one.counts)], 2)
