"""The ablation to a folder that people and programs read: README.md, ablation.json, pictures."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from nearsure.lab.ablation.figures import draw_accuracy_and_calibration, draw_calibration_by_k
from nearsure.lab.ablation.goal_table import goal_sentence, goal_table
from nearsure.lab.ablation.goals import Goal, all_goals
from nearsure.lab.ablation.plan import MAIN_K
from nearsure.lab.ablation.results import AblationResults, Group
from nearsure.lab.ablation.tables import (
    by_k_table,
    corrupted_table,
    group_table,
    interval_table,
    ladder_table,
)
from nearsure.lab.ablation.variants import DEFAULT, MAIN_VARIANTS
from nearsure.lab.versions import versions
from nearsure.whole_files import written_whole

INTRODUCTION = """\
Every rule and form of nearsure with every calibrator, all fitted on the gallery's leave-one-out
scores and measured on queries that no fit has seen (but for "every point against all others", where
it says so). The default of `NEDClassifier` is the adaptive form with the leave-one-out correction
and shrunk Platt scaling. Here everything is fitted on all gallery points; the classifier takes
10,000 at most. The full class covariance is slow, and is measured at k = 50 on fewer half splits.

ECE has 15 bins of equal width. Its floor is what a perfectly calibrated forecaster with the same
confidences would show. Brier scores are over all classes. "Half and half": a random half of every
class is the gallery, the other half asks; numbers are means over the splits, and an interval after
a difference is Student's at 95%, paired by split. Splits of one data set share their points, so
these intervals are about the split, not about other data.

The baselines are 1NN, kNN, and the weighted rules of Dudani and of Gou. "The best calibrated
baseline" is the best of kNN, Dudani and Gou with any of seven calibrators. It is chosen by the very
number that it is compared in, which favours it; and histograms and BBQ have few distinct
confidences, which fill fewer bins and have a lower floor. 1NN is not among them: its confidence is
always 1, calibrated it is one number for every query, the base rate, and the ECE of that is about 0
and says nothing."""
ALL_AGAINST_OTHERS = """\
Every point asks all the others, and everything is fitted on the very points that are scored: an
isotonic or histogram calibrator has an ECE of 0 here by construction, so no goal is read off these
tables. A query's own class lacks one member, too, which the leave-one-out correction gives back as
if the query came from outside."""
GOALS_HEAD = {
    "half": "Means over the splits:",
    "given": "The data set's own split:",
    "scarce": "Galleries of 2 to 12 members a class, for which no goal was set:",
}


def write_ablation(folder: Path, results: AblationResults, *, command: str) -> list[Path]:
    """Write everything.

    Parameters
    ----------
    folder : Path
        Where; it is made if need be.
    results : AblationResults
        The numbers.
    command : str
        What a reader types to get the same.
    """
    document = {
        "command": command,
        "versions": versions(),
        **results.to_dict(),
        "goals": [goal.to_dict() for goal in all_goals(results)],
    }
    path = folder / "ablation.json"
    with written_whole(path, keep_suffix=True) as draft:
        draft.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    pictures = [
        draw_accuracy_and_calibration(results, MAIN_K, folder / "accuracy-and-calibration.png"),
        draw_calibration_by_k(results, folder / "calibration-by-k.png"),
    ]
    readme = folder / "README.md"
    with written_whole(readme, keep_suffix=True) as draft:
        draft.write_text(page(document), encoding="utf-8")
    return [readme, path, *pictures]


def page(document: dict[str, Any]) -> str:
    """The README of a stored ablation.

    Parameters
    ----------
    document : dict
        What ablation.json holds.
    """
    results = AblationResults.from_dict(document)
    text = ["# Ablation", f"Made by `{document['command']}`.", INTRODUCTION]
    text += _goals(list(all_goals(results)))
    text += [
        "![Accuracy and calibration](accuracy-and-calibration.png)",
        "![ECE by k](calibration-by-k.png)",
    ]
    text += ["## What each part of the default adds", f"Half and half, k = {MAIN_K}, in points."]
    for group in _at_main_k(results):
        text += [f"### {group.first.dataset}", ladder_table(group)]
    text += [f"## Every variant, k = {MAIN_K}"]
    for group in _at_main_k(results):
        text += [f"### {_circumstances(group)}", group_table(group)]
    text += ["## Main variants at each k"]
    for name in results.datasets:
        groups = [g for g in _half(results) if g.first.dataset == name]
        text += [f"### {name}, half and half", by_k_table(groups, MAIN_VARIANTS)]
    text += _single(results)
    text += ["## Scarce galleries"]
    for group in results.groups("scarce"):
        text += [f"### {_circumstances(group)}", group_table(group, MAIN_VARIANTS)]
    text += _corrupted(results)
    text += _remarks(results)
    return "\n\n".join(part.strip() for part in text) + "\n"


def _goals(goals: Sequence[Goal]) -> Iterator[str]:
    yield "## Goals"
    for condition, head in GOALS_HEAD.items():
        chosen = [goal for goal in goals if goal.condition == condition]
        if chosen:
            yield f"{head} {goal_sentence(chosen)}"
            yield goal_table(chosen)


def _single(results: AblationResults) -> Iterator[str]:
    yield "## Single splits, with bootstrap intervals over the queries"
    for condition in ("given", "all"):
        groups = list(results.groups(condition))
        if condition == "all" and groups:
            yield ALL_AGAINST_OTHERS
        for group in groups:
            yield f"### {_circumstances(group)}"
            yield interval_table(group, MAIN_VARIANTS)


def _corrupted(results: AblationResults) -> Iterator[str]:
    if not results.corrupted:
        return
    yield "## Corrupted queries"
    yield (
        "Gallery, parameters and calibrators are those of clean images. Means over 15 corruptions "
        "at 5 severities, strict protocol."
    )
    for result in results.corrupted:
        yield f"### {result.dataset}, {result.n_queries:,} queries, k = {result.k}"
        yield corrupted_table(result)


def _remarks(results: AblationResults) -> Iterator[str]:
    notes = dict.fromkeys(
        f"{trial.dataset}, {trial.condition}, seed {trial.seed}, k = {trial.k}: {note}"
        for trial in results.trials
        for note in trial.notes
    )
    if results.skipped or notes:
        yield "## Remarks"
        yield "\n".join(
            f"- {line}" for line in (*map("skipped: {}".format, results.skipped), *notes)
        )


def _half(results: AblationResults) -> list[Group]:
    return [group for group in results.groups("half") if DEFAULT in group.variants]


def _at_main_k(results: AblationResults) -> list[Group]:
    return [group for group in _half(results) if group.first.k == MAIN_K]


def _circumstances(group: Group) -> str:
    first, n = group.first, len(group.rows(DEFAULT))
    splits = f"mean of {n} splits" if n > 1 else "one split"
    return (
        f"{first.dataset}, k = {first.k}, {splits}: {first.n_gallery:,} gallery points of "
        f"{first.n_classes} classes, {first.n_queries:,} queries"
    )
