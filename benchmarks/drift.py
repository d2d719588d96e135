"""How well the accuracy of shifted queries is told without their labels.

Estimates: digits with noise come with scikit-learn. Glyphs, birds and cars are the corrupted
embeddings that `nearsure reproduce --robust` leaves under runs/, in the strict protocol: half of
every class is the gallery, the other half asks. Birds and cars need their image folders, too, for
the labels: NEARSURE_DATA says where cub200_160px and cars196_112px are. What is not there is left
out, and named.

Ranges: what `compare_queries` gives as the range of the accuracy (`accuracy_range`), on cases of
`benchmarks.promise_cases` and on damaged pictures, by 100 and by up to 1,000 queries. A range of
the first is asked to hold the accuracy of these 100 queries, not that of all to come. Its alarm
beside queries like the gallery, of classes of two or three members, too, is a false one.

True labels of the queries serve only to measure the error.
"""

import argparse
import os
import shlex
import sys
import warnings
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from time import perf_counter
from typing import Any, NoReturn

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from benchmarks import promise_cases as cases
from benchmarks.promise_cases import Case, Trial, is_there
from benchmarks.report import finish, say
from nearsure import NEDClassifier, Neighbors
from nearsure.arrays import AnyArray, IntArray
from nearsure.classifier.parameters import chosen_calibration, chosen_rule
from nearsure.classifier.rule import fit_rule, self_search
from nearsure.drift import Evidence, compare_samples, fit_cut, gather_evidence
from nearsure.errors import NearsureError
from nearsure.gallery import Gallery
from nearsure.lab.cache import CachedStep, digest
from nearsure.lab.datasets import load_split
from nearsure.lab.embedding import FEATURE_CHUNK, EmbeddingRun
from nearsure.lab.protocols import encode_labels
from nearsure.lab.recipes import recipe
from nearsure.lab.robust.experiments import CORRUPTIONS_VERSION
from nearsure.lab.robust.model import FrozenSupport, damaged_rows, frozen_supports
from nearsure.lab.robust.settings import RobustSettings, robust_settings
from nearsure.robustness import CORRUPTIONS, SEVERITIES

RUNS = Path("runs")
FOLDER = Path(os.environ.get("NEARSURE_DATA", Path(__file__).parents[1] / ".." / "shared" / "data"))
ROOTS = {"glyphs": None, "cub200": FOLDER / "cub200_160px", "cars196": FOLDER / "cars196_112px"}
CELLS = [f"{name}-{severity}" for name in CORRUPTIONS for severity in SEVERITIES]
# Standard deviations, pixels being 0 to 16.
NOISE = (0.0, 1.0, 2.0, 3.0, 4.0, 6.0)
K = 50
SEED = 0
# "auto" is what NEDClassifier does unless told otherwise.
RULES = ("ned", "auto", "knn", "gou")
BOUND = ("ned", "auto")
KEPT = "above the cut in certainty (ATC)"
MEAN_CONFIDENCE = "mean confidence"
LARGE_FALL = 0.1
SPLITS = 2
BATCH_SIZES = (100, 1000)
LEAST_HELD = 0.9
MOST_FALSE_ALARMS = 0.05
CLEAN = (cases.LIKE, "classes of 2", "classes of 3")
TAILED = ("CUB", "CLINC150", "HWU64", "TREC", "digits")
RANGE_CASES = (
    Case(cases.like_gallery, cases.ALL),
    Case(cases.classes_of_two, ("CUB", "CLINC150", "HWU64", "glyphs")),
    Case(cases.classes_of_three, ("CUB", "CLINC150", "HWU64", "glyphs")),
    Case(cases.long_tail, TAILED),
    Case(cases.tailed_queries, TAILED),
    Case(cases.bursts, TAILED),
    Case(cases.own_split, ("CLINC150",)),
    Case(cases.folds, ("ESC-50",)),
    Case(cases.moved_digits, ("digits",)),
    Case(cases.damaged_pictures, ("digits", "glyphs")),
)


class NotCachedError(NearsureError):
    """A stage is not there; this benchmark trains and corrupts nothing."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--splits", type=int, default=SPLITS, help="trials of each case")
    parser.add_argument("--output", type=Path, help="Markdown file for the table of ranges")
    arguments = parser.parse_args()
    measure_estimates()
    start = perf_counter()
    found = list(measure_ranges(arguments.splits))
    table = to_markdown(found)
    if arguments.output is None:
        print(table)
    else:
        command = shlex.join(["python", "-m", "benchmarks.drift", *sys.argv[1:]])
        minutes = (perf_counter() - start) / 60
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        arguments.output.write_text(to_page(table, command, minutes))
    held = float(np.mean([each.holds for each in found]))
    what = f"share of {len(found)} ranges that hold the accuracy"
    say(what, held, LEAST_HELD, at_least=True, unit="")
    clean = [each.alarm for each in found if each.case in CLEAN]
    what = f"share of {len(clean)} clean batches with an alarm"
    say(what, float(np.mean(clean)), MOST_FALSE_ALARMS, unit="")
    finish()


@dataclass(frozen=True)
class RangeFound:
    """What was said of one batch of queries, and what is true."""

    case: str
    dataset: str
    n_queries: int
    own_accuracy: float
    accuracy: float
    low: float
    high: float
    estimate: float
    alarm: bool

    @property
    def holds(self) -> bool:
        """Whether the range holds the share of right answers."""
        return self.low <= self.accuracy <= self.high


def measure_ranges(n_splits: int) -> Iterator[RangeFound]:
    """Every case on every data set that is there, with a line for each when it is done."""
    for case in RANGE_CASES:
        for dataset in case.datasets:
            name = f"{case.make.__name__}, {dataset}"
            if not is_there(dataset):
                print(f"      {name}: skipped, NEARSURE_DATA names no such file")
                continue
            start = perf_counter()
            # All kinds of damage are of the same pictures: more splits say little more.
            n_trials = 1 if case.make is cases.damaged_pictures else n_splits
            for trial in case.trials(dataset, n_trials):
                yield from measure_trial(case, dataset, trial)
            print(f"      {name}: {perf_counter() - start:.0f} s", flush=True)


def measure_trial(case: Case, dataset: str, trial: Trial) -> Iterator[RangeFound]:
    """Fit one gallery, with each of its groups, and compare batches of both sizes."""
    for groups in trial.groups:
        given: Any = {"none": None, "auto": "auto", "given": trial.given}[groups]
        with warnings.catch_warnings():
            # What is said in passing is in the findings, too.
            warnings.simplefilter("ignore")
            classifier = NEDClassifier().fit(
                trial.gallery.vectors, trial.gallery.codes, groups=given
            )
            own_accuracy = float(classifier.rehearsed_scores()[1].mean())
            for batch, queries in trial.batches.items():
                name = "damaged pictures" if case.make is cases.damaged_pictures else batch
                if trial.groups != ("auto",):
                    name += f", groups {groups}"
                for size in BATCH_SIZES:
                    drift = classifier.compare_queries(queries.vectors[:size])
                    right = classifier.predict(queries.vectors[:size]) == queries.codes[:size]
                    low, high = drift.accuracy_range or (0.0, 1.0)
                    yield RangeFound(
                        case=name,
                        dataset=dataset,
                        n_queries=size,
                        own_accuracy=own_accuracy,
                        accuracy=float(right.mean()),
                        low=low,
                        high=high,
                        estimate=drift.accuracy.estimate,
                        alarm=drift.alarm,
                    )


def to_markdown(found: list[RangeFound]) -> str:
    """A table, a row for each case and size of the batch, and one for all."""
    heads = (
        *("queries", "at most", "batches", "accuracy: own, true", "ranges that hold"),
        *("mean width", "error of the estimate, mean (worst)", "alarms"),
    )
    rows = [heads, ("---",) * len(heads)]
    by_case: dict[tuple[str, str], list[RangeFound]] = defaultdict(list)
    for each in found:
        by_case[each.case, str(each.n_queries)].append(each)
    by_case["all", "-"] = found
    for (case, size), some in by_case.items():
        errors = [100 * abs(each.estimate - each.accuracy) for each in some]
        own, true, held, width, alarms = (
            100 * float(np.mean(values))
            for values in (
                [each.own_accuracy for each in some],
                [each.accuracy for each in some],
                [each.holds for each in some],
                [each.high - each.low for each in some],
                [each.alarm for each in some],
            )
        )
        rows.append(
            (
                *(case, size, str(len(some)), f"{own:.0f}, {true:.0f}", f"{held:.0f}%"),
                *(f"{width:.1f}", f"{np.mean(errors):.1f} ({max(errors):.1f})", f"{alarms:.0f}%"),
            )
        )
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def to_page(table: str, command: str, minutes: float) -> str:
    """The table with how it was made and how it is read."""
    return (
        "# Ranges of the accuracy without labels\n\n"
        f"`{command}` (nearsure {version('nearsure')}) made this table in {minutes:.1f} minutes. "
        "Widths and errors are in points. What the cases are: `benchmarks/promise_cases.py`. An "
        'alarm on queries like the gallery, the first rows and "classes of", is a false one.\n\n'
        f"{table}\n"
    )


def measure_estimates() -> None:
    """Print the errors of all estimates on noisy digits, and on corrupted images if stored."""
    support, batches = noisy_digits()
    for rule in RULES:
        measure("digits", support, batches, rule)
    for dataset, root in ROOTS.items():
        if root is not None and not root.exists():
            print(f"      {dataset}: skipped, NEARSURE_DATA names no folder with {root.name}")
            continue
        try:
            frozen, cells = stored(dataset, root)
        except NotCachedError:
            how = "make reproduce-robust" if root is None else f"nearsure reproduce {dataset}"
            how += "" if root is None else f" --root {root.name} --robust"
            print(f"      {dataset}: skipped, no corrupted embeddings in {RUNS}/. Make: {how}")
            continue
        support, batches = Gallery.of_points(frozen.vectors, frozen.codes), list(cells)
        for rule in RULES:
            ratio, caught = measure(dataset, support, batches, rule)
            if rule in BOUND:
                what = f"{dataset}, {rule}: error of the estimate to that of the mean confidence"
                say(what, ratio, 0.75)
                what = f"{dataset}, {rule}: share of large falls with an alarm"
                say(what, caught, 0.95, at_least=True, unit="")


def measure(
    dataset: str, support: Gallery, batches: Iterable[tuple[Neighbors, IntArray]], rule: str
) -> tuple[float, float]:
    """Print the errors of each estimate over all batches but the first, which is clean, in points.

    Returns
    -------
    ratio : float
        Mean absolute error of the estimate that is kept to that of the mean confidence.
    caught : float
        Share of the large falls of accuracy that raise an alarm.
    """
    chosen = chosen_rule(rule, "auto", "nll")
    own_points = self_search(support, support.ids, K)
    n_classes = len(support.class_counts)
    fitted = fit_rule(
        chosen,
        own_points,
        temperature=None,
        objective="nll",
        calibration=chosen_calibration("auto", chosen, "support"),
        class_sizes=support.class_counts,
        prior_factors=None,
    )
    own_posterior = fitted.posterior(own_points.neighbors, n_classes=n_classes, own=own_points)
    own = gather_evidence(own_points.neighbors, own_posterior)
    correct = own_posterior.labels == own_points.codes
    truths, estimates, alarms = [], [], []
    for neighbors, codes in batches:
        posterior = fitted.posterior(neighbors, n_classes=n_classes)
        queries = gather_evidence(neighbors, posterior)
        truths.append(float((posterior.labels == codes).mean()))
        estimates.append(all_estimates(own, correct, queries))
        alarms.append(raises_alarm(own, queries))
    truth, alarmed = np.array(truths), np.array(alarms)
    mean_errors = {}
    for name in estimates[0]:
        errors = 100 * (np.array([found[name] for found in estimates]) - truth)
        mean_errors[name] = float(np.abs(errors[1:]).mean())
        print(
            f"      {dataset}, {rule}, {name}: mean absolute error {mean_errors[name]:.2f} points, "
            f"bias {errors[1:].mean():+.2f}, worst {np.abs(errors[1:]).max():.1f}, "
            f"clean {errors[0]:+.2f}"
        )
    fell = truth[0] - truth[1:] >= LARGE_FALL
    print(
        f"      {dataset}, {rule}: {alarmed[1:][fell].sum()} of {fell.sum()} falls by 10 points or "
        f"more raise an alarm, {alarmed[1:][~fell].sum()} of {(~fell).sum()} others, and the clean "
        f"queries {'do, too' if alarmed[0] else 'do not'}"
    )
    strangers = support.leave_class_out(support.ids, K)
    found = gather_evidence(strangers, fitted.posterior(strangers, n_classes=n_classes))
    print(
        f"      {dataset}, {rule}: of points whose class is left out "
        f"{100 * fit_cut(own, correct).share(found):.0f}% are counted as right"
    )
    caught = float(alarmed[1:][fell].mean()) if fell.any() else 1.0
    return mean_errors[KEPT] / mean_errors[MEAN_CONFIDENCE], caught


def all_estimates(own: Evidence, correct: AnyArray, queries: Evidence) -> dict[str, float]:
    """The estimate that is kept, beside what was tried and is simple."""
    fall = float(own.confidence.mean() - queries.confidence.mean())
    return {
        "no change (leave-one-out accuracy)": float(correct.mean()),
        MEAN_CONFIDENCE: float(queries.confidence.mean()),
        "difference of confidences": float(np.clip(correct.mean() - fall, 0.0, 1.0)),
        "above the cut in confidence (ATC)": fit_cut(_by_confidence(own), correct).share(
            _by_confidence(queries)
        ),
        KEPT: fit_cut(own, correct).share(queries),
    }


def raises_alarm(own: Evidence, queries: Evidence) -> bool:
    """Whether confidence or distance moved."""
    return (
        compare_samples(own.confidence, queries.confidence).alarm
        or compare_samples(own.distance, queries.distance).alarm
    )


def noisy_digits() -> tuple[Gallery, list[tuple[Neighbors, IntArray]]]:
    """Half of the digits as the gallery, and neighbours and codes of the others under noise."""
    points, codes = load_digits(return_X_y=True)
    gallery, queries, gallery_codes, query_codes = train_test_split(
        points, codes, test_size=0.5, random_state=SEED, stratify=codes
    )
    support = Gallery.of_points(gallery, gallery_codes)
    damage = np.random.default_rng(SEED).normal(size=queries.shape)
    return support, [(support.search(queries + noise * damage, K), query_codes) for noise in NOISE]


def stored(
    dataset: str, root: Path | None
) -> tuple[FrozenSupport, Iterator[tuple[Neighbors, IntArray]]]:
    """The strict gallery, and neighbours and codes of its clean and corrupted queries."""
    chosen = recipe(dataset, root=root, seed=SEED)
    run = chosen.runs[chosen.main]
    split = load_split(run.dataset, seed=run.seed)
    training = EmbeddingRun(run, split, RUNS).training_stage.key
    embeddings = CachedStep(RUNS, "embeddings", {"training": training})
    n_images = len(split.queries)
    _refuse_missing(
        embeddings, [f"queries-{start:07d}" for start in range(0, n_images, FEATURE_CHUNK)]
    )
    vectors = embeddings.rows("queries", n_images, _never, chunk=FEATURE_CHUNK)["rows"]
    codes, _ = encode_labels(np.asarray(split.queries.labels))
    support = frozen_supports(vectors, codes, None, seed=SEED)["gallery_and_queries"]
    settings: RobustSettings = robust_settings(dataset, {}, source="settings")
    rows = damaged_rows(support, settings.for_queries(len(codes)).corrupted_queries, seed=SEED)
    stage = CachedStep(
        RUNS,
        "corrupted",
        {
            "training": training,
            "rows": digest(rows.tolist()),
            "size": run.dataset.image_size,
            "seed": SEED,
            "corruptions": CORRUPTIONS_VERSION,
        },
    )
    _refuse_missing(stage, ["clean", *CELLS])
    asked = support.may_ask(rows)

    def cells() -> Iterator[tuple[Neighbors, IntArray]]:
        for cell in ("clean", *CELLS):
            found = stage.arrays(cell, _never)["rows"]
            neighbors = support.neighbors(found[asked], rows[asked], K)
            yield neighbors, support.query_codes[rows[asked]]

    return support, cells()


def _by_confidence(evidence: Evidence) -> Evidence:
    return Evidence(evidence.confidence, evidence.confidence, evidence.distance)


def _refuse_missing(stage: CachedStep, files: list[str]) -> None:
    if not all((stage.folder / f"{name}.safetensors").exists() for name in files):
        raise NotCachedError


def _never(*_: range) -> NoReturn:
    raise NotCachedError


if __name__ == "__main__":
    main()
