"""Files that a command reads and writes: embeddings, records, paths of images."""

import json
import os
import re
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, cast

import typer

from nearsure.atomic import remove_dead_drafts, resolved
from nearsure.cli.console import show_table, tell
from nearsure.errors import ConfigError, InvalidInputError, NearsureError

if TYPE_CHECKING:
    from nearsure.arrays import AnyArray
    from nearsure.classifier import NEDClassifier
    from nearsure.embedding_files import (
        EmbeddingChunk,
        EmbeddingStream,
    )


# A scheme with a path or with somebody's name; of a Path, which has one slash only, too.
ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*:(/|.*@)|(postgres|postgresql|milvus):", re.IGNORECASE)


def check_files(
    inputs: Mapping[str, str | Path | None], outputs: Mapping[str, Path | None]
) -> None:
    """An error if an output cannot be written, or is an input or another output.

    What commands that were killed have left beside an output is removed.

    Parameters
    ----------
    inputs, outputs : mapping of str to path
        By the name of the option; None and "-" (a standard stream) are no files.
    """
    taken: dict[Path, str] = {}
    for option, given in inputs.items():
        path = _file(given)
        if path is None:
            continue
        refuse_address(option, given)
        taken.setdefault(resolved(path), option)
    for option, given in outputs.items():
        path = _file(given)
        if path is None:
            continue
        check_writable(option, path)
        if path.exists() and not path.is_file():
            # What is written to a device destroys nothing.
            continue
        other = taken.setdefault(resolved(path), option)
        if other != option:
            raise ConfigError(
                f"{option} must be another file than that of {other}, which it would destroy. "
                f"Got {given} for both."
            )
        remove_dead_drafts(resolved(path).parent)


def refuse_address(option: str, given: str | Path | None) -> None:
    """An error, which does not repeat it, if an engine's address stands for a file."""
    text = str(given)
    is_sqlite = text.startswith("sqlite:") and "@" not in text
    if ADDRESS.match(text) and not is_sqlite and not Path(text).exists():
        raise ConfigError(
            f"{option} must be a file. Got an address, which is not repeated here, as it may hold "
            "a password. Engines are written postgresql://... or https://..., and --gallery says "
            "where the points of a model are."
        )


def check_suffix(option: str, path: Path | None, allowed: Sequence[str]) -> None:
    """An error unless a file is named for what it shall be; "-" is none."""
    if path is not None and str(path) != "-" and path.suffix.lower() not in allowed:
        raise ConfigError(f"{option} must end in {' or '.join(allowed)}. Got {path.name} instead.")


def check_writable(option: str, path: Path) -> None:
    """An error if it is plain already that a file cannot be written; folders will be made."""
    if path.is_dir():
        raise ConfigError(f"{option}: {path} is a folder: name a file in it.")
    in_place = path.exists() and not path.is_file()
    there = path if in_place else resolved(path).parent
    while not there.exists() and there != there.parent:
        there = there.parent
    if not in_place and not there.is_dir():
        raise ConfigError(f"{option}: {path} cannot be written: {there} is no folder.")
    if not os.access(there, os.W_OK):
        raise ConfigError(f"{option}: {path} cannot be written: this user may not write there.")


@contextmanager
def translate_errors(option: str, path: Path) -> Iterator[None]:
    """Turn the system's errors in the block into a sentence that names the option."""
    try:
        yield
    except NearsureError:
        # Some are errors of the system, too, and sentences already.
        raise
    except OSError as error:
        raise ConfigError(
            f"{option}: {path} cannot be written: {error.strerror or error}."
        ) from error


def _file(given: str | Path | None) -> Path | None:
    return None if given is None or str(given) == "-" else Path(str(given).removeprefix("sqlite:"))


@dataclass(frozen=True)
class Columns:
    """Which part of a file is what; None where names decide."""

    labels: Path | None = None
    vectors_key: str | None = None
    labels_key: str | None = None
    ids_key: str | None = None
    pictures_key: str | None = None
    format: str | None = None


def open_file(
    source: str, columns: Columns, *, labels: Literal["required", "optional", "none"]
) -> "EmbeddingStream":
    """Open the embeddings of a file, or of standard input."""
    from nearsure.embedding_files import open_embeddings

    return open_embeddings(
        source,
        labels_path=columns.labels,
        vectors_key=columns.vectors_key,
        labels_key=columns.labels_key,
        ids_key=columns.ids_key,
        pictures_key=columns.pictures_key,
        format=columns.format,
        labels=labels,
    )


def check_dimension(stream: "EmbeddingStream", classifier: "NEDClassifier", source: str) -> None:
    """An error if these cannot be queries of a gallery."""
    expected = int(classifier.n_features_in_)
    if stream.dimension != expected:
        raise InvalidInputError(
            f"Queries must have the dimension of the gallery, {expected}. "
            f"{source} has {stream.dimension} instead."
        )


def names_of(chunk: "EmbeddingChunk") -> "AnyArray":
    """What the rows are called: their ids, or else their numbers."""
    import numpy as np

    if chunk.ids is not None:
        return chunk.ids
    return np.arange(chunk.first_row, chunk.first_row + len(chunk.vectors))


def labels_of(chunk: "EmbeddingChunk") -> "AnyArray":
    """Labels of rows that were opened with labels="required"."""
    return cast("AnyArray", chunk.labels)


def match_labels(labels: "AnyArray", classes: "AnyArray") -> "AnyArray":
    """Convert labels to the kind of a gallery's: a csv file has "7" where an npz file has 7.

    Parameters
    ----------
    labels : array of shape (n,)
        Integers or strings.
    classes : array of shape (n_classes,)
        The gallery's.

    Examples
    --------
    >>> import numpy as np
    >>> match_labels(np.array([7, 8]), np.array(["7", "9"]))
    array(['7', '8'], dtype='<U21')
    """
    import numpy as np

    from nearsure.embedding_files.tables import is_written_integer

    if classes.dtype.kind == "U" and labels.dtype.kind != "U":
        return labels.astype(str)
    if classes.dtype.kind in "iu" and labels.dtype.kind == "U":
        texts = [str(label) for label in labels if not is_written_integer(label)]
        if texts:
            raise InvalidInputError(
                "Labels of the queries must be integers, as those of the gallery are. Got "
                f"{texts[0]!r} instead."
            )
        return labels.astype(np.int64)
    return labels


NAMES_SHOWN = 3


class ImagePaths:
    """Finds image files; those outside their folder are left out.

    Parameters
    ----------
    source : str
        The file that names them, or "-".
    root : path or None
        Folder that they must lie in, and that paths start from; by default that of the file.
    """

    def __init__(self, source: str, root: Path | None) -> None:
        folder = Path() if source == "-" else Path(source).parent
        self._root = _absolute(folder if root is None else root)
        self._starts = (folder,) if root is None else (root, folder)
        self._refused: dict[str, None] = {}

    def of(self, written: str | None) -> Path | None:
        """The path of an image; None if there is none, or it may not be read."""
        if not written:
            return None
        try:
            path = self._find(written)
        except (OSError, RuntimeError):
            # Too long, without a right to look, or a link to itself.
            path = None
        if path is None:
            self._refused[written] = None
        return path

    def tell(self) -> None:
        """Print which images were left out."""
        if not self._refused:
            return
        names = ", ".join(map(repr, list(self._refused)[:NAMES_SHOWN]))
        more = ", ..." if len(self._refused) > NAMES_SHOWN else ""
        tell(
            f"left out {len(self._refused)} images that are no files below {self._root}: {names}"
            f"{more}. --images-root names the folder that images may be in."
        )

    def _find(self, written: str) -> Path | None:
        places = [_absolute(start / written) for start in self._starts]
        allowed = [path for path in places if self._is_below(path)]
        for path in allowed:
            if path.is_file():
                return path
        # Reading a missing file gives an error of its own.
        missing = [path for path in allowed if not path.exists()]
        return missing[0] if missing else None

    def _is_below(self, path: Path) -> bool:
        # A link below the folder is its owner's wish; and so is a folder that is itself a link.
        return path.is_relative_to(self._root) or path.resolve().is_relative_to(
            self._root.resolve()
        )


def _absolute(path: Path) -> Path:
    """Without "..", unlike that of Path."""
    return Path(os.path.abspath(path))  # noqa: PTH100


# Options of engines whose values are nobody else's business.
SECRET = re.compile("password|passwd|token|secret|key", re.IGNORECASE)


def command_line() -> str:
    """The command as it was typed, without the folders of this machine and without passwords."""
    words = []
    for word in sys.argv[1:]:
        option, equals, value = word.partition("=") if word.startswith("--") else ("", "", word)
        name, _, secret = value.partition("=")
        public = f"{name}=..." if secret and SECRET.search(name) else _redact(value)
        words.append(f"{option}{equals}{public}")
    return shlex.join(["nearsure", *words])


def _redact(value: str) -> str:
    scheme, slashes, _ = value.partition("://")
    if slashes:
        return f"{scheme}://..."
    if ADDRESS.match(value):
        return f"{value.partition(':')[0]}:..."
    path = Path(value)
    return path.name if path.is_absolute() or ".." in path.parts else value


def print_written(files: Iterable[Path]) -> None:
    """Print the names of files that were written."""
    for path in files:
        typer.echo(f"wrote {path}")


Format = Literal["csv", "jsonl", "json", "parquet"]
RecordColumns = Mapping[str, Sequence[Any]]
SUFFIXES: dict[str, Format] = {
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".parquet": "parquet",
}


@dataclass(frozen=True)
class Destination:
    """Where records go.

    Parameters
    ----------
    path : path or None
        None is standard output.
    format : str or None
        None is a table of the first `rows`.
    guard_formulas : bool
        Whether texts in csv that a spreadsheet would compute are guarded against that.
    """

    path: Path | None
    format: Format | None
    rows: int
    guard_formulas: bool = False

    @classmethod
    def from_options(
        cls,
        output: Path | None,
        output_format: Format | None,
        *,
        as_json: bool,
        rows: int,
        guard_formulas: bool = False,
    ) -> Self:
        """The destination that options name."""
        destination = cls._from_options(output, output_format, as_json=as_json, rows=rows)
        if guard_formulas and destination.format != "csv":
            raise ConfigError(
                "--guard-formulas is of csv: give -o FILE.csv or --format csv, or leave it out."
            )
        return replace(destination, guard_formulas=guard_formulas)

    @classmethod
    def _from_options(
        cls, output: Path | None, output_format: Format | None, *, as_json: bool, rows: int
    ) -> Self:
        if as_json and (output is not None or output_format not in {None, "json"}):
            raise ConfigError("--json is of standard output: leave out --output and --format.")
        if output is not None:
            check_writable("--output", output)
            named = SUFFIXES.get(output.suffix.lower())
            if output_format is None and named is None:
                raise ConfigError(
                    "--output must end in .csv, .jsonl, .json or .parquet, or --format must say "
                    f"what it shall be. Got {output.name} instead."
                )
            return cls(output, output_format or named, rows)
        if as_json:
            return cls(None, "json", rows)
        return cls(None, output_format or (None if sys.stdout.isatty() else "csv"), rows)

    @property
    def is_table(self) -> bool:
        """Whether only the first rows are wanted."""
        return self.format is None

    def write(self, title: str, parts: Iterable[RecordColumns], *, say: bool = True) -> None:
        """Write records, columns of some rows at a time.

        Parameters
        ----------
        title : str
            Of a table.
        parts : iterable of mappings
            Columns by name.
        say : bool
            Whether a file that was written is named.
        """
        from nearsure.embedding_files import open_records

        if self.format is None:
            _show_table(title, parts, self.rows)
            return
        with open_records(self.path, self.format, guard_formulas=self.guard_formulas) as writer:
            for columns in parts:
                writer.write(columns)
                if not writer.is_wanted:
                    return
        if self.path is not None and say:
            print_written([self.path])


def _show_table(title: str, parts: Iterable[RecordColumns], n_rows: int) -> None:
    header: list[str] = []
    rows: list[list[str]] = []
    for columns in parts:
        header = list(columns)
        rows += [
            [_format_cell(value) for value in values]
            for values in zip(*columns.values(), strict=True)
        ]
        if len(rows) >= n_rows:
            break
    show_table(title, header, rows[:n_rows])


def _format_cell(value: object) -> str:
    plain = cast("Any", value)
    if hasattr(plain, "item"):
        plain = plain.item()
    if plain is None:
        return "-"
    if isinstance(plain, bool):
        return "yes" if plain else "no"
    if isinstance(plain, float):
        return f"{plain:.4f}"
    if isinstance(plain, list):
        return "\n".join(_format_entry(entry) for entry in plain)
    return str(plain)


def _format_entry(entry: object) -> str:
    """A class with its probability, or a neighbour, on one line."""
    if not isinstance(entry, dict):
        return json.dumps(entry)
    return "  ".join(_format_cell(value) for value in entry.values())
