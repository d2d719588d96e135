"""Attacked queries in Markdown: the paper's Table 3, weaker attacks, and the confidence's own."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from nearsure.lab.paper import TABLE_1_LOSS, attacked_cell
from nearsure.lab.robust.baselines import best_baseline
from nearsure.lab.robust.cells import Better, beside, best_places, markdown, percent
from nearsure.lab.robust.methods import NED, Method
from nearsure.lab.robust.outcomes import MethodResult, Outcome
from nearsure.lab.robust.robust_evaluation import RobustEvaluation
from nearsure.lab.robust.variants import LARGE_EPSILON, Variant, epsilon_text
from nearsure.rules import RULE_NAMES

# The attack that wants wrong answers to be sure ones.
CONFIDENCE_ATTACK = "confidence"
RAW_METHODS = tuple(Method(rule) for rule in RULE_NAMES)
FLOOR = "ECE floor %"
MEASURES: dict[str, tuple[str, Better | None]] = {
    "accuracy %": ("accuracy", "more"),
    "ECE %": ("ece", "less"),
    "mean confidence %": ("confidence", None),
    "confidence when wrong %": ("confidence_when_wrong", "less"),
    "confidently wrong %": ("confidently_wrong", "less"),
}
PAPER_LEGEND = (
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
    """Attacks of the paper's size by every rule, models side by side, as the paper's Table 3.

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

    def chosen(attack: AttackKey) -> bool:
        return attack.epsilon >= LARGE_EPSILON and attack.name != CONFIDENCE_ATTACK

    attacks = _attacks(evaluations.values(), chosen)
    if not attacks:
        return ""
    methods = (*RAW_METHODS, _baseline(evaluations.values(), attacks))
    measures = ("accuracy %", "ECE %", FLOOR)
    paper = dataset if loss == TABLE_1_LOSS else ""
    return _table([NO_ATTACK, *attacks], methods, evaluations, measures, paper=paper)


def small_epsilon_table(evaluations: Mapping[str, RobustEvaluation]) -> str:
    """Attacks that are hardly seen, by NED and the best calibrated baseline."""

    def chosen(attack: AttackKey) -> bool:
        return attack.epsilon < LARGE_EPSILON and attack.name != CONFIDENCE_ATTACK

    attacks = _attacks(evaluations.values(), chosen)
    if not attacks:
        return ""
    methods = (NED, _baseline(evaluations.values(), attacks))
    measures = ("accuracy %", "ECE %", FLOOR, "confidently wrong %")
    return _table([NO_ATTACK, *attacks], methods, evaluations, measures)


def confidence_attack_table(evaluations: Mapping[str, RobustEvaluation]) -> str:
    """The attack on the confidence beside the plain ones of the same epsilon."""
    own = _attacks(evaluations.values(), lambda attack: attack.name == CONFIDENCE_ATTACK)
    if not own:
        return ""
    epsilons = {attack.epsilon for attack in own}
    attacks = _attacks(evaluations.values(), lambda attack: attack.epsilon in epsilons)
    ordered = sorted(attacks, key=lambda a: (a.epsilon, a.name == CONFIDENCE_ATTACK, a.name))
    methods = (NED, _baseline(evaluations.values(), attacks))
    measures = ("accuracy %", "confidence when wrong %", "confidently wrong %")
    return _table([NO_ATTACK, *ordered], methods, evaluations, measures, bold=False)


def _attacks(
    evaluations: Iterable[RobustEvaluation], chosen: Callable[[AttackKey], bool]
) -> list[AttackKey]:
    """The attacks of any model, each once."""
    variants = (entry.variant for evaluation in evaluations for entry in evaluation.attacks)
    return [attack for attack in dict.fromkeys(map(AttackKey.of, variants)) if chosen(attack)]


def _baseline(evaluations: Iterable[RobustEvaluation], attacks: Sequence[AttackKey]) -> Method:
    found = map(attacked_outcomes, evaluations)
    return best_baseline([by[attack] for by in found for attack in attacks if attack in by])


def _table(
    attacks: Sequence[AttackKey],
    methods: Sequence[Method],
    evaluations: Mapping[str, RobustEvaluation],
    measures: Sequence[str],
    *,
    paper: str = "",
    bold: bool = True,
) -> str:
    """A row for each attack and method, and for each model the distance used and the measures.

    The best of each attack is bold.
    """
    columns: dict[str, list[str]] = {
        "attack": [attack.title for attack in attacks for _ in methods],
        "epsilon": [
            epsilon_text(attack.epsilon) if attack.epsilon else ""
            for attack in attacks
            for _ in methods
        ],
        "method": [method.title for _ in attacks for method in methods],
    }
    footnotes: dict[str, None] = {}
    for model, evaluation in evaluations.items():
        outcomes = attacked_outcomes(evaluation)
        prefix = f"{model}: " if len(evaluations) > 1 else ""
        columns[f"{prefix}distance used"] = [
            text
            for attack in attacks
            for text in [_distance(evaluation, attack), *[""] * (len(methods) - 1)]
        ]
        for name in measures:
            cells: list[str] = []
            for attack in attacks:
                if attack not in outcomes:
                    cells += [""] * len(methods)
                    continue
                results = [outcomes[attack].of(method) for method in methods]
                cells += _block(results, name, bold=bold)
                if paper and evaluation.protocol != "gallery_and_queries":
                    for place, result in enumerate(results, start=len(cells) - len(methods)):
                        text, note = _paper(paper, attack, result, name)
                        cells[place] += text
                        footnotes.update({note: None} if note else {})
            columns[prefix + name] = cells
    table = markdown(columns)
    notes = [PAPER_LEGEND] if "; paper " in table else []
    notes += [f"\\* {note}." for note in footnotes]
    return "\n\n".join([table, *notes]) + "\n"


def _block(results: Sequence[MethodResult], name: str, *, bold: bool) -> list[str]:
    if name == FLOOR:
        return [f"{100 * result.ece_floor:.2f}" for result in results]
    field, better = MEASURES[name]
    intervals = [result.interval(field) for result in results]
    best = best_places(intervals, better if bold else None)
    return [
        percent(interval, bold=is_best) for interval, is_best in zip(intervals, best, strict=True)
    ]


def _paper(dataset: str, attack: AttackKey, result: MethodResult, name: str) -> tuple[str, str]:
    """What follows a cell, and the footnote that it needs."""
    if result.method.calibration != "raw":
        return "", ""
    cell = attacked_cell(dataset, attack.name, attack.epsilon, result.method.rule)
    if cell is None or name not in {"accuracy %", "ECE %"}:
        return "", ""
    if name == "ECE %":
        return beside(cell.ece, result.ece.estimate), ""
    mark = r"\*" if cell.note else ""
    return beside(cell.accuracy, result.accuracy.estimate, mark=mark), cell.note


def _distance(evaluation: RobustEvaluation, attack: AttackKey) -> str:
    """Mean and largest distance that an attack reached."""
    for entry in evaluation.attacks:
        variant = entry.variant
        if AttackKey.of(variant) == attack and variant.mean_distance is not None:
            largest = (
                "" if variant.max_distance is None else f", at most {variant.max_distance:.4f}"
            )
            return f"{variant.mean_distance:.4f}{largest}"
    return ""
