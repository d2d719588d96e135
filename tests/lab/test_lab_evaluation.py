"""Evaluations and sweeps: figures by hand, and the same from JSON."""

import json
import warnings
from collections.abc import Callable
from dataclasses import asdict, replace
from inspect import signature

import numpy as np
import pytest
from experiments import cub200, evaluation, found

from nearsure import fit_temperature, score
from nearsure.errors import FitWarning, InvalidInputError
from nearsure.lab.cache import from_plain, to_plain
from nearsure.lab.evaluation import Evaluation, Sweep, evaluate, temperature_and_k_sweep
from nearsure.lab.experiment import EvaluationSettings
from nearsure.lab.protocols import ProtocolNeighbors, all_against_others, given_gallery
from nearsure.lab.robust.evaluation import evaluate_variants
from nearsure.lab.tables import sweep_table
from nearsure.metrics import expected_calibration_error
from nearsure.rules import RULE_NAMES, RuleName


def figures(data: ProtocolNeighbors, rule: RuleName, k: int) -> tuple[float, float]:
    temperature = fit_temperature(data.own.first(k), data.own_codes).temperature
    posterior = score(
        data.queries.first(k), rule=rule, temperature=temperature if rule == "ned" else None
    )
    correct = posterior.labels == data.query_codes
    return float(correct.mean()), expected_calibration_error(posterior.confidence, correct)


@pytest.mark.parametrize("rule", RULE_NAMES)
def test_comparison_curve_and_bins_agree_with_plain_calls(rule: RuleName) -> None:
    result, curve = evaluation().result_of(rule), evaluation().curve
    expected = figures(found(), rule, 20)
    assert (result.accuracy.estimate, result.ece.estimate) == expected
    place = curve.ks.index(20)
    assert (curve.accuracy[rule][place], curve.ece[rule][place]) == expected
    assert (curve.accuracy[rule][-1], curve.ece[rule][-1]) == figures(found(), rule, 35)
    bins = evaluation().reliability[rule]
    assert len(bins) == 15
    assert bins.counts.sum() == 240
    assert np.nansum(bins.weights * np.abs(bins.gap)) == pytest.approx(expected[1])


def test_what_was_asked_is_kept() -> None:
    done = evaluation()
    assert (done.n_gallery, done.n_queries, done.n_classes, done.k) == (240, 240, 8, 20)
    assert done.curve.ks == (1, 2, 3, 5, 10, 20, 35)
    assert done.temperature_fit.temperature == pytest.approx(
        fit_temperature(found().own.first(20), found().own_codes).temperature
    )


def test_json_comes_back_whole() -> None:
    text = json.dumps(to_plain(evaluation()))
    again = from_plain(Evaluation, json.loads(text))
    assert json.dumps(to_plain(again)) == text
    assert again.comparison == evaluation().comparison
    assert again.curve == evaluation().curve
    for rule in RULE_NAMES:
        ours, theirs = evaluation().reliability[rule], again.reliability[rule]
        for name in ("edges", "counts", "mean_confidence", "accuracy"):
            np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name))
    assert "NaN" not in text  # 1NN fills one bin of fifteen
    assert np.isnan(again.reliability["1nn"].accuracy[0])


def test_nan_of_a_degenerate_fit_and_of_an_interval_survives_json() -> None:
    result = evaluation().comparison[0]
    holed = replace(
        evaluation(),
        comparison=(replace(result, ece=replace(result.ece, low=np.nan, high=np.nan)),),
        temperature_fit=replace(evaluation().temperature_fit, standard_error=np.nan),
    )
    again = from_plain(Evaluation, json.loads(json.dumps(to_plain(holed))))
    assert np.isnan(again.comparison[0].ece.low)
    assert np.isnan(again.temperature_fit.standard_error)


@pytest.mark.parametrize("text", ["[]", '{"protocol": "given_gallery"}'])
def test_other_json_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError, match="Evaluation must be"):
        from_plain(Evaluation, json.loads(text))


def test_unknown_fields_are_refused() -> None:
    fields = {**to_plain(evaluation()), "flavour": 1}
    with pytest.raises(InvalidInputError, match="flavour"):
        from_plain(Evaluation, fields)


def test_warnings_of_the_fit_become_notes() -> None:
    rng = np.random.default_rng(1)
    noise = all_against_others(rng.standard_normal((90, 3)), np.repeat(np.arange(30), 3), k=5)
    with pytest.warns(FitWarning) as warned:
        fit_temperature(noise.own, noise.own_codes)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        done = evaluate(noise, k=5, seed=0, n_resamples=5)
    assert done.notes == tuple(str(warning.message) for warning in warned)
    assert any("support points have no neighbour" in note for note in done.notes)
    assert from_plain(Evaluation, json.loads(json.dumps(to_plain(done)))).notes == done.notes


def test_unknown_queries_are_wrong_under_every_rule() -> None:
    data = found()
    unknown = np.where(np.arange(240) < 60, 8, data.query_codes)
    asked = ProtocolNeighbors("given_gallery", data.own, data.own_codes, data.queries, unknown, 8)
    done = evaluate(asked, k=20, seed=0, n_resamples=5, ks=[20])
    assert done.n_unknown_queries == 60
    for rule in RULE_NAMES:
        temperature = done.temperature_fit.temperature if rule == "ned" else None
        labels = score(data.queries.first(20), rule=rule, temperature=temperature).labels
        right = (labels == data.query_codes)[60:].sum()
        assert done.result_of(rule).accuracy.estimate == right / 240


def test_queries_that_are_copies_of_the_gallery_are_noted() -> None:
    vectors = np.random.default_rng(0).standard_normal((30, 3))
    codes = np.repeat(np.arange(3), 10)
    asked = given_gallery(
        vectors, codes, np.vstack([vectors[:2], vectors[2:9] + 9]), codes[:9], k=9
    )
    notes = evaluate(asked, k=9, seed=0, n_resamples=5, ks=[9]).notes
    assert any(note.startswith("2 of 9 queries equal a gallery point") for note in notes)


def test_more_neighbours_than_were_searched_are_refused() -> None:
    with pytest.raises(InvalidInputError, match=r"k must lie in \[1, 40\]"):
        evaluate(found(), k=41, seed=0)


def test_reference_figures_of_cub200() -> None:
    done = evaluate(cub200(), k=50, seed=0, n_resamples=5, ks=[50])
    expected: dict[RuleName, tuple[float, float]] = {"ned": (63.88, 8.15), "dudani": (64.55, 19.2)}
    for rule, (right, error) in expected.items():
        result = done.result_of(rule)
        assert 100 * result.accuracy.estimate == pytest.approx(right, abs=0.05)
        assert 100 * result.ece.estimate == pytest.approx(error, abs=0.05)


@pytest.mark.parametrize("resamples", [evaluate, evaluate_variants, EvaluationSettings])
def test_whatever_has_intervals_draws_1000_resamples_by_default(
    resamples: Callable[..., object],
) -> None:
    assert signature(resamples).parameters["n_resamples"].default == 1000


def test_factor_1_is_the_evaluation() -> None:
    sweep = temperature_and_k_sweep(found(), ks=[10, 20], factors=[0.5, 1.0, 2.0])
    ned = evaluation().result_of("ned")
    assert sweep.accuracy[1][1] == ned.accuracy.estimate
    assert sweep.ece[1][1] == ned.ece.estimate
    assert sweep.baseline_accuracy["gou"][1] == evaluation().result_of("gou").accuracy.estimate
    assert sweep.baseline_ece["dudani"][1] == evaluation().result_of("dudani").ece.estimate


def test_factors_multiply_the_temperature_of_each_k() -> None:
    sweep = temperature_and_k_sweep(found(), ks=[12, 30], factors=[3.0])
    for place, k in enumerate((12, 30)):
        temperature = fit_temperature(found().own.first(k), found().own_codes).temperature
        assert sweep.temperatures[place] == temperature
        labels = score(found().queries.first(k), temperature=3 * temperature).labels
        assert sweep.accuracy[place] == ((labels == found().query_codes).mean(),)


def test_the_limits_are_1nn_and_knn() -> None:
    sweep = temperature_and_k_sweep(found(), ks=[20], factors=[1e-9, 1e9])
    assert sweep.accuracy[0][0] == evaluation().result_of("1nn").accuracy.estimate
    assert sweep.ece[0][1] == pytest.approx(evaluation().result_of("knn").ece.estimate, abs=0.01)
    assert sweep.voters[0] == pytest.approx((1.0, 20.0))
    assert sweep.baseline_voters["knn"] == (20.0,)
    # Dudani's weights fall to 0 at the last neighbour; linear ones make 3/4 of k.
    assert 1 < sweep.baseline_voters["dudani"][0] < 19


def test_best_factor_and_baseline() -> None:
    sweep = temperature_and_k_sweep(found(), ks=[20, 40])
    for place, k in enumerate(sweep.ks):
        at_best = sweep.accuracy[place][sweep.factors.index(sweep.best_factor(k))]
        assert at_best == max(sweep.accuracy[place])
        best = sweep.baseline_accuracy[sweep.best_baseline(k)][place]
        assert best == max(rule[place] for rule in sweep.baseline_accuracy.values())
        row = sweep_table(sweep).splitlines()[2 + place]
        assert f"**{100 * at_best:.2f} /" in row


def test_a_sweep_is_plain_json() -> None:
    sweep = temperature_and_k_sweep(found(), ks=[20], factors=[1.0])
    plain = json.loads(json.dumps(asdict(sweep)))
    assert plain["accuracy"] == [[sweep.accuracy[0][0]]]
    assert from_plain(Sweep, plain) == sweep
