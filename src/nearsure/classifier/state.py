"""A fitted classifier as a manifest and arrays, and back."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from nearsure.arrays import AnyArray
from nearsure.bursts import Bursts
from nearsure.classifier.fit import Fit
from nearsure.classifier.known import UnknownDetector
from nearsure.classifier.parameters import prior_of_classes, restored, storable
from nearsure.classifier.recalibration import Recalibration
from nearsure.classifier.rule import FittedRule, class_sizes
from nearsure.engines.contract import Engine
from nearsure.engines.embedded import FaissEngine
from nearsure.engines.embedded.exact import MemoryEngine
from nearsure.errors import InvalidInputError
from nearsure.forms.prior import factors_of_prior
from nearsure.gallery import ClassCounts, Gallery, LabelCodes
from nearsure.gallery.counts import values_beside
from nearsure.gallery.opening import check_fits, have_same_ids, reopen_gallery
from nearsure.gallery.recall import Recall
from nearsure.heads.state import head_arrays, head_from_state, head_to_state
from nearsure.index.rows import PointTable
from nearsure.labels import restored_classes, stored_classes
from nearsure.schema import (
    ARRAY,
    BOOLEAN,
    COUNT,
    NUMBER,
    OBJECT,
    SCALARS,
    TEXT,
    array,
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
from nearsure.shift import Traits

if TYPE_CHECKING:
    from nearsure.classifier.estimator import NEDClassifier


BESIDE = ("codes", "groups")
IN_MEMORY = ("support_vectors", "support_codes", "support_ids", "changed_ids")
_STORED_GALLERY = {
    "fingerprint": SCALARS,
    "dimension": integer(1),
    "codes_in_engine": BOOLEAN,
    "next_id": COUNT,
    "beside": list_of(one_of(*BESIDE)),
    "changed_ids_dtype": TEXT,
}
# What only some galleries have.
_IN_SOME_GALLERIES = {"codes_ids_dtype": TEXT, "groups_ids_dtype": TEXT, "faiss": OBJECT}


def gallery_state(
    gallery: Gallery, n_classes: int, fit_mark: int
) -> tuple[dict[str, Any], dict[str, AnyArray]]:
    """What a model file with so many classes holds of a gallery; no address, no secret."""
    engine = gallery.engine
    if isinstance(engine, MemoryEngine):
        points = engine.points()
        arrays = {
            "support_vectors": np.asarray(points.vectors),
            "support_codes": np.asarray(points.labels),
            "support_ids": points.ids,
            "changed_ids": gallery.changed_ids(fit_mark),
        }
        if gallery.groups_beside is not None:
            arrays["groups"] = values_beside(gallery.groups_beside, points.ids)
        return {"next_id": gallery.next_id}, arrays
    manifest: dict[str, Any] = {
        "fingerprint": gallery.fingerprint(),
        "dimension": engine.dimension,
        "codes_in_engine": gallery.codes_in_engine,
        "next_id": gallery.counts.next_id,
        "beside": [],
    }
    arrays = {"class_counts": gallery.class_counts[:n_classes]}
    _put_ids(manifest, arrays, "changed_ids", gallery.changed_ids(fit_mark))
    for name, table in zip(BESIDE, (gallery.codes_beside, gallery.groups_beside), strict=True):
        if table is not None:
            manifest["beside"].append(name)
            ids, arrays[f"{name}_values"] = table.by_id()
            _put_ids(manifest, arrays, f"{name}_ids", ids)
    if isinstance(engine, FaissEngine):
        manifest["faiss"], index = engine.to_state()
        arrays |= {f"faiss_{name}": array for name, array in index.items()}
    return {"engine": manifest}, arrays


def array_names(manifest: dict[str, Any]) -> tuple[str, ...]:
    """The arrays that `gallery_state` gave; `ModelFileError` unless the manifest is its, too."""
    if ("engine" in manifest) == ("next_id" in manifest):
        raise unreadable("The model", "it must have one of 'engine' and 'next_id'")
    has_groups = "group_names_dtype" in manifest
    if "engine" not in manifest:
        return (*IN_MEMORY, *(("groups",) if has_groups else ()))
    stored = manifest["engine"]
    in_some = {name: field for name, field in _IN_SOME_GALLERIES.items() if name in stored}
    check_fields("The engine of the model", stored, _STORED_GALLERY | in_some)
    beside = stored["beside"]
    if beside != [name for name in BESIDE if f"{name}_ids_dtype" in stored]:
        raise unreadable("The engine of the model", "'beside' must name what has ids")
    if ("groups" in beside) != has_groups:
        raise unreadable("The engine of the model", "its groups must have names")
    tables = [f"{name}_{part}" for name in beside for part in ("ids", "values")]
    index = [] if "faiss" not in stored else stored["faiss"].get("arrays")
    if not list_of(TEXT).fits(index):
        raise unreadable("The engine of the model", "'arrays' must be a list of names")
    return ("class_counts", "changed_ids", *tables, *(f"faiss_{name}" for name in index))


def _holds_points(manifest: dict[str, Any]) -> bool:
    return manifest.get("engine") is None or "faiss" in manifest["engine"]


def gallery_from_state(
    manifest: dict[str, Any],
    arrays: dict[str, AnyArray],
    names: dict[str, AnyArray],
    engine: Engine | None,
) -> Gallery:
    """The inverse of `gallery_state`; an engine may have more classes by now.

    Parameters
    ----------
    manifest, arrays : dict
        What `gallery_state` gave; the arrays are those of `array_names`.
    names : dict
        The "classes", the "fit_indices" and, where there are groups, the "group_names".
    engine : Engine or None
        Where the points live, if that is not the file.
    """
    stored, classes = manifest.get("engine"), names["classes"]
    n_features, metric = manifest["n_features"], manifest["metric"]
    n_groups = len(names.get("group_names", ()))
    if stored is not None:
        counts = {"class_counts": arrays["class_counts"]}
        members = array("int64", None, low=0, high=2**40)
        check_fields("The gallery", counts, {"class_counts": members})
    if engine is not None and _holds_points(manifest):
        return reopen_gallery(engine, classes, n_features, metric)
    if stored is None:
        _check_kind([names["fit_indices"]], "integer")
        return _in_memory(manifest, arrays, classes, n_groups)
    if engine is None and not _holds_points(manifest):
        name = stored["fingerprint"].get("engine", "an engine")
        raise InvalidInputError(
            f"The points of this model live in {name}, not in the file. Open it and pass it: "
            "NEDClassifier.load(path, engine=...)."
        )
    if stored["dimension"] != n_features:
        raise unreadable("The engine of the model", "'dimension' must be that of the model")
    changed, tables = _beside(stored, arrays, len(classes), n_groups)
    kept = [names["fit_indices"], changed, *(table.ids.values for table in tables.values())]
    if engine is None:
        own: Engine = _embedded(manifest, arrays, tables, len(classes))
    else:
        own = engine
        check_fits(engine, n_features, metric)
    _check_kind(kept, own.capabilities.ids)
    gallery = Gallery(
        own,
        ClassCounts(arrays["class_counts"], stored["next_id"]),
        LabelCodes(classes),
        codes_in_engine=stored["codes_in_engine"],
        **tables,
    )
    gallery.mark_changed(changed)
    if engine is None or gallery.changed_elsewhere():
        gallery.recount()
    return gallery


def _in_memory(
    manifest: dict[str, Any], arrays: dict[str, AnyArray], classes: AnyArray, n_groups: int
) -> Gallery:
    n_points = len(arrays["support_codes"]) if arrays["support_codes"].ndim else None
    schema = {
        # Squares of larger numbers are infinite.
        "support_vectors": array(
            "float32 float64", n_points, manifest["n_features"], low=-1e150, high=1e150
        ),
        "support_codes": array("int64", None, low=0, high=len(classes) - 1),
        "support_ids": array("int64", n_points),
        "changed_ids": array("int64", None),
        "groups": array("int64", n_points, low=0, high=n_groups - 1),
    }
    own = {name: arrays[name] for name in schema if name in arrays}
    check_fields("The gallery", own, {name: schema[name] for name in own})
    if not n_points:
        raise unreadable("The gallery", "it must have a point")
    with reading("The gallery"):
        gallery = Gallery.of_points(
            own["support_vectors"],
            own["support_codes"],
            own.get("groups"),
            ids=own["support_ids"],
            next_id=manifest["next_id"],
            classes=classes,
        )
    if gallery.next_id != manifest["next_id"]:
        raise unreadable("The gallery", "'next_id' must be beyond its ids")
    gallery.mark_changed(own["changed_ids"])
    return gallery


def _beside(
    stored: dict[str, Any], arrays: dict[str, AnyArray], n_classes: int, n_groups: int
) -> tuple[AnyArray, dict[str, PointTable]]:
    """Ids that have changed, and codes and groups beside an engine."""
    tables = {}
    for name, n_values in zip(BESIDE, (n_classes, n_groups), strict=True):
        if name in stored["beside"]:
            ids, values = _ids(stored, arrays, f"{name}_ids"), arrays[f"{name}_values"]
            field = array("int64", len(ids), low=0, high=n_values - 1)
            check_fields("The gallery", {name: values}, {name: field})
            tables[name] = PointTable(ids, values)
    return _ids(stored, arrays, "changed_ids"), tables


def _embedded(
    manifest: dict[str, Any],
    arrays: dict[str, AnyArray],
    tables: dict[str, PointTable],
    n_classes: int,
) -> FaissEngine:
    """The engine in the file, which must fit what is beside it."""
    index = {
        name.removeprefix("faiss_"): part
        for name, part in arrays.items()
        if name.startswith("faiss_")
    }
    stored = manifest["engine"]
    engine = FaissEngine.from_state(stored["faiss"], index)
    points = list(engine.scan())
    if not points:
        raise unreadable("The gallery", "it must have a point")
    ids, labels = (
        np.concatenate([getattr(part, name) for part in points]) for name in ("ids", "labels")
    )
    if (engine.dimension, engine.metric) not in {
        (manifest["n_features"], metric) for metric in ("euclidean", manifest["metric"])
    }:
        raise unreadable("The gallery", "its dimension and metric must be those of the model")
    if stored["codes_in_engine"] and not 0 <= labels.min() <= labels.max() < n_classes:
        raise unreadable("The gallery", f"its codes must be in [0, {n_classes})")
    if not all(np.array_equal(table.by_id()[0], ids) for table in tables.values()):
        raise unreadable("The gallery", "codes and groups must be those of its points")
    return engine


def _check_kind(kept: list[AnyArray], kind: Literal["integer", "text"]) -> None:
    kinds = "U" if kind == "text" else "i"
    if any(ids.size and ids.dtype.kind != kinds for ids in kept):
        raise unreadable("The gallery", f"ids must be {kind}, as those of its engine")


def _put_ids(
    manifest: dict[str, Any], arrays: dict[str, AnyArray], name: str, ids: AnyArray
) -> None:
    manifest[f"{name}_dtype"] = ids.dtype.str
    arrays[name] = stored_classes(ids)


def _ids(manifest: dict[str, Any], arrays: dict[str, AnyArray], name: str) -> AnyArray:
    return restored_classes(arrays[name], manifest[f"{name}_dtype"])


OWNER = "The model"
# Arrays of what queries are compared with.
TRAITS = {
    "compared_labels": "labels",
    "compared_confidence": "confidence",
    "compared_near": "near",
}
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
_IN_SOME = {
    "next_id": COUNT,
    "engine": OBJECT,
    "group_names_dtype": TEXT,
    "known": OBJECT,
    "bursts": OBJECT,
    "n_compared": COUNT,
    "recalibration": OBJECT,
    "head": OBJECT,
    "encoder": TEXT,
    "recall": OBJECT,
}


def to_state(classifier: "NEDClassifier", fit: Fit) -> tuple[dict[str, Any], dict[str, AnyArray]]:
    """What a model file holds."""
    fit_ids, classes = classifier.fit_indices_, classifier.classes_
    about_gallery, points = gallery_state(fit.gallery, len(classes), fit.mark)
    manifest = {
        "parameters": storable(classifier.get_params()),
        "metric": fit.metric,
        # The gallery itself has the sizes of its classes.
        "rule": {**fit.rule.to_dict(), "class_sizes": None},
        "n_neighbors": int(classifier.n_neighbors_),
        "prior": fit.prior if isinstance(fit.prior, str) else fit.prior.tolist(),
        "classes_dtype": classes.dtype.str,
        "feature_names": getattr(classifier, "feature_names_in_", np.array([])).tolist(),
        "n_features": int(classifier.n_features_in_),
        "fit_fingerprint": dict(fit.fingerprint),
        "fit_indices_dtype": fit_ids.dtype.str,
        **about_gallery,
        "fit_loss": fit.loss,
        "adapted": fit.adapted,
    }
    tensors = {
        **points,
        "classes": stored_classes(classes),
        "fit_indices": stored_classes(fit_ids),
    }
    if fit.group_names is not None:
        tensors["group_names"] = stored_classes(fit.group_names)
        manifest["group_names_dtype"] = fit.group_names.dtype.str
    if classifier.encoder_ is not None:
        manifest["encoder"] = classifier.encoder_
    if fit.bursts is not None:
        manifest["bursts"] = fit.bursts.to_dict()
    if fit.traits is not None:
        manifest["n_compared"] = len(fit.traits)
        tensors |= {name: getattr(fit.traits, part) for name, part in TRAITS.items()}
    if fit.known is not None:
        manifest["known"], arrays = fit.known.to_state()
        tensors |= arrays
    if fit.recalibration is not None:
        manifest["recalibration"], arrays = fit.recalibration.to_state()
        tensors |= arrays
    if fit.gallery.recall is not None:
        manifest["recall"] = fit.gallery.recall.to_dict()
    if fit.gallery.head is not None:
        manifest["head"], arrays = head_to_state(fit.gallery.head)
        tensors |= arrays
    return manifest, tensors


def from_state(
    manifest: dict[str, Any], tensors: dict[str, AnyArray], engine: Engine | None = None
) -> tuple[dict[str, Any], AnyArray, Fit]:
    """The inverse of `to_state`: parameters, ``fit_indices_`` and the fit.

    `ModelFileError` for anything else. The manifest's other numbers are then as they were written.
    """
    in_some = {name: field for name, field in _IN_SOME.items() if name in manifest}
    check_fields(OWNER, manifest, _STORED | in_some)
    names = _restored_names(manifest, tensors)
    parameters = restored(manifest["parameters"])
    if engine is not None:
        parameters["engine"] = engine
    gallery = gallery_from_state(manifest, tensors, names, engine)
    recall = Recall.from_dict(manifest["recall"]) if "recall" in manifest else None
    if recall is not None and recall.fits(gallery.engine, manifest["fit_fingerprint"]):
        gallery.recall = recall
    classes, fit_ids = gallery.classes, names["fit_indices"]
    sizes = class_sizes(gallery, len(classes))
    rule = replace(FittedRule.from_dict(manifest["rule"]), class_sizes=sizes)
    named = None if rule.head is None else rule.head.name
    if named != manifest.get("head", {}).get("name"):
        raise unreadable(OWNER, "its rule must name the head that it has")
    if named is not None:
        head = head_from_state(manifest["head"], tensors, manifest["n_features"], len(classes))
        if engine is not None and _holds_points(manifest):
            in_file = gallery_from_state(manifest, tensors, names, None)
            head = head if have_same_ids(in_file, gallery) else head.without_points()
        gallery.head = head
    with reading("The prior"):
        prior = prior_of_classes(manifest["prior"], classes)
        if engine is None:  # Others may have changed what an engine holds.
            factors_of_prior(prior, sizes)
    known = None
    if "known" in manifest:
        known = UnknownDetector.from_state(
            manifest["known"], tensors, fit_ids=fit_ids, n_classes=len(names["classes"])
        )
    recalibration = None
    if "recalibration" in manifest:
        recalibration = Recalibration.from_state(
            manifest["recalibration"], tensors, n_features=manifest["n_features"]
        )
    if (recalibration is None) != (rule.recalibrator is None):
        raise unreadable(OWNER, "its rule is recalibrated if, and only if, queries were labelled")
    loss = manifest["fit_loss"]
    fit = Fit(
        gallery=gallery,
        metric=manifest["metric"],
        group_names=names.get("group_names"),
        fingerprint=manifest["fit_fingerprint"],
        rule=rule,
        prior=prior,
        known=known,
        all_neighbors=parameters["n_neighbors"] == "all",
        loss=None if loss is None else (loss[0], loss[1]),
        adapted=manifest["adapted"],
        bursts=Bursts.from_dict(manifest["bursts"]) if "bursts" in manifest else None,
        traits=_restored_traits(manifest, tensors, len(classes)),
        recalibration=recalibration,
    )
    return parameters, fit_ids, fit


def _restored_traits(
    manifest: dict[str, Any], tensors: dict[str, AnyArray], n_classes: int
) -> Traits | None:
    if "n_compared" not in manifest:
        return None
    n = manifest["n_compared"]
    schema = {
        "compared_labels": array("int64", n, low=0, high=n_classes - 1),
        "compared_confidence": array("float64", n, low=0.0, high=1.0),
        "compared_near": array("float64", n, low=0.0),
    }
    own = {name: tensors[name] for name in schema}
    check_fields("What queries are compared with", own, schema)
    return Traits(**{part: own[name] for name, part in TRAITS.items()})


def _restored_names(manifest: dict[str, Any], tensors: dict[str, AnyArray]) -> dict[str, AnyArray]:
    """Classes, ids and groups that arrays stand for, once all arrays are known to be there."""
    named = [
        name for name in ("classes", "fit_indices", "group_names") if f"{name}_dtype" in manifest
    ]
    of_known = ("known_ids", "known_log_masses") if "known" in manifest else ()
    compared = TRAITS if "n_compared" in manifest else ()
    labelled = ("labelled_vectors", "labelled_labels") if "recalibration" in manifest else ()
    of_head = head_arrays(manifest["head"]) if "head" in manifest else ()
    expected = (*named, *of_known, *compared, *labelled, *of_head, *array_names(manifest))
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
