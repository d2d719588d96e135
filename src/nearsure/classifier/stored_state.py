"""A fitted classifier as a manifest and arrays, and back."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from nearsure.arrays import AnyArray
from nearsure.classifier.chosen_gallery import EXACT
from nearsure.classifier.class_sizes import class_sizes
from nearsure.classifier.fitted_rule import FittedRule
from nearsure.classifier.known_judge import KnownJudge
from nearsure.classifier.parameters import prior_of_classes, restored, storable
from nearsure.classifier.stored_gallery import gallery_from_state, gallery_state
from nearsure.engines.contract import Engine
from nearsure.labels import restored_classes, stored_classes
from nearsure.temperature import TemperatureFit

if TYPE_CHECKING:
    from nearsure.classifier.estimator import NEDClassifier

Classifier = TypeVar("Classifier", bound="NEDClassifier")


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
    """The inverse of `to_state`; also reads what versions 1 and 2 wrote."""
    parameters = restored(manifest["parameters"])
    if engine is not None:
        parameters["engine"] = engine
    classifier = kind(**parameters)
    classes = restored_classes(tensors["classes"], manifest["classes_dtype"])
    gallery = gallery_from_state(manifest, tensors, classes, engine, manifest["metric"])
    classes = gallery.classes
    classifier._support = gallery  # noqa: SLF001
    if "n_features" in manifest:
        classifier.n_features_in_ = manifest["n_features"]
    else:
        classifier.n_features_in_ = tensors["support_vectors"].shape[1]
    if manifest["feature_names"]:
        classifier.feature_names_in_ = np.array(manifest["feature_names"], object)
    classifier.n_neighbors_ = manifest["n_neighbors"]
    classifier.fit_indices_ = restored_classes(
        tensors["fit_indices"], manifest.get("fit_indices_dtype", "<i8")
    )
    classifier._all_neighbors = classifier.n_neighbors == "all"  # noqa: SLF001
    classifier._adapted = manifest.get("adapted", False)  # noqa: SLF001
    classifier._metric = manifest["metric"]  # noqa: SLF001
    classifier._group_names = _group_names(manifest, tensors)  # noqa: SLF001
    sizes = class_sizes(gallery, len(classes))
    classifier._rule = replace(_rule(manifest), class_sizes=sizes)  # noqa: SLF001
    classifier._prior = prior_of_classes(manifest.get("prior", "support"), classes)  # noqa: SLF001
    known = manifest.get("known")
    classifier._known = None if known is None else KnownJudge.from_state(known, tensors)  # noqa: SLF001
    classifier._own = classifier._rehearsal = None  # noqa: SLF001
    loss = manifest.get("fit_loss")
    classifier._fit_loss = None if loss is None else (loss[0], loss[1])  # noqa: SLF001
    classifier._fit_mark, classifier._warned_stale = 0, False  # noqa: SLF001
    classifier._fingerprint = manifest.get("fit_fingerprint", EXACT)  # noqa: SLF001
    classifier._warn_if_other_engine()  # noqa: SLF001
    return classifier


def _group_names(manifest: dict[str, Any], tensors: dict[str, AnyArray]) -> AnyArray | None:
    if "group_names" in tensors:
        return restored_classes(tensors["group_names"], manifest["group_names_dtype"])
    # Version 1 kept the codes alone, which name themselves.
    return np.arange(tensors["groups"].max() + 1) if "groups" in tensors else None


def _rule(manifest: dict[str, Any]) -> FittedRule:
    rule = manifest["rule"]
    if isinstance(rule, dict):
        return FittedRule.from_dict(rule)
    fit = manifest["temperature_fit"]
    return FittedRule(
        rule, manifest["temperature"], temperature_fit=fit and TemperatureFit.from_dict(fit)
    )
