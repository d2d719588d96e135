"""T by leave-one-out likelihood: the right minimum, honestly reported."""

import json
import warnings
from itertools import pairwise

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from nearsure import NEDClassifier, Neighbors, TemperatureFit, fit_temperature
from nearsure.arrays import FloatArray, IntArray
from nearsure.errors import (
    DegenerateTemperatureWarning,
    InvalidInputError,
    ManyMissesWarning,
    NearCopiesWarning,
)
from nearsure.temperature import ObjectiveName, build_objective

OBJECTIVES: tuple[ObjectiveName, ...] = ("nll", "brier", "top_label")


def overlapping_classes(
    n_points: int = 300, *, seed: int = 0, sample: int = 0, n_classes: int = 4, k: int = 20
) -> tuple[Neighbors, IntArray]:
    """Leave-one-out neighbours of Gaussian classes that overlap, by brute force."""
    centres = 1.5 * np.random.default_rng(seed).normal(size=(n_classes, 3))
    rng = np.random.default_rng([seed, sample])
    labels = rng.integers(0, n_classes, n_points)
    points = centres[labels] + rng.normal(size=(n_points, 3))
    sq_distances = np.square(points[:, None] - points[None]).sum(axis=2)
    np.fill_diagonal(sq_distances, np.inf)
    ids = np.argsort(sq_distances, axis=1)[:, :k]
    return Neighbors(np.take_along_axis(sq_distances, ids, axis=1), labels[ids], ids), labels


def naive_losses(
    neighbors: Neighbors, labels: IntArray, temperature: float, objective: ObjectiveName
) -> FloatArray:
    """The three losses, point by point and class by class, as they are defined."""
    losses = []
    for distances, classes, label in zip(
        neighbors.sq_distances, neighbors.labels, labels, strict=True
    ):
        weights = np.exp(-distances / temperature)
        p = {c: weights[classes == c].sum() / weights.sum() for c in set(classes)}
        if objective == "nll":
            losses.append(-np.log(p[label]))
        elif objective == "brier":
            hit = sum((p[c] - (c == label)) ** 2 for c in p)
            losses.append(hit + (label not in p))
        else:
            best = max(p, key=p.__getitem__)
            losses.append(-np.log(p[best] if best == label else 1 - p[best]))
    return np.array(losses)


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("temperature", [0.3, 2.0, 50.0])
def test_losses_are_those_of_the_definition(objective: ObjectiveName, temperature: float) -> None:
    neighbors, labels = overlapping_classes()
    hit = (neighbors.labels == labels[:, None]).any(axis=1)
    neighbors, labels = neighbors.take(hit), labels[hit]
    losses, _ = build_objective(objective, neighbors, labels)(np.log(temperature))
    np.testing.assert_allclose(
        losses, naive_losses(neighbors, labels, temperature, objective), rtol=1e-9, atol=1e-12
    )


@pytest.mark.parametrize("objective", ["brier", "top_label"])
def test_missed_points_stay_in_the_other_objectives(objective: ObjectiveName) -> None:
    neighbors = Neighbors([[0.0, 1.0, 1.5], [0.5, 0.8, 2.0]], [[0, 1, 1], [1, 0, 1]])
    labels = np.array([5, 0])
    losses, _ = build_objective(objective, neighbors, labels)(0.0)
    np.testing.assert_allclose(losses, naive_losses(neighbors, labels, 1.0, objective))


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("log_temperature", [-2.0, 0.0, 3.0])
def test_derivatives_match_finite_differences(
    objective: ObjectiveName, log_temperature: float
) -> None:
    neighbors, labels = overlapping_classes()
    hit = (neighbors.labels == labels[:, None]).any(axis=1)
    loss = build_objective(objective, neighbors.take(hit), labels[hit])
    step = 1e-6
    numeric = (loss(log_temperature + step)[0] - loss(log_temperature - step)[0]) / (2 * step)
    np.testing.assert_allclose(loss(log_temperature)[1], numeric, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("objective", ["nll", "brier"])
@pytest.mark.parametrize("seed", range(3))
def test_finds_the_minimum_that_a_dense_scan_finds(objective: ObjectiveName, seed: int) -> None:
    neighbors, labels = overlapping_classes(150, seed=seed, k=60)
    hit = (neighbors.labels == labels[:, None]).any(axis=1)
    neighbors, labels = neighbors.take(hit), labels[hit]

    def mean_loss(log_temperature: float) -> float:
        return float(naive_losses(neighbors, labels, np.exp(log_temperature), objective).mean())

    scan = np.linspace(-4, 5, 60)
    best = scan[np.argmin([mean_loss(log_temperature) for log_temperature in scan])]
    truth = minimize_scalar(mean_loss, bounds=(best - 0.3, best + 0.3), method="bounded")
    fit = fit_temperature(neighbors, labels, objective=objective)
    assert fit.status == "interior"
    assert fit.loss == pytest.approx(truth.fun, abs=1e-9)
    assert np.log(fit.temperature) == pytest.approx(truth.x, abs=1e-3)


@pytest.mark.parametrize("n_points", [300, 1500])
def test_top_label_is_within_a_hair_of_a_dense_scan(n_points: int) -> None:
    """The loss jumps wherever a prediction changes, so that no scan finds its very bottom."""
    neighbors, labels = overlapping_classes(n_points, k=60)
    fit = fit_temperature(neighbors, labels, objective="top_label")
    loss = build_objective("top_label", neighbors, labels)
    scan = [loss(log_t)[0].mean() for log_t in np.log(fit.temperature) + np.linspace(-3, 3, 601)]
    assert fit.loss <= min(scan) + 0.001


def test_large_fits_agree_with_a_scan_of_all_points() -> None:
    """The grid looks at a sample; the answer must still be that of all the points."""
    neighbors, labels = overlapping_classes(3500)
    fit = fit_temperature(neighbors, labels)
    hit = (neighbors.labels == labels[:, None]).any(axis=1)
    loss = build_objective("nll", neighbors.take(hit), labels[hit])
    scan = np.log(fit.temperature) + np.linspace(-4, 4, 400)
    losses = [loss(log_temperature)[0].mean() for log_temperature in scan]
    assert abs(scan[np.argmin(losses)] - np.log(fit.temperature)) <= 0.011


def test_scales_with_the_data() -> None:
    neighbors, labels = overlapping_classes()
    scaled = Neighbors(neighbors.sq_distances * 1e6, neighbors.labels)
    small, large = fit_temperature(neighbors, labels), fit_temperature(scaled, labels)
    assert large.temperature == pytest.approx(1e6 * small.temperature, rel=1e-5)
    assert large.standard_error == pytest.approx(1e6 * small.standard_error, rel=1e-3)


def test_does_not_depend_on_what_the_classes_are_called() -> None:
    neighbors, labels = overlapping_classes()
    renamed = np.array([7, 100, 3, 55])
    fit = fit_temperature(
        Neighbors(neighbors.sq_distances, renamed[neighbors.labels]), renamed[labels]
    )
    assert fit.temperature == pytest.approx(fit_temperature(neighbors, labels).temperature)


def test_likelihood_survives_an_own_class_that_is_far_away() -> None:
    """exp(-5000) is 0 in floating point, its logarithm is not."""
    neighbors = Neighbors([[0.0, 5000.0], [0.0, 1.0], [0.0, 1.0]], [[1, 0], [0, 1], [0, 1]])
    losses, slopes = build_objective("nll", neighbors, np.array([0, 0, 0]))(0.0)
    assert losses[0] == pytest.approx(5000.0)
    assert np.isfinite(slopes).all()


def test_curve_holds_the_minimum_and_ascends_in_temperature() -> None:
    fit = fit_temperature(*overlapping_classes())
    assert all(low < high for low, high in pairwise(fit.curve_temperatures))
    assert fit.curve_losses.min() == pytest.approx(fit.loss, abs=1e-9)
    assert fit.curve_temperatures[fit.curve_losses.argmin()] == pytest.approx(
        fit.temperature, rel=1e-3
    )


def padded(neighbors: Neighbors, seed: int = 0) -> Neighbors:
    """The same neighbours, some rows cut short."""
    counts = np.random.default_rng(seed).integers(neighbors.k // 2, neighbors.k + 1, len(neighbors))
    return Neighbors(neighbors.sq_distances, neighbors.labels, counts=counts)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_padding_takes_no_part_in_losses_and_derivatives(objective: ObjectiveName) -> None:
    neighbors, labels = overlapping_classes()
    neighbors = padded(neighbors)
    hit = (neighbors.labels == labels[:, None]).any(axis=1)
    neighbors, labels = neighbors.take(hit), labels[hit]
    loss = build_objective(objective, neighbors, labels)
    together = np.array(loss(0.3))
    for i in range(0, len(labels), 20):
        alone = neighbors.take(np.array([i])).first(int(neighbors.counts[i]))
        np.testing.assert_allclose(
            np.ravel(build_objective(objective, alone, labels[[i]])(0.3)), together[:, i]
        )


@pytest.mark.parametrize("objective", ["nll", "brier"])
def test_fit_on_padded_neighbours_is_at_the_minimum(objective: ObjectiveName) -> None:
    neighbors, labels = overlapping_classes(k=60)
    neighbors = padded(neighbors)
    fit = fit_temperature(neighbors, labels, objective=objective)
    hit = (neighbors.labels == labels[:, None]).any(axis=1) | (objective != "nll")
    loss = build_objective(objective, neighbors.take(hit), labels[hit])
    assert abs(loss(np.log(fit.temperature))[1].mean()) < 1e-6
    assert fit.standard_error > 0


def test_all_neighbours_with_groups_are_those_that_groups_leave() -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 120)
    points = rng.normal(size=(3, 5))[labels] + rng.normal(size=(120, 5))
    pairs = np.arange(120) // 2
    everything = NEDClassifier("all").fit(points, labels, groups=pairs)
    as_many_as_are_left = NEDClassifier(118).fit(points, labels, groups=pairs)
    assert everything.temperature_ == pytest.approx(as_many_as_are_left.temperature_, rel=1e-5)


@pytest.mark.parametrize("scale", [1e-160, 1e-30, 1e30, 1e300])
def test_no_scale_of_the_distances_is_too_large_or_small(scale: float) -> None:
    neighbors, labels = overlapping_classes()
    scaled = Neighbors(neighbors.sq_distances * scale, neighbors.labels)
    expected = scale * fit_temperature(neighbors, labels).temperature
    assert fit_temperature(scaled, labels).temperature == pytest.approx(expected, rel=1e-5)


def test_a_sample_that_says_nothing_is_not_the_last_word() -> None:
    """Every other point sees only equally far neighbours, and the grid's sample is these."""
    neighbors, labels = overlapping_classes(1000)
    mute = Neighbors(
        np.stack([np.ones_like(neighbors.sq_distances), neighbors.sq_distances], 1).reshape(
            2000, -1
        ),
        np.repeat(neighbors.labels, 2, axis=0),
    )
    fit = fit_temperature(mute, np.repeat(labels, 2))
    assert fit.status == "interior"
    assert fit.temperature == pytest.approx(
        fit_temperature(neighbors, labels).temperature, rel=1e-4
    )


def test_curve_of_a_large_fit_is_of_all_points_and_wide() -> None:
    neighbors, labels = overlapping_classes(1500)
    fit = fit_temperature(neighbors, labels)
    assert fit.curve_temperatures[0] <= fit.temperature / 99
    assert fit.curve_temperatures[-1] >= fit.temperature * 99
    hit = (neighbors.labels == labels[:, None]).any(axis=1)
    loss = build_objective("nll", neighbors.take(hit), labels[hit])
    for temperature, mean in zip(fit.curve_temperatures, fit.curve_losses, strict=True):
        assert loss(np.log(temperature))[0].mean() == pytest.approx(mean)


def test_standard_error_is_the_spread_over_independent_galleries() -> None:
    fits = [fit_temperature(*overlapping_classes(500, seed=0, sample=s, k=60)) for s in range(40)]
    spread = np.std([np.log(fit.temperature) for fit in fits], ddof=1)
    claimed = np.mean([fit.standard_error / fit.temperature for fit in fits])
    assert 0.6 < spread / claimed < 1.6


def test_round_trip_through_json() -> None:
    fit = fit_temperature(*overlapping_classes())
    again = TemperatureFit.from_dict(json.loads(json.dumps(fit.to_dict())))
    assert again.to_dict() == fit.to_dict()


class TestMisses:
    def test_are_left_out_of_the_likelihood_and_counted(self) -> None:
        neighbors, labels = overlapping_classes()
        lonely = Neighbors(
            np.vstack([neighbors.sq_distances, neighbors.sq_distances[:5]]),
            np.vstack([neighbors.labels, neighbors.labels[:5]]),
        )
        without = fit_temperature(neighbors, labels)
        with_lonely = fit_temperature(lonely, np.append(labels, [99] * 5))
        assert with_lonely.temperature == without.temperature
        assert with_lonely.n_missed == without.n_missed + 5
        assert with_lonely.n_used == without.n_used

    def test_more_than_a_tenth_warn_and_say_what_to_do(self) -> None:
        neighbors, labels = overlapping_classes()
        labels = np.where(np.arange(len(labels)) < 40, 99, labels)
        with pytest.warns(ManyMissesWarning, match=r"of 300 .* use a larger k, or give small"):
            fit_temperature(neighbors, labels)

    def test_fewer_than_a_tenth_do_not(self) -> None:
        neighbors, labels = overlapping_classes()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            fit_temperature(neighbors, np.where(np.arange(len(labels)) < 25, 99, labels))

    def test_nothing_but_misses_is_an_error(self) -> None:
        with pytest.raises(InvalidInputError, match="say nothing about T"):
            fit_temperature(Neighbors([[0.0, 1.0]], [[0, 1]]), [2])

    def test_a_class_of_one_member_is_a_miss(self) -> None:
        rng = np.random.default_rng(0)
        labels = np.append(rng.integers(0, 2, 59), 2)
        points = rng.normal(size=(60, 2)) + 2 * labels[:, None]
        fit = NEDClassifier().fit(points, labels).temperature_fit_
        assert fit is not None
        assert (fit.n_used, fit.n_missed) == (59, 1)


class TestDegenerate:
    def test_duplicates_drive_it_to_zero_and_are_named(self) -> None:
        rng = np.random.default_rng(0)
        points = np.repeat(rng.normal(size=(50, 4)), 2, axis=0)
        labels = np.repeat(rng.integers(0, 3, 50), 2)
        with (
            pytest.warns(DegenerateTemperatureWarning, match=r"100 of 100 .* groups="),
            pytest.warns(NearCopiesWarning, match="groups="),
        ):
            NEDClassifier().fit(points, labels)

    def test_groups_are_the_remedy(self) -> None:
        rng = np.random.default_rng(0)
        labels = rng.integers(0, 3, 150)
        points = rng.normal(size=(3, 4))[labels] + rng.normal(size=(150, 4))
        twice, groups = np.repeat(points, 2, axis=0), np.repeat(np.arange(150), 2)
        fitted = NEDClassifier(n_neighbors=40).fit(twice, np.repeat(labels, 2), groups=groups)
        once = NEDClassifier(n_neighbors=20).fit(points, labels)
        assert fitted.temperature_ == pytest.approx(once.temperature_, rel=1e-3)

    def test_perfect_separation_takes_the_largest_that_the_data_allow(self) -> None:
        rng = np.random.default_rng(0)
        labels = np.repeat([0, 1], 30)
        points = rng.normal(size=(60, 2)) + 8 * labels[:, None]
        with pytest.warns(DegenerateTemperatureWarning, match="nearest neighbour is of the right"):
            classifier = NEDClassifier().fit(points, labels)
        fit = classifier.temperature_fit_
        assert fit is not None
        assert fit.status == "low"
        assert fit.loss * fit.n_used == pytest.approx(0.5, rel=0.01)
        assert np.isnan(fit.standard_error)

    def test_labels_that_distances_do_not_know_drive_it_up(self) -> None:
        rng = np.random.default_rng(1)
        sq_distances = np.sort(rng.random((200, 10)), axis=1)
        far_is_right = np.tile(np.arange(10) >= 5, (200, 1)).astype(int)
        with pytest.warns(DegenerateTemperatureWarning, match="NED becomes kNN"):
            fit = fit_temperature(Neighbors(sq_distances, far_is_right), np.ones(200, int))
        assert fit.status == "high"

    def test_near_duplicates_are_thought_of(self) -> None:
        rng = np.random.default_rng(0)
        points = np.repeat(rng.normal(size=(50, 4)), 2, axis=0) + 1e-4 * rng.normal(size=(100, 4))
        labels = np.repeat(rng.integers(0, 3, 50), 2)
        with (
            pytest.warns(DegenerateTemperatureWarning, match="groups="),
            pytest.warns(NearCopiesWarning, match="groups="),
        ):
            NEDClassifier().fit(points, labels)

    def test_misses_are_never_more_than_all_points(self) -> None:
        neighbors = Neighbors(
            [[0.0, 1.0, 3.0]] * 6, [[0, 1, 1], [1, 0, 1], [0, 1, 0]] * 2, counts=[3, 3, 3, 0, 0, 0]
        )
        with pytest.warns(ManyMissesWarning):
            fit = fit_temperature(neighbors, [0, 0, 1, 1, 1, 1], objective="brier")
        assert fit.miss_fraction == 0.5

    @pytest.mark.parametrize("sq_distances", [[[0.0, 1.0]] * 3, [[0.0, 0.0]] * 3])
    def test_one_class_says_nothing_about_it(self, sq_distances: list[list[float]]) -> None:
        with pytest.warns(DegenerateTemperatureWarning, match="same at every temperature"):
            fit = fit_temperature(Neighbors(sq_distances, [[0, 0]] * 3), [0, 0, 0])
        assert fit.status == "flat"
        assert fit.temperature > 0


class TestBadInput:
    def test_labels_of_another_length(self) -> None:
        with pytest.raises(InvalidInputError, match="one class code for each of the 1 points"):
            fit_temperature(Neighbors([[0.0, 1.0]], [[0, 1]]), [0, 1])

    def test_labels_that_are_not_codes(self) -> None:
        with pytest.raises(InvalidInputError, match=r"numpy\.unique"):
            fit_temperature(Neighbors([[0.0, 1.0]], [[0, 1]]), ["cat"])

    def test_unknown_objective(self) -> None:
        with pytest.raises(InvalidInputError, match="'nll', 'brier', 'top_label'"):
            fit_temperature(Neighbors([[0.0, 1.0]], [[0, 1]]), [0], objective="mse")  # type: ignore[arg-type]
