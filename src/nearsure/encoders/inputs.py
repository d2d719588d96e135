"""Inputs of encoders: images in folders, texts in a file; each with its id, label and group."""

import csv
import io
import json
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from nearsure.embedding_files.tables import VECTOR_FIELDS
from nearsure.encoders import EncoderKind
from nearsure.errors import EmbeddingsFileError

IMAGE_SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp")
# How files of these begin; a file that begins otherwise is no image.
SIGNATURES = (b"\xff\xd8\xff", b"\x89PNG", b"GIF8", b"BM", b"II*\0", b"MM\0*", b"RIFF")
# Of a csv file, to tell vectors from what else stands beside a text.
ROWS_LOOKED_AT = 100
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
    group : str or None
        Folder of the image below that of its class, if folders are groups; or what the file says.
    """

    id: str | int
    label: str | int | None = None
    image: Path | None = None
    text: str = ""
    group: str | None = None

    def content(self) -> bytes | str:
        """What an encoder takes."""
        return self.text if self.image is None else self.image.read_bytes()


def input_kind(source: str) -> EncoderKind | None:
    """What a path holds that has to be encoded; None for vectors, and for what is not there.

    A folder or an image file holds images; a .txt file texts, and so does a .csv or .jsonl file
    with a column "text" and none of vectors. Numbered columns of numbers (x0, x1, ...) are one.
    """
    path = Path(source)
    suffix = path.suffix.lower()
    if path.is_dir() or (suffix in IMAGE_SUFFIXES and path.is_file()):
        return "image"
    if suffix not in READERS or not path.is_file():
        return None
    if suffix == ".txt":
        return "text"
    try:
        with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
            if suffix == ".csv":
                rows = (row for row in csv.reader(file) if row)
                names, first_rows = next(rows, []), list(islice(rows, ROWS_LOOKED_AT))
            else:
                names = list(json.loads(next((line for line in file if line.strip()), "")))
                first_rows = []
    except (ValueError, TypeError, RecursionError, csv.Error):
        return None
    has_vectors = bool(set(VECTOR_FIELDS).intersection(names)) or _has_numbers(names, first_rows)
    return "text" if "text" in names and not has_vectors else None


def _has_numbers(names: list[str], rows: list[list[str]]) -> bool:
    """Whether columns are numbered and hold numbers: others may say more about a text."""
    numbered = [place for place, name in enumerate(names) if re.search(r"\d$", name)]
    # What is empty says nothing.
    values = [row[place] for row in rows for place in numbered if row[place:] and row[place]]
    return len(numbered) > 1 and bool(values) and all(map(_is_number, values))


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def read_inputs(
    source: Path,
    kind: EncoderKind,
    *,
    groups_from_folder: bool = False,
    groups_key: str | None = None,
) -> list[EncoderInput]:
    """All inputs of a folder or file, each id once; ids, and labels, all texts or all integers."""
    found = input_kind(str(source))
    if found not in (None, kind):
        raise EmbeddingsFileError(
            f"{source} holds {found}s, and the encoder takes {kind}s: name one that takes {found}s."
        )
    if kind == "image" and groups_key is not None:
        raise EmbeddingsFileError(
            f"groups_key names a column of a file. {source} holds images, whose groups are "
            "folders: --groups-from-folder."
        )
    if kind == "image":
        inputs = image_inputs(source, groups_from_folder=groups_from_folder)
    elif groups_from_folder:
        raise EmbeddingsFileError(f"Groups by folder are of images. {source} holds texts.")
    else:
        inputs = text_inputs(source, groups_key)
    for name, values in (
        ("ids", [one.id for one in inputs]),
        ("labels", [one.label for one in inputs if one.label is not None]),
    ):
        if len({type(value) for value in values}) > 1:
            raise EmbeddingsFileError(
                f"The {name} of {source} must all be text, or all be integers. Got both."
            )
    seen: set[str | int] = set()
    for one in inputs:
        if one.id in seen:
            raise EmbeddingsFileError(f"{source} must name each row once. Got id {one.id!r} twice.")
        seen.add(one.id)
    return inputs


def why_unreadable(path: Path) -> str | None:
    """Why a file cannot be an image, by its first bytes; None if it may be one."""
    try:
        with path.open("rb") as file:
            head = file.read(16)
    except OSError as error:
        return f"{error.strerror or error}"
    if not head:
        return "it is empty"
    is_known = head.startswith(SIGNATURES) and (head[:4] != b"RIFF" or head[8:12] == b"WEBP")
    return None if is_known else "it is not an image of a known kind"


def image_inputs(folder: Path, *, groups_from_folder: bool = False) -> list[EncoderInput]:
    """The images below a folder, by name; the folder that an image lies in is its label.

    Parameters
    ----------
    folder : Path
        Holds a folder for each class; or images, which then have no label. An image file is taken
        alone.
    groups_from_folder : bool
        Whether images lie in CLASS/GROUP/: the folder above is the label, and this one the group.
    """
    if folder.is_file() and folder.suffix.lower() in IMAGE_SUFFIXES:
        return [EncoderInput(folder.name, image=folder)]
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
    classes = {path: path.parent.parent if groups_from_folder else path.parent for path in files}
    without = [path for path, own in classes.items() if not own.is_relative_to(folder)]
    without += [path for path, own in classes.items() if own == folder]
    if without and (groups_from_folder or len(without) < len(files)):
        needed = (
            "must lie in CLASS/GROUP/, so that the folder it lies in is its group"
            if groups_from_folder
            else "lies beside the folders of classes. It must lie in one of them"
        )
        raise EmbeddingsFileError(f"{without[0]} {needed}.")
    folders: dict[str, Path] = {}
    for own in classes.values():
        other = folders.setdefault(own.name, own)
        if other != own:
            raise EmbeddingsFileError(
                f"{other} and {own} have the same name, and would be one class. Rename one of "
                "them, or name the folder that holds the classes; if they hold groups of images, "
                "fit with --groups-from-folder."
            )
    return [
        EncoderInput(
            path.relative_to(folder).as_posix(),
            None if without else own.name,
            image=path,
            group=path.parent.relative_to(folder).as_posix() if groups_from_folder else None,
        )
        for path, own in classes.items()
    ]


def text_inputs(source: Path, groups_key: str | None = None) -> list[EncoderInput]:
    """The texts of a file.

    Parameters
    ----------
    source : Path
        A .txt file of one text a line; a .csv file with a column ``text`` and perhaps ``label``
        and ``id``; or a .jsonl file of objects with these fields. "-" is standard input, a text a
        line.
    groups_key : str, optional
        The column or field that says which texts belong together.
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
    inputs = [_input(source, number, row, groups_key) for number, row in rows]
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


def _input(source: Path, number: int, row: dict[str, Any], groups_key: str | None) -> EncoderInput:
    text, label = row.get("text"), row.get("label")
    if not isinstance(text, str) or not text.strip():
        raise EmbeddingsFileError(f"Line {number} of {source} must have a text. Got {text!r}.")
    own_id = row.get("id", str(number))
    group = None if groups_key is None else row.get(groups_key)
    if groups_key is not None and group is None:
        raise EmbeddingsFileError(
            f"groups_key names {groups_key!r}, which line {number} of {source} does not have."
        )
    for name, value in (("label", label), ("id", own_id), ("group", group)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, str | int)):
            raise EmbeddingsFileError(
                f"The {name} in line {number} of {source} must be a text or an integer. "
                f"Got {value!r} instead."
            )
    return EncoderInput(own_id, label, text=text, group=None if group is None else str(group))
