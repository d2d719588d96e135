"""`nearsure fit`."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import typer

from nearsure.cli.console import busy, finite, show_facts, show_json, tell
from nearsure.cli.files import Columns, ImagePaths, check_files, labels_of, opened_file, say_files
from nearsure.cli.load import filled_engine, filled_sqlite
from nearsure.cli.models import (
    check_is_there,
    engine_options,
    is_engine,
    is_sqlite,
    keep_in,
    opened,
    save_model,
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
    register,
)
from nearsure.errors import ConfigError, InvalidInputError

if TYPE_CHECKING:
    from nearsure.classifier import NEDClassifier
    from nearsure.engines.contract import Engine


EXAMPLES = (
    "nearsure fit gallery.npz -o model.safetensors",
    "nearsure fit birds.parquet --ids-key name --metric cosine -o birds.sqlite",
    "nearsure fit postgres --table birds -o birds.safetensors",
)


def add_to(app: typer.Typer) -> None:
    """Make the command known."""
    register(app, fit, *EXAMPLES)


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
    from nearsure.cli.files import Columns
    from nearsure.cli.options import number_or

    samples = number_or("--max-fit-samples", max_fit_samples, ("all",))
    fit_gallery(
        FitRequest(
            gallery=gallery,
            output=output,
            replace=replace,
            columns=Columns(
                labels_path, vectors_key, labels_key, ids_key, pictures_key, input_format
            ),
            images_root=images_root,
            parameters={
                "n_neighbors": number_or("-k", n_neighbors, ("auto", "all")),
                "temperature": "auto" if temperature is None else temperature,
                "rule": rule,
                "calibration": calibration,
                "prior": prior,
                "unknown_share": unknown_share,
                "max_fit_samples": None if samples == "all" else samples,
                "random_state": seed,
            },
            metric=metric,
            index=engine,
            into=into,
            engine_option=tuple(engine_option or ()),
            table=table,
            collection=collection,
        ),
        as_json=as_json,
    )


PRECISION = 0.99


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

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return asdict(self)

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


def summary_of(classifier: "NEDClassifier") -> FitSummary:
    """What a classifier has fitted; the threshold costs no other search."""
    from nearsure.report.answers import engine_name, gallery_size, rule_and_calibration
    from nearsure.report.sections import fit_of

    rule, calibration = rule_and_calibration(classifier)
    fit = fit_of(classifier)
    threshold = coverage = None
    try:
        chosen = classifier.accept_threshold(precision=PRECISION)
        promise = str(chosen)
        if chosen.reached:
            threshold, coverage = finite(chosen.threshold), finite(chosen.coverage)
    except InvalidInputError as error:
        promise = str(error)
    return FitSummary(
        n_points=gallery_size(classifier),
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


MODEL_SUFFIX = ".safetensors"


@dataclass(frozen=True)
class FitRequest:
    """What was asked for.

    Parameters
    ----------
    gallery : str
        A file of embeddings, "-", or the address of an engine.
    output : path or None
        Model file or .sqlite gallery.
    parameters : mapping
        Of `NEDClassifier`, but for metric and engine.
    metric : str or None
        None: as the engine has it.
    index : str
        Of points that no server holds.
    into : str or None
        Address of the engine that is to be filled.
    """

    gallery: str
    output: Path | None
    columns: Columns
    parameters: Mapping[str, Any]
    metric: Literal["euclidean", "cosine"] | None = None
    index: str = "auto"
    into: str | None = None
    engine_option: tuple[str, ...] = ()
    table: str | None = None
    collection: str | None = None
    images_root: Path | None = None
    replace: bool = False

    @property
    def options(self) -> dict[str, Any]:
        """Of the engine."""
        return engine_options(self.engine_option, table=self.table, collection=self.collection)


def fit_gallery(request: FitRequest, *, as_json: bool) -> None:
    """Fit, write, and say what was fitted."""
    _check(request)
    if request.output is not None and not is_sqlite(request.output):
        # A model that is there is replaced, but not one that somebody makes meanwhile.
        request = replace(request, replace=request.output.exists())
    if is_engine(request.gallery):
        summary = _fit_where_it_is(request)
    elif request.into is not None:
        summary = _fit_into(request, request.into)
    elif is_sqlite(_output(request)):
        summary = _fit_sqlite(request)
    else:
        summary = _fit_in_memory(request)
    if as_json:
        show_json(summary.to_dict())
        return
    show_facts("Fitted", summary.facts())
    say_files([] if request.output is None else [request.output])


def _check(request: FitRequest) -> None:
    output, into = request.output, request.into
    there_already = is_engine(request.gallery)
    check_files(
        {"GALLERY": None if there_already else request.gallery, "--labels": request.columns.labels},
        {"--output": output},
    )
    _check_nothing_is_ignored(request, there_already=there_already)
    if there_already and into is not None:
        raise ConfigError(
            f"--into must be left out: {_named(request.gallery)} is a gallery already, fitted "
            "where it is."
        )
    keeps_its_fit = there_already and is_sqlite(request.gallery)
    if output is None and not keeps_its_fit:
        raise ConfigError(
            "Where shall the fit go? -o model.safetensors, or -o gallery.sqlite for a gallery to "
            "serve."
        )
    if output is None:
        return
    may_be_sqlite = not there_already and into is None
    if output.suffix != MODEL_SUFFIX and not (may_be_sqlite and is_sqlite(output)):
        allowed = ".safetensors" + (", or in .sqlite for a gallery" if may_be_sqlite else "")
        raise ConfigError(f"--output must end in {allowed}. Got {output.name} instead.")
    if not (there_already or into) and request.options:
        raise ConfigError("Options of an engine were given without --into, which names it.")


def _check_nothing_is_ignored(request: FitRequest, *, there_already: bool) -> None:
    if there_already:
        columns = request.columns
        where = "the points are in the gallery already"
        of_files = {
            "--labels": columns.labels,
            "--vectors-key": columns.vectors_key,
            "--labels-key": columns.labels_key,
            "--ids-key": columns.ids_key,
            "--input-format": columns.format,
        }
        _refuse(of_files, where)
    if there_already or request.into is not None:
        index = None if request.index == "auto" else request.index
        _refuse({"--engine": index}, "the index is the engine's own, --engine-option index=...")
    if there_already or request.into is not None or not is_sqlite(request.output or ""):
        of_new_galleries = {
            "--pictures-key": request.columns.pictures_key,
            "--images-root": request.images_root,
            "--replace": request.replace or None,
        }
        _refuse(of_new_galleries, "it is of -o gallery.sqlite, from a file of embeddings")


def _refuse(options: Mapping[str, object], why: str) -> None:
    for option, value in options.items():
        if value is not None:
            raise ConfigError(f"{option} must be left out: {why}.")


def _fit_where_it_is(request: FitRequest) -> FitSummary:
    if is_sqlite(request.gallery):
        check_is_there(request.gallery)
    engine = opened(request.gallery, request.options)
    try:
        classifier = _fitted_on(engine, request)
        if is_sqlite(request.gallery):
            keep_in(engine, classifier)
        if request.output is not None:
            save_model(classifier, request.output, replace=request.replace)
        return summary_of(classifier)
    finally:
        engine.close()


def _fit_into(request: FitRequest, address: str) -> FitSummary:
    with (
        opened_file(request.gallery, request.columns, labels="required") as stream,
        filled_engine(
            stream, address, request.options, metric=request.metric or "euclidean"
        ) as engine,
    ):
        classifier = _fitted_on(engine, request)
        save_model(classifier, _output(request), replace=request.replace)
        return summary_of(classifier)


def _fit_sqlite(request: FitRequest) -> FitSummary:
    with (
        opened_file(request.gallery, request.columns, labels="required") as stream,
        filled_sqlite(
            stream,
            _output(request),
            metric=request.metric or "euclidean",
            index=request.index,
            images=ImagePaths(request.gallery, request.images_root),
            replace=request.replace,
        ) as engine,
    ):
        classifier = _fitted_on(engine, request)
        keep_in(engine, classifier)
        return summary_of(classifier)


def _fit_in_memory(request: FitRequest) -> FitSummary:
    from nearsure.classifier import NEDClassifier

    with opened_file(request.gallery, request.columns, labels="required") as stream:
        points = stream.read_all()
    if points.ids is not None:
        tell(
            "a model file names its points by row number; -o gallery.sqlite keeps ids, and images."
        )
    classifier = NEDClassifier(
        metric=request.metric or "euclidean", engine=request.index, **request.parameters
    )
    with busy(f"fitting {len(points.vectors):,} points"):
        classifier.fit(points.vectors, labels_of(points))
        save_model(classifier, _output(request), replace=request.replace)
        return summary_of(classifier)


def _fitted_on(engine: "Engine", request: FitRequest) -> "NEDClassifier":
    from nearsure.classifier import NEDClassifier

    metric = request.metric or engine.metric
    classifier = NEDClassifier(metric=metric, engine=engine, **request.parameters)
    with busy("fitting"):
        return classifier.fit_engine()


def _output(request: FitRequest) -> Path:
    # `_check` has seen to it that there is one.
    return cast("Path", request.output)


def _named(address: str) -> str:
    return "this address" if "://" in address else address
