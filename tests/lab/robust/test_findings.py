"""Sentences follow the numbers: other numbers, other sentences."""

from dataclasses import replace

import pytest
from damaged_points import attack_evaluation, corruption_evaluation

from nearsure.lab.robust.evaluation import MethodResult, Outcome, RobustEvaluation, VariantOutcome
from nearsure.lab.robust.methods import NED, Method
from nearsure.lab.robust.tables import (
    attack_findings,
    circumstances,
    corruption_findings,
    gradient_notes,
)
from nearsure.metrics import Interval


def interval(estimate: float, half: float = 0.001) -> Interval:
    return Interval(estimate, estimate - half, estimate + half, 0.95)


def with_ned(outcome: Outcome, **fields: object) -> Outcome:
    """The outcome with other numbers of NED."""
    ned: MethodResult = replace(outcome.of(NED), **fields)  # type: ignore[arg-type]
    return replace(outcome, results=tuple(ned if r.method == NED else r for r in outcome.results))


def with_method(outcome: Outcome, method: Method, **fields: object) -> Outcome:
    changed: MethodResult = replace(outcome.of(method), **fields)  # type: ignore[arg-type]
    results = tuple(changed if r.method == method else r for r in outcome.results)
    return replace(outcome, results=results)


def mean() -> Outcome:
    found = corruption_evaluation().mean
    assert found is not None
    return found


def said(mean: Outcome) -> str:
    return "\n".join(corruption_findings(replace(corruption_evaluation(), mean=mean)))


def test_what_was_frozen_is_said_with_its_value() -> None:
    text = circumstances(corruption_evaluation())
    temperature = corruption_evaluation().temperature_fit.temperature
    assert f"T = {temperature:.4g} and the calibrators are those of the clean images" in text
    assert "150 queries, 180 points of 6 classes" in text
    assert "lacks" not in text
    assert "(7 of a class that the gallery lacks)" in circumstances(
        replace(corruption_evaluation(), n_unknown_queries=7)
    )


@pytest.mark.parametrize(
    ("ece", "expected"),
    [
        (
            interval(0.02),
            ", below 4% (the interval, which takes chance's bias off, is wholly below",
        ),
        (
            interval(0.08),
            ", not below 4% (the interval, which takes chance's bias off, is wholly ab",
        ),
        (
            interval(0.039, 0.01),
            ", below 4% (the interval, which takes chance's bias off, is on bo",
        ),
        (
            interval(0.041, 0.01),
            ", not below 4% (the interval, which takes chance's bias off, is on",
        ),
    ],
)
def test_the_claim_is_judged_by_estimate_and_interval(ece: Interval, expected: str) -> None:
    text = said(with_ned(mean(), ece=ece))
    assert f"over 15 variants is {100 * ece.estimate:.2f}%" in text
    assert expected in text


def test_a_floor_above_the_claim_is_called_so() -> None:
    warning = "NED cannot be expected below 4%"
    assert warning in said(with_ned(mean(), ece_floor=0.05))
    assert warning not in said(with_ned(mean(), ece_floor=0.01))


def test_variants_below_the_claim_are_counted_by_severity() -> None:
    def told(entry: VariantOutcome) -> VariantOutcome:
        good = entry.variant.severity == 1 or str(entry.variant) == "fog, severity 2"
        return replace(entry, outcome=with_ned(entry.outcome, ece=interval(0.03 if good else 0.2)))

    evaluation = corruption_evaluation()
    severities = {
        severity: with_ned(outcome, ece=interval(0.03 if severity in {1, 3} else 0.1))
        for severity, outcome in evaluation.by_severity.items()
    }
    changed = replace(
        evaluation, variants=tuple(map(told, evaluation.variants)), by_severity=severities
    )
    text = corruption_findings(changed)[1]
    assert (
        "below 4% in 4 of 15 variants (3 of 3 at severity 1, 1 of 3 at severity 2, 0 of 3" in text
    )
    assert "in 11 of them the whole interval is above" in text
    assert text.endswith("The mean over corruptions is below 4% at severity 1 and 3.")


@pytest.mark.parametrize(
    ("gap", "word"),
    [(0.05, "over-confident"), (-0.05, "under-confident"), (0.0, "neither over- nor under-")],
)
def test_the_direction_of_the_error(gap: float, word: str) -> None:
    text = corruption_findings(
        replace(corruption_evaluation(), mean=with_ned(mean(), overconfidence=interval(gap)))
    )[2]
    assert f": {word}" in text
    assert f"{100 * gap:+.2f} (" in text


def test_ned_is_named_when_it_wins_and_the_winner_when_it_loses() -> None:
    wins = with_ned(mean(), ece=interval(0.0002), accuracy=interval(0.999))
    assert "Lowest mean ECE: NED, 0.02%" in said(wins)
    assert "Most often right: NED, 99.90%" in said(wins)
    winner = Method("gou", "platt")
    clear, open_ = Interval(-0.02, -0.03, -0.01, 0.95), Interval(-0.02, -0.05, 0.01, 0.95)
    for gap, words in ((clear, "more than chance explains"), (open_, "which chance may explain")):
        loses = with_method(mean(), winner, ece=interval(0.0002), ece_less_ned=gap)
        text = said(loses)
        assert "Lowest mean ECE: WkNN (Gou) + Platt, 0.02%" in text
        assert f"points from NED's, {words}." in text


def test_a_constant_that_wins_is_called_one() -> None:
    constant = with_method(mean(), Method("1nn", "isotonic"), ece=interval(0.0001))
    assert "It says the same of every query." in said(constant)
    other = with_method(mean(), Method("knn", "isotonic"), ece=interval(0.0001))
    assert "It says the same of every query." not in said(other)


def test_attacks_are_summed_up() -> None:
    evaluation = attack_evaluation()
    ned = {str(entry.variant): entry.outcome.of(NED) for entry in evaluation.attacks}
    worst = max(ned, key=lambda name: ned[name].ece.estimate)
    text = "\n".join(attack_findings(evaluation))
    name, epsilon = worst.split(", epsilon ")
    assert f"its ECE is highest under {name.upper()} with epsilon {epsilon}, " in text
    below = sum(result.ece.estimate < 0.04 for result in ned.values())
    assert f"below 4% in {below} of 14 attacks" in text
    lowest = sum(
        entry.outcome.of(NED).ece.estimate == min(r.ece.estimate for r in entry.outcome.results)
        for entry in evaluation.attacks
    )
    assert text.split("\n")[2].endswith(f"in {lowest}.")
    share = 100 * ned["confidence, epsilon 2/255"].confidently_wrong.estimate
    plain = 100 * ned["pgd, epsilon 2/255"].confidently_wrong.estimate
    assert f"{share:.2f}% at epsilon 2/255 (PGD {plain:.2f}%)" in text


def only_first(evaluation: RobustEvaluation, n_without_gradient: int | None) -> RobustEvaluation:
    first = evaluation.variants[0]
    variant = replace(first.variant, n_without_gradient=n_without_gradient)
    return replace(evaluation, variants=(replace(first, variant=variant),))


def test_images_without_a_gradient_are_warned_of() -> None:
    (note,) = gradient_notes(attack_evaluation())
    assert "FGSM with epsilon 0.1: 7; FGSM with epsilon 0.3: 7" in note
    assert "were not attacked" in note
    assert "no evidence of robustness" in note
    assert "PGD" not in note
    for number in (0, None):
        assert gradient_notes(only_first(attack_evaluation(), number)) == []
