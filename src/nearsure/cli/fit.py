"""`nearsure fit`."""

from collections.abc import Mapping
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from typer import Argument, Option

from nearsure.atomic import atomic_write
from nearsure.cli import inputs, options, outputs
from nearsure.cli.inputs import is_engine, is_sqlite
from nearsure.cli.load import fill_engine, fill_sqlite
from nearsure.cli.outputs import progress, spinner
from nearsure.errors import ConfigError, InvalidInputError, ModelFileError

if TYPE_CHECKING:
    from nearsure.arrays import AnyArray
    from nearsure.classifier import NEDClassifier
    from nearsure.embedding_files import EmbeddingStream
    from nearsure.encoders import Encoder
    from nearsure.engines.contract import Engine

MODEL_SUFFIX = ".safetensors"
PRECISION = 0.99
# What the numbers of a fit mean, said where they are printed.
MEANINGS = {
    "gamma": "the sharpness: 1 is the paper's formula, more is more confident",
    "beta": "how far T follows the distances around a query: 0 not at all, 1 in proportion",
    "typical_sq_distance": "the squared distance at which T is the one above",
}
SHRUNK = " (drawn towards no change where points are few)"


def fit(
    gallery: Annotated[
        str,
        Argument(
            help="npz, npy, parquet, csv, safetensors or jsonl file of labelled embeddings, - for "
            "standard input; with --encoder a folder of images with one folder per class, or a "
            "txt, csv or jsonl file of texts; or an existing gallery, fitted in place: "
            "gallery.sqlite, postgresql://..., https://..., lance:FOLDER, or the name of an engine."
        ),
    ],
    *,
    output: Annotated[
        Path | None,
        Option(
            "--output",
            "-o",
            help="model.safetensors: the fit, and the points unless an engine holds them; or "
            "gallery.sqlite: a gallery to serve, with the fit inside.",
        ),
    ] = None,
    replace: Annotated[
        bool, Option("--replace", help="Replace an existing .sqlite gallery.")
    ] = False,
    labels_path: options.Labels = None,
    vectors_key: options.VectorsKey = None,
    labels_key: options.LabelsKey = None,
    ids_key: options.IdsKey = None,
    pictures_key: options.PicturesKey = None,
    images_root: options.ImagesRoot = None,
    groups_key: options.GroupsKey = None,
    groups_from_folder: Annotated[
        bool,
        options.file_option(
            "--groups-from-folder",
            help="Images lie in CLASS/GROUP/: those of one folder are a group.",
        ),
    ] = False,
    input_format: options.InputFormat = None,
    encoder: Annotated[
        str | None,
        options.file_option(
            help="image, text or module:attribute: encodes images or texts, or names what made "
            "the vectors. It is kept with the fit, and predict, report and serve use it."
        ),
    ] = None,
    n_neighbors: options.Neighbors = "auto",
    rule: options.Rule = "auto",
    temperature: Annotated[
        float | None,
        options.fitting_option(
            help="Fixed T for rule ned, a squared distance; by default it is fitted."
        ),
    ] = None,
    metric: options.Metric = None,
    head: options.Head = "auto",
    calibration: options.Calibration = "auto",
    prior: Annotated[
        Literal["support", "uniform"],
        options.fitting_option(
            help="Class frequencies among queries: as in the gallery, or uniform."
        ),
    ] = "support",
    unknown_share: Annotated[
        float | None,
        options.fitting_option(
            help="Share of queries that belong to no class of the gallery: below 1."
        ),
    ] = None,
    max_fit_samples: Annotated[
        str,
        options.fitting_option(
            help="Fit on at most this many points, drawn at random: all or a number."
        ),
    ] = "10000",
    seed: options.Seed = 0,
    engine: Annotated[
        Literal["auto", "exact", "hnsw", "ivf"],
        options.engine_option(help="Index type of a model or an .sqlite gallery."),
    ] = "auto",
    max_effort: Annotated[
        int | None,
        options.engine_option(
            min=0,
            help="Largest search effort (ef, probes) that may be chosen so that an approximate "
            "index finds 99% of the true neighbours; by default 32 times the usual. With 0, "
            "nothing is measured.",
        ),
    ] = None,
    into: Annotated[
        str | None,
        options.engine_option(
            help="Load the points into a new table or collection: postgresql://..., https://..., "
            "qdrant:URL, chroma:FOLDER, lance:FOLDER, or postgres, milvus, qdrant, chroma or "
            "lance, with the address in the environment."
        ),
    ] = None,
    table: options.Table = None,
    collection: options.Collection = None,
    engine_option: options.EngineOption = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Fit a gallery: learn from its own points how far a match can be trusted.

    A file is read whole into a model. Into an .sqlite gallery or an engine it is streamed, so that
    it may be larger than memory.

    Example: nearsure fit gallery.npz -o model.safetensors

    Example: nearsure fit birds.parquet --ids-key name --metric cosine -o birds.sqlite

    Example: nearsure fit photos --encoder image -o birds.sqlite

    Example: nearsure fit postgres --table birds -o birds.safetensors
    """
    outputs.set_quiet(quiet)
    samples = options.number_or("--max-fit-samples", max_fit_samples, ("all",))
    parameters: dict[str, Any] = {
        "n_neighbors": options.number_or("-k", n_neighbors, ("auto", "all")),
        "temperature": "auto" if temperature is None else temperature,
        "rule": rule,
        "head": None if head == "none" else head,
        "calibration": calibration,
        "prior": prior,
        "unknown_share": unknown_share,
        "max_fit_samples": None if samples == "all" else samples,
        "max_effort": max_effort,
        "random_state": seed,
    }
    exists = is_engine(gallery)
    outputs.check_files(
        {"GALLERY": None if exists else gallery, "--labels": labels_path}, {"--output": output}
    )
    of_files = {
        "--labels": labels_path,
        "--vectors-key": vectors_key,
        "--labels-key": labels_key,
        "--ids-key": ids_key,
        "--groups-key": groups_key,
        "--groups-from-folder": groups_from_folder,
        "--input-format": input_format,
    }
    options.refuse(of_files, ": the points are in the gallery already", when=exists)
    options.refuse(
        {"--engine": engine != "auto"},
        ": the index is the engine's own, --engine-option index=...",
        when=exists or into is not None,
    )
    options.refuse(
        {"--pictures-key": pictures_key, "--images-root": images_root, "--replace": replace},
        ": it is of -o gallery.sqlite, from a file of embeddings",
        when=exists or into is not None or not is_sqlite(output or ""),
    )
    settings = inputs.engine_options(engine_option, table=table, collection=collection)
    encodes = not exists and _check_encoder(gallery, encoder, by_folder=groups_from_folder)
    _check_output(gallery, output, into, settings)
    if output is not None and not is_sqlite(output):
        # A model that is there now is replaced, but not one that appears during the fit.
        replace = output.exists()
    from nearsure.classifier import NEDClassifier
    from nearsure.embedding_files import open_embeddings

    opened = None if encoder is None else inputs.load_encoder(encoder)
    # Ids and groups of the points, as far as they go into an engine.
    groups: list[tuple[AnyArray, AnyArray]] = []
    with ExitStack() as stack:
        holder: Engine | None = None
        if exists:
            holder = stack.enter_context(closing(inputs.open_gallery(gallery, settings)))
        else:
            open_points = open_embeddings
            if opened is not None and encodes:
                open_points = partial(
                    inputs.encoded, encoder=opened, groups_from_folder=groups_from_folder
                )
            stream = stack.enter_context(
                open_points(
                    gallery,
                    groups_key=groups_key,
                    labels_path=labels_path,
                    vectors_key=vectors_key,
                    labels_key=labels_key,
                    ids_key=ids_key,
                    pictures_key=pictures_key,
                    format=input_format,
                    labels="required",
                )
            )
        made_by = _describe_encoder(encoder, opened, holder or stream)
        if into is not None:
            holder = stack.enter_context(
                fill_engine(stream, into, settings, metric=metric or "euclidean", groups=groups)
            )
        elif output is not None and is_sqlite(output):
            holder = stack.enter_context(
                fill_sqlite(
                    stream,
                    output,
                    metric=metric or "euclidean",
                    index=engine,
                    images=inputs.ImagePaths(gallery, images_root),
                    replace=replace,
                    groups=groups,
                )
            )
        if holder is None:
            classifier = NEDClassifier(metric=metric or "euclidean", engine=engine, **parameters)
            _fit_in_memory(classifier, stream)
        else:
            classifier = NEDClassifier(metric=metric or holder.metric, engine=holder, **parameters)
            _fit_in_engine(classifier, groups)
        classifier.encoder_ = made_by
        if holder is not None and is_sqlite(gallery if exists else output or ""):
            holder.notes[inputs.MODEL_NOTE] = classifier.to_bytes()  # type: ignore[attr-defined]
        if output is not None and not is_sqlite(output):
            save_model(classifier, output, replace=replace)
        summary = _summarize(classifier)
    _show(summary, output, as_json=as_json)
    if not exists:
        inputs.end_encoded(stream)


def _show(summary: Mapping[str, Any], output: Path | None, *, as_json: bool) -> None:
    if as_json:
        outputs.show_json(summary)
        return
    outputs.show_facts("Fitted", _facts(summary))
    if output is not None:
        outputs.print_written(output)


def _check_encoder(gallery: str, name: str | None, *, by_folder: bool) -> bool:
    """Whether a gallery is images or texts; an error if these need an encoder that is not named."""
    from nearsure.encoders.inputs import input_kind

    kind = input_kind(gallery)
    options.refuse(
        {"--groups-from-folder": by_folder},
        ": it is of a folder of images; --groups-key names a column",
        when=kind != "image",
    )
    if kind is not None and name is None:
        raise ConfigError(
            f"{gallery} holds {kind}s, which have to become vectors first: --encoder {kind} makes "
            "them and fits, and nearsure embed makes them alone."
        )
    return kind is not None


def _describe_encoder(
    name: str | None, encoder: "Encoder | None", points: "Engine | EmbeddingStream"
) -> str | None:
    """What made the vectors: the encoder that was named, or what the fit before says."""
    from nearsure.encoders import check_encoder, describe_encoder
    from nearsure.model_file import read_model_bytes

    stored: bytes | None = getattr(points, "notes", {}).get(inputs.MODEL_NOTE)
    made_by = None
    if stored is not None:
        try:
            made_by = read_model_bytes(stored)[0].get("encoder")
        except ModelFileError as error:
            # The new fit takes its place.
            outputs.tell(f"the fit before does not say which encoder made the vectors: {error}")
    if name is None or encoder is None:
        return made_by
    check_encoder(made_by, name, encoder, points.dimension)
    return describe_encoder(name, encoder)


def _fit_in_engine(classifier: "NEDClassifier", groups: "list[tuple[AnyArray, AnyArray]]") -> None:
    import numpy as np

    with spinner("fitting"):
        if groups:
            ids, names = (np.concatenate(part) for part in zip(*groups, strict=True))
            classifier.fit_engine(ids=ids, groups=names)
        else:
            classifier.fit_engine()


def _check_output(
    gallery: str, output: Path | None, into: str | None, settings: Mapping[str, Any]
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
            "Name an output file: -o model.safetensors, or -o gallery.sqlite for a gallery to "
            "serve."
        )
    may_be_sqlite = not exists and into is None
    if output.suffix != MODEL_SUFFIX and not (may_be_sqlite and is_sqlite(output)):
        allowed = ".safetensors" + (", or in .sqlite for a gallery" if may_be_sqlite else "")
        raise ConfigError(f"--output must end in {allowed}. Got {output.name} instead.")
    if may_be_sqlite and settings:
        raise ConfigError("Options of an engine were given without --into, which names it.")


def _fit_in_memory(classifier: "NEDClassifier", stream: "EmbeddingStream") -> None:
    with progress("loading", stream.n_rows):
        points = stream.read_all()
    if points.ids is not None:
        outputs.notice(
            "a model file names its points by row number; -o gallery.sqlite keeps ids, and images."
        )
    with spinner(f"fitting {len(points.vectors):,} points"):
        classifier.fit(points.vectors, inputs.labels_of(points), groups=points.groups)


def save_model(classifier: "NEDClassifier", path: Path, *, replace: bool) -> None:
    """Write a model file, whole or not at all; unless `replace`, there must be none."""
    try:
        with (
            atomic_write(path, replace=replace) as draft,
            outputs.translate_errors("--output", path),
        ):
            classifier.save(draft)
    except FileExistsError as error:
        raise ConfigError(
            f"{path} already exists: another command made it meanwhile. It stays, and this fit "
            "was not written: type the command again to replace it."
        ) from error


def _summarize(classifier: "NEDClassifier") -> dict[str, Any]:
    """The gallery and what was fitted on it; the threshold needs no further search."""
    from nearsure.report.answers import engine_name
    from nearsure.report.document import plain_number
    from nearsure.report.sections import fit_of

    found, head, recall = fit_of(classifier), classifier.head_fit_, classifier.recall_
    threshold = coverage = None
    try:
        chosen = classifier.accept_threshold(precision=PRECISION)
        promise = str(chosen)
        if chosen.reached:
            threshold, coverage = plain_number(chosen.threshold), plain_number(chosen.coverage)
    except InvalidInputError as error:
        promise = str(error)
    return {
        "n_points": classifier.n_support_,
        "n_classes": len(classifier.classes_),
        "dimension": int(classifier.n_features_in_),
        "k": int(classifier.n_neighbors_),
        "rule": classifier.rule_.name,
        # Which head is used beside the neighbours, and why; None where nothing was tried.
        "head": None if head is None else head.name,
        "head_choice": None if head is None else str(head),
        "calibration": classifier.rule_.calibrator.name,
        "metric": classifier.metric,
        "engine": engine_name(classifier),
        "encoder": classifier.encoder_,
        # Share of the true neighbours that an approximate engine finds, and the effort for that.
        "recall": None if recall is None else recall.share,
        "effort": None if recall is None else recall.effort,
        "unknown_share": classifier.unknown_share,
        # T of the rule in use, and the standard error of NED's own T.
        "temperature": None if found is None else found.temperature,
        "standard_error": None if found is None else found.standard_error,
        "parameters": {} if found is None else found.parameters,
        # Points of the fit, and those of them without a neighbour of their own class.
        "n_fitted": 0 if found is None else found.n_points,
        "n_missed": 0 if found is None else found.n_missed,
        # The confidence from which 99% of the accepted answers are right, and the share of
        # queries that reach it; None if that cannot be promised.
        "threshold": threshold,
        "coverage": coverage,
        "promise": promise,
    }


def _facts(fitted: Mapping[str, Any]) -> dict[str, str]:
    """A summary as text."""
    facts = {
        "gallery": "{n_points:,} points, {n_classes:,} classes, dimension {dimension:,}",
        "engine": "{engine}, {metric}",
        "neighbours": "{k}",
        "rule": "{rule}, calibration {calibration}" + SHRUNK * (fitted["calibration"] == "shrunk"),
    }
    if fitted["encoder"] is not None:
        facts["encoder"] = "{encoder}"
    if fitted["recall"] is not None:
        effort = "" if fitted["effort"] is None else ", with effort {effort:,}"
        facts["recall"] = "{recall:.1%} of the true neighbours are found" + effort
    if fitted["head_choice"] is not None:
        facts["head"] = "{head_choice}"
    if fitted["temperature"] is not None:
        facts["T"] = "{temperature:.6g}, the squared distance at which a vote has fallen to 37%"
        for name, value in fitted["parameters"].items():
            facts[name.replace("_", " ")] = f"{value:.4g}, {MEANINGS[name]}"
        n_missed, n_fitted = fitted["n_missed"], fitted["n_fitted"]
        share = f" ({n_missed / n_fitted:.1%})" if n_fitted else ""
        facts["missed"] = (
            f"{n_missed:,} of {n_fitted:,} points{share} have no neighbour of their own class"
        )
    if fitted["unknown_share"] is not None:
        facts["unknown"] = "{unknown_share:.1%} of the queries are expected to be"
    facts["99% right"] = "{promise}"
    return {name: text.format_map(fitted) for name, text in facts.items()}
