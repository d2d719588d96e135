"""The sweep: NED at T is NED, at a huge T it is kNN, at a tiny one 1NN."""

import json
from dataclasses import asdict

import pytest
from experiments import evaluation, found

from nearsure import fit_temperature, score
from nearsure.lab.cache import from_plain
from nearsure.lab.evaluation import Sweep, temperature_and_k_sweep
from nearsure.lab.tables import sweep_table


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
