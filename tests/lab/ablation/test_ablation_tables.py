"""Goals are met or missed by the numbers, whoever likes it."""

import json

import numpy as np
import pytest
from scipy.stats import ttest_1samp
from small_ablation import made_up, made_up_trial, results

from nearsure.lab.ablation.results import Group, difference, t_interval
from nearsure.lab.ablation.tables import (
    ACCURACY,
    BRIER,
    CALIBRATION,
    FLOOR,
    PROBE,
    Goal,
    all_goals,
    goal_sentence,
    goal_table,
    goals_of,
)
from nearsure.lab.ablation.variants import (
    CALIBRATED_BASELINES,
    DEFAULT,
    NED,
    RAW_BASELINES,
    TEMPERED_PROBES,
)
from nearsure.lab.cache import to_plain
from nearsure.lab.robust.methods import Method


def goals(ours: dict[str, float], **rivals: dict[str, float]) -> dict[str, Goal]:
    """The goals where all baselines are alike but for some; rivals by name, _ for a blank."""
    special = {name.replace("_", " + "): changes for name, changes in rivals.items()}
    rows = [
        made_up(variant.name, **special.get(variant.name, {}))
        for variant in (*RAW_BASELINES, *CALIBRATED_BASELINES, *TEMPERED_PROBES)
    ]
    trial = made_up_trial([*rows, made_up(DEFAULT.name, **ours)])
    return {goal.goal: goal for goal in goals_of(Group((trial,)))}


def test_equal_accuracy_and_ece_are_enough_but_equal_brier_is_not() -> None:
    found = goals({})
    assert found[ACCURACY].met
    assert found[CALIBRATION].met
    assert not found[BRIER].met
    assert found[PROBE].met
    assert goals({"brier": 0.499})[BRIER].met
    assert not goals({"brier": 0.50001})[PROBE].met


def test_the_hundredth_part_of_a_point_is_a_miss() -> None:
    assert not goals({"accuracy": 0.59999})[ACCURACY].met
    assert not goals({"ece": 0.03001})[FLOOR].met
    assert goals({"ece": 0.0299})[FLOOR].met


def test_the_best_rival_counts() -> None:
    found = goals({"ece": 0.02}, gou={"accuracy": 0.7}, dudani_bbq={"ece": 0.01, "brier": 0.3})
    assert (found[ACCURACY].rival, found[ACCURACY].bound, found[ACCURACY].met) == (
        "gou",
        0.7,
        False,
    )
    assert (found[CALIBRATION].rival, found[CALIBRATION].met) == ("dudani + bbq", False)
    assert "**missed**: 2.00 (floor 2.00) against 1.00 (WkNN (Dudani) + BBQ, floor 2.00)" in (
        goal_table(list(found.values()))
    )
    assert (found[BRIER].rival, found[BRIER].bound) == ("dudani + bbq", 0.3)


def test_probes_are_rivals_in_their_own_goal_alone() -> None:
    found = goals({"brier": 0.4}, LDA_temperature={"accuracy": 0.9, "ece": 0.0, "brier": 0.3})
    assert (found[PROBE].rival, found[PROBE].bound, found[PROBE].met) == (
        "LDA + temperature",
        0.3,
        False,
    )
    assert all(goal.met for name, goal in found.items() if name != PROBE)
    table = goal_table(list(found.values()))
    assert "**missed**: 0.4000 against 0.3000 (LDA + temperature)" in table


def test_raw_and_1nn_are_no_calibrated_baselines() -> None:
    found = goals({}, knn={"ece": 0.001}, **{"1nn": {"ece": 0.0}})
    assert found[CALIBRATION].bound == 0.03
    assert found[CALIBRATION].met


def test_the_table_says_it_plainly() -> None:
    found = list(goals({"accuracy": 0.55, "brier": 0.4}).values())
    table = goal_table(found)
    assert "**missed**: 55.00 against 60.00 (1NN)" in table
    assert "met: 0.4000 against 0.5000 (1NN)" in table
    assert goal_sentence(found) == (
        "4 of 5 are met. Missed: accuracy not below the best baseline's (own at k = 50)."
    )
    assert goal_sentence([goal for goal in found if goal.met]) == "4 of 4 are met."


def test_the_interval_is_students() -> None:
    values = np.random.default_rng(0).standard_normal(7)
    expected = ttest_1samp(values, 0.0).confidence_interval(0.95)
    found = t_interval(values)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))
    assert np.isnan(t_interval([1.0]).low)


def test_differences_are_paired_by_seed() -> None:
    # Both scatter widely, and by the same.
    trials = [
        made_up_trial([made_up("ned", accuracy=a + 0.02), made_up("gou", accuracy=a)], seed)
        for seed, a in enumerate((0.3, 0.5, 0.9))
    ]
    # A seed that only one of them has is no pair.
    trials.append(made_up_trial([made_up("ned", accuracy=0.1)], 3))
    found = difference(Group(tuple(trials)), NED, Method("gou"), "accuracy")
    assert found.estimate == pytest.approx(0.02)
    assert found.high - found.low < 1e-9


def test_goals_of_a_run_are_strict_json() -> None:
    found = list(all_goals(results()))
    assert {goal.condition for goal in found} == {"half", "given", "scarce"}
    assert len(found) == 5 * (4 + 2)
    text = json.dumps(to_plain(found), allow_nan=False)
    assert json.loads(text)[0]["n_seeds"] == 2
