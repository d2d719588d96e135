"""Labels and groups of any kind, and the codes that stand for them as classes come."""

import datetime as dt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import ArrayLike

from nearsure.arrays import AnyArray, IntArray
from nearsure.errors import InvalidInputError
from nearsure.labels import (
    classes_and_codes,
    codes_of,
    extended_groups,
    extended_names,
    groups_and_codes,
    labels_like,
    restored_classes,
    stored_classes,
)


class TestCodes:
    @settings(deadline=None, max_examples=60)
    @given(
        classes=st.lists(st.integers(-20, 20), min_size=1, unique=True),
        asked=st.lists(st.integers(-25, 25), min_size=1),
    )
    def test_codes_are_places_whatever_the_order(
        self, classes: list[int], asked: list[int]
    ) -> None:
        expected = [classes.index(label) if label in classes else len(classes) for label in asked]
        assert codes_of(asked, np.array(classes)).tolist() == expected
        words, asked_words = [f"w{label}" for label in classes], [f"w{label}" for label in asked]
        assert codes_of(asked_words, np.array(words)).tolist() == expected
        assert codes_of(np.array(asked_words, object), np.array(words)).tolist() == expected

    def test_a_label_is_not_its_own_beginning(self) -> None:
        """Arrays of short strings must not cut the longer ones that they are compared with."""
        assert codes_of(["cat", "c", "catfish"], np.array(["c", "cat"])).tolist() == [1, 0, 2]

    def test_labels_of_another_kind_are_no_classes(self) -> None:
        with pytest.raises(InvalidInputError, match="of the kind that was fitted, int64"):
            codes_of(np.array([None, 1], object), np.array([1, 2]))

    @pytest.mark.parametrize(
        "labels",
        [np.array([0.5, 1.25]), np.array([1, "a", None], object)],
        ids=["continuous", "what does not sort"],
    )
    def test_what_names_no_classes_is_refused(self, labels: AnyArray) -> None:
        with pytest.raises(InvalidInputError, match=r"Unknown label type|Labels must sort"):
            classes_and_codes(labels)


def extended_classes(y: ArrayLike, n_points: int, classes: AnyArray) -> tuple[AnyArray, IntArray]:
    """What a gallery does with labels of new points."""
    return extended_names(labels_like(y, n_points, classes), classes)


class TestNewClasses:
    @settings(deadline=None, max_examples=60)
    @given(
        first=st.lists(st.integers(0, 9), min_size=1),
        batches=st.lists(st.lists(st.integers(0, 15), min_size=1), max_size=4),
    )
    def test_codes_stay_and_new_ones_count_on(
        self, first: list[int], batches: list[list[int]]
    ) -> None:
        classes, codes = classes_and_codes(np.array(first))
        for batch in batches:
            before = classes.tolist()
            classes, codes = extended_classes(batch, len(batch), classes)
            assert classes.tolist()[: len(before)] == before
            assert classes.tolist()[len(before) :] == sorted(set(batch) - set(before))
            assert classes[codes].tolist() == batch

    @pytest.mark.parametrize("dtype", [np.int64, np.float64, str])
    def test_many_small_classes_are_no_regression(self, dtype: type) -> None:
        """Warnings are errors here, and scikit-learn before 1.8 has one for these."""
        names: AnyArray = (np.arange(30) % 20).astype(dtype)
        np.testing.assert_array_equal(classes_and_codes(names)[0], np.unique(names))

    def test_longer_names_are_not_cut(self) -> None:
        classes, codes = extended_classes(["catfish", "b"], 2, np.array(["a", "b"]))
        assert classes.tolist() == ["a", "b", "catfish"]
        assert codes.tolist() == [2, 1]

    def test_larger_numbers_do_not_wrap_round(self) -> None:
        classes, _ = extended_classes([1000], 1, np.array([1, 2], np.int8))
        assert classes.tolist() == [1, 2, 1000]

    def test_dates_and_other_objects(self) -> None:
        days = np.array([dt.date(2020, 1, day) for day in (3, 1)])
        classes, codes = extended_classes(days, 2, days[:1])
        assert classes.tolist() == days.tolist()
        assert codes.tolist() == [0, 1]

    def test_nothing_new_leaves_the_classes_alone(self) -> None:
        classes = np.array(["b", "a"])
        assert extended_classes(["a", "b"], 2, classes)[0] is classes

    @pytest.mark.parametrize(
        ("y", "classes"),
        [([1], ["a"]), (["a"], [1]), (["1"], [1]), ([1], ["1"]), ([None], ["a"]), ([True], ["a"])],
    )
    def test_labels_of_another_kind_are_refused(
        self, y: list[object], classes: list[object]
    ) -> None:
        with pytest.raises(InvalidInputError, match="must be of the kind that was fitted"):
            extended_classes(np.array(y), 1, np.array(classes))

    @pytest.mark.parametrize("y", [["a"], [["a"], ["b"]], "ab", ["a", "b", "c"]])
    def test_labels_must_be_one_for_each_point(self, y: list[str]) -> None:
        with pytest.raises(InvalidInputError, match="y must be one label for each of the 2 points"):
            extended_classes(y, 2, np.array(["a"]))

    def test_a_label_that_is_no_number_is_refused(self) -> None:
        with pytest.raises(InvalidInputError):
            extended_classes([np.nan], 1, np.array([0.0, 1.0]))

    @pytest.mark.parametrize("kind", ["M8[D]", "M8[ns]", "m8[s]", object])
    def test_a_date_that_is_none_is_refused(self, kind: str | type) -> None:
        days = np.array([0, 1], "m8[s]" if kind == "m8[s]" else "M8[D]").astype(kind)
        none = (
            np.array([np.datetime64("NaT", "D")], object)
            if kind is object
            else np.array(["NaT"], kind)
        )
        with pytest.raises(InvalidInputError, match=r"must name classes\. Got NaN or NaT"):
            classes_and_codes(np.concatenate([days, none]))
        with pytest.raises(InvalidInputError, match=r"must name classes\. Got NaN or NaT"):
            extended_classes(none, 1, days)

    def test_what_a_fit_refuses_is_refused(self) -> None:
        with pytest.raises(InvalidInputError):
            extended_classes([0.5], 1, np.array([0, 1]))


class TestGroups:
    def test_anything_may_name_a_group(self) -> None:
        for groups in (
            [7, 7, 3],
            ["b", "b", "a"],
            [2.5, 2.5, -1.0],
            np.array([None, None, "a"], object),
            np.array(["2020-02-02", "2020-02-02", "2020-01-01"], "datetime64[D]"),
        ):
            names, codes = groups_and_codes(groups, 3)
            assert len(names) == 2
            assert codes[0] == codes[1] != codes[2]

    def test_a_mixture_may_name_groups(self) -> None:
        _, codes = groups_and_codes(np.array([None, 1, "a", None], object), 4)
        assert codes[0] == codes[3]
        assert len(set(codes.tolist())) == 3

    @pytest.mark.parametrize("groups", [[1, 2], [[1], [2], [3]], 5])
    def test_groups_must_be_one_for_each_point(self, groups: list[int]) -> None:
        with pytest.raises(InvalidInputError, match="groups must be one group for each of the 3"):
            groups_and_codes(groups, 3)

    @pytest.mark.parametrize(
        ("fitted", "added"),
        [
            ([5, 5, 9], [9, 7]),
            (["x", "x", "zebra"], ["zebra", "antelope"]),
            (np.array([None, None, "z"], object), np.array(["z", 3], object)),
        ],
    )
    def test_old_groups_keep_their_codes_and_new_ones_count_on(
        self, fitted: list[str] | AnyArray, added: list[str] | AnyArray
    ) -> None:
        names, codes = groups_and_codes(fitted, 3)
        names_now, new = extended_groups(added, 2, names)
        assert new is not None
        assert names_now is not None
        assert new.tolist() == [codes[2], 2]
        assert len(names_now) == 3

    def test_numbers_and_their_names_are_one_group(self) -> None:
        names, codes = groups_and_codes([10, 11], 2)
        names_now, new = extended_groups(["11", "burst"], 2, names)
        assert new is not None
        assert new.tolist() == [codes[1], 2]
        _, newer = extended_groups([10, 12], 2, names_now)
        assert newer is not None
        assert newer.tolist() == [codes[0], 3]

    def test_groups_that_one_side_lacks_are_left_to_the_support_set(self) -> None:
        names, _ = groups_and_codes([1], 1)
        assert extended_groups(None, 2, names)[1] is None
        assert extended_groups(None, 2, None) == (None, None)
        assert extended_groups([1, 1], 2, None)[1] is not None

    def test_groups_without_a_number_share_none_with_later_ones(self) -> None:
        names, _ = groups_and_codes([1.0, 2.0], 2)
        names_now, missing = extended_groups([np.nan], 1, names)
        _, later = extended_groups([3.0], 1, names_now)
        assert missing is not None
        assert later is not None
        assert missing[0] != later[0]


@pytest.mark.parametrize(
    "classes",
    [
        np.array([3, 1, 2]),
        np.array([0.5, -1.0]),
        np.array([True, False]),
        np.array(["ä", "catfish", ""]),
        np.array(["a", "b"], object),
        np.array([2, 1], object),
        np.array([3, 1], np.uint8),
    ],
)
def test_a_file_gives_classes_back(classes: AnyArray) -> None:
    again = restored_classes(stored_classes(classes), classes.dtype.str)
    assert again.dtype == classes.dtype
    assert again.tolist() == classes.tolist()


def test_objects_that_a_file_cannot_hold_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="Labels must be numbers or strings for a model"):
        stored_classes(np.array([dt.date(2020, 1, 1)]))
