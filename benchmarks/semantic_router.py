# ruff: noqa: E501 - the page is written as it is read
"""Routes and confidence of semantic-router on CLINC150, beside nearsure's in the same router.

The queries are the test set, in scope and out of it. Labelled queries are drawn from the validation
set, with out-of-scope queries in the share that they have in the test set; everything but the
labels is the same for both. ``--write`` writes the table to results/semantic_router.md. The
embeddings are not part of the project: NEARSURE_DATA says where they are.
"""

import argparse
import logging
import os
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import numpy as np
from semantic_router.calibration import Calibrator
from semantic_router.encoders import DenseEncoder
from semantic_router.route import Route
from semantic_router.routers import IndexedRouter
from semantic_router.routers.base import BaseRouter, run

from nearsure import NEDClassifier
from nearsure.arrays import AnyArray, BoolArray, FloatArray
from nearsure.errors import FitWarning
from nearsure.integrations.semantic_router import ConfidentRouter
from nearsure.metrics import expected_calibration_error

FOLDER = Path(os.environ.get("NEARSURE_DATA", Path(__file__).parents[1] / ".." / "shared" / "data"))
PAGE = Path(__file__).parents[1] / "results" / "semantic_router.md"
UTTERANCES = (10, 100)
LABELLED = (20, 100)
DRAWS = 20
Aggregation = Literal["mean", "max", "sum"]
AGGREGATIONS: tuple[Aggregation, ...] = ("mean", "max", "sum")
PRECISION = 0.95
# What nearsure is told to expect; the truth is 1,000 of 5,500 queries.
UNKNOWN_SHARE = 0.1
HEADER = (
    "| router | labelled | accuracy % | ECE % | Brier | accepted at 0.95 % | right % | "
    "out of scope rejected % | accepted for 95% right % | right % | kept | "
    "out of scope rejected % |\n| --- |" + " --- |" * 11
)


class LookupEncoder(DenseEncoder):
    """Vectors that were computed before, by the name of the sentence."""

    name: str = "lookup"
    vectors: dict[str, list[float]] = {}  # noqa: RUF012 - pydantic copies it

    def __call__(self, docs: list[Any]) -> list[list[float]]:
        """The vectors of some sentences."""
        return [self.vectors[doc] for doc in docs]


@dataclass(frozen=True, eq=False)
class Queries:
    """Names of sentences, and their routes; "" where none should match."""

    names: list[str]
    routes: AnyArray

    def take(self, rows: AnyArray) -> "Queries":
        """Some of them."""
        return Queries([self.names[row] for row in rows], self.routes[rows])


@dataclass(frozen=True, eq=False)
class Answers:
    """Of queries: how sure, whether right, and whether there is a right one at all."""

    confidence: FloatArray
    correct: BoolArray
    in_scope: BoolArray


def load_sentences(encoder: LookupEncoder) -> tuple[dict[str, list[str]], Queries, Queries]:
    """Utterances by route, queries that may be labelled, and queries to be judged by."""
    file = np.load(FOLDER / "clinc150_minilm.npz")

    def named(part: str) -> list[str]:
        rows = file[f"{part}_x"].astype(np.float64)
        names = [f"{part} {row}" for row in range(len(rows))]
        encoder.vectors.update(zip(names, rows.tolist(), strict=True))
        return names

    rng = np.random.default_rng(0)
    utterances: dict[str, list[str]] = {}
    names, labels = named("train"), file["train_y"]
    for row in rng.permutation(len(names)):
        utterances.setdefault(str(labels[row]), []).append(names[row])
    both = [
        Queries(
            named(part) + named(f"oos_{part}"),
            np.concatenate(
                [file[f"{part}_y"].astype(str), np.full(len(file[f"oos_{part}_y"]), "")]
            ),
        )
        for part in ("val", "test")
    ]
    return utterances, both[0], both[1]


def ask(router: BaseRouter, queries: Queries) -> Answers:
    """The top score of each query, and whether its route is right."""
    scores = run(router._scores_many(queries.names))  # noqa: SLF001 - what a router is
    top = [max(each, key=each.__getitem__) for each in scores]
    confidence = np.array([each[name] for each, name in zip(scores, top, strict=True)])
    return Answers(confidence, np.array(top) == queries.routes, queries.routes != "")


def draw_labelled(queries: Queries, n: int, n_draws: int) -> Iterator[AnyArray]:
    """Rows of `n` queries in scope, and of others in the share of the test set."""
    inside = np.flatnonzero(queries.routes != "")
    outside = np.flatnonzero(queries.routes == "")
    for seed in range(n_draws):
        rng = np.random.default_rng(seed)
        others = rng.choice(outside, round(n * 1000 / 4500), replace=False)
        yield np.concatenate([rng.choice(inside, n, replace=False), others])


def lowest_threshold(labelled: Answers) -> float:
    """The lowest confidence from which 95% of the labelled queries are right, or infinity."""
    order = np.argsort(-labelled.confidence, kind="stable")
    right = np.cumsum(labelled.correct[order]) / np.arange(1, len(order) + 1)
    good = np.flatnonzero(right >= PRECISION)
    return float(labelled.confidence[order][good[-1]]) if good.size else np.inf


def figures(answers: Answers, threshold: float | None) -> list[float]:
    """What a row of the table shows, in its order."""
    capped = np.clip(answers.confidence, 0.0, 1.0)
    found = [
        100 * answers.correct[answers.in_scope].mean(),
        100 * expected_calibration_error(capped, answers.correct),
        float(np.mean((capped - answers.correct) ** 2)),
        *_accepted(answers, answers.confidence >= PRECISION)[:3],
    ]
    if threshold is None:
        return [*found, *[np.nan] * 4]
    coverage, right, rejected = _accepted(answers, answers.confidence >= threshold)
    kept = 1.0 if np.isnan(right) else float(right >= 100 * PRECISION)
    return [*found, coverage, right, kept, rejected]


def _accepted(answers: Answers, accepted: BoolArray) -> tuple[float, float, float]:
    right = 100 * float(answers.correct[accepted].mean()) if accepted.any() else np.nan
    rejected = 100 * float((~accepted[~answers.in_scope]).mean())
    return 100 * float(accepted.mean()), right, rejected


def table_row(name: str, n_labelled: int, rows: Sequence[list[float]]) -> str:
    """Means over draws, and in how many of them the precision was kept."""
    values = np.array(rows)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a column without any figure
        means = np.nanmean(values, axis=0)
    # A precision of nothing accepted is no precision.
    kept = "-" if np.isnan(values[0, 6]) else f"{int(values[:, 8].sum())} of {len(values)}"
    shown = [f"{mean:.4f}" if i == 2 else f"{mean:.1f}" for i, mean in enumerate(means)]  # noqa: PLR2004
    shown[8] = kept
    cells = " | ".join("-" if cell == "nan" else cell for cell in shown)
    return f"| {name} | {n_labelled} | {cells} |"


def rows_of_semantic_router(
    encoder: LookupEncoder,
    routes: list[Route],
    labellable: Queries,
    test: Queries,
    aggregation: Aggregation,
) -> Iterator[str]:
    router = IndexedRouter(encoder, routes, aggregation=aggregation)
    known, asked = ask(router, labellable), ask(router, test)
    yield table_row(f"semantic-router, {aggregation}", 0, [figures(asked, None)])
    methods: tuple[Literal["platt", "isotonic"], ...] = ("platt", "isotonic")
    for n in LABELLED:
        for method in methods:
            rows = []
            for drawn in draw_labelled(labellable, n, DRAWS):
                raw, correct = known.confidence[drawn], known.correct[drawn]
                calibrator = Calibrator.fit(raw, correct, method)
                labelled = Answers(calibrator(raw), correct, known.in_scope[drawn])
                now = Answers(calibrator(asked.confidence), asked.correct, asked.in_scope)
                rows.append(figures(now, lowest_threshold(labelled)))
            yield table_row(f"semantic-router, {aggregation}, {method}", n, rows)


def rows_of_nearsure(
    encoder: LookupEncoder, routes: list[Route], labellable: Queries, test: Queries
) -> Iterator[str]:
    classifier = NEDClassifier(metric="cosine", unknown_share=UNKNOWN_SHARE)
    router = ConfidentRouter(encoder, routes, classifier=classifier, precision=PRECISION)
    yield table_row("nearsure", 0, [figures(ask(router, test), router.confidence_threshold)])
    for n in LABELLED:
        rows = []
        for drawn in draw_labelled(labellable, n, DRAWS):
            some = labellable.take(drawn)
            router.recalibrate(some.names, [name or None for name in some.routes.tolist()])
            rows.append(figures(ask(router, test), router.confidence_threshold))
        yield table_row("nearsure, recalibrated", n, rows)


def measure(n_utterances: int) -> Iterator[str]:
    encoder = LookupEncoder()
    utterances, labellable, test = load_sentences(encoder)
    routes = [
        Route(name=name, utterances=own[:n_utterances]) for name, own in sorted(utterances.items())
    ]
    yield f"\n{n_utterances} utterances a route, {len(routes)} routes:\n\n{HEADER}"
    for aggregation in AGGREGATIONS:
        yield from rows_of_semantic_router(encoder, routes, labellable, test, aggregation)
    yield from rows_of_nearsure(encoder, routes, labellable, test)


INTRODUCTION = f"""# Beside semantic-router's own calibration

`python -m benchmarks.semantic_router --write` makes this page, here with semantic-router
{version("semantic-router")} and nearsure {version("nearsure")}. CLINC150, embedded by all-MiniLM-L6-v2: the utterances are
training sentences, the queries 4,500 test sentences of 150 intents and 1,000 that are out of scope. Both routers see the same
vectors. semantic-router's `IndexedRouter` scores routes by its 5 nearest utterances (`mean` is its default aggregation), and
its `fit` calibrates these scores on labelled queries, by Platt's method or isotonic regression. `ConfidentRouter` has
nearsure's probabilities as scores; labelled queries are given to its `recalibrate`. It expects {UNKNOWN_SHARE:.0%} of the queries out of
scope; the truth is 18%. The accuracies differ because nearsure weighs more neighbours, and the class as a whole beside them.
The utterances are one draw.

*Labelled* counts labelled queries in scope; another 22% come with them that are out of scope (4 and 22). Rows with labelled
queries are means over {DRAWS} draws of them. *Accuracy* is of queries in scope, before any threshold. *ECE* and *Brier* judge the
confidence of the top route over all queries; for a query out of scope every route is wrong. *Accepted at 0.95* takes a confidence
of 0.95 or more at its word. *Accepted for 95% right* is what a threshold for a precision of 95% accepts: nearsure's
`accept_threshold`, which promises it with 95% certainty; semantic-router has none, so it is the lowest threshold from which 95%
of the labelled queries are right. *Kept* counts the draws in which 95% of what was accepted was right, or nothing was accepted.
After `recalibrate` the promise rests on the labelled queries alone, of which 59, all right, are the fewest for 95%: with 20
it accepts nothing.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="write results/semantic_router.md")
    parser.add_argument(
        "--utterances", type=int, nargs="+", default=UTTERANCES, help="of each route, a table each"
    )
    arguments = parser.parse_args()
    if not (FOLDER / "clinc150_minilm.npz").exists():
        print("      semantic_router: nothing is measured, NEARSURE_DATA names no embeddings")
        return
    logging.getLogger("semantic_router").setLevel(logging.ERROR)
    warnings.simplefilter("ignore", FitWarning)
    lines = []
    for n_utterances in arguments.utterances:
        for line in measure(n_utterances):
            print(line, flush=True)
            lines.append(line)
    if arguments.write:
        PAGE.write_text(INTRODUCTION + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
