"""Images that a data set's own lists name, and checks that the archive is whole."""

import os
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from nearsure.errors import DatasetError
from nearsure.lab.datasets.image_file import read_image
from nearsure.lab.datasets.labelled_images import LabelledImages, first_few


class Line(NamedTuple):
    """One line of a list: where it stands, for messages, and its columns."""

    place: str
    columns: tuple[str, ...]


def existing_folder(root: str | os.PathLike[str], *, dataset: str, expected: str) -> Path:
    """The root of a data set, if it is a folder that holds something.

    Parameters
    ----------
    root : path
        Where the images should be; ``~`` is the home folder.
    dataset : str
        Name of the data set, for messages.
    expected : str
        What should be in the folder, for messages.

    Raises
    ------
    DatasetError
        If it is missing, a file, not to be read, or empty.
    """
    folder = Path(root).expanduser()
    if not folder.exists():
        problem = "it does not exist"
    elif not folder.is_dir():
        problem = "it is a file, not a folder; an archive must be unpacked first"
    elif not _listing(folder):
        problem = "it is empty"
    else:
        return folder
    raise DatasetError(f"{dataset} should be in {folder}: {expected}. But {problem}.")


def require_parts(folder: Path, parts: Sequence[str], *, dataset: str) -> None:
    """Raise an error unless the folder holds all these files and folders (``name/``)."""
    missing = [
        part
        for part in parts
        if not ((folder / part).is_dir() if part.endswith("/") else (folder / part).is_file())
    ]
    if missing:
        raise DatasetError(
            f"{dataset} is half unpacked: {folder} should hold {', '.join(parts)}. "
            f"Missing: {', '.join(missing)}. Unpack the archive again."
        )


def read_list(
    path: Path, columns: Sequence[str], *, dataset: str, n_lines_before: int = 0
) -> Iterator[Line]:
    """The lines of a text file whose columns are parted by white space.

    Parameters
    ----------
    path : Path
        The file, UTF-8. The last column may hold spaces. Empty lines are passed over.
    columns : sequence of str
        Names of the columns, for messages.
    dataset : str
        Name of the data set, for messages.
    n_lines_before : int
        Lines to pass over at the start.

    Raises
    ------
    DatasetError
        If the file is not text, or a line has fewer columns.
    """
    try:
        with path.open(encoding="utf-8-sig") as file:
            for number, text in enumerate(file, start=1):
                cells = tuple(cell.strip() for cell in text.split(maxsplit=len(columns) - 1))
                if number <= n_lines_before or not cells:
                    continue
                line = Line(f"line {number} of {path}", cells)
                if len(cells) < len(columns):
                    raise bad_line(line, f"'{' '.join(columns)}'", dataset=dataset)
                yield line
    except UnicodeDecodeError as error:
        raise DatasetError(f"{dataset}: {path} is not a text file ({error}).") from error


def bad_line(line: Line, expected: str, *, dataset: str) -> DatasetError:
    """The error about a line that does not parse."""
    return DatasetError(
        f"{dataset}: {line.place} should read {expected}. Got '{' '.join(line.columns)}' instead."
    )


def listed_images(
    folder: Path,
    paths: Sequence[str],
    labels: Sequence[str],
    *,
    dataset: str,
    source: Path,
    names: Sequence[str] | None = None,
) -> LabelledImages:
    """Images that a list names, after a check that all are there.

    Folders are listed once each; no file is touched, so that 100,000 files take a second or two.

    Parameters
    ----------
    folder : Path
        What `paths` are relative to.
    paths : sequence of str
        Paths of the images with forward slashes.
    labels : sequence of str
        Class of each.
    dataset : str
        Name of the data set, for messages.
    source : Path
        The list, for messages.
    names : sequence of str, optional
        What the images are called; by default their paths.

    Raises
    ------
    DatasetError
        If a file is absent, is listed twice, or lies outside of the folder.
    """
    kept = tuple(paths)
    _refuse_odd_paths(kept, dataset=dataset, source=source)
    absent = _absent(folder, kept)
    if absent:
        raise DatasetError(
            f"{dataset} is half unpacked: {len(absent)} of {len(kept)} images that {source} lists "
            f"are not in {folder}: {first_few(absent)}. Unpack the archive again."
        )
    return LabelledImages(
        kept if names is None else tuple(names),
        tuple(labels),
        lambda i: read_image(folder / kept[i]),
    )


def _refuse_odd_paths(paths: Sequence[str], *, dataset: str, source: Path) -> None:
    repeated = [path for path, count in Counter(paths).items() if count > 1]
    if repeated:
        # A query would find itself.
        raise DatasetError(f"{dataset}: {source} lists images twice: {first_few(repeated)}.")
    outside = [path for path in paths if path.startswith("/") or ".." in path.split("/")]
    if outside:
        raise DatasetError(
            f"{dataset}: {source} must list paths inside of its folder. "
            f"Got {first_few(outside)} instead."
        )


def _absent(folder: Path, paths: Sequence[str]) -> list[str]:
    by_parent: defaultdict[str, list[str]] = defaultdict(list)
    for path in paths:
        by_parent[path.rpartition("/")[0]].append(path)
    absent: list[str] = []
    for parent, members in by_parent.items():
        there = _listing(folder / parent)
        absent += [path for path in members if path.rpartition("/")[2] not in there]
    return absent


def _listing(folder: Path) -> set[str]:
    """Names in a folder; none if there is no such folder."""
    try:
        with os.scandir(folder) as entries:
            return {entry.name for entry in entries}
    except (FileNotFoundError, NotADirectoryError):
        return set()
    except OSError as error:
        raise DatasetError(f"The folder {folder} cannot be listed: {error.strerror}.") from error
