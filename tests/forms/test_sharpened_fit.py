"""The fit of sharpened NED: truth recovered, no valley missed, nothing made up without data."""

import json
import warnings

import numpy as np
import pytest
from made_classes import MadeClasses, gaussian_classes
from scipy.optimize import Bounds, differential_evolution

from nearsure.arrays import FloatArray, IntArray
from nearsure.errors import DegenerateTemperatureWarning, InvalidInputError, ManyMissesWarning
from nearsure.forms import SharpenedFit, SharpenedNED, fit_sharpened, sharpened
from nearsure.forms.sharpened import query_scales
from nearsure.loo import own_class_factors
from nearsure.neighbors import Neighbors
from nearsure.temperature import fit_temperature


def made(
    seed: int, *, n_classes: int = 8, size: int = 30, dimension: int = 6, uneven: float = 0.0
) -> MadeClasses:
    """Gaussian classes that overlap; `uneven` lets some be wider than others."""
    widths = np.exp(uneven * np.random.default_rng(seed).normal(size=n_classes))
    return gaussian_classes(
        widths[:, None, None] * np.eye(dimension),
        sizes=np.full(n_classes, size),
        n_queries=np.full(n_classes, 1),
        spread=1.0,
        seed=seed,
    )


def planted(form: SharpenedNED, *, n: int, k: int, seed: int) -> tuple[Neighbors, IntArray]:
    """Points in regions of all scales, each with a label drawn from what the form says."""
    rng = np.random.default_rng(seed)
    scales = np.exp(0.8 * rng.normal(size=(n, 1)))
    sq_distances = np.sort(scales * rng.gamma(2.0, 1.0, (n, k)), axis=1)
    neighbors = Neighbors(sq_distances, rng.integers(0, 4, (n, k)))
    shares = form.posterior(neighbors, n_classes=4).to_csr().toarray().cumsum(axis=1)
    return neighbors, (rng.random((n, 1)) * shares[:, -1:] > shares).sum(axis=1)


def penalised(
    neighbors: Neighbors,
    codes: IntArray,
    form: SharpenedNED,
    factors: FloatArray | None = None,
) -> float:
    """What is minimised, from the posterior alone: the loss, and one observation for NED."""
    posterior = form.posterior(neighbors, own_codes=codes, own_factors=factors)
    losses = -np.log(np.maximum(posterior.probability_of(codes), 1e-300))
    away = np.log(form.sharpness) ** 2 + form.adaptivity**2
    return float(losses.mean() + away / 2 / len(losses))


class TestTruthIsRecovered:
    @pytest.mark.parametrize(
        ("sharpness", "adaptivity"), [(1.0, 0.0), (2.5, 0.0), (0.5, 1.0), (2.0, -0.7), (3.0, 1.2)]
    )
    def test_planted_parameters(self, sharpness: float, adaptivity: float) -> None:
        """Within 4 of the standard errors that it gives itself, and these are small."""
        n = 6000
        typical = float(np.median(query_scales(planted(SharpenedNED(1.0), n=n, k=12, seed=3)[0])))
        truth = SharpenedNED(1.5, sharpness, adaptivity, typical)
        fit = fit_sharpened(*planted(truth, n=n, k=12, seed=3))
        assert fit.standard_errors is not None
        errors = np.array(fit.standard_errors)
        found = [np.log(fit.form.temperature), np.log(fit.form.sharpness), fit.form.adaptivity]
        off = (np.array(found) - [np.log(1.5), np.log(sharpness), adaptivity]) / errors
        assert np.abs(off).max() < 4
        assert (errors < 0.25).all()
        assert fit.form.typical_distance == typical

    def test_standard_errors_are_the_scatter_of_repeated_fits(self) -> None:
        truth = SharpenedNED(1.5, 2.0, 0.8, 2.0)
        found, errors = [], []
        for seed in range(30):
            fit = fit_sharpened(*planted(truth, n=400, k=8, seed=seed))
            form = fit.form
            assert fit.standard_errors is not None
            # Not T, which belongs to the typical distance of each draw.
            found.append([np.log(form.sharpness), form.adaptivity])
            errors.append(fit.standard_errors[1:])
        ratios = np.std(found, axis=0, ddof=1) / np.median(errors, axis=0)
        # Of 30 draws, a standard deviation is known to 13%.
        assert ((ratios > 0.6) & (ratios < 1.5)).all()

    def test_only_what_is_free_is_fitted(self) -> None:
        drawn = planted(SharpenedNED(1.5, 2.0, 1.0, 2.0), n=2000, k=10, seed=0)
        fit = fit_sharpened(*drawn, free="sharpened")
        assert fit.form.adaptivity == 0.0
        assert fit.standard_errors is not None
        assert fit.standard_errors[2] == 0.0
        assert fit_sharpened(*drawn).loss < fit.loss < fit.ned_loss


class TestNoValleyIsMissed:
    @pytest.mark.parametrize("seed", range(2))
    @pytest.mark.parametrize(
        ("n_classes", "size", "uneven"), [(8, 30, 0.0), (20, 8, 0.5), (5, 40, 1.0)]
    )
    def test_no_global_search_finds_better(
        self, seed: int, n_classes: int, size: int, uneven: float
    ) -> None:
        drawn = made(seed, n_classes=n_classes, size=size, uneven=uneven)
        neighbors = drawn.own_neighbors(50)
        hit = (neighbors.labels == drawn.codes[:, None]).any(axis=1)
        factors = own_class_factors(drawn.codes, np.arange(len(drawn.codes)))
        fit = fit_sharpened(neighbors, drawn.codes, own_factors=factors)
        some, codes, own = neighbors.take(hit), drawn.codes[hit], factors[hit]

        def loss(at: FloatArray) -> float:
            form = SharpenedNED(
                fit.temperature_fit.temperature * np.exp(at[0]),
                np.exp(at[1]),
                at[2],
                fit.form.typical_distance,
            )
            return penalised(some, codes, form, own)

        rival = differential_evolution(
            loss,
            Bounds([-2.5, -2.0, -2.0], [4.0, 2.5, 4.0]),
            maxiter=12,
            popsize=8,
            polish=False,
            # `rng` since scipy 1.15, which takes `seed`, too.
            seed=np.random.default_rng(seed),
        )
        assert penalised(some, codes, fit.form, own) <= rival.fun + 1e-9

    @pytest.mark.parametrize("sharpness", [0.3, 5.0])
    def test_it_does_not_stay_at_neds_sharpness(self, sharpness: float) -> None:
        drawn = planted(SharpenedNED(0.5, sharpness, 0.0, 2.0), n=2000, k=10, seed=5)
        fit = fit_sharpened(*drawn)
        assert fit.form.sharpness == pytest.approx(sharpness, rel=0.3)
        assert fit.loss < fit.ned_loss - 0.005

    @pytest.mark.parametrize("seed", range(4))
    def test_all_starts_end_in_one_valley_on_data_as_they_come(self, seed: int) -> None:
        drawn = made(seed, uneven=0.5)
        losses = fit_sharpened(drawn.own_neighbors(30), drawn.codes).start_losses
        assert len(losses) == len(sharpened.STARTS)
        assert max(losses) - min(losses) < 1e-6

    @pytest.mark.parametrize("seed", range(3))
    def test_two_populations_that_want_different_reaches(self, seed: int) -> None:
        """Half the points trust the nearest alone, half the count; the valleys lie far apart."""
        near, near_codes = planted(SharpenedNED(0.02, 1.0, 0.0, 2.0), n=150, k=10, seed=seed)
        far, far_codes = planted(SharpenedNED(50.0, 6.0, 0.0, 2.0), n=150, k=10, seed=seed + 50)
        neighbors = Neighbors(
            np.concatenate([near.sq_distances, far.sq_distances]),
            np.concatenate([near.labels, far.labels]),
        )
        codes = np.concatenate([near_codes, far_codes])
        fit = fit_sharpened(neighbors, codes)
        found = penalised(neighbors, codes, fit.form)
        for log_t in np.linspace(-4.0, 4.0, 9):
            for log_gamma in np.linspace(-2.0, 2.0, 5):
                for beta in (-1.0, 0.0, 1.0, 2.0):
                    form = SharpenedNED(
                        fit.temperature_fit.temperature * np.exp(log_t),
                        np.exp(log_gamma),
                        beta,
                        fit.form.typical_distance,
                    )
                    assert found <= penalised(neighbors, codes, form) + 1e-9


class TestItIsNeverWorseThanNED:
    @pytest.mark.parametrize("seed", range(5))
    @pytest.mark.parametrize("corrected", [True, False])
    def test_in_the_loss_that_it_reports(
        self,
        seed: int,
        corrected: bool,  # noqa: FBT001
    ) -> None:
        drawn = made(seed, size=6, uneven=0.5)
        factors = own_class_factors(drawn.codes, np.arange(48)) if corrected else None
        neighbors = drawn.own_neighbors(47)
        fit = fit_sharpened(neighbors, drawn.codes, own_factors=factors)
        assert fit.loss <= fit.ned_loss
        if not corrected:
            assert fit.ned_loss == pytest.approx(
                fit_temperature(neighbors, drawn.codes).loss, rel=1e-9
            )

    def test_losses_are_means_of_the_points_that_hit(self) -> None:
        drawn = made(1, n_classes=20, size=4)
        neighbors = drawn.own_neighbors(8)
        hit = (neighbors.labels == drawn.codes[:, None]).any(axis=1)
        assert 0 < hit.sum() < len(hit)
        with pytest.warns(ManyMissesWarning):
            fit = fit_sharpened(neighbors, drawn.codes)
        p = fit.form.posterior(neighbors).probability_of(drawn.codes)[hit]
        assert fit.loss == pytest.approx(-np.log(p).mean(), rel=1e-9)

    def test_a_sample_for_the_starts_is_as_good_as_all(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        drawn = planted(SharpenedNED(1.5, 2.0, 0.8, 2.0), n=4500, k=8, seed=0)
        assert sharpened.START_SAMPLE < 4500
        sampled = fit_sharpened(*drawn)
        monkeypatch.setattr(sharpened, "START_SAMPLE", 10**6)
        everything = fit_sharpened(*drawn)
        assert sampled.loss == pytest.approx(everything.loss, abs=1e-9)
        assert sampled.form.temperature == pytest.approx(everything.form.temperature, rel=1e-4)
        assert sampled.form.sharpness == pytest.approx(everything.form.sharpness, rel=1e-4)
        assert sampled.form.adaptivity == pytest.approx(everything.form.adaptivity, abs=1e-4)
        assert sampled.ned_loss == everything.ned_loss


class TestDataThatSayNothing:
    @pytest.mark.parametrize("case", ["separable", "one class", "duplicates", "one neighbour"])
    def test_it_is_ned_with_neds_warning(self, case: str) -> None:
        rng = np.random.default_rng(0)
        codes = np.repeat([0, 1], 20)
        points = rng.normal(size=(40, 3))
        if case == "separable":
            points += 100.0 * codes[:, None]
        if case == "one class":
            codes = np.zeros(40, np.int64)
        if case == "duplicates":
            points = np.repeat(points[::2], 2, axis=0)
        drawn = MadeClasses(points, codes, points, codes)
        neighbors = drawn.own_neighbors(1 if case == "one neighbour" else 8)
        with warnings.catch_warnings(record=True) as expected:
            warnings.simplefilter("always")
            ned = fit_temperature(neighbors, codes)
        with warnings.catch_warnings(record=True) as raised:
            warnings.simplefilter("always")
            fit = fit_sharpened(neighbors, codes)
        assert [str(warning.message) for warning in raised] == [
            str(warning.message) for warning in expected
        ]
        assert DegenerateTemperatureWarning in [warning.category for warning in raised]
        assert (fit.form.temperature, fit.form.sharpness, fit.form.adaptivity) == (
            ned.temperature,
            1.0,
            0.0,
        )
        assert fit.loss == fit.ned_loss == ned.loss
        assert fit.standard_errors is None
        assert fit.start_losses == ()

    @pytest.mark.parametrize("seed", range(10))
    def test_a_handful_of_points_cannot_say_much(self, seed: int) -> None:
        """The prior of one observation keeps gamma and beta within a factor of e or so."""
        rng = np.random.default_rng(seed)
        neighbors = Neighbors(np.sort(rng.random((6, 4)), axis=1), rng.integers(0, 2, (6, 4)))
        codes = neighbors.labels[:, 0].copy()
        codes[0] = neighbors.labels[0, -1]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DegenerateTemperatureWarning)
            fit = fit_sharpened(neighbors, codes)
        assert abs(np.log(fit.form.sharpness)) < 2
        assert abs(fit.form.adaptivity) < 2
        assert fit.loss <= fit.ned_loss

    def test_points_all_on_top_of_each_other(self) -> None:
        with pytest.warns(DegenerateTemperatureWarning):
            fit = fit_sharpened(Neighbors(np.zeros((4, 3)), [[0, 1, 1]] * 4), [0, 1, 0, 1])
        assert fit.form.typical_distance == 1.0
        assert fit.form.posterior(Neighbors(np.zeros((1, 3)), [[0, 1, 1]])).labels.tolist() == [1]


@pytest.mark.parametrize("factor", [1e-250, 1e-3, 7.0, 1e250])
def test_the_unit_of_distance_does_not_matter(factor: float) -> None:
    drawn = made(2, uneven=0.5)
    neighbors = drawn.own_neighbors(20)
    here = fit_sharpened(neighbors, drawn.codes)
    there = fit_sharpened(Neighbors(neighbors.sq_distances * factor, neighbors.labels), drawn.codes)
    assert there.form.temperature / factor == pytest.approx(here.form.temperature, rel=1e-5)
    assert there.form.typical_distance / factor == pytest.approx(here.form.typical_distance)
    assert there.form.sharpness == pytest.approx(here.form.sharpness, rel=1e-5)
    assert there.form.adaptivity == pytest.approx(here.form.adaptivity, abs=1e-5)
    assert there.loss == pytest.approx(here.loss, rel=1e-9)


def test_points_may_come_in_any_order_and_classes_have_any_name() -> None:
    drawn = made(3, uneven=0.5)
    neighbors = drawn.own_neighbors(20)
    here = fit_sharpened(neighbors, drawn.codes)
    shuffled = np.random.default_rng(0).permutation(len(drawn.codes))
    names = np.random.default_rng(1).permutation(8)
    there = fit_sharpened(
        Neighbors(neighbors.sq_distances[shuffled], names[neighbors.labels[shuffled]]),
        names[drawn.codes[shuffled]],
    )
    assert there.form.temperature == pytest.approx(here.form.temperature, rel=1e-5)
    assert there.form.sharpness == pytest.approx(here.form.sharpness, rel=1e-5)
    assert there.form.adaptivity == pytest.approx(here.form.adaptivity, abs=1e-5)


def test_json_holds_a_fit_to_the_last_bit() -> None:
    drawn = made(4)
    for fit in (
        fit_sharpened(drawn.own_neighbors(20), drawn.codes),
        fit_sharpened(drawn.own_neighbors(20), drawn.codes, free="sharpened"),
    ):
        again = SharpenedFit.from_dict(json.loads(json.dumps(fit.to_dict(), allow_nan=False)))
        assert (again.form, again.free, again.loss, again.ned_loss) == (
            fit.form,
            fit.free,
            fit.loss,
            fit.ned_loss,
        )
        assert again.standard_errors == fit.standard_errors
        assert again.start_losses == fit.start_losses
        assert again.temperature_fit.temperature == fit.temperature_fit.temperature


def test_bad_arguments_are_refused() -> None:
    drawn = made(5)
    neighbors = drawn.own_neighbors(10)
    with pytest.raises(
        InvalidInputError, match=r"free must be 'sharpened' or 'adaptive'\. Got 'al"
    ):
        fit_sharpened(neighbors, drawn.codes, free="all")  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="labels must be one class code for each of the"):
        fit_sharpened(neighbors, drawn.codes[:-1])
    with pytest.raises(InvalidInputError, match="labels must be integer class codes"):
        fit_sharpened(neighbors, drawn.codes.astype(str))
    for factors in (np.ones(3), np.full(240, 0.5), np.full(240, np.nan)):
        with pytest.raises(InvalidInputError, match="own_factors must be one number >= 1 for each"):
            fit_sharpened(neighbors, drawn.codes, own_factors=factors)


def test_draws_of_the_same_points_count_once() -> None:
    neighbors, codes = planted(SharpenedNED(1.0, 2.0, 0.5), n=60, k=8, seed=5)
    twice = np.tile(np.arange(60), 2)
    once = fit_sharpened(neighbors, codes)
    drawn = fit_sharpened(neighbors.take(twice), codes[twice], n_draws=2)
    assert drawn.temperature_fit.n_points == 60
    assert once.standard_errors is not None
    assert drawn.standard_errors is not None
    np.testing.assert_allclose(drawn.standard_errors, once.standard_errors, rtol=1e-3)
    np.testing.assert_allclose(
        [drawn.form.temperature, drawn.form.sharpness, drawn.form.adaptivity],
        [once.form.temperature, once.form.sharpness, once.form.adaptivity],
        rtol=1e-3,
    )
    # As if they were points of their own, they would outweigh the prior.
    uncounted = fit_sharpened(neighbors.take(twice), codes[twice])
    assert abs(uncounted.form.sharpness - once.form.sharpness) > 0.01


@pytest.mark.parametrize("temperature", [0.7, 3.0])
def test_one_member_a_class_does_not_tell_t_from_gamma(temperature: float) -> None:
    """T stays near the one given, and gamma / T is what the points say."""
    rng = np.random.default_rng(1)
    labels = np.tile(np.arange(6), (400, 1))
    sq_distances = np.sort(rng.gamma(2.0, 1.0, (400, 6)), axis=1)
    neighbors = Neighbors(sq_distances, rng.permuted(labels, axis=1))
    shares = SharpenedNED(1.0, 1.5).posterior(neighbors, n_classes=6).to_csr().toarray()
    codes = (rng.random((400, 1)) > shares.cumsum(axis=1)).sum(axis=1)
    near = SharpenedNED(temperature)
    form = fit_sharpened(neighbors, codes, free="sharpened", near=near).form
    assert form.temperature == pytest.approx(temperature, rel=1e-3)
    assert form.sharpness / form.temperature == pytest.approx(1.5, rel=0.2)
