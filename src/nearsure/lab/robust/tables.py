"""Markdown tables, findings and a summary of robustness results."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nearsure.comparison import Better, percent, title_of
from nearsure.errors import InvalidInputError
from nearsure.lab.cache import from_plain
from nearsure.lab.paper_tables import (
    DOUBTFUL,
    IMPOSSIBLE,
    IMPOSSIBLE_LEGEND,
    TABLE_1_LOSS,
    attacked_cell,
    beside,
    corrupted_cell,
)
from nearsure.lab.protocols import ProtocolName
from nearsure.lab.robust.evaluation import MethodResult, Outcome, RobustEvaluation, best_baseline
from nearsure.lab.robust.methods import DEFAULT, METHODS, NED, NEIGHBORS_ALONE, Method
from nearsure.lab.robust.settings import LARGE_EPSILON, Variant, epsilon_text
from nearsure.lab.tables import PROTOCOL_TITLES, bold_best, points, write_table
from nearsure.metrics import Interval
from nearsure.rules import RULE_NAMES


def show(interval: Interval) -> str:
    """An interval in percent, without ends that both lie on one side of the estimate.

    The ends of an ECE's take off what chance adds to it, which the estimate still has.

    Examples
    --------
    >>> show(Interval(0.05, 0.01, 0.06, 0.95)), show(Interval(0.05, 0.01, 0.04, 0.95))
    ('5.00 (1.00 to 6.00)', '5.00')
    """
    beside_it = interval.estimate > interval.high or interval.estimate < interval.low
    return f"{100 * interval.estimate:.2f}" if beside_it else percent(interval)


def state(interval: Interval) -> str:
    """An interval in percent, for a sentence.

    Examples
    --------
    >>> state(Interval(0.75, 0.7, 0.8, 0.95))
    '75.00% (70.00 to 80.00)'
    """
    estimate, _, ends = show(interval).partition(" ")
    return f"{estimate}% {ends}".rstrip()


LEGEND = (
    "In percent, with 95% bootstrap intervals over the queries, the same ones drawn in every "
    "variant; the best of each column bold. ECE has 15 bins of equal width; its floor is what a "
    "perfectly calibrated forecaster with the same confidences would show. Chance raises an ECE, "
    "and its interval takes that off; where it then lies below the ECE, it is left out. "
    "Confidently wrong: share of all queries answered wrongly with a confidence of 90% or more. "
    "Top-label Brier: mean squared difference between confidence and being right, times 100. "
    "Calibration never changes a label, so accuracy is the rule's. "
    '"68.1 ->": on the clean queries.'
)
CORRUPTION_LEGEND = (
    '"paper 64.8, -3.1": the paper has 64.8 in its mean over 15 corruptions at 5 severities, and '
    "we 3.1 points less."
)


def mean_of_corruptions(evaluation: RobustEvaluation) -> Outcome:
    """The mean over all corruptions, which there must be."""
    if evaluation.mean is None:
        raise InvalidInputError(
            "The evaluation must have corrupted variants. Got none: attacks have tables of their "
            "own."
        )
    return evaluation.mean


def table_2(dataset: str, loss: str, evaluation: RobustEvaluation) -> str:
    """Every method in the mean over all corruptions and severities, as the paper's Table 2.

    Parameters
    ----------
    dataset, loss : str
        What was evaluated, by the names of `corrupted_cell` where the paper has it.
    evaluation : RobustEvaluation
        The figures.

    Returns
    -------
    str
        A legend and a table.
    """
    clean, results = evaluation.clean.results, mean_of_corruptions(evaluation).results

    def changes(name: str) -> list[str]:
        """The cells of one measure, each after its value on the clean queries."""
        before = [100 * result.interval(MEASURES[name][0]).estimate for result in clean]
        pairs = zip(before, _cells(results, name), strict=True)
        return [f"{value:.2f} -> {cell}" for value, cell in pairs]

    columns: dict[str, list[str]] = {
        "method": [result.method.title for result in results],
        "accuracy %": changes("accuracy %"),
        "ECE %": changes("ECE %"),
        FLOOR: _cells(results, FLOOR),
        "ECE less NED's": [
            "" if result.method == NED else points(result.ece_less_ned) for result in results
        ],
        "mean confidence %": changes("mean confidence %"),
        "confidently wrong %": _cells(results, "confidently wrong %"),
        "top-label Brier": _cells(results, "top-label Brier"),
    }
    # The strict protocol is not the paper's: half the gallery makes another task.
    compared = evaluation.protocol != "gallery_and_queries"
    for place, result in enumerate(results):
        cell = corrupted_cell(dataset, loss, result.method.base)
        if result.method.step != "raw":
            columns["accuracy %"][place] = ""
        elif compared and cell is not None:
            columns["accuracy %"][place] += beside(cell, "accuracy", result.accuracy.estimate)
            columns["ECE %"][place] += beside(cell, "ece", result.ece.estimate)
    table = write_table(columns)
    notes = [LEGEND]
    notes += [CORRUPTION_LEGEND] if "; paper " in table else []
    notes += [IMPOSSIBLE_LEGEND] if IMPOSSIBLE in table else []
    return f"{' '.join(notes)}\n\n{table}\n"


def corruption_table(evaluation: RobustEvaluation) -> str:
    """NED and the best calibrated baseline under each corruption, mean over its severities."""
    rows = {name.replace("_", " "): outcome for name, outcome in evaluation.by_corruption.items()}
    return _table_of_two("corruption", {"none": evaluation.clean, **rows}, evaluation)


def severity_table(evaluation: RobustEvaluation) -> str:
    """NED and the best calibrated baseline at each severity, mean over the corruptions."""
    rows = {str(severity): outcome for severity, outcome in evaluation.by_severity.items()}
    return _table_of_two("severity", {"0 (clean)": evaluation.clean, **rows}, evaluation)


def _table_of_two(head: str, rows: Mapping[str, Outcome], evaluation: RobustEvaluation) -> str:
    """Rows against accuracy, ECE, its floor and over-confidence of two methods."""
    baseline = best_baseline([mean_of_corruptions(evaluation)])
    columns: dict[str, list[str]] = {head: list(rows)}
    for method, other in ((NED, baseline), (baseline, NED)):
        pairs = [(outcome.of(method), outcome.of(other)) for outcome in rows.values()]
        for name in ("accuracy %", "ECE %", FLOOR):
            columns[f"{method.title}: {name}"] = [_cells(pair, name)[0] for pair in pairs]
        columns[f"{method.title}: confidence less accuracy"] = [
            points(own.overconfidence) for own, _ in pairs
        ]
    return write_table(columns) + "\n"


def _cells(results: Sequence[MethodResult], name: str, *, bold: bool = True) -> list[str]:
    """The cells of one column of `MEASURES`, the best bold."""
    if name == FLOOR:
        return [_percent(result.ece_floor) for result in results]
    measure, better = MEASURES[name]
    cells = [show(result.interval(measure)) for result in results]
    return bold_best(cells, better if bold else None)


# The attack that wants wrong answers to be sure ones.
CONFIDENCE_ATTACK = "confidence"
RAW_METHODS = tuple(Method(rule) for rule in RULE_NAMES)
FLOOR = "ECE floor %"
DOUBT = r"\*"
MEASURES: dict[str, tuple[str, Better | None]] = {
    "accuracy %": ("accuracy", "more"),
    "ECE %": ("ece", "less"),
    "mean confidence %": ("confidence", None),
    "confidence when wrong %": ("confidence_when_wrong", "less"),
    "confidently wrong %": ("confidently_wrong", "less"),
    "top-label Brier": ("top_label_brier", "less"),
}
ATTACK_LEGEND = (
    '"paper 88.7, -3.1": the paper has 88.7, and we 3.1 points less. The paper speaks of attacks '
    '"during the training", so its model may have learnt from attacked images; its numbers stand '
    "beside those of each of our models."
)


@dataclass(frozen=True)
class AttackKey:
    """An attack by what identifies it in every model.

    Parameters
    ----------
    name : str
        Which; "none" for clean queries.
    epsilon : float
        How far it may go.
    """

    name: str
    epsilon: float

    @classmethod
    def of(cls, variant: Variant) -> "AttackKey":
        """The attack of an attacked variant."""
        return cls(variant.name, variant.epsilon or 0.0)

    @property
    def title(self) -> str:
        """For people: acronyms in capitals."""
        return self.name.upper() if self.name in {"fgsm", "bim", "pgd"} else self.name


NO_ATTACK = AttackKey("none", 0.0)


def attacked_outcomes(evaluation: RobustEvaluation) -> dict[AttackKey, Outcome]:
    """What came of each attack, after the same queries unattacked."""
    found = {AttackKey.of(entry.variant): entry.outcome for entry in evaluation.attacks}
    return {NO_ATTACK: evaluation.clean, **found}


def table_3(dataset: str, loss: str, evaluations: Mapping[str, RobustEvaluation]) -> str:
    """Attacks of the paper's size by rules and nearsure, models side by side: the paper's Table 3.

    Parameters
    ----------
    dataset : str
        What was evaluated, by the name of `attacked_cell` where the paper has it.
    loss : str
        What the models were trained with; the paper's were with normalized softmax.
    evaluations : mapping of str to RobustEvaluation
        By model.

    Returns
    -------
    str
        A table, and notes on the paper's numbers; empty if there are no such attacks.
    """
    measured = {
        result.method for evaluation in evaluations.values() for result in evaluation.clean.results
    }
    own = (method for method in (NEIGHBORS_ALONE, DEFAULT) if method in measured)
    return _attack_table(
        lambda attack: attack.epsilon >= LARGE_EPSILON and attack.name != CONFIDENCE_ATTACK,
        evaluations,
        ("accuracy %", "ECE %", FLOOR),
        methods=(*RAW_METHODS, *own),
        paper=dataset if loss == TABLE_1_LOSS else "",
    )


def small_epsilon_table(evaluations: Mapping[str, RobustEvaluation]) -> str:
    """Attacks that are hardly seen, by NED and the best calibrated baseline."""
    return _attack_table(
        lambda attack: attack.epsilon < LARGE_EPSILON and attack.name != CONFIDENCE_ATTACK,
        evaluations,
        ("accuracy %", "ECE %", FLOOR, "confidently wrong %"),
    )


def confidence_attack_table(evaluations: Mapping[str, RobustEvaluation]) -> str:
    """The attack on the confidence beside the plain ones of the same epsilon."""
    every = _attacks(evaluations.values())
    epsilons = {attack.epsilon for attack in every if attack.name == CONFIDENCE_ATTACK}
    return _attack_table(
        lambda attack: attack.epsilon in epsilons,
        evaluations,
        ("accuracy %", "confidence when wrong %", "confidently wrong %"),
        order=lambda attack: (attack.epsilon, attack.name == CONFIDENCE_ATTACK, attack.name),
        bold=False,
    )


def _attacks(evaluations: Iterable[RobustEvaluation]) -> list[AttackKey]:
    """The attacks of any model, each once."""
    variants = (entry.variant for evaluation in evaluations for entry in evaluation.attacks)
    return list(dict.fromkeys(map(AttackKey.of, variants)))


def _attack_table(
    chosen: Callable[[AttackKey], bool],
    evaluations: Mapping[str, RobustEvaluation],
    measures: Sequence[str],
    *,
    methods: Sequence[Method] = (NED,),
    paper: str = "",
    order: Callable[[AttackKey], Any] = lambda _: 0,
    bold: bool = True,
) -> str:
    """A row for each attack and method, and for each model the distance used and the measures.

    The methods are those given and the best calibrated baseline; the best of each attack is bold.
    """
    attacks = sorted(filter(chosen, _attacks(evaluations.values())), key=order)
    if not attacks:
        return ""
    outcomes = {model: attacked_outcomes(found) for model, found in evaluations.items()}
    known = [by[attack] for by in outcomes.values() for attack in attacks if attack in by]
    methods = (*methods, best_baseline(known))
    attacks = [NO_ATTACK, *attacks]
    rows = [(attack, method) for attack in attacks for method in methods]
    columns: dict[str, list[str]] = {
        "attack": [attack.title for attack, _ in rows],
        "epsilon": [_epsilon(attack) for attack, _ in rows],
        "method": [method.title for _, method in rows],
    }
    for model, evaluation in evaluations.items():
        prefix = f"{model}: " if len(evaluations) > 1 else ""
        columns[f"{prefix}distance used"] = [
            _distance(evaluation, attack) if method == methods[0] else "" for attack, method in rows
        ]
        compared = paper if evaluation.protocol != "gallery_and_queries" else ""
        for name in measures:
            columns[prefix + name] = cells = []
            for attack in attacks:
                if attack not in outcomes[model]:
                    cells += [""] * len(methods)
                    continue
                results = [outcomes[model][attack].of(method) for method in methods]
                texts = _cells(results, name, bold=bold)
                papers = [_paper(compared, attack, result, name) for result in results]
                cells += map("".join, zip(texts, papers, strict=True))
    table = write_table(columns)
    notes = [ATTACK_LEGEND] if "; paper " in table else []
    notes += [IMPOSSIBLE_LEGEND] if IMPOSSIBLE in table else []
    misprint = attacked_cell(paper, *DOUBTFUL)
    notes += [f"{DOUBT} {misprint.note}."] if misprint and DOUBT in table else []
    return "\n\n".join([table, *notes]) + "\n"


def _paper(dataset: str, attack: AttackKey, result: MethodResult, name: str) -> str:
    """What follows a cell."""
    cell = attacked_cell(dataset, attack.name, attack.epsilon, result.method.base)
    if cell is None or result.method.step != "raw":
        return ""
    if name == "ECE %":
        return beside(cell, "ece", result.ece.estimate)
    mark = DOUBT if cell.note else ""
    right = result.accuracy.estimate
    return beside(cell, "accuracy", right, mark=mark) if name == "accuracy %" else ""


def _distance(evaluation: RobustEvaluation, attack: AttackKey) -> str:
    """Mean and largest distance that an attack reached."""
    for variant in (entry.variant for entry in evaluation.attacks):
        if AttackKey.of(variant) == attack and variant.mean_distance is not None:
            return f"{variant.mean_distance:.4f}, at most {variant.max_distance:.4f}"
    return ""


# The paper has mean ECEs of 0.9 to 3.0% on corrupted and 1.9 to 3.6% on attacked images.
CLAIMED_ECE = 0.04
CLAIM = f"{100 * CLAIMED_ECE:g}%"
ASKED: dict[ProtocolName, str] = {
    "all_against_others": "each changed image asks all other points, clean; its own clean image is "
    "left out",
    "gallery_and_queries": "changed images of one half of every class ask the other half, clean",
    "given_gallery": "changed images ask the data set's own gallery, clean",
}


def circumstances(evaluation: RobustEvaluation) -> str:
    """What was asked of whom, and what was left as it was."""
    fit = evaluation.temperature_fit
    unknown = (
        f" ({evaluation.n_unknown_queries:,} of a class that the gallery lacks)"
        if evaluation.n_unknown_queries
        else ""
    )
    return (
        f"**{evaluation.model}**: {ASKED[evaluation.protocol]}. {evaluation.n_queries:,} "
        f"queries{unknown}, {evaluation.n_gallery:,} points of {evaluation.n_classes:,} classes in "
        f"the gallery, k = {evaluation.k}. The gallery, T = {fit.temperature:.4g} and the "
        "calibrators are those of the clean images; no changed image had a part in them."
    )


def corruption_findings(evaluation: RobustEvaluation) -> list[str]:
    """Sentences about the corrupted queries of one model by one protocol."""
    mean = mean_of_corruptions(evaluation)
    ned, clean = mean.of(NED), evaluation.clean.of(NED)
    level = (
        f"NED's mean ECE over {mean.n_variants} variants is {state(ned.ece)}, "
        f"{_against_claim(ned.ece)}; on the clean queries it is {state(clean.ece)}. "
    )
    return [
        level + _floor(ned),
        _share_below(evaluation),
        _direction(evaluation.clean, mean),
        *_ranking(mean),
        *_head(mean),
    ]


def _head(mean: Outcome) -> list[str]:
    """What the head of nearsure's default does beside its neighbours alone."""
    if mean.head_gain is None or mean.head_ece_change is None:
        return []
    alone, whole = mean.of(NEIGHBORS_ALONE), mean.of(DEFAULT)
    text = (
        f"{DEFAULT.title} is right in {state(whole.accuracy)} in the mean, its neighbours alone in "
        f"{state(alone.accuracy)}: {points(mean.head_gain)} points, {_chance(mean.head_gain)}. "
        f"ECE: {state(whole.ece)} with the head, {state(alone.ece)} without, "
        f"{points(mean.head_ece_change)} points, {_chance(mean.head_ece_change)}."
    )
    return [text]


def attack_findings(evaluation: RobustEvaluation) -> list[str]:
    """Sentences about the attacked queries of one model by one protocol."""
    by_attack = attacked_outcomes(evaluation)
    clean = by_attack.pop(NO_ATTACK).of(NED)
    neds = {attack: outcome.of(NED) for attack, outcome in by_attack.items()}
    below = sum(result.ece.estimate < CLAIMED_ECE for result in neds.values())
    worst = max(neds, key=lambda attack: neds[attack].ece.estimate)
    lowest = min(neds, key=lambda attack: neds[attack].accuracy.estimate)
    raw_best, best = (
        sum(outcome.lowest_ece(methods).method == NED for outcome in by_attack.values())
        for methods in (RAW_METHODS, METHODS)
    )
    clean_text = (
        f"Without an attack NED is right in {state(clean.accuracy)} with an ECE of "
        f"{state(clean.ece)}. {_floor(clean)}"
    )
    extremes = (
        f"Its accuracy is lowest under {_named(lowest)}, {state(neds[lowest].accuracy)}; its "
        f"ECE is highest under {_named(worst)}, {state(neds[worst].ece)}."
    )
    ranks = (
        f"Its ECE is below {CLAIM} in {below} of {len(neds)} attacks. It is the lowest of the "
        f"five rules in {raw_best} of {len(neds)}, and of all methods, calibrated ones among "
        f"them, in {best}."
    )
    return [clean_text, extremes, ranks, *_confidence_attack(by_attack)]


def gradient_notes(evaluation: RobustEvaluation) -> list[str]:
    """A warning if attacks could not start on some images."""
    stuck = [
        f"{_named(AttackKey.of(entry.variant))}: {entry.variant.n_without_gradient:,}"
        for entry in evaluation.attacks
        if entry.variant.n_without_gradient
    ]
    if not stuck:
        return []
    note = (
        f"**Not attacked ({evaluation.model})**: of {evaluation.n_queries:,} images some had a "
        f"gradient of zero at every step ({'; '.join(stuck)}). These images were "
        "not attacked; that they are still right is no evidence of robustness."
    )
    return [note]


def _against_claim(ece: Interval) -> str:
    side = "below" if ece.estimate < CLAIMED_ECE else "not below"
    if ece.high < CLAIMED_ECE:
        where = "wholly below"
    elif ece.low >= CLAIMED_ECE:
        where = "wholly above"
    else:
        where = "on both sides of"
    return f"{side} {CLAIM} (the interval, which takes chance's bias off, is {where} it)"


def _floor(result: MethodResult) -> str:
    excess = 100 * (result.ece.estimate - result.ece_floor)
    few = f" With so few queries NED cannot be expected below {CLAIM}."
    return (
        "A perfectly calibrated forecaster with the same confidences would show "
        f"{100 * result.ece_floor:.2f}% by chance; NED's is {excess:+.2f} points from that."
        f"{few if result.ece_floor >= CLAIMED_ECE else ''}"
    )


def _share_below(evaluation: RobustEvaluation) -> str:
    """In how many variants, and at which severities, the claim holds."""
    found = [(e.variant.severity, e.outcome.of(NED).ece) for e in evaluation.corruptions]
    below = [severity for severity, ece in found if ece.estimate < CLAIMED_ECE]
    above = sum(ece.low >= CLAIMED_ECE for _, ece in found)
    shares = ", ".join(
        f"{below.count(severity)} of {outcome.n_variants} at severity {severity}"
        for severity, outcome in evaluation.by_severity.items()
    )
    held = [s for s, o in evaluation.by_severity.items() if o.of(NED).ece.estimate < CLAIMED_ECE]
    where = f"at severity {_listed(held)}" if held else "at no severity"
    return (
        f"Its ECE is below {CLAIM} in {len(below)} of {len(found)} variants ({shares}); in "
        f"{above} of them the whole interval is above. The mean over corruptions is below "
        f"{CLAIM} {where}."
    )


def _direction(clean: Outcome, damaged: Outcome) -> str:
    """Whether NED claims too much or too little."""
    before, after = clean.of(NED), damaged.of(NED)
    word = _confident(after.overconfidence)
    return (
        f"On corrupted queries NED claims {state(after.confidence)} in the mean and is right in "
        f"{state(after.accuracy)}: {word}, {points(after.overconfidence)} points. On clean ones "
        f"it is {_confident(before.overconfidence)}, {points(before.overconfidence)} points."
    )


def _ranking(mean: Outcome) -> list[str]:
    """Which method is best at what, and whether NED's distance from it is more than chance."""
    best = mean.lowest_ece()
    constant = " It says the same of every query." if best.method.base == "1nn" else ""
    floor = f"floor {100 * best.ece_floor:.2f}%"
    text = f"Lowest mean ECE: {best.method.title}, {state(best.ece)}, {floor}"
    if best.method != NED:
        text += f", {points(best.ece_less_ned)} points from NED's, {_chance(best.ece_less_ned)}"
    brier = min(mean.results, key=lambda result: result.top_label_brier.estimate)
    right = max(mean.results, key=lambda result: result.accuracy.estimate)
    accuracy = f"Most often right: {title_of(right.method.base)}, {state(right.accuracy)}"
    if right.method.base != NED.base:
        gain = right.accuracy_less_ned
        accuracy += f", {points(gain)} points from NED, {_chance(gain)}"
    squares = (
        f"Lowest top-label Brier score, times 100: {brier.method.title}, "
        f"{percent(brier.top_label_brier)}"
    )
    if brier.method != NED:
        squares += f"; NED has {percent(mean.of(NED).top_label_brier)}"
    return [f"{text}.{constant}", f"{squares}.", f"{accuracy}."]


def _confidence_attack(by_attack: Mapping[AttackKey, Outcome]) -> list[str]:
    """How the attack on the confidence compares with plain ones of the same size."""

    def share(attack: AttackKey) -> str:
        return f"{100 * by_attack[attack].of(NED).confidently_wrong.estimate:.2f}%"

    found = []
    for attack in by_attack:
        plain = [
            f"{other.title} {share(other)}"
            for other in by_attack
            if other.epsilon == attack.epsilon and other.name != CONFIDENCE_ATTACK
        ]
        if attack.name == CONFIDENCE_ATTACK and plain:
            others = ", ".join(plain)
            found.append(f"{share(attack)} at epsilon {epsilon_text(attack.epsilon)} ({others})")
    if not found:
        return []
    shares = "; ".join(found)
    return [f"The attack on the confidence makes NED confidently wrong in {shares}."]


def _named(attack: AttackKey) -> str:
    return f"{attack.title} with epsilon {epsilon_text(attack.epsilon)}"


def _confident(gap: Interval) -> str:
    if gap.low > 0:
        return "over-confident"
    return "under-confident" if gap.high < 0 else "neither over- nor under-confident for sure"


def _chance(difference: Interval) -> str:
    clear = difference.low > 0 or difference.high < 0
    return "more than chance explains" if clear else "which chance may explain"


def _listed(numbers: list[int]) -> str:
    *others, last = map(str, numbers)
    return f"{', '.join(others)} and {last}" if others else last


# The protocols whose gallery the attacks use.
STRICT = ("gallery_and_queries", "given_gallery")


def robust_summary(folder: Path) -> str:
    """Markdown tables of corrupted and attacked queries, or nothing where there are none.

    Parameters
    ----------
    folder : Path
        Holds ``<data set>/robustness/robustness.json`` as `write_robust_report` writes it.
    """
    found: list[tuple[str, RobustEvaluation]] = []
    for path in sorted(folder.glob("*/robustness/robustness.json")):
        document = json.loads(path.read_text(encoding="utf-8"))
        found += [
            (document["dataset"], from_plain(RobustEvaluation, fields))
            for fields in document["evaluations"]
        ]
    corrupted = [_corrupted_row(*one) for one in found if one[1].mean]
    tables = (_rows_table(corrupted), _rows_table(_attacked_rows(found)))
    return "\n\n".join(table for table in tables if table)


def _corrupted_row(dataset: str, evaluation: RobustEvaluation) -> dict[str, str]:
    mean, clean = mean_of_corruptions(evaluation), evaluation.clean
    ned = mean.of(NED)
    baseline = mean.of(best_baseline([entry.outcome for entry in evaluation.corruptions]))
    eces = [entry.outcome.of(NED).ece.estimate for entry in evaluation.corruptions]
    right = max(mean.results, key=lambda result: result.accuracy.estimate)
    return {
        "data": dataset,
        "protocol": PROTOCOL_TITLES[evaluation.protocol],
        "queries": f"{evaluation.n_queries:,}",
        "NED, clean: accuracy %, ECE % (floor)": _result(clean.of(NED)),
        "NED, mean of the corruptions": _result(ned),
        "confidence less accuracy, points": points(ned.overconfidence),
        f"ECE below {CLAIM}": f"{sum(e < CLAIMED_ECE for e in eces)} of {len(eces)}",
        "best calibrated baseline": f"{baseline.method.title} {_result(baseline)}",
        "its ECE less NED's, points": points(baseline.ece_less_ned),
        "most accurate rule": f"{title_of(right.method.base)} {_percent(right.accuracy.estimate)}",
        **{method.title: _if_there(mean, method) for method in (NEIGHBORS_ALONE, DEFAULT)},
        "head's gain in accuracy, points": "" if mean.head_gain is None else points(mean.head_gain),
    }


def _if_there(outcome: Outcome, method: Method) -> str:
    return next((_result(found) for found in outcome.results if found.method == method), "")


def _attacked_rows(found: Sequence[tuple[str, RobustEvaluation]]) -> list[dict[str, str]]:
    strict = [(d, e) for d, e in found if e.attacks and e.protocol in STRICT]
    models = dict.fromkeys(evaluation.model for _, evaluation in strict)
    rows = []
    for dataset in dict.fromkeys(dataset for dataset, _ in strict):
        by_model = {e.model: attacked_outcomes(e) for d, e in strict if d == dataset}
        for attack in dict.fromkeys(key for outcomes in by_model.values() for key in outcomes):
            row = {"data": dataset, "attack": attack.title, "epsilon": _epsilon(attack)}
            for model in models:
                outcome, cell = by_model.get(model, {}).get(attack), ""
                if outcome:
                    ned = outcome.of(NED)
                    cell = f"{_result(ned)}, {_percent(ned.confidently_wrong.estimate)}"
                row[f"{model}: accuracy %, ECE % (floor), confidently wrong %"] = cell
            rows.append(row)
    return rows


def _rows_table(rows: Sequence[dict[str, str]]) -> str:
    """A table of rows, without columns that nothing is in."""
    if not rows:
        return ""
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    return write_table({name: cells for name, cells in columns.items() if any(cells)})


def _epsilon(attack: AttackKey) -> str:
    return epsilon_text(attack.epsilon) if attack.epsilon else ""


def _result(result: MethodResult) -> str:
    return (
        f"{_percent(result.accuracy.estimate)}, {_percent(result.ece.estimate)} "
        f"({_percent(result.ece_floor)})"
    )


def _percent(fraction: float) -> str:
    return f"{100 * fraction:.2f}"
