"""Clean galleries: a damaged query never meets its own clean image, and the rows that are asked."""

import numpy as np
import pytest

from nearsure.arrays import FloatArray, IntArray
from nearsure.lab.protocols import all_against_others, gallery_and_queries, gallery_half
from nearsure.lab.robust.model import NOWHERE, FrozenSupport, damaged_rows, frozen_supports
from nearsure.neighbors import Neighbors

K, N, SEED = 6, 40, 3
CODES = np.repeat(np.arange(5), 8)


def vectors(seed: int = 0, n: int = N) -> FloatArray:
    drawn = np.random.default_rng(seed).standard_normal((n, 4))
    unit: FloatArray = drawn / np.linalg.norm(drawn, axis=1, keepdims=True)
    return unit


def supports() -> dict[str, FrozenSupport]:
    found = frozen_supports(vectors(), CODES, None, seed=SEED)
    assert list(found) == ["all_against_others", "gallery_and_queries"]
    return {str(name): support for name, support in found.items()}


def nearest(
    queries: FloatArray, gallery: FloatArray, left_out: list[int | None], k: int = K
) -> tuple[FloatArray, IntArray]:
    """One query at a time, by sorting all distances."""
    distances, ids = [], []
    for query, own in zip(queries, left_out, strict=True):
        sq = [float(np.square(query - point).sum()) for point in gallery]
        order = sorted((i for i in range(len(gallery)) if i != own), key=lambda i: sq[i])[:k]
        ids.append(order)
        distances.append([sq[i] for i in order])
    return np.array(distances), np.array(ids)


def assert_found(found: Neighbors, expected: tuple[FloatArray, IntArray], codes: IntArray) -> None:
    np.testing.assert_allclose(found.sq_distances, expected[0], rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(found.ids, expected[1])
    np.testing.assert_array_equal(found.labels, codes[expected[1]])


@pytest.mark.parametrize("damage", [0.0, 1e-3, 0.3])
def test_a_damaged_query_never_finds_its_own_clean_image(damage: float) -> None:
    rows = np.array([7, 0, 39, 12, 7])
    damaged = vectors()[rows] + damage * vectors(1, len(rows))
    found = supports()["all_against_others"].neighbors(damaged, rows, K)
    assert not (np.asarray(found.ids) == rows[:, None]).any()
    assert_found(found, nearest(damaged, vectors(), rows.tolist()), CODES)


def test_a_twin_of_the_query_is_found_though_the_query_is_not() -> None:
    twins = vectors()
    twins[20] = twins[4]
    found = frozen_supports(twins, CODES, None, seed=SEED)["all_against_others"].neighbors(
        twins[[4, 20]], np.array([4, 20]), K
    )
    assert np.asarray(found.ids)[:, 0].tolist() == [20, 4]
    assert found.sq_distances[:, 0].tolist() == [0, 0]


def test_the_strict_gallery_is_half_of_every_class_and_holds_no_query() -> None:
    support = supports()["gallery_and_queries"]
    half = np.flatnonzero(gallery_half(CODES, seed=SEED))
    np.testing.assert_array_equal(support.vectors, vectors()[half])
    np.testing.assert_array_equal(support.codes, CODES[half])
    asked = np.flatnonzero(support.may_ask(np.arange(N)))
    assert sorted([*half, *asked]) == list(range(N))
    for row in asked:
        assert not (support.vectors == vectors()[row]).all(axis=1).any()
    damaged = vectors()[asked] + 0.1 * vectors(1, len(asked))
    found = support.neighbors(damaged, asked, K)
    expected = nearest(damaged, vectors()[half], [None] * len(asked))
    assert_found(found, expected, CODES[half])


def test_rows_of_the_strict_gallery_would_not_find_themselves_either() -> None:
    """Nobody asks about them, but if somebody did."""
    support = supports()["gallery_and_queries"]
    half = np.flatnonzero(gallery_half(CODES, seed=SEED))
    places = {int(row): place for place, row in enumerate(half)}
    rows = np.arange(N)
    found = support.neighbors(vectors(), rows, K)
    expected = nearest(vectors(), vectors()[half], [places.get(row) for row in range(N)])
    assert_found(found, expected, CODES[half])


def test_undamaged_they_are_the_protocols_of_the_clean_evaluation() -> None:
    found, rows = supports(), np.arange(N)
    for support in found.values():
        asked = rows[support.may_ask(rows)]
        clean = (
            all_against_others(vectors(), CODES, k=K)
            if support.protocol == "all_against_others"
            else gallery_and_queries(vectors(), CODES, k=K, seed=SEED)
        )
        own, queries = support.own_neighbors(K), support.neighbors(vectors()[asked], asked, K)
        np.testing.assert_array_equal(own.ids, clean.own.ids)
        np.testing.assert_allclose(own.sq_distances, clean.own.sq_distances)
        np.testing.assert_array_equal(queries.labels, clean.queries.labels)
        np.testing.assert_allclose(queries.sq_distances, clean.queries.sq_distances)
        np.testing.assert_array_equal(support.query_codes[asked], clean.query_codes)


def test_a_given_gallery_is_searched_as_a_whole_and_may_lack_classes() -> None:
    gallery, gallery_codes = vectors(5, 15), np.repeat(np.arange(3), 5)
    unknown = np.minimum(CODES, 3)
    found = frozen_supports(vectors(), unknown, (gallery, gallery_codes), seed=SEED)
    (support,) = found.values()
    assert list(found) == ["given_gallery"]
    rows = np.array([39, 3, 17])
    assert support.may_ask(np.arange(N)).all()
    assert (support.gallery_rows == NOWHERE).all()
    neighbors = support.neighbors(vectors()[rows], rows, 15)
    assert_found(neighbors, nearest(vectors()[rows], gallery, [None] * 3, k=15), gallery_codes)
    assert not (neighbors.labels == 3).any()
    assert len(np.unique(damaged_rows(support, 40, seed=0))) == N


def test_fewer_damaged_rows_are_the_first_of_more() -> None:
    support = supports()["gallery_and_queries"]
    whole = damaged_rows(support, None, seed=1)
    assert sorted(whole) == list(range(N))
    for n in (1, 7, 20, 21, N):
        np.testing.assert_array_equal(damaged_rows(support, n, seed=1), whole[:n])
    assert not np.array_equal(whole, damaged_rows(support, None, seed=2))
    assert not np.array_equal(whole, np.sort(whole))


def test_rows_that_the_strict_protocol_asks_about_come_first() -> None:
    support = supports()["gallery_and_queries"]
    asked = support.may_ask(damaged_rows(support, None, seed=1))
    n_asked = int(asked.sum())
    assert n_asked == 20
    assert asked[:n_asked].all()
    # Chance, not the order of the classes, decides among them.
    first = damaged_rows(support, 10, seed=1)
    assert len(np.unique(CODES[first])) >= 3
