"""Whether promises of precision are kept: on queries like the gallery, and on others.

``python -m benchmarks.promises --plain`` asks `accept_threshold(precision=...)` alone. Without
``--plain`` the threshold sees the unlabelled queries (``queries=``),
says whether its promise "holds", is "adjusted" or "withdrawn" (`state`), and galleries without
groups are fitted with ``groups="auto"``. Cases: `benchmarks.promise_cases`. What a table counts:

made
    Promises whose target was reached and that were not withdrawn. One that then accepts none of the
    queries is kept.
broken
    Fewer of the accepted answers are right than was promised. The rest of those made are kept.
beyond chance
    Broken, and so many errors or more among so many accepted queries would happen in at most 5% of
    all draws if the promise were just kept: a one-sided exact binomial test.
by > 2 points
    Beyond chance, and the share of right answers is more than 2 points below the promise.
silent
    Beyond chance while the state was "holds", or there was none. A warning at fit does not count as
    said, since it is not seen where the promise is read; it has a column of its own.
coverage
    Mean share of all queries that is accepted, 0 where no promise was made.
oracle
    Mean of the largest coverage, by a threshold on the same confidence, at which the answers are
    right as often as promised. It sees the true labels.

The bars use "beyond chance". A promise is about all queries to come, and some hundred of them tell
its truth only roughly: of thresholds whose true precision is exactly the target, half would be
"broken", and of those a standard error above it one in six. "Broken" therefore counts promises that
were kept. The test is lenient: it misses breaks that are small beside the chance of the queries. So
both counts are printed, with the mean and worst precision, and the share that is broken at all
stands beside the bar, without failing. 1 - certainty, 5%, may be broken, and the test adds false
alarms only where the true precision is at the target, or next to it. Splits of one data set share
points: 20 of them are fewer than 20 independent trials.

Bars on queries like the gallery fail the process. Those on other queries are printed, and fail it
with ``--strict`` only.
"""

import argparse
import shlex
import sys
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from time import perf_counter
from typing import Any, Literal

import numpy as np
from scipy.stats import binom

from benchmarks.promise_cases import CASES, DATASETS, LIKE, Case, Groups, Points, Trial, is_there
from benchmarks.report import finish, say
from nearsure import NEDClassifier
from nearsure.arrays import BoolArray, FloatArray

PROMISES = (0.90, 0.95, 0.99)
SPLITS = 20
CHANCE = 0.05
MOST_BROKEN = 0.05
TWO_POINTS, FIVE_POINTS = 0.02, 0.05
LEAST_ADJUSTED_KEPT = 0.9
TODAY = Path(__file__).parents[1] / "results" / "promises" / "plain.md"
UNKNOWNS = "unknown classes, share given"
STATES = ("holds", "adjusted", "withdrawn")
HEADS = (
    *("queries", "data", "groups", "accuracy: own, true", "promise", "trials", "made", "kept"),
    *("broken", "beyond chance", "by > 2 points", "silent", "silent, by > 2", "right (worst)"),
    *("coverage", "oracle", "said: holds / adjusted / withdrawn", "warned at fit"),
)


@dataclass(frozen=True)
class Cell:
    """What is measured together: one row of the table for each promise."""

    case: str
    dataset: str
    groups: Groups


@dataclass(frozen=True)
class Outcome:
    """One promise and what became of it."""

    target: float
    state: str | None
    reached: bool
    n_queries: int
    n_accepted: int
    n_right: int
    oracle_coverage: float
    own_accuracy: float
    accuracy: float
    warned: tuple[str, ...]

    @property
    def made(self) -> bool:
        """Whether anything is promised."""
        return self.reached and self.state != "withdrawn"

    @property
    def coverage(self) -> float:
        """Share of the queries that is accepted."""
        return self.n_accepted / self.n_queries

    @property
    def precision(self) -> float:
        """Share of the accepted that is right; 1 if none is accepted."""
        return self.n_right / self.n_accepted if self.n_accepted else 1.0

    @property
    def broken(self) -> bool:
        """Whether fewer are right than was promised."""
        return self.made and self.precision < self.target

    @property
    def beyond_chance(self) -> bool:
        """Whether it is broken beyond the chance of finitely many queries."""
        tail = binom.cdf(self.n_right, self.n_accepted, self.target)
        return self.broken and bool(tail <= CHANCE)

    @property
    def silent(self) -> bool:
        """Whether it is broken beyond chance and nothing was said."""
        return self.beyond_chance and self.state in {None, "holds"}

    def broken_by(self, margin: float) -> bool:
        """Whether it is broken beyond chance and by more than a margin."""
        return self.beyond_chance and self.precision < self.target - margin


Outcomes = dict[Cell, list[Outcome]]


@dataclass(frozen=True)
class Features:
    """What nearsure is asked for."""

    queries: bool
    auto_groups: bool
    head: Literal["auto"] | None


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--plain", action="store_true", help="show no queries, no automatic groups")
    parser.add_argument("--sets", nargs="+", choices=DATASETS, default=DATASETS, metavar="SET")
    names = [case.make.__name__ for case in CASES]
    parser.add_argument("--cases", nargs="+", choices=names, default=names, metavar="CASE")
    parser.add_argument("--splits", type=int, default=SPLITS, help="trials of each cell")
    parser.add_argument("--seen", type=int, help="queries that a threshold is shown; default all")
    parser.add_argument("--head", choices=("auto", "none"), default="auto", help="of the default")
    parser.add_argument("--output", type=Path, help="Markdown file for the table")
    parser.add_argument("--strict", action="store_true", help="bars on other queries fail as well")
    arguments = parser.parse_args()
    head = None if arguments.head == "none" else arguments.head
    features = Features(queries=not arguments.plain, auto_groups=not arguments.plain, head=head)
    start = perf_counter()
    cases = [case for case in CASES if case.make.__name__ in arguments.cases]
    outcomes = measure_all(cases, arguments.sets, arguments.splits, features, arguments.seen)
    minutes = (perf_counter() - start) / 60
    tables = f"{to_markdown(pool(outcomes))}\n\n{to_markdown(outcomes)}"
    if arguments.output is None:
        print(tables)
    else:
        command = shlex.join(["python", "-m", "benchmarks.promises", *sys.argv[1:]])
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        arguments.output.write_text(to_page(tables, command, minutes, features))
    say_bars(outcomes, strict=arguments.strict)
    if not arguments.plain:
        say_coverage(outcomes)
    finish()


def measure_all(
    cases: list[Case],
    datasets: tuple[str, ...],
    n_trials: int,
    features: Features,
    n_seen: int | None,
) -> Outcomes:
    """Every case on every data set that is there, with a line for each when it is done."""
    outcomes: Outcomes = defaultdict(list)
    for case in cases:
        for dataset in case.datasets:
            if dataset not in datasets:
                continue
            name = f"{case.make.__name__}, {dataset}"
            if not is_there(dataset):
                print(f"      {name}: skipped, NEARSURE_DATA names no such file")
                continue
            start = perf_counter()
            for trial in case.trials(dataset, n_trials):
                for groups in trial.groups:
                    if groups == "auto" and not features.auto_groups:
                        if "none" in trial.groups:
                            continue
                        groups = "none"  # noqa: PLW2901
                    for case_name, found in measure(trial, groups, features, n_seen):
                        outcomes[Cell(case_name, dataset, groups)].append(found)
            print(f"      {name}: {n_trials} trials, {perf_counter() - start:.0f} s", flush=True)
    return outcomes


def measure(
    trial: Trial, groups: Groups, features: Features, n_seen: int | None
) -> Iterator[tuple[str, Outcome]]:
    """Fit one gallery and make every promise for every batch of queries."""
    given: Any = {"none": None, "auto": "auto", "given": trial.given}[groups]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        classifier = NEDClassifier(unknown_share=trial.unknown_share, head=features.head)
        classifier.fit(trial.gallery.vectors, trial.gallery.codes, groups=given)
    warned = tuple(sorted({found.category.__name__ for found in caught}))
    own_accuracy = float(classifier.rehearsed_scores()[1].mean())
    for name, queries in trial.batches.items():
        prediction = classifier.predict_with_confidence(queries.vectors)
        right = prediction.labels == queries.codes
        for target in PROMISES:
            threshold = choose(classifier, queries, target, features, n_seen)
            accepted = threshold.accepts(prediction.confidence)
            yield (
                name,
                Outcome(
                    target=target,
                    state=getattr(threshold, "state", None) if features.queries else None,
                    reached=threshold.reached,
                    n_queries=len(right),
                    n_accepted=int(accepted.sum()),
                    n_right=int(right[accepted].sum()),
                    oracle_coverage=find_oracle_coverage(prediction.confidence, right, target),
                    own_accuracy=own_accuracy,
                    accuracy=float(right.mean()),
                    warned=warned,
                ),
            )


def choose(
    classifier: NEDClassifier,
    queries: Points,
    target: float,
    features: Features,
    n_seen: int | None,
) -> Any:  # noqa: ANN401  # today's thresholds have no state
    """The threshold for a promise; what is said in passing is the state's to say again."""
    options: dict[str, Any] = {"queries": queries.vectors[:n_seen]} if features.queries else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return classifier.accept_threshold(precision=target, **options)


def find_oracle_coverage(confidence: FloatArray, right: BoolArray, target: float) -> float:
    """Largest share of the queries above a threshold of which the target's share is right.

    Examples
    --------
    >>> find_oracle_coverage(np.array([0.9, 0.8, 0.8, 0.1]), np.array([1, 1, 0, 1], bool), 0.75)
    1.0
    >>> find_oracle_coverage(np.array([0.9, 0.8, 0.8, 0.1]), np.array([1, 1, 0, 0], bool), 0.75)
    0.25
    """
    order = np.argsort(-confidence, kind="stable")
    ordered, n_right = confidence[order], np.cumsum(right[order])
    n_accepted = np.arange(1, len(order) + 1)
    # A threshold accepts all queries of one confidence, or none.
    ends_tie = np.append(ordered[1:] != ordered[:-1], True)
    reaches = ends_tie & (n_right / n_accepted >= target)
    return float(n_accepted[reaches].max(initial=0) / len(order))


def pool(outcomes: Outcomes) -> Outcomes:
    """All data sets of a case together."""
    pooled: Outcomes = defaultdict(list)
    for cell, found in outcomes.items():
        pooled[replace(cell, dataset="all")].extend(found)
    return pooled


def to_markdown(outcomes: Outcomes) -> str:
    """A table, a row for each cell and promise, and the cells of a case one below the other."""
    rows = [HEADS, ("---",) * len(HEADS)]
    cases = list(dict.fromkeys(cell.case for cell in outcomes))
    for cell in sorted(outcomes, key=lambda cell: cases.index(cell.case)):
        for target in PROMISES:
            promised = [each for each in outcomes[cell] if each.target == target]
            rows.append(_row(cell, target, promised))
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def to_page(tables: str, command: str, minutes: float, features: Features) -> str:
    """The tables with how they were made and how they are read."""
    said = "queries shown" if features.queries else "queries not shown"
    auto = "groups found" if features.auto_groups else "groups not looked for"
    return (
        "# Promises of precision, and what queries got\n\n"
        f"`{command}` (nearsure {version('nearsure')}, {said}, {auto}) made these tables in "
        f"{minutes:.1f} minutes. The columns are explained at the top of `benchmarks/promises.py`; "
        'the bars use "beyond chance".\n\n'
        f"{tables}\n"
    )


def _row(cell: Cell, target: float, found: list[Outcome]) -> tuple[str, ...]:
    made = [each for each in found if each.made]
    precisions = [each.precision for each in made if each.n_accepted]
    n_broken = sum(each.broken for each in made)
    own = _mean_percent([each.own_accuracy for each in found], 0)
    true = _mean_percent([each.accuracy for each in found], 0)
    states = Counter(each.state for each in found)
    warned = Counter(name for each in found for name in each.warned)
    return (
        cell.case,
        cell.dataset,
        cell.groups,
        f"{own}, {true}",
        f"{target:.0%}",
        str(len(found)),
        str(len(made)),
        str(len(made) - n_broken),
        str(n_broken),
        str(sum(each.beyond_chance for each in made)),
        str(sum(each.broken_by(TWO_POINTS) for each in made)),
        str(sum(each.silent for each in made)),
        str(sum(each.silent and each.broken_by(TWO_POINTS) for each in made)),
        f"{_mean_percent(precisions)} ({100 * min(precisions):.1f})" if precisions else "-",
        _mean_percent([each.coverage for each in found]),
        _mean_percent([each.oracle_coverage for each in found]),
        " / ".join(str(states[state]) for state in STATES) if set(states) != {None} else "-",
        ", ".join(f"{name} {count}" for name, count in warned.items()) or "-",
    )


def _mean_percent(shares: list[float], digits: int = 1) -> str:
    return f"{100 * np.mean(shares):.{digits}f}"


def say_bars(outcomes: Outcomes, *, strict: bool) -> None:
    """Print each bar and whether it is met."""
    for cell, found in outcomes.items():
        if cell.case == LIKE:
            _say_broken(f"{cell.case}, {cell.dataset}", found, binding=True)
    by_case: dict[str, list[Outcome]] = defaultdict(list)
    for cell, found in outcomes.items():
        suffix = "" if cell.groups == "auto" or cell.case == LIKE else f", groups {cell.groups}"
        by_case[cell.case + suffix].extend(found)
    for case, found in by_case.items():
        if case.startswith(LIKE):
            _say_broken(f"{case}, all sets", found, binding=True)
            continue
        if case.startswith(UNKNOWNS):
            _say_broken(f"{case}, all sets", found, binding=strict)
        n_silent = sum(each.silent and each.broken_by(TWO_POINTS) for each in found)
        n_made = sum(each.made for each in found)
        what = f"{case}: silent breaks by more than 2 points"
        say(what, n_silent, 0, unit=f" of {n_made}", binding=strict)
        adjusted = [each for each in found if each.made and each.state == "adjusted"]
        if adjusted:
            kept = np.mean([not each.broken_by(FIVE_POINTS) for each in adjusted])
            what = f"{case}: {len(adjusted)} adjusted promises, kept to within 5 points"
            say(what, float(kept), LEAST_ADJUSTED_KEPT, at_least=True, unit="", binding=strict)
    everything = [each for found in outcomes.values() for each in found]
    n_accepting = sum(each.state == "withdrawn" and each.n_accepted > 0 for each in everything)
    if any(each.state == "withdrawn" for each in everything):
        say("withdrawn promises that accept", n_accepting, 0, unit="")


def _say_broken(what: str, found: list[Outcome], *, binding: bool) -> None:
    made = [each for each in found if each.made]
    what = f"{what}: share of {len(made)} promises broken"
    beyond_chance, at_all = (
        float(np.mean(shares)) if shares else 0.0
        for shares in ([each.beyond_chance for each in made], [each.broken for each in made])
    )
    say(f"{what} beyond chance", beyond_chance, MOST_BROKEN, unit="", binding=binding)
    say(f"{what} at all", at_all, MOST_BROKEN, unit="", binding=False)


def say_coverage(outcomes: Outcomes) -> None:
    """Compare coverage on queries like the gallery with that of the stored plain table."""
    if not TODAY.exists():
        print(f"      coverage is not compared: there is no {TODAY}")
        return
    today = read_coverages(TODAY.read_text())
    for cell, found in outcomes.items():
        if cell.case != LIKE or cell.dataset not in today:
            continue
        n_trials, coverage = today[cell.dataset]
        if len(found) != n_trials * len(PROMISES):
            print(f"      {cell.dataset}: coverage is not compared, {TODAY.name} has other splits")
            continue
        now = 100 * float(np.mean([each.coverage for each in found]))
        what = f"{LIKE}, {cell.dataset}: mean coverage beside today's"
        # The table gives tenths of a percent.
        say(what, now, round(coverage - 0.05, 2), at_least=True, unit="%")


def read_coverages(page: str) -> dict[str, tuple[int, float]]:
    """Trials and mean coverage of each data set, in percent, from the tables of a page."""
    coverages: dict[str, list[float]] = defaultdict(list)
    n_trials: dict[str, int] = {}
    for line in page.splitlines():
        parts = [part.strip() for part in line.strip("| ").split(" | ")]
        row = dict(zip(HEADS, parts, strict=False))
        if row["queries"] == LIKE:
            coverages[row["data"]].append(float(row["coverage"]))
            n_trials[row["data"]] = int(row["trials"])
    return {name: (n_trials[name], float(np.mean(found))) for name, found in coverages.items()}


if __name__ == "__main__":
    main()
