"""`nearsure report`."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from nearsure.atomic import write_text_whole
from nearsure.cli import inputs, options, outputs
from nearsure.cli.inputs import ImagePaths
from nearsure.cli.outputs import (
    check_files,
    check_suffix,
    print_written,
    spinner,
    tell,
    translate_errors,
)
from nearsure.errors import ConfigError

if TYPE_CHECKING:
    from nearsure.classifier import NEDClassifier
    from nearsure.embedding_files import EmbeddingChunk
    from nearsure.engines.sqlite import SqliteEngine
    from nearsure.report import Report
    from nearsure.report.thumbnails import Picture


def report(
    queries: Annotated[
        str | None,
        Argument(
            help="npz, npy, parquet, csv, safetensors or jsonl file of labelled queries, - for "
            "standard input; or a folder of images or a file of texts, with labels, if the model "
            "has an encoder. If omitted, the gallery's own points are scored, each left out of "
            "its own search."
        ),
    ] = None,
    *,
    model: options.Model,
    output: Annotated[
        Path | None, Option("--output", "-o", help="HTML file that needs no network.")
    ] = None,
    json_output: Annotated[
        Path | None, Option("--json", help="The same as a JSON file; - for standard output.")
    ] = None,
    title: Annotated[str | None, Option(help="Title of the report.")] = None,
    labels_path: options.Labels = None,
    vectors_key: options.VectorsKey = None,
    labels_key: options.LabelsKey = None,
    ids_key: options.IdsKey = None,
    pictures_key: options.PicturesKey = None,
    images_root: options.ImagesRoot = None,
    gallery_images: Annotated[
        str | None,
        Option(
            help="File of the gallery's embeddings, for the images that it names; an .sqlite "
            "gallery has its own."
        ),
    ] = None,
    input_format: options.InputFormat = None,
    encoder: options.Encoder = None,
    gallery: options.Gallery = None,
    table: options.Table = None,
    collection: options.Collection = None,
    engine_option: options.EngineOption = None,
    mistakes: Annotated[int, Option(min=0, help="Number of mistakes to list.")] = 20,
    suspects: Annotated[int, Option(min=0, help="Number of suspect labels to list.")] = 50,
    seed: options.Seed = 0,
    resamples: options.Resamples = 1000,
    quiet: options.Quiet = False,
) -> None:
    """Write an HTML report on when to trust a match: accuracy, calibration, thresholds, mistakes.

    Example: nearsure report queries.npz --model model.safetensors -o report.html

    Example: nearsure report --model birds.sqlite -o birds.html --json birds.json
    """
    outputs.set_quiet(quiet)
    from nearsure.report import gallery_report, report_html, report_json
    from nearsure.report.remarks import OWN_POINTS

    columns: dict[str, Any] = {
        "labels_path": labels_path,
        "vectors_key": vectors_key,
        "labels_key": labels_key,
        "ids_key": ids_key,
        "pictures_key": pictures_key,
        "format": input_format,
        "encoder": encoder,
    }
    engine = inputs.engine_options(engine_option, table=table, collection=collection)
    if output is None and json_output is None:
        raise ConfigError("Name an output file: -o report.html, --json report.json or both.")
    if queries is None and set(columns.values()) != {None}:
        raise ConfigError("Names of columns were given without QUERIES, to which they belong.")
    check_suffix("--output", output, (".html", ".htm"))
    check_suffix("--json", json_output, (".json",))
    read = {"QUERIES": queries, "--labels": labels_path, "--model": model}
    check_files(
        {**read, "--gallery-images": gallery_images}, {"--output": output, "--json": json_output}
    )
    settings: dict[str, Any] = {
        "title": title or model.stem,
        "seed": seed,
        "n_resamples": resamples,
        "n_mistakes": mistakes,
        "n_suspects": suspects,
    }
    with inputs.open_model(model, gallery, engine) as classifier, spinner("reporting"):
        # A model file names its points by row number, whatever ids their file has.
        by_row = gallery is None and not inputs.is_sqlite(model)
        pictures = _gallery_pictures(classifier, gallery_images, images_root, by_row=by_row)
        if queries is None:
            made = gallery_report(classifier, pictures=pictures, **settings)
        else:
            images = ImagePaths(queries, images_root)
            settings["gallery_pictures"] = pictures
            columns["labels"] = "required"
            with inputs.open_queries(queries, classifier=classifier, **columns) as stream:
                points = stream.read_all()
            made = _report_on_queries(classifier, points, images, settings)
        if isinstance(pictures, NamedImages):
            pictures.images.tell()
    if OWN_POINTS in made.about.notes:
        tell(f"warning: {OWN_POINTS}")
    if output is not None:
        with translate_errors("--output", output):
            write_text_whole(output, report_html(made))
    if json_output is not None and str(json_output) != "-":
        with translate_errors("--json", json_output):
            write_text_whole(json_output, report_json(made) + "\n")
    elif json_output is not None:
        typer.echo(report_json(made))
        return
    print_written(*(path for path in (output, json_output) if path is not None))
    if queries is not None:
        inputs.end_encoded(stream)


def _report_on_queries(
    classifier: "NEDClassifier",
    points: "EmbeddingChunk",
    images: ImagePaths,
    settings: dict[str, Any],
) -> "Report":
    from nearsure.report import query_report

    pictures = None if points.pictures is None else [images.of(path) for path in points.pictures]
    images.tell()
    labels = inputs.match_labels(inputs.labels_of(points), classifier.classes_)
    return query_report(
        classifier,
        points.vectors,
        labels,
        ids=points.ids,
        pictures=pictures,
        texts=points.texts,
        **settings,
    )


def _gallery_pictures(
    classifier: "NEDClassifier", source: str | None, root: Path | None, *, by_row: bool
) -> "NamedImages | KeptPictures | None":
    """Images that a file names, or else those of an .sqlite gallery."""
    from nearsure.embedding_files import open_embeddings
    from nearsure.engines.sqlite import SqliteEngine

    if source is None:
        engine = classifier.engine_
        return KeptPictures(engine) if isinstance(engine, SqliteEngine) else None
    written: dict[str, str] = {}
    n_rows = 0
    with open_embeddings(source) as stream:
        for chunk in stream.chunks():
            first, n_rows = n_rows, n_rows + len(chunk)
            names = range(first, n_rows) if by_row else inputs.names_of(chunk).tolist()
            named = zip(names, chunk.pictures or (), strict=False)
            written |= {str(name): picture for name, picture in named if picture}
    n_points = classifier.n_support_
    if not written:
        tell(f"warning: {source} names no images.")
    elif by_row and n_rows != n_points:
        tell(
            f"warning: {source} has {n_rows:,} rows, and the gallery {n_points:,} points: images "
            "are right only if it is the file that the model was fitted on."
        )
    elif not by_row and written.keys().isdisjoint(map(str, classifier.own_ids().tolist())):
        tell(f"warning: none of the ids of {source} is one of the gallery: no image is shown.")
    return NamedImages(written, ImagePaths(source, root))


class NamedImages(Mapping[object, "Picture"]):
    """Images of a file by the text of an id, each looked up when it is needed.

    Parameters
    ----------
    written : dict of str to str
        Paths as they are in the file.
    images : ImagePaths
        Where they start from.
    """

    def __init__(self, written: dict[str, str], images: ImagePaths) -> None:
        self._written, self.images = written, images

    def __getitem__(self, key: object) -> "Picture":
        path = self.images.of(self._written[str(key)])
        if path is None:
            raise KeyError(key)
        return path

    def __iter__(self) -> Iterator[object]:
        return iter(self._written)

    def __len__(self) -> int:
        return len(self._written)


class KeptPictures(Mapping[object, "Picture"]):
    """The thumbnails of an .sqlite gallery by id, each read when it is needed."""

    def __init__(self, engine: "SqliteEngine") -> None:
        self._engine = engine

    def __getitem__(self, key: object) -> "Picture":
        kind = int if self._engine.capabilities.ids == "integer" else str
        picture = self._engine.picture(key) if isinstance(key, kind) else None
        if picture is None:
            raise KeyError(key)
        return picture

    def __iter__(self) -> Iterator[object]:
        for portion in self._engine.scan():
            yield from portion.ids.tolist()

    def __len__(self) -> int:
        return self._engine.size()
