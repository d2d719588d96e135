"""All robustness results of a folder in two tables (`nearsure summary`)."""

import json
from collections.abc import Sequence
from pathlib import Path

from nearsure.comparison import TITLES
from nearsure.lab.robust.attack_tables import AttackKey, attacked_outcomes
from nearsure.lab.robust.baselines import best_baseline
from nearsure.lab.robust.cells import markdown, points
from nearsure.lab.robust.findings import CLAIMED_ECE
from nearsure.lab.robust.methods import NED
from nearsure.lab.robust.outcomes import MethodResult, Outcome
from nearsure.lab.robust.robust_evaluation import RobustEvaluation
from nearsure.lab.robust.variants import epsilon_text
from nearsure.lab.summary import PROTOCOLS

# Attacks know the gallery of these protocols.
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
            (document["dataset"], RobustEvaluation.from_dict(fields))
            for fields in document["evaluations"]
        ]
    tables = (_corrupted(found), _attacked(found))
    return "\n\n".join(table for table in tables if table)


def _corrupted(found: Sequence[tuple[str, RobustEvaluation]]) -> str:
    return _table(
        [
            _corrupted_row(dataset, evaluation, evaluation.mean)
            for dataset, evaluation in found
            if evaluation.mean
        ]
    )


def _corrupted_row(dataset: str, evaluation: RobustEvaluation, mean: Outcome) -> dict[str, str]:
    ned, clean = mean.of(NED), evaluation.clean
    baseline = mean.of(best_baseline([entry.outcome for entry in evaluation.corruptions]))
    eces = [entry.outcome.of(NED).ece.estimate for entry in evaluation.corruptions]
    right = max(mean.results, key=lambda result: result.accuracy.estimate)
    return {
        "data": dataset,
        "protocol": PROTOCOLS[evaluation.protocol],
        "queries": f"{evaluation.n_queries:,}",
        "NED, clean: accuracy %, ECE % (floor)": _result(clean.of(NED)),
        "NED, mean of the corruptions": _result(ned),
        "confidence less accuracy, points": points(ned.overconfidence),
        f"ECE below {100 * CLAIMED_ECE:g}%": f"{sum(e < CLAIMED_ECE for e in eces)} of {len(eces)}",
        "best calibrated baseline": f"{baseline.method.title} {_result(baseline)}",
        "its ECE less NED's, points": points(baseline.ece_less_ned),
        "most accurate rule": f"{TITLES[right.method.rule]} {_percent(right.accuracy.estimate)}",
    }


def _attacked(found: Sequence[tuple[str, RobustEvaluation]]) -> str:
    strict = [(d, e) for d, e in found if e.attacks and e.protocol in STRICT]
    models = dict.fromkeys(evaluation.model for _, evaluation in strict)
    rows = []
    for dataset in dict.fromkeys(dataset for dataset, _ in strict):
        by_model = {e.model: attacked_outcomes(e) for d, e in strict if d == dataset}
        for attack in dict.fromkeys(key for outcomes in by_model.values() for key in outcomes):
            row = {"data": dataset, "attack": attack.title, "epsilon": _epsilon(attack)}
            for model in models:
                outcome = by_model.get(model, {}).get(attack)
                row[f"{model}: accuracy %, ECE % (floor), confidently wrong %"] = (
                    _attacked_result(outcome.of(NED)) if outcome else ""
                )
            rows.append(row)
    return _table(rows)


def _table(rows: Sequence[dict[str, str]]) -> str:
    return markdown({name: [row[name] for row in rows] for name in rows[0]}) if rows else ""


def _epsilon(attack: AttackKey) -> str:
    return epsilon_text(attack.epsilon) if attack.epsilon else ""


def _result(result: MethodResult) -> str:
    return (
        f"{_percent(result.accuracy.estimate)}, {_percent(result.ece.estimate)} "
        f"({_percent(result.ece_floor)})"
    )


def _attacked_result(result: MethodResult) -> str:
    return f"{_result(result)}, {_percent(result.confidently_wrong.estimate)}"


def _percent(fraction: float) -> str:
    return f"{100 * fraction:.2f}"
