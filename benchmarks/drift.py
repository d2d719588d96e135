"""How well the accuracy of shifted queries is told without their labels.

Digits with noise come with scikit-learn. Glyphs, birds and cars are the corrupted embeddings that
`nearsure reproduce --robust` leaves under runs/, in the strict protocol: half of every class is the
gallery, the other half asks. True labels of the queries serve only to measure the error. Birds and
cars need their image folders, too, for the labels: NEARSURE_DATA says where cub200_160px and
cars196_112px are.
"""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NoReturn

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from benchmarks.report import finish, say
from nearsure import Neighbors
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


class NotCachedError(NearsureError):
    """A stage is not there; this benchmark trains and corrupts nothing."""


def main() -> None:
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
    finish()


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
