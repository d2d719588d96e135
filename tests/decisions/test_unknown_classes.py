"""Promises where classes that the gallery lacks ask as well, against the truth of made classes."""

from dataclasses import replace

import numpy as np
import pytest

from nearsure.arrays import BoolArray, FloatArray, IntArray
from nearsure.decisions import UnknownClasses, choose_threshold
from nearsure.decisions.unknown_classes import FEWEST_CLASSES, SHARE_MARGIN

SHARE, PRECISION, RATE = 0.2, 0.85, 0.1
N_CLASSES, N_TO_COME, MEMBERS, N_KNOWN = 40, 10, 25, 1500
N_TRIALS = 120
# Confidence of known points is U^0.2, and they are right as often as it says; that of a class that
# was left out is U^a, with an a of its own.
KNOWN_POWER = 5


def made(
    rng: np.random.Generator,
) -> tuple[FloatArray, BoolArray, FloatArray, IntArray, FloatArray]:
    """Known points, points of classes left out, and the exponents of classes to come."""
    confidence = rng.random(N_KNOWN) ** (1 / KNOWN_POWER)
    correct = rng.random(N_KNOWN) < confidence
    exponents = np.exp(rng.normal(1.0, 1.0, N_CLASSES + N_TO_COME))
    codes = np.repeat(np.arange(N_CLASSES), MEMBERS)
    unknown = rng.random(len(codes)) ** exponents[codes]
    return confidence, correct, unknown, codes, exponents[N_CLASSES:]


def true_precision(threshold: float, exponents: FloatArray) -> float:
    accepted = (1 - SHARE) * (1 - threshold**KNOWN_POWER)
    power = KNOWN_POWER + 1
    right = (1 - SHARE) * KNOWN_POWER / power * (1 - threshold**power)
    unknown = SHARE * (1 - threshold ** (1 / exponents)).mean()
    return float(right / (accepted + unknown))


def true_false_accept_rate(threshold: float, exponents: FloatArray) -> float:
    power = KNOWN_POWER + 1
    wrong = 1 - threshold**KNOWN_POWER - KNOWN_POWER / power * (1 - threshold**power)
    unknown = (1 - threshold ** (1 / exponents)).mean()
    return float(((1 - SHARE) * wrong + SHARE * unknown) / ((1 - SHARE) * (1 / power) + SHARE))


def test_promises_are_kept_for_classes_to_come_and_points_alone_would_not() -> None:
    broken = {"classes": 0, "points": 0, "rejecting": 0}
    reached = dict.fromkeys(broken, 0)
    for seed in range(N_TRIALS):
        rng = np.random.default_rng(seed)
        confidence, correct, unknown, codes, to_come = made(rng)
        by_class = UnknownClasses(unknown, codes, SHARE)
        n_mixed = round(N_KNOWN * SHARE / (1 - SHARE))
        mixed = np.append(confidence, rng.permutation(unknown)[:n_mixed])
        chosen = {
            "classes": choose_threshold(
                confidence, correct, precision=PRECISION, unknowns=by_class
            ),
            "points": choose_threshold(
                mixed, np.append(correct, np.zeros(n_mixed, bool)), precision=PRECISION
            ),
            "rejecting": choose_threshold(
                confidence, correct, false_accept_rate=RATE, unknowns=by_class
            ),
        }
        for name, threshold in chosen.items():
            if not threshold.reached:
                continue
            reached[name] += 1
            if name == "rejecting":
                broken[name] += true_false_accept_rate(threshold.threshold, to_come) > RATE
            else:
                broken[name] += true_precision(threshold.threshold, to_come) < PRECISION
    # 5% may be broken; of 120, 11 are within the chance of 5% (99%).
    most = 11
    assert broken["classes"] <= most
    assert broken["rejecting"] <= most
    assert broken["points"] > most
    assert min(reached["classes"], reached["rejecting"]) > N_TRIALS / 2


def test_order_and_names_do_not_matter() -> None:
    rng = np.random.default_rng(0)
    confidence, correct, unknown, codes, _ = made(rng)
    some, others = rng.permutation(len(confidence)), rng.permutation(len(unknown))
    for target in ({"precision": PRECISION}, {"error": 0.1}, {"false_accept_rate": RATE}):
        plain = choose_threshold(
            confidence, correct, unknowns=UnknownClasses(unknown, codes, SHARE), **target
        )
        moved = choose_threshold(
            confidence[some],
            correct[some],
            unknowns=UnknownClasses(unknown[others], 3 * codes[others] + 7, SHARE),
            **target,
        )
        assert plain == moved


def test_a_class_that_is_always_accepted_costs_coverage() -> None:
    confidence, correct, unknown, codes, _ = made(np.random.default_rng(1))
    usual = choose_threshold(
        confidence, correct, precision=PRECISION, unknowns=UnknownClasses(unknown, codes, SHARE)
    )
    sure = np.where(codes < 2, 1.0, unknown)
    worse = choose_threshold(
        confidence, correct, precision=PRECISION, unknowns=UnknownClasses(sure, codes, SHARE)
    )
    assert worse.threshold > usual.threshold


def test_unknowns_that_are_never_accepted_cost_nearly_nothing() -> None:
    confidence, correct, unknown, codes, _ = made(np.random.default_rng(2))
    alone = choose_threshold(confidence, correct, precision=PRECISION)
    with_far = choose_threshold(
        confidence, correct, precision=PRECISION, unknowns=UnknownClasses(0 * unknown, codes, SHARE)
    )
    assert with_far.threshold == pytest.approx(alone.threshold, abs=0.03)
    n_unknown = round(N_KNOWN * SHARE / (1 - SHARE))
    assert with_far.n_points == N_KNOWN + n_unknown
    assert with_far.n_wrong == alone.n_wrong + n_unknown


def test_a_sentence_names_the_share_and_the_classes() -> None:
    confidence, correct, unknown, codes, _ = made(np.random.default_rng(3))
    unknowns = UnknownClasses(unknown, codes, SHARE)
    assert unknowns.largest_share == pytest.approx(SHARE * SHARE_MARGIN)
    reached = choose_threshold(confidence, correct, precision=0.8, unknowns=unknowns)
    assert reached.unknown_share == unknowns.largest_share
    unreached = choose_threshold(confidence, correct, precision=0.999, unknowns=unknowns)
    assert not unreached.reached
    assert f"{N_CLASSES} classes, left out in turn" in str(unreached)
    below = choose_threshold(confidence, correct, precision=unreached.promised, unknowns=unknowns)
    assert below.reached


@pytest.mark.parametrize("share", [1e-6, 0.9, 0.9995])
def test_any_share(share: float) -> None:
    confidence, correct, unknown, codes, _ = made(np.random.default_rng(4))
    unknowns = UnknownClasses(unknown, codes, share)
    assert share <= unknowns.largest_share < 1
    for target in ({"precision": 0.8}, {"false_accept_rate": 0.3}):
        chosen = choose_threshold(confidence, correct, unknowns=unknowns, **target)
        assert chosen.n_accepted <= chosen.n_points


def test_without_a_wrong_answer_unknowns_alone_are_refused() -> None:
    confidence, _, unknown, codes, _ = made(np.random.default_rng(5))
    chosen = choose_threshold(
        confidence,
        np.ones(len(confidence), bool),
        false_accept_rate=0.2,
        unknowns=UnknownClasses(unknown, codes, SHARE),
    )
    assert chosen.reached
    assert (unknown >= chosen.threshold).mean() <= 0.2


def test_few_classes_promise_nothing_and_say_so() -> None:
    confidence, correct, unknown, codes, _ = made(np.random.default_rng(6))
    for target in ({"precision": 0.5}, {"false_accept_rate": 0.9}):
        chosen = {
            n: choose_threshold(
                confidence,
                correct,
                unknowns=UnknownClasses(unknown[codes < n], codes[codes < n], SHARE),
                **target,
            )
            for n in (FEWEST_CLASSES - 1, FEWEST_CLASSES)
        }
        assert not chosen[FEWEST_CLASSES - 1].reached
        assert "7 are too few" in str(chosen[FEWEST_CLASSES - 1])
        assert chosen[FEWEST_CLASSES].reached
        assert "8 classes left out in turn" in str(chosen[FEWEST_CLASSES])
        assert "up to 25% of them of unknown classes" in str(
            replace(chosen[FEWEST_CLASSES], rests_on="points left out alone")
        )
