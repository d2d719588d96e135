"""Calibrators: what all promise, and histograms and isotonic curves on their own."""

import json
from dataclasses import FrozenInstanceError
from math import ceil, exp, lgamma

import numpy as np
import pytest
from sklearn.isotonic import IsotonicRegression

from miscalibrated import GRID, halved_logits, scored, votes
from nearsure.arrays import BoolArray, FloatArray
from nearsure.calibration import (
    CALIBRATORS,
    BayesianBinning,
    Histogram,
    Isotonic,
    calibrator_from_dict,
)
from nearsure.errors import InvalidInputError
from nearsure.index import ExactIndex
from nearsure.loo import search_leaving_one_out
from nearsure.metrics import bin_by_confidence, calibration_floor, expected_calibration_error
from nearsure.metrics.calibration_error import find_bin_starts, find_runs
from nearsure.posterior import score, with_confidence
from nearsure.rules import RuleName

# What all calibrators have in common: the cure, the identity, odd data, bad data, JSON.


EVERY = sorted(CALIBRATORS)
FITTED = sorted(set(CALIBRATORS) - {"none"})
# All but "bbq" and "shrunk", which have a prior, answer with the very share that is right.
COUNTING = sorted(set(FITTED) - {"bbq", "shrunk"})


@pytest.mark.parametrize("name", FITTED)
def test_miscalibrated_confidences_come_out_calibrated(name: str) -> None:
    """On fresh points, within 0.01 of what chance alone gives; before, it is 0.15."""
    calibrator = CALIBRATORS[name].fit(*halved_logits(20_000, seed=0))
    confidence, correct = halved_logits(20_000, seed=1)
    assert expected_calibration_error(confidence, correct) > 0.15
    calibrated = calibrator(confidence)
    floor = calibration_floor(calibrated, seed=0, n_simulations=100)
    assert expected_calibration_error(calibrated, correct) < floor + 0.01


@pytest.mark.parametrize(
    ("name", "bound"),
    [
        ("none", 0.0),
        ("platt", 0.01),
        ("shrunk", 0.01),
        ("beta", 0.01),
        ("isotonic", 0.025),
        ("bbq", 0.025),
        # Ten bins of width 0.1 alone move a confidence by 0.025 on average.
        ("histogram", 0.03),
    ],
)
def test_what_is_calibrated_is_nearly_left_alone(name: str, bound: float) -> None:
    rng = np.random.default_rng(0)
    confidence = rng.random(20_000)
    calibrator = CALIBRATORS[name].fit(confidence, rng.random(20_000) < confidence)
    assert np.abs(calibrator(confidence) - confidence).mean() <= bound


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("shape", [(41,), (0,), (), (2, 3)])
def test_every_answer_is_a_confidence_of_the_shape_that_was_asked(
    name: str, shape: tuple[int, ...]
) -> None:
    asked = np.resize(GRID, shape)
    for drawn in (scored(seed=5), votes(seed=5)):
        answers = CALIBRATORS[name].fit(*drawn)(asked)
        assert answers.shape == shape
        assert answers.dtype == np.float64
        assert ((answers >= 0) & (answers <= 1)).all()


@pytest.mark.parametrize("name", EVERY)
def test_rows_may_come_in_any_order_and_are_not_changed(name: str) -> None:
    confidence, correct = votes()
    confidence.flags.writeable = False
    correct.flags.writeable = False
    fitted = CALIBRATORS[name].fit(confidence, correct)
    shuffled = np.random.default_rng(0).permutation(len(confidence))
    again = CALIBRATORS[name].fit(confidence[shuffled], correct[shuffled])
    np.testing.assert_allclose(fitted(GRID), again(GRID), rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", COUNTING)
@pytest.mark.parametrize(
    ("confidence", "correct"),
    [
        ([1.0] * 5, [True, True, True, True, False]),  # 1NN: always sure
        ([0.0] * 4, [True, False, False, False]),
        ([0.4, 0.6, 0.9], [True, True, True]),
        ([0.4, 0.6, 0.9], [False, False, False]),
        ([0.7], [True]),
        ([0.7], [False]),
    ],
)
def test_data_without_a_curve_give_the_share_that_is_right(
    name: str, confidence: list[float], correct: list[bool]
) -> None:
    calibrator = CALIBRATORS[name].fit(confidence, correct)
    np.testing.assert_allclose(calibrator(GRID), np.mean(correct), rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", COUNTING)
def test_certain_confidences_get_the_shares_of_their_own_rows(name: str) -> None:
    """With 0 and 1 alone, every family can say both shares exactly."""
    confidence = np.repeat([0.0, 1.0], 10)
    correct = np.array([True] * 2 + [False] * 8 + [True] * 7 + [False] * 3)
    calibrator = CALIBRATORS[name].fit(confidence, correct)
    np.testing.assert_allclose(calibrator([0.0, 1.0]), [0.2, 0.7], rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", ["none", "isotonic", "beta"])
@pytest.mark.parametrize("seed", range(5))
def test_these_never_turn_a_larger_confidence_into_a_smaller_one(name: str, seed: int) -> None:
    """Even where labels are the more often wrong the surer the rule is."""
    rng = np.random.default_rng(seed)
    confidence = rng.random(100)
    for chance in (confidence, 1 - confidence, np.full(100, 0.8)):
        calibrator = CALIBRATORS[name].fit(confidence, rng.random(100) < chance)
        assert (np.diff(calibrator(GRID)) >= 0).all()


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize(
    ("confidence", "correct", "message"),
    [
        ([0.5, 0.6], [1], "'confidence' and 'correct' parameters must have the same .* 2 and 1"),
        ([], [], r"'confidence' parameter must be an array of shape \(n,\)"),
        ([0.1, np.nan], [1, 0], "numbers in .* Got nan at row 1"),
        ([0.1, 1.1], [1, 0], "numbers in .* Got 1.1 at row 1"),
        ([0.5, 0.5], [1, 2], r"'correct' parameter must be boolean, .* Got \[2\]"),
    ],
)
def test_bad_rows_are_refused(
    name: str, confidence: list[float], correct: list[int], message: str
) -> None:
    with pytest.raises(InvalidInputError, match=message):
        CALIBRATORS[name].fit(confidence, correct)


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("asked", [[np.nan], [0.5, 1.1], [[-0.1]]])
def test_bad_questions_are_refused(name: str, asked: list[float]) -> None:
    calibrator = CALIBRATORS[name].fit(*scored())
    with pytest.raises(InvalidInputError, match=r"must hold numbers in \[0, 1\]"):
        calibrator(asked)


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("drawn", [scored(), ([1.0, 1.0], [True, False])])
def test_json_holds_a_calibrator_to_the_last_bit(
    name: str, drawn: tuple[list[float], list[bool]]
) -> None:
    calibrator = CALIBRATORS[name].fit(*drawn)
    assert calibrator.name == name
    restored = calibrator_from_dict(json.loads(json.dumps(calibrator.to_dict(), allow_nan=False)))
    assert restored == calibrator
    assert type(restored) is CALIBRATORS[name]
    np.testing.assert_array_equal(restored(GRID), calibrator(GRID))


def test_dictionaries_of_other_things_are_refused() -> None:
    platt = {"name": "platt", "slope": 1.0, "intercept": 0.0, "constant": None}
    cases: list[tuple[dict[str, object], str]] = [
        ({}, r"must be one of \['bbq', .* Got None"),
        ({**platt, "name": "magic"}, "must be one of .* Got 'magic'"),
        ({**platt, "name": "beta"}, r"Beta is made of a 'name' 'beta' and of \['a', 'b', 'c'"),
        ({**platt, "extra": 1}, "Platt is made of .* 'extra'"),
        ({"name": "platt"}, "Platt is made of"),
        ({**platt, "slope": np.inf}, "'slope' of Platt must be a finite number. Got inf"),
        ({**platt, "intercept": "0"}, "'intercept' of Platt must be a finite number. Got '0'"),
        ({**platt, "constant": 2.0}, r"'constant' of Platt must hold numbers in \[0, 1\]"),
        (
            {"name": "bbq", "edges": [], "calibrated": [1.5]},
            r"'calibrated' of BayesianBinning must hold numbers in \[0, 1\]",
        ),
    ]
    for bad, message in cases:
        with pytest.raises(InvalidInputError, match=message):
            calibrator_from_dict(bad)
    with pytest.raises(InvalidInputError, match=r"Isotonic is made of .* Got 'platt'"):
        CALIBRATORS["isotonic"].from_dict(platt)


@pytest.mark.parametrize("name", FITTED)
def test_a_fitted_calibrator_does_not_change(name: str) -> None:
    calibrator = CALIBRATORS[name].fit(*scored())
    field = next(iter(set(calibrator.to_dict()) - {"name"}))
    with pytest.raises(FrozenInstanceError):
        setattr(calibrator, field, 0.0)


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("rule", ["1nn", "ned"])
def test_leave_one_out_scores_of_any_rule_calibrate_new_queries(name: str, rule: RuleName) -> None:
    """Four overlapping classes: labels stay the rule's, most of the error goes."""
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 4, size=6000)
    vectors = (rng.normal(size=(4, 3))[codes] + rng.normal(size=(6000, 3))).astype(np.float32)
    index = ExactIndex(vectors[:3000])
    own = search_leaving_one_out(index, vectors[:3000], np.arange(3000), codes[:3000], k=8)
    temperature = 0.02 if rule == "ned" else None  # far too sure
    left_out = score(own, rule=rule, temperature=temperature, n_classes=4)
    calibrator = CALIBRATORS[name].fit(left_out.confidence, left_out.labels == codes[:3000])
    sq_distances, ids = index.search(vectors[3000:], 8)
    raw = score(
        type(own)(sq_distances, codes[ids]), rule=rule, temperature=temperature, n_classes=4
    )
    calibrated = with_confidence(raw, calibrator(raw.confidence))
    np.testing.assert_array_equal(calibrated.labels, raw.labels)
    np.testing.assert_array_equal(calibrated.confidence, calibrator(raw.confidence))
    correct = raw.labels == codes[3000:]
    before = expected_calibration_error(raw.confidence, correct)
    after = expected_calibration_error(calibrated.confidence, correct)
    assert before > 0.3
    assert after == before if name == "none" else after < before / 4


# Isotonic regression: scikit-learn's curve, kept as its knots.


@pytest.mark.parametrize("drawn", [scored(), votes()])
def test_isotonic_is_sklearns_on_seen_and_unseen_confidences(
    drawn: tuple[FloatArray, BoolArray],
) -> None:
    confidence, correct = drawn
    reference = IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip").fit(confidence, correct)
    fitted = Isotonic.fit(confidence, correct)
    for asked in (confidence, GRID):
        np.testing.assert_allclose(fitted(asked), reference.predict(asked), rtol=0, atol=1e-12)
    assert (np.diff(fitted(GRID)) >= 0).all()


def test_what_it_says_of_its_own_points_is_the_share_that_is_right_at_each_answer() -> None:
    confidence, correct = votes()
    answers = Isotonic.fit(confidence, correct)(confidence)
    for answer in np.unique(answers):
        assert correct[answers == answer].mean() == pytest.approx(answer, abs=1e-12)


def test_a_second_fit_changes_nothing() -> None:
    confidence, correct = scored()
    once = Isotonic.fit(confidence, correct)(confidence)
    np.testing.assert_allclose(Isotonic.fit(once, correct)(once), once, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("confidence", "calibrated"),
    [((), ()), ((0.5,), (0.5, 0.6)), ((0.5, 0.4), (0.1, 0.2)), ((0.4, 0.5), (0.2, 0.1))],
)
def test_knots_that_do_not_ascend_are_refused(
    confidence: tuple[float, ...], calibrated: tuple[float, ...]
) -> None:
    with pytest.raises(InvalidInputError, match="knots of Isotonic must be ascending"):
        Isotonic(confidence, calibrated)


# Histogram binning: shares of bins, counted naively.


@pytest.mark.parametrize("drawn", [scored(103), votes(103), votes(103, k=3), votes(4)])
@pytest.mark.parametrize("n_bins", [1, 2, 7, 10, 103, 500])
def test_shares_are_those_of_the_equal_mass_bins_of_the_metrics(
    drawn: tuple[FloatArray, BoolArray], n_bins: int
) -> None:
    confidence, correct = drawn
    bins = bin_by_confidence(confidence, correct, n_bins=n_bins, binning="mass")
    fitted = Histogram.fit(confidence, correct, n_bins=n_bins)
    assert fitted.calibrated == tuple(bins.accuracy.tolist())
    starts = find_bin_starts(find_runs(np.sort(confidence)), len(confidence), n_bins)
    np.testing.assert_array_equal(np.diff(starts, append=len(confidence)), bins.counts)
    ends = [*bins.edges[1:-1], np.inf]  # the last bin is closed
    for low, end, share in zip(bins.edges[:-1], ends, fitted.calibrated, strict=True):
        rows = (confidence >= low) & (confidence < end)
        assert rows.any()
        np.testing.assert_array_equal(fitted(confidence[rows]), share)


def test_without_ties_bins_are_slices_of_the_sorted_rows() -> None:
    confidence, correct = scored(60)
    by_confidence = correct[np.argsort(confidence)]
    shares = [float(by_confidence[start : start + 6].mean()) for start in range(0, 60, 6)]
    assert Histogram.fit(confidence, correct).calibrated == pytest.approx(shares, abs=1e-15)


def test_an_edge_is_halfway_so_that_rounding_does_not_change_the_bin() -> None:
    fitted = Histogram.fit([0.2, 0.2, 0.4, 0.4], [0, 0, 1, 1], n_bins=2)
    assert fitted.edges == pytest.approx((0.3,))
    assert fitted([0.0, 0.29, 0.31, np.nextafter(0.4, 0), 1.0]).tolist() == [0, 0, 1, 1, 1]


def test_neighbouring_floats_are_told_apart() -> None:
    low = 0.7
    high = np.nextafter(low, 1)
    fitted = Histogram.fit([low, high], [False, True], n_bins=2)
    assert fitted([low, high]).tolist() == [0, 1]


def test_what_it_says_of_its_own_points_is_calibrated_and_a_second_fit_changes_nothing() -> None:
    confidence, correct = scored()
    fitted = Histogram.fit(confidence, correct, n_bins=5)
    once = fitted(confidence)
    for answer in np.unique(once):
        assert correct[once == answer].mean() == pytest.approx(answer, abs=1e-12)
    np.testing.assert_array_equal(Histogram.fit(once, correct, n_bins=5)(once), once)


@pytest.mark.parametrize("n_bins", [0, -1, 2.5, True])
def test_bad_numbers_of_bins_are_refused(n_bins: int) -> None:
    with pytest.raises(InvalidInputError, match="'n_bins' parameter must be an integer of at"):
        Histogram.fit([0.5], [True], n_bins=n_bins)


def test_edges_that_do_not_ascend_and_missing_answers_are_refused() -> None:
    for edges, answers in (((0.5, 0.4), (0.1, 0.2, 0.3)), ((0.5,), (0.1,)), ((), ())):
        with pytest.raises(InvalidInputError, match="Histogram must have ascending edges and one"):
            Histogram(edges, answers)
    assert Histogram((), (0.25,))(GRID).tolist() == [0.25] * len(GRID)


# Bayesian binning: the paper's sum, term by term.


def naive(confidence: FloatArray, correct: BoolArray, asked: FloatArray) -> list[float]:
    """The paper's model average in loops, with Gamma functions and N' = 2 B."""
    n = len(confidence)
    root = n ** (1 / 3)
    models: dict[tuple[float, ...], tuple[float, list[float]]] = {}
    for n_bins in range(max(1, int(root / 10)), min(n, ceil(10 * root)) + 1):
        bins = bin_by_confidence(confidence, correct, n_bins=n_bins, binning="mass")
        # Edges halfway between the last row below and the first row above.
        edges = [
            (confidence[confidence < edge].max() + edge) / 2 for edge in bins.edges[1:-1].tolist()
        ]
        bounds = [0.0, *edges, 1.0]
        log_evidence, answers = 0.0, []
        for b, n_b in enumerate(bins.counts.tolist()):
            m_b = round(bins.accuracy[b] * n_b)
            p_b = (bounds[b] + bounds[b + 1]) / 2
            alpha, beta = 2 * p_b, 2 * (1 - p_b)
            log_evidence += lgamma(2) - lgamma(n_b + 2)
            log_evidence += lgamma(m_b + alpha) - lgamma(alpha)
            log_evidence += lgamma(n_b - m_b + beta) - lgamma(beta)
            answers.append((m_b + alpha) / (n_b + 2))
        models[tuple(edges)] = (log_evidence, answers)
    greatest = max(log_evidence for log_evidence, _ in models.values())
    total = sum(exp(log_evidence - greatest) for log_evidence, _ in models.values())
    return [
        sum(
            exp(log_evidence - greatest) * answers[sum(edge <= value for edge in edges)]
            for edges, (log_evidence, answers) in models.items()
        )
        / total
        for value in asked
    ]


@pytest.mark.parametrize("drawn", [scored(150), votes(150), votes(60, k=3), scored(5), scored(1)])
def test_it_is_the_papers_average_of_histograms(drawn: tuple[FloatArray, BoolArray]) -> None:
    fitted = BayesianBinning.fit(*drawn)
    np.testing.assert_allclose(fitted(GRID), naive(*drawn, GRID), rtol=0, atol=1e-9)


def test_large_data_leave_out_the_smallest_numbers_of_bins() -> None:
    confidence, correct = scored(9000)  # the cube root is 20.8: from 2 bins on
    fitted = BayesianBinning.fit(confidence, correct)
    some = GRID[::8]
    np.testing.assert_allclose(fitted(some), naive(confidence, correct, some), rtol=0, atol=1e-9)


@pytest.mark.parametrize(("right", "n"), [(0, 1), (1, 1), (3, 4), (50, 50)])
def test_equal_confidences_give_laplaces_rule_of_succession(right: int, n: int) -> None:
    fitted = BayesianBinning.fit(np.full(n, 0.9), np.arange(n) < right)
    np.testing.assert_allclose(fitted(GRID), (right + 1) / (n + 2), rtol=0, atol=1e-15)


def test_a_single_step_is_found_and_costs_no_more_bins_than_it_needs() -> None:
    """Right with 0.2 below the median and 0.9 above it: two bins explain it best."""
    rng = np.random.default_rng(0)
    confidence = rng.random(4000)
    median = np.median(confidence)
    correct = rng.random(4000) < np.where(confidence < median, 0.2, 0.9)
    answers = BayesianBinning.fit(confidence, correct)(GRID)
    far = np.abs(GRID - median) > 0.02
    np.testing.assert_allclose(answers[far], np.where(median > GRID, 0.2, 0.9)[far], atol=0.03)


def test_rows_all_right_or_all_wrong_give_answers_inside_0_and_1() -> None:
    confidence, _ = scored(200)
    sure = BayesianBinning.fit(confidence, np.ones(200))(GRID)
    lost = BayesianBinning.fit(confidence, np.zeros(200))(GRID)
    assert 0.9 < sure[20:].min() <= sure.max() < 1
    assert 0 < lost.min() <= lost[:20].max() < 0.1
