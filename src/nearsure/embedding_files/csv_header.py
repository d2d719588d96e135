"""What the columns of a CSV file are, from its first line."""

from collections import Counter
from dataclasses import dataclass

from nearsure.embedding_files.keys import Keys
from nearsure.embedding_files.sources import Source
from nearsure.errors import EmbeddingsFileError

LIST_NAMES = ("vector", "embedding")


@dataclass(frozen=True)
class CsvColumns:
    """Places of the columns: of names, and of the numbers or the one list that is the vector."""

    label: int | None
    id: int | None
    picture: int | None
    numbers: list[int]
    list: int | None


def csv_columns(source: Source, header: list[str], keys: Keys) -> CsvColumns:
    """Read a header.

    Raises
    ------
    EmbeddingsFileError
        If it is no header, names a column twice or not at all, or lacks one that was asked for.
    """
    _check_is_header(source, header)
    label = _place(source, header, keys.labels, ("label", "labels_key"))
    ids = _place(source, header, keys.ids, ("id", "ids_key"))
    picture = _place(source, header, keys.pictures, ("image", "pictures_key"))
    if keys.need_labels and label is None:
        raise EmbeddingsFileError(_lacking(source, header, "label", "labels_key"))
    places = None
    if keys.vectors is not None:
        places = [_place(source, header, keys.vectors, ("vector", "vectors_key"))]
    else:
        places = [place for place, name in enumerate(header) if name.lower() in LIST_NAMES]
    if len(places) > 1:
        raise EmbeddingsFileError(
            f"{source} has a column 'vector' and one 'embedding': say which (vectors_key)."
        )
    numbers = [place for place in range(len(header)) if place not in (label, ids, picture)]
    if not numbers:
        raise EmbeddingsFileError(
            f"{source} must have columns for the vector, of numbers, or one called "
            f"{' or '.join(LIST_NAMES)} of JSON lists. It has {_listed(header)}."
        )
    taken = label if keys.take_labels else None
    return CsvColumns(taken, ids, picture, numbers, places[0] if places else None)


def _check_is_header(source: Source, header: list[str]) -> None:
    as_pandas_counts = len(header) > 1 and header == [str(i) for i in range(len(header))]
    if all(_is_number(name) for name in header) and not as_pandas_counts:
        raise EmbeddingsFileError(
            f"{source} must begin with a line of names, such as id,label,x0,x1. "
            f"Got {_listed(header)} instead."
        )
    twice = [name for name, count in Counter(header).items() if count > 1]
    if twice:
        raise EmbeddingsFileError(
            f"{source} has more than one column {twice[0]!r}: give each a name of its own."
        )
    for place, name in enumerate(header, 1):
        # Where a table was saved with the numbers of its rows, they would enter every vector.
        if not name.strip() or name.startswith("Unnamed:"):
            raise EmbeddingsFileError(
                f"Column {place} of {source} has no name: call it id, or leave it out (in pandas: "
                "to_csv(..., index=False))."
            )
    if len(header) == 1 and any(mark in header[0] for mark in ";\t"):
        raise EmbeddingsFileError(
            f"{source} must have commas between its columns. Its first line is {header[0]!r}."
        )


def _place(
    source: Source, header: list[str], key: str | None, usual_and_option: tuple[str, str]
) -> int | None:
    usual, option = usual_and_option
    if key is None:
        same = [place for place, name in enumerate(header) if name.lower() in (usual, f"{usual}s")]
        if len(same) > 1:
            raise EmbeddingsFileError(
                f"{' and '.join(repr(header[place]) for place in same)} could each be the {usual} "
                f"in {source}: say which ({option})."
            )
        return same[0] if same else None
    if key not in header:
        raise EmbeddingsFileError(_lacking(source, header, key, option))
    return header.index(key)


def _lacking(source: Source, header: list[str], key: str, option: str) -> str:
    return f"{source} has no column {key!r} ({option}). It has {_listed(header)}."


def _listed(header: list[str], longest: int = 12) -> str:
    shown = ", ".join(map(repr, header[:longest]))
    return shown if len(header) <= longest else f"{shown} and {len(header) - longest} more"


def _is_number(name: str) -> bool:
    try:
        float(name)
    except ValueError:
        return False
    return True
