"""Are these two the same: `PairConfidence` beside three ways to turn a distance into a probability.

Half of the classes are the gallery, and pairs of the other half are asked about, in 20 random
splits: no class is in both, as with faces. All methods see the same pairs of the gallery and answer
the same pairs; same pairs count alike by class, different ones by pair of classes.

- global sigmoid: one slope for all data sets, on the distance in units of the gallery's own
  distance of equal errors. The slope is the best for the galleries of the first split of CUB and
  HWU64.
- logistic: logistic regression on the distance.
- isotonic: scikit-learn's isotonic regression on the distance, kept away from 0 and 1 by half a
  pair.

The form of PairConfidence was chosen on CUB and HWU64; the other sets only show it. `--cache` adds
CARS and glyphs, the unseen classes as the networks of `nearsure reproduce` embed them, and
`--embeddings` files of your own. A threshold promises a share of false accepts. Besides the
threshold with its bound, that of the plain share measured on the gallery is shown, of the distance
and of the probability. A promise is kept if the share among pairs of the other half is no larger;
as that half has few classes, its share varies, too, and a threshold that keeps the promise for
classes at large breaks it in some splits.
"""

import argparse
import os
import shlex
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import expit
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression

from nearsure import PairConfidence
from nearsure.arrays import AnyArray, BoolArray, FloatArray, IntArray
from nearsure.lab.ablation.run import AbsentError, load_embedded
from nearsure.labels import classes_and_codes, groups_and_codes
from nearsure.pairs import report_pairs
from nearsure.pairs.sample import PairSample, draw_pairs

FOLDER = Path(os.environ.get("NEARSURE_DATA", Path(__file__).parents[1] / ".." / "shared" / "data"))
CHOSEN_ON = ("CUB", "HWU64")
# In the cache of the lab.
EMBEDDED = {"CARS": "cars196", "glyphs": "glyphs"}
FALSE_ACCEPTS = (1e-2, 1e-3)
OURS = "PairConfidence"


@dataclass(frozen=True, eq=False)
class DataSet:
    """Vectors, class codes, and groups of near-copies."""

    vectors: AnyArray
    codes: IntArray
    groups: IntArray


@dataclass(frozen=True, eq=False)
class Half:
    """The points of half of the classes, and pairs of them."""

    points: DataSet
    pairs: PairSample

    @property
    def same(self) -> BoolArray:
        """Which pairs are of one class."""
        return self.pairs.same

    @property
    def ends(self) -> tuple[AnyArray, AnyArray]:
        """The first and the second of each pair."""
        first, second = self.pairs.rows.T
        return self.points.vectors[first], self.points.vectors[second]

    def distances(self) -> FloatArray:
        """Of the pairs; the root, which deepface and logistic regression are used with."""
        first, second = self.ends
        return np.asarray(np.linalg.norm(first.astype(np.float64) - second, axis=1))


def load(name: str, x: str, y: str, group: str | None = None) -> DataSet:
    with np.load(FOLDER / name) as file:
        return as_data_set(file[x], file[y], None if group is None else file[group])


def as_data_set(x: AnyArray, y: AnyArray, groups: AnyArray | None = None) -> DataSet:
    codes = classes_and_codes(y)[1]
    own = np.arange(len(codes)) if groups is None else groups_and_codes(groups, len(codes))[1]
    return DataSet(x.astype(np.float32), codes, own)


SETS: dict[str, Callable[[], DataSet]] = {
    "CUB": lambda: load("cub200_unseen_embeddings.npz", "embeddings", "labels"),
    "HWU64": lambda: load("hwu64_minilm.npz", "x", "y"),
    "CLINC150": lambda: load("clinc150_minilm.npz", "train_x", "train_y"),
    "ESC-50": lambda: load("esc50_logmel.npz", "x", "y", "group"),
}


def split(data: DataSet, seed: int) -> tuple[Half, Half]:
    rng = np.random.default_rng(seed)
    n_classes = int(data.codes.max()) + 1
    is_gallery = np.isin(data.codes, rng.permutation(n_classes)[: n_classes // 2])
    halves = []
    for chosen in (is_gallery, ~is_gallery):
        codes = np.unique(data.codes[chosen], return_inverse=True)[1].astype(np.int64)
        points = DataSet(data.vectors[chosen], codes, data.groups[chosen])
        halves.append(Half(points, draw_pairs(codes, points.groups, rng)))
    return halves[0], halves[1]


def equal_error_distance(half: Half) -> float:
    distances, same, weights = half.distances(), half.same, half.pairs.weights
    order = np.argsort(distances)
    accepted = np.cumsum(np.where(same, 0.0, weights)[order])
    missed = 1.0 - np.cumsum(np.where(same, weights, 0.0)[order])
    return float(distances[order][(accepted >= missed).argmax()])


def sigmoid(half: Half, unit: float, slope: float) -> FloatArray:
    return np.asarray(expit(slope * (1.0 - half.distances() / unit)))


def find_slope() -> float:
    galleries = [split(SETS[name](), 0)[0] for name in CHOSEN_ON]
    units = [equal_error_distance(gallery) for gallery in galleries]

    def loss(slope: float) -> float:
        losses = [
            report_pairs(
                sigmoid(half, unit, slope), half.same, base_rate=0.5, weights=half.pairs.weights
            ).log_loss
            for half, unit in zip(galleries, units, strict=True)
        ]
        return float(np.mean(losses))

    return float(minimize_scalar(loss, bounds=(1.0, 100.0), method="bounded").x)


def fit_logistic(gallery: Half, other: Half) -> FloatArray:
    model = LogisticRegression(C=1e6, max_iter=1000)
    weights = gallery.pairs.weights * len(gallery.same) / 2.0
    model.fit(gallery.distances()[:, None], gallery.same, sample_weight=weights)
    return np.asarray(model.predict_proba(other.distances()[:, None])[:, 1])


def fit_isotonic(gallery: Half, other: Half) -> FloatArray:
    model = IsotonicRegression(increasing=False, out_of_bounds="clip")
    model.fit(gallery.distances(), gallery.same, sample_weight=gallery.pairs.weights)
    margin = 0.5 / gallery.same.sum()
    return np.asarray(np.clip(model.predict(other.distances()), margin, 1.0 - margin))


def plain_threshold(scores: FloatArray, half: Half, share: float) -> float:
    """The least score that accepts at most this share of the gallery's different pairs."""
    own, weights = scores[~half.same], half.pairs.weights[~half.same]
    order = np.argsort(-own, kind="stable")
    n_accepted = int(np.searchsorted(np.cumsum(weights[order]), share, side="right"))
    return float(own[order][n_accepted - 1]) if n_accepted else np.inf


@dataclass(frozen=True)
class Promise:
    """A threshold and what it did in the other half."""

    reached: bool
    false_accept: float
    true_accept: float


def try_threshold(threshold: float, scores: FloatArray, half: Half) -> Promise:
    is_accepted, weights, same = scores >= threshold, half.pairs.weights, half.same
    return Promise(
        bool(np.isfinite(threshold)),
        float(is_accepted[~same] @ weights[~same]),
        float(is_accepted[same] @ weights[same]),
    )


Scores = dict[str, list[tuple[float, float, float, float]]]
Promises = dict[tuple[float, str], list[Promise]]


def run(data: DataSet, n_splits: int, slope: float) -> tuple[Scores, Promises]:
    scores: Scores = defaultdict(list)
    promises: Promises = defaultdict(list)
    for seed in range(n_splits):
        gallery, other = split(data, seed)
        points = gallery.points
        model = PairConfidence().fit(points.vectors, points.codes, groups=points.groups)
        ours = model.probability(*other.ends)
        unit = equal_error_distance(gallery)
        answers = {
            "global sigmoid": sigmoid(other, unit, slope),
            "logistic": fit_logistic(gallery, other),
            "isotonic": fit_isotonic(gallery, other),
            OURS: ours,
        }
        for name, p in answers.items():
            made = report_pairs(p, other.same, base_rate=0.5, weights=other.pairs.weights)
            found = (made.log_loss, made.calibration_error, made.brier, made.equal_error_rate)
            scores[name].append(found)
        own = model.report()
        for share in FALSE_ACCEPTS:
            at = plain_threshold(-gallery.distances(), gallery, share)
            promises[share, "distance, plain"].append(try_threshold(at, -other.distances(), other))
            at = float(own.thresholds[own.false_accept <= share][-1])
            promises[share, f"{OURS}, plain"].append(try_threshold(at, ours, other))
            at = model.threshold(false_accept=share).threshold
            promises[share, f"{OURS}.threshold"].append(try_threshold(at, ours, other))
    return scores, promises


def lines(name: str, n_classes: int, scores: Scores, promises: Promises) -> Iterator[str]:
    """Two tables of one data set."""
    best = min(np.mean(found, axis=0)[0] for found in scores.values())
    yield f"\n## {name}\n"
    yield (
        f"{n_classes} classes, half of them the gallery; "
        f"{'the form was chosen on it' if name in CHOSEN_ON else 'shown only'}.\n"
    )
    yield "| method | log loss | ECE | Brier | equal error rate | splits with less log loss |"
    yield "| --- | --- | --- | --- | --- | --- |"
    ours = np.array(scores[OURS])[:, 0]
    for method, found in scores.items():
        loss, ece, brier, error = np.mean(found, axis=0)
        bold = "**" if loss == best else ""
        n_less = int((ours < np.array(found)[:, 0]).sum())
        less = "" if method == OURS else f"{OURS} in {n_less} of {len(ours)}"
        yield (
            f"| {method} | {bold}{loss:.4f}{bold} | {ece:.4f} | {brier:.4f} | {error:.2%} | "
            f"{less} |"
        )
    yield "\n| false accepts | threshold | reached | kept | mean false | mean true accepts |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for (share, method), tried in promises.items():
        reached = [promise for promise in tried if promise.reached]
        row = f"| {share:g} | {method} | {len(reached)} of {len(tried)} |"
        if not reached:
            yield f"{row} | | |"
            continue
        n_kept = sum(promise.false_accept <= share for promise in reached)
        false = np.mean([promise.false_accept for promise in reached])
        true = np.mean([promise.true_accept for promise in reached])
        yield f"{row} {n_kept} | {false:.2g} | {true:.1%} |"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--splits", type=int, default=20)
    parser.add_argument("--sets", nargs="*", default=list(SETS), choices=list(SETS))
    parser.add_argument(
        "--cache", type=Path, help=f"folder of `nearsure reproduce`, for {', '.join(EMBEDDED)}"
    )
    parser.add_argument(
        "--embeddings",
        nargs="*",
        default=[],
        type=Path,
        help="npz files of more data sets: arrays embeddings, labels and, if any, groups",
    )
    parser.add_argument("--output", type=Path, help="Markdown file")
    asked = parser.parse_args()
    sets = {name: SETS[name] for name in asked.sets}
    if asked.cache is not None:
        sets |= {name: partial(_load_embedded, name, asked.cache) for name in EMBEDDED}
    for path in asked.embeddings:
        sets[path.stem] = partial(_load_given, path)
    slope = find_slope()
    command = "python -m benchmarks.pairs " + shlex.join(sys.argv[1:])
    explanation = str(__doc__).partition("\n\n")[2]
    text = [f"# Pairs: are these two the same?\n\n`{command.strip()}`\n\n{explanation}"]
    text.append(f"The slope is {slope:.2f}. Means of {asked.splits} splits at a base rate of 0.5.")
    for name, open_set in sets.items():
        try:
            data = open_set()
        except AbsentError as error:
            print(f"\n{name} is left out: {error}")
            continue
        found = list(lines(name, int(data.codes.max()) + 1, *run(data, asked.splits, slope)))
        print("\n".join(found), flush=True)
        text += found
    if asked.output is not None:
        asked.output.parent.mkdir(parents=True, exist_ok=True)
        asked.output.write_text("\n".join(text) + "\n")


def _load_embedded(name: str, cache: Path) -> DataSet:
    points = load_embedded(EMBEDDED[name], FOLDER, cache)
    return as_data_set(points.vectors, points.codes)


def _load_given(path: Path) -> DataSet:
    with np.load(path) as file:
        groups = file.get("groups")
        return as_data_set(file["embeddings"], file["labels"], groups)


if __name__ == "__main__":
    main()
