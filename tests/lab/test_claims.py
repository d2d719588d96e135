"""The page of claims is made of stored numbers, and its verdicts follow from them."""

import json
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from shutil import copyfile, copytree, ignore_patterns
from typing import Any

import pytest

from nearsure.errors import NearsureError
from nearsure.lab.claims.clean import figure_claims, table_claims
from nearsure.lab.claims.damaged import (
    Damaged,
    attack_claims,
    corruption_claims,
    epsilon_paragraph,
    read_damaged,
)
from nearsure.lab.claims.page import claims_page
from nearsure.lab.claims.rows import Claim, impossible_cells, judge, paper_tables, read_rows
from nearsure.rules import RULE_NAMES

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results"


def test_the_page_is_what_the_command_prints() -> None:
    """If this fails: nearsure summary results --claims > docs/paper.md"""
    assert (ROOT / "docs" / "paper.md").read_text(encoding="utf-8") == claims_page(RESULTS)


@pytest.mark.parametrize(
    ("holds", "verdict"),
    [
        ([True, True], "confirmed"),
        ([True, False], "in part"),
        ([True, False, False], "not confirmed"),
        ([False], "not confirmed"),
        ([], "cannot be tested here"),
    ],
)
def test_verdicts(holds: list[bool], verdict: str) -> None:
    assert judge(holds) == verdict


def test_impossible_cells_are_those_of_the_printed_tables() -> None:
    def walk(node: Any) -> int:  # noqa: ANN401
        if isinstance(node, dict) and "ned" in node:
            rules = ("knn", "dudani", "gou")
            return sum(node[rule][1] > 100 - node[rule][0] for rule in rules)
        return sum(map(walk, node.values())) if isinstance(node, dict) else 0

    assert len(list(impossible_cells())) == walk(paper_tables()) > 10


def claim(claims: list[Claim], start: str) -> Claim:
    return next(each for each in claims if each.text.startswith(start))


@pytest.fixture
def changed(tmp_path: Path) -> Callable[[Callable[[dict[str, Any]], None]], Path]:
    """A copy of the results, every evaluation changed by a function."""

    def change(edit: Callable[[dict[str, Any]], None]) -> Path:
        folder = tmp_path / "results"
        copytree(RESULTS, folder, ignore=ignore_patterns("*.png", "*.md", "ablation", "scale"))
        for path in folder.glob("*/results.json"):
            document = json.loads(path.read_text(encoding="utf-8"))
            for run in document["runs"].values():
                for evaluation in run["evaluations"].values():
                    edit(evaluation)
            path.write_text(json.dumps(document), encoding="utf-8")
        return folder

    return change


def test_a_rule_that_is_ahead_everywhere_is_confirmed(
    changed: Callable[[Callable[[dict[str, Any]], None]], Path],
) -> None:
    def edit(evaluation: dict[str, Any]) -> None:
        for found in evaluation["comparison"]:
            if found["rule"] == "ned":
                found["accuracy"]["estimate"], found["ece"]["estimate"] = 0.999, 0.001
        ks = evaluation["curve"]["ks"]
        evaluation["curve"]["accuracy"]["ned"] = [0.5 + k / 1000 for k in ks]

    rows = read_rows(changed(edit))
    for start in ("NED is the most accurate", "NED has the lowest ECE", "NED is calibrated"):
        assert claim(table_claims(rows), start).verdict == "confirmed"
    monotone = claim(figure_claims(rows), "NED's accuracy grows with k")
    assert monotone.verdict == "confirmed"
    assert "peak is at k = 200" in monotone.here


def test_a_peak_at_the_largest_k_is_not_yet_monotone(
    changed: Callable[[Callable[[dict[str, Any]], None]], Path],
) -> None:
    def edit(evaluation: dict[str, Any]) -> None:
        ks = evaluation["curve"]["ks"]
        evaluation["curve"]["accuracy"]["ned"] = [0.9 if k == 2 else 0.5 + k / 400 for k in ks]

    monotone = claim(figure_claims(read_rows(changed(edit))), "NED's accuracy grows with k")
    assert "peak is at k = 200" in monotone.here
    assert monotone.verdict == "not confirmed"


def test_a_rule_that_is_behind_everywhere_is_not(
    changed: Callable[[Callable[[dict[str, Any]], None]], Path],
) -> None:
    def edit(evaluation: dict[str, Any]) -> None:
        for found in evaluation["comparison"]:
            if found["rule"] == "ned":
                found["accuracy"]["estimate"], found["ece"]["estimate"] = 0.01, 0.9

    rows = read_rows(changed(edit))
    for start in ("NED is the most accurate", "NED has the lowest ECE", "NED is more often right"):
        assert claim(table_claims(rows), start).verdict == "not confirmed"


@pytest.mark.parametrize(("right", "reason"), [(0.99, False), (0.01, True)])
def test_reasons_are_given_for_what_was_found(
    changed: Callable[[Callable[[dict[str, Any]], None]], Path],
    right: float,
    reason: bool,  # noqa: FBT001
) -> None:
    def edit(evaluation: dict[str, Any]) -> None:
        for found in evaluation["comparison"]:
            found["accuracy"]["estimate"] = right if found["rule"] == "ned" else 0.5
        for bins in evaluation["reliability"].values():
            bins["accuracy"] = [1.0 if reason else 0.0 for _ in bins["accuracy"]]

    rows = read_rows(changed(edit))
    behind = claim(table_claims(rows), "NED is the most accurate").why
    assert ("elsewhere" in behind) == reason
    overconfident = claim(figure_claims(rows), "kNN and weighted kNN are over").why
    assert ("claim too little" in overconfident) == reason


def test_both_readings_of_t_are_shown_where_results_have_them(
    changed: Callable[[Callable[[dict[str, Any]], None]], Path],
) -> None:
    def edit(evaluation: dict[str, Any]) -> None:
        evaluation["readings"] = {
            "nll": {"accuracy": 0.639, "ece": 0.0815},
            "top_label": {"accuracy": 0.621, "ece": 0.0245},
        }

    page = claims_page(changed(edit))
    assert "| 63.9 / 8.15 | 62.1 / 2.45 | 74.9 / 2.4 |" in page


def test_own_k_is_marked_where_it_was_looked_for_on_the_queries(
    changed: Callable[[Callable[[dict[str, Any]], None]], Path],
) -> None:
    def edit(evaluation: dict[str, Any]) -> None:
        # 7 is not on the curve, which has 5 and 10; Gou's k was not looked for.
        evaluation["seen_ks"] = {"knn": 5, "dudani": 7, "ned": 1000}

    page = claims_page(changed(edit))
    start = "| cars196 | normalized-softmax | paper<br>"
    cells = next(line for line in page.splitlines() if line.startswith(start)).split(" | ")[3:]
    document = json.loads((RESULTS / "cars196" / "results.json").read_text(encoding="utf-8"))
    curve = document["runs"]["normalized-softmax"]["evaluations"]["all_against_others"]["curve"]
    best = max(zip(curve["accuracy"]["gou"], curve["ks"], strict=True))[1]
    expected = {"knn": (5, ""), "dudani": (5, ""), "gou": (best, "\\*"), "ned": (200, "")}
    for (rule, (k, mark)), cell in zip(expected.items(), cells, strict=True):
        place = curve["ks"].index(k)
        figures = [100 * curve[name][rule][place] for name in ("accuracy", "ece")]
        own = cell.removesuffix(" |").split("<br>")[2]
        assert own == f"{figures[0]:.1f} / {figures[1]:.1f} (k = {k}{mark})"


def test_numbers_are_those_of_the_files() -> None:
    document = json.loads((RESULTS / "cars196" / "results.json").read_text(encoding="utf-8"))
    evaluation = document["runs"]["normalized-softmax"]["evaluations"]["all_against_others"]
    bins = evaluation["reliability"]["knn"]
    total = gap = 0.0
    for n, confidence, right in zip(
        bins["counts"], bins["mean_confidence"], bins["accuracy"], strict=True
    ):
        if n:
            total, gap = total + n, gap + n * (confidence - right)
    text = claim(figure_claims(read_rows(RESULTS)), "kNN and weighted kNN are over").here
    assert f"kNN {100 * gap / total:+.1f}," in text


def test_sure_and_unsure_answers_are_told_apart_by_the_edges_of_bins() -> None:
    row = next(row for row in read_rows(RESULTS) if row.dataset == "clinc150")
    bins = row.evaluation["reliability"]["ned"]
    right = [n * (r or 0) for n, r in zip(bins["counts"], bins["accuracy"], strict=True)]
    sure, unsure = right[14] / bins["counts"][14], sum(right[:7]) / sum(bins["counts"][:7])
    text = claim(figure_claims([row]), "NED tells where").here
    assert f"{100 * sure:.1f}% of the answers with confidence above 93%" in text
    assert f"{100 * unsure:.1f}% of those up to 47%" in text


def test_damage_has_claims_only_where_it_was_done() -> None:
    found = read_damaged(RESULTS)
    assert len(corruption_claims(found)) == 4
    assert len(attack_claims(found)) == 4
    assert corruption_claims([]) == attack_claims([]) == []


def attacked(accuracy: dict[str, float]) -> list[Damaged]:
    """Cars as stored, the accuracy of every rule changed after every attack."""
    found = deepcopy([each for each in read_damaged(RESULTS) if each.dataset == "cars196"])
    for each in found:
        for outcome in each.evaluation["variants"]:
            for rule, right in accuracy.items():
                outcome["methods"][f"{rule}-raw"]["accuracy"][0] = right
    return found


@pytest.mark.parametrize(
    ("accuracy", "verdict"),
    [
        (dict.fromkeys(RULE_NAMES, 0.0), "cannot be tested here"),
        (dict.fromkeys(RULE_NAMES, 0.5), "not confirmed"),
        (dict.fromkeys(RULE_NAMES, 0.5) | {"ned": 0.6}, "confirmed"),
        (dict.fromkeys(RULE_NAMES, 0.5) | {"ned": 0.6, "1nn": 0.7}, "not confirmed"),
    ],
)
def test_to_be_level_with_other_rules_is_not_to_be_ahead(
    accuracy: dict[str, float], verdict: str
) -> None:
    assert claim(attack_claims(attacked(accuracy)), "NED is the most").verdict == verdict


def test_adversarial_training_that_changes_nothing_makes_nothing_robust() -> None:
    claims = attack_claims(attacked({"ned": 0.0}))
    assert claim(claims, "Adversarial training").verdict == "not confirmed"


@pytest.mark.parametrize("dataset", ["clinc150", "glyphs"])
def test_one_data_set_makes_a_page_without_empty_parts(tmp_path: Path, dataset: str) -> None:
    (tmp_path / dataset).mkdir()
    copyfile(RESULTS / dataset / "results.json", tmp_path / dataset / "results.json")
    page = claims_page(tmp_path)
    blocks = page.strip().split("\n\n")
    follows = zip(blocks, [*blocks[1:], "## "], strict=True)
    assert not [block for block, after in follows if block[0] == after[0] == "#"]
    assert not [block for block in blocks if block[0] == "|" and block.count("\n") < 2]
    assert "all 0" not in page
    assert "epsilon?" not in page
    both_protocols = dataset == "glyphs"
    assert ("fitted on the support set, generalizes" in page) == both_protocols


def test_attacks_of_other_sizes_are_left_out() -> None:
    found = attacked({})
    for each in found:
        for outcome in each.evaluation["variants"]:
            variant = outcome["variant"]
            if variant["family"] == "attack" and variant["epsilon"] < 0.1:
                variant["epsilon"] *= 1.5 if each.evaluation["model"] == "clean-trained" else 1.7
    assert len(attack_claims(found)) == 3
    assert epsilon_paragraph(found) == ""


def test_a_folder_without_results_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NearsureError, match=r"should hold <data set>/results\.json"):
        claims_page(tmp_path)
