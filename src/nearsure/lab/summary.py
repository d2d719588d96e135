"""All results of a folder in one table (`nearsure summary`)."""

import json
from pathlib import Path

from nearsure.comparison import TITLES
from nearsure.errors import NearsureError
from nearsure.lab.evaluation import Evaluation
from nearsure.rules import RULE_NAMES

HEADER = (
    "data",
    "embedding",
    "protocol",
    "1NN %",
    "most accurate baseline: accuracy %, ECE %",
    "NED: accuracy %, ECE % (floor)",
    "NED less that baseline, points",
)
PROTOCOLS = {
    "all_against_others": "all against others",
    "gallery_and_queries": "half and half",
    "given_gallery": "given gallery",
}


def summary(folder: Path) -> str:
    """A Markdown table of every run below a folder, by protocol.

    Parameters
    ----------
    folder : Path
        Holds a folder for each data set with the ``results.json`` of `write_report`.
    """
    paths = sorted(folder.glob("*/results.json"))
    if not paths:
        raise NearsureError(f"{folder} should hold <data set>/results.json. There is none.")
    rows = [HEADER, ("---",) * len(HEADER)]
    for path in paths:
        document = json.loads(path.read_text(encoding="utf-8"))
        for name, run in document["runs"].items():
            evaluations = map(Evaluation.from_dict, run["evaluations"].values())
            rows += [(document["dataset"], name, *_row(found)) for found in evaluations]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def _row(evaluation: Evaluation) -> tuple[str, ...]:
    results = {rule: evaluation.result_of(rule) for rule in RULE_NAMES}
    ned = results.pop("ned")
    best_rule = max(results, key=lambda rule: results[rule].accuracy.estimate)
    best, gain = results[best_rule], evaluation.ned_gain[best_rule]
    calibration = f"{100 * ned.ece.estimate:.2f} ({100 * ned.ece_floor:.2f})"
    return (
        PROTOCOLS[evaluation.protocol],
        f"{100 * results['1nn'].accuracy.estimate:.2f}",
        f"{TITLES[best_rule]} {100 * best.accuracy.estimate:.2f}, {100 * best.ece.estimate:.2f}",
        f"{100 * ned.accuracy.estimate:.2f}, {calibration}",
        f"{100 * gain.estimate:+.2f} ({100 * gain.low:+.2f} to {100 * gain.high:+.2f})",
    )
