"""A variance for each class: the appendix's formula, NED where classes are alike, better if not."""

import json

import numpy as np
import pytest
from made_classes import MadeClasses, gaussian_classes, slopes_by_differences

from nearsure.arrays import FloatArray, IntArray
from nearsure.errors import DegenerateTemperatureWarning, InvalidInputError
from nearsure.forms.class_variance import (
    ClassVariance,
    ClassVarianceLoss,
    class_scale_ratios,
    class_variance_weights,
    fit_class_variance,
)
from nearsure.metrics import row_negative_log_likelihoods
from nearsure.neighbors import Neighbors
from nearsure.posterior import aggregate, score
from nearsure.rules import ned_weights
from nearsure.temperature import fit_temperature

N_CLASSES = 8


def narrow_and_wide(seed: int = 0) -> MadeClasses:
    """Half of the classes are three times as wide as the others, and all overlap."""
    widths = np.where(np.arange(N_CLASSES) < N_CLASSES // 2, 0.6, 1.8)
    return gaussian_classes(
        widths[:, None, None] * np.eye(3),
        sizes=np.full(N_CLASSES, 40),
        n_queries=np.full(N_CLASSES, 150),
        spread=1.5,
        seed=seed,
    )


def random_neighbors(seed: int = 0, *, n: int = 60, k: int = 9) -> tuple[Neighbors, IntArray]:
    """Rows with padding of every length but all, each with a neighbour of its own class."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, N_CLASSES, (n, k))
    sq_distances = np.sort(rng.gamma(2.0, 1.0, (n, k)), axis=1)
    return Neighbors(sq_distances, labels, counts=rng.integers(1, k + 1, n)), labels[:, 0]


def test_weights_are_the_appendix_formula() -> None:
    neighbors, _ = random_neighbors()
    ratios = np.random.default_rng(1).uniform(0.5, 2.0, N_CLASSES)
    form = ClassVariance(0.7, eta=0.8, dimension=5.0, scale_ratios=ratios)
    alphas = 0.7 * ratios**0.8 / 2.0
    weights = class_variance_weights(neighbors, form)
    for row in range(len(neighbors)):
        n = neighbors.counts[row]
        alpha = alphas[neighbors.labels[row, :n]]
        formula = np.exp(-neighbors.sq_distances[row, :n] / (2.0 * alpha)) / alpha ** (5.0 / 2.0)
        np.testing.assert_allclose(weights[row, :n], formula / formula.max(), rtol=1e-12)
        assert (weights[row, n:] == 0).all()


def test_eta_of_zero_is_ned_to_the_last_bit() -> None:
    neighbors, _ = random_neighbors()
    form = ClassVariance(0.3, eta=0.0, dimension=256.0, scale_ratios=np.linspace(0.1, 9.0, 8))
    np.testing.assert_array_equal(
        class_variance_weights(neighbors, form), ned_weights(neighbors, 0.3)
    )


def test_nothing_under_or_overflows_in_many_dimensions() -> None:
    neighbors = Neighbors([[1e6, 1e6 + 1, 2e6]], [[0, 1, 2]])
    form = ClassVariance(1e-2, eta=1.0, dimension=4096.0, scale_ratios=np.array([1e-3, 1.0, 1e3]))
    weights = class_variance_weights(neighbors, form)
    assert weights.max() == 1.0
    assert np.isfinite(weights).all()


def test_a_row_of_padding_alone_weighs_nothing() -> None:
    neighbors = Neighbors([[1.0, 2.0], [0.0, 0.0]], [[0, 1], [0, 0]], counts=[2, 0])
    form = ClassVariance(1.0, eta=1.0, dimension=1.0, scale_ratios=np.array([1.0, 2.0]))
    assert (class_variance_weights(neighbors, form)[1] == 0).all()


@pytest.mark.parametrize(
    "parameters", [(0.0, 0.5, 3.0), (-2.0, 1.5, 0.0), (1.0, 0.0, 12.0), (0.5, -0.7, 40.0)]
)
def test_gradient_is_that_of_finite_differences(parameters: tuple[float, ...]) -> None:
    neighbors, labels = random_neighbors()
    rng = np.random.default_rng(2)
    loss = ClassVarianceLoss(
        neighbors, labels, rng.normal(0, 0.5, N_CLASSES), rng.normal(0, 0.5, len(labels))
    )
    at = np.array(parameters)
    numeric = slopes_by_differences(loss, at)
    np.testing.assert_allclose(loss(at)[1], numeric, rtol=1e-6, atol=1e-8)


def test_loss_is_that_of_the_weights_where_points_are_in_their_own_scale() -> None:
    neighbors, labels = random_neighbors()
    ratios = np.random.default_rng(3).uniform(0.5, 2.0, N_CLASSES)
    form = ClassVariance(1.3, eta=0.6, dimension=4.0, scale_ratios=ratios)
    loss = ClassVarianceLoss(neighbors, labels, np.log(ratios), np.log(ratios[labels]))
    p = aggregate(neighbors, class_variance_weights(neighbors, form)).probability_of(labels)
    assert loss(np.array([np.log(1.3), 0.6, 4.0]))[0] == pytest.approx(-np.log(p).mean(), rel=1e-12)


def test_narrow_and_wide_classes_are_better_told_apart_than_by_ned() -> None:
    made = narrow_and_wide()
    own, asked = made.own_neighbors(20), made.query_neighbors(20)
    form = fit_class_variance(own, made.codes, n_classes=N_CLASSES)
    assert form.eta > 0.3
    assert form.temperatures[:4].max() < form.temperatures[4:].min()
    ned = score(asked, temperature=fit_temperature(own, made.codes).temperature)
    with_classes = aggregate(asked, class_variance_weights(asked, form))
    gain = row_negative_log_likelihoods(
        ned, made.query_codes, floor=1e-6
    ) - row_negative_log_likelihoods(with_classes, made.query_codes, floor=1e-6)
    assert gain.mean() > 3 * gain.std() / np.sqrt(len(gain))


def test_a_given_dimension_is_kept_and_too_many_of_them_end_in_ned() -> None:
    made = narrow_and_wide()
    own = made.own_neighbors(20)
    fitted = fit_class_variance(own, made.codes, n_classes=N_CLASSES)
    given = fit_class_variance(own, made.codes, n_classes=N_CLASSES, dimension=fitted.dimension)
    assert given.loss == pytest.approx(fitted.loss, abs=1e-6)
    absurd = fit_class_variance(own, made.codes, n_classes=N_CLASSES, dimension=4096.0)
    assert absurd.dimension == 4096.0
    assert absurd.temperatures.max() / absurd.temperatures.min() < 1.01


def test_fit_is_never_worse_than_ned_on_its_own_points_and_follows_the_unit() -> None:
    made = narrow_and_wide(seed=1)
    own = made.own_neighbors(15)
    form = fit_class_variance(own, made.codes, n_classes=N_CLASSES)
    assert form.loss < fit_temperature(own, made.codes).loss
    scaled = Neighbors(100.0 * own.sq_distances, own.labels)
    in_other_unit = fit_class_variance(scaled, made.codes, n_classes=N_CLASSES)
    np.testing.assert_allclose(in_other_unit.temperatures, 100.0 * form.temperatures, rtol=1e-4)


def test_where_t_is_not_determined_the_form_is_ned() -> None:
    apart = Neighbors([[0.1, 9.0]] * 4, [[0, 1], [0, 1], [1, 0], [1, 0]])
    with pytest.warns(DegenerateTemperatureWarning):
        form = fit_class_variance(apart, [0, 0, 1, 1], n_classes=2)
    assert form.eta == 0


def test_scales_are_shrunk_means_with_the_variances_of_an_anova() -> None:
    made = narrow_and_wide()
    own = made.own_neighbors(20)
    ratios, own_ratios = class_scale_ratios(own, made.codes, n_classes=N_CLASSES)
    scales = naive_scales(own, made.codes)
    by_class = [scales[made.codes == c] for c in range(N_CLASSES)]
    within = np.mean([values.var(ddof=1) for values in by_class])
    between = np.var([values.mean() for values in by_class], ddof=1) - within / 40
    prior = within / between
    expected = [(v.sum() / scales.mean() + prior) / (40 + prior) for v in by_class]
    np.testing.assert_allclose(ratios, expected, rtol=1e-12)
    rest = (by_class[2].sum() - by_class[2][7]) / scales.mean()
    assert own_ratios[2 * 40 + 7] == pytest.approx((rest + prior) / (39 + prior), rel=1e-12)


def naive_scales(neighbors: Neighbors, codes: IntArray) -> FloatArray:
    scales = []
    for distances, labels, code in zip(
        neighbors.sq_distances, neighbors.labels, codes, strict=True
    ):
        own = distances[labels == code]
        scales.append(own[0] if own.size else distances[-1])
    return np.array(scales)


def test_classes_that_differ_by_less_than_chance_have_one_scale() -> None:
    # Every class holds the same two scales, so their means do not differ at all.
    neighbors = Neighbors([[1.0], [3.0]] * 3, [[0], [0], [1], [1], [2], [2]])
    ratios, own_ratios = class_scale_ratios(neighbors, np.array([0, 0, 1, 1, 2, 2]), n_classes=3)
    assert (ratios == 1).all()
    assert (own_ratios == 1).all()


def test_single_members_unseen_classes_and_duplicates_have_a_scale() -> None:
    neighbors = Neighbors(
        [[0.0], [0.0], [1.0], [1.2], [4.0], [4.1], [7.0]], [[0], [0], [1], [1], [2], [2], [0]]
    )
    ratios, own_ratios = class_scale_ratios(neighbors, np.array([0, 0, 1, 1, 2, 2, 3]), n_classes=5)
    assert ratios[3] == ratios[4] == own_ratios[6] == 1
    assert (ratios > 0).all()
    assert (own_ratios > 0).all()


def test_a_form_survives_json() -> None:
    form = ClassVariance(0.5, eta=0.25, dimension=3.0, scale_ratios=np.array([0.5, 2.0]))
    restored = ClassVariance.from_dict(json.loads(json.dumps(form.to_dict())))
    np.testing.assert_array_equal(restored.temperatures, form.temperatures)
    assert (restored.eta, restored.dimension) == (0.25, 3.0)
    assert np.isnan(restored.loss)


def test_errors_say_what_is_allowed() -> None:
    ratios = np.ones(2)
    pair = Neighbors([[1.0], [1.0]], [[0], [0]])
    with pytest.raises(InvalidInputError, match=r"dimension must be .* Got -1"), pytest.warns():
        fit_class_variance(pair, [0, 0], n_classes=1, dimension=-1.0)
    with pytest.raises(InvalidInputError, match=r"below the number of classes, 2\. Got 7"):
        class_variance_weights(Neighbors([[1.0]], [[7]]), ClassVariance(1.0, 1.0, 1.0, ratios))
    with pytest.raises(InvalidInputError, match=r"codes must lie in \[0, 2\)"):
        class_scale_ratios(Neighbors([[1.0]], [[1]]), np.array([2]), n_classes=2)
