"""p(known), and the verdicts it gives."""

import json

import numpy as np
import pytest
from made_evidence import UNKNOWN_MEAN, normal, one_column
from scipy.special import expit, logit

from nearsure import Neighbors, score
from nearsure.arrays import FloatArray
from nearsure.errors import InvalidInputError, ModelFileError
from nearsure.unknowns import Evidence, KnownModel, judge, measure_recognition
from nearsure.unknowns.model import log_unknown_change

# p(known) against Bayes' theorem where it has a closed form.


MODEL = KnownModel.fit(
    one_column(normal(0.0, 20_000, seed=1)), one_column(normal(UNKNOWN_MEAN, 20_000, seed=2))
)
GRID = np.linspace(UNKNOWN_MEAN - 1.5, 1.5, 41)


def bayes_log_odds(
    values: FloatArray, unknown_mean: float | FloatArray, known_mean: float = 0.0
) -> FloatArray:
    return ((values - unknown_mean) ** 2 - (values - known_mean) ** 2) / 2


@pytest.mark.parametrize("share", [0.05, 0.5, 0.9])
def test_close_to_bayes(share: float) -> None:
    truth = expit(bayes_log_odds(GRID, UNKNOWN_MEAN) + logit(1 - share))
    assert MODEL.p_known(one_column(GRID), share) == pytest.approx(truth, abs=0.03)


def test_densities_whose_log_odds_bend() -> None:
    """Unknown evidence is three times as wide, which makes the log-odds a parabola.

    It turns at 0.4. A line that never falls must average over the turn, so it is compared below.
    """
    model = KnownModel.fit(
        one_column(normal(0.0, 20_000, seed=1)), one_column(3 * normal(-1.0, 20_000, seed=2))
    )
    values = np.linspace(-6.0, -0.5, 25)
    truth = expit(((values + 3) / 3) ** 2 / 2 - values**2 / 2 + np.log(3))
    assert model.p_known(one_column(values), 0.5) == pytest.approx(truth, abs=0.04)


@pytest.mark.parametrize("share", [0.001, 0.2, 0.999])
def test_prior_correction_is_exact(share: float) -> None:
    evidence = one_column(GRID)
    even = MODEL.p_known(evidence, 0.5)
    expected = (1 - share) * even / ((1 - share) * even + share * (1 - even))
    assert MODEL.p_known(evidence, share) == pytest.approx(expected, rel=1e-9)


def test_nothing_is_unknown_if_the_share_is_zero() -> None:
    evidence = one_column(np.array([0.0, -1e6, -np.inf]))
    assert (MODEL.p_known(evidence, 0.0) == 1).all()


def test_p_known_falls_to_zero_far_away_and_never_rises_on_the_way() -> None:
    away = one_column(-np.geomspace(0.01, 1e6, 200))
    p_known = MODEL.p_known(away, 0.01)
    assert (np.diff(p_known) <= 0).all()
    assert p_known[0] > 0.99
    assert p_known[-1] == 0
    assert MODEL.p_known(one_column(np.array([-np.inf])), 0.01)[0] == 0


def test_novelty_moves_the_unknowns_each_by_its_own() -> None:
    """A normal density times r^-b, r = exp(2.5 x + c), is one whose mean is lower by 2.5 b.

    With b anywhere between 0 and 0.8, the unknowns are a mixture of such densities.
    """
    shifted = MODEL.with_shift(novelty=0.4, drift=0.0)
    means = UNKNOWN_MEAN * (1 + np.linspace(0.0, 0.8, 101))
    unknown_over_known = np.exp(-bayes_log_odds(GRID[:, None], means)).mean(axis=1)
    truth = 1 / (1 + unknown_over_known)
    assert shifted.p_known(one_column(GRID), 0.5) == pytest.approx(truth, abs=0.04)


@pytest.mark.parametrize(("novelty", "drift"), [(0.4, 0.0), (4.0, 0.0), (0.0, 0.3), (2.0, 0.15)])
def test_a_shift_keeps_the_order_and_the_whole(novelty: float, drift: float) -> None:
    """A shift weighs rehearsed unknowns anew, and the weights have mean 1."""
    shifted = MODEL.with_shift(novelty=novelty, drift=drift)
    far_and_near = one_column(np.linspace(-50.0, 50.0, 2001))
    assert (np.diff(shifted.log_odds(far_and_near)) >= 0).all()
    rehearsed = MODEL.log_odds(one_column(normal(UNKNOWN_MEAN, 20_000, seed=2)))
    change = log_unknown_change(rehearsed, novelty, np.array(MODEL.novelty_normalizers))
    assert np.exp(change).mean() == pytest.approx(1, abs=0.02)


def test_drift_moves_the_known() -> None:
    shifted = MODEL.with_shift(novelty=0.0, drift=0.2)
    truth = expit(bayes_log_odds(GRID, UNKNOWN_MEAN, known_mean=0.2 * UNKNOWN_MEAN))
    assert shifted.p_known(one_column(GRID), 0.5) == pytest.approx(truth, abs=0.04)


def test_evidence_that_says_nothing_has_no_say() -> None:
    rng = np.random.default_rng(0)
    known, unknown = (
        Evidence(normal(mean, 20_000, seed=3), rng.normal(size=20_000), np.ones(20_000))
        for mean in (0.0, UNKNOWN_MEAN)
    )
    model = KnownModel.fit(known, unknown)
    assert model.weights[1] < 0.03 * model.weights[0]
    assert model.weights[2] == 0


@pytest.mark.parametrize("constant", [-1.5, -40.0, 1e6])
def test_a_constant_column_of_any_size_has_no_say(constant: float) -> None:
    known, unknown = (
        Evidence(normal(mean, 2000, seed=3), np.full(2000, constant), np.ones(2000))
        for mean in (0.0, UNKNOWN_MEAN)
    )
    model = KnownModel.fit(known, unknown)
    assert model.weights[1] == 0
    assert model.scales[1] == 1
    # As with a constant of 0, whatever queries have in that column.
    plain = KnownModel.fit(one_column(known.log_mass), one_column(unknown.log_mass))
    queries = Evidence(GRID, np.linspace(constant - 3, constant + 3, len(GRID)), np.ones(len(GRID)))
    assert model.p_known(queries, 0.5) == pytest.approx(plain.p_known(one_column(GRID), 0.5))


def test_samples_without_overlap_claim_no_more_than_their_size_allows() -> None:
    model = KnownModel.fit(one_column(np.linspace(0, 1, 20)), one_column(np.linspace(-9, -8, 20)))
    log_odds = model.log_odds(one_column(np.array([0.5, -8.5])))
    assert np.abs(log_odds).max() < 10
    assert log_odds[0] > 2
    assert log_odds[1] < -2


def test_unequal_samples_give_the_same_odds() -> None:
    few = KnownModel.fit(
        one_column(normal(0.0, 40_000, seed=4)), one_column(normal(UNKNOWN_MEAN, 4000, seed=5))
    )
    assert few.p_known(one_column(GRID), 0.5) == pytest.approx(
        MODEL.p_known(one_column(GRID), 0.5), abs=0.04
    )


def test_to_dict_and_back_through_json() -> None:
    shifted = MODEL.with_shift(novelty=0.7, drift=0.1)
    assert KnownModel.from_dict(json.loads(json.dumps(shifted.to_dict()))) == shifted


@pytest.mark.parametrize("share", [-0.1, 1.0, 18.0, float("nan")])
def test_a_share_out_of_range_is_refused(share: float) -> None:
    with pytest.raises(InvalidInputError, match="unknown_share"):
        MODEL.p_known(one_column(GRID), share)


def test_shifts_out_of_range_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="novelty"):
        MODEL.with_shift(novelty=4.1, drift=0.0)
    with pytest.raises(InvalidInputError, match="drift"):
        MODEL.with_shift(novelty=0.0, drift=-0.1)


def test_both_samples_are_needed() -> None:
    with pytest.raises(InvalidInputError, match="Got 3 and 0"):
        KnownModel.fit(one_column(np.zeros(3)), one_column(np.full(2, -np.inf)))


# Verdicts and the confidence that covers unknowns.


POSTERIOR = score(
    Neighbors([[1.0, 1.0, 1.0, 1.0]] * 4, [[0, 0, 0, 1], [0, 0, 1, 2], [0, 1, 2, 3], [0] * 4]),
    rule="knn",
)


def test_confidence_is_the_product() -> None:
    verdicts = judge([1.0, 0.5, 0.2, 0.0], POSTERIOR)
    assert verdicts.confidence == pytest.approx([0.75, 0.25, 0.05, 0.0])


@pytest.mark.parametrize(
    ("least_p_known", "least_class_probability", "names"),
    [
        (0.5, 0.5, ["known", "known", "unknown", "unknown"]),
        (0.5, 0.6, ["known", "ambiguous", "unknown", "unknown"]),
        (0.1, 0.6, ["known", "ambiguous", "ambiguous", "unknown"]),
        (0.0, 0.0, ["known", "known", "known", "known"]),
        (1.0, 1.0, ["ambiguous", "unknown", "unknown", "unknown"]),
    ],
)
def test_thresholds(least_p_known: float, least_class_probability: float, names: list[str]) -> None:
    verdicts = judge(
        [1.0, 0.5, 0.2, 0.0],
        POSTERIOR,
        least_p_known=least_p_known,
        least_class_probability=least_class_probability,
    )
    assert verdicts.names.tolist() == names
    assert sum(verdicts.counts().values()) == len(verdicts) == 4
    assert verdicts.counts()["unknown"] == names.count("unknown")


def test_what_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="each of the 4 queries"):
        judge([0.5], POSTERIOR)
    with pytest.raises(InvalidInputError, match="p_known"):
        judge(np.full(4, np.nan), POSTERIOR)
    with pytest.raises(InvalidInputError, match="least_class_probability"):
        judge(np.ones(4), POSTERIOR, least_class_probability=50)


@pytest.mark.parametrize("bad", [1.5, -0.1, np.nan])
def test_one_bad_value_among_good_ones_is_refused(bad: float) -> None:
    with pytest.raises(InvalidInputError, match=r"p_known must lie in \[0, 1\]"):
        judge([0.2, 1.0, bad, 0.0], POSTERIOR)


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("novelty", 5.0, r"a number in \[0, 4\]"),
        ("drift", -0.1, r"a number in \[0, 0.3\]"),
        ("knots", [], "'slopes' must be one more than 'knots'"),
        ("weights", [1.0] * 4, "must be 3 each, or 4"),
        ("means", [], "must be 3 each, or 4"),
    ],
)
def test_a_stored_model_that_was_altered_is_refused(field: str, value: object, words: str) -> None:
    model = KnownModel.fit(
        one_column(normal(0.0, 200, seed=1)), one_column(normal(UNKNOWN_MEAN, 200, seed=2))
    )
    assert KnownModel.from_dict(model.to_dict()) == model
    with pytest.raises(ModelFileError, match=f"The model of p.known. cannot be read: .*{words}"):
        KnownModel.from_dict({**model.to_dict(), field: value})


def test_far_unknowns_count_far_away_and_nowhere_else() -> None:
    known, unknown = one_column(normal(0.0, 4000, 0)), one_column(normal(-1.0, 4000, 1))
    far = one_column(normal(-9.0, 1000, 2))
    plain, with_far = KnownModel.fit(known, unknown), KnownModel.fit(known, unknown, far)
    queries = one_column(np.array([1.0, 0.0, -1.0, -2.0, -9.0]))
    before, after = (model.p_known(queries, 0.2) for model in (plain, with_far))
    np.testing.assert_allclose(after[:4], before[:4], atol=0.03)
    assert after[4] < before[4] / 10
    np.testing.assert_array_equal(
        with_far.rehearsed_log_odds(queries), plain.rehearsed_log_odds(queries)
    )
    again = KnownModel.from_dict(with_far.to_dict())
    assert again == with_far
    earlier = {name: value for name, value in plain.to_dict().items() if name != "far"}
    assert KnownModel.from_dict(earlier) == plain
    broken = with_far.to_dict()
    broken["far"] = broken["far"] | {"slopes": [1.0]}
    with pytest.raises(ModelFileError, match="slopes"):
        KnownModel.from_dict(broken)


def with_logits(values: FloatArray, logits: FloatArray) -> Evidence:
    return Evidence(values, np.zeros(len(values)), np.ones(len(values)), logits)


def test_logits_are_weighed_like_the_rest() -> None:
    """Two columns of independent normal numbers: the log-odds are the sum of both."""
    known = with_logits(normal(0.0, 20_000, 1), normal(0.0, 20_000, 2))
    unknown = with_logits(normal(-1.0, 20_000, 3), normal(-2.0, 20_000, 4))
    model = KnownModel.fit(known, unknown)
    assert model.has_logits
    assert not MODEL.has_logits
    values, logits = np.meshgrid(np.linspace(-2.0, 1.0, 7), np.linspace(-2.0, 1.0, 7))
    truth = bayes_log_odds(values.ravel(), -1.0) + bayes_log_odds(logits.ravel(), -2.0)
    found = model.log_odds(with_logits(values.ravel(), logits.ravel()))
    assert expit(found) == pytest.approx(expit(truth), abs=0.04)
    assert KnownModel.from_dict(json.loads(json.dumps(model.to_dict()))) == model
    # A logit that has no say is a usual one of the known.
    nothing, usual = (with_logits(GRID, np.full(len(GRID), x)) for x in (np.nan, model.means[3]))
    np.testing.assert_allclose(model.log_odds(nothing), model.log_odds(usual))


def test_no_logit_makes_a_far_query_known() -> None:
    """The logit alone tells near unknowns, and rises without end along a class's weights."""
    known = with_logits(normal(0.0, 2000, 1), normal(0.0, 2000, 2))
    unknown = with_logits(normal(0.0, 2000, 3), normal(-3.0, 2000, 4))
    far = with_logits(normal(-9.0, 1000, 5), normal(-3.0, 1000, 6))
    model = KnownModel.fit(known, unknown, far)
    assert model.far is not None
    assert model.far.weights[3] == 0.0
    queries = with_logits(np.array([0.0, -9.0, -9.0]), np.array([0.0, 0.0, 100.0]))
    p_known = model.p_known(queries, 0.2)
    assert p_known[0] > 0.9
    assert (p_known[1:] < 0.01).all()


def test_recognition_is_measured_class_by_class() -> None:
    rng = np.random.default_rng(0)
    known, codes = rng.normal(size=500), np.repeat(np.arange(20), 30)
    unknown = rng.normal(size=600) - 1.0
    found = measure_recognition(known, unknown, codes)
    naive = np.mean([(known[:, None] > unknown[codes == c]).mean() for c in range(20)])
    assert found.auroc == pytest.approx(naive)
    assert found.works
    assert found.low < found.auroc
    chance = measure_recognition(known, unknown + 1.0, codes)
    assert not chance.works
    # A few classes that differ much leave it open, however many points they have.
    split = np.where(codes < 10, -3.0, 3.0)
    assert not measure_recognition(known, unknown + split, codes).works
