"""`nearsure report`."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nearsure.atomic import write_text_whole
from nearsure.cli.console import busy, tell
from nearsure.cli.files import (
    Columns,
    ImagePaths,
    check_dimension,
    check_files,
    check_suffix,
    labels_like,
    labels_of,
    names_of,
    opened_file,
    say_files,
    writing,
)
from nearsure.cli.models import is_sqlite, opened_model
from nearsure.cli.options import (
    Collection,
    EngineOption,
    Gallery,
    IdsKey,
    ImagesRoot,
    InputFormat,
    Labels,
    LabelsKey,
    Model,
    PicturesKey,
    Resamples,
    Seed,
    Table,
    VectorsKey,
    register,
)
from nearsure.errors import ConfigError

if TYPE_CHECKING:
    from nearsure.classifier import NEDClassifier
    from nearsure.engines.sqlite import SqliteEngine
    from nearsure.report import Report
    from nearsure.report.thumbnails import Picture


EXAMPLES = (
    "nearsure report queries.npz --model model.safetensors -o report.html",
    "nearsure report --model birds.sqlite -o birds.html --json birds.json",
)


def add_to(app: typer.Typer) -> None:
    """Make the command known."""
    register(app, report, *EXAMPLES)


def report(
    queries: Annotated[
        str | None,
        typer.Argument(
            help="npz, npy, parquet, csv, safetensors or jsonl file of labelled queries, - for "
            "standard input; without it the gallery's own points are asked, each without itself."
        ),
    ] = None,
    *,
    model: Model,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="HTML file that needs no network.")
    ] = None,
    json_output: Annotated[
        Path | None, typer.Option("--json", help="The same as a JSON file; - for standard output.")
    ] = None,
    title: Annotated[str | None, typer.Option(help="Of the report.")] = None,
    labels_path: Labels = None,
    vectors_key: VectorsKey = None,
    labels_key: LabelsKey = None,
    ids_key: IdsKey = None,
    pictures_key: PicturesKey = None,
    images_root: ImagesRoot = None,
    gallery_images: Annotated[
        str | None,
        typer.Option(
            help="File of the gallery's embeddings, for the images that it names; an .sqlite "
            "gallery has its own."
        ),
    ] = None,
    input_format: InputFormat = None,
    gallery: Gallery = None,
    table: Table = None,
    collection: Collection = None,
    engine_option: EngineOption = None,
    mistakes: Annotated[int, typer.Option(min=0, help="Mistakes that are listed.")] = 20,
    suspects: Annotated[int, typer.Option(min=0, help="Suspect labels that are listed.")] = 50,
    seed: Seed = 0,
    resamples: Resamples = 1000,
) -> None:
    """One HTML file about when to trust a match: accuracy, calibration, thresholds, mistakes."""
    from nearsure.cli.files import Columns
    from nearsure.cli.models import engine_options

    write_report(
        ReportRequest(
            queries=queries,
            columns=Columns(
                labels_path, vectors_key, labels_key, ids_key, pictures_key, input_format
            ),
            images_root=images_root,
            gallery_images=gallery_images,
            title=title,
            n_mistakes=mistakes,
            n_suspects=suspects,
            seed=seed,
            n_resamples=resamples,
        ),
        model=model,
        gallery=gallery,
        options=engine_options(engine_option, table=table, collection=collection),
        html=output,
        json=json_output,
    )


@dataclass(frozen=True)
class ReportRequest:
    """What the report is to be about.

    Parameters
    ----------
    queries : str or None
        File of labelled queries; None for the gallery's own points.
    images_root : path or None
        Where paths of images start from; None: from the file that names them.
    gallery_images : str or None
        File that names the images of the gallery.
    """

    queries: str | None
    columns: Columns
    images_root: Path | None
    gallery_images: str | None
    title: str | None
    n_mistakes: int
    n_suspects: int
    seed: int
    n_resamples: int


def write_report(
    request: ReportRequest,
    *,
    model: Path,
    gallery: str | None,
    options: Mapping[str, Any],
    html: Path | None,
    json: Path | None,
) -> None:
    """Make a report and write it."""
    from nearsure.report import report_html, report_json
    from nearsure.report.remarks import OWN_POINTS

    if html is None and json is None:
        raise ConfigError("Where shall the report go? -o report.html, --json report.json or both.")
    if request.queries is None and request.columns != Columns():
        raise ConfigError("Names of columns were given without QUERIES, whose they are.")
    check_suffix("--output", html, (".html", ".htm"))
    check_suffix("--json", json, (".json",))
    inputs = {
        "QUERIES": request.queries,
        "--labels": request.columns.labels,
        "--model": model,
        "--gallery-images": request.gallery_images,
    }
    check_files(inputs, {"--output": html, "--json": json})
    with opened_model(model, gallery, options) as classifier, busy("reporting"):
        # A model file names its points by row number, whatever ids their file has.
        by_row = gallery is None and not is_sqlite(model)
        report = _report(classifier, request, request.title or model.stem, by_row=by_row)
    if OWN_POINTS in report.about.notes:
        tell(f"warning: {OWN_POINTS}")
    if html is not None:
        with writing("--output", html):
            write_text_whole(html, report_html(report))
    if json is not None and str(json) != "-":
        with writing("--json", json):
            write_text_whole(json, report_json(report) + "\n")
    elif json is not None:
        typer.echo(report_json(report))
        return
    say_files(path for path in (html, json) if path is not None)


def _report(
    classifier: "NEDClassifier", request: ReportRequest, title: str, *, by_row: bool
) -> "Report":
    from nearsure.report import gallery_report

    settings: dict[str, Any] = {
        "title": title,
        "seed": request.seed,
        "n_resamples": request.n_resamples,
        "n_mistakes": request.n_mistakes,
        "n_suspects": request.n_suspects,
    }
    pictures = _gallery_pictures(classifier, request, by_row=by_row)
    if request.queries is None:
        report = gallery_report(classifier, pictures=pictures, **settings)
    else:
        report = _report_on_queries(classifier, request, request.queries, pictures, settings)
    if isinstance(pictures, NamedImages):
        pictures.images.tell()
    return report


def _report_on_queries(
    classifier: "NEDClassifier",
    request: ReportRequest,
    queries: str,
    pictures: "Mapping[object, Picture] | None",
    settings: Mapping[str, Any],
) -> "Report":
    from nearsure.report import query_report

    with opened_file(queries, request.columns, labels="required") as stream:
        check_dimension(stream, classifier, queries)
        points = stream.read_all()
    images = ImagePaths(queries, request.images_root)
    own = None if points.pictures is None else [images.of(picture) for picture in points.pictures]
    images.tell()
    return query_report(
        classifier,
        points.vectors,
        labels_like(labels_of(points), classifier.classes_),
        ids=points.ids,
        pictures=own,
        gallery_pictures=pictures,
        **settings,
    )


def _gallery_pictures(
    classifier: "NEDClassifier", request: ReportRequest, *, by_row: bool
) -> "Mapping[object, Picture] | None":
    from nearsure.engines.sqlite import SqliteEngine

    if request.gallery_images is not None:
        return _named_images(classifier, request, request.gallery_images, by_row=by_row)
    engine = classifier.engine_
    return KeptPictures(engine) if isinstance(engine, SqliteEngine) else None


def _named_images(
    classifier: "NEDClassifier", request: ReportRequest, source: str, *, by_row: bool
) -> "NamedImages":
    from nearsure.report.answers import gallery_size

    written: dict[str, str] = {}
    n_rows = 0
    with opened_file(source, Columns(), labels="optional") as stream:
        for chunk in stream.chunks():
            first, n_rows = n_rows, n_rows + len(chunk)
            names = range(first, n_rows) if by_row else names_of(chunk).tolist()
            named = zip(names, chunk.pictures or (), strict=False)
            written |= {str(name): picture for name, picture in named if picture}
    n_points = gallery_size(classifier)
    if not written:
        tell(f"warning: {source} names no images.")
    elif by_row and n_rows != n_points:
        tell(
            f"warning: {source} has {n_rows:,} rows, and the gallery {n_points:,} points: images "
            "are right only if it is the file that the model was fitted on."
        )
    elif not by_row and written.keys().isdisjoint(map(str, classifier.own_ids().tolist())):
        tell(f"warning: none of the ids of {source} is one of the gallery: no image is shown.")
    return NamedImages(written, ImagePaths(source, request.images_root))


class NamedImages(Mapping[object, "Picture"]):
    """Images of a file by the text of an id; it is looked for one when it is asked for.

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
    """The thumbnails of an .sqlite gallery by id, read when one is asked for."""

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
