"""Labels keep apart, keep their order, and stay where they belong if they can."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from sklearn.isotonic import isotonic_regression

from nearsure.lab.ablation.report import spread


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12), st.floats(0, 0.3))
def test_labels_move_as_little_as_they_must(places: list[float], gap: float) -> None:
    found = spread(places, gap)
    order = np.argsort(places, kind="stable")
    ranks = gap * np.arange(len(places))
    expected = isotonic_regression(np.array(places)[order] - ranks) + ranks
    np.testing.assert_allclose(found[order], expected, atol=1e-9)
    assert (np.diff(found[order]) >= gap - 1e-9).all()


def test_labels_stay_inside() -> None:
    found = spread([0.0, 0.9, 1.0, 1.0], 0.2, low=0.1, high=1.0)
    np.testing.assert_allclose(found, [0.1, 0.6, 0.8, 1.0])
