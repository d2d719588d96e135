"""Outcomes of changed queries, and the joint bootstrap: the numbers that one gets one by one."""

import json
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from damaged_points import (
    CORRUPTIONS,
    N_CLASSES,
    N_RESAMPLES,
    K,
    attack_evaluation,
    clean,
    corruption_evaluation,
    frozen,
    moved,
)

from nearsure.arrays import BoolArray, FloatArray, IntArray
from nearsure.errors import InvalidInputError
from nearsure.lab.cache import from_plain, to_plain
from nearsure.lab.robust import evaluation
from nearsure.lab.robust.evaluation import (
    FLOOR_SIMULATIONS,
    INTERVALS,
    JointBootstrap,
    Outcome,
    RobustEvaluation,
    evaluate_variants,
    interval_of,
    mean_of,
)
from nearsure.lab.robust.methods import DEFAULT, METHODS, NED, NEIGHBORS_ALONE, Method, Scores
from nearsure.lab.robust.settings import Variant
from nearsure.metrics import (
    accuracy,
    bootstrap_interval,
    calibration_floor,
    expected_calibration_error,
)

SOME_VARIANT = Variant("corruption", "fog", 2)


def evaluate(*variants: tuple[Variant, float], **options: int) -> RobustEvaluation:
    """Few variants, by how far the queries are moved."""
    codes = clean().query_codes
    return evaluate_variants(
        "model",
        "given_gallery",
        frozen(),
        clean=(clean().queries, codes),
        variants=[(variant, moved(noise), codes) for variant, noise in variants],
        **{"seed": 0, "n_resamples": 30, **options},
    )


def estimates(outcome: Outcome, name: str) -> list[float]:
    return [result.interval(name).estimate for result in outcome.results]


def test_a_variant_has_the_numbers_of_its_own_scores() -> None:
    scores = frozen().scores(moved(0.7), clean().query_codes)
    (found,) = evaluate((SOME_VARIANT, 0.7)).variants
    assert found.variant == SOME_VARIANT
    for place, method in enumerate(METHODS):
        result = found.outcome.of(method)
        confidence, correct = scores.confidence[place], scores.correct[place]
        ece = bootstrap_interval(
            expected_calibration_error, confidence, correct, seed=0, n_resamples=30
        )
        assert (result.ece.estimate, result.ece.low, result.ece.high) == pytest.approx(
            (ece.estimate, ece.low, ece.high), abs=1e-7
        )
        floor = calibration_floor(confidence, seed=0, n_simulations=FLOOR_SIMULATIONS)
        assert result.ece_floor == pytest.approx(floor, abs=1e-7)
        gap = confidence.mean() - correct.mean()
        assert result.overconfidence.estimate == pytest.approx(gap, abs=1e-7)


def test_the_clean_outcome_is_that_of_the_unmoved_queries() -> None:
    found = evaluate((SOME_VARIANT, 0.0))
    assert found.clean == found.variants[0].outcome
    assert evaluate((SOME_VARIANT, 1.5)).clean == found.clean


def test_a_variant_does_not_depend_on_the_others() -> None:
    alone = evaluate((SOME_VARIANT, 0.7)).variants[0]
    amid = evaluate((Variant("attack", "pgd", epsilon=0.1), 2.0), (SOME_VARIANT, 0.7)).variants[1]
    assert alone == amid


@pytest.mark.parametrize("name", [*INTERVALS, "ece_floor"])
def test_means_are_over_corruptions_severities_or_both(name: str) -> None:
    evaluation = corruption_evaluation()

    def value(outcome: Outcome) -> FloatArray:
        if name == "ece_floor":
            return np.array([result.ece_floor for result in outcome.results])
        return np.array(estimates(outcome, name))

    by_variant = {found.variant: value(found.outcome) for found in evaluation.variants}
    assert evaluation.mean is not None
    np.testing.assert_allclose(
        value(evaluation.mean), np.mean(list(by_variant.values()), axis=0), atol=2e-7
    )
    assert list(evaluation.by_corruption) == list(CORRUPTIONS)
    for corruption, outcome in evaluation.by_corruption.items():
        chosen = [values for variant, values in by_variant.items() if variant.name == corruption]
        assert outcome.n_variants == len(chosen) == 5
        np.testing.assert_allclose(value(outcome), np.mean(chosen, axis=0), atol=2e-7)
    assert list(evaluation.by_severity) == [1, 2, 3, 4, 5]
    for severity, outcome in evaluation.by_severity.items():
        chosen = [values for variant, values in by_variant.items() if variant.severity == severity]
        assert outcome.n_variants == len(chosen) == 3
        np.testing.assert_allclose(value(outcome), np.mean(chosen, axis=0), atol=2e-7)


def test_attacks_have_no_part_in_the_means_over_corruptions() -> None:
    both = evaluate((SOME_VARIANT, 0.7), (Variant("attack", "pgd", epsilon=0.1), 3.0))
    assert both.mean is not None
    assert both.mean == both.variants[0].outcome
    assert [len(both.corruptions), len(both.attacks)] == [1, 1]
    assert attack_evaluation().mean is None


def test_differences_from_ned_are_paired() -> None:
    """An interval of unpaired queries would be as wide as those of both."""
    mean = corruption_evaluation().mean
    assert mean is not None
    ned, gou = mean.of(NED), mean.of(Method("gou"))
    gap = gou.accuracy_less_ned
    assert gap.estimate == pytest.approx(gou.accuracy.estimate - ned.accuracy.estimate, abs=2e-7)
    unpaired = np.hypot(gou.accuracy.high - gou.accuracy.low, ned.accuracy.high - ned.accuracy.low)
    assert gap.high - gap.low < unpaired / 2
    assert ned.ece_less_ned.low == ned.ece_less_ned.high == 0


def test_what_the_head_does_is_paired_by_query_and_in_every_mean() -> None:
    found = corruption_evaluation().mean
    assert found is not None
    alone, whole = found.of(NEIGHBORS_ALONE), found.of(DEFAULT)
    for change, name in ((found.head_gain, "accuracy"), (found.head_ece_change, "ece")):
        assert change is not None
        before, after = alone.interval(name), whole.interval(name)
        assert change.estimate == pytest.approx(after.estimate - before.estimate, abs=3e-7)
        assert change.low < change.estimate < change.high
        # Both err on the same queries, so their difference is known better than either.
        assert change.high - change.low < after.high - after.low


def test_files_without_nearsure_can_be_read() -> None:
    outcome = corruption_evaluation().clean
    fields = outcome.to_dict()
    for method in (NEIGHBORS_ALONE, DEFAULT):
        del fields["methods"][f"{method.base}-raw"]
    del fields["head_gain"], fields["head_ece_change"]
    back = Outcome.from_dict(fields)
    assert [result.method for result in back.results] == list(METHODS[:-2])
    assert back.head_gain is None
    assert back.lowest_ece().method in METHODS[:-2]


def test_damage_shows() -> None:
    """Moved queries are right less often, and a constant answer claims too much by just that."""
    first, last = (corruption_evaluation().by_severity[severity] for severity in (1, 5))
    for rule in ("1nn", "knn", "ned"):
        assert last.of(Method(rule)).accuracy.high < first.of(Method(rule)).accuracy.low
    constant = Method("1nn", "platt")
    mean = last.of(constant)
    assert mean.confidence.estimate == first.of(constant).confidence.estimate
    assert mean.overconfidence.estimate > 0.1
    assert mean.ece.estimate == pytest.approx(mean.overconfidence.estimate, abs=2e-7)


def test_circumstances() -> None:
    evaluation = corruption_evaluation()
    assert (evaluation.n_gallery, evaluation.n_queries, evaluation.n_classes) == (
        180,
        150,
        N_CLASSES,
    )
    assert (evaluation.k, evaluation.n_resamples) == (K, N_RESAMPLES)
    assert evaluation.temperature_fit == frozen().temperature_fit
    assert evaluation.notes == frozen().notes


def test_to_json_and_back() -> None:
    for made in (corruption_evaluation(), attack_evaluation()):
        fields = to_plain(made)
        back = from_plain(RobustEvaluation, json.loads(json.dumps(fields, allow_nan=False)))
        assert to_plain(back) == fields
        # A fit with its arrays equals only itself.
        assert replace(back, temperature_fit=made.temperature_fit) == made


def test_what_is_unknown_becomes_none_in_json() -> None:
    found = evaluate((SOME_VARIANT, 0.7))
    outcome = found.variants[0].outcome
    nothing = replace(
        outcome.of(NED).confidence_when_wrong,
        estimate=np.nan,
        low=np.nan,
        high=np.nan,
        n_undefined=4,
    )
    result = replace(outcome.of(NED), confidence_when_wrong=nothing)
    fields = result.to_dict()
    assert fields["confidence_when_wrong"] == [None, None, None, 4]
    back = type(result).from_dict(NED, fields)
    assert np.isnan(back.confidence_when_wrong.estimate)
    assert back.confidence_when_wrong.n_undefined == 4


def test_the_seed_decides() -> None:
    one, same = (evaluate((SOME_VARIANT, 0.7), seed=1) for _ in range(2))
    assert one == same
    other = evaluate((SOME_VARIANT, 0.7), seed=2)
    assert estimates(one.clean, "ece") == estimates(other.clean, "ece")
    assert one.clean.of(NED).ece != other.clean.of(NED).ece


def test_notes() -> None:
    codes = clean().own_codes
    own = evaluate_variants(
        "model",
        "all_against_others",
        frozen(),
        clean=(clean().own, codes),
        variants=[(SOME_VARIANT, clean().own, codes)],
        n_resamples=2,
    )
    assert any("among them those that ask" in note for note in own.notes)
    uneven = evaluate((SOME_VARIANT, 0.1), (Variant("corruption", "snow", 3), 0.2))
    assert any("2 variants in place of 4" in note for note in uneven.notes)


@pytest.mark.parametrize("text", ["{}", '{"model": "a"}', "[]"])
def test_other_json_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError, match="RobustEvaluation must be"):
        from_plain(RobustEvaluation, json.loads(text))


DRAW_SEED = 5
N_DRAWS = 40


def scores(noise: float = 0.6) -> Scores:
    return frozen().scores(moved(noise), clean().query_codes)


def draws(n: int = 150) -> JointBootstrap:
    return JointBootstrap(n, seed=DRAW_SEED, n_resamples=N_DRAWS)


def resampled_rows() -> list[IntArray]:
    rng = np.random.default_rng(DRAW_SEED)
    return [np.arange(150), *(rng.integers(0, 150, size=150) for _ in range(N_DRAWS))]


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
            assert expected.keys() == found.keys()
            for name, value in expected.items():
                assert found[name][draw, place] == pytest.approx(value, abs=1e-12), name


def test_intervals_are_those_of_bootstrap_interval_with_the_same_seed() -> None:
    found = draws().measure(scores())
    for place in range(len(METHODS)):
        confidence, correct = scores().confidence[place], scores().correct[place]
        ece = partial(bootstrap_interval, expected_calibration_error, confidence, correct)
        right = partial(bootstrap_interval, accuracy, correct)
        for values, interval in ((found["ece"], ece), (found["accuracy"], right)):
            expected = interval(seed=DRAW_SEED, n_resamples=N_DRAWS)
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
        seed=DRAW_SEED,
        n_resamples=N_DRAWS,
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
    assert whole.shape == (1 + N_DRAWS, 3)
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
