"""Partitions of a data set, and the manifest of those that are scored."""

import glob
import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from nearsure.atomic import write_text_whole
from nearsure.embedding_files.parquet import first_rows, open_parquet, read_rows
from nearsure.errors import EmbeddingsFileError, InvalidInputError

if TYPE_CHECKING:
    import pyarrow as pa

# Of a file with more rows, several tasks read some row groups each.
ROWS_PER_PARTITION = 1_000_000
SUFFIX = ".parquet"


@dataclass(frozen=True)
class Partition:
    """Rows of one file that one task reads.

    Parameters
    ----------
    root : str
        Folder of the data set.
    file : str
        The file's path within it, with "/" between folders.
    first_row, n_rows : int
        Which rows of the file.
    whole : bool
        Whether they are all of its rows.
    size, modified_ns : int
        The file's size in bytes and time of change: another file of the same name differs.
    """

    root: str
    file: str
    first_row: int
    n_rows: int
    whole: bool
    size: int
    modified_ns: int

    @property
    def path(self) -> Path:
        """Where the file is."""
        return Path(self.root, self.file)

    @property
    def name(self) -> str:
        """Its name in messages, and that of its result: the file's name if it is whole."""
        if self.whole:
            return self.file
        stem = PurePosixPath(self.file).with_suffix("")
        return f"{stem}.rows-{self.first_row:012d}{SUFFIX}"

    def read_rows(
        self, columns: Sequence[str], batch_size: int
    ) -> Iterator[tuple[int, "pa.RecordBatch"]]:
        """The rows in batches, each with the number of its first row in the file.

        Raises
        ------
        EmbeddingsFileError
            At the latest after the last row, if the file is no longer what was listed.
        """
        yield from read_rows(
            self.path,
            columns,
            first_row=self.first_row,
            n_rows=self.n_rows,
            batch_size=batch_size,
        )
        self.check_unchanged()

    def check_unchanged(self) -> None:
        """Raise an error if the file is no longer what was listed."""
        try:
            status = self.path.stat()
        except OSError as error:
            raise EmbeddingsFileError(f"{self.path} cannot be read: {error.strerror}.") from error
        if (status.st_size, status.st_mtime_ns) != (self.size, self.modified_ns):
            raise EmbeddingsFileError(
                f"{self.path} has changed since it was listed. Start again when it is whole."
            )


@dataclass(frozen=True)
class Listing:
    """The partitions of a data set, and the files that cannot be read.

    Parameters
    ----------
    partitions : tuple of Partition
        In the order of file names, then of rows.
    broken : dict of str to str
        File names, with what is wrong.
    """

    partitions: tuple[Partition, ...]
    broken: dict[str, str]

    def require_readable(self) -> tuple[Partition, ...]:
        """The partitions, or an error if any file cannot be read."""
        if self.broken:
            raise EmbeddingsFileError(next(iter(self.broken.values())))
        return self.partitions


def list_partitions(
    source: str | os.PathLike[str], rows_per_partition: int = ROWS_PER_PARTITION
) -> Listing:
    """The partitions of a file, of a folder, or of what a pattern such as "data/*.parquet" matches.

    Files and folders whose names start with "." or "_" are left out: they are drafts and notes.
    """
    if rows_per_partition < 1:
        raise InvalidInputError(
            f"rows_per_partition must be at least 1. Got {rows_per_partition} instead."
        )
    root, files = _root_and_files(os.fspath(source))
    partitions: list[Partition] = []
    broken: dict[str, str] = {}
    for file in files:
        try:
            partitions += _divide(root, file, rows_per_partition)
        except EmbeddingsFileError as error:
            broken[file] = str(error)
    return Listing(tuple(partitions), broken)


def _root_and_files(source: str) -> tuple[Path, list[str]]:
    path = Path(source).absolute()
    if path.is_dir():
        root, found = path, list(path.rglob(f"*{SUFFIX}"))
    elif path.is_file():
        root, found = path.parent, [path]
    elif glob.has_magic(source):
        parts = path.parts
        fixed = next(i for i, part in enumerate(parts) if glob.has_magic(part))
        root = Path(*parts[:fixed])
        found = [Path(name) for name in glob.glob(str(path), recursive=True)]  # noqa: PTH207
    else:
        raise InvalidInputError(
            f"source must be a Parquet file, a folder of them or a pattern. There is no {source}."
        )
    names = (file.relative_to(root) for file in found if file.is_file())
    files = sorted(
        name.as_posix()
        for name in names
        if not any(part.startswith((".", "_")) for part in name.parts)
    )
    if not files:
        raise InvalidInputError(
            f"source must hold at least one file that ends in {SUFFIX}. Got none in {source}."
        )
    return root, files


def _divide(root: Path, file: str, rows_per_partition: int) -> Iterator[Partition]:
    path = root / file
    with open_parquet(path) as parquet:
        edges = first_rows(parquet)
    status = path.stat()
    firsts = [0]
    for start, end in pairwise(edges):
        if start > firsts[-1] and end - firsts[-1] > rows_per_partition:
            firsts.append(start)
    for first, last in pairwise([*firsts, edges[-1]]):
        yield Partition(
            root=str(root),
            file=file,
            first_row=first,
            n_rows=last - first,
            whole=len(firsts) == 1,
            size=status.st_size,
            modified_ns=status.st_mtime_ns,
        )


# What a scored partition was made from, so that it is made once and never taken for another.
#
# Every scored file carries, in its own footer, the digest of model, settings and partition: it is
# written with the rows or not at all. `scored.json` lists the partitions of a run that was
# finished; without it, a folder is not whole.


MANIFEST = "scored.json"
FORMAT = 1
FOOTER_KEY = b"nearsure"


def digest_of(partition: Partition, model: str, settings: Mapping[str, Any]) -> str:
    """The digest of all that a scored partition depends on."""
    made_from = {
        "format": FORMAT,
        "nearsure": version("nearsure"),
        "model": model,
        "settings": dict(settings),
        # Not the folder, so that a data set may move.
        "partition": {name: value for name, value in asdict(partition).items() if name != "root"},
    }
    text = json.dumps(made_from, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def is_scored(path: Path, digest: str) -> bool:
    """Whether a scored file is there, whole, and made from the same."""
    try:
        with open_parquet(path) as file:
            metadata = file.schema_arrow.metadata or {}
    except EmbeddingsFileError:
        return False
    return bool(metadata.get(FOOTER_KEY) == digest.encode())


def check_output(output: Path, source: str | os.PathLike[str], listing: Listing) -> None:
    """Raise an error unless a folder can hold results, and nothing that looks like them."""
    folder, origin = output.resolve(), Path(source).resolve()
    roots = {Path(partition.root).resolve() for partition in listing.partitions}
    if folder in roots or (origin.is_dir() and folder.is_relative_to(origin)):
        raise InvalidInputError(
            f"output must be a folder of its own, beside the source. Got {output}, where results "
            "would be taken for queries."
        )
    expected = {partition.name for partition in listing.partitions}
    # Results of a file that is broken now may stay.
    stems = tuple(file.removesuffix(SUFFIX) for file in listing.broken)
    there = {file.relative_to(output).as_posix() for file in output.rglob(f"*{SUFFIX}")}
    foreign = sorted(name for name in there - expected if not (stems and name.startswith(stems)))
    if foreign:
        raise InvalidInputError(
            f"output must be a folder of its own. {output} holds {foreign[0]}"
            + (f" and {len(foreign) - 1} more files" if len(foreign) > 1 else "")
            + " that the source, as it is divided now, has not: delete them, or name another "
            "folder."
        )


def write_manifest(
    output: Path, partitions: Sequence[Partition], model: str, settings: Mapping[str, Any]
) -> None:
    """List the partitions of a run, whose folder is whole."""
    manifest = {
        "format": FORMAT,
        "model_sha256": model,
        "settings": dict(settings),
        "partitions": [asdict(partition) for partition in partitions],
    }
    write_text_whole(output / MANIFEST, json.dumps(manifest, indent=1) + "\n")


def read_manifest(output: Path) -> tuple[tuple[Partition, ...], dict[str, Any]]:
    """The partitions of a folder that is whole, in the order of the data set, and the settings."""
    path = output / MANIFEST
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
        partitions = tuple(Partition(**partition) for partition in fields["partitions"])
        return partitions, fields["settings"]
    except FileNotFoundError:
        raise InvalidInputError(
            f"{output} must hold what score_partitions finished. It has no {MANIFEST}: score its "
            "partitions first, or again until none fails."
        ) from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InvalidInputError(
            f"{path} cannot be read ({error}). Score again: what is finished is kept."
        ) from error
