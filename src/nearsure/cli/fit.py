"""`nearsure fit`."""

from collections.abc import Mapping
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from nearsure.cli.console import finite_or_none, show_facts, show_json, spinner, tell
from nearsure.cli.files import (
    Columns,
    ImagePaths,
    check_files,
    labels_of,
    open_file,
    print_written,
)
from nearsure.cli.load import fill_engine, fill_sqlite
from nearsure.cli.models import (
    engine_options,
    is_engine,
    is_sqlite,
    open_gallery,
    save_model,
    store_fit,
)
from nearsure.cli.options import (
    ENGINE,
    FITTING,
    Calibration,
    Collection,
    EngineOption,
    IdsKey,
    ImagesRoot,
    InputFormat,
    Json,
    Labels,
    LabelsKey,
    Metric,
    Neighbors,
    PicturesKey,
    Rule,
    Seed,
    Table,
    VectorsKey,
    number_or,
    refuse,
)
from nearsure.errors import ConfigError, InvalidInputError

if TYPE_CHECKING:
    from nearsure.classifier import NEDClassifier
    from nearsure.embedding_files import EmbeddingStream
    from nearsure.engines.contract import Engine

MODEL_SUFFIX = ".safetensors"
PRECISION = 0.99
EXAMPLES = (
    "nearsure fit gallery.npz -o model.safetensors",
    "nearsure fit birds.parquet --ids-key name --metric cosine -o birds.sqlite",
    "nearsure fit postgres --table birds -o birds.safetensors",
)


def fit(
    gallery: Annotated[
        str,
        typer.Argument(
            help="npz, npy, parquet, csv, safetensors or jsonl file of labelled embeddings, - for "
            "standard input; or a gallery that is there already, fitted where it is: "
            "gallery.sqlite, postgresql://..., https://..., postgres or milvus."
        ),
    ],
    *,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="model.safetensors: the fit, and the points unless an engine holds them; or "
            "gallery.sqlite: a gallery to serve, with the fit inside.",
        ),
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace an .sqlite gallery that is there already.")
    ] = False,
    labels_path: Labels = None,
    vectors_key: VectorsKey = None,
    labels_key: LabelsKey = None,
    ids_key: IdsKey = None,
    pictures_key: PicturesKey = None,
    images_root: ImagesRoot = None,
    input_format: InputFormat = None,
    n_neighbors: Neighbors = "auto",
    rule: Rule = "auto",
    temperature: Annotated[
        float | None,
        typer.Option(
            help="T of rule ned, a squared distance, if it is not to be fitted.",
            rich_help_panel=FITTING,
        ),
    ] = None,
    metric: Metric = None,
    calibration: Calibration = "auto",
    prior: Annotated[
        Literal["support", "uniform"],
        typer.Option(
            help="How frequent classes are among the queries: as in the gallery, or all alike.",
            rich_help_panel=FITTING,
        ),
    ] = "support",
    unknown_share: Annotated[
        float | None,
        typer.Option(
            help="Share of the queries that is of no class of the gallery: below 1.",
            rich_help_panel=FITTING,
        ),
    ] = None,
    max_fit_samples: Annotated[
        str,
        typer.Option(
            help="Fit on at most so many points, drawn at random: all or a number.",
            rich_help_panel=FITTING,
        ),
    ] = "10000",
    seed: Seed = 0,
    engine: Annotated[
        Literal["auto", "exact", "hnsw", "ivf"],
        typer.Option(help="Index of a model or of an .sqlite gallery.", rich_help_panel=ENGINE),
    ] = "auto",
    into: Annotated[
        str | None,
        typer.Option(
            help="Load the points into a new table or collection: postgresql://..., https://..., "
            "or postgres or milvus, whose address is in the environment.",
            rich_help_panel=ENGINE,
        ),
    ] = None,
    table: Table = None,
    collection: Collection = None,
    engine_option: EngineOption = None,
    as_json: Json = False,
) -> None:
    """Fit a gallery: how sure to be of a match is learned from its own points.

    A file is read whole into a model. Into an .sqlite gallery or an engine it is streamed, so that
    it may be larger than memory.
    """
    samples = number_or("--max-fit-samples", max_fit_samples, ("all",))
    parameters: dict[str, Any] = {
        "n_neighbors": number_or("-k", n_neighbors, ("auto", "all")),
        "temperature": "auto" if temperature is None else temperature,
        "rule": rule,
        "calibration": calibration,
        "prior": prior,
        "unknown_share": unknown_share,
        "max_fit_samples": None if samples == "all" else samples,
        "random_state": seed,
    }
    exists = is_engine(gallery)
    check_files(
        {"GALLERY": None if exists else gallery, "--labels": labels_path}, {"--output": output}
    )
    of_files = {
        "--labels": labels_path,
        "--vectors-key": vectors_key,
        "--labels-key": labels_key,
        "--ids-key": ids_key,
        "--input-format": input_format,
    }
    refuse(of_files, ": the points are in the gallery already", when=exists)
    refuse(
        {"--engine": engine != "auto"},
        ": the index is the engine's own, --engine-option index=...",
        when=exists or into is not None,
    )
    refuse(
        {"--pictures-key": pictures_key, "--images-root": images_root, "--replace": replace},
        ": it is of -o gallery.sqlite, from a file of embeddings",
        when=exists or into is not None or not is_sqlite(output or ""),
    )
    options = engine_options(engine_option, table=table, collection=collection)
    _check_output(gallery, output, into, options)
    if output is not None and not is_sqlite(output):
        # A model that is there is replaced, but not one that somebody makes meanwhile.
        replace = output.exists()
    with ExitStack() as stack:
        holder: Engine | None = None
        if exists:
            holder = stack.enter_context(closing(open_gallery(gallery, options)))
        else:
            columns = Columns(
                labels_path, vectors_key, labels_key, ids_key, pictures_key, input_format
            )
            stream = stack.enter_context(open_file(gallery, columns, labels="required"))
        if into is not None:
            holder = stack.enter_context(
                fill_engine(stream, into, options, metric=metric or "euclidean")
            )
        elif output is not None and is_sqlite(output):
            holder = stack.enter_context(
                fill_sqlite(
                    stream,
                    output,
                    metric=metric or "euclidean",
                    index=engine,
                    images=ImagePaths(gallery, images_root),
                    replace=replace,
                )
            )
        if holder is None:
            classifier = _fit_in_memory(
                stream, metric=metric or "euclidean", engine=engine, **parameters
            )
        else:
            classifier = _fit_engine(holder, metric=metric or holder.metric, **parameters)
        if holder is not None and is_sqlite(gallery if exists else output or ""):
            store_fit(holder, classifier)
        if output is not None and not is_sqlite(output):
            save_model(classifier, output, replace=replace)
        summary = summarize(classifier)
    if as_json:
        show_json(asdict(summary))
        return
    show_facts("Fitted", summary.facts())
    print_written([] if output is None else [output])


def _check_output(
    gallery: str, output: Path | None, into: str | None, options: Mapping[str, Any]
) -> None:
    exists = is_engine(gallery)
    if exists and into is not None:
        named = "this address" if "://" in gallery else gallery
        raise ConfigError(
            f"--into must be left out: {named} is a gallery already, fitted where it is."
        )
    if output is None:
        if exists and is_sqlite(gallery):
            return
        raise ConfigError(
            "Where shall the fit go? -o model.safetensors, or -o gallery.sqlite for a gallery to "
            "serve."
        )
    may_be_sqlite = not exists and into is None
    if output.suffix != MODEL_SUFFIX and not (may_be_sqlite and is_sqlite(output)):
        allowed = ".safetensors" + (", or in .sqlite for a gallery" if may_be_sqlite else "")
        raise ConfigError(f"--output must end in {allowed}. Got {output.name} instead.")
    if may_be_sqlite and options:
        raise ConfigError("Options of an engine were given without --into, which names it.")


def _fit_in_memory(stream: "EmbeddingStream", **parameters: Any) -> "NEDClassifier":  # noqa: ANN401
    from nearsure.classifier import NEDClassifier

    points = stream.read_all()
    if points.ids is not None:
        tell(
            "a model file names its points by row number; -o gallery.sqlite keeps ids, and images."
        )
    with spinner(f"fitting {len(points.vectors):,} points"):
        return NEDClassifier(**parameters).fit(points.vectors, labels_of(points))


def _fit_engine(engine: "Engine", **parameters: Any) -> "NEDClassifier":  # noqa: ANN401
    from nearsure.classifier import NEDClassifier

    with spinner("fitting"):
        return NEDClassifier(engine=engine, **parameters).fit_engine()


@dataclass(frozen=True)
class FitSummary:
    """What was fitted on which gallery.

    Parameters
    ----------
    temperature, standard_error : float or None
        T of the rule in use, and the standard error of NED's own T.
    parameters : dict
        Whatever else was fitted.
    n_fitted, n_missed : int
        Points that all was fitted on, and those without a neighbour of their own class.
    threshold, coverage : float or None
        From which confidence 99% of the accepted answers are right, and the share of queries that
        reaches it; None if that cannot be promised.
    promise : str
        The same in a sentence.
    """

    n_points: int
    n_classes: int
    dimension: int
    k: int
    rule: str
    calibration: str
    metric: str
    engine: str
    unknown_share: float | None
    temperature: float | None
    standard_error: float | None
    parameters: dict[str, float]
    n_fitted: int
    n_missed: int
    threshold: float | None
    coverage: float | None
    promise: str

    def facts(self) -> dict[str, str]:
        """As people read it."""
        facts = {
            "gallery": f"{self.n_points:,} points, {self.n_classes:,} classes, "
            f"dimension {self.dimension:,}",
            "engine": f"{self.engine}, {self.metric}",
            "neighbours": f"{self.k}",
            "rule": f"{self.rule}, calibration {self.calibration}",
        }
        if self.temperature is not None:
            facts["T"] = f"{self.temperature:.6g}"
            facts |= {name: f"{value:.4g}" for name, value in self.parameters.items()}
            share = f" ({self.n_missed / self.n_fitted:.1%})" if self.n_fitted else ""
            facts["missed"] = (
                f"{self.n_missed:,} of {self.n_fitted:,} points{share} have no neighbour of their "
                "own class"
            )
        if self.unknown_share is not None:
            facts["unknown"] = f"{self.unknown_share:.1%} of the queries are expected to be"
        facts["99% right"] = self.promise
        return facts


def summarize(classifier: "NEDClassifier") -> FitSummary:
    """What a classifier has fitted; the threshold costs no other search."""
    from nearsure.report.answers import engine_name
    from nearsure.report.sections import fit_of

    rule, calibration = classifier.rule_.name, classifier.rule_.calibrator.name
    fit = fit_of(classifier)
    threshold = coverage = None
    try:
        chosen = classifier.accept_threshold(precision=PRECISION)
        promise = str(chosen)
        if chosen.reached:
            threshold, coverage = finite_or_none(chosen.threshold), finite_or_none(chosen.coverage)
    except InvalidInputError as error:
        promise = str(error)
    return FitSummary(
        n_points=classifier.n_support_,
        n_classes=len(classifier.classes_),
        dimension=int(classifier.n_features_in_),
        k=int(classifier.n_neighbors_),
        rule=rule,
        calibration=calibration,
        metric=classifier.metric,
        engine=engine_name(classifier),
        unknown_share=classifier.unknown_share,
        temperature=None if fit is None else fit.temperature,
        standard_error=None if fit is None else fit.standard_error,
        parameters={} if fit is None else fit.parameters,
        n_fitted=0 if fit is None else fit.n_points,
        n_missed=0 if fit is None else fit.n_missed,
        threshold=threshold,
        coverage=coverage,
        promise=promise,
    )
