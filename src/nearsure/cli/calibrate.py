"""`nearsure calibrate` and the rule that it saves."""

import csv
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

import typer

from nearsure.cli.console import spinner, tell
from nearsure.cli.files import Destination, check_files, check_suffix, match_labels
from nearsure.cli.options import (
    FITTING,
    Calibration,
    GuardFormulas,
    Json,
    OutputFormat,
    Precision,
    RecordsFile,
    Rows,
    refuse,
)
from nearsure.errors import ConfigError, InvalidInputError

if TYPE_CHECKING:
    from nearsure.arrays import AnyArray, IntArray
    from nearsure.cli.rule_file import SavedRule
    from nearsure.embedding_files import HitSet
    from nearsure.neighbors import Neighbors


EXAMPLES = (
    (
        "nearsure calibrate gallery_hits.jsonl --queries hits.jsonl --distance l2 --save rule.json "
        "-o confidences.csv"
    ),
    "nearsure calibrate --queries more_hits.jsonl --rule rule.json",
)
DistanceName = Literal[
    "squared-l2",
    "l2",
    "cosine-distance",
    "cosine-similarity",
    "inner-product",
    "negative-inner-product",
]
HEADER = ["label", "count"]
# Of the points that find themselves: with fewer, ids are hardly those of the gallery.
LEAST_SHARE = 0.5
HITS = "npz, jsonl, parquet or csv file of distances and labels, - for standard input"


def calibrate(
    gallery_hits: Annotated[
        str | None,
        typer.Argument(
            help="What your engine found for points of the gallery, with their true labels: "
            f"{HITS}. With ids of points and neighbours, a point is left out of its own; without, "
            "it must not be there. Not needed with --rule rule.json."
        ),
    ] = None,
    *,
    queries: Annotated[
        str | None, typer.Option(help=f"What it found for queries, to be answered: {HITS}.")
    ] = None,
    distance: Annotated[
        DistanceName | None, typer.Option(help="What your engine calls a distance.")
    ] = None,
    rule: Annotated[
        str,
        typer.Option(
            help="adaptive, sharpened, ned, gou, dudani, knn or 1nn; or rule.json, which --save "
            "wrote.",
            rich_help_panel=FITTING,
        ),
    ] = "adaptive",
    calibration: Calibration = "auto",
    save: Annotated[
        Path | None, typer.Option(help="JSON file that keeps what was fitted, for --rule.")
    ] = None,
    class_counts: Annotated[
        Path | None,
        typer.Option(
            help="How many points the gallery has of each class, where GALLERY_HITS is of some of "
            "its points: a csv file label,count or a json file of an object."
        ),
    ] = None,
    input_format: Annotated[
        Literal["npz", "jsonl", "parquet", "csv"] | None,
        typer.Option("--input-format", help="What the files are, where their names do not say."),
    ] = None,
    precision: Precision = None,
    output: RecordsFile = None,
    output_format: OutputFormat = None,
    guard_formulas: GuardFormulas = False,
    as_json: Json = False,
    rows: Rows = 20,
) -> None:
    """Confidence for neighbours from an engine of your own: distances and labels are enough.

    Search every gallery point among the gallery (or a random sample of the points, with
    --class-counts), for one neighbour more than you want to use. What is learned from these holds
    for queries of the same engine.
    """
    from nearsure.embedding_files import load_hits

    destination = Destination.from_options(
        output, output_format, as_json=as_json, rows=rows, guard_formulas=guard_formulas
    )
    is_saved = rule.endswith(".json")
    refuse(
        {"GALLERY_HITS": gallery_hits},
        f": {rule} was fitted already. Queries are given with --queries",
        when=is_saved,
    )
    if is_saved:
        if queries is None or save is not None:
            raise ConfigError("--rule rule.json answers --queries, and fits nothing to --save.")
        if (precision, class_counts, calibration) != (None, None, "auto"):
            raise ConfigError(
                "--precision, --calibration and --class-counts need the points of the gallery, "
                "which a saved rule has not: give GALLERY_HITS."
            )
    elif gallery_hits is None:
        raise ConfigError("Give GALLERY_HITS to fit on, or --rule rule.json.")
    elif distance is None:
        raise ConfigError(
            "--distance must say what your engine calls a distance: "
            f"{', '.join(get_args(DistanceName))}."
        )
    if gallery_hits == "-" and queries == "-":
        raise ConfigError("Only one of GALLERY_HITS and --queries can be standard input.")
    check_suffix("--save", save, (".json",))
    check_files(
        {"GALLERY_HITS": gallery_hits, "--queries": queries, "--rule": rule if is_saved else None},
        {"--save": save, "--output": output},
    )
    if gallery_hits is None or distance is None:
        saved = _load_rule(Path(rule), distance)
    else:
        hits = load_hits(gallery_hits, format=input_format)
        truth = _true_labels(hits, gallery_hits)
        saved, neighbors, codes = _fit(
            hits, truth, distance, class_counts, rule=rule, calibration=calibration
        )
    if save is not None:
        saved.save(save)
    threshold = None if precision is None else _threshold(saved, neighbors, codes, precision)
    if queries is not None:
        hits = load_hits(queries, format=input_format)
        neighbors = _cut_to_fit(_neighbors(hits, saved.classes, saved.distance), saved)
    _answer(hits, neighbors, saved, threshold, destination)


def _true_labels(hits: "HitSet", source: str) -> "AnyArray":
    if hits.truth is None:
        raise InvalidInputError(
            f"{source} must hold the true label of each point (truth): from these it is learned "
            "how sure to be."
        )
    return hits.truth


def _load_rule(path: Path, distance: DistanceName | None) -> "SavedRule":
    from nearsure.cli.rule_file import SavedRule

    saved = SavedRule.load(path)
    if distance not in {None, saved.distance}:
        raise ConfigError(
            f"--distance must be {saved.distance}, as {path} was fitted. Got {distance} instead."
        )
    return saved


def _read_class_counts(path: Path, kind: "AnyArray") -> "tuple[AnyArray, IntArray]":
    """Labels, sorted and of the kind of some others, and their counts.

    Parameters
    ----------
    path : path
        CSV with the columns label and count, or JSON: ``{"owl": 120, "wren": 80}``.
    kind : array
        Labels of the gallery, integers or texts.

    Returns
    -------
    labels, counts : arrays of shape (n_classes,)
    """
    import numpy as np

    counts = _read_json(path) if path.suffix.lower() == ".json" else _read_csv(path)
    names = match_labels(np.array(list(counts), str), kind)
    labels, first = np.unique(names, return_index=True)
    return labels, np.array(list(counts.values()), np.int64)[first]


def _check_all_counted(path: Path, labels: "AnyArray", counted: "AnyArray") -> None:
    """An error if a label was not counted."""
    import numpy as np

    from nearsure.labels import codes_of

    missing = np.unique(labels[codes_of(labels, counted) == len(counted)])
    if missing.size:
        raise InvalidInputError(
            f"{path} must count every class of the gallery. Got none of {str(missing[0])!r}."
        )


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


def _conventions() -> "dict[DistanceName, Callable[..., Neighbors]]":
    from nearsure.neighbors import Neighbors

    return {
        "squared-l2": Neighbors.from_squared_l2,
        "l2": Neighbors.from_l2,
        "cosine-distance": Neighbors.from_cosine_distance,
        "cosine-similarity": Neighbors.from_cosine_similarity,
        "inner-product": Neighbors.from_inner_product,
        "negative-inner-product": Neighbors.from_negative_inner_product,
    }


def _fit(
    hits: "HitSet",
    truth: "AnyArray",
    distance: DistanceName,
    class_counts: Path | None,
    **parameters: str,
) -> "tuple[SavedRule, Neighbors, IntArray]":
    import numpy as np

    from nearsure.classifier import fit_confidence
    from nearsure.cli.rule_file import SavedRule
    from nearsure.labels import codes_of

    present = hits.neighbor_labels[_valid(hits)]
    classes = np.unique(np.concatenate([match_labels(present, truth), truth]))
    counts: IntArray | None = None
    if class_counts is not None:
        counted, counts = _read_class_counts(class_counts, truth)
        _check_all_counted(class_counts, classes, counted)
        classes = counted
    elif _is_sample(hits):
        tell(
            "warning: neighbours are points that are not among GALLERY_HITS themselves. If these "
            "are a sample of the gallery, --class-counts must say how large its classes are."
        )
    codes = codes_of(truth, classes)
    found = _leave_out_own(hits, _neighbors(hits, classes, distance), codes)
    with spinner("fitting"):
        rule = fit_confidence(found, codes, class_counts=counts, **parameters)
    temperature = "" if rule.temperature is None else f", T = {rule.temperature:.6g}"
    tell(
        f"Fitted {rule.name} on {len(codes):,} points of {len(classes):,} classes with {found.k} "
        f"neighbours each{temperature}."
    )
    return SavedRule(rule, classes, distance, found.k), found, codes


def _leave_out_own(hits: "HitSet", found: "Neighbors", codes: "IntArray") -> "Neighbors":
    """Neighbours without the points that were searched, if ids tell; doubts are said."""
    from nearsure.loo import leave_one_out
    from nearsure.report.answers import are_most, nearly_found

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


def _is_sample(hits: "HitSet") -> bool:
    """Whether ids tell that the gallery has more points than these."""
    import numpy as np

    if hits.ids is None or hits.own_ids is None:
        return False
    among = np.isin(hits.ids[_valid(hits)], hits.own_ids)
    # Where hardly any is, ids are of another numbering, which is found out elsewhere.
    return bool(among.any() and not among.all())


def _neighbors(hits: "HitSet", classes: "AnyArray", distance: DistanceName) -> "Neighbors":
    """Hits as squared distances and class codes."""
    import numpy as np

    from nearsure.labels import codes_of

    valid = _valid(hits)
    labels = match_labels(hits.neighbor_labels[valid], classes)
    own = codes_of(labels, classes)
    if (own == len(classes)).any():
        strange = np.unique(labels[own == len(classes)])[:5].tolist()
        raise InvalidInputError(
            f"Labels of neighbours must be among the {len(classes)} classes of the fit. Got "
            f"{strange}, too: fit again on the gallery of now."
        )
    codes = np.zeros(valid.shape, np.int64)
    codes[valid] = own
    return _conventions()[distance](hits.distances, codes, ids=hits.ids, counts=hits.counts)


def _cut_to_fit(neighbors: "Neighbors", saved: "SavedRule") -> "Neighbors":
    """As many neighbours as at the fit."""
    if neighbors.k < saved.n_neighbors:
        tell(
            f"warning: queries have {neighbors.k} neighbours, while the rule was fitted with "
            f"{saved.n_neighbors}. Confidence may be off: search for as many."
        )
    return neighbors.first(min(neighbors.k, saved.n_neighbors))


def _threshold(
    saved: "SavedRule", neighbors: "Neighbors", codes: "IntArray", precision: float
) -> float:
    from nearsure.decisions import choose_threshold

    posterior = saved.rule.posterior(neighbors, n_classes=len(saved.classes))
    chosen = choose_threshold(posterior.confidence, posterior.labels == codes, precision=precision)
    tell(str(chosen))
    return chosen.threshold


def _answer(
    hits: "HitSet",
    neighbors: "Neighbors",
    saved: "SavedRule",
    threshold: float | None,
    destination: Destination,
) -> None:
    import numpy as np

    from nearsure.labels import codes_of
    from nearsure.metrics import accuracy, expected_calibration_error

    posterior = saved.rule.posterior(neighbors, n_classes=len(saved.classes))
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
        truth = codes_of(match_labels(hits.truth, saved.classes), saved.classes)
        correct = codes == truth
        tell(
            f"{accuracy(correct):.2%} of {len(correct):,} answers are right, mean confidence "
            f"{confidence.mean():.2%}, calibration error (ECE) "
            f"{expected_calibration_error(confidence, correct):.2%}."
        )
    shown = min(destination.rows, len(labels))
    destination.write(f"The first {shown} of {len(labels):,}; -o FILE writes all", [columns])


def _valid(hits: "HitSet") -> "AnyArray":
    import numpy as np

    return np.arange(hits.distances.shape[1]) < hits.counts[:, None]
