"""One pass over what an engine holds: how many points there are, and of what."""

import numpy as np

from nearsure.arrays import AnyArray, IntArray
from nearsure.engine_gallery.class_counts import ClassCounts
from nearsure.engine_gallery.id_table import IdTable
from nearsure.engine_gallery.label_codes import LabelCodes
from nearsure.engines.contract import Engine
from nearsure.errors import GalleryMismatchError, InvalidInputError
from nearsure.index.stable_ids import next_id_after


def census_of_labels(engine: Engine) -> tuple[AnyArray, IntArray, int]:
    """The labels that an engine holds, sorted; members of each; the next free id.

    No more than a portion of ids, and each label once, is held in memory.
    """
    if not engine.capabilities.holds_labels:
        raise GalleryMismatchError(
            "The engine holds no labels. Give them beside it: fit_engine(y, ids)."
        )
    labels: AnyArray = np.empty(0, np.int64)
    sizes = np.empty(0, np.int64)
    next_id = 0
    for portion in engine.scan():
        here, n_here = np.unique(np.asarray(portion.labels), return_counts=True)
        joined = np.concatenate([labels, here]) if len(labels) else here
        labels, places = np.unique(joined, return_inverse=True)
        sizes = np.bincount(places, np.concatenate([sizes, n_here])).astype(np.int64)
        next_id = next_id_after(portion.ids, next_id)
    if not len(labels):
        raise InvalidInputError(
            "The engine holds no points. Load some: fit(Z, y), or add to the engine itself."
        )
    return labels, sizes, next_id


def counted_as(engine: Engine, classes: LabelCodes) -> ClassCounts:
    """Sizes of the classes of a gallery; those that came from elsewhere are named with them."""
    labels, sizes, next_id = census_of_labels(engine)
    check_same_kind(labels, classes.classes)
    codes = classes.of(labels)
    counts = np.zeros(len(classes), np.int64)
    counts[codes] = sizes
    return ClassCounts(counts, next_id)


def counted_by_table(engine: Engine, codes: IdTable) -> ClassCounts:
    """Sizes of classes, where codes are kept beside the engine; an error if some id has none."""
    sizes = np.zeros(int(codes.values.max(initial=-1)) + 1, np.int64)
    next_id = 0
    for portion in engine.scan():
        sizes += np.bincount(codes.of(portion.ids), minlength=len(sizes))
        next_id = next_id_after(portion.ids, next_id)
    counts = ClassCounts(sizes, next_id)
    if not counts.n_points:
        raise InvalidInputError(
            "The engine holds no points. Load some: fit(Z, y), or add to the engine itself."
        )
    if counts.n_points != len(codes):
        raise InvalidInputError(
            f"ids must be those of the engine's {counts.n_points} points. Got {len(codes)}, of "
            "which it does not hold some."
        )
    return counts


def check_same_kind(labels: AnyArray, classes: AnyArray) -> None:
    """An error if an engine's labels cannot be those of a fit: codes of another one, say."""
    kinds = [
        "text" if own.dtype.kind == "U" else "integers" if own.dtype.kind in "iu" else "others"
        for own in (labels, classes)
    ]
    if kinds[0] != kinds[1]:
        raise GalleryMismatchError(
            f"The engine's labels must be of the kind that was fitted, {classes.dtype}. "
            f"Got {labels.dtype} instead."
        )
