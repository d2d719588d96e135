"""What is measured of a posterior."""

import json

import numpy as np
import pytest
from small_ablation import made_up

from nearsure.lab.ablation.results import Measured, mean_of, measure
from nearsure.lab.cache import from_plain
from nearsure.lab.robust.methods import Method
from nearsure.posterior import Posterior

# Four queries with confidence 0.75, 0.75, 0.5 and 0.25, of which the first and third are right.
POSTERIOR = Posterior(
    np.array([0, 2, 4, 5, 6]),
    np.array([0, 1, 0, 1, 2, 2]),
    np.array([0.75, 0.25, 0.75, 0.25, 0.5, 0.25]),
    n_classes=3,
)
CODES = np.array([0, 1, 2, 0])


def test_the_figures_by_hand() -> None:
    row = measure(Method("ned"), POSTERIOR, CODES, seed=0)
    assert row.accuracy == 0.5
    assert row.overconfidence == pytest.approx(0.5625 - 0.5)
    # Bins {0.75, 0.75}: half right; {0.5}: right; {0.25}: wrong.
    assert row.ece == pytest.approx((2 * 0.25 + 0.5 + 0.25) / 4)
    squares = [0.0625 + 0.0625, 0.5625 + 0.5625, 0.25, 0.0625 + 1.0]
    assert row.brier == pytest.approx(np.mean(squares))
    assert row.excess == row.ece - row.floor
    assert row.accuracy_interval is None


def test_rows_come_back_from_json() -> None:
    for n_resamples in (None, 20):
        row = measure(Method("gou", "platt"), POSTERIOR, CODES, seed=0, n_resamples=n_resamples)
        assert (row.ece_interval is None) == (n_resamples is None)
        assert from_plain(Measured, json.loads(json.dumps(row.to_dict()))) == row


def test_a_mean_is_of_one_variant() -> None:
    mean = mean_of([made_up("ned", ece=0.02), made_up("ned", ece=0.04)])
    assert mean.variant == "ned"
    assert mean.ece == pytest.approx(0.03)
    assert mean.accuracy == pytest.approx(0.6)


def test_a_row_of_another_version_is_refused() -> None:
    with pytest.raises(ValueError, match="fields of Measured must be"):
        from_plain(Measured, {**made_up("ned").to_dict(), "colour": 1})
