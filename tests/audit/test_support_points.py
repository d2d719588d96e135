"""Neighbours that are not those of the gallery are refused."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from nearsure import Neighbors
from nearsure.audit import (
    audit,
    confusable_classes,
    near_duplicates_across_classes,
    small_classes,
    support_points,
    suspect_labels,
)
from nearsure.errors import InvalidInputError


def pair(ids: Any = ((1,), (0,)), labels: Any = ((5,), (4,))) -> Neighbors:  # noqa: ANN401
    return Neighbors([[1.0], [1.0]], labels, ids)


@pytest.mark.parametrize("function", [audit, confusable_classes, small_classes, suspect_labels])
@pytest.mark.parametrize("codes", [[4], [4, 5, 6], [4.0, 5.0], ["a", "b"], [4, -1], [[4], [5]]])
def test_codes_must_be_class_codes_of_the_points(
    function: Callable[..., object],
    codes: Any,  # noqa: ANN401
) -> None:
    with pytest.raises(InvalidInputError, match="codes must be one integer class code >= 0"):
        function(pair(), codes, temperature=1.0)


def test_neighbours_must_have_ids() -> None:
    without = Neighbors([[1.0], [1.0]], [[5], [4]])
    for find in (audit, suspect_labels):
        with pytest.raises(InvalidInputError, match="neighbors must have ids"):
            find(without, [4, 5], temperature=1.0)
    with pytest.raises(InvalidInputError, match="neighbors must have ids"):
        near_duplicates_across_classes(without, [4, 5])


@pytest.mark.parametrize(
    ("neighbors", "ids", "message"),
    [
        (pair([[0], [1]], [[4], [5]]), None, "a point among its own neighbours. Got 2"),
        (pair([[1], [2]]), None, "points of this gallery alone.* Got 1 others, such as .*2"),
        (pair([[1], [-7]]), None, "points of this gallery alone"),
        (pair(labels=[[5], [3]]), None, "same labels as codes. Got 1 neighbours"),
        (pair(), [0], "one id for each of the 2 points"),
        (pair(), [3, 3], "must differ from point to point. Got 1 ids for 2 points"),
        (pair(), ["a", "b"], "of the kind of the neighbours' ids, int64"),
        (pair([["b"], ["a"]]), None, "without ids= they are row numbers"),
    ],
)
def test_neighbours_must_be_those_of_the_gallery(
    neighbors: Neighbors,
    ids: Any,  # noqa: ANN401
    message: str,
) -> None:
    with pytest.raises(InvalidInputError, match=message):
        support_points(neighbors, [4, 5], ids)


def test_rows_skip_the_padding() -> None:
    neighbors = Neighbors(
        [[1.0, 2.0], [1.0, 9.0], [2.0, 9.0]],
        [[7, 7], [7, 0], [7, 0]],
        ids=[[20, 10], [30, 99], [20, 99]],
        counts=[2, 1, 1],
    )
    points = support_points(neighbors, [7, 7, 7], [30, 20, 10])
    np.testing.assert_array_equal(points.asking, [0, 0, 1, 2])
    np.testing.assert_array_equal(points.asked, [1, 2, 0, 1])
