"""`nearsure audit`."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nearsure.cli.console import show_json, show_table, spinner
from nearsure.cli.files import SUFFIXES, Columns, Destination, check_files, labels_of, open_file
from nearsure.cli.models import engine_options, open_model
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
    number_or,
    refuse,
)
from nearsure.errors import ConfigError

if TYPE_CHECKING:
    from nearsure.classifier import NEDClassifier
    from nearsure.report.document import Audit, Label


EXAMPLES = (
    "nearsure audit gallery.npz -o suspects.csv",
    "nearsure audit --model birds.sqlite --json",
)


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
    columns = Columns(labels_path, vectors_key, labels_key, ids_key, format=input_format)
    asked = number_or("-k", n_neighbors, ("auto", "all"))
    options = engine_options(engine_option, table=table, collection=collection)
    if (points is None) == (model is None):
        raise ConfigError("Give a file of embeddings or --model, and only one of them.")
    # Found out before the work is done.
    check_files(
        {"GALLERY": points, "--labels": labels_path, "--model": model}, {"--output": output}
    )
    if output is not None and output.suffix.lower() not in SUFFIXES:
        raise ConfigError(f"--output must end in {', '.join(SUFFIXES)}. Got {output.name} instead.")
    if guard_formulas and output is None:
        raise ConfigError("--guard-formulas is of csv: give -o FILE.csv, or leave it out.")
    destination = None
    if output is not None:
        destination = Destination.from_options(
            output, None, as_json=False, rows=rows, guard_formulas=guard_formulas
        )
    if model is None:
        if gallery is not None or options:
            raise ConfigError("--gallery and options of an engine must be given with --model.")
        found = _audit_file(str(points), columns, n_neighbors=asked, metric=metric or "euclidean")
    else:
        of_files = {
            "-k": asked != "auto",
            "--metric": metric,
            "Names of columns": columns != Columns(),
        }
        refuse(of_files, " with --model, which was fitted already", when=True)
        with open_model(model, gallery, options) as classifier:
            found = _audit(classifier)
    if as_json:
        show_json(asdict(found))
    else:
        _show(found, rows)
    if destination is not None:
        names = ("id", "label", "suggested", "p_own", "p_suggested", "trust")
        suspects = {name: [getattr(one, name) for one in found.suspects] for name in names}
        destination.write("", [suspects], say=not as_json)


def _audit_file(source: str, columns: Columns, **parameters: Any) -> "Audit":  # noqa: ANN401
    from nearsure.classifier import NEDClassifier

    with open_file(source, columns, labels="required") as stream:
        points = stream.read_all()
    classifier = NEDClassifier(**parameters)
    with spinner("fitting"):
        classifier.fit(points.vectors, labels_of(points))
    found = _audit(classifier)
    return found if points.ids is None else _with_ids(found, points.ids.tolist())


def _audit(classifier: "NEDClassifier") -> "Audit":
    from nearsure.report.sections import audit_of

    with spinner("auditing"):
        return audit_of(classifier, n_suspects=classifier.n_support_)


def _with_ids(found: "Audit", names: Sequence[object]) -> "Audit":
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
