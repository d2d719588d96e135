"""A fitted classifier as a manifest and arrays, and back."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from nearsure.arrays import AnyArray
from nearsure.classifier.class_sizes import class_sizes, factors_of_prior
from nearsure.classifier.fitted_rule import FittedRule
from nearsure.classifier.known_judge import KnownJudge
from nearsure.classifier.parameters import prior_of_classes, restored, storable
from nearsure.classifier.stored_gallery import array_names, gallery_from_state, gallery_state
from nearsure.engines.contract import Engine
from nearsure.labels import restored_classes, stored_classes
from nearsure.schema import (
    ARRAY,
    BOOLEAN,
    COUNT,
    NUMBER,
    OBJECT,
    SCALARS,
    TEXT,
    check_fields,
    either,
    integer,
    list_of,
    nullable,
    number,
    one_of,
    reading,
    unreadable,
)

if TYPE_CHECKING:
    from nearsure.classifier.estimator import NEDClassifier

Classifier = TypeVar("Classifier", bound="NEDClassifier")
OWNER = "The model"
_STORED = {
    "parameters": OBJECT,
    "metric": one_of("euclidean", "cosine"),
    "rule": OBJECT,
    "n_neighbors": integer(1),
    "prior": either(
        one_of("support", "uniform"), list_of(number("a number in [0, 1e300]", 0.0, 1e300))
    ),
    "classes_dtype": TEXT,
    "feature_names": list_of(TEXT),
    "n_features": integer(1),
    "fit_fingerprint": SCALARS,
    "fit_indices_dtype": TEXT,
    "fit_loss": nullable(list_of(NUMBER, 2)),
    "adapted": BOOLEAN,
}
# What only some models have.
_IN_SOME = {"next_id": COUNT, "engine": OBJECT, "group_names_dtype": TEXT, "known": OBJECT}


def to_state(classifier: "NEDClassifier") -> tuple[dict[str, Any], dict[str, AnyArray]]:
    """What a model file holds."""
    known, prior = classifier._known, classifier._prior  # noqa: SLF001
    fit_ids, classes = classifier.fit_indices_, classifier.classes_
    about_gallery, points = gallery_state(
        classifier._support,  # noqa: SLF001
        len(classes),
        classifier._fit_mark,  # noqa: SLF001
    )
    manifest = {
        "parameters": storable(classifier.get_params()),
        "metric": classifier._metric,  # noqa: SLF001
        # The gallery itself says how large its classes are.
        "rule": {**classifier._rule.to_dict(), "class_sizes": None},  # noqa: SLF001
        "n_neighbors": int(classifier.n_neighbors_),
        "prior": prior if isinstance(prior, str) else prior.tolist(),
        "classes_dtype": classes.dtype.str,
        "feature_names": getattr(classifier, "feature_names_in_", np.array([])).tolist(),
        "n_features": int(classifier.n_features_in_),
        "fit_fingerprint": dict(classifier._fingerprint),  # noqa: SLF001
        "fit_indices_dtype": fit_ids.dtype.str,
        **about_gallery,
        "fit_loss": classifier._fit_loss,  # noqa: SLF001
        "adapted": classifier._adapted,  # noqa: SLF001
    }
    tensors = {
        **points,
        "classes": stored_classes(classes),
        "fit_indices": stored_classes(fit_ids),
    }
    names = classifier._group_names  # noqa: SLF001
    if names is not None:
        tensors["group_names"] = stored_classes(names)
        manifest["group_names_dtype"] = names.dtype.str
    if known is not None:
        manifest["known"], arrays = known.to_state()
        tensors |= arrays
    return manifest, tensors


def from_state(
    kind: type[Classifier],
    manifest: dict[str, Any],
    tensors: dict[str, AnyArray],
    engine: Engine | None = None,
) -> Classifier:
    """The inverse of `to_state`; `ModelFileError` for anything else."""
    in_some = {name: field for name, field in _IN_SOME.items() if name in manifest}
    check_fields(OWNER, manifest, _STORED | in_some)
    names = _restored_names(manifest, tensors)
    parameters = restored(manifest["parameters"])
    if engine is not None:
        parameters["engine"] = engine
    classifier = kind(**parameters)
    gallery = gallery_from_state(manifest, tensors, names, engine)
    classes = gallery.classes
    classifier._support = gallery  # noqa: SLF001
    classifier.n_features_in_ = manifest["n_features"]
    if manifest["feature_names"]:
        classifier.feature_names_in_ = np.array(manifest["feature_names"], object)
    classifier.n_neighbors_ = manifest["n_neighbors"]
    classifier.fit_indices_ = names["fit_indices"]
    classifier._all_neighbors = classifier.n_neighbors == "all"  # noqa: SLF001
    classifier._adapted = manifest["adapted"]  # noqa: SLF001
    classifier._metric = manifest["metric"]  # noqa: SLF001
    classifier._group_names = names.get("group_names")  # noqa: SLF001
    sizes = class_sizes(gallery, len(classes))
    classifier._rule = replace(FittedRule.from_dict(manifest["rule"]), class_sizes=sizes)  # noqa: SLF001
    with reading("The prior"):
        classifier._prior = prior_of_classes(manifest["prior"], classes)  # noqa: SLF001
        if engine is None:  # Others may have changed what an engine holds.
            factors_of_prior(classifier._prior, sizes)  # noqa: SLF001
    known = manifest.get("known")
    classifier._known = (  # noqa: SLF001
        None
        if known is None
        else KnownJudge.from_state(
            known, tensors, fit_ids=names["fit_indices"], n_classes=len(names["classes"])
        )
    )
    classifier._own = classifier._rehearsal = None  # noqa: SLF001
    loss = manifest["fit_loss"]
    classifier._fit_loss = None if loss is None else (loss[0], loss[1])  # noqa: SLF001
    classifier._fit_mark, classifier._warned_stale = 0, False  # noqa: SLF001
    classifier._fingerprint = manifest["fit_fingerprint"]  # noqa: SLF001
    classifier._warn_if_other_engine()  # noqa: SLF001
    return classifier


def _restored_names(manifest: dict[str, Any], tensors: dict[str, AnyArray]) -> dict[str, AnyArray]:
    """Classes, ids and groups that arrays stand for, once all arrays are known to be there."""
    named = [
        name for name in ("classes", "fit_indices", "group_names") if f"{name}_dtype" in manifest
    ]
    of_known = ("known_ids", "known_log_masses") if "known" in manifest else ()
    expected = (*named, *of_known, *array_names(manifest))
    check_fields("The arrays of the model", tensors, dict.fromkeys(expected, ARRAY))
    names = {name: restored_classes(tensors[name], manifest[f"{name}_dtype"]) for name in named}
    classes = names["classes"]
    if not len(classes) or len(set(classes.tolist())) != len(classes):
        raise unreadable(OWNER, "its classes must be distinct, and at least one")
    if classes.dtype.kind == "f" and not np.isfinite(classes).all():
        raise unreadable(OWNER, "its classes must be finite")
    if manifest["feature_names"] and len(manifest["feature_names"]) != manifest["n_features"]:
        raise unreadable(OWNER, "it must have a name for each feature, or none")
    return names
