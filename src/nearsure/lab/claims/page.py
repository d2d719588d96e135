"""The page: every claim in tables, and what needs more words than a cell."""

import json
from collections.abc import Sequence
from pathlib import Path

from nearsure.comparison import title_of, write_rows
from nearsure.lab.claims.clean import figure_claims, method_claims, table_claims
from nearsure.lab.claims.damaged import (
    attack_claims,
    corruption_claims,
    epsilon_paragraph,
    head_paragraph,
    read_damaged,
)
from nearsure.lab.claims.rows import (
    BASELINES,
    MAIN_LOSS,
    VERDICTS,
    Claim,
    PaperColumn,
    Row,
    claim_table,
    clean_columns,
    count,
    gains,
    impossible_cells,
    number,
    paper_column,
    paper_tables,
    read_rows,
    span,
)
from nearsure.lab.paper_tables import paper_cell
from nearsure.lab.tables import PROTOCOL_TITLES
from nearsure.rules import RULE_NAMES

COMMAND = "nearsure summary results --claims"
STAND_INS = "stand-ins"
# Behind a k that was chosen on what it is measured on.
ON_QUERIES = "\\*"
PAPER = (
    "M. Karpusha, S. Yun, I. Fehervari: *Calibrated neighborhood aware confidence measure for deep "
    "metric learning*, 2020"
)


def claims_page(folder: Path) -> str:
    """The page of claims in Markdown, all of its numbers from stored results.

    Parameters
    ----------
    folder : Path
        Holds ``<data set>/results.json`` and ``<data set>/robustness/robustness.json``.
    """
    rows, damaged = read_rows(folder), read_damaged(folder)
    groups = {
        "The method": method_claims(rows),
        "Clean images: Tables 1 and 4": table_claims(rows),
        "Reliability and k: Figures 1 and 2": figure_claims(rows),
        "Corrupted images: Table 2": corruption_claims(damaged),
        "Attacked images: Table 3": attack_claims(damaged),
    }
    opening = (
        f"{PAPER}. What it claims, what its tables say, what came of it here. This page is what "
        f"`{COMMAND}` prints: every number of ours is read from [results](../results/README.md), "
        "every number of the paper from its tables, and verdicts follow from both."
    )
    parts = [
        "# The paper, claim by claim",
        opening,
        _how_to_read(rows),
        _counts(groups),
    ]
    for title, claims in groups.items():
        if claims:
            parts += [f"## {title}", claim_table(claims)]
        if title.startswith("Corrupted"):
            parts.append(head_paragraph(damaged))
    sections = {
        "Which k?": _which_k(rows),
        "How T was fitted": _readings(rows),
        "One T, two jobs": _two_jobs(rows),
        "On which scale is epsilon?": epsilon_paragraph(damaged),
        "Slips between text and tables": _slips(),
        "What is not here: SOP and In-shop": _stand_ins(folder),
    }
    for title, text in sections.items():
        if text:
            parts += [f"## {title}", text]
    return "\n\n".join(part for part in parts if part) + "\n"


def _how_to_read(rows: Sequence[Row]) -> str:
    datasets = ", ".join(sorted({row.dataset for row in rows}))
    n_shared = sum(row.in_paper for row in rows)
    return (
        f"A row is one embedding by one protocol: {len(rows)} rows of {datasets}, of which "
        f"{n_shared} are of a data set and loss that the paper has, by its protocol. A claim about "
        "every column of a table is confirmed if it holds in all rows, in part if in half of them "
        "or more. Percent and points of percent throughout; ECE has 15 bins of equal width; tables "
        f"are at k = {rows[0].k}. The paper's other rules are {_listed(BASELINES)}. Embeddings are "
        "not the paper's, so levels differ; what rules make of the same neighbours can be compared."
    )


def _listed(rules: Sequence[str]) -> str:
    *first, last = (title_of(rule) for rule in rules)
    return f"{', '.join(first)} and {last}"


def _counts(groups: dict[str, list[Claim]]) -> str:
    every = [claim.verdict for claims in groups.values() for claim in claims]
    header = ("", *VERDICTS)
    body = [
        (title, *(str([c.verdict for c in claims].count(v) or "") for v in VERDICTS))
        for title, claims in groups.items()
        if claims
    ]
    return write_rows(header, [*body, ("all", *(str(every.count(v)) for v in VERDICTS))])


def _shared(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row.in_paper]


def _which_k(rows: Sequence[Row]) -> str:
    """Every rule at the k of the tables and at its own best k, beside the paper."""
    columns = [column for name in ("sop", "inshop") for column in _losses_of(name)]
    same = [number(column, "knn", 0) == number(column, "1nn", 0) for column in columns]
    other = [number(column, "gou", 0) != number(column, "1nn", 0) for column in columns]
    text = (
        f"The paper does not say. Its kNN equals its 1NN to the digit in {count(same)} columns of "
        f"SOP and In-shop, and Gou's rule does not in {sum(other)} of them: probably each rule had "
        "a k of its own."
    )
    body = []
    for row in _shared(rows):
        cells = []
        for rule in (*BASELINES, "ned"):
            column, (best, from_seen) = paper_column(row.dataset, row.run), _best_k(row, rule)
            cells.append(
                f"{number(column, rule, 0):.1f} / {number(column, rule, 1):.1f}<br>"
                f"{row.accuracy(rule):.1f} / {row.ece(rule):.1f}<br>"
                f"{row.curve(rule)[best]:.1f} / {row.curve(rule, 'ece')[best]:.1f} "
                f"(k = {best}{'' if from_seen else ON_QUERIES})"
            )
        lines = f"paper<br>here, k = {row.k}<br>here, own k"
        body.append((row.dataset, row.run, lines, *cells))
    if not body:
        return text
    legend = (
        "Accuracy / ECE of each rule: the paper's, ours at one k for all, and ours at the k of the "
        "curve where the rule is right most often on seen classes or, with an asterisk, on the "
        "queries themselves, which is a little too good."
    )
    header = ("data", "loss", "", *(title_of(rule) for rule in (*BASELINES, "ned")))
    return f"{text} {legend}\n\n{write_rows(header, body)}"


def _losses_of(dataset: str) -> list[PaperColumn]:
    return list(paper_tables()["clean"][dataset].values())


def _best_k(row: Row, rule: str) -> tuple[int, bool]:
    """A rule's own k, and whether it is from seen classes and not from the queries."""
    curve = row.curve(rule)
    seen = (row.evaluation.get("seen_ks") or {}).get(rule, 0)
    # The gallery of the queries can be too small for the k of seen classes.
    below = [k for k in curve if k <= seen]
    return (max(below), True) if below else (max(curve, key=lambda k: curve[k]), False)


def _readings(rows: Sequence[Row]) -> str:
    """T by likelihood and by the top label's log loss, where results have both."""
    body = []
    for row in rows:
        found = row.evaluation.get("readings") or {}
        if not {"nll", "top_label"} <= found.keys():
            continue
        cell = paper_cell(row.dataset, row.run, "ned") if row.in_paper else None
        cells = (
            f"{100 * found[o]['accuracy']:.1f} / {100 * found[o]['ece']:.2f}" for o in READINGS
        )
        body.append(
            (
                row.dataset,
                row.run,
                PROTOCOL_TITLES[row.protocol],
                *cells,
                ""
                if cell is None or cell.ece is None
                else f"{100 * cell.accuracy:.1f} / {100 * cell.ece:.1f}",
            )
        )
    if not body:
        return ""
    text = (
        'The abstract speaks of "the held-out validation dataset", Section 3 of the likelihood on '
        '"the support set instead". The likelihood of all classes and that of "the answer is '
        'right" (`objective="top_label"`) give different T. Accuracy / ECE of NED with either:'
    )
    header = ("data", "embedding", "protocol", "likelihood", "top label", "paper")
    return f"{text}\n\n{write_rows(header, body)}"


READINGS = ("nll", "top_label")


def _two_jobs(rows: Sequence[Row]) -> str:
    """What other multiples of T do to accuracy and ECE."""
    text = (
        "T says which neighbours count, and how sharp the posterior is. Likelihood cares for the "
        "second. Accuracy / ECE of NED at multiples of the fitted T, with the number of equal "
        "votes that would say as much as its weights ((sum of w)^2 / sum of w^2), every query "
        "against all others or the given gallery. The T that is right most often, the one with the "
        "lowest ECE and the fitted one need not be the same, and a rule that lets more neighbours "
        "decide can be ahead of NED by that alone. Multiples are chosen on the queries. nearsure's "
        "default has a second parameter for sharpness "
        "([ADR 12](adr/0012-adaptive-ned-is-the-default.md))."
    )
    body = []
    for row in rows:
        if row.run not in {MAIN_LOSS, "given embeddings"} or row.protocol == "gallery_and_queries":
            continue
        sweep, ks = row.sweep, row.sweep["ks"]
        place = ks.index(row.k) if row.k in ks else len(ks) - 1
        right, factors = sweep["accuracy"][place], sweep["factors"]
        best = max(range(len(factors)), key=lambda i, r=right: r[i])  # type: ignore[misc]
        lowest = min(
            range(len(factors)),
            key=lambda i, e=sweep["ece"][place]: e[i],  # type: ignore[misc]
        )
        rule = max(BASELINES, key=lambda r, s=sweep: s["baseline_accuracy"][r][place])  # type: ignore[misc]
        baseline = (
            sweep[f"baseline_{name}"][rule][place] for name in ("accuracy", "ece", "voters")
        )
        body.append(
            (
                row.dataset,
                *(
                    f"{factors[i]:g} T: {_cell(right[i], sweep['ece'][place][i])}, "
                    f"{sweep['voters'][place][i]:.0f} voters"
                    for i in (lowest, factors.index(1.0), best)
                ),
                "{}: {}, {:.0f} voters".format(title_of(rule), *_three(*baseline)),
            )
        )
    if not body:
        return ""
    header = ("data", "lowest ECE", "fitted T", "most accurate", "best other rule")
    return f"{text}\n\n{write_rows(header, body)}"


def _three(right: float, error: float, voters: float) -> tuple[str, float]:
    return _cell(right, error), voters


def _cell(right: float, error: float) -> str:
    return f"{100 * right:.1f} / {100 * error:.1f}"


def _slips() -> str:
    """Where the paper's sentences and its numbers disagree."""
    table_1 = clean_columns(losses=[MAIN_LOSS])
    above = [
        number(column, rule, 1) - number(column, "ned", 1)
        for column in table_1
        for rule in BASELINES
    ]
    bim = paper_tables()["adversarial_cars196"]["BIM eps=0.1"]
    first = [
        f"{100 - accuracy:.2f} and not {ece:g}"
        for column in clean_columns()
        for accuracy, ece in [column["1nn"]]
        if accuracy is not None and ece is not None
    ]
    others = span(number(bim, rule, 0) for rule in ("1nn", *BASELINES))
    tied = number(paper_column("sop", "proxy-nca"), "ned", 0)
    return f"""\
- Gain over 1NN, "at least by 0.3% and at most by 7.3%": Table 1 has {span(gains(table_1))}.
- ECE above NED's, "at least by 3% and at most by 31.2%": Table 1 has {span(above)}.
- 1NN is always sure, so its ECE is 1 - accuracy. Where Table 4 prints one, it should be
  {", ".join(first)}; no difference from such a number is printed here.
- {len(list(impossible_cells()))} cells of kNN and weighted kNN have an ECE above 1 - accuracy,
  which no overconfident rule can have.
- NED under BIM with epsilon 0.1 is printed as {number(bim, "ned", 0)}, where every other rule has
  {others}: it reads like a misprint.
- "Consistently outperforms the baseline methods for all experiments": on SOP all rules have
  {number(paper_column("sop"), "ned", 0)}, and with Proxy-NCA NED and weighted kNN {tied}.
- The weights are written exp(|z - z_i|^2 / T) once, without the minus sign.
- T is fitted on held-out data in the abstract, on the support set in Section 3."""


def _stand_ins(folder: Path) -> str:
    """That the whole path runs on stand-ins, and what came of it."""
    text = (
        "Their images are not at hand, so no number of theirs is compared. Whoever has them runs "
        "`nearsure reproduce sop --root Stanford_Online_Products` and `nearsure reproduce inshop "
        "--root In-shop` ([the lab](lab.md))."
    )
    body = []
    for path in sorted((folder / STAND_INS).glob("*/results.json")):
        document = json.loads(path.read_text(encoding="utf-8"))
        for name, run in document["runs"].items():
            for protocol, evaluation in run["evaluations"].items():
                row = Row(document["dataset"], name, evaluation, run["sweeps"][protocol])
                body.append(
                    (
                        f"{row.dataset}-like",
                        name,
                        PROTOCOL_TITLES[protocol],
                        f"{evaluation['n_queries']:,} / {evaluation['n_classes']:,}",
                        *(f"{row.accuracy(rule):.1f} / {row.ece(rule):.1f}" for rule in RULE_NAMES),
                    )
                )
    if not body:
        return text
    header = (
        "stand-in",
        "embedding",
        "protocol",
        "queries / classes",
        *(title_of(rule) for rule in RULE_NAMES),
    )
    return (
        f"{text} The path is proven on stand-ins: drawn glyphs in the official layouts, classes of "
        "2 to 12 images for SOP, lists of queries and gallery for In-shop "
        "([what the run wrote](../results/stand-ins/README.md)). These are no results about "
        f"products or clothes. Accuracy / ECE:\n\n{write_rows(header, body)}"
    )
