"""A gallery as a manifest and arrays, and back; what lives on a server stays there."""

from typing import Any

from nearsure.arrays import AnyArray
from nearsure.classifier.chosen_gallery import check_fits, fingerprint_of, reopened
from nearsure.engine_gallery import ClassCounts, EngineGallery, IdTable, LabelCodes
from nearsure.engines.contract import Engine
from nearsure.engines.embedded import FaissEngine
from nearsure.errors import InvalidInputError
from nearsure.labels import restored_classes, stored_classes
from nearsure.support_set import SupportSet

BESIDE = ("codes", "groups")


def gallery_state(
    gallery: SupportSet | EngineGallery, n_classes: int, fit_mark: int
) -> tuple[dict[str, Any], dict[str, AnyArray]]:
    """What a model file with so many classes holds of a gallery; no address, no secret."""
    if isinstance(gallery, SupportSet):
        arrays = {
            "support_vectors": gallery.vectors,
            "support_codes": gallery.codes,
            "support_ids": gallery.ids,
            "changed_ids": gallery.changed_ids(fit_mark),
        }
        if gallery.groups is not None:
            arrays["groups"] = gallery.groups
        return {"next_id": gallery.next_id}, arrays
    engine = gallery.engine
    manifest: dict[str, Any] = {
        "fingerprint": fingerprint_of(gallery),
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
            _put_ids(manifest, arrays, f"{name}_ids", table.ids)
            arrays[f"{name}_values"] = table.values
    if isinstance(engine, FaissEngine):
        manifest["faiss"], index = engine.to_state()
        arrays |= {f"faiss_{name}": array for name, array in index.items()}
    return {"engine": manifest}, arrays


def gallery_from_state(
    manifest: dict[str, Any],
    arrays: dict[str, AnyArray],
    classes: AnyArray,
    engine: Engine | None,
    metric: str,
) -> SupportSet | EngineGallery:
    """The inverse of `gallery_state`; an engine may have more classes by now.

    Parameters
    ----------
    manifest, arrays : dict
        What `gallery_state` gave.
    classes : array of shape (n_classes,)
        The labels, in the order of their codes.
    engine : Engine or None
        Where the points live, if that is not the file.
    metric : {"euclidean", "cosine"}
        How the classifier compares.
    """
    stored = manifest.get("engine")
    in_the_file = stored is None or "faiss" in stored
    if engine is not None and in_the_file:
        dimension = arrays["support_vectors"].shape[1] if stored is None else stored["dimension"]
        return reopened(engine, classes, dimension, metric)
    if stored is None:
        return SupportSet(
            arrays["support_vectors"],
            arrays["support_codes"],
            arrays.get("groups"),
            arrays.get("support_ids"),
            next_id=manifest.get("next_id"),
            changed_ids=arrays.get("changed_ids"),
            classes=classes,
        )
    if engine is None:
        engine = _embedded(stored, arrays)
    else:
        check_fits(engine, stored["dimension"], metric)
    tables = {
        name: IdTable(_ids(stored, arrays, f"{name}_ids"), arrays[f"{name}_values"])
        for name in stored["beside"]
    }
    gallery = EngineGallery(
        engine,
        ClassCounts(arrays["class_counts"], stored["next_id"]),
        LabelCodes(classes),
        codes_in_engine=stored["codes_in_engine"],
        **tables,
    )
    gallery.mark_changed(_ids(stored, arrays, "changed_ids"))
    if gallery.changed_elsewhere():
        gallery.recount()
    return gallery


def _embedded(stored: dict[str, Any], arrays: dict[str, AnyArray]) -> FaissEngine:
    if "faiss" not in stored:
        name = stored["fingerprint"].get("engine", "an engine")
        raise InvalidInputError(
            f"The points of this model live in {name}, not in the file. Open it and pass it: "
            "NEDClassifier.load(path, engine=...)."
        )
    index = {
        name.removeprefix("faiss_"): array
        for name, array in arrays.items()
        if name.startswith("faiss_")
    }
    return FaissEngine.from_state(stored["faiss"], index)


def _put_ids(
    manifest: dict[str, Any], arrays: dict[str, AnyArray], name: str, ids: AnyArray
) -> None:
    manifest[f"{name}_dtype"] = ids.dtype.str
    arrays[name] = stored_classes(ids)


def _ids(manifest: dict[str, Any], arrays: dict[str, AnyArray], name: str) -> AnyArray:
    return restored_classes(arrays[name], manifest[f"{name}_dtype"])
