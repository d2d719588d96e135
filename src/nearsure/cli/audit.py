"""`nearsure audit`."""

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument

from nearsure.cli import options, outputs
from nearsure.cli.inputs import engine_options, is_sqlite, labels_of, names_of, open_model
from nearsure.cli.outputs import (
    RECORD_SUFFIXES,
    check_files,
    choose_format,
    show_json,
    show_table,
    spinner,
    write_records,
)
from nearsure.errors import ConfigError

if TYPE_CHECKING:
    from nearsure.classifier import NEDClassifier
    from nearsure.report.document import Audit, Label


def audit(
    points: Annotated[
        str | None,
        Argument(
            metavar="GALLERY",
            help="npz, npy, parquet, csv, safetensors or jsonl file of labelled embeddings, - for "
            "standard input; or give --model.",
        ),
    ] = None,
    *,
    model: options.OptionalModel = None,
    labels_path: options.Labels = None,
    vectors_key: options.VectorsKey = None,
    labels_key: options.LabelsKey = None,
    ids_key: options.IdsKey = None,
    input_format: options.InputFormat = None,
    n_neighbors: options.Neighbors = "auto",
    metric: options.Metric = None,
    gallery: options.Gallery = None,
    table: options.Table = None,
    collection: options.Collection = None,
    engine_option: options.EngineOption = None,
    output: options.RecordsFile = None,
    guard_formulas: options.GuardFormulas = False,
    as_json: options.Json = False,
    rows: options.Rows = 10,
    quiet: options.Quiet = False,
) -> None:
    """Find problems in a gallery: suspect labels, near-duplicates, confusable and small classes.

    Every point is searched among the others. The number of wrong labels is estimated; -o writes as
    many suspects as may be wrong, the most suspect first.

    Example: nearsure audit gallery.npz -o suspects.csv

    Example: nearsure audit --model birds.sqlite --json
    """
    outputs.set_quiet(quiet)
    columns: dict[str, Any] = {
        "labels_path": labels_path,
        "vectors_key": vectors_key,
        "labels_key": labels_key,
        "ids_key": ids_key,
        "format": input_format,
    }
    asked = options.number_or("-k", n_neighbors, ("auto", "all"))
    settings = engine_options(engine_option, table=table, collection=collection)
    if (points is None) == (model is None):
        raise ConfigError("Give a file of embeddings or --model, and only one of them.")
    if points is not None and is_sqlite(points):
        raise ConfigError(f"{points} is a fitted gallery: nearsure audit --model {points}")
    # Before the work is done.
    check_files(
        {"GALLERY": points, "--labels": labels_path, "--model": model}, {"--output": output}
    )
    chosen = None
    if output is not None:
        if output.suffix.lower() not in RECORD_SUFFIXES:
            allowed = ", ".join(RECORD_SUFFIXES)
            raise ConfigError(f"--output must end in {allowed}. Got {output.name} instead.")
        chosen = choose_format(output, None, guard_formulas=guard_formulas)
    elif guard_formulas:
        raise ConfigError("--guard-formulas applies only to csv: give -o FILE.csv or omit it.")
    if model is None:
        if gallery is not None or settings:
            raise ConfigError("--gallery and options of an engine must be given with --model.")
        parameters = {"n_neighbors": asked, "metric": metric or "euclidean"}
        found = _audit_file(str(points), columns, parameters)
    else:
        of_files = {
            "-k": asked != "auto",
            "--metric": metric,
            "Names of columns": set(columns.values()) != {None},
        }
        options.refuse(of_files, " with --model, which was fitted already")
        with open_model(model, gallery, settings) as classifier:
            found = _audit(classifier)
    if as_json:
        show_json(asdict(found))
    else:
        _show(found, rows)
    if chosen is not None:
        names = ["id", "label", "suggested", "p_own", "p_suggested", "trust"]
        names += ["text"] * any(one.text is not None for one in found.suspects)
        suspects = {name: [getattr(one, name) for one in found.suspects] for name in names}
        write_records([suspects], output, chosen, guard_formulas=guard_formulas, quiet=as_json)


def _audit_file(source: str, columns: dict[str, Any], parameters: dict[str, Any]) -> "Audit":
    from nearsure.classifier import NEDClassifier
    from nearsure.embedding_files import open_embeddings
    from nearsure.report.document import plain_label

    with open_embeddings(source, labels="required", **columns) as stream:
        points = stream.read_all()
    classifier = NEDClassifier(**parameters)
    with spinner("fitting"):
        classifier.fit(points.vectors, labels_of(points))
    found = _audit(classifier)
    names, texts = names_of(points).tolist(), points.texts

    def name(row: "Label") -> "Label":
        return plain_label(names[int(row)])

    return replace(
        found,
        suspects=tuple(
            replace(one, id=name(one.id), text=None if texts is None else texts[int(one.id)])
            for one in found.suspects
        ),
        duplicates=tuple(
            replace(pair, first_id=name(pair.first_id), second_id=name(pair.second_id))
            for pair in found.duplicates
        ),
    )


def _audit(classifier: "NEDClassifier") -> "Audit":
    from nearsure.report.sections import audit_of

    with spinner("auditing"):
        return audit_of(classifier, n_suspects=classifier.n_support_)


def _show(found: "Audit", rows: int) -> None:
    has_texts = any(one.text is not None for one in found.suspects[:rows])
    between = f"between {found.n_wrong_low:,} and {found.n_wrong_high:,}"
    show_table(
        f"Possibly mislabelled: about {found.n_wrong:,} of {found.n_points:,} points, {between}; "
        f"{found.n_suspects:,} to look at",
        ("id", "label", "p", "suggested", "p", "trust", "text")[: 7 if has_texts else 6],
        [
            [
                s.id,
                s.label,
                f"{s.p_own:.1%}",
                s.suggested,
                f"{s.p_suggested:.1%}",
                f"{s.trust:.2f}",
                *([s.text] if has_texts else ()),
            ]
            for s in found.suspects[:rows]
        ],
    )
    show_table(
        f"Nearly identical points labelled differently: {found.n_duplicates:,} pairs",
        ("id", "label", "id", "label", "squared distance"),
        [
            [d.first_id, d.first_label, d.second_id, d.second_label, f"{d.sq_distance:.3g}"]
            for d in found.duplicates[:rows]
        ],
    )
    show_table(
        "Most confusable pairs of classes",
        ("class", "class", "mean p"),
        [[pair.first, pair.second, f"{pair.confusion:.1%}"] for pair in found.confusable[:rows]],
    )
    show_table(
        f"Classes with few members, or often without neighbours of their own: {found.n_small:,}",
        ("class", "members", "missed", "accuracy"),
        [
            [
                one.label,
                f"{one.n_members:,}",
                f"{one.n_missed:,}",
                None if one.accuracy is None else f"{one.accuracy:.1%}",
            ]
            for one in found.small[:rows]
        ],
    )
