"""Inputs of encoders: images in folders, texts in a file; each with its id and label."""

import csv
import io
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nearsure.errors import EmbeddingsFileError

IMAGE_SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp")
Rows = Iterator[tuple[int, dict[str, Any]]]


@dataclass(frozen=True)
class EncoderInput:
    """One image or text.

    Parameters
    ----------
    id : str
        Path of the image below its folder, number of the line, or the id in the file.
    label : str or int or None
        Folder of the image, or the label in the file.
    image : Path or None
        The image.
    text : str
        The text; empty for an image.
    """

    id: str | int
    label: str | int | None = None
    image: Path | None = None
    text: str = ""

    def content(self) -> bytes | str:
        """What an encoder takes."""
        return self.text if self.image is None else self.image.read_bytes()


def image_inputs(folder: Path) -> list[EncoderInput]:
    """The images below a folder, by name; the folder that an image lies in is its label.

    Parameters
    ----------
    folder : Path
        Holds a folder for each class; or images, which then have no label.
    """
    if not folder.is_dir():
        raise EmbeddingsFileError(
            f"{folder} must be a folder of images, with a folder for each class if there are "
            "labels."
        )
    files = sorted(path for path in folder.rglob("*") if path.suffix.lower() in IMAGE_SUFFIXES)
    if not files:
        raise EmbeddingsFileError(
            f"{folder} holds no images: no file in it ends in {', '.join(IMAGE_SUFFIXES)}."
        )
    labels = {path: path.parent.name if path.parent != folder else None for path in files}
    without = [path for path, label in labels.items() if label is None]
    if without and len(without) < len(files):
        raise EmbeddingsFileError(
            f"{without[0]} lies beside the folders of classes. Move it into one of them."
        )
    return [
        EncoderInput(path.relative_to(folder).as_posix(), label, image=path)
        for path, label in labels.items()
    ]


def text_inputs(source: Path) -> list[EncoderInput]:
    """The texts of a file.

    Parameters
    ----------
    source : Path
        A .txt file of one text a line; a .csv file with a column ``text`` and perhaps ``label``
        and ``id``; or a .jsonl file of objects with these fields. "-" is standard input, a text a
        line.
    """
    if str(source) == "-":
        rows = _lines(source, sys.stdin.read())
    elif source.suffix.lower() not in READERS:
        raise EmbeddingsFileError(
            f"A file of texts must end in {', '.join(READERS)}. Got {source.name} instead."
        )
    else:
        try:
            content = source.read_text(encoding="utf-8-sig")
        except UnicodeDecodeError as error:
            raise EmbeddingsFileError(f"{source} must be UTF-8 text: {error}.") from error
        rows = READERS[source.suffix.lower()](source, content)
    inputs = [_input(source, number, row) for number, row in rows]
    if not inputs:
        raise EmbeddingsFileError(f"{source} holds no text.")
    labelled = sum(one.label is not None for one in inputs)
    if 0 < labelled < len(inputs):
        raise EmbeddingsFileError(
            f"{source} must give all of its {len(inputs)} texts a label, or none. "
            f"{len(inputs) - labelled} have none."
        )
    return inputs


def _lines(_: Path, content: str) -> Rows:
    return (
        (number, {"text": line})
        for number, line in enumerate(content.replace("\r", "").split("\n"), 1)
        if line.strip()
    )


def _csv_rows(source: Path, content: str) -> Rows:
    reader = csv.DictReader(io.StringIO(content, newline=""), strict=True)
    if "text" not in (reader.fieldnames or []):
        raise EmbeddingsFileError(
            f"{source} must have a column 'text'. Its first line is {reader.fieldnames}."
        )
    try:
        yield from ((reader.line_num, {k: v for k, v in row.items() if v}) for row in reader)
    except csv.Error as error:
        raise EmbeddingsFileError(
            f"Line {reader.line_num} of {source} is no CSV: {error}."
        ) from error


def _json_rows(source: Path, content: str) -> Rows:
    for number, line in enumerate(content.split("\n"), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise EmbeddingsFileError(f"Line {number} of {source} is no JSON: {error}.") from error
        if not isinstance(row, dict):
            raise EmbeddingsFileError(f"Line {number} of {source} must be an object.")
        yield number, row


# By the suffix of a file: numbers of lines, and what stands there.
READERS: dict[str, Callable[[Path, str], Rows]] = {
    ".csv": _csv_rows,
    ".jsonl": _json_rows,
    ".ndjson": _json_rows,
    ".txt": _lines,
}


def _input(source: Path, number: int, row: dict[str, Any]) -> EncoderInput:
    text, label = row.get("text"), row.get("label")
    if not isinstance(text, str) or not text.strip():
        raise EmbeddingsFileError(f"Line {number} of {source} must have a text. Got {text!r}.")
    own_id = row.get("id", str(number))
    for name, value in (("label", label), ("id", own_id)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, str | int)):
            raise EmbeddingsFileError(
                f"The {name} in line {number} of {source} must be a text or an integer. "
                f"Got {value!r} instead."
            )
    return EncoderInput(own_id, label, text=text)
