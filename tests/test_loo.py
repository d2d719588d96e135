"""Leaving out a point, its group or its class, and what that costs the class."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import ArrayLike

from nearsure.arrays import AnyArray, FloatArray, IntArray
from nearsure.errors import InvalidInputError
from nearsure.index.exact import ExactIndex
from nearsure.loo import (
    DENSITY_POWER,
    LARGEST_FACTOR,
    leave_one_out,
    own_class_factors,
    search_leaving_one_out,
    thin_alike,
)
from nearsure.neighbors import Neighbors

# A support point is left out of its own neighbours by who it is, never by where it stands.


def found(
    sq_distances: ArrayLike,
    ids: ArrayLike,
    labels: ArrayLike | None = None,
    **more: Any,  # noqa: ANN401
) -> Neighbors:
    """A search result in which, by default, the label of a neighbour is ten times its id."""
    ids = np.asarray(ids)
    return Neighbors(
        np.asarray(sq_distances, np.float64),
        10 * ids if labels is None else np.asarray(labels),
        ids,
        **more,
    )


# By identity.


@pytest.mark.parametrize(
    ("own", "left"),
    [(4, [9, 2]), (9, [4, 2]), (2, [4, 9]), (7, [4, 9])],
    ids=["first", "behind its duplicate", "last", "absent"],
)
def test_the_point_itself_goes_and_its_duplicate_stays(own: int, left: list[int]) -> None:
    result = leave_one_out(found([[0.0, 0.0, 2.0]], [[4, 9, 2]]), [own])
    np.testing.assert_array_equal(result.ids, [left])
    np.testing.assert_array_equal(result.labels, [[10 * i for i in left]])
    np.testing.assert_array_equal(
        result.sq_distances, [[{4: 0.0, 9: 0.0, 2: 2.0}[i] for i in left]]
    )
    np.testing.assert_array_equal(result.counts, [2])


def test_a_gallery_of_nothing_but_duplicates_leaves_out_one_each() -> None:
    ids = np.tile(np.arange(5), (5, 1))
    result = leave_one_out(found(np.zeros((5, 5)), ids), np.arange(5))
    for own, row in enumerate(np.asarray(result.ids)):
        assert row.tolist() == [i for i in range(5) if i != own]


def test_ids_may_be_strings() -> None:
    neighbors = found([[0.0, 1.0]] * 2, [["a", "b"], ["b", "c"]], [[0, 1], [1, 2]])
    np.testing.assert_array_equal(leave_one_out(neighbors, ["b", "b"]).labels, [[0], [2]])


def test_ids_of_another_kind_can_leave_nothing_out_and_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="own_ids"):
        leave_one_out(found([[0.0, 1.0]], [[4, 9]]), ["4"])


def test_the_given_neighbours_are_not_changed() -> None:
    neighbors = found([[0.0, 0.0, 2.0]], [[4, 9, 2]])
    leave_one_out(neighbors, [9], groups=np.zeros(10))
    np.testing.assert_array_equal(neighbors.ids, [[4, 9, 2]])
    np.testing.assert_array_equal(neighbors.counts, [3])


# How many are left.


@pytest.mark.parametrize(
    ("n_neighbors", "left", "count"),
    [
        (None, [4, 2, 3], 3),
        (1, [4], 1),
        (2, [4, 2], 2),
        (4, [4, 2, 3, -1], 3),
        (9, [4, 2, 3, -1], 3),
    ],
)
def test_as_many_are_kept_as_are_wanted_and_left(
    n_neighbors: int | None, left: list[int], count: int
) -> None:
    neighbors = found([[0.0, 0.0, 2.0, 3.0]], [[4, 9, 2, 3]])
    result = leave_one_out(neighbors, [9], n_neighbors=n_neighbors)
    np.testing.assert_array_equal(result.ids, [left])
    np.testing.assert_array_equal(result.counts, [count])


def test_the_only_neighbour_may_be_the_point_itself() -> None:
    result = leave_one_out(found([[0.0], [0.0]], [[3], [4]]), [3, 5])
    np.testing.assert_array_equal(result.counts, [0, 1])
    np.testing.assert_array_equal(result.labels, [[-1], [40]])


def test_padding_stays_padding() -> None:
    neighbors = found(
        [[0.0, 1.0, 7.0], [0.0, 1.0, 7.0]], [[1, 2, 3], [1, 2, 3]], counts=np.array([2, 2])
    )
    result = leave_one_out(neighbors, [1, 3])  # the second finds its own id only in the padding
    np.testing.assert_array_equal(result.ids, [[2, -1], [1, 2]])
    np.testing.assert_array_equal(result.counts, [1, 2])


# Groups.


def test_the_whole_group_goes_with_the_point() -> None:
    groups = np.array(["burst", "x", "burst", "y", "burst", "z"])
    neighbors = found([[0.0, 0.0, 1.0, 2.0]] * 3, [[0, 2, 1, 4], [3, 0, 2, 4], [0, 2, 4, 2]])
    result = leave_one_out(neighbors, [0, 3, 4], groups=groups)
    np.testing.assert_array_equal(result.ids, [[1, -1, -1], [0, 2, 4], [-1, -1, -1]])
    np.testing.assert_array_equal(result.counts, [1, 3, 0])


def test_groups_of_one_change_nothing() -> None:
    rng = np.random.default_rng(0)
    ids = np.array([rng.permutation(30)[:8] for _ in range(30)])
    neighbors = found(np.sort(rng.random((30, 8)), axis=1), ids)
    alone = leave_one_out(neighbors, np.arange(30), groups=np.arange(30))
    np.testing.assert_array_equal(alone.ids, leave_one_out(neighbors, np.arange(30)).ids)


def test_unsigned_ids_in_the_padding_belong_to_no_group() -> None:
    ids = np.array([[1, 2, 2**40]], np.uint64)
    neighbors = found([[0.0, 1.0, 2.0]], ids, [[5, 6, 7]], counts=np.array([2]))
    result = leave_one_out(neighbors, np.array([1], np.uint64), groups=[0, 1, 2])
    np.testing.assert_array_equal(result.labels, [[6, -1]])


# Bad input.


def test_neighbours_without_ids_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="must have ids"):
        leave_one_out(Neighbors(np.zeros((1, 2)), np.zeros((1, 2), int)), [0])


@pytest.mark.parametrize("own_ids", [[1, 2], [[1]], 1, []])
def test_another_number_of_own_ids_is_refused(own_ids: ArrayLike) -> None:
    with pytest.raises(InvalidInputError, match="one id for each of the 1 points"):
        leave_one_out(found([[0.0, 1.0]], [[4, 9]]), own_ids)


@pytest.mark.parametrize("n_neighbors", [0, -1])
def test_keeping_less_than_one_neighbour_is_refused_by_name(n_neighbors: int) -> None:
    with pytest.raises(InvalidInputError, match="n_neighbors"):
        leave_one_out(found([[0.0, 1.0]], [[4, 9]]), [4], n_neighbors=n_neighbors)


def test_groups_of_fewer_points_than_the_support_set_are_refused_by_name() -> None:
    with pytest.raises(InvalidInputError, match="groups"):
        leave_one_out(found([[0.0, 1.0]], [[4, 9]]), [4], groups=[0, 1])


def test_an_own_id_beyond_the_groups_is_refused_by_name() -> None:
    # Approximate search may miss a point among its own neighbours.
    with pytest.raises(InvalidInputError, match="Got 3 groups for ids up to 3"):
        leave_one_out(found([[0.0, 1.0]], [[0, 2]]), [3], groups=[0, 1, 2])


# Search and leave out at once.


def brute_force(
    vectors: FloatArray, own_ids: IntArray, k: int, groups: AnyArray
) -> list[list[tuple[float, int]]]:
    """The k nearest of every point among those of another group, by distance and then by id."""
    rows = []
    for own in own_ids:
        others = [i for i in range(len(vectors)) if i != own and groups[i] != groups[own]]
        distances = [float(np.sum((vectors[i] - vectors[own]) ** 2)) for i in others]
        rows.append(sorted(zip(distances, others, strict=True))[:k])
    return rows


def assert_is_brute_force(
    result: Neighbors, expected: list[list[tuple[float, int]]], labels: IntArray
) -> None:
    assert result.counts.tolist() == [len(row) for row in expected]
    for row, pairs in enumerate(expected):
        ids = [i for _, i in pairs]
        np.testing.assert_array_equal(np.asarray(result.ids)[row, : len(pairs)], ids)
        np.testing.assert_array_equal(result.labels[row, : len(pairs)], labels[ids])
        np.testing.assert_array_equal(result.sq_distances[row, : len(pairs)], [d for d, _ in pairs])


GROUPINGS: dict[str, IntArray | None] = {
    "none": None,
    "singletons": np.arange(60),
    "pairs": np.arange(60) // 2,
    "growing": np.repeat(np.arange(11), [1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 14]),
    "a giant": np.where(np.arange(60) < 52, 0, np.arange(60)),
    "one for all": np.zeros(60, int),
}


@pytest.mark.parametrize("grouping", GROUPINGS)
@pytest.mark.parametrize("k", [1, 3, 10, 59, 60, 500])
def test_search_leaving_one_out_equals_brute_force(grouping: str, k: int) -> None:
    rng = np.random.default_rng(1)
    vectors = rng.integers(0, 4, (60, 2)).astype(np.float64)  # duplicates and ties abound
    labels, groups = rng.integers(0, 5, 60), GROUPINGS[grouping]
    own_ids = rng.permutation(60)[:40]
    result = search_leaving_one_out(
        ExactIndex(vectors), vectors[own_ids], own_ids, labels, k=k, groups=groups
    )
    assert result.k == min(k, 59)
    expected = brute_force(vectors, own_ids, k, np.arange(60) if groups is None else groups)
    assert_is_brute_force(result, expected, labels)


def test_a_giant_group_in_a_larger_set_is_searched_through() -> None:
    rng = np.random.default_rng(2)
    vectors = rng.integers(-50, 50, (1500, 3)).astype(np.float64)
    groups = np.where(rng.random(1500) < 0.9, 0, rng.integers(1, 40, 1500))
    labels, own_ids = rng.integers(0, 9, 1500), np.arange(0, 1500, 50)
    result = search_leaving_one_out(
        ExactIndex(vectors), vectors[own_ids], own_ids, labels, k=5, groups=groups
    )
    assert_is_brute_force(result, brute_force(vectors, own_ids, 5, groups), labels)


class RecordingIndex(ExactIndex):
    """An exact index that writes down how many queries it was asked, and for how many each."""

    def __init__(self, vectors: AnyArray) -> None:
        super().__init__(vectors)
        self.asked: list[tuple[int, int]] = []

    def search(self, queries: AnyArray, k: int) -> tuple[FloatArray, IntArray]:
        self.asked.append((len(queries), k))
        return super().search(queries, k)


def test_only_rows_that_lost_too_many_are_searched_again() -> None:
    rng = np.random.default_rng(3)
    vectors = rng.normal(size=(400, 2))
    groups = np.arange(400)
    vectors[:20], groups[:20] = vectors[0], 0  # a burst of twenty, all at one place
    index = RecordingIndex(vectors)
    search_leaving_one_out(index, vectors, np.arange(400), np.zeros(400, int), k=4, groups=groups)
    assert index.asked[0] == (400, 5)
    assert index.asked[1] == (20, 20)
    assert all(n_queries <= 20 < n_searched for n_queries, n_searched in index.asked[2:])


def test_without_groups_one_search_is_enough() -> None:
    index = RecordingIndex(np.zeros((50, 2)))  # every point has 49 duplicates
    result = search_leaving_one_out(index, index.vectors, np.arange(50), np.zeros(50, int), k=3)
    assert index.asked == [(50, 4)]
    assert result.is_full


def test_a_lone_support_point_has_nobody_to_be_compared_with() -> None:
    with pytest.raises(InvalidInputError, match=r"support"):
        search_leaving_one_out(
            ExactIndex(np.zeros((1, 2))), np.zeros((1, 2)), np.array([0]), np.array([0]), k=1
        )


# What leaving oneself out takes from one's class, and that the factor gives it back.


def in_loops(codes: IntArray, points: IntArray, groups: IntArray | None) -> list[float]:
    factors = []
    for point in points.tolist():
        fellows = [i for i in range(len(codes)) if codes[i] == codes[point]]
        left = [i for i in fellows if i != point and (groups is None or groups[i] != groups[point])]
        factors.append(min(len(fellows) / len(left), LARGEST_FACTOR) if left else 1.0)
    return factors


@settings(deadline=None, max_examples=80)
@given(data=st.data())
def test_it_is_the_share_that_is_left(data: st.DataObject) -> None:
    n = data.draw(st.integers(1, 25))
    codes = np.array(data.draw(st.lists(st.integers(0, 4), min_size=n, max_size=n)))
    groups = np.array(data.draw(st.lists(st.integers(-2, 3), min_size=n, max_size=n)))
    points = np.array(data.draw(st.lists(st.integers(0, n - 1), min_size=1, max_size=9)))
    for own in (None, groups):
        factors = own_class_factors(codes, points, own)
        np.testing.assert_allclose(factors, in_loops(codes, points, own), rtol=1e-15)
        assert (factors >= 1).all()


def test_a_group_takes_its_members_of_the_own_class_alone() -> None:
    codes = np.array([0, 0, 0, 0, 1, 1, 1])
    groups = np.array([5, 5, 6, 7, 5, 5, 8])
    factors = own_class_factors(codes, np.arange(7), groups)
    np.testing.assert_allclose(factors, [3 / 2, 3 / 2, 4 / 3, 4 / 3, 3 / 2, 3 / 2, 3 / 2])


def test_nobody_left_is_nothing_to_correct() -> None:
    assert own_class_factors(np.array([0, 1, 1]), np.arange(3), np.array([0, 4, 4])).tolist() == [
        1.0,
        1.0,
        1.0,
    ]


def sums_of_kernels(asked: FloatArray, members: FloatArray) -> FloatArray:
    """What each asked point finds of its class, shapes (n_classes, n, 3) and (n_classes, m, 3)."""
    sq_distances = np.square(asked[:, :, None] - members[:, None]).sum(axis=3)
    return np.asarray(np.exp(-sq_distances / 2.0))


@pytest.mark.parametrize(("size", "in_pairs"), [(3, False), (8, False), (8, True)])
def test_corrected_sums_are_what_a_query_finds_on_average(
    size: int,
    in_pairs: bool,  # noqa: FBT001
) -> None:
    """2000 Gaussian classes of few members; all within chance.

    The first two members may be a group, which leaves both out.
    """
    n_classes = 2000
    rng = np.random.default_rng(size)
    members, queries = rng.normal(size=(n_classes, size, 3)), rng.normal(size=(n_classes, 4, 3))
    codes = np.repeat(np.arange(n_classes), size)
    places = np.tile(np.arange(size), n_classes)
    groups = np.where(places < 2, 0, places) if in_pairs else places
    factors = own_class_factors(codes, np.arange(len(codes)), groups).reshape(n_classes, size)
    stays = groups[:size, None] != groups[:size]
    left_out = (sums_of_kernels(members, members) * stays).sum(axis=2)
    of_queries = sums_of_kernels(queries, members).sum(axis=2).mean(axis=1)

    def standard_errors_apart(own: FloatArray) -> float:
        by_class = own.mean(axis=1) - of_queries
        return float(by_class.mean() / (by_class.std(ddof=1) / np.sqrt(n_classes)))

    assert abs(standard_errors_apart(left_out * factors)) < 3.5
    assert standard_errors_apart(left_out) < -5  # without the factor it is seen to be too small


# Other classes lose as large a share as leaving a point out took from its own.


def thinned(
    labels: ArrayLike, size: int, *, n_rows: int = 4000, left: int | None = None, seed: int = 0
) -> tuple[Neighbors, Neighbors]:
    """The same neighbours of many points of class 0, as they were and thinned."""
    labels = np.tile(np.asarray(labels), (n_rows, 1))
    distances = np.tile(np.arange(1.0, labels.shape[1] + 1), (n_rows, 1))
    found = Neighbors(distances, labels, np.tile(np.arange(labels.shape[1]), (n_rows, 1)))
    codes, sizes = np.zeros(n_rows, np.int64), np.array([size, 3, 6])
    rest = np.full(n_rows, size - 1 if left is None else left)
    return found, thin_alike(found, codes, sizes, rest, np.random.default_rng(seed))


def count_kept(thin: Neighbors, neighbor: int) -> int:
    return int(((np.asarray(thin.ids) == neighbor) & thin.valid).sum())


def test_each_other_class_loses_the_same_share_and_the_own_nothing() -> None:
    """Of three, one is lost: so a class of three loses one, and one of six two."""
    labels = [0, 1, 2, 2, 1, 0, 2, 2, 1, 2, 2]
    _, thin = thinned(labels, size=3)
    kept = [((thin.labels == code) & thin.valid).sum(axis=1) for code in range(3)]
    assert [np.unique(each).tolist() for each in kept] == [[2], [2], [4]]
    # Every member is as likely to be lost as every other.
    for neighbor, code in enumerate(labels):
        if code:
            assert count_kept(thin, neighbor) / 4000 == pytest.approx(2 / 3, abs=4 * 0.0075)


def test_members_that_are_not_among_the_neighbours_may_be_the_lost_ones() -> None:
    """One of a class's three members is listed, and lost in a third of the draws."""
    _, thin = thinned([0, 1, 0, 2], size=3)
    assert count_kept(thin, 1) / 4000 == pytest.approx(2 / 3, abs=4 * 0.0075)
    assert count_kept(thin, 3) / 4000 == pytest.approx(2 / 3, abs=4 * 0.0075)


def test_a_share_that_is_no_whole_number_of_members_is_rounded_by_chance() -> None:
    """Half of a class of three: one or two."""
    _, thin = thinned([1, 1, 0, 1], size=2)
    kept = ((thin.labels == 1) & thin.valid).sum(axis=1)
    assert np.unique(kept).tolist() == [1, 2]
    assert kept.mean() == pytest.approx(1.5, abs=4 * 0.5 / np.sqrt(4000))


def test_distances_are_those_of_a_fuller_gallery() -> None:
    found, thin = thinned([1, 1, 0, 1], size=2, n_rows=5)
    expected = np.take_along_axis(found.sq_distances, np.asarray(thin.ids), axis=1) / 2**0.3
    np.testing.assert_allclose(thin.sq_distances[thin.valid], expected[thin.valid], rtol=1e-14)
    assert DENSITY_POWER == 0.3


def test_a_class_of_one_has_no_query_and_a_class_of_one_group_has_missed() -> None:
    _, alone = thinned([1, 2, 1], size=1)
    assert not alone.counts.any()
    found, grouped = thinned([1, 2, 1], size=4, left=0)
    np.testing.assert_array_equal(grouped.sq_distances, found.sq_distances)
    np.testing.assert_array_equal(grouped.labels, found.labels)


@pytest.mark.parametrize("size", [2, 3])
def test_a_thinned_point_is_right_as_often_as_a_query_of_a_poorer_gallery(size: int) -> None:
    """300 Gaussian classes, the nearest neighbour's: within chance; and not without thinning."""
    rng = np.random.default_rng(size)
    codes = np.repeat(np.arange(300), size)
    apart = []
    for _ in range(8):
        centres = rng.normal(size=(300, 6))
        members, queries = (centres[codes] + 0.6 * rng.normal(size=(len(codes), 6)) for _ in "ab")
        index = ExactIndex(members)
        own = search_leaving_one_out(index, members, np.arange(len(codes)), codes, k=40)
        left = np.full(len(codes), size - 1)
        thin = thin_alike(own, codes, np.full(300, size), left, rng)
        poorer = np.arange(len(codes)) % size > 0
        _, nearest = ExactIndex(members[poorer]).search(queries, 1)
        asked = codes[poorer][nearest[:, 0]] == codes
        rights = [found.labels[:, 0] == codes for found in (thin, own)]
        apart.append([right.mean() - asked.mean() for right in rights])
    mean, error = np.mean(apart, axis=0), np.std(apart, axis=0, ddof=1) / np.sqrt(8)
    assert abs(mean[0]) < 4 * error[0]
    assert mean[1] < -4 * error[1]
