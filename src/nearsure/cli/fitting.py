"""`nearsure fit`: what is done."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, cast

from nearsure.classifier import NEDClassifier
from nearsure.cli.checked_files import check_files
from nearsure.cli.engine_addresses import (
    check_is_there,
    engine_options,
    is_engine,
    is_sqlite,
    opened,
)
from nearsure.cli.fit_summary import FitSummary, summary_of
from nearsure.cli.image_paths import ImagePaths
from nearsure.cli.input_files import Columns, labels_of, opened_file
from nearsure.cli.loading import filled_engine, filled_sqlite
from nearsure.cli.opened_model import keep_in, save_model
from nearsure.cli.saying import busy, tell
from nearsure.cli.showing import show_facts, show_json
from nearsure.cli.typed_command import say_files
from nearsure.engines.contract import Engine
from nearsure.errors import ConfigError

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


def _fitted_on(engine: Engine, request: FitRequest) -> NEDClassifier:
    metric = request.metric or engine.metric
    classifier = NEDClassifier(metric=metric, engine=engine, **request.parameters)
    with busy("fitting"):
        return classifier.fit_engine()


def _output(request: FitRequest) -> Path:
    # `_check` has seen to it that there is one.
    return cast("Path", request.output)


def _named(address: str) -> str:
    return "this address" if "://" in address else address
