"""`nearsure audit`: what is done."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from nearsure.classifier import NEDClassifier
from nearsure.cli.checked_files import check_files
from nearsure.cli.input_files import Columns, labels_of, opened_file
from nearsure.cli.opened_model import opened_model
from nearsure.cli.records import SUFFIXES, Destination
from nearsure.cli.saying import busy
from nearsure.cli.showing import show_json, show_table
from nearsure.errors import ConfigError
from nearsure.report.audit_part import audit_of
from nearsure.report.document import Audit, Label
from nearsure.report.gallery_facts import gallery_size
from nearsure.report.plain import plain_label


@dataclass(frozen=True)
class AuditRequest:
    """What is to be audited: a file, or the gallery of a model.

    Parameters
    ----------
    points : str or None
        The file.
    n_neighbors, metric : int or str, str or None
        How it is searched.
    model, gallery, options : path or None, str or None, mapping
        The model, and where its points are.
    """

    points: str | None
    columns: Columns
    n_neighbors: int | str
    metric: Literal["euclidean", "cosine"] | None
    model: Path | None
    gallery: str | None
    options: Mapping[str, Any]


def audit_gallery(
    request: AuditRequest,
    *,
    output: Path | None,
    guard_formulas: bool,
    as_json: bool,
    rows: int,
) -> None:
    """Audit, and say what was found."""
    if (request.points is None) == (request.model is None):
        raise ConfigError("Give a file of embeddings or --model, and only one of them.")
    # Found out before the work is done.
    check_files(
        {"GALLERY": request.points, "--labels": request.columns.labels, "--model": request.model},
        {"--output": output},
    )
    if output is not None and output.suffix.lower() not in SUFFIXES:
        raise ConfigError(f"--output must end in {', '.join(SUFFIXES)}. Got {output.name} instead.")
    if guard_formulas and output is None:
        raise ConfigError("--guard-formulas is of csv: give -o FILE.csv, or leave it out.")
    written = None
    if output is not None:
        written = Destination.chosen(
            output, None, as_json=False, rows=rows, guard_formulas=guard_formulas
        )
    if request.model is None:
        found = _audit_of_file(request, str(request.points))
    else:
        found = _audit_of_model(request, request.model)
    if as_json:
        show_json(asdict(found))
    else:
        _show(found, rows)
    if written is not None:
        columns = ("id", "label", "suggested", "p_own", "p_suggested", "trust")
        suspects = {name: [getattr(one, name) for one in found.suspects] for name in columns}
        written.put("", [suspects], say=not as_json)


def _audit_of_model(request: AuditRequest, model: Path) -> Audit:
    of_files = {"-k": request.n_neighbors != "auto", "--metric": request.metric is not None}
    of_files["Names of columns"] = request.columns != Columns()
    for option, given in of_files.items():
        if given:
            raise ConfigError(f"{option} must be left out with --model, which was fitted already.")
    with opened_model(model, request.gallery, request.options) as classifier:
        return _audited(classifier)


def _audit_of_file(request: AuditRequest, source: str) -> Audit:
    if request.gallery is not None or request.options:
        raise ConfigError("--gallery and options of an engine must be given with --model.")
    with opened_file(source, request.columns, labels="required") as stream:
        points = stream.read_all()
    parameters: dict[str, Any] = {"n_neighbors": request.n_neighbors}
    classifier = NEDClassifier(metric=request.metric or "euclidean", **parameters)
    with busy("fitting"):
        classifier.fit(points.vectors, labels_of(points))
    found = _audited(classifier)
    return found if points.ids is None else _renamed(found, points.ids.tolist())


def _audited(classifier: NEDClassifier) -> Audit:
    with busy("auditing"):
        return audit_of(classifier, n_suspects=gallery_size(classifier))


def _renamed(found: Audit, names: Sequence[object]) -> Audit:
    """The ids of the file in place of row numbers."""

    def name(row: Label) -> Label:
        return plain_label(names[int(row)])

    return replace(
        found,
        suspects=tuple(replace(one, id=name(one.id)) for one in found.suspects),
        duplicates=tuple(
            replace(pair, first_id=name(pair.first_id), second_id=name(pair.second_id))
            for pair in found.duplicates
        ),
    )


def _show(found: Audit, rows: int) -> None:
    show_table(
        f"Labels believed less than another: {found.n_suspects:,} of {found.n_points:,} points",
        ("id", "label", "p", "suggested", "p", "trust"),
        [
            [
                str(one.id),
                str(one.label),
                f"{one.p_own:.1%}",
                "-" if one.suggested is None else str(one.suggested),
                f"{one.p_suggested:.1%}",
                f"{one.trust:.2f}",
            ]
            for one in found.suspects[:rows]
        ],
    )
    show_table(
        f"Nearly identical points labelled differently: {found.n_duplicates:,} pairs",
        ("id", "label", "id", "label", "squared distance"),
        [
            [
                str(pair.first_id),
                str(pair.first_label),
                str(pair.second_id),
                str(pair.second_label),
                f"{pair.sq_distance:.3g}",
            ]
            for pair in found.duplicates[:rows]
        ],
    )
    show_table(
        "Classes that claim most of each other",
        ("class", "class", "mean p"),
        [
            [str(pair.first), str(pair.second), f"{pair.confusion:.1%}"]
            for pair in found.confusable[:rows]
        ],
    )
    show_table(
        f"Classes too small, or that miss themselves: {found.n_small:,}",
        ("class", "members", "missed", "accuracy"),
        [
            [
                str(one.label),
                f"{one.n_members:,}",
                f"{one.n_missed:,}",
                "-" if one.accuracy is None else f"{one.accuracy:.1%}",
            ]
            for one in found.small[:rows]
        ],
    )
