"""Protocols: nobody finds itself, the halves are halves, and T sees the gallery alone."""

import numpy as np
import pytest

from nearsure.errors import InvalidInputError
from nearsure.lab.protocols import (
    all_against_others,
    encode_labels,
    gallery_and_queries,
    gallery_half,
    given_gallery,
)

RNG = np.random.default_rng(0)
CODES = np.repeat(np.arange(5), [1, 2, 3, 6, 9])
VECTORS = (RNG.standard_normal((5, 4))[CODES] + RNG.standard_normal((21, 4))).astype(np.float32)


def naive_neighbors(
    queries: np.ndarray, gallery: np.ndarray, k: int, *, skip_self: bool
) -> list[list[int]]:
    rows = []
    for i, query in enumerate(queries):
        others = [j for j in range(len(gallery)) if not (skip_self and i == j)]
        rows.append(sorted(others, key=lambda j: float(((query - gallery[j]) ** 2).sum()))[:k])
    return rows


def test_all_against_others_searches_everyone_but_the_point_itself() -> None:
    found = all_against_others(VECTORS, CODES, k=4)
    expected = naive_neighbors(VECTORS, VECTORS, 4, skip_self=True)
    assert np.array_equal(np.asarray(found.queries.ids), expected)
    assert np.array_equal(found.queries.labels, CODES[expected])
    assert found.own is found.queries
    assert found.n_classes == 5
    # The class of one point is in the gallery, and yet never found: it is missed, not unknown.
    assert found.n_unknown_queries == 0


def test_an_exact_duplicate_is_still_a_neighbour() -> None:
    vectors = np.vstack([VECTORS, VECTORS[:1]])
    found = all_against_others(vectors, np.append(CODES, 0), k=2)
    assert np.asarray(found.queries.ids)[[0, 21], 0].tolist() == [21, 0]


def test_half_of_every_class_is_the_gallery() -> None:
    in_gallery = gallery_half(CODES, seed=3)
    assert np.bincount(CODES[in_gallery]).tolist() == [1, 1, 2, 3, 5]
    assert np.array_equal(in_gallery, gallery_half(CODES, seed=3))
    assert not np.array_equal(in_gallery, gallery_half(CODES, seed=4))


def test_every_point_is_as_likely_in_the_gallery() -> None:
    codes = np.repeat([0, 1], [4, 6])
    share = np.mean([gallery_half(codes, seed=seed) for seed in range(2000)], axis=0)
    np.testing.assert_allclose(share, 0.5, atol=0.05)


def test_gallery_and_queries_share_no_point() -> None:
    found = gallery_and_queries(VECTORS, CODES, k=3, seed=3)
    half = gallery_half(CODES, seed=3)
    gallery, queries = VECTORS[half], VECTORS[~half]
    assert np.array_equal(found.own_codes, CODES[half])
    assert np.array_equal(found.query_codes, CODES[~half])
    own, asked = np.asarray(found.own.ids), np.asarray(found.queries.ids)
    assert np.array_equal(own, naive_neighbors(gallery, gallery, 3, skip_self=True))
    assert np.array_equal(asked, naive_neighbors(queries, gallery, 3, skip_self=False))
    assert found.n_unknown_queries == 0


def test_given_gallery_counts_queries_of_unknown_classes() -> None:
    gallery_codes, query_codes = encode_labels(["b", "a", "b", "a"], ["a", "z", "b", "0"])
    assert gallery_codes.tolist() == [1, 0, 1, 0]
    assert query_codes.tolist() == [0, 2, 1, 2]
    found = given_gallery(VECTORS[:4], gallery_codes, VECTORS[4:8], query_codes, k=2)
    assert found.n_unknown_queries == 2
    assert found.n_classes == 2
    expected = naive_neighbors(VECTORS[4:8], VECTORS[:4], 2, skip_self=False)
    assert np.array_equal(np.asarray(found.queries.ids), expected)


def test_labels_of_different_kinds_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="of one kind"):
        encode_labels([1, 2], ["1", "2"])
    codes, same = encode_labels([5, 3, 5])
    assert codes.tolist() == same.tolist() == [1, 0, 1]


def test_more_neighbours_than_others_are_refused() -> None:
    with pytest.raises(InvalidInputError, match=r"k must lie in \[1, 20\].*Got 21"):
        all_against_others(VECTORS, CODES, k=21)
    with pytest.raises(InvalidInputError, match=r"k must lie in \[1, 11\].*Got 12"):
        gallery_and_queries(VECTORS, CODES, k=12, seed=0)
    with pytest.raises(InvalidInputError, match=r"k must lie in \[1, 3\].*Got 4"):
        given_gallery(VECTORS[:4], CODES[:4], VECTORS, CODES, k=4)


def test_a_gallery_without_a_class_of_two_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="two points or more"):
        gallery_and_queries(VECTORS, np.arange(21), k=2, seed=0)
