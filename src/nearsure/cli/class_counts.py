"""How many points a gallery has of each class, from a small file."""

import csv
import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from nearsure.arrays import AnyArray, IntArray
from nearsure.cli.input_files import labels_like
from nearsure.errors import InvalidInputError
from nearsure.labels import codes_of

HEADER = ["label", "count"]


def class_counts_in(path: Path, kind: AnyArray) -> tuple[AnyArray, IntArray]:
    """Labels, sorted and of the kind of some others, and their counts.

    Parameters
    ----------
    path : path
        CSV with the columns label and count, or JSON: ``{"owl": 120, "wren": 80}``.
    kind : array
        Labels of the gallery, integers or texts.

    Returns
    -------
    labels, counts : arrays of shape (n_classes,)
    """
    counts = _document(path) if path.suffix.lower() == ".json" else _table(path)
    names = labels_like(np.array(list(counts), str), kind)
    labels, first = np.unique(names, return_index=True)
    return labels, np.array(list(counts.values()), np.int64)[first]


def check_all_counted(path: Path, labels: AnyArray, counted: AnyArray) -> None:
    """An error if a label was not counted."""
    missing = np.unique(labels[codes_of(labels, counted) == len(counted)])
    if missing.size:
        raise InvalidInputError(
            f"{path} must count every class of the gallery. Got none of {str(missing[0])!r}."
        )


def _document(path: Path) -> dict[str, int]:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InvalidInputError(f"{path} is not JSON: {error}.") from error
    if not isinstance(document, Mapping) or not document:
        raise InvalidInputError(f'{path} must be a JSON object such as {{"owl": 120, "wren": 80}}.')
    return {label: _count(path, label, count) for label, count in document.items()}


def _table(path: Path) -> dict[str, int]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            header, *rows = list(csv.reader(file)) or [[]]
    except (csv.Error, UnicodeDecodeError) as error:
        raise InvalidInputError(f"{path} is not CSV: {error}.") from error
    rows = [row for row in rows if row]
    if header != HEADER or not rows or any(len(row) != len(HEADER) for row in rows):
        raise InvalidInputError(f"{path} must have the columns label,count and no others.")
    counts: dict[str, int] = {}
    for label, count in rows:
        if label in counts:
            raise InvalidInputError(f"{path} counts {label!r} more than once.")
        counts[label] = _count(path, label, int(count) if count.isdecimal() else count)
    return counts


def _count(path: Path, label: str, count: object) -> int:
    if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count < 2**63:
        raise InvalidInputError(
            f"{path}: the count of {label!r} must be a whole number. Got {count!r} instead."
        )
    return count
