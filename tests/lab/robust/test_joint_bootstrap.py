"""The joint bootstrap: the very numbers that one would get one by one, only faster."""

from functools import partial

import numpy as np
import pytest
from damaged_points import clean, frozen, moved

from nearsure.arrays import BoolArray, FloatArray, IntArray
from nearsure.lab.robust import evaluation
from nearsure.lab.robust.evaluation import MEASURE_NAMES, JointBootstrap, interval_of, mean_of
from nearsure.lab.robust.methods import METHODS, Scores
from nearsure.metrics import accuracy, bootstrap_interval, expected_calibration_error

SEED = 5
N_RESAMPLES = 40


def scores(noise: float = 0.6) -> Scores:
    return frozen().scores(moved(noise), clean().query_codes)


def draws(n: int = 150) -> JointBootstrap:
    return JointBootstrap(n, seed=SEED, n_resamples=N_RESAMPLES)


def resampled_rows() -> list[IntArray]:
    rng = np.random.default_rng(SEED)
    return [np.arange(150), *(rng.integers(0, 150, size=150) for _ in range(N_RESAMPLES))]


def test_every_measure_is_what_the_drawn_rows_give() -> None:
    found = draws().measure(scores())
    for place in range(len(METHODS)):
        confidence, correct = scores().confidence[place], scores().correct[place]
        for draw, rows in enumerate(resampled_rows()):
            c, r = confidence[rows], correct[rows]
            expected = {
                "accuracy": r.mean(),
                "ece": expected_calibration_error(c, r),
                "confidence": c.mean(),
                "confidently_wrong": np.mean(~r & (c >= 0.9)),
                "confidence_when_wrong": c[~r].mean(),
                "top_label_brier": np.mean((c - r) ** 2),
            }
            assert expected.keys() == set(MEASURE_NAMES)
            for name, value in expected.items():
                assert found[name][draw, place] == pytest.approx(value, abs=1e-12), name


def test_intervals_are_those_of_bootstrap_interval_with_the_same_seed() -> None:
    found = draws().measure(scores())
    for place in range(len(METHODS)):
        confidence, correct = scores().confidence[place], scores().correct[place]
        ece = partial(bootstrap_interval, expected_calibration_error, confidence, correct)
        right = partial(bootstrap_interval, accuracy, correct)
        for values, interval in ((found["ece"], ece), (found["accuracy"], right)):
            expected = interval(seed=SEED, n_resamples=N_RESAMPLES)
            ours = interval_of(values[:, place])
            for name in ("estimate", "low", "high"):
                assert getattr(ours, name) == pytest.approx(getattr(expected, name), abs=1e-7)


def test_the_mean_over_variants_draws_the_same_queries_in_all_of_them() -> None:
    variants = [scores(noise) for noise in (0.2, 0.6, 1.0)]
    mean = mean_of([draws().measure(some) for some in variants])

    def mean_ece(confidence: FloatArray, correct: BoolArray) -> float:
        pairs = zip(confidence.T, correct.T, strict=True)
        return float(np.mean([expected_calibration_error(c, r) for c, r in pairs]))

    expected = bootstrap_interval(
        mean_ece,
        np.stack([some.confidence[4] for some in variants], axis=1),
        np.stack([some.correct[4] for some in variants], axis=1),
        seed=SEED,
        n_resamples=N_RESAMPLES,
        bounds=(0, 1),
    )
    ours = interval_of(mean["ece"][:, 4])
    assert (ours.estimate, ours.low, ours.high) == pytest.approx(
        (expected.estimate, expected.low, expected.high), abs=1e-7
    )


def test_a_mean_of_equal_variants_is_as_uncertain_as_one_of_them() -> None:
    """Independent draws would make the interval narrower by the root of their number."""
    one = draws().measure(scores())
    same = mean_of([one] * 9)
    for place in range(len(METHODS)):
        assert interval_of(same["ece"][:, place]) == interval_of(one["ece"][:, place])


def test_blocks_do_not_change_the_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    summands = np.random.default_rng(0).random((150, 3))
    whole = draws().sums(summands)
    monkeypatch.setattr(evaluation, "BLOCK_ENTRIES", 450)
    np.testing.assert_allclose(draws().sums(summands), whole, rtol=1e-14)
    assert whole.shape == (1 + N_RESAMPLES, 3)
    np.testing.assert_allclose(whole[0], summands.sum(axis=0))


def test_without_a_wrong_answer_their_confidence_is_unknown() -> None:
    right = Scores(np.full((15, 4), 0.8), np.ones((15, 4), np.bool_))
    found = JointBootstrap(4, seed=0, n_resamples=10).measure(right)
    assert np.isnan(found["confidence_when_wrong"]).all()
    interval = interval_of(found["confidence_when_wrong"][:, 0])
    assert np.isnan([interval.estimate, interval.low, interval.high]).all()
    assert interval.n_undefined == 10
    assert (found["confidently_wrong"] == 0).all()


def test_0_9_itself_counts_as_confident() -> None:
    wrong = Scores(np.tile([0.9, 0.89], (15, 1)), np.zeros((15, 2), np.bool_))
    found = JointBootstrap(2, seed=0, n_resamples=1).measure(wrong)
    assert (found["confidently_wrong"][0] == 0.5).all()
