"""A rule fitted on the hits of an engine outside nearsure, and the JSON file that stores it."""

import csv
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from nearsure.arrays import AnyArray, BoolArray, IntArray
from nearsure.atomic import write_text_whole
from nearsure.classifier import FittedRule, fit_confidence
from nearsure.cli.calibrate import DistanceName
from nearsure.cli.inputs import match_labels
from nearsure.cli.outputs import notice, spinner, tell, translate_errors
from nearsure.decisions import choose_threshold
from nearsure.embedding_files import HitSet
from nearsure.errors import ConfigError, InvalidInputError, ModelFileError
from nearsure.labels import codes_of, text_array
from nearsure.loo import leave_one_out
from nearsure.metrics import accuracy, expected_calibration_error
from nearsure.neighbors import Neighbors
from nearsure.posterior import Posterior
from nearsure.report.answers import are_most, nearly_found
from nearsure.schema import OBJECT, TEXT, Field, either, integer, list_of, misfit, one_of

if TYPE_CHECKING:
    from typing import Self

CONVENTIONS = {
    "squared-l2": Neighbors.from_squared_l2,
    "l2": Neighbors.from_l2,
    "cosine-distance": Neighbors.from_cosine_distance,
    "cosine-similarity": Neighbors.from_cosine_similarity,
    "inner-product": Neighbors.from_inner_product,
    "negative-inner-product": Neighbors.from_negative_inner_product,
}
HEADER = ["label", "count"]
# Share of the points that find themselves; with fewer, their ids are not those of the gallery.
LEAST_SHARE = 0.5

KIND, VERSION = "nearsure rule", 1
_LABELS = either(list_of(TEXT), list_of(integer(-(2**63), 2**63 - 1)))
_STORED = {
    "kind": one_of(KIND),
    "version": integer(VERSION, VERSION),
    "distance": one_of(*get_args(DistanceName)),
    "n_neighbors": integer(1),
    "classes": Field(
        "distinct labels",
        lambda names: _LABELS.fits(names) and 0 < len(names) == len(set(names)),
    ),
    "rule": OBJECT,
}


@dataclass(frozen=True, eq=False)
class SavedRule:
    """A fitted rule, and what its numbers mean.

    Parameters
    ----------
    rule : FittedRule
        Takes neighbours with class codes.
    classes : array of shape (n_classes,)
        Labels that codes stand for: integers or strings.
    distance : str
        What the engine calls a distance.
    n_neighbors : int
        How many neighbours each point had when it was fitted.
    """

    rule: FittedRule
    classes: AnyArray
    distance: DistanceName
    n_neighbors: int

    def posterior(self, neighbors: Neighbors) -> Posterior:
        """Probabilities of the classes."""
        return self.rule.posterior(neighbors, n_classes=len(self.classes))

    def choose_threshold(self, neighbors: Neighbors, codes: IntArray, precision: float) -> float:
        """The confidence from which answers are accepted, with its promise printed."""
        own = self.posterior(neighbors)
        chosen = choose_threshold(own.confidence, own.labels == codes, precision=precision)
        chosen = replace(chosen, rests_on="points left out alone")
        notice(str(chosen))
        return chosen.threshold

    def save(self, path: Path) -> None:
        """Write the file, whole or not at all."""
        document = {
            "kind": KIND,
            "version": VERSION,
            "distance": self.distance,
            "n_neighbors": self.n_neighbors,
            "classes": self.classes.tolist(),
            "rule": self.rule.to_dict(),
        }
        with translate_errors("--save", path):
            write_text_whole(path, json.dumps(document, allow_nan=False) + "\n")

    @classmethod
    def load(cls, path: Path) -> "Self":
        """Read the file, and check its contents."""
        document = _rule_document(path)
        version = document.get("version")
        if isinstance(version, int) and version > VERSION:
            raise ModelFileError(
                f"{path} has version {version}, and this nearsure reads up to {VERSION}. Upgrade "
                "nearsure: pip install --upgrade nearsure"
            )
        if misfit(document, _STORED) is not None:
            raise _altered(path)
        names = document["classes"]
        try:
            rule = FittedRule.from_dict(document["rule"])
            is_text = isinstance(names[0], str)
            classes = text_array(names, path.stat().st_size) if is_text else np.array(names)
        except ModelFileError as error:
            raise _altered(path) from error
        if rule.class_sizes is None or rule.class_sizes.shape != classes.shape:
            raise _altered(path)
        return cls(rule, classes, document["distance"], document["n_neighbors"])


def load_rule(path: Path, distance: DistanceName | None) -> SavedRule:
    """Read a rule, which must have been fitted on this kind of distance, if one is given."""
    saved = SavedRule.load(path)
    if distance not in {None, saved.distance}:
        raise ConfigError(
            f"--distance must be {saved.distance}, as {path} was fitted. Got {distance} instead."
        )
    return saved


def _rule_document(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise FileNotFoundError(f"There is no rule at {path}.")
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ModelFileError(f"{path} is not JSON: {error}. --save writes a rule.") from error
    if not isinstance(document, dict) or document.get("kind") != KIND:
        raise ModelFileError(f"{path} is JSON but not a rule. calibrate --save writes one.")
    return document


def _altered(path: Path) -> ModelFileError:
    return ModelFileError(f"{path} has been altered or cut off. Fit again with --save.")


def fit_rule(
    hits: HitSet,
    source: str,
    distance: DistanceName,
    class_counts: Path | None,
    **parameters: Any,  # noqa: ANN401
) -> tuple[SavedRule, Neighbors, IntArray]:
    """Fit a rule; gives also the neighbours that it was fitted on, and the class codes of truth.

    Parameters
    ----------
    hits, source : HitSet, str
        Of points of the gallery, with their labels; and the file that held them.
    distance : str
        What the engine calls a distance.
    class_counts : path or None
        How many points the gallery has of each class.
    **parameters : str
        Rule and calibration.
    """
    truth = hits.truth
    if truth is None:
        raise InvalidInputError(
            f"{source} must hold the true label of each point (truth): from these it is learned "
            "how sure to be."
        )
    present = hits.neighbor_labels[_valid(hits)]
    classes = np.unique(np.concatenate([match_labels(present, truth), truth]))
    counts: IntArray | None = None
    if class_counts is not None:
        classes, counts = _read_class_counts(class_counts, classes)
    elif _is_sample(hits):
        tell(
            "warning: neighbours are points that are not among GALLERY_HITS themselves. If these "
            "are a sample of the gallery, --class-counts must say how large its classes are."
        )
    codes = codes_of(truth, classes)
    found = _leave_out_own(hits, _as_neighbors(hits, classes, distance), codes)
    with spinner("fitting"):
        rule = fit_confidence(found, codes, class_counts=counts, **parameters)
    temperature = "" if rule.temperature is None else f", T = {rule.temperature:.6g}"
    notice(
        f"Fitted {rule.name} on {len(codes):,} points of {len(classes):,} classes with {found.k} "
        f"neighbours each{temperature}."
    )
    return SavedRule(rule, classes, distance, found.k), found, codes


def _leave_out_own(hits: HitSet, found: Neighbors, codes: IntArray) -> Neighbors:
    """Leave points out of their own neighbours, by id; print what looks wrong."""
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
        notice(
            f"{int(itself.sum()):,} of {len(itself):,} points were among their own neighbours, and "
            "were left out."
        )
    elif doubtful:
        tell(
            "warning: most points have a near-duplicate of their class in the gallery. New queries "
            "that have none will get too high a confidence: remove duplicates."
        )
    return left


def _is_sample(hits: HitSet) -> bool:
    """Whether the ids show that the gallery has more points than these."""
    if hits.ids is None or hits.own_ids is None:
        return False
    among = np.isin(hits.ids[_valid(hits)], hits.own_ids)
    # If none is, the ids are of another numbering, which `_leave_out_own` detects.
    return bool(among.any() and not among.all())


def _as_neighbors(hits: HitSet, classes: AnyArray, distance: DistanceName) -> Neighbors:
    """Hits as squared distances and class codes."""
    valid = _valid(hits)
    labels = match_labels(hits.neighbor_labels[valid], classes)
    own = codes_of(labels, classes)
    if (own == len(classes)).any():
        strange = np.unique(labels[own == len(classes)])[:5].tolist()
        raise InvalidInputError(
            f"Labels of neighbours must be among the {len(classes)} classes of the fit. Got "
            f"{strange}, too: fit again on the current gallery."
        )
    codes = np.zeros(valid.shape, np.int64)
    codes[valid] = own
    return CONVENTIONS[distance](hits.distances, codes, ids=hits.ids, counts=hits.counts)


def query_neighbors(hits: HitSet, saved: SavedRule) -> Neighbors:
    """Neighbours of queries, as many as at the fit."""
    neighbors = _as_neighbors(hits, saved.classes, saved.distance)
    if neighbors.k < saved.n_neighbors:
        tell(
            f"warning: queries have {neighbors.k} neighbours, while the rule was fitted with "
            f"{saved.n_neighbors}. Confidence may be off: search for as many."
        )
    return neighbors.first(min(neighbors.k, saved.n_neighbors))


def answer_columns(
    hits: HitSet, neighbors: Neighbors, saved: SavedRule, threshold: float | None
) -> dict[str, Any]:
    """Answers as columns by name; prints how good they are, if the truth is known."""
    posterior = saved.posterior(neighbors)
    codes, confidence = posterior.labels, posterior.confidence
    named = hits.own_ids is not None
    columns: dict[str, Any] = {
        "id" if named else "row": hits.own_ids if named else np.arange(len(codes)),
        "label": [
            None if code < 0 else label
            for code, label in zip(codes, saved.classes[codes].tolist(), strict=True)
        ],
        "confidence": confidence,
    }
    if threshold is not None:
        columns["accepted"] = (confidence >= threshold) & (neighbors.counts > 0)
    if hits.truth is not None:
        columns["truth"] = hits.truth
        correct = codes == codes_of(match_labels(hits.truth, saved.classes), saved.classes)
        tell(
            f"{accuracy(correct):.2%} of {len(correct):,} answers are right, mean confidence "
            f"{confidence.mean():.2%}, calibration error (ECE) "
            f"{expected_calibration_error(confidence, correct):.2%}."
        )
    return columns


def _read_class_counts(path: Path, classes: AnyArray) -> tuple[AnyArray, IntArray]:
    """Labels, sorted, and their counts.

    Parameters
    ----------
    path : path
        CSV with the columns label and count, or JSON: ``{"owl": 120, "wren": 80}``.
    classes : array of shape (n_found,)
        Labels that were found, integers or texts, each of which must be counted.

    Returns
    -------
    labels, counts : arrays of shape (n_classes,)
    """
    counts = _read_json(path) if path.suffix.lower() == ".json" else _read_csv(path)
    names = match_labels(np.array(list(counts), str), classes)
    labels, first = np.unique(names, return_index=True)
    missing = classes[codes_of(classes, labels) == len(labels)]
    if missing.size:
        raise InvalidInputError(
            f"{path} must count every class of the gallery. Got none of {str(missing[0])!r}."
        )
    return labels, np.array(list(counts.values()), np.int64)[first]


def _read_json(path: Path) -> dict[str, int]:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InvalidInputError(f"{path} is not JSON: {error}.") from error
    if not isinstance(document, Mapping) or not document:
        raise InvalidInputError(f'{path} must be a JSON object such as {{"owl": 120, "wren": 80}}.')
    return {label: _count(path, label, count) for label, count in document.items()}


def _read_csv(path: Path) -> dict[str, int]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            header, *rows = list(csv.reader(file)) or [[]]
    except (csv.Error, UnicodeDecodeError) as error:
        raise InvalidInputError(f"{path} is not CSV: {error}.") from error
    rows = [row for row in rows if row]
    if header != HEADER or not rows or any(len(row) != len(HEADER) for row in rows):
        raise InvalidInputError(f"{path} must have the columns label,count and no others.")
    counts: dict[str, int] = {}
    for label, count in rows:
        if label in counts:
            raise InvalidInputError(f"{path} counts {label!r} more than once.")
        counts[label] = _count(path, label, int(count) if count.isdecimal() else count)
    return counts


def _count(path: Path, label: str, count: object) -> int:
    if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count < 2**63:
        raise InvalidInputError(
            f"{path}: the count of {label!r} must be a whole number. Got {count!r} instead."
        )
    return count


def _valid(hits: HitSet) -> BoolArray:
    return np.arange(hits.distances.shape[1]) < hits.counts[:, None]
