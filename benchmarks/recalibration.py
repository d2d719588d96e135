"""What 20 to 500 labelled queries do for shifted queries: calibration error, promises and sets.

Labelled queries are chosen with `choose_queries_to_label`, and the others of the same batch judge.
The constants of `nearsure.classifier.recalibration` were chosen on other splits of digits, HWU64,
TREC and glyphs (those of `benchmarks.promise_cases`), after earlier ones had been by the cases of
CHOSEN_ON. The other cases are no untouched test: variants had been compared on them, too.
Reference embeddings are not part of the project: NEARSURE_DATA says where they are.
"""

import argparse
import os
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple, cast
from unittest.mock import patch

import numpy as np
from scipy.ndimage import gaussian_filter
from sklearn.datasets import load_digits

from benchmarks.report import finish, say
from nearsure import NEDClassifier
from nearsure.arrays import AnyArray, FloatArray
from nearsure.classifier.recalibration import choose_rows
from nearsure.decisions import choose_threshold, fit_conformal, prediction_sets
from nearsure.gallery import Gallery
from nearsure.metrics import calibration_floor, expected_calibration_error
from nearsure.neighbors import Neighbors

FOLDER = Path(os.environ.get("NEARSURE_DATA", Path(__file__).parents[1] / ".." / "shared" / "data"))
FILES: tuple[str, ...] = (
    "esc50_logmel",
    "clinc150_minilm",
    "cub200_unseen_embeddings",
    "hwu64_minilm",
)
FILES += ("trec6_minilm", "atis_minilm")
# How often so many labelled queries are chosen; as many others are left to judge, or more.
DRAWS = {20: 12, 100: 12, 500: 6}
N_LABELS = tuple(DRAWS)
SIMULATIONS = 20
PRECISIONS = (0.8, 0.9, 0.95)
ALPHA = 0.1
# Points of ECE beyond the floor that 100 labels may leave.
WITHIN = 2.0
# Points beyond the floor up to which nothing was to be mended.
UNSHIFTED = 1.0
CHOSEN_ON = {
    "ESC-50, fold 2",
    "CLINC150, noise 0.06",
    "CUB, like the gallery",
    "digits, like the gallery",
    "digits, moved right",
    "digits, blurred",
    "HWU64, long tail",
    "HWU64, copies",
}


# Sets of which other splits had a part in choosing.
SEEN_SETS = ("digits", "HWU64", "TREC")


class Case(NamedTuple):
    """A gallery, and queries that may differ from it."""

    name: str
    gallery: AnyArray
    labels: AnyArray
    queries: AnyArray
    truth: AnyArray


def cases() -> Iterator[Case]:
    rng = np.random.default_rng(0)
    yield from digits(rng)
    if not all((FOLDER / f"{name}.npz").exists() for name in FILES):
        print("      recalibration: digits only, NEARSURE_DATA names no other files")
        return
    sounds, intents, birds, hwu, trec, atis = (
        dict(np.load(FOLDER / f"{name}.npz", allow_pickle=True)) for name in FILES
    )
    for fold in range(1, 6):
        asks, vectors = sounds["fold"] == fold, sounds["x"].astype(np.float32)
        parts = vectors[~asks], sounds["y"][~asks], vectors[asks], sounds["y"][asks]
        yield Case(f"ESC-50, fold {fold}", *parts)
    train, test = (intents[f"{part}_x"].astype(np.float32) for part in ("train", "test"))
    for noise in (0.0, 0.03, 0.06):
        name = f"CLINC150, noise {noise}" if noise else "CLINC150, own test"
        asked = add_noise(test, noise, rng)
        yield Case(name, train, intents["train_y"], asked, intents["test_y"])
    yield from halves("CUB", birds["embeddings"], birds["labels"], (0.0, 0.06, 0.1), rng)
    yield from halves("HWU64", hwu["x"].astype(np.float32), hwu["y"], (0.0,), rng)
    yield from halves("TREC", trec["x"].astype(np.float32), trec["y"], (0.0, 0.06), rng)
    yield from halves("ATIS", atis["x"].astype(np.float32), atis["y"], (0.06,), rng)
    yield long_tail("HWU64", hwu["x"].astype(np.float32), hwu["y"], rng)
    yield long_tail("CLINC150", train, intents["train_y"], rng)
    one = next(halves("HWU64", hwu["x"].astype(np.float32), hwu["y"], (0.0,), rng))
    copied = np.repeat(rng.permutation(len(one.labels))[: len(one.labels) // 5], 4)
    yield one._replace(
        name="HWU64, copies",
        gallery=np.concatenate([one.gallery, add_noise(one.gallery[copied], 0.002, rng)]),
        labels=np.concatenate([one.labels, one.labels[copied]]),
    )


def add_noise(vectors: AnyArray, noise: float, rng: np.random.Generator) -> AnyArray:
    moved = vectors + np.float32(noise) * rng.normal(size=vectors.shape).astype(np.float32)
    return np.asarray(moved)


def digits(rng: np.random.Generator) -> Iterator[Case]:
    vectors, labels = load_digits(return_X_y=True)
    order = rng.permutation(len(vectors))
    own, asked = order[:900], order[900:]
    images = vectors[asked].reshape(-1, 8, 8)
    right, down = np.roll(images, 1, axis=2), np.roll(images, 1, axis=1)
    right[:, :, 0], down[:, 0] = 0.0, 0.0
    variants = {
        "like the gallery": images,
        "moved right": right,
        "moved down": down,
        "blurred": gaussian_filter(images, (0.0, 0.8, 0.8)),
        "noisy": images + rng.normal(0.0, 4.0, images.shape),
    }
    for name, variant in variants.items():
        queries = variant.reshape(len(asked), -1)
        yield Case(f"digits, {name}", vectors[own], labels[own], queries, labels[asked])


def halves(
    name: str,
    vectors: AnyArray,
    labels: AnyArray,
    noises: tuple[float, ...],
    rng: np.random.Generator,
) -> Iterator[Case]:
    order = rng.permutation(len(vectors))
    own, asked = np.array_split(order, 2)
    for noise in noises:
        title = f"{name}, noise {noise}" if noise else f"{name}, like the gallery"
        queries = add_noise(vectors[asked], noise, rng)
        # ATIS has intents of a single sentence.
        known = np.isin(labels[asked], labels[own])
        yield Case(title, vectors[own], labels[own], queries[known], labels[asked][known])


def long_tail(name: str, vectors: AnyArray, labels: AnyArray, rng: np.random.Generator) -> Case:
    """A gallery whose classes shrink by e^4, asked by all classes alike."""
    own: list[int] = []
    asked: list[int] = []
    classes = rng.permutation(np.unique(labels))
    for rank, label in enumerate(classes):
        members = rng.permutation(np.flatnonzero(labels == label))
        n_asked = min(20, len(members) // 3)
        size = max(2, int(0.8 * len(members) * np.exp(-4 * rank / len(classes))))
        asked += members[:n_asked].tolist()
        own += members[n_asked : n_asked + size].tolist()
    return Case(f"{name}, long tail", vectors[own], labels[own], vectors[asked], labels[asked])


def excess(confidence: FloatArray, correct: AnyArray) -> tuple[float, float]:
    """ECE and its floor, in points."""
    floor = calibration_floor(confidence, seed=0, n_simulations=SIMULATIONS)
    return 100 * expected_calibration_error(confidence, correct), 100 * floor


class Found(NamedTuple):
    """What was measured of a case; dictionaries are by the number of labels.

    `errors` are mean ECE and floor, `promises` lists of how far promises were kept, from queries
    chosen as `choose_queries_to_label` does and from queries drawn at random, and `coverage` that
    of sets which rest on the gallery (0 labels), or on labels.
    """

    errors: dict[int, tuple[float, float]]
    promises: dict[int, tuple[list[float], list[float]]]
    coverage: dict[int, float]

    def beyond(self, n: int) -> float:
        """Points of ECE beyond the floor."""
        return self.errors[n][0] - self.errors[n][1]


def measure(case: Case) -> Found:
    classifier = NEDClassifier().fit(case.gallery, case.labels)
    before = classifier.predict_with_confidence(case.queries)
    right, codes = before.labels == case.truth, before.posterior.labels
    truth = classifier.encode(case.truth)
    sets = classifier.predict_set(case.queries, ALPHA)
    found = Found({0: excess(before.confidence, right)}, {}, {0: sets.contains(case.truth).mean()})
    for n in N_LABELS:
        if 2 * n > len(right):
            continue
        errors, covered = [], []
        chosen: list[float] = []
        drawn: list[float] = []
        for draw in range(DRAWS[n]):
            # As `choose_queries_to_label` does, without its search.
            rng = np.random.default_rng(draw)
            rows = choose_rows(before.confidence, codes, n, rng)
            rest = np.setdiff1d(np.arange(len(right)), rows)
            classifier.recalibrate(case.queries[rows], case.truth[rows])
            line = cast("Any", classifier.rule_.recalibrator)
            errors.append(excess(line(before.confidence[rest]), right[rest]))
            conformal = fit_conformal(before.posterior.take(rows), truth[rows], alpha=ALPHA)
            judged = prediction_sets(before.posterior.take(rest), conformal)
            covered.append(judged.contains(truth[rest]).mean())
            chosen += keep_promises(before.confidence, right, rows)
            drawn += keep_promises(
                before.confidence, right, rng.choice(len(right), n, replace=False)
            )
        mean, floor = np.mean(errors, axis=0)
        found.errors[n] = mean, floor
        found.promises[n] = chosen, drawn
        found.coverage[n] = float(np.mean(covered))
    return found


def remember(search: Callable[..., Neighbors]) -> Callable[..., Neighbors]:
    """Keep what was found, as long as no gallery changes."""
    # With the gallery: the number of one that is gone may be given to another.
    kept: dict[tuple[int, bytes, int], tuple[Gallery, Neighbors]] = {}

    def find(
        gallery: Gallery,
        ids: AnyArray | None,
        k: int,
        move: Callable[[AnyArray], AnyArray] | None = None,
    ) -> Neighbors:
        if move is not None:
            return search(gallery, ids, k, move)
        key = id(gallery), b"" if ids is None else ids.tobytes(), k
        if key not in kept:
            kept[key] = gallery, search(gallery, ids, k)
        return kept[key][1]

    return find


def keep_promises(confidence: FloatArray, right: AnyArray, rows: AnyArray) -> list[float]:
    """How far above the promise the others are right, for each promise that accepts any."""
    rest = np.setdiff1d(np.arange(len(right)), rows)
    margins = []
    for precision in PRECISIONS:
        # A line that ascends changes no order, and so no promise.
        accept = choose_threshold(confidence[rows], right[rows], precision=precision)
        accepted = accept.accepts(confidence[rest])
        if accepted.any():
            margins.append(float(right[rest][accepted].mean() - precision))
    return margins


def describe_errors(found: dict[str, Found]) -> Iterator[str]:
    yield "| queries | before | " + " | ".join(f"{n} labels" for n in N_LABELS) + " |"
    yield "| --- " * (len(N_LABELS) + 2) + "|"
    for name, one in found.items():
        mark = "*" if name in CHOSEN_ON else ""
        cells = [
            "{:.1f} / {:.1f}".format(*one.errors[n]) if n in one.errors else "-"
            for n in (0, *N_LABELS)
        ]
        yield f"| {name}{mark} | " + " | ".join(cells) + " |"


def describe_promises(found: dict[str, Found]) -> Iterator[str]:
    yield "Made, broken, broken by more than 2 points:"
    yield ""
    yield "| labels | chosen | at random |"
    yield "| --- | --- | --- |"
    for n in N_LABELS:
        cells = []
        for way in (0, 1):
            margins = np.array(
                [
                    one
                    for each in found.values()
                    if n in each.promises
                    for one in each.promises[n][way]
                ]
            )
            far = int((margins < -WITHIN / 100).sum())
            cells.append(f"{len(margins)}, {int((margins < 0).sum())}, {far}")
        yield f"| {n} | {cells[0]} | {cells[1]} |"


def describe_sets(found: dict[str, Found]) -> Iterator[str]:
    yield "| queries | gallery | " + " | ".join(f"{n} labels" for n in N_LABELS) + " |"
    yield "| --- " * (len(N_LABELS) + 2) + "|"
    for name, one in found.items():
        cells = [
            f"{100 * one.coverage[n]:.1f}" if n in one.coverage else "-" for n in (0, *N_LABELS)
        ]
        yield f"| {name} | " + " | ".join(cells) + " |"


def describe(found: dict[str, Found]) -> Iterator[str]:
    """The lines of a page, in Markdown."""
    yield "# Labelled queries"
    yield ""
    yield (
        "`python -m benchmarks.recalibration --output results/recalibration/README.md` (nearsure "
        f"{version('nearsure')}) made this page. Means over {DRAWS[100]} choices of the labelled "
        f"queries ({DRAWS[500]} of 500), judged by the other queries. Earlier constants "
        "were chosen by the cases with a star, the present ones on other splits of digits, HWU64, "
        "TREC and glyphs."
    )
    yield from ("", "## ECE / its floor, points", "")
    yield from describe_errors(found)
    yield ""
    others = {name: one for name, one in found.items() if name not in CHOSEN_ON}
    groups = {
        "all cases": found,
        "cases without a star": others,
        "cases without a star, of sets of which no split had a part in choosing": {
            name: one for name, one in others.items() if not name.startswith(SEEN_SETS)
        },
    }
    for title, some in groups.items():
        beyond = np.array([one.beyond(100) for one in some.values()])
        yield (
            f"- 100 labels, {title}: {int((beyond <= WITHIN).sum())} of {len(beyond)} within "
            f"{WITHIN:g} points of the floor, {beyond.mean():.2f} beyond it in the mean, "
            f"{beyond.max():.2f} at most."
        )
    still = {name: one for name, one in found.items() if one.beyond(0) <= UNSHIFTED}
    for n in N_LABELS:
        lost = {
            name: one.beyond(n) - one.beyond(0) for name, one in still.items() if n in one.errors
        }
        worst = max(lost, key=lambda name: lost[name])
        yield (
            f"- {n} labels, {len(lost)} cases that were within {UNSHIFTED:g} point of the floor "
            f"before: {np.mean(list(lost.values())):+.2f} points in the mean, {lost[worst]:+.2f} "
            f"at most ({worst})."
        )
    yield from ("", f"## Promises of {', '.join(f'{p:.0%}' for p in PRECISIONS)}", "")
    yield (
        "From labelled queries that were chosen as `choose_queries_to_label` does, and from as "
        "many drawn at random. Promises of one case share their queries and are not independent."
    )
    yield ""
    yield from describe_promises(found)
    yield from ("", f"## Coverage of sets with alpha = {ALPHA:g}, percent", "")
    yield from describe_sets(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, help="Markdown file for the page")
    output: Path | None = parser.parse_args().output
    found = {}
    for case in cases():
        # Own points are searched at every recalibration of a gallery; here, once.
        search = remember(Gallery.leave_one_out)
        with patch.object(Gallery, "leave_one_out", search):
            found[case.name] = measure(case)
        print(f"      {case.name}: done", flush=True)
    page = "\n".join(describe(found)) + "\n"
    print(page)
    if output is not None:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(page)
    others = [one.beyond(100) for name, one in found.items() if name not in CHOSEN_ON]
    say(
        f"recalibration: share of {len(others)} other cases within {WITHIN} points of the floor",
        float((np.array(others) <= WITHIN).mean()),
        0.9,
        at_least=True,
    )
    finish()


if __name__ == "__main__":
    main()
