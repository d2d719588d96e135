"""Where embeddings come from: files of a data folder, and the cache of `reproduce`."""

from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import numpy as np

from nearsure.arrays import IntArray
from nearsure.embedding_files import load_embeddings
from nearsure.errors import NearsureError
from nearsure.lab.ablation.corrupted_result import CELLS
from nearsure.lab.ablation.trials import Labelled
from nearsure.lab.datasets import load_split
from nearsure.lab.embedding_run import FEATURE_CHUNK, EmbeddingRun
from nearsure.lab.protocols import encode_labels
from nearsure.lab.recipes import recipe
from nearsure.lab.robust.corruption_experiment import CORRUPTIONS_VERSION
from nearsure.lab.robust.frozen_support import FrozenSupport, damaged_rows, frozen_supports
from nearsure.lab.robust.settings import robust_settings
from nearsure.lab.stages import Stage, digest

BIRDS_FILE = "cub200_unseen_embeddings.npz"
SENTENCES_FILE = "clinc150_minilm.npz"
IMAGE_FOLDERS = {"cub200": "cub200_160px", "cars196": "cars196_112px"}
# Of the run whose embeddings are taken.
SEED = 0


class AbsentError(NearsureError):
    """Data that the ablation would use are not there; it goes on without them."""


def birds(data: Path) -> Labelled:
    """Saved embeddings of the unseen birds."""
    found = load_embeddings(_present(data / BIRDS_FILE))
    return Labelled(found.vectors, encode_labels(found.labels)[0])


def sentences(data: Path) -> tuple[Labelled, Labelled, Labelled]:
    """CLINC150 without its out-of-scope queries: all of it, then training part and test part."""
    path = _present(data / SENTENCES_FILE)
    parts = [
        load_embeddings(path, vectors_key=f"{part}_x", labels_key=f"{part}_y")
        for part in ("train", "val", "test")
    ]
    codes, _ = encode_labels(np.concatenate([part.labels for part in parts]))
    every = Labelled(np.concatenate([part.vectors for part in parts]), codes)
    n_train, n_test = len(parts[0]), len(parts[2])
    return every, every.take(np.arange(n_train)), every.take(np.arange(len(codes))[-n_test:])


def glyphs(cache: Path) -> Labelled:
    """The unseen glyphs as the cached run of `nearsure reproduce glyphs` embeds them."""
    return _embedded("glyphs", None, cache)[0]


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
        Which query images the strict protocol asks about.
    queries_of : callable
        From "clean" or one of `CELLS` to those queries.
    """
    root = None
    if dataset in IMAGE_FOLDERS:
        if data is None:
            raise AbsentError(f"no data folder with {IMAGE_FOLDERS[dataset]} was given")
        root = _present(data / IMAGE_FOLDERS[dataset])
    points, training, size = _embedded(dataset, root, cache)
    support = frozen_supports(points.vectors, points.codes, None, seed=SEED)["gallery_and_queries"]
    settings = robust_settings(dataset, {}, source="settings").for_queries(len(points.codes))
    rows = damaged_rows(support, settings.corrupted_queries, seed=SEED)
    inputs = {
        "training": training,
        "rows": digest(rows.tolist()),
        "size": size,
        "seed": SEED,
        "corruptions": CORRUPTIONS_VERSION,
    }
    stage = Stage(cache, "corrupted", inputs)
    _check_cached(stage, ["clean", *CELLS], f"nearsure reproduce {dataset} --robust")
    asked = support.may_ask(rows)

    def queries_of(cell: str) -> Labelled:
        vectors = stage.arrays(cell, _never)["rows"][asked]
        return Labelled(vectors, support.query_codes[rows[asked]])

    return support, rows[asked], queries_of


def _embedded(dataset: str, root: Path | None, cache: Path) -> tuple[Labelled, str, int]:
    """Unseen classes of a cached run; the key of its training, and the side of its images."""
    chosen = recipe(dataset, root=root, seed=SEED)
    run = chosen.runs[chosen.main]
    split = load_split(run.dataset, seed=run.seed)
    training = EmbeddingRun(run, split, cache).training_stage.key
    stage = Stage(cache, "embeddings", {"training": training})
    starts = range(0, len(split.queries), FEATURE_CHUNK)
    _check_cached(
        stage, [f"queries-{start:07d}" for start in starts], f"nearsure reproduce {dataset}"
    )
    vectors = stage.rows("queries", len(split.queries), _never, chunk=FEATURE_CHUNK)
    codes, _ = encode_labels(np.asarray(split.queries.labels))
    return Labelled(vectors, codes), training, run.dataset.image_size


def _present(path: Path) -> Path:
    if not path.exists():
        raise AbsentError(f"{path.name} is not in the data folder")
    return path


def _check_cached(stage: Stage, files: list[str], command: str) -> None:
    if not all((stage.folder / f"{name}.safetensors").exists() for name in files):
        raise AbsentError(f"its embeddings are not in the cache; `{command}` makes them")


def _never(*_: range) -> NoReturn:
    raise AbsentError("an embedding that was in the cache a moment ago is not there any more")
