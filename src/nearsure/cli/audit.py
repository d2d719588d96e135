"""`nearsure audit`."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from nearsure.cli.console import busy, show_json, show_table
from nearsure.cli.files import SUFFIXES, Columns, Destination, check_files, labels_of, opened_file
from nearsure.cli.models import opened_model
from nearsure.cli.options import (
    Collection,
    EngineOption,
    Gallery,
    GuardFormulas,
    IdsKey,
    InputFormat,
    Json,
    Labels,
    LabelsKey,
    Metric,
    Neighbors,
    OptionalModel,
    RecordsFile,
    Rows,
    Table,
    VectorsKey,
    register,
)
from nearsure.errors import ConfigError

if TYPE_CHECKING:
    from nearsure.classifier import NEDClassifier
    from nearsure.report.document import Audit, Label


EXAMPLES = (
    "nearsure audit gallery.npz -o suspects.csv",
    "nearsure audit --model birds.sqlite --json",
)


def add_to(app: typer.Typer) -> None:
    """Make the command known."""
    register(app, audit, *EXAMPLES)


def audit(
    points: Annotated[
        str | None,
        typer.Argument(
            metavar="[GALLERY]",
            help="npz, npy, parquet, csv, safetensors or jsonl file of labelled embeddings, - for "
            "standard input; or give --model.",
        ),
    ] = None,
    *,
    model: OptionalModel = None,
    labels_path: Labels = None,
    vectors_key: VectorsKey = None,
    labels_key: LabelsKey = None,
    ids_key: IdsKey = None,
    input_format: InputFormat = None,
    n_neighbors: Neighbors = "auto",
    metric: Metric = None,
    gallery: Gallery = None,
    table: Table = None,
    collection: Collection = None,
    engine_option: EngineOption = None,
    output: RecordsFile = None,
    guard_formulas: GuardFormulas = False,
    as_json: Json = False,
    rows: Rows = 10,
) -> None:
    """What is wrong with a gallery: suspect labels, near-duplicates, confusable and small classes.

    Every point is searched among the others. -o writes all suspect labels, the least believed
    first.
    """
    from nearsure.cli.files import Columns
    from nearsure.cli.models import engine_options
    from nearsure.cli.options import number_or

    audit_gallery(
        AuditRequest(
            points,
            Columns(labels_path, vectors_key, labels_key, ids_key, format=input_format),
            n_neighbors=number_or("-k", n_neighbors, ("auto", "all")),
            metric=metric,
            model=model,
            gallery=gallery,
            options=engine_options(engine_option, table=table, collection=collection),
        ),
        output=output,
        guard_formulas=guard_formulas,
        as_json=as_json,
        rows=rows,
    )


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


def _audit_of_model(request: AuditRequest, model: Path) -> "Audit":
    of_files = {"-k": request.n_neighbors != "auto", "--metric": request.metric is not None}
    of_files["Names of columns"] = request.columns != Columns()
    for option, given in of_files.items():
        if given:
            raise ConfigError(f"{option} must be left out with --model, which was fitted already.")
    with opened_model(model, request.gallery, request.options) as classifier:
        return _audited(classifier)


def _audit_of_file(request: AuditRequest, source: str) -> "Audit":
    from nearsure.classifier import NEDClassifier

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


def _audited(classifier: "NEDClassifier") -> "Audit":
    from nearsure.report.answers import gallery_size
    from nearsure.report.sections import audit_of

    with busy("auditing"):
        return audit_of(classifier, n_suspects=gallery_size(classifier))


def _renamed(found: "Audit", names: Sequence[object]) -> "Audit":
    """The ids of the file in place of row numbers."""
    from nearsure.report.document import plain_label

    def name(row: "Label") -> "Label":
        return plain_label(names[int(row)])

    return replace(
        found,
        suspects=tuple(replace(one, id=name(one.id)) for one in found.suspects),
        duplicates=tuple(
            replace(pair, first_id=name(pair.first_id), second_id=name(pair.second_id))
            for pair in found.duplicates
        ),
    )


def _show(found: "Audit", rows: int) -> None:
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
