"""Ragged sets of classes as a container."""

import numpy as np
import pytest

from nearsure.decisions import PredictionSets
from nearsure.errors import InvalidInputError

SETS = PredictionSets(
    indptr=np.array([0, 2, 2, 2, 3]),
    codes=np.array([3, 0, 1]),
    n_classes=4,
    everything=np.array([False, True, False, False]),
)
DENSE = np.array([[1, 0, 0, 1], [1, 1, 1, 1], [0, 0, 0, 0], [0, 1, 0, 0]], np.bool_)


def test_every_view_shows_the_same_sets() -> None:
    assert len(SETS) == 4
    assert SETS.sizes.tolist() == DENSE.sum(axis=1).tolist()
    assert [sorted(codes.tolist()) for codes in map(SETS.__getitem__, range(4))] == [
        np.flatnonzero(row).tolist() for row in DENSE
    ]
    matrix = SETS.to_csr()
    assert matrix.dtype == np.bool_
    assert matrix.has_sorted_indices
    np.testing.assert_array_equal(matrix.toarray(), DENSE)
    for code in range(4):
        np.testing.assert_array_equal(SETS.contains([code] * 4), DENSE[:, code])


def test_classes_of_a_query_are_best_first() -> None:
    assert SETS[0].tolist() == [3, 0]
    assert SETS[-4].tolist() == [3, 0]
    assert SETS[-3].tolist() == [0, 1, 2, 3]
    with pytest.raises(IndexError, match="query must be one of 4"):
        SETS[4]


def test_a_class_that_does_not_exist_is_in_no_set() -> None:
    assert not SETS.contains([4, 4, 4, 4]).any()
    assert not SETS.contains([-1, -1, -1, -1]).any()


def test_contains_asks_for_one_code_per_query() -> None:
    with pytest.raises(InvalidInputError, match="Got 4 and 2 instead"):
        SETS.contains([0, 1])


@pytest.mark.parametrize(
    ("indptr", "codes", "everything", "message"),
    [
        ([1, 2], [0], [False], "indptr must ascend from 0"),
        ([0, 2, 1], [0], [False, False], "indptr must ascend from 0"),
        ([0, 2], [0], [False], "codes must have indptr"),
        ([0, 1], [4], [False], r"Class codes must lie in \[0, 4\). Got 4 to 4"),
        ([0, 1], [0], [False, False], "one bool for each of the 1 queries"),
        ([0, 1], [0], [True], "must hold no entries"),
    ],
)
def test_sets_check_themselves(
    indptr: list[int], codes: list[int], everything: list[bool], message: str
) -> None:
    with pytest.raises(InvalidInputError, match=message):
        PredictionSets(np.array(indptr), np.array(codes), 4, np.array(everything))
