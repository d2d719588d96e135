"""The plan, the sources and the run of the ablation."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NoReturn

import numpy as np
from sklearn.datasets import load_digits
from tqdm import tqdm

from nearsure.arrays import IntArray
from nearsure.embedding_files import load_embeddings
from nearsure.errors import NearsureError
from nearsure.lab.ablation.results import (
    CELLS,
    AblationResults,
    CorruptedResult,
    cached_corrupted,
    cached_trial,
    join,
)
from nearsure.lab.ablation.trials import Labelled, Trial, half_trial, scarce_trial
from nearsure.lab.ablation.variants import DEFAULT, PROBE_VARIANTS, SLOW_VARIANTS, VARIANTS
from nearsure.lab.cache import CachedStep
from nearsure.lab.datasets import load_split
from nearsure.lab.embedding import FEATURE_CHUNK, EmbeddingRun, embeddings_step
from nearsure.lab.protocols import encode_labels
from nearsure.lab.recipes import recipe
from nearsure.lab.robust.experiments import corrupted_step
from nearsure.lab.robust.methods import Method
from nearsure.lab.robust.model import FrozenSupport, damaged_rows, frozen_supports
from nearsure.lab.robust.settings import robust_settings

KS = (20, 50, 100)
MAIN_K = 50
# Embeddings and labels as x and y.
POINT_FILES = {
    "hwu64": "hwu64_minilm.npz",
    "atis": "atis_minilm.npz",
    "trec": "trec6_minilm.npz",
    "esc50": "esc50_logmel.npz",
}
HALF_SEEDS = {"cub200": 8, "glyphs": 5, "clinc150": 5, **dict.fromkeys(POINT_FILES, 5), "digits": 5}
SCARCE_SETS = ("glyphs", "cub200")
# Every point against all others, and the slow variants.
FULL_SETS = ("glyphs", "cub200", "clinc150")
SCARCE_SEEDS = 3
SLOW_SEEDS = 4


# A trial that is yet to be made, the numbers of neighbours, and the variants to measure, in parts
# that are kept apart.
Planned = tuple[Callable[[], Trial], tuple[int, ...], tuple[tuple[Method, ...], ...]]
EVERY_PART = (VARIANTS, PROBE_VARIANTS, (DEFAULT,))


def plan_trials(
    sets: dict[str, Labelled], own_splits: dict[str, tuple[Labelled, Labelled]]
) -> Iterator[Planned]:
    """All trials of the data sets that are there.

    Parameters
    ----------
    sets : dict of str to Labelled
        All points of each data set.
    own_splits : dict of str to (gallery, queries)
        Of the data sets that have a split of their own.
    """
    for name, points in sets.items():
        for seed in range(HALF_SEEDS[name]):
            yield partial(half_trial, name, points, seed), KS, EVERY_PART
    for name, parts in own_splits.items():
        yield partial(Trial, name, "given", 0, *parts), KS, EVERY_PART
    full = {name: sets[name] for name in FULL_SETS if name in sets}
    for name, points in full.items():
        if name not in own_splits:
            yield partial(Trial, name, "all", 0, points, None), KS, (VARIANTS,)
    for name in filter(sets.__contains__, SCARCE_SETS):
        for seed in range(SCARCE_SEEDS):
            yield partial(scarce_trial, name, sets[name], seed), (MAIN_K,), EVERY_PART
    for name, points in full.items():
        for seed in range(SLOW_SEEDS):
            yield partial(half_trial, name, points, seed), (MAIN_K,), (SLOW_VARIANTS,)


BIRDS_FILE = "cub200_unseen_embeddings.npz"
SENTENCES_FILE = "clinc150_minilm.npz"
IMAGE_FOLDERS = {"cub200": "cub200_160px", "cars196": "cars196_112px"}
# Of the run whose embeddings are taken.
SEED = 0


class AbsentError(NearsureError):
    """Data that the ablation would use are not there; it goes on without them."""


def load_birds(data: Path) -> Labelled:
    """Saved embeddings of the unseen birds."""
    found = load_embeddings(_require_file(data / BIRDS_FILE))
    return Labelled(found.vectors, encode_labels(found.labels)[0])


def load_points(data: Path, name: str) -> Labelled:
    """All points of one of the data sets of `POINT_FILES`."""
    path = _require_file(data / POINT_FILES[name])
    found = load_embeddings(path, vectors_key="x", labels_key="y")
    return Labelled(found.vectors, encode_labels(found.labels)[0])


def digits() -> Labelled:
    """The handwritten digits of scikit-learn, as pixels."""
    pixels, codes = load_digits(return_X_y=True)
    return Labelled(np.asarray(pixels, np.float32), np.asarray(codes, np.int64))


def load_sentences(data: Path) -> tuple[Labelled, Labelled, Labelled]:
    """CLINC150 without its out-of-scope queries: all of it, then training part and test part."""
    path = _require_file(data / SENTENCES_FILE)
    parts = [
        load_embeddings(path, vectors_key=f"{part}_x", labels_key=f"{part}_y")
        for part in ("train", "val", "test")
    ]
    codes, _ = encode_labels(np.concatenate([part.labels for part in parts]))
    every = Labelled(np.concatenate([part.vectors for part in parts]), codes)
    n_train, n_test = len(parts[0]), len(parts[2])
    return every, every.take(np.arange(n_train)), every.take(np.arange(len(codes))[-n_test:])


def load_embedded(dataset: str, data: Path | None, cache: Path) -> Labelled:
    """Unseen classes of a data set as the cached run of `nearsure reproduce` embeds them."""
    return _load_embedded(dataset, data, cache)[0]


def corrupted(
    dataset: str, data: Path | None, cache: Path
) -> tuple[FrozenSupport, IntArray, Callable[[str], Labelled]]:
    """The clean gallery of the strict protocol, and its queries as the cache has them corrupted.

    Parameters
    ----------
    dataset : {"glyphs", "cub200", "cars196"}
        What `nearsure reproduce --robust` ran.
    data : Path or None
        Folder that holds the images, for their labels.
    cache : Path
        What `reproduce` left.

    Returns
    -------
    support : FrozenSupport
        The gallery.
    rows : array of shape (n,)
        Query images of the strict protocol.
    queries_of : callable
        From "clean" or one of `CELLS` to those queries.
    """
    points, training, size = _load_embedded(dataset, data, cache)
    support = frozen_supports(points.vectors, points.codes, None, seed=SEED)["gallery_and_queries"]
    settings = robust_settings(dataset, {}, source="settings").for_queries(len(points.codes))
    rows = damaged_rows(support, settings.corrupted_queries, seed=SEED)
    stage = corrupted_step(cache, training, rows, size=size, seed=SEED)
    _check_cached(stage, ["clean", *CELLS], f"nearsure reproduce {dataset} --robust")
    asked = support.may_ask(rows)

    def queries_of(cell: str) -> Labelled:
        vectors = stage.arrays(cell, _never)["rows"][asked]
        return Labelled(vectors, support.query_codes[rows[asked]])

    return support, rows[asked], queries_of


def _load_embedded(dataset: str, data: Path | None, cache: Path) -> tuple[Labelled, str, int]:
    """Unseen classes of a cached run; the key of its training, and the side of its images."""
    root = None
    if dataset in IMAGE_FOLDERS:
        if data is None:
            raise AbsentError(f"no data folder with {IMAGE_FOLDERS[dataset]} was given")
        root = _require_file(data / IMAGE_FOLDERS[dataset])
    chosen = recipe(dataset, root=root, seed=SEED)
    run = chosen.runs[chosen.main]
    split = load_split(run.dataset, seed=run.seed)
    training = EmbeddingRun(run, split, cache).training_stage.key
    stage = embeddings_step(cache, training)
    starts = range(0, len(split.queries), FEATURE_CHUNK)
    _check_cached(
        stage, [f"queries-{start:07d}" for start in starts], f"nearsure reproduce {dataset}"
    )
    vectors = stage.rows("queries", len(split.queries), _never, chunk=FEATURE_CHUNK)["rows"]
    codes, _ = encode_labels(np.asarray(split.queries.labels))
    return Labelled(vectors, codes), training, run.dataset.image_size


def _require_file(path: Path) -> Path:
    if not path.exists():
        raise AbsentError(f"{path.name} is not in the data folder")
    return path


def _check_cached(stage: CachedStep, files: list[str], command: str) -> None:
    if not all((stage.folder / f"{name}.safetensors").exists() for name in files):
        raise AbsentError(f"its embeddings are not in the cache; `{command}` makes them")


def _never(*_: range) -> NoReturn:
    raise AbsentError("an embedding that was in the cache a moment ago is not there any more")


CORRUPTED_SETS = ("glyphs", "cub200", "cars196")


def run_ablation(
    *, data: Path | None, cache: Path, n_resamples: int, say: Callable[[str], None]
) -> AblationResults:
    """Measure all variants in all trials; what is finished is not measured again.

    Parameters
    ----------
    data : Path or None
        Folder of embeddings and images that are not part of the project.
    cache : Path
        Folder of stages, with what `nearsure reproduce` left there.
    n_resamples : int
        Of the bootstrap intervals.
    say : callable
        Takes a line about each thing that is left out.
    """
    sets: dict[str, Labelled] = {}
    own_splits: dict[str, tuple[Labelled, Labelled]] = {}
    skipped: list[str] = []

    def skip(what: str, error: AbsentError) -> None:
        skipped.append(f"{what}: {error}")
        say(f"skipped: {skipped[-1]}")

    def from_file(name: str) -> Callable[[], tuple[Labelled, ...]]:
        return lambda: (load_points(_require_folder(data), name),)

    sources: dict[str, Callable[[], tuple[Labelled, ...]]] = {
        "glyphs": lambda: (load_embedded("glyphs", None, cache),),
        "cub200": lambda: (load_birds(_require_folder(data)),),
        "clinc150": lambda: load_sentences(_require_folder(data)),
        **{name: from_file(name) for name in POINT_FILES},
        "digits": lambda: (digits(),),
    }
    for name, load in sources.items():
        try:
            sets[name], *own_split = load()
        except AbsentError as error:
            skip(name, error)
            continue
        if own_split:
            own_splits[name] = (own_split[0], own_split[1])
    plan = list(plan_trials(sets, own_splits))
    trials = []
    with tqdm(total=sum(len(ks) for _, ks, _ in plan), desc="trials", disable=None) as bar:
        for make_trial, ks, parts in plan:
            measure = partial(cached_trial, cache, make_trial(), n_resamples=n_resamples)
            for k in ks:
                trials.append(join([measure(variants, k=k) for variants in parts]))
                bar.update()
    damaged: list[CorruptedResult] = []
    for dataset in CORRUPTED_SETS:
        try:
            found = corrupted(dataset, data, cache)
        except AbsentError as error:
            skip(f"{dataset}, corrupted", error)
            continue
        damaged.append(cached_corrupted(cache, dataset, *found, k=MAIN_K))
    return AblationResults(tuple(trials), tuple(damaged), tuple(skipped))


def _require_folder(data: Path | None) -> Path:
    if data is None:
        raise AbsentError("no data folder was given: use --data, or set NEARSURE_DATA")
    return data
