"""Create, open and reopen the gallery that a classifier is fitted on."""

import logging

import numpy as np

from nearsure.arrays import AnyArray, IntArray
from nearsure.engines.checks import checked_ids
from nearsure.engines.contract import Engine, Fingerprint
from nearsure.engines.embedded import FaissEngine, chosen_index
from nearsure.engines.registry import ENGINES, open_engine
from nearsure.errors import GalleryMismatchError, InvalidInputError, NearsureError
from nearsure.gallery import ClassCounts, Gallery, LabelCodes, counted_as
from nearsure.gallery.counts import NO_LABELS, census_of_labels, counted_by_table
from nearsure.index.rows import PointTable
from nearsure.labels import classes_and_codes

log = logging.getLogger("nearsure.engines")
# Points whose length is looked at.
LOOKED_AT = 256
# Rounding of vectors at unit length, also in half precision.
UNIT_ROUNDING = 1e-3


def describe_difference(before: Fingerprint, now: Fingerprint) -> str:
    """What differs between two fingerprints."""
    return ", ".join(
        f"{name} {before.get(name)!r} -> {now.get(name)!r}"
        for name in sorted({*before, *now})
        if before.get(name) != now.get(name)
    )


def resolve_engine(engine: str | Engine) -> Engine:
    """An engine as it is, or the one that the environment names."""
    if not isinstance(engine, str):
        return engine
    if engine in ENGINES:
        return open_engine(engine)
    raise InvalidInputError(
        f"engine must be an engine that holds points, or one of {', '.join(map(repr, ENGINES))}. "
        "Got the name of an index in memory, which fit(X, y) fills, or an address, which "
        "open_engine opens."
    )


def create_gallery(
    engine: str | Engine,
    vectors: AnyArray,
    codes: IntArray,
    classes: AnyArray,
    groups: IntArray | None,
) -> Gallery:
    """Points, put into the engine of this name or this empty engine.

    Parameters
    ----------
    engine : str or Engine
        A name of an index of `FaissEngine`, or an engine without points.
    vectors : array of shape (n, dimension)
        The points; their ids are 0, 1, 2, ...
    codes : array of shape (n,)
        Their classes.
    classes : array of shape (n_classes,)
        The labels that codes stand for.
    groups : array of shape (n,) or None
        Their groups.
    """
    counts = ClassCounts(np.bincount(codes, minlength=len(classes)), len(vectors))
    if isinstance(engine, str):
        index = chosen_index(engine, len(vectors))
        if engine == "auto":
            log.info("engine='auto' is %r for %d points.", index, len(vectors))
        if index == "exact":
            return Gallery.of_points(vectors, codes, groups, classes=classes)
        is_coded = classes.dtype.kind not in "iu"
        stored = codes if is_coded else classes[codes]
        engine = FaissEngine.from_points(vectors, labels=stored, index=index)
    else:
        _check_can_take(engine, vectors)
        is_coded = _holds_codes(engine, classes)
        stored = codes if is_coded else classes[codes]
        holds_labels = engine.capabilities.holds_labels
        engine.add(vectors, np.arange(len(codes)), stored if holds_labels else None)
    gallery = Gallery(engine, counts, LabelCodes(classes), codes_in_engine=is_coded)
    ids = np.arange(len(codes))
    if groups is not None:
        gallery.groups_beside = PointTable(ids, groups)
    if groups is not None or not engine.capabilities.holds_labels:
        gallery.codes_beside = PointTable(ids, codes)
    return gallery


def open_gallery(
    engine: Engine,
    y: AnyArray | None = None,
    ids: AnyArray | None = None,
    groups: IntArray | None = None,
) -> Gallery:
    """A gallery of the points that an engine holds already.

    Parameters
    ----------
    engine : Engine
        With at least one point.
    y, groups : array of shape (n,), optional
        Labels, for an engine that holds none, and groups of the points `ids`.
    ids : array of shape (n,), optional
        All ids of the engine, if there are `y` or `groups`.
    """
    if ids is not None:
        ids = checked_ids(ids, engine.capabilities)
    if not engine.capabilities.holds_labels:
        if y is None or ids is None:
            raise GalleryMismatchError(NO_LABELS)
        classes, codes = classes_and_codes(y)
        table = PointTable(ids, codes)
        beside = None if groups is None else PointTable(ids, groups)
        counts = counted_by_table(engine, table)
        return Gallery(engine, counts, LabelCodes(classes), table, beside)
    if y is not None:
        raise GalleryMismatchError(
            "y must be left out: the engine holds labels itself. relabel() changes them."
        )
    classes, sizes, next_id = census_of_labels(engine)
    gallery = Gallery(engine, ClassCounts(sizes, next_id), LabelCodes(classes))
    if groups is not None and ids is not None:
        gallery.keep_groups(ids, groups)
    return gallery


# Points that are compared, and how far single precision may be off, relatively.
N_COMPARED, ROUNDING = 200, 1e-3


def have_same_ids(one: Gallery, other: Gallery) -> bool:
    """Whether two galleries hold the same points under the same ids, by a few of them."""
    ids = one.ids
    some = ids[:: -(-len(ids) // N_COMPARED)]
    try:
        vectors, found = one.points_of(some).vectors, other.points_of(some).vectors
    except NearsureError:
        return False
    return bool(np.abs(vectors - found).max() <= ROUNDING * np.abs(vectors).max())


def reopen_gallery(engine: Engine, classes: AnyArray, dimension: int, metric: str) -> Gallery:
    """A gallery of what an engine holds, with the class codes of an earlier fit.

    Parameters
    ----------
    engine : Engine
        Holds labels of the kind that was fitted.
    classes : array of shape (n_classes,)
        The labels of that fit, in the order of their codes.
    dimension, metric : int, str
        Its vectors' length, and how they are compared.
    """
    check_fits(engine, dimension, metric)
    labels = LabelCodes(classes)
    return Gallery(engine, counted_as(engine, labels), labels)


def check_fits(engine: Engine, dimension: int, metric: str) -> None:
    """An error if what an engine holds cannot be the gallery of a fit."""
    if engine.dimension != dimension:
        raise GalleryMismatchError(
            f"The classifier was fitted on vectors of length {dimension}. "
            f"The engine holds vectors of length {engine.dimension}."
        )
    check_metric(engine, metric)
    check_unit_length(engine, metric)


def check_metric(engine: Engine, metric: str) -> None:
    """An error if the engine compares vectors in another way than the classifier."""
    if engine.metric == "cosine" and metric != "cosine":
        raise GalleryMismatchError(
            "The engine compares vectors at unit length. Give metric='cosine', too. "
            f"Got {metric!r} instead."
        )


def check_unit_length(engine: Engine, metric: str) -> None:
    """An error if points, which are to be compared by cosine, are not of unit length."""
    if metric != "cosine" or engine.metric == "cosine":
        return
    first = next(engine.scan(), None)
    if first is None:
        return
    some = engine.fetch(first.ids[:LOOKED_AT])
    lengths = np.linalg.norm(np.asarray(some.vectors, np.float64), axis=1)
    worst = float(np.abs(lengths - 1.0).max())
    if worst > UNIT_ROUNDING:
        raise GalleryMismatchError(
            "The vectors in the engine must be of unit length for metric='cosine', as it compares "
            f"them as they are. Got a length that is off by {worst:.3g}. Store them at unit "
            "length, or let the engine compare by cosine."
        )


def _check_can_take(engine: Engine, vectors: AnyArray) -> None:
    if engine.dimension != vectors.shape[1]:
        raise GalleryMismatchError(
            f"The engine holds vectors of length {engine.dimension}. "
            f"Got vectors of length {vectors.shape[1]} instead."
        )
    n_there = engine.size()
    if n_there:
        raise InvalidInputError(
            f"The engine holds {n_there} points already. fit_engine() fits on these; to have a "
            "gallery of X alone, take an empty table or collection."
        )
    if engine.capabilities.ids != "integer":
        raise InvalidInputError(
            "The engine's ids are text, and fit has none to give. Load the points with "
            "engine.add(vectors, ids, labels), and call fit_engine()."
        )


def _holds_codes(engine: Engine, classes: AnyArray) -> bool:
    """Whether an engine is given class codes for labels; an error if it can hold neither."""
    kind = engine.capabilities.labels
    if not engine.capabilities.holds_labels:
        return False
    if kind == "integer":
        # One of faiss belongs to this process, and is saved with the classes' names.
        if classes.dtype.kind in "iu" or isinstance(engine, FaissEngine):
            return classes.dtype.kind not in "iu"
        raise GalleryMismatchError(
            f"Labels of this engine are integers. Got {classes.dtype} instead: give y as integers, "
            "or make the engine with labels of text."
        )
    if classes.dtype.kind != "U":
        raise GalleryMismatchError(
            f"Labels of this engine are text. Got {classes.dtype} instead: give y as strings."
        )
    return False
