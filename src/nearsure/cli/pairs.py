"""`nearsure pairs`."""

import csv
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from nearsure.cli import inputs, options, outputs
from nearsure.cli.fit import MODEL_SUFFIX
from nearsure.errors import ConfigError, EmbeddingsFileError

if TYPE_CHECKING:
    from nearsure.arrays import AnyArray, BoolArray, FloatArray
    from nearsure.embedding_files import EmbeddingChunk
    from nearsure.pairs import PairConfidence, PairReport, PairThreshold

TRUTHS = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}


def pairs(
    gallery: Annotated[
        str | None,
        Argument(
            help="npz, npy, parquet, csv, safetensors or jsonl file of labelled embeddings to "
            "learn from. Not needed with --model."
        ),
    ] = None,
    *,
    model: Annotated[
        Path | None, Option("--model", "-m", help="File that --save wrote, instead of GALLERY.")
    ] = None,
    save: Annotated[Path | None, Option(help="pairs.safetensors file to save the fit to.")] = None,
    first: Annotated[
        str | None, Option(help="File of vectors, compared row by row with those of --second.")
    ] = None,
    second: Annotated[str | None, Option(help="File of the same number of vectors.")] = None,
    pairs_file: Annotated[
        Path | None,
        Option(
            "--pairs",
            help="csv or jsonl file of pairs to compare: columns first and second hold ids of "
            "--vectors (or row numbers, where it has no ids), and same, if present, whether they "
            "are the same.",
        ),
    ] = None,
    vectors: Annotated[
        str | None, Option(help="File of the vectors that --pairs names; by default GALLERY.")
    ] = None,
    base_rate: Annotated[
        float | None,
        Option(
            help="Expected share of same pairs among those to compare: above 0 and below 1; by "
            "default 0.5, or as in the model."
        ),
    ] = None,
    false_accept: Annotated[
        float | None,
        Option(
            help="Accept at most this share of the pairs that are different, for example 0.001."
        ),
    ] = None,
    report: Annotated[
        bool,
        Option(
            "--report",
            help="Instead of the probabilities, show how good they are. Needs labels in both "
            "files, or a column same.",
        ),
    ] = False,
    labels_path: options.Labels = None,
    vectors_key: options.VectorsKey = None,
    labels_key: options.LabelsKey = None,
    ids_key: options.IdsKey = None,
    metric: options.Metric = None,
    seed: Annotated[int | None, Option(min=0, help="Random seed; by default 0.")] = None,
    output: options.RecordsFile = None,
    output_format: options.OutputFormat = None,
    guard_formulas: options.GuardFormulas = False,
    as_json: options.Json = False,
    rows: options.Rows = 20,
    quiet: options.Quiet = False,
) -> None:
    """Are these two the same? Learn to tell from a gallery's own pairs, and compare others.

    Without pairs to compare, it shows the fit and the threshold for --false-accept.

    Example: nearsure pairs faces.npz --base-rate 0.01 --false-accept 0.001 --save pairs.safetensors

    Example: nearsure pairs --model pairs.safetensors --first a.npz --second b.npz -o compared.csv
    """
    outputs.set_quiet(quiet)
    compares = first is not None or pairs_file is not None
    _check_sources(gallery, model, (first, second), (pairs_file, vectors))
    options.refuse(
        {"--save": save, "--metric": metric, "--labels": labels_path, "--seed": seed},
        f": {model} has learned already",
        when=model is not None,
    )
    records = {"--output": output, "--format": output_format, "--guard-formulas": guard_formulas}
    options.refuse({**records, "--report": report}, ": nothing is compared", when=not compares)
    options.refuse(records, ": --report shows no pairs", when=report)
    outputs.check_suffix("--save", save, (MODEL_SUFFIX,))
    outputs.check_files(
        {
            "GALLERY": gallery,
            "--model": model,
            "--first": first,
            "--second": second,
            "--pairs": pairs_file,
            "--vectors": vectors,
            "--labels": labels_path,
        },
        {"--save": save, "--output": output},
    )
    chosen = None
    if compares and not report:
        chosen = outputs.choose_format(
            output, output_format, as_json=as_json, guard_formulas=guard_formulas
        )
    keys = {"vectors_key": vectors_key, "labels_key": labels_key, "ids_key": ids_key}
    learned = _learn(
        gallery,
        model,
        base_rate,
        {"metric": metric or "euclidean", "random_state": seed or 0},
        {**keys, "labels_path": labels_path},
    )
    if save is not None:
        learned.save(save)
    threshold = None if false_accept is None else learned.threshold(false_accept=false_accept)
    if not compares:
        _show(learned.report(), threshold, as_json=as_json)
        if save is not None and not as_json:
            outputs.print_written(save)
        return
    if pairs_file is not None:
        compared = _read_listed(pairs_file, _read(vectors or str(gallery), keys))
    else:
        compared = _read_two(_read(str(first), keys), _read(str(second), keys))
    probabilities = learned.probability(compared.first, compared.second)
    if report:
        _show(_report(learned, probabilities, compared), threshold, as_json=as_json)
        return
    columns: dict[str, Any] = {**compared.names, "probability": probabilities}
    if threshold is not None:
        outputs.notice(str(threshold))
        columns["accepted"] = threshold.accepts(probabilities)
    if chosen is not None:
        outputs.write_records([columns], output, chosen, guard_formulas=guard_formulas)
        return
    n_pairs = len(probabilities)
    title = f"The first {min(rows, n_pairs)} of {n_pairs:,}; -o FILE writes all"
    outputs.show_records(title, columns, rows)


@dataclass(frozen=True, eq=False)
class _Compared:
    """Pairs to compare: names to write again, both vectors, and whether they are the same."""

    names: dict[str, list[Any]]
    first: "AnyArray"
    second: "AnyArray"
    same: "BoolArray | list[bool] | None"


def _check_sources(
    gallery: str | None,
    model: Path | None,
    two: tuple[str | None, str | None],
    listed: tuple[Path | None, str | None],
) -> None:
    """Raise an error unless one thing is learned from, and one or nothing is compared."""
    (first, second), (pairs_file, vectors) = two, listed
    if (gallery is None) == (model is None):
        raise ConfigError("Give either GALLERY to learn from or --model, which has learned.")
    if (first is None) != (second is None) or (first is not None and pairs_file is not None):
        raise ConfigError("Give --first and --second together, or --pairs, or none of them.")
    if pairs_file is not None and vectors is None and gallery is None:
        raise ConfigError("--vectors must name the file of the vectors that --pairs compares.")
    options.refuse({"--vectors": vectors}, ": it is of --pairs", when=pairs_file is None)


def _learn(
    gallery: str | None,
    model: Path | None,
    base_rate: float | None,
    parameters: dict[str, Any],
    keys: dict[str, Any],
) -> "PairConfidence":
    from nearsure.pairs import PairConfidence

    if model is not None:
        learned = PairConfidence.load(model)
        if base_rate is not None:
            learned.base_rate = base_rate
        return learned
    points = _read(str(gallery), keys, labels="required")
    rate = 0.5 if base_rate is None else base_rate
    with outputs.spinner(f"learning from pairs of {len(points):,} points"):
        return PairConfidence(base_rate=rate, **parameters).fit(
            points.vectors, inputs.labels_of(points)
        )


def _read(source: str, keys: dict[str, Any], labels: Any = "optional") -> "EmbeddingChunk":  # noqa: ANN401
    from nearsure.embedding_files import open_embeddings

    with open_embeddings(source, labels=labels, **keys) as stream:
        return stream.read_all()


def _read_two(first: "EmbeddingChunk", second: "EmbeddingChunk") -> _Compared:
    names: dict[str, list[Any]] = {"row": list(range(len(first)))}
    if first.ids is not None and second.ids is not None:
        names = {"first": first.ids.tolist(), "second": second.ids.tolist()}
    same: BoolArray | None = None
    if first.labels is not None and second.labels is not None and len(first) == len(second):
        # A csv file has "7" where an npz file has 7.
        same = first.labels.astype(str) == second.labels.astype(str)
    return _Compared(names, first.vectors, second.vectors, same)


def _report(learned: "PairConfidence", probabilities: "FloatArray", of: _Compared) -> "PairReport":
    from nearsure.pairs import report_pairs

    if of.same is None:
        raise ConfigError("--report needs labels in both files, or a column same in --pairs.")
    return report_pairs(probabilities, of.same, base_rate=learned.base_rate)


def _read_listed(path: Path, points: "EmbeddingChunk") -> _Compared:
    """Pairs of ids, with the vectors that they name."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            if path.suffix.lower() == ".csv":
                found: list[Any] = list(csv.DictReader(file))
            else:
                found = [json.loads(line) for line in file if line.strip()]
    except (ValueError, csv.Error) as error:
        raise EmbeddingsFileError(
            f"{path} cannot be read as csv or JSON lines: {error}."
        ) from error
    if not found or not all(
        isinstance(row, dict) and row.get("first") is not None and row.get("second") is not None
        for row in found
    ):
        raise EmbeddingsFileError(
            f"{path} must hold pairs: each row has first and second, and all or none has same."
        )
    first, second = ([str(row[name]) for row in found] for name in ("first", "second"))
    told = [row.get("same") for row in found]
    same = None
    if any(one is not None for one in told):
        words = [str(one).lower() for one in told]
        odd = [word for word in words if word not in TRUTHS]
        if odd:
            raise EmbeddingsFileError(
                f"{path}: same must be 1 or 0, true or false, yes or no. Got {odd[0]!r} instead."
            )
        same = [TRUTHS[word] for word in words]
    one, other = (points.vectors[_rows_of(names, points)] for names in (first, second))
    return _Compared({"first": first, "second": second}, one, other, same)


def _rows_of(names: list[str], points: "EmbeddingChunk") -> "AnyArray":
    """The row of each id, or else of each row number."""
    import numpy as np

    rows: dict[str, int] = {}
    for row, name in enumerate(inputs.names_of(points).tolist()):
        if rows.setdefault(str(name), row) != row:
            raise EmbeddingsFileError(
                f"The vectors that --pairs names must have distinct ids. Got {str(name)!r} twice."
            )
    missing = [name for name in names if name not in rows]
    if missing:
        raise EmbeddingsFileError(
            f"--pairs names {missing[0]!r}, which is not among the {len(points):,} vectors."
        )
    return np.array([rows[name] for name in names], np.int64)


def _show(report: "PairReport", threshold: "PairThreshold | None", *, as_json: bool) -> None:
    if as_json:
        from nearsure.report.document import plain_number

        document: dict[str, Any] = report.to_dict()
        if threshold is not None:
            document["threshold"] = {
                "threshold": plain_number(threshold.threshold) if threshold.reached else None,
                "false_accept": threshold.false_accept,
                "promised": threshold.promised,
                "true_accept": threshold.true_accept,
                "sentence": str(threshold),
            }
        outputs.show_json(document)
        return
    facts = {"pairs": str(report)}
    if threshold is not None:
        facts["threshold"] = str(threshold)
    outputs.show_facts("Pairs", facts)
