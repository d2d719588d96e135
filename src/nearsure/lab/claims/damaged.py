"""Claims about corrupted and attacked images: Tables 2 and 3."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nearsure.lab.claims.rows import (
    BASELINES,
    STRICT,
    Claim,
    PaperColumn,
    attacked_columns,
    corrupted_columns,
    count,
    gains,
    judge,
    number,
    paper_column,
    span,
)
from nearsure.lab.robust.methods import DEFAULT, NEIGHBORS_ALONE
from nearsure.lab.robust.settings import (
    ADVERSARIALLY_TRAINED,
    CLEAN_TRAINED,
    LARGE_EPSILON,
    PIXEL,
)

ALONE, WHOLE = NEIGHBORS_ALONE.base, DEFAULT.base
# Points up to which two losses of accuracy look alike.
ALIKE = 5.0


@dataclass(frozen=True, eq=False)
class Damaged:
    """One model by one protocol, as ``robustness.json`` has it.

    Parameters
    ----------
    dataset : str
        Which.
    evaluation : dict
        In JSON's types.
    """

    dataset: str
    evaluation: dict[str, Any]

    @property
    def mean(self) -> dict[str, Any] | None:
        """The mean over all corruptions, if there are any."""
        found: dict[str, Any] | None = self.evaluation["mean"]
        return found

    @property
    def clean(self) -> dict[str, Any]:
        """The same queries unchanged."""
        found: dict[str, Any] = self.evaluation["clean"]
        return found

    def attacks(self, name: str) -> dict[float, dict[str, Any]]:
        """What came of an attack, by epsilon."""
        return {
            found["variant"]["epsilon"]: found
            for found in self.evaluation["variants"]
            if found["variant"]["family"] == "attack" and found["variant"]["name"] == name
        }


def read_damaged(folder: Path) -> list[Damaged]:
    """Every model by every protocol below a folder."""
    found = []
    for path in sorted(folder.glob("*/robustness/robustness.json")):
        document = json.loads(path.read_text(encoding="utf-8"))
        found += [Damaged(document["dataset"], each) for each in document["evaluations"]]
    return found


def measure(outcome: dict[str, Any], rule: str, name: str) -> float:
    """Accuracy, ECE or another figure of a rule as it is, in percent."""
    return 100 * float(outcome["methods"][f"{rule}-raw"][name][0])


def corruption_claims(found: Sequence[Damaged]) -> list[Claim]:
    """Table 2."""
    pairs = [(each, each.mean) for each in found if each.mean]
    if not pairs:
        return []
    lead = [
        measure(mean, "ned", "accuracy")
        - max(measure(mean, rule, "accuracy") for rule in BASELINES)
        for _, mean in pairs
    ]
    eces = [measure(mean, "ned", "ece") for _, mean in pairs]
    paper_eces = [number(column, "ned", 1) for column in corrupted_columns()]
    lowest = [_has_lowest_ece(mean) for _, mean in pairs]
    gain = [measure(m, "ned", "accuracy") - measure(m, "1nn", "accuracy") for _, m in pairs]
    before = [
        measure(e.clean, "ned", "accuracy") - measure(e.clean, "1nn", "accuracy") for e, _ in pairs
    ]
    grows = [after > first for after, first in zip(gain, before, strict=True)]
    asked = sorted({e.evaluation["n_queries"] for e, _ in pairs})
    queries = " to ".join(f"{n:,}" for n in dict.fromkeys((asked[0], asked[-1])))
    by_severity = [
        _has_lowest_ece(outcome)
        for each, _ in pairs
        for outcome in each.evaluation["by_severity"].values()
    ]
    over = [100 * mean["methods"]["ned-raw"]["overconfidence"][0] for _, mean in pairs]
    return [
        Claim(
            "NED is the most accurate rule on corrupted images",
            "Table 2",
            f"ahead by {span(map(_paper_lead, corrupted_columns()))} points",
            f"{span(lead, sign=True)} points, means over 75 corruptions of {queries} queries",
            judge([points >= 0 for points in lead]),
            f"Ahead or level in {count([points >= 0 for points in lead])} rows.",
        ),
        Claim(
            "NED's ECE stays low on corrupted images",
            "Table 2",
            f"{span(paper_eces)}%",
            f"{span(eces)}%",
            judge([ece <= max(paper_eces) for ece in eces]),
            "NED compares neighbours with one another and does not see that all of them have moved "
            f"away; confidence less accuracy is {span(over, sign=True)} points.",
        ),
        Claim(
            "NED's ECE is the lowest on corrupted images",
            "Table 2",
            "in all four data sets",
            f"of the five rules in {count(lowest)} rows",
            judge(lowest),
            f"At single severities in {count(by_severity)}"
            + ("." if all(by_severity) else ": rules that claim little have less to lose."),
        ),
        Claim(
            "NED gains more over 1NN on corrupted images than on clean ones",
            "Section 6",
            f"{span(gains(corrupted_columns()))} points",
            f"{span(gain, sign=True)} points, {span(before, sign=True)} on the same queries clean",
            judge(grows),
            f"More in {count(grows)} rows.",
        ),
    ]


def _paper_lead(column: PaperColumn) -> float:
    return min(gains([column], rule)[0] for rule in BASELINES)


def _has_lowest_ece(outcome: dict[str, Any]) -> bool:
    return measure(outcome, "ned", "ece") < min(measure(outcome, r, "ece") for r in BASELINES)


def head_paragraph(found: Sequence[Damaged]) -> str:
    """What nearsure's default does under the same corruptions, where that was measured."""
    told = []
    for each in found:
        mean = each.mean
        if mean is None or f"{WHOLE}-raw" not in mean["methods"]:
            continue
        gain, low, high = (100 * end for end in mean["head_gain"][:3])
        told.append(
            f"{each.dataset}{', strict' if each.evaluation['protocol'] == STRICT else ''}: "
            f"{gain:+.2f} points ({low:+.2f} to {high:+.2f}) to "
            f"{measure(mean, WHOLE, 'accuracy'):.1f}, ECE {measure(mean, WHOLE, 'ece'):.1f} "
            f"(alone {measure(mean, ALONE, 'ece'):.1f}, NED {measure(mean, 'ned', 'ece'):.1f})"
        )
    if not told:
        return ""
    return (
        "nearsure's default under the same 75 corruptions: accuracy with its head less that of its "
        f"neighbours alone. {'; '.join(told)}."
    )


def attack_claims(found: Sequence[Damaged]) -> list[Claim]:
    """Table 3, whose images are cars."""
    cars = {
        each.evaluation["model"]: each
        for each in found
        if each.dataset == "cars196"
        and each.evaluation["protocol"] != STRICT
        and each.attacks("pgd")
    }
    if not cars:
        return []
    outcomes = [
        (each, outcome)
        for each in cars.values()
        for name in ("fgsm", "bim", "pgd")
        for epsilon, outcome in each.attacks(name).items()
        if epsilon >= LARGE_EPSILON
    ]
    right = [measure(outcome, "ned", "accuracy") for _, outcome in outcomes]
    eces = [measure(outcome, "ned", "ece") for _, outcome in outcomes]
    over = [measure(outcome, "ned", "overconfidence") for _, outcome in outcomes]
    paper_right = [number(column, "ned", 0) for column in attacked_columns()]
    paper_eces = [number(column, "ned", 1) for column in attacked_columns()]
    # Where an attack leaves no rule right there is nothing to be ahead in.
    leads = [_lead(outcome) for _, outcome in outcomes if _some_rule_is_right(outcome)]
    best = [points > 0 for points in leads]
    queries = next(iter(cars.values())).evaluation["n_queries"]
    claims = [
        Claim(
            "Attacked with epsilon 0.1 and 0.3, NED is still right",
            "Table 3",
            f"in {span(paper_right)}%",
            f"in {span(right)}% of {queries:,} queries, pixels in [0, 1]",
            judge([value >= min(paper_right) for value in right]),
            "Whether epsilon is on the scale from 0 to 1 or from 0 to 255 decides, and the paper "
            "does not say (below).",
        ),
        Claim(
            "NED is the most accurate rule on attacked images",
            "Table 3",
            f"in {count([_paper_lead(column) > 0 for column in attacked_columns()])} "
            "columns; in the other it reads like a misprint",
            f"in {count(best)} attacks after which some rule is right, by "
            f"{span(leads, sign=True)} points"
            if best
            else "no rule is right after any attack",
            judge(best),
            f"After {len(outcomes) - len(best)} of {len(outcomes)} attacks no rule is right once.",
        ),
        Claim(
            "NED stays calibrated on attacked images",
            "Table 3",
            f"ECE {span(paper_eces)}%",
            f"ECE {span(eces)}%",
            judge([ece <= max(paper_eces) for ece in eces]),
            f"Confidence less accuracy is {span(over, sign=True)} points"
            + (
                ": attacked images land among points of a wrong class, and NED is sure of it."
                if min(over) > 0
                else "."
            ),
        ),
    ]
    if ADVERSARIALLY_TRAINED in cars and CLEAN_TRAINED in cars:
        small = [
            (epsilon, outcome, cars[CLEAN_TRAINED].attacks("pgd")[epsilon])
            for epsilon, outcome in cars[ADVERSARIALLY_TRAINED].attacks("pgd").items()
            if epsilon < LARGE_EPSILON and epsilon in cars[CLEAN_TRAINED].attacks("pgd")
        ]
        # Other settings may have other small epsilons, or none.
        change = [
            measure(after, "ned", "accuracy") - measure(before, "ned", "accuracy")
            for _, after, before in small
        ]
        if not change:
            return claims
        claims.append(
            Claim(
                "Adversarial training makes NED more robust",
                "Section 3",
                "not measured apart",
                f"{span(change, sign=True)} points of accuracy under PGD from "
                f"{min(e for e, *_ in small) / PIXEL:g}/255 to "
                f"{max(e for e, *_ in small) / PIXEL:g}/255",
                judge([points > 0 for points in change]),
                f"More often right in {count([points > 0 for points in change])} of these attacks, "
                f"for {_cost(cars):+.1f} points on clean images.",
            )
        )
    return claims


def _lead(outcome: dict[str, Any]) -> float:
    """NED's accuracy less that of the most accurate other rule, in points."""
    others = max(measure(outcome, rule, "accuracy") for rule in ("1nn", *BASELINES))
    return measure(outcome, "ned", "accuracy") - others


def _some_rule_is_right(outcome: dict[str, Any]) -> bool:
    return any(measure(outcome, rule, "accuracy") > 0 for rule in ("1nn", *BASELINES, "ned"))


def _cost(cars: dict[str, Damaged]) -> float:
    hardened, plain = (
        measure(cars[m].clean, "ned", "accuracy") for m in (ADVERSARIALLY_TRAINED, CLEAN_TRAINED)
    )
    return hardened - plain


def epsilon_paragraph(found: Sequence[Damaged]) -> str:
    """What epsilon is on the scale from 0 to 255."""
    cars = next(
        (
            each
            for each in found
            if each.dataset == "cars196"
            and each.evaluation["model"] == ADVERSARIALLY_TRAINED
            and each.evaluation["protocol"] != STRICT
        ),
        None,
    )
    if cars is None:
        return ""
    clean = measure(cars.clean, "ned", "accuracy")
    pgd = {round(e / PIXEL, 3): outcome for e, outcome in cars.attacks("pgd").items()}
    if not {0.1, 0.3} <= pgd.keys():
        return ""
    drops = [clean - measure(pgd[levels], "ned", "accuracy") for levels in (0.1, 0.3)]
    paper_clean = number(paper_column("cars196"), "ned", 0)
    paper_drops = [paper_clean - number(c, "ned", 0) for c in attacked_columns()[-2:]]
    apart = max(abs(a - b) for a, b in zip(drops, paper_drops, strict=True))
    conclusion = (
        'So its Table 3 looks like one of models trained on attacked images ("during the '
        'training") with epsilon on the scale from 0 to 255.'
        if apart <= ALIKE
        else "That settles nothing."
    )
    return (
        "The paper does not say on which scale its epsilons are. PGD takes our adversarially "
        f"trained cars down by {drops[0]:.1f} points at 0.1/255 and by {drops[1]:.1f} at 0.3/255; "
        f"the paper's lose {paper_drops[0]:.1f} and {paper_drops[1]:.1f} at 0.1 and 0.3. "
        f"{conclusion} BIM's ten steps of 0.02 get no farther than 0.2, so that its epsilon of 0.3 "
        "is never reached."
    )
