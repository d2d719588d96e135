"""Damaged and attacked queries to a folder: README.md, robustness.json, pictures."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from nearsure.errors import InvalidInputError
from nearsure.lab.protocols import PROTOCOL_NAMES, ProtocolName
from nearsure.lab.report import PROTOCOL_TITLES
from nearsure.lab.robust.attack_figures import draw_attack_curves
from nearsure.lab.robust.attack_tables import (
    confidence_attack_table,
    small_epsilon_table,
    table_3,
)
from nearsure.lab.robust.corruption_figures import draw_corruption_map, draw_severity_curves
from nearsure.lab.robust.corruption_tables import corruption_table, severity_table, table_2
from nearsure.lab.robust.findings import (
    attack_findings,
    circumstances,
    corruption_findings,
    gradient_notes,
)
from nearsure.lab.robust.robust_evaluation import RobustEvaluation
from nearsure.lab.versions import versions
from nearsure.whole_files import written_whole

QUESTION = (
    "Does the confidence stay true when queries are damaged or attacked, and gallery and T are "
    "left as they were? All intervals are over queries, not over trainings."
)
ATTACK_LEGEND = (
    "In percent, with 95% bootstrap intervals over the queries; the best of each attack bold, but "
    "none in the last table. Intervals are for the true value: that of an ECE, which chance "
    "raises, may lie below it. Distance used: the largest change of a pixel (of 0 to 1) that the "
    "attack made in an image, in the mean over images and at most. The calibrated baseline is the "
    "one of kNN, Dudani and Gou with the lowest mean ECE over the table's attacks."
)
BASELINE = (
    "The calibrated baseline is the one of kNN, Dudani and Gou with the lowest mean ECE over all "
    "variants, chosen on these very queries; the better of the two bold."
)


def write_robust_report(
    folder: Path,
    dataset: str,
    loss: str,
    evaluations: Sequence[RobustEvaluation],
    *,
    command: str,
    settings: Mapping[str, Any],
    remarks: Sequence[str] = (),
) -> list[Path]:
    """Write tables, figures, sentences and numbers.

    Parameters
    ----------
    folder : Path
        Where; it is made if need be.
    dataset, loss : str
        What was evaluated.
    evaluations : sequence of RobustEvaluation
        Of any models and protocols, with corruptions, attacks or both; models in their order.
    command : str
        What a reader types to get the same.
    settings : mapping
        Of the run, for the JSON.
    remarks : sequence of str
        Paragraphs for the top of the page, such as how the attacks were made.

    Returns
    -------
    list of Path
        The files.
    """
    _check(evaluations)
    folder.mkdir(parents=True, exist_ok=True)
    page = _Page(folder, dataset, loss)
    page.add(f"# {dataset}, {loss}: damaged and attacked queries", f"Made by `{command}`.")
    page.add(QUESTION, *remarks)
    for protocol in PROTOCOL_NAMES:
        asked = [evaluation for evaluation in evaluations if evaluation.protocol == protocol]
        corrupted = [evaluation for evaluation in asked if evaluation.corruptions]
        attacked = {evaluation.model: evaluation for evaluation in asked if evaluation.attacks}
        if asked:
            page.add(f"## {PROTOCOL_TITLES[protocol]}")
        for evaluation in corrupted:
            page.add_corruptions(evaluation)
        if attacked:
            page.add_attacks(protocol, attacked)
    readme, numbers = folder / "README.md", folder / "robustness.json"
    document = {
        "dataset": dataset,
        "loss": loss,
        "command": command,
        "versions": versions(),
        "settings": dict(settings),
        "evaluations": [evaluation.to_dict() for evaluation in evaluations],
    }
    with written_whole(numbers, keep_suffix=True) as draft:
        draft.write_text(
            json.dumps(document, allow_nan=False, separators=(",", ":")) + "\n", encoding="utf-8"
        )
    with written_whole(readme, keep_suffix=True) as draft:
        draft.write_text(page.text(), encoding="utf-8")
    return [readme, numbers, *page.pictures]


class _Page:
    """Paragraphs and pictures, in the order in which they come."""

    def __init__(self, folder: Path, dataset: str, loss: str) -> None:
        self._folder, self._dataset, self._loss = folder, dataset, loss
        self._parts: list[str] = []
        self.pictures: list[Path] = []

    def text(self) -> str:
        return "\n\n".join(part.strip() for part in self._parts) + "\n"

    def add(self, *parts: str) -> None:
        self._parts += [part for part in parts if part]

    def add_corruptions(self, evaluation: RobustEvaluation) -> None:
        short = f"{_dashed(evaluation.protocol)}-{_dashed(evaluation.model)}"
        title = f"{self._dataset}, {self._loss}"
        self.add(f"### Corrupted queries: {evaluation.model}", circumstances(evaluation))
        self.add(_list(corruption_findings(evaluation)), *_notes([evaluation]))
        self.add("#### Table 2: mean over all corruptions and severities")
        self.add(table_2(self._dataset, self._loss, evaluation))
        curves = self._folder / f"severity-{short}.png"
        self._picture("Against the severity", draw_severity_curves(evaluation, curves, name=title))
        self.add("#### By severity", BASELINE, severity_table(evaluation))
        cells = self._folder / f"corruptions-{short}.png"
        self._picture("Every variant", draw_corruption_map(evaluation, cells, name=title))
        self.add("#### By corruption", corruption_table(evaluation))

    def add_attacks(
        self, protocol: ProtocolName, evaluations: Mapping[str, RobustEvaluation]
    ) -> None:
        self.add("### Attacked queries", *map(circumstances, evaluations.values()))
        for model, evaluation in evaluations.items():
            self.add(f"{model}:", _list(attack_findings(evaluation)))
        self.add(*_notes(evaluations.values()))
        for evaluation in evaluations.values():
            self.add(*gradient_notes(evaluation))
        tables = {
            "Table 3: attacks of the paper's size": table_3(self._dataset, self._loss, evaluations),
            "Small epsilons": small_epsilon_table(evaluations),
            "The attack on the confidence": confidence_attack_table(evaluations),
        }
        self.add(ATTACK_LEGEND)
        for title, table in tables.items():
            self.add(*((f"#### {title}", table) if table else ()))
        path = self._folder / f"attacks-{_dashed(protocol)}.png"
        title = f"{self._dataset}, {self._loss}"
        self._picture("Against epsilon", draw_attack_curves(evaluations, path, name=title))

    def _picture(self, caption: str, path: Path) -> None:
        self.pictures.append(path)
        self.add(f"![{caption}]({path.name})")


def _check(evaluations: Sequence[RobustEvaluation]) -> None:
    kinds = [
        (evaluation.model, evaluation.protocol, family)
        for evaluation in evaluations
        for family, found in (
            ("corruption", evaluation.corruptions),
            ("attack", evaluation.attacks),
        )
        if found
    ]
    if not kinds or len(set(kinds)) < len(kinds):
        raise InvalidInputError(
            "A report must have evaluations with variants, and of each model and protocol one with "
            f"corruptions and one with attacks at most. Got {kinds} instead."
        )


def _notes(evaluations: Iterable[RobustEvaluation]) -> list[str]:
    notes = dict.fromkeys(note for evaluation in evaluations for note in evaluation.notes)
    return [f"Note: {note}" for note in notes]


def _list(sentences: Sequence[str]) -> str:
    return "\n".join(f"- {sentence}" for sentence in sentences)


def _dashed(name: str) -> str:
    """A name that a file may have."""
    return "-".join("".join(c if c.isalnum() else " " for c in name.lower()).split())
