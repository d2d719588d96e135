"""A head in a model file: numbers for JSON, and arrays in single precision."""

from typing import Any

import numpy as np

from nearsure.arrays import AnyArray, FloatArray
from nearsure.errors import InvalidInputError
from nearsure.heads.class_means import MOST_CORRELATED, ClassMeans
from nearsure.heads.fitted_head import OTHER_IDS, FittedHead
from nearsure.heads.folds import CLASS_FOLDS, FEWEST_FOLDS, MOST_FOLDS
from nearsure.heads.linear import LinearHead
from nearsure.labels import restored_classes, stored_classes
from nearsure.schema import (
    BOOLEAN,
    NUMBER,
    POSITIVE,
    TEXT,
    array,
    check_fields,
    integer,
    nullable,
    one_of,
    unreadable,
)

SINGLE_FULL = ("weights", "intercepts")
SINGLE = tuple(f"head_{part}{name}" for part in ("", "fold_", "class_") for name in SINGLE_FULL)
# Of a file; a class without members has minus this for an intercept of minus infinity.
LARGEST_WEIGHT = float(np.finfo(np.float32).max)
_STORED = {
    "name": one_of("means", "logistic"),
    "near_only": BOOLEAN,
    "n_classes": integer(1),
    "n_fold_classes": integer(1),
    "n_seen": integer(1),
    "n_folds": integer(FEWEST_FOLDS, MOST_FOLDS),
    "n_class_folds": integer(0, CLASS_FOLDS),
    "scale": nullable(POSITIVE),
    "farthest": nullable(NUMBER),
    "ids_dtype": TEXT,
}


def head_to_state(head: FittedHead) -> tuple[dict[str, Any], dict[str, AnyArray]]:
    """Numbers for JSON, and arrays."""
    if not len(head.seen_ids):
        raise InvalidInputError(OTHER_IDS)
    numbers = {
        "name": head.name,
        "near_only": head.near_only,
        "n_classes": len(head.full.weights),
        "n_fold_classes": len(head.folds[0].weights),
        "n_seen": len(head.seen_ids),
        "n_folds": len(head.folds),
        "n_class_folds": len(head.class_folds),
        "scale": None if head.means is None else head.means.scale,
        "farthest": head.farthest,
        "ids_dtype": head.seen_ids.dtype.str,
    }
    arrays = {
        "head_ids": stored_classes(head.seen_ids),
        "head_folds": head.seen_folds,
        "head_centre": head.full.centre,
        "head_fold_weights": np.stack([each.weights for each in head.folds]),
        "head_fold_intercepts": np.stack([each.intercepts for each in head.folds]),
    }
    if head.means is None:
        arrays["head_weights"] = head.full.weights
        arrays["head_intercepts"] = head.full.intercepts
    else:
        arrays["head_means"] = np.asarray(head.means.means, np.float64)
        arrays["head_counts"] = head.means.counts
        arrays["head_factor"] = head.means.factor
    if head.class_folds:
        arrays["head_fold_of_class"] = head.fold_of_class
        arrays["head_class_weights"] = np.stack([each.weights for each in head.class_folds])
        arrays["head_class_intercepts"] = np.stack([each.intercepts for each in head.class_folds])
    for name in SINGLE:
        if name in arrays:
            lowest = np.maximum(arrays[name], -LARGEST_WEIGHT)
            arrays[name] = lowest.astype(np.float32)
    return numbers, arrays


def head_from_state(
    numbers: dict[str, Any],
    arrays: dict[str, AnyArray],
    n_features: int,
    n_classes: int,
) -> FittedHead:
    """The inverse of `head_to_state`; `ModelFileError` for anything else.

    Parameters
    ----------
    numbers, arrays : dict
        What `head_to_state` gave; the numbers are checked, see `head_arrays`.
    n_features, n_classes : int
        Of the gallery.
    """
    owner = "The head of the model"
    n, m = numbers["n_classes"], numbers["n_seen"]
    n_folds, n_class_folds = numbers["n_folds"], numbers["n_class_folds"]
    n_fold, d = numbers["n_fold_classes"], n_features
    single = {"low": -LARGEST_WEIGHT, "high": LARGEST_WEIGHT}
    factor = (d, d) if d <= MOST_CORRELATED else (d,)
    table = {
        "head_folds": array("int64", m, low=0, high=n_folds - 1),
        "head_centre": array("float64", d, low=-1e150, high=1e150),
        "head_fold_weights": array("float32", n_folds, n_fold, d, **single),
        "head_fold_intercepts": array("float32", n_folds, n_fold, **single),
        "head_fold_of_class": array("int64", n_fold, low=0, high=n_class_folds - 1),
        "head_class_weights": array("float32", n_class_folds, n_fold, d, **single),
        "head_class_intercepts": array("float32", n_class_folds, n_fold, **single),
        "head_weights": array("float32", n, d, **single),
        "head_intercepts": array("float32", n, **single),
        "head_means": array("float64", n, d, low=-1e150, high=1e150),
        "head_counts": array("float64", n, low=0.0, high=2.0**53),
        "head_factor": array("float64", *factor, low=-1e150, high=1e150),
    }
    own = {name: arrays[name] for name in table if name in arrays}
    check_fields(owner, own, {name: table[name] for name in own})
    ids = restored_classes(arrays["head_ids"], numbers["ids_dtype"])
    if len(ids) != m or (ids[1:] <= ids[:-1]).any():
        raise unreadable(owner, "its ids must ascend, one for each fold of a point")
    if max(n, n_fold) > n_classes:
        raise unreadable(owner, f"it must have at most the {n_classes} classes of the gallery")
    centre = own["head_centre"]
    folds = _restored_folds(own["head_fold_weights"], own["head_fold_intercepts"], centre)
    class_folds: tuple[LinearHead, ...] = ()
    if n_class_folds:
        class_folds = _restored_folds(
            own["head_class_weights"], own["head_class_intercepts"], centre
        )
    means = None
    if numbers["name"] == "means":
        means = ClassMeans(
            own["head_means"], own["head_counts"], own["head_factor"], numbers["scale"], centre
        )
        with np.errstate(over="ignore", invalid="ignore"):
            full = means.head(np.float32 if numbers["near_only"] else np.float64)
        largest = max(np.abs(full.weights).max(), full.intercepts.max())
        if not largest <= LARGEST_WEIGHT:
            raise unreadable(owner, "its means and metric must give finite weights")
    else:
        full = _restored(own["head_weights"], own["head_intercepts"], centre)
    return FittedHead(
        numbers["name"],
        full,
        folds,
        means,
        numbers["near_only"],
        ids,
        own["head_folds"],
        numbers["farthest"],
        class_folds,
        own.get("head_fold_of_class", np.empty(0, np.int64)),
    )


def head_arrays(numbers: dict[str, Any]) -> tuple[str, ...]:
    """The arrays that `head_to_state` gave; `ModelFileError` unless the numbers fit."""
    check_fields("The head of the model", numbers, _STORED)
    if (numbers["name"] == "means") != (numbers["scale"] is not None):
        raise unreadable("The head of the model", "class means alone must have a scale")
    full = ("means", "counts", "factor") if numbers["name"] == "means" else SINGLE_FULL
    shared = ("ids", "folds", "centre", "fold_weights", "fold_intercepts")
    by_class = ("fold_of_class", "class_weights", "class_intercepts")
    return tuple(
        f"head_{name}" for name in (*shared, *full, *(by_class if numbers["n_class_folds"] else ()))
    )


def _restored(weights: AnyArray, intercepts: AnyArray, centre: FloatArray) -> LinearHead:
    lowest = intercepts <= np.float32(-LARGEST_WEIGHT)
    plain = np.where(lowest, -np.inf, intercepts.astype(np.float64))
    return LinearHead(weights.astype(np.float64), plain, centre)


def _restored_folds(
    weights: AnyArray, intercepts: AnyArray, centre: FloatArray
) -> tuple[LinearHead, ...]:
    return tuple(_restored(*each, centre) for each in zip(weights, intercepts, strict=True))
