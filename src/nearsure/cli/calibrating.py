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

CONVENTIONS: dict[DistanceName, Callable[..., Neighbors]] = {
    "squared-l2": Neighbors.from_squared_l2,
    "l2": Neighbors.from_l2,
    "cosine-distance": Neighbors.from_cosine_distance,
    "cosine-similarity": Neighbors.from_cosine_similarity,
    "inner-product": Neighbors.from_inner_product,
    "negative-inner-product": Neighbors.from_negative_inner_product,
}
# Of the points that have a neighbour at distance 0: more can hardly be duplicates.
SUSPICIOUS_SHARE = 0.5


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
    if request.is_saved and (request.precision is not None or request.calibration != "auto"):
        raise ConfigError(
            "--precision and --calibration need the points of the gallery, which a saved rule has "
            "not: give GALLERY_HITS."
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
    found = _neighbors(hits, classes, distance)
    if found.ids is not None and hits.own_ids is not None:
        found = leave_one_out(found, hits.own_ids)
    elif (found.sq_distances[:, 0] == 0).mean() > SUSPICIOUS_SHARE:
        tell(
            "warning: most points have a neighbour at distance 0. If these are the points "
            "themselves, give the ids of neighbours and points, so that they can be left out."
        )
    codes = codes_of(hits.truth, classes)
    with busy("fitting"):
        rule = fit_confidence(found, codes, rule=request.rule, calibration=request.calibration)
    temperature = "" if rule.temperature is None else f", T = {rule.temperature:.6g}"
    tell(
        f"Fitted {rule.name} on {len(codes):,} points of {len(classes):,} classes with {found.k} "
        f"neighbours each{temperature}."
    )
    return SavedRule(rule, classes, distance, found.k), Own(hits, found, codes)


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
        columns["accepted"] = confidence >= threshold
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
