"""`nearsure report`: what is done."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from nearsure.classifier import NEDClassifier
from nearsure.cli.input_files import (
    Columns,
    check_dimension,
    folder_of,
    labels_like,
    labels_of,
    names_of,
    opened_file,
)
from nearsure.cli.opened_model import opened_model
from nearsure.cli.saying import busy
from nearsure.cli.typed_command import say_files
from nearsure.engines.sqlite import SqliteEngine
from nearsure.errors import ConfigError
from nearsure.report import Report, gallery_report, query_report, report_html, report_json
from nearsure.report.thumbnails import Picture
from nearsure.whole_files import write_text_whole


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
    if html is None and json is None:
        raise ConfigError("Where shall the report go? -o report.html, --json report.json or both.")
    if request.queries is None and request.columns != Columns():
        raise ConfigError("Names of columns were given without QUERIES, whose they are.")
    with opened_model(model, gallery, options) as classifier, busy("reporting"):
        report = _report(classifier, request, request.title or model.stem)
    if html is not None:
        write_text_whole(html, report_html(report))
    if json is not None and str(json) != "-":
        write_text_whole(json, report_json(report) + "\n")
    elif json is not None:
        typer.echo(report_json(report))
        return
    say_files(path for path in (html, json) if path is not None)


def _report(classifier: NEDClassifier, request: ReportRequest, title: str) -> Report:
    settings: dict[str, Any] = {
        "title": title,
        "seed": request.seed,
        "n_resamples": request.n_resamples,
        "n_mistakes": request.n_mistakes,
        "n_suspects": request.n_suspects,
    }
    pictures = _gallery_pictures(classifier, request)
    if request.queries is None:
        return gallery_report(classifier, pictures=pictures, **settings)
    with opened_file(request.queries, request.columns, labels="required") as stream:
        check_dimension(stream, classifier, request.queries)
        points = stream.read_all()
    root = request.images_root or folder_of(request.queries)
    return query_report(
        classifier,
        points.vectors,
        labels_like(labels_of(points), classifier.classes_),
        ids=points.ids,
        pictures=None
        if points.pictures is None
        else [None if picture is None else root / picture for picture in points.pictures],
        gallery_pictures=pictures,
        **settings,
    )


def _gallery_pictures(
    classifier: NEDClassifier, request: ReportRequest
) -> Mapping[object, Picture] | None:
    if request.gallery_images is not None:
        root = request.images_root or folder_of(request.gallery_images)
        pictures: dict[object, Picture] = {}
        with opened_file(request.gallery_images, Columns(), labels="optional") as stream:
            for chunk in stream.chunks():
                for name, picture in zip(
                    names_of(chunk).tolist(), chunk.pictures or (), strict=False
                ):
                    if picture is not None:
                        pictures[name] = root / picture
        return pictures
    engine = classifier.engine_
    return KeptPictures(engine) if isinstance(engine, SqliteEngine) else None


class KeptPictures(Mapping[object, Picture]):
    """The thumbnails of an .sqlite gallery by id, read when one is asked for."""

    def __init__(self, engine: SqliteEngine) -> None:
        self._engine = engine

    def __getitem__(self, key: object) -> Picture:
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
