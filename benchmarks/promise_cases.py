"""Galleries and queries on which `benchmarks.promises` makes promises.

Data sets are named points with class codes. A case takes one and a seed, and gives a gallery of at
most 3,000 points and batches of at most 3,000 queries. Batches that share a gallery share its fit.

Distances are relative to the data: the "step" of a set is the median distance, not squared, of a
point to its nearest one; that of a class to its nearest one of the class.

Glyphs are drawn, 133 characters of the test alphabets in 40 pictures each, and their vectors are
16 x 16 greys, a little blurred and of unit contrast. The lab's trained network would be better;
training it takes longer than this whole benchmark. All other reference embeddings are files that
are not part of the project: NEARSURE_DATA says where they are.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal
from zlib import crc32

import numpy as np
from scipy.ndimage import gaussian_filter, uniform_filter
from sklearn.datasets import load_digits

from nearsure.arrays import AnyArray, BoolArray, FloatArray, IntArray
from nearsure.index import ExactIndex
from nearsure.lab.datasets.glyphs import glyphs
from nearsure.lab.protocols import gallery_half
from nearsure.loo import search_leaving_one_out
from nearsure.robustness import CORRUPTIONS, corrupt, corruption_rng

FOLDER = Path(os.environ.get("NEARSURE_DATA", Path(__file__).parents[1] / ".." / "shared" / "data"))
LARGEST = 3000
UNKNOWN = -1
LIKE = "like the gallery"
# Lengths of the noise, in steps.
NOISE_LENGTHS = (0.5, 1.0, 1.5)
COPIED, COPIES, COPY_NOISE = 1 / 5, 4, 0.1
BURST_SIZES, BURST_JITTER = (3, 6), 0.3
TAIL_DECAY, SMALLEST_IN_TAIL = 3.5, 2
HELD_OUT_CLASSES = 1 / 5
OUT_OF_SCOPE_QUERIES = 2500
N_FOLDS = 5
KEPT_RECORDINGS = 4 / 5
N_DIGIT_PIXELS, LARGEST_DIGIT_PIXEL = 64, 16
SEVERITIES_SHOWN, MOST_DAMAGED = (1, 3, 5), 1000
SMALLEST_CONTRAST = 1e-6


@dataclass(frozen=True)
class Points:
    """A data set: vectors of shape (n, d) and class codes of shape (n,)."""

    vectors: AnyArray
    codes: IntArray

    def take(self, rows: IntArray | BoolArray) -> "Points":
        """Some of the points."""
        return Points(self.vectors[rows], self.codes[rows])

    def sample(self, rng: np.random.Generator, size: int = LARGEST) -> "Points":
        """At most `size` of the points, at random, in random order."""
        return self.take(rng.permutation(len(self.codes))[:size])


Groups = Literal["none", "auto", "given"]


@dataclass(frozen=True)
class Trial:
    """A gallery and the batches of queries that are asked of it, by the name of their case.

    Queries of no class of the gallery have the code -1, and `unknown_share` is their share.
    `given` are the true groups of the gallery's points. `groups` are the ways to fit.
    """

    gallery: Points
    batches: dict[str, Points]
    groups: tuple[Groups, ...] = ("auto",)
    given: IntArray | None = None
    unknown_share: float | None = None


def like_gallery(points: Points, rng: np.random.Generator) -> Trial:
    """A random half as the gallery; the other half asks, as it is and under noise."""
    gallery, queries = _halves(points, rng)
    length = _step(gallery)
    batches = {LIKE: queries}
    for relative in NOISE_LENGTHS:
        noise = relative * length * _directions(queries.vectors.shape, rng)
        moved = (queries.vectors + noise).astype(np.float32)
        batches[f"noise of {relative:g} steps"] = Points(moved, queries.codes)
    return Trial(gallery, batches)


def moved_digits(points: Points, rng: np.random.Generator) -> Trial:
    """Digits whose queries are moved to the right by a pixel, or blurred by a 3 x 3 mean."""
    gallery, queries = _halves(points, rng)
    pictures = queries.vectors.reshape(-1, 8, 8)
    moved = np.zeros_like(pictures)
    moved[:, :, 1:] = pictures[:, :, :-1]
    blurred = uniform_filter(pictures, size=(1, 3, 3), mode="constant")
    changed = {"moved by a pixel": moved, "blurred": blurred}
    return Trial(
        gallery,
        {name: Points(each.reshape(-1, 64), queries.codes) for name, each in changed.items()},
    )


def damaged_pictures(points: Points, rng: np.random.Generator) -> Trial:
    """Pictures whose queries are damaged in fifteen ways, at three severities each.

    Digits are enlarged to 16 x 16 pixels, damaged, and reduced again.
    """
    is_digits = points.vectors.shape[1] == N_DIGIT_PIXELS
    pictures = _digit_pictures() if is_digits else _glyph_pictures()[0]
    to_vectors = _digit_vectors if is_digits else _glyph_vectors
    half = gallery_half(points.codes, seed=int(rng.integers(2**31)))
    asked = rng.permutation(np.flatnonzero(~half))[:MOST_DAMAGED]
    batches = {}
    for name in CORRUPTIONS:
        for severity in SEVERITIES_SHOWN:
            damaged = [
                corrupt(
                    np.repeat(pictures[row][:, :, None], 3, axis=2),
                    name,
                    severity,
                    corruption_rng(0, int(row), name, severity),
                ).mean(axis=2)
                for row in asked
            ]
            vectors = to_vectors(np.stack(damaged))
            batches[f"{name}, {severity}"] = Points(vectors, points.codes[asked])
    return Trial(points.take(half).sample(rng), batches)


def exact_copies(points: Points, rng: np.random.Generator) -> Trial:
    """A fifth of the gallery's points copied four times, exactly."""
    return _copied(points, rng, "a fifth copied four times", 0.0)


def near_copies(points: Points, rng: np.random.Generator) -> Trial:
    """The same with copies that lie a tenth of a step away."""
    return _copied(points, rng, "a fifth nearly copied four times", COPY_NOISE)


def bursts(points: Points, rng: np.random.Generator) -> Trial:
    """Every point of the gallery is a burst of three to five; queries are of other bursts."""
    gallery, queries = _halves(points, rng)
    gallery = gallery.sample(rng, LARGEST // (BURST_SIZES[1] - 1))
    length = BURST_JITTER * _step(gallery, within_class=True)
    burst = np.repeat(np.arange(len(gallery.codes)), rng.integers(*BURST_SIZES, len(gallery.codes)))
    shots, asked = (
        Points(
            (each.vectors + length * _directions(each.vectors.shape, rng)).astype(np.float32),
            each.codes,
        )
        for each in (gallery.take(burst), queries)
    )
    return Trial(shots, {"other bursts": asked}, ("none", "auto"))


def long_tail(points: Points, rng: np.random.Generator) -> Trial:
    """Classes of the gallery in a long tail, 33 to 1; all classes ask alike often."""
    gallery, queries = _halves(points, rng, largest=len(points.codes))
    n_classes = int(points.codes.max()) + 1
    shares = np.exp(-TAIL_DECAY * rng.permutation(n_classes) / n_classes)
    sizes = np.bincount(gallery.codes, minlength=n_classes)
    tail = np.maximum(SMALLEST_IN_TAIL, sizes * shares).astype(np.int64)
    # A large set is thinned, every class alike, and none below two.
    tail = np.maximum(SMALLEST_IN_TAIL, (tail * min(1.0, LARGEST / tail.sum())).astype(np.int64))
    balanced = np.bincount(queries.codes, minlength=n_classes).min()
    return Trial(
        gallery.take(_place_in_class(gallery.codes) < tail[gallery.codes]),
        {
            "balanced, long-tailed gallery": queries.take(
                _place_in_class(queries.codes) < balanced
            ).sample(rng)
        },
    )


def classes_of_two(points: Points, rng: np.random.Generator) -> Trial:
    """Two members of each class in the gallery, asked by queries like them."""
    return _cut(points, rng, 2)


def classes_of_three(points: Points, rng: np.random.Generator) -> Trial:
    """The same with three."""
    return _cut(points, rng, 3)


def tailed_queries(points: Points, rng: np.random.Generator) -> Trial:
    """The other way round: the gallery is as the set is, and classes ask in a long tail."""
    gallery, queries = _halves(points, rng, largest=len(points.codes))
    sizes = np.bincount(queries.codes)
    shares = np.exp(-TAIL_DECAY * rng.permutation(len(sizes)) / len(sizes))
    tail = np.maximum(1, sizes * shares).astype(np.int64)
    asked = queries.take(_place_in_class(queries.codes) < tail[queries.codes])
    return Trial(gallery.sample(rng), {"in a long tail": asked.sample(rng)})


def own_split(_: Points, rng: np.random.Generator) -> Trial:
    """CLINC150's own parts: others wrote the test sentences."""
    stored = np.load(FOLDER / "clinc150_minilm.npz")
    train, test = (
        Points(
            stored[f"{part}_x"].astype(np.float32),
            np.unique(stored[f"{part}_y"], return_inverse=True)[1],
        ).sample(rng)
        for part in ("train", "test")
    )
    return Trial(train, {"own test split": test})


def folds(points: Points, rng: np.random.Generator) -> Trial:
    """One fold of ESC-50 asks the others, of which a fifth of the recordings is left away."""
    stored = np.load(FOLDER / "esc50_logmel.npz")
    recordings = np.unique(stored["group"])
    kept = rng.permutation(recordings)[: round(KEPT_RECORDINGS * len(recordings))]
    asks = stored["fold"] == rng.integers(1, N_FOLDS + 1)
    rows = np.flatnonzero(~asks & np.isin(stored["group"], kept))
    given: IntArray = stored["group"][rows]
    return Trial(
        points.take(rows), {"another fold": points.take(asks)}, ("none", "auto", "given"), given
    )


def held_out_classes(points: Points, rng: np.random.Generator) -> Trial:
    """A fifth of the classes is not in the gallery and asks as well; the share is given."""
    n_classes = int(points.codes.max()) + 1
    held_out = rng.permutation(n_classes)[: max(1, round(HELD_OUT_CLASSES * n_classes))]
    gallery, queries = _halves(points, rng, largest=len(points.codes))
    gallery = gallery.take(~np.isin(gallery.codes, held_out)).sample(rng)
    queries = queries.sample(rng)
    is_new = ~np.isin(queries.codes, gallery.codes)
    asked = Points(queries.vectors, np.where(is_new, UNKNOWN, queries.codes))
    return Trial(
        gallery,
        {"unknown classes, share given": asked},
        ("auto",),
        unknown_share=float(is_new.mean()),
    )


def out_of_scope(_: Points, rng: np.random.Generator) -> Trial:
    """CLINC150's own test sentences, and a fifth that is of none of its intents."""
    stored = np.load(FOLDER / "clinc150_minilm.npz")
    train, test = (
        Points(
            stored[f"{part}_x"].astype(np.float32),
            np.unique(stored[f"{part}_y"], return_inverse=True)[1],
        )
        for part in ("train", "test")
    )
    n_unknown = round(HELD_OUT_CLASSES * OUT_OF_SCOPE_QUERIES)
    known = test.sample(rng, OUT_OF_SCOPE_QUERIES - n_unknown)
    vectors = stored["oos_test_x"].astype(np.float32)
    unknown = Points(vectors, np.full(len(vectors), UNKNOWN)).sample(rng, n_unknown)
    asked = Points(
        np.concatenate([known.vectors, unknown.vectors]),
        np.concatenate([known.codes, unknown.codes]),
    )
    return Trial(
        train.sample(rng),
        {"unknown classes, share given, out of scope": asked},
        ("auto",),
        unknown_share=HELD_OUT_CLASSES,
    )


@dataclass(frozen=True)
class Case:
    """How galleries and queries are made, and of which data sets."""

    make: Callable[[Points, np.random.Generator], Trial]
    datasets: tuple[str, ...]

    def trials(self, dataset: str, n_trials: int) -> Iterator[Trial]:
        """Trials of a data set, from seeds of their own."""
        points = load_points(dataset)
        for seed in range(n_trials):
            key = crc32(f"{self.make.__name__} {dataset}".encode())
            yield self.make(points, np.random.default_rng([seed, key]))


ALL = ("CUB", "CLINC150", "HWU64", "TREC", "ATIS", "digits", "glyphs")
CASES = (
    Case(like_gallery, ALL),
    Case(held_out_classes, ("CUB", "CLINC150", "HWU64", "TREC", "digits", "glyphs")),
    Case(out_of_scope, ("CLINC150",)),
    Case(exact_copies, ("CUB", "CLINC150", "HWU64", "TREC", "digits")),
    Case(near_copies, ("CUB", "CLINC150", "HWU64", "TREC", "digits")),
    Case(bursts, ("CUB", "CLINC150", "HWU64", "TREC", "digits")),
    # The rarest intents of ATIS are single sentences, and cannot ask as often as others.
    Case(long_tail, ("CUB", "CLINC150", "HWU64", "TREC", "digits")),
    Case(tailed_queries, ("CUB", "CLINC150", "HWU64", "TREC", "digits")),
    Case(own_split, ("CLINC150",)),
    Case(folds, ("ESC-50",)),
    Case(moved_digits, ("digits",)),
)
FILES = {
    "CUB": "cub200_unseen_embeddings.npz",
    "CLINC150": "clinc150_minilm.npz",
    "HWU64": "hwu64_minilm.npz",
    "TREC": "trec6_minilm.npz",
    "ATIS": "atis_minilm.npz",
    "ESC-50": "esc50_logmel.npz",
}
DATASETS = (*ALL, "ESC-50")


def is_there(dataset: str) -> bool:
    """Whether a data set is drawn, comes with scikit-learn, or is in the folder."""
    return dataset not in FILES or (FOLDER / FILES[dataset]).exists()


@cache
def load_points(dataset: str) -> Points:
    """All points of a data set."""
    if dataset == "digits":
        vectors, labels = load_digits(return_X_y=True)
    elif dataset == "glyphs":
        pictures, labels = _glyph_pictures()
        vectors = _glyph_vectors(pictures)
    else:
        stored = np.load(FOLDER / FILES[dataset])
        names = {
            "CUB": (["embeddings"], ["labels"]),
            "CLINC150": ([f"{part}_{axis}" for part in ("train", "val", "test")] for axis in "xy"),
        }
        vectors, labels = (
            np.concatenate([stored[name] for name in parts])
            for parts in names.get(dataset, (["x"], ["y"]))
        )
    return Points(vectors.astype(np.float32), np.unique(labels, return_inverse=True)[1])


def _digit_pictures() -> AnyArray:
    """Digits as bytes, each pixel four times."""
    greys = np.rint(load_digits().images * (255 / LARGEST_DIGIT_PIXEL)).astype(np.uint8)
    return np.asarray(greys.repeat(2, axis=1).repeat(2, axis=2))


def _digit_vectors(pictures: AnyArray) -> AnyArray:
    """As scikit-learn has them."""
    means = pictures.reshape(-1, 8, 2, 8, 2).mean(axis=(2, 4)) * (LARGEST_DIGIT_PIXEL / 255)
    return np.asarray(means.reshape(len(pictures), -1), np.float32)


@cache
def _glyph_pictures() -> tuple[AnyArray, AnyArray]:
    """Every fourth character of the test alphabets, in grey, and its name."""
    images = glyphs(images_per_class=40, image_size=16).queries
    labels = np.asarray(images.labels)
    rows = np.flatnonzero(np.isin(labels, np.unique(labels)[::4]))
    return np.stack([images.read(int(row))[:, :, 0] for row in rows]), labels[rows]


def _glyph_vectors(pictures: AnyArray) -> AnyArray:
    """A little blurred, and of unit contrast."""
    greys = pictures.astype(np.float64)
    flat = gaussian_filter(greys, sigma=(0.0, 0.7, 0.7)).reshape(len(greys), -1)
    centred = flat - flat.mean(axis=1, keepdims=True)
    # A picture may be of one grey once it is damaged.
    contrast = np.maximum(centred.std(axis=1, keepdims=True), SMALLEST_CONTRAST)
    return np.asarray(centred / contrast, np.float32)


def _halves(
    points: Points, rng: np.random.Generator, largest: int = LARGEST
) -> tuple[Points, Points]:
    half = gallery_half(points.codes, seed=int(rng.integers(2**31)))
    return points.take(half).sample(rng, largest), points.take(~half).sample(rng, largest)


def _cut(points: Points, rng: np.random.Generator, size: int) -> Trial:
    gallery, queries = _halves(points, rng, largest=len(points.codes))
    kept = gallery.take(_place_in_class(gallery.codes) < size).sample(rng)
    asked = queries.take(np.isin(queries.codes, kept.codes)).sample(rng)
    return Trial(kept, {f"classes of {size}": asked})


def _copied(points: Points, rng: np.random.Generator, name: str, noise: float) -> Trial:
    gallery, queries = _halves(points, rng)
    gallery = gallery.sample(rng, int(LARGEST / (1 + COPIED * COPIES)))
    n_points = len(gallery.codes)
    copied = np.repeat(rng.permutation(n_points)[: int(COPIED * n_points)], COPIES)
    original = np.concatenate([np.arange(n_points), copied])
    vectors = gallery.vectors[original]
    if noise:
        directions = _directions((len(copied), vectors.shape[1]), rng)
        vectors[n_points:] += (noise * _step(gallery) * directions).astype(np.float32)
    return Trial(Points(vectors, gallery.codes[original]), {name: queries}, ("none", "auto"))


def _step(points: Points, *, within_class: bool = False) -> float:
    """Median distance, not squared, to the nearest other point, or to that of the class."""
    rows = np.arange(len(points.codes))
    index = ExactIndex(points.vectors)
    k = min(100, len(rows) - 1)
    found = search_leaving_one_out(index, points.vectors, rows, points.codes, k=k)
    counted = found.labels == points.codes[:, None]
    if not within_class:
        counted[:] = True
    first = found.sq_distances[rows, counted.argmax(axis=1)]
    return float(np.sqrt(np.median(first[counted.any(axis=1)])))


def _directions(shape: tuple[int, ...], rng: np.random.Generator) -> FloatArray:
    """Random directions of length 1."""
    drawn = rng.normal(size=shape)
    directions: FloatArray = drawn / np.linalg.norm(drawn, axis=1, keepdims=True)
    return directions


def _place_in_class(codes: IntArray) -> IntArray:
    """How many points of its class stand before each point."""
    order = np.argsort(codes, kind="stable")
    _, starts, counts = np.unique(codes[order], return_index=True, return_counts=True)
    place = np.empty(len(codes), np.int64)
    place[order] = np.arange(len(codes)) - np.repeat(starts, counts)
    return place
