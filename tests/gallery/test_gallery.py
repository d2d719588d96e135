"""A gallery after any changes against one made anew of the same points, bit for bit."""

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from memory_galleries import ListGallery, memory_gallery

from nearsure.arrays import AnyArray, IntArray
from nearsure.engines.embedded.exact import MemoryEngine
from nearsure.errors import InvalidInputError
from nearsure.gallery import Gallery
from nearsure.gallery import gallery as gallery_module
from nearsure.neighbors import Neighbors

N_CLASSES, N_GROUPS = 4, 6


class Mirror:
    """A gallery beside plain dictionaries that go through the same changes."""

    def __init__(self, rng: np.random.Generator, n: int, *, grouped: bool, dtype: type) -> None:
        self.rng, self.grouped, self.dtype = rng, grouped, dtype
        vectors, codes, groups = self._draw(n)
        self.gallery = memory_gallery(vectors, codes, groups, classes=np.arange(N_CLASSES))
        self.vectors: dict[int, AnyArray] = dict(enumerate(vectors))
        self.codes: dict[int, int] = dict(enumerate(codes.tolist()))
        self.groups: dict[int, int] = dict(enumerate([] if groups is None else groups.tolist()))

    def _draw(self, n: int) -> tuple[AnyArray, IntArray, IntArray | None]:
        # On a small grid, where duplicates and ties abound.
        vectors: AnyArray = self.rng.integers(-2, 3, (n, 2)).astype(self.dtype)
        groups = self.rng.integers(0, N_GROUPS, n) if self.grouped else None
        return vectors, self.rng.integers(0, N_CLASSES, n), groups

    def _choose(self, n: int) -> IntArray:
        ids = np.array(list(self.vectors))
        return self.rng.choice(ids, min(n, len(ids) - 1), replace=False)

    def add(self, n: int, *, own_ids: bool = False) -> None:
        vectors, codes, groups = self._draw(n)
        unused = [i for i in range(-200, 200) if i not in self.vectors]
        ids = self.rng.choice(unused, n, replace=False) if own_ids else None
        new = self.gallery.add(vectors, codes, groups, ids)
        if ids is not None:
            np.testing.assert_array_equal(new, ids)
        assert not set(new.tolist()) & set(self.vectors)
        self.vectors |= dict(zip(new.tolist(), vectors, strict=True))
        self.codes |= dict(zip(new.tolist(), codes.tolist(), strict=True))
        if groups is not None:
            self.groups |= dict(zip(new.tolist(), groups.tolist(), strict=True))

    def remove(self, n: int) -> None:
        ids = self._choose(n)
        self.gallery.remove(ids, allow_empty_class=True)
        for kept in (self.vectors, self.codes, self.groups):
            for own in ids.tolist():
                kept.pop(own, None)

    def relabel(self, n: int) -> None:
        ids, codes = self._choose(n), self.rng.integers(0, N_CLASSES, n)[: len(self.vectors) - 1]
        self.gallery.relabel(ids, codes, allow_empty_class=True)
        self.codes |= dict(zip(ids.tolist(), codes.tolist(), strict=True))

    def made_anew(self) -> tuple[ListGallery, IntArray]:
        """A gallery of the same points in the order of their ids, and the ids."""
        ids = np.array(sorted(self.vectors))
        groups = [self.groups[i] for i in ids.tolist()] if self.grouped else None
        vectors = np.stack([self.vectors[i] for i in ids.tolist()])
        codes = [self.codes[i] for i in ids.tolist()]
        return memory_gallery(vectors, codes, groups, classes=np.arange(N_CLASSES)), ids

    def assert_same_answers(self, k: int) -> None:
        anew, ids = self.made_anew()
        queries = self.rng.integers(-3, 4, (25, 2)) / 2
        for asked in (queries, queries[:2], queries[:1]):
            found = self.gallery.search(asked, min(k, len(ids)))
            assert_same(found, anew.search(asked, min(k, len(ids))), ids)
        if len(ids) > 1:
            own = self.rng.permutation(len(ids))[:20]
            found = self.gallery.leave_one_out(ids[own], k)
            assert_same(found, anew.leave_one_out(own, k), ids)
            everyone = self.gallery.leave_one_out(None, k)
            rows = np.searchsorted(ids, self.gallery.ids)
            assert_same(everyone, anew.leave_one_out(rows, k), ids)
        np.testing.assert_array_equal(self.gallery.codes_of(ids), anew.codes)
        counts = np.bincount(anew.codes, minlength=len(self.gallery.class_counts))
        np.testing.assert_array_equal(self.gallery.class_counts, counts)


def assert_same(ours: Neighbors, anew: Neighbors, ids: IntArray) -> None:
    """The same neighbours, whose ids in the one are places in `ids` in the other."""
    valid = anew.valid
    np.testing.assert_array_equal(ours.counts, anew.counts)
    np.testing.assert_array_equal(ours.sq_distances, anew.sq_distances)
    np.testing.assert_array_equal(ours.labels, anew.labels)
    np.testing.assert_array_equal(np.asarray(ours.ids)[valid], ids[np.asarray(anew.ids)[valid]])


def vectors_of(gallery: Gallery) -> AnyArray:
    """The vectors of all points, in the order of their ids."""
    return np.asarray(gallery.engine.fetch(gallery.ids).vectors)


def contents(gallery: Gallery) -> dict[str, Any]:
    """Everything that a gallery tells, for comparison."""
    vectors = vectors_of(gallery)
    found = gallery.search(vectors[:5] + 0.25, min(3, len(gallery)))
    groups = gallery.groups
    return {
        "points": list(
            zip(gallery.ids.tolist(), vectors.tolist(), gallery.codes.tolist(), strict=True)
        ),
        "groups": None if groups is None else groups.tolist(),
        "classes": gallery.classes.tolist(),
        "counts": gallery.class_counts.tolist(),
        "next_id": gallery.next_id,
        "n_changes": gallery.n_changes,
        "found": (found.sq_distances.tolist(), np.asarray(found.ids).tolist()),
        "labels": found.labels.tolist(),
    }


# The same answers as a gallery made anew.


change = st.tuples(st.sampled_from(["add", "add own ids", "remove", "relabel"]), st.integers(1, 30))


@settings(max_examples=60, deadline=None)
@given(
    changes=st.lists(change, max_size=8),
    n=st.integers(1, 60),
    k=st.integers(1, 8),
    seed=st.integers(0, 2**32 - 1),
    grouped=st.booleans(),
    dtype=st.sampled_from([np.float32, np.float64]),
)
def test_any_changes_lead_to_the_answers_of_a_gallery_made_anew(
    changes: list[tuple[str, int]], n: int, k: int, seed: int, *, grouped: bool, dtype: type
) -> None:
    mirror = Mirror(np.random.default_rng(seed), n, grouped=grouped, dtype=dtype)
    for kind, size in changes:
        if kind.startswith("add"):
            mirror.add(size, own_ids=kind == "add own ids")
        elif kind == "remove":
            mirror.remove(size)
        else:
            mirror.relabel(size)
    mirror.assert_same_answers(k)


@pytest.mark.parametrize("grouped", [True, False])
def test_a_long_life_of_a_larger_gallery(*, grouped: bool) -> None:
    mirror = Mirror(np.random.default_rng(0), 150, grouped=grouped, dtype=np.float32)
    for _ in range(12):
        mirror.add(int(mirror.rng.integers(1, 60)))
        mirror.remove(int(mirror.rng.integers(1, 60)))
        mirror.relabel(10)
        mirror.add(7, own_ids=True)
        mirror.assert_same_answers(5)


def test_a_real_valued_gallery_with_duplicates() -> None:
    rng = np.random.default_rng(1)
    vectors = rng.normal(size=(400, 24))
    vectors[100:200] = vectors[:100]
    codes = rng.integers(0, 9, 400)
    gallery = memory_gallery(vectors[:250], codes[:250])
    gallery.add(vectors[250:], codes[250:])
    gone = rng.permutation(400)[:120]
    gallery.remove(gone)
    left = np.setdiff1d(np.arange(400), gone)
    anew = memory_gallery(vectors[left], codes[left])
    for queries in (rng.normal(size=(40, 24)), vectors[:1]):
        assert_same(gallery.search(queries, 10), anew.search(queries, 10), left)
    own = np.arange(0, len(left), 3)
    assert_same(gallery.leave_one_out(left[own], 10), anew.leave_one_out(own, 10), left)


def test_the_ids_of_the_user_come_back_even_where_they_look_like_padding() -> None:
    ids = [2**63 - 1, -1, -(2**63)]
    gallery = memory_gallery([[0.0], [1.0], [2.0]], [0, 1, 2], groups=[0, 1, 1], ids=ids)
    np.testing.assert_array_equal(gallery.search(np.zeros((1, 1)), 3).ids, [ids])
    left = gallery.leave_one_out([-1, 2**63 - 1], 2)
    np.testing.assert_array_equal(left.counts, [1, 2])
    np.testing.assert_array_equal(left.ids, [[2**63 - 1, -1], [-1, -(2**63)]])
    np.testing.assert_array_equal(left.labels, [[0, -1], [1, 2]])
    gallery.remove([-1], allow_empty_class=True)
    assert sorted(gallery.ids.tolist()) == [-(2**63), 2**63 - 1]


def test_groups_follow_their_points() -> None:
    gallery = memory_gallery([[0.0], [1.0], [2.0], [9.0]], [0, 1, 2, 3], groups=[5, 6, 7, 5])
    gallery.remove([1], allow_empty_class=True)
    # The last point, of the group of the first, has moved into its place.
    gallery.add(np.array([[3.0]]), np.array([1]), groups=np.array([7]))
    np.testing.assert_array_equal(gallery.leave_one_out([0], 4).ids, [[2, 4, -1]])
    np.testing.assert_array_equal(gallery.leave_one_out([4], 3).ids, [[0, 3, -1]])


def test_what_is_handed_out_is_not_changed_later_and_cannot_change_the_gallery() -> None:
    codes = np.array([0, 1, 1])
    gallery = memory_gallery(np.eye(3), codes)
    ids_before, codes_before = gallery.ids, gallery.codes
    gallery.relabel([1], [0])
    gallery.remove([0])
    np.testing.assert_array_equal(codes, [0, 1, 1])
    np.testing.assert_array_equal(codes_before, [0, 1, 1])
    np.testing.assert_array_equal(ids_before, [0, 1, 2])
    engine = gallery.engine
    assert isinstance(engine, MemoryEngine)
    assert not np.asarray(engine.points().vectors).flags.writeable
    codes[:] = 7
    gallery.codes[:] = 7
    np.testing.assert_array_equal(gallery.codes_of([1, 2]), [0, 1])


def test_a_copy_changes_apart_from_the_original() -> None:
    gallery = memory_gallery(np.eye(4), [0, 0, 1, 1], groups=[0, 1, 2, 3])
    gallery.add(np.ones((1, 4)), [1], [4])
    gallery.relabel([0], [1])
    before = contents(gallery)
    twin = copy.deepcopy(gallery)
    assert contents(twin) == before
    twin.relabel([0, 2], [2, 2])
    np.testing.assert_array_equal(twin.search(np.eye(4)[[0, 2]], 1).labels, [[2], [2]])
    twin.remove([3])
    twin.add(np.zeros((1, 4)), [1], [4])
    np.testing.assert_array_equal(twin.codes_of([0, 1, 2, 4, 5]), [2, 0, 2, 1, 1])
    assert contents(gallery) == before


def test_adding_and_removing_nothing_is_allowed() -> None:
    gallery = memory_gallery(np.eye(3), [0, 1, 1])
    before = contents(gallery)
    assert gallery.add(np.empty((0, 3)), []).shape == (0,)
    gallery.remove([])
    gallery.relabel([], [])
    assert contents(gallery) == before


# Classes.


def test_a_class_keeps_its_last_point_unless_it_may_be_emptied() -> None:
    gallery = memory_gallery(np.eye(4), [0, 1, 1, 5])
    with pytest.raises(InvalidInputError, match="the last of class codes 5"):
        gallery.remove([3])
    with pytest.raises(InvalidInputError, match="allow_empty_class=True"):
        gallery.relabel([0], [1])
    with pytest.raises(InvalidInputError, match="the last of class codes 1"):
        gallery.remove([1, 2])
    np.testing.assert_array_equal(gallery.class_counts, [1, 2, 0, 0, 0, 1])
    gallery.remove([3], allow_empty_class=True)
    np.testing.assert_array_equal(gallery.class_counts, [1, 2, 0, 0, 0, 0])
    gallery.relabel([0], [7], allow_empty_class=True)
    np.testing.assert_array_equal(gallery.classes, [0, 1, 2, 3, 4, 5, 7])
    np.testing.assert_array_equal(gallery.class_counts, [0, 2, 0, 0, 0, 0, 1])
    gallery.add([[0.0, 0.0, 0.0, 0.0]], [5])
    np.testing.assert_array_equal(gallery.class_counts, [0, 2, 0, 0, 0, 1, 1])


def test_counts_that_a_caller_holds_cannot_be_overwritten() -> None:
    gallery = memory_gallery(np.eye(4), [0, 1, 1, 5])
    with pytest.raises(ValueError, match="read-only"):
        gallery.class_counts[0] = 77
    np.testing.assert_array_equal(gallery.class_counts, [1, 2, 0, 0, 0, 1])


def test_two_points_may_swap_their_classes() -> None:
    gallery = memory_gallery(np.eye(2), [0, 1])
    gallery.relabel([1, 0], [0, 1])
    np.testing.assert_array_equal(gallery.codes_of([0, 1]), [1, 0])
    np.testing.assert_array_equal(gallery.class_counts, [1, 1])


# How much has changed.


def test_each_changed_point_counts_once() -> None:
    gallery = memory_gallery(np.eye(4), [0, 0, 1, 1])
    start = gallery.n_changes
    assert gallery.share_changed(start) == 0.0
    added = gallery.add(np.ones((4, 4)), [0, 0, 1, 1])
    assert gallery.share_changed(start) == 4 / 8
    mark = gallery.n_changes
    gallery.relabel([added[0], 0], [1, 1])
    gallery.relabel([added[0]], [0])
    assert gallery.share_changed(start) == 5 / 8
    assert gallery.share_changed(mark) == 2 / 8
    gallery.remove([0, 1], allow_empty_class=True)
    assert gallery.share_changed(start) == 6 / 6  # points that are gone count as well
    assert gallery.share_changed(mark) == 3 / 6
    assert gallery.share_changed(gallery.n_changes) == 0.0


def test_a_point_that_has_its_code_already_is_not_changed() -> None:
    gallery = memory_gallery(np.eye(4), [0, 0, 1, 1])
    gallery.relabel([0, 1, 2, 3], [0, 1, 1, 1])
    assert gallery.share_changed(0) == 1 / 4


# Refused calls change nothing.


ONE = np.zeros((1, 2))
TWO = np.zeros((2, 2))
REFUSED: list[tuple[Callable[[ListGallery], object], str]] = [
    (lambda g: g.add(np.zeros((1, 3)), [0], [0]), r"shape \(n, 2\)"),
    (lambda g: g.add([[np.nan, 0.0]], [0], [0]), "finite"),
    (lambda g: g.add([[0.0, -np.inf]], [0], [0]), "finite"),
    (lambda g: g.add(ONE, [0]), "groups must be given"),
    (lambda g: g.add(TWO, [0, 0], [0, 0], [50]), "ids must be one for each of the 2"),
    (lambda g: g.add(TWO, [0, 0], [0, 0], [50, 50]), "50 more than once"),
    (lambda g: g.add(TWO, [0, 9], [0, 0], [50, 2]), "Got 2, which the gallery holds already"),
    (lambda g: g.remove([1, 99]), "Got 99, which it does not hold"),
    (lambda g: g.remove([1, 1]), "1 more than once"),
    (lambda g: g.remove(1), "one dimension"),
    (lambda g: g.remove([0, 1, 2, 3]), "Every class"),
    (lambda g: g.remove(g.ids, allow_empty_class=True), "At least one point"),
    (lambda g: g.relabel([1, 99], [0, 0]), "Got 99, which it does not hold"),
    (lambda g: g.relabel([1, 1], [0, 0]), "1 more than once"),
    (lambda g: g.relabel([0, 1, 2], [4, 4, 4]), "Every class"),
    (lambda g: g.codes_of([99]), "Got 99, which it does not hold"),
    (lambda g: g.leave_one_out([99], 2), "Got 99, which it does not hold"),
    (lambda g: g.search(np.zeros((1, 3)), 1), r"shape \(n, 2\)"),
]


@pytest.mark.parametrize("changed_before", [True, False])
@pytest.mark.parametrize(("call", "message"), REFUSED)
def test_a_refused_call_changes_nothing(
    call: Callable[[ListGallery], object], message: str, *, changed_before: bool
) -> None:
    rng = np.random.default_rng(2)
    gallery = memory_gallery(rng.normal(size=(6, 2)), [0, 0, 0, 1, 1, 2], groups=[0, 0, 1, 1, 2, 2])
    if changed_before:
        gallery.remove([4])
        gallery.add(rng.normal(size=(1, 2)), [1], [3])
    before = contents(gallery)
    with pytest.raises(InvalidInputError, match=message):
        call(gallery)
    assert contents(gallery) == before


def test_groups_are_refused_where_there_were_none() -> None:
    gallery = memory_gallery(np.eye(2), [0, 1])
    before = contents(gallery)
    with pytest.raises(InvalidInputError, match="groups, and it was not"):
        gallery.add(np.eye(2), [0, 1], [0, 1])
    assert contents(gallery) == before


def test_ids_that_come_twice_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="4 more than once"):
        memory_gallery(TWO, [0, 1], ids=[4, 4])


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_points_are_added_in_the_precision_of_the_first(dtype: str) -> None:
    gallery = memory_gallery(np.eye(3, dtype=dtype), [0, 1, 2])
    gallery.add(np.eye(3, dtype="f8") / 3, [0, 1, 2])
    assert vectors_of(gallery).dtype == dtype
    assert vectors_of(gallery)[3, 0] == np.array(1 / 3, dtype)


def test_points_of_large_classes_are_searched_among_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The same neighbours as by searching on until enough others are found; ties by id."""
    rng = np.random.default_rng(0)
    vectors = rng.integers(0, 4, (200, 2)).astype(np.float64)
    codes = np.repeat([0, 1, 2], [150, 45, 5])
    gallery = memory_gallery(vectors, codes)
    gallery.remove([3, 160])
    found = gallery.leave_class_out(None, 4)
    monkeypatch.setattr(gallery_module, "LARGE_CLASS", 1000)
    expected = gallery.leave_class_out(None, 4)
    np.testing.assert_array_equal(found.sq_distances, expected.sq_distances)
    np.testing.assert_array_equal(np.asarray(found.ids), np.asarray(expected.ids))
    np.testing.assert_array_equal(found.labels, expected.labels)


def test_a_lone_class_has_no_others() -> None:
    gallery = memory_gallery(np.arange(40.0)[:, None], np.zeros(40, np.int64))
    assert not gallery.leave_class_out(None, 2).counts.any()


def test_failed_additions_leave_no_rows_behind() -> None:
    gallery = memory_gallery(np.eye(4), [0, 0, 1, 1], groups=[0, 1, 2, 3])
    for _ in range(20):
        with pytest.raises(InvalidInputError, match="finite"):
            gallery.add(np.full((10, 4), np.nan), np.zeros(10, int), np.zeros(10, int))
    assert gallery.groups_beside is not None
    assert len(gallery.groups_beside.ids) < 40


def test_members_of_a_point_that_is_gone_are_not_counted() -> None:
    gallery = memory_gallery(np.eye(4), [0, 0, 1, 1], groups=[0, 1, 2, 3])
    gallery.remove([3])
    for gone in (3, 2**40):
        with pytest.raises(InvalidInputError, match="gone"):
            gallery.members_left(np.array([0, gone]), np.array([0, 1]))


def test_unknown_ids_are_named_however_many_there_are() -> None:
    gallery = memory_gallery(np.eye(4), [0, 0, 1, 1])
    with pytest.raises(InvalidInputError, match="which it does not hold"):
        gallery.remove(np.arange(100, 120))
