"""A gallery in an engine answers as a support set in memory does."""

from typing import Literal

import numpy as np
import pytest
from numpy_engine import NumpyEngine

from nearsure import NEDClassifier
from nearsure.arrays import AnyArray, IntArray
from nearsure.engines import Found, Stored
from nearsure.errors import GalleryMismatchError, InvalidInputError
from nearsure.gallery import Gallery
from nearsure.gallery import gallery as gallery_module
from nearsure.gallery.opening import create_gallery, open_gallery
from nearsure.neighbors import Neighbors

N, DIMENSION, K = 150, 4, 6
LabelKind = Literal["integer", "text"] | None
LABEL_KINDS: tuple[LabelKind, ...] = ("integer", "text", None)


def _points(seed: int = 0) -> tuple[AnyArray, IntArray]:
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, 9, N)
    codes[:9] = np.arange(9)
    vectors = rng.standard_normal((9, DIMENSION))[codes] + 0.8 * rng.standard_normal((N, DIMENSION))
    vectors[20] = vectors[21]
    return vectors.astype(np.float32), codes


def _both(
    labels: LabelKind, groups: IntArray | None = None, largest_k: int | None = None
) -> tuple[Gallery, Gallery]:
    vectors, codes = _points()
    classes = np.arange(9) if labels == "integer" else np.array([f"class {i}" for i in range(9)])
    engine = NumpyEngine(DIMENSION, labels=labels, largest_k=largest_k)
    gallery = create_gallery(engine, vectors, codes, classes, groups)
    assert not gallery.in_memory
    return Gallery.of_points(vectors, codes, groups), gallery


def _assert_same(one: Neighbors, other: Neighbors) -> None:
    assert one.counts.tolist() == other.counts.tolist()
    k = min(one.k, other.k)
    one, other = one.first(k), other.first(k)
    assert np.array_equal(np.asarray(one.ids), np.asarray(other.ids))
    assert np.array_equal(one.labels, other.labels)
    finite = np.isfinite(one.sq_distances)
    np.testing.assert_allclose(one.sq_distances[finite], other.sq_distances[finite], rtol=1e-9)


@pytest.mark.parametrize("labels", LABEL_KINDS)
@pytest.mark.parametrize("with_groups", [False, True])
def test_the_same_answers_through_changes(labels: LabelKind, with_groups: bool) -> None:  # noqa: FBT001
    rng = np.random.default_rng(1)
    groups = rng.integers(0, 40, N) if with_groups else None
    support, gallery = _both(labels, groups)
    queries = rng.standard_normal((8, DIMENSION)).astype(np.float32)
    for step in range(3):
        _assert_same(support.search(queries, K), gallery.search(queries, K))
        ids = support.ids_at(np.arange(0, len(support), 3))
        assert np.array_equal(ids, gallery.ids_at(np.arange(0, len(support), 3)))
        _assert_same(support.leave_one_out(ids, K), gallery.leave_one_out(ids, K))
        _assert_same(support.leave_class_out(ids, K), gallery.leave_class_out(ids, K))
        codes = support.codes_of(ids)
        assert codes.tolist() == gallery.codes_of(ids).tolist()
        left = support.members_left(ids, codes)
        assert left.tolist() == gallery.members_left(ids, codes).tolist()
        assert support.class_counts.tolist() == gallery.class_counts.tolist()
        assert support.next_id == gallery.next_id
        assert len(support) == len(gallery)
        new = rng.standard_normal((4, DIMENSION)).astype(np.float32)
        new_groups = rng.integers(0, 40, 4) if with_groups else None
        codes = rng.integers(0, 9, 4)
        for one in (support, gallery):
            known = one.classes if one is gallery else np.arange(9)
            added = one.add(new, known[codes], new_groups)
            one.remove([3 * step + 30, 3 * step + 31])
            one.relabel([50 + step, int(added[0])], known[[1, 2]], allow_empty_class=True)
        assert support.share_changed(0) == gallery.share_changed(0)
        assert (
            support.holds(np.array([30, 31, 32])).tolist()
            == gallery.holds(np.array([30, 31, 32])).tolist()
        )
    gallery.recount()
    assert support.class_counts.tolist() == gallery.class_counts.tolist()


def test_all_points_leave_themselves_out_in_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gallery_module, "PORTION", 7)
    monkeypatch.setattr(gallery_module, "LISTED", 20)
    support, gallery = _both("integer")
    order = np.argsort(support.ids)
    _assert_same(support.leave_one_out(None, K).take(order), gallery.leave_one_out(None, K))


def test_only_the_asked_points_leave_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    _, gallery = _both("integer")
    fetched: list[int] = []
    fetch = gallery.engine.fetch

    def noted(ids: AnyArray) -> Stored:
        fetched.extend(ids.tolist())
        return fetch(ids)

    monkeypatch.setattr(gallery.engine, "fetch", noted)
    gallery.leave_one_out(np.array([3, 5]), K)
    assert sorted(fetched) == [3, 5]


def test_a_point_that_the_engine_misses_is_left_out_all_the_same() -> None:
    """An approximate index may not find the point itself: k others are kept, not k - 1."""
    _, gallery = _both("integer")
    search = gallery.engine.search

    def without_the_nearest(queries: AnyArray, k: int) -> Found:
        found = search(queries, k + 1)
        assert found.labels is not None
        return Found(
            found.sq_distances[:, 1:], found.ids[:, 1:], found.counts - 1, found.labels[:, 1:]
        )

    gallery.engine.search = without_the_nearest  # type: ignore[method-assign]
    found = gallery.leave_one_out(np.array([0, 1]), K)
    assert found.counts.tolist() == [K, K]
    assert not (np.asarray(found.ids) == np.array([[0], [1]])).any()


def test_short_lists_end_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """An index that lists few is not asked for more and more of what it does not list."""
    _, gallery = _both("integer")
    search, asked = gallery.engine.search, []

    def at_most_four(queries: AnyArray, k: int) -> Found:
        asked.append(k)
        found = search(queries, min(k, 4))
        padded = np.full((len(queries), k), np.inf)
        ids, labels = np.full(padded.shape, -1), np.full(padded.shape, -1)
        padded[:, :4], ids[:, :4], labels[:, :4] = found.sq_distances, found.ids, found.labels
        return Found(padded, ids, found.counts, labels)

    monkeypatch.setattr(gallery.engine, "search", at_most_four)
    assert gallery.leave_one_out(np.array([0, 1]), K).counts.tolist() == [3, 3]
    assert asked == [K + 1]


def test_a_class_that_fills_every_list_leaves_rows_empty() -> None:
    vectors = np.append(np.linspace(0, 1, 50), np.linspace(9, 10, 10))[:, None].astype(np.float32)
    codes = np.repeat([0, 1], [50, 10])
    gallery = create_gallery(NumpyEngine(1, largest_k=20), vectors, codes, np.array([0, 1]), None)
    assert gallery.leave_class_out(np.array([0, 1, 55]), 3).counts.tolist() == [0, 0, 3]


def test_a_gallery_that_sees_no_other_class_cannot_rehearse_unknowns() -> None:
    vectors = np.append(np.linspace(0, 1, 50), np.linspace(9, 10, 50))[:, None].astype(np.float32)
    engine = NumpyEngine(1, largest_k=20)
    classifier = NEDClassifier(3, 1.0, engine=engine, unknown_share=0.1)
    with pytest.raises(InvalidInputError, match="unknown_share"):
        classifier.fit(vectors, np.repeat([0, 1], 50))


def test_what_others_write_is_found_and_counted() -> None:
    _, gallery = _both("text")
    gallery.engine.add(
        np.full((2, DIMENSION), 9.0, np.float32), np.array([900, 901]), np.array(["emu", "emu"])
    )
    found = gallery.search(np.full((1, DIMENSION), 9.0, np.float32), 2)
    assert found.labels.tolist() == [[9, 9]]
    assert len(gallery.class_counts) == 10
    assert gallery.changed_elsewhere() == 2
    gallery.recount()
    assert gallery.class_counts[9] == 2
    assert gallery.changed_elsewhere() == 0
    assert gallery.next_id == 902


def test_a_failed_change_changes_nothing() -> None:
    _, gallery = _both(None)
    before = gallery.class_counts.tolist(), len(gallery), gallery.n_changes
    with pytest.raises(InvalidInputError):
        gallery.add(np.ones((1, DIMENSION), np.float32), np.array(["class 0"]), ids=[5])
    with pytest.raises(InvalidInputError):
        gallery.remove([99999])
    with pytest.raises(InvalidInputError):
        gallery.relabel([99999], np.array(["class 1"]))
    with pytest.raises(InvalidInputError, match="groups"):
        gallery.add(np.ones((1, DIMENSION), np.float32), np.array(["class 0"]), np.array([1]))
    with pytest.raises(InvalidInputError, match="At least one"):
        gallery.remove(np.arange(N))
    assert (gallery.class_counts.tolist(), len(gallery), gallery.n_changes) == before


def test_labels_beside_must_be_those_of_all_points() -> None:
    engine = NumpyEngine(1, labels=None)
    engine.add(np.ones((3, 1)), np.arange(3))
    with pytest.raises(InvalidInputError, match="2"):
        open_gallery(engine, np.array(["a", "b"]), np.array([0, 1]))
    with pytest.raises(GalleryMismatchError, match="fit_engine"):
        open_gallery(engine)


def test_counts_that_a_caller_holds_cannot_be_overwritten() -> None:
    support, gallery = _both("text")
    with pytest.raises(ValueError, match="read-only"):
        gallery.class_counts[0] = 77
    assert gallery.class_counts.tolist() == support.class_counts.tolist()


def test_ids_of_text_must_be_given() -> None:
    engine = NumpyEngine(1, ids="text", labels="text")
    engine.add(np.ones((2, 1)), np.array(["x", "y"]), np.array(["a", "b"]))
    gallery = open_gallery(engine)
    assert gallery.classes.tolist() == ["a", "b"]
    with pytest.raises(InvalidInputError, match="text"):
        gallery.add(np.ones((1, 1)), np.array(["a"]))
    assert gallery.add(np.zeros((1, 1)), np.array(["a"]), ids=["z"]).tolist() == ["z"]
    assert gallery.leave_one_out(None, 2).counts.tolist() == [2, 2, 2]


def test_the_largest_id_leaves_room_for_others() -> None:
    _, gallery = _both("integer")
    gallery.add(np.ones((1, DIMENSION), np.float32), np.array([0]), ids=[2**63 - 1])
    assert gallery.add(np.ones((1, DIMENSION), np.float32), np.array([0])).tolist() == [N]
    gallery.recount()
    assert gallery.next_id == N + 1


def test_points_that_others_have_added_may_be_left_alone() -> None:
    """All that this gallery knows of may go, as long as something stays."""
    _, gallery = _both("integer")
    gallery.engine.add(np.ones((1, DIMENSION), np.float32), np.array([900]), np.array([4]))
    gallery.remove(np.arange(N), allow_empty_class=True)
    assert gallery.ids.tolist() == [900]
    with pytest.raises(InvalidInputError, match="At least one"):
        gallery.remove([900])


def test_a_class_that_nobody_counted_is_taken_for_one_of_usual_size() -> None:
    _, gallery = _both("text")
    usual = round(N / 9)
    place = np.full((1, DIMENSION), 9.0, np.float32)
    gallery.engine.add(place, np.array([900]), np.array(["emu"]))
    gallery.search(place, 1)
    assert gallery.class_counts[9] == usual
    gallery.add(place, np.array(["fox"]))
    usual = round((N + 1) / 10)
    assert gallery.class_counts[9:].tolist() == [usual, 1]
    gallery.add(place, np.array(["emu"]))
    assert (len(gallery), gallery.class_counts[9]) == (N + 2, usual)
    gallery.recount()
    assert (len(gallery), gallery.class_counts[9:].tolist()) == (N + 3, [2, 1])


@pytest.mark.parametrize("labels", LABEL_KINDS)
def test_ids_of_groups_may_be_a_column_of_objects(labels: LabelKind) -> None:
    vectors, codes = _points()
    engine = NumpyEngine(DIMENSION, ids="text", labels=labels)
    names = np.array([f"id {i}" for i in range(N)])
    stored = {"integer": codes, "text": codes.astype(str), None: None}[labels]
    engine.add(vectors, names, stored)
    y = codes if labels is None else None
    gallery = open_gallery(engine, y, names.astype(object), np.arange(N) // 3)
    same = open_gallery(engine, y, names, np.arange(N) // 3)
    _assert_same(gallery.leave_one_out(None, K), same.leave_one_out(None, K))
    with pytest.raises(InvalidInputError, match="more than once"):
        open_gallery(engine, y, names[np.maximum(np.arange(N), 1)], np.arange(N))
