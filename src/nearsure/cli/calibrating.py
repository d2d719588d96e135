"""`nearsure calibrate`: what is done."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nearsure.arrays import AnyArray, IntArray
from nearsure.classifier import fit_confidence
from nearsure.classifier.fitted_rule import FittedRule
from nearsure.cli.calibrate import DistanceName
from nearsure.cli.checked_files import check_files, check_suffix
from nearsure.cli.class_counts import check_all_counted, class_counts_in
from nearsure.cli.input_files import labels_like
from nearsure.cli.records import Destination
from nearsure.cli.saved_rule import SavedRule
from nearsure.cli.saying import busy, tell
from nearsure.decisions import choose_threshold
from nearsure.embedding_files import HitSet, load_hits
from nearsure.errors import ConfigError, InvalidInputError
from nearsure.labels import codes_of
from nearsure.leaving_one_out import leave_one_out
from nearsure.metrics import accuracy, expected_calibration_error
from nearsure.neighbors import Neighbors
from nearsure.posterior import Posterior
from nearsure.report.own_points import are_most, nearly_found

CONVENTIONS: dict[DistanceName, Callable[..., Neighbors]] = {
    "squared-l2": Neighbors.from_squared_l2,
    "l2": Neighbors.from_l2,
    "cosine-distance": Neighbors.from_cosine_distance,
    "cosine-similarity": Neighbors.from_cosine_similarity,
    "inner-product": Neighbors.from_inner_product,
    "negative-inner-product": Neighbors.from_negative_inner_product,
}
# Of the points that find themselves: with fewer, ids are hardly those of the gallery.
LEAST_SHARE = 0.5


@dataclass(frozen=True)
class CalibrateRequest:
    """What was asked for; `rule` is a name, or the path of a .json file."""

    gallery_hits: str | None
    queries: str | None
    distance: DistanceName | None
    rule: str
    calibration: str
    save: Path | None
    format: str | None
    precision: float | None
    class_counts: Path | None = None

    @property
    def is_saved(self) -> bool:
        """Whether the rule was fitted before."""
        return self.rule.endswith(".json")


@dataclass(frozen=True, eq=False)
class Own:
    """Points of the gallery with what they found; names, neighbours, class codes."""

    hits: HitSet
    neighbors: Neighbors
    codes: IntArray


def calibrate_hits(request: CalibrateRequest, destination: Destination) -> None:
    """Learn how sure to be, or read what was learned, and answer queries."""
    _check(request)
    check_suffix("--save", request.save, (".json",))
    check_files(
        {
            "GALLERY_HITS": request.gallery_hits,
            "--queries": request.queries,
            "--rule": request.rule if request.is_saved else None,
        },
        {"--save": request.save, "--output": destination.path},
    )
    own: Own | None = None
    if request.is_saved:
        saved = SavedRule.load(Path(request.rule))
        if request.distance not in {None, saved.distance}:
            raise ConfigError(
                f"--distance must be {saved.distance}, as {request.rule} was fitted. "
                f"Got {request.distance} instead."
            )
    else:
        saved, own = _fitted(request)
    if request.save is not None:
        saved.save(request.save)
    threshold = _threshold(request, saved, own)
    if request.queries is not None:
        hits = load_hits(request.queries, format=request.format)
        neighbors = _as_fitted(_neighbors(hits, saved.classes, saved.distance), saved)
        _answer(hits, neighbors, saved, threshold, destination)
    elif own is not None:
        _answer(own.hits, own.neighbors, saved, threshold, destination)


def _check(request: CalibrateRequest) -> None:
    if request.is_saved and request.gallery_hits is not None:
        raise ConfigError(
            f"GALLERY_HITS must be left out: {request.rule} was fitted already. Queries are given "
            "with --queries."
        )
    if request.is_saved and (request.queries is None or request.save is not None):
        raise ConfigError("--rule rule.json answers --queries, and fits nothing to --save.")
    of_fits = (request.precision, request.class_counts, request.calibration)
    if request.is_saved and of_fits != (None, None, "auto"):
        raise ConfigError(
            "--precision, --calibration and --class-counts need the points of the gallery, which a "
            "saved rule has not: give GALLERY_HITS."
        )
    if not request.is_saved and request.gallery_hits is None:
        raise ConfigError("Give GALLERY_HITS to fit on, or --rule rule.json.")
    if not request.is_saved and request.distance is None:
        raise ConfigError(
            f"--distance must say what your engine calls a distance: {', '.join(CONVENTIONS)}."
        )
    if request.gallery_hits == "-" and request.queries == "-":
        raise ConfigError("Only one of GALLERY_HITS and --queries can be standard input.")


def _fitted(request: CalibrateRequest) -> tuple[SavedRule, Own]:
    hits = load_hits(str(request.gallery_hits), format=request.format)
    if hits.truth is None:
        raise InvalidInputError(
            f"{request.gallery_hits} must hold the true label of each point (truth): from these "
            "it is learned how sure to be."
        )
    distance = request.distance or "squared-l2"
    present = hits.neighbor_labels[_valid(hits)]
    classes = np.unique(np.concatenate([labels_like(present, hits.truth), hits.truth]))
    counts: IntArray | None = None
    if request.class_counts is not None:
        counted, counts = class_counts_in(request.class_counts, hits.truth)
        check_all_counted(request.class_counts, classes, counted)
        classes = counted
    elif _are_some_of_the_points(hits):
        tell(
            "warning: neighbours are points that are not among GALLERY_HITS themselves. If these "
            "are a sample of the gallery, --class-counts must say how large its classes are."
        )
    codes = codes_of(hits.truth, classes)
    found = _without_themselves(hits, _neighbors(hits, classes, distance), codes)
    with busy("fitting"):
        rule = fit_confidence(
            found,
            codes,
            rule=request.rule,
            calibration=request.calibration,
            class_counts=counts,
        )
    temperature = "" if rule.temperature is None else f", T = {rule.temperature:.6g}"
    tell(
        f"Fitted {rule.name} on {len(codes):,} points of {len(classes):,} classes with {found.k} "
        f"neighbours each{temperature}."
    )
    return SavedRule(rule, classes, distance, found.k), Own(hits, found, codes)


def _without_themselves(hits: HitSet, found: Neighbors, codes: IntArray) -> Neighbors:
    """Neighbours without the points that were searched, if ids tell; doubts are said."""
    if found.ids is None or hits.own_ids is None:
        if are_most(nearly_found(found, codes)):
            tell(
                "warning: most points have a neighbour of their class that is as good as "
                "themselves, so that confidence will be far too high. Give the ids of neighbours "
                "and points, so that points can be left out of their own neighbours."
            )
        return found
    left = leave_one_out(found, hits.own_ids)
    itself = ((found.ids == hits.own_ids[:, None]) & found.valid).any(axis=1)
    doubtful = are_most(nearly_found(left, codes))
    if itself.mean() < LEAST_SHARE:
        if doubtful:
            raise InvalidInputError(
                "Ids of the points must be those that neighbours have. Most points found "
                f"themselves, but only {int(itself.sum()):,} of {len(itself):,} by their id."
            )
        tell(
            f"{int(itself.sum()):,} of {len(itself):,} points were among their own neighbours, and "
            "were left out."
        )
    elif doubtful:
        tell(
            "warning: most points have a near-duplicate of their class in the gallery. New queries "
            "that have none will get too high a confidence: remove duplicates."
        )
    return left


def _are_some_of_the_points(hits: HitSet) -> bool:
    """Whether ids tell that the gallery has more points than these."""
    if hits.ids is None or hits.own_ids is None:
        return False
    among = np.isin(hits.ids[_valid(hits)], hits.own_ids)
    # Where hardly any is, ids are of another numbering, which is found out elsewhere.
    return bool(among.any() and not among.all())


def _neighbors(hits: HitSet, classes: AnyArray, distance: DistanceName) -> Neighbors:
    """Hits as squared distances and class codes."""
    valid = _valid(hits)
    labels = labels_like(hits.neighbor_labels[valid], classes)
    own = codes_of(labels, classes)
    if (own == len(classes)).any():
        strange = np.unique(labels[own == len(classes)])[:5].tolist()
        raise InvalidInputError(
            f"Labels of neighbours must be among the {len(classes)} classes of the fit. Got "
            f"{strange}, too: fit again on the gallery of now."
        )
    codes = np.zeros(valid.shape, np.int64)
    codes[valid] = own
    return CONVENTIONS[distance](hits.distances, codes, ids=hits.ids, counts=hits.counts)


def _as_fitted(neighbors: Neighbors, saved: SavedRule) -> Neighbors:
    """As many neighbours as at the fit."""
    if neighbors.k < saved.n_neighbors:
        tell(
            f"warning: queries have {neighbors.k} neighbours, while the rule was fitted with "
            f"{saved.n_neighbors}. Confidence may be off: search for as many."
        )
    return neighbors.first(min(neighbors.k, saved.n_neighbors))


def _threshold(request: CalibrateRequest, saved: SavedRule, own: Own | None) -> float | None:
    if request.precision is None or own is None:
        return None
    posterior = _posterior(saved.rule, own.neighbors, saved.classes)
    chosen = choose_threshold(
        posterior.confidence, posterior.labels == own.codes, precision=request.precision
    )
    tell(str(chosen))
    return chosen.threshold


def _posterior(rule: FittedRule, neighbors: Neighbors, classes: AnyArray) -> Posterior:
    return rule.posterior(neighbors, n_classes=len(classes))


def _answer(
    hits: HitSet,
    neighbors: Neighbors,
    saved: SavedRule,
    threshold: float | None,
    destination: Destination,
) -> None:
    posterior = _posterior(saved.rule, neighbors, saved.classes)
    codes, confidence = posterior.labels, posterior.confidence
    labels: list[Any] = [
        None if code < 0 else label
        for code, label in zip(codes, saved.classes[codes].tolist(), strict=True)
    ]
    named = hits.own_ids is not None
    columns: dict[str, Any] = {
        "id" if named else "row": hits.own_ids if named else np.arange(len(codes)),
        "label": labels,
        "confidence": confidence,
    }
    if threshold is not None:
        columns["accepted"] = (confidence >= threshold) & (neighbors.counts > 0)
    if hits.truth is not None:
        columns["truth"] = hits.truth
        truth = codes_of(labels_like(hits.truth, saved.classes), saved.classes)
        correct = codes == truth
        tell(
            f"{accuracy(correct):.2%} of {len(correct):,} answers are right, mean confidence "
            f"{confidence.mean():.2%}, calibration error (ECE) "
            f"{expected_calibration_error(confidence, correct):.2%}."
        )
    shown = min(destination.rows, len(labels))
    destination.put(f"The first {shown} of {len(labels):,}; -o FILE writes all", [columns])


def _valid(hits: HitSet) -> AnyArray:
    return np.arange(hits.distances.shape[1]) < hits.counts[:, None]
