"""An answer is accepted by its confidence, if anybody vouches for it."""

import numpy as np
import pytest

from nearsure import NEDClassifier, Neighbors
from nearsure.service.answers import Answers, ThresholdInUse, make_answers


def answers(threshold: ThresholdInUse) -> Answers:
    """Of two queries, the second without neighbours, as an approximate engine may find none."""
    classifier = NEDClassifier(temperature=1.0).fit([[0.0], [1.0]], ["cat", "dog"])
    found = Neighbors(
        [[0.1, 0.9], [np.inf, np.inf]], [[0, 1], [-1, -1]], ids=[[0, 1], [-1, -1]], counts=[2, 0]
    )
    return make_answers(classifier, classifier._predicted(found), threshold, 1)


@pytest.mark.parametrize(
    ("threshold", "expected"),
    [
        (ThresholdInUse(threshold=0.0), [True, False]),
        (ThresholdInUse(threshold=0.99), [False, False]),
        (ThresholdInUse(precision=0.9), [False, False]),
        (ThresholdInUse(), [None, None]),
    ],
)
def test_who_is_accepted(threshold: ThresholdInUse, expected: list[bool | None]) -> None:
    given = answers(threshold)
    assert [given.accepted(row) for row in range(2)] == expected
    assert given.document(0, neighbors=2, classes=2)["accepted"] == expected[0]
    assert given.neighbors(1, 5) == []
