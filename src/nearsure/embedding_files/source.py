"""Where embeddings are read from: a file, a pipe or standard input; their format."""

import csv
import shutil
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from io import BufferedReader, RawIOBase, TextIOWrapper
from pathlib import Path
from typing import Any, BinaryIO, TextIO, cast

from safetensors import SafetensorError

from nearsure.errors import EmbeddingsFileError, InvalidInputError

SUFFIXES = {
    ".npz": "npz",
    ".npy": "npy",
    ".parquet": "parquet",
    ".safetensors": "safetensors",
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
}
FORMATS = ("npz", "npy", "parquet", "safetensors", "csv", "jsonl")

# Enough for any header line that is not itself a mistake.
FIRST_BYTES = 1 << 22

_SIGNATURES = {b"\x93NUMPY": "npy", b"PK\x03\x04": "npz", b"PAR1": "parquet"}
# A safetensors file begins with the length of its header, a JSON object, in eight bytes.
_LENGTH_BYTES = 8


def format_of(path: Path) -> str:
    """The format that a file's suffix stands for."""
    try:
        return SUFFIXES[path.suffix.lower()]
    except KeyError:
        raise EmbeddingsFileError(
            f"A file of embeddings must end in {', '.join(SUFFIXES)}, or be given its format. "
            f"Got {path.name} instead."
        ) from None


def parse_format(name: str) -> str:
    """A format that was given by its name or suffix."""
    found = SUFFIXES.get(f".{name.lower().removeprefix('.')}")
    if found is None:
        raise InvalidInputError(
            f"The 'format' parameter must be one of {', '.join(FORMATS)}. Got {name!r} instead."
        )
    return found


def sniff_format(head: bytes, name: str) -> str:
    """The format of a stream whose first line is `head`: JSON lines unless it is another's.

    Examples
    --------
    >>> sniff_format(b'{"vector": [1, 2]}', "Standard input")
    'jsonl'
    >>> sniff_format(b"id,label,x,y", "Standard input")
    'csv'
    """
    for signature, format_name in _SIGNATURES.items():
        if head.startswith(signature):
            return format_name
    if head[_LENGTH_BYTES : _LENGTH_BYTES + 1] == b"{" and b"\x00" in head[:_LENGTH_BYTES]:
        return "safetensors"
    if not head:
        raise EmbeddingsFileError(f"{name} is empty: nothing was written to it.")
    line = head.removeprefix(b"\xef\xbb\xbf").strip()
    return "jsonl" if not line or line.startswith((b"{", b"[")) else "csv"


STANDARD_INPUT = "-"
# A line beyond it is no row of a table: the file is not text, or has no line ends.
LONGEST_LINE = 1 << 26


@dataclass
class Source:
    """A file of one format, or a stream that can be read once.

    Parameters
    ----------
    name : str
        What messages call it.
    format : str
        One of `FORMATS`.
    path : path, optional
        The file; None for a stream.
    stream : binary stream, optional
        In place of a path; None once it is read.
    """

    name: str
    format: str
    path: Path | None = None
    stream: BinaryIO | None = None

    def __str__(self) -> str:
        return self.name

    @property
    def file(self) -> Path:
        """The path; only JSON lines are read from a stream."""
        return cast("Path", self.path)

    @contextmanager
    def lines(self) -> Iterator[Iterator[str]]:
        """The lines of a text, with their ends; a stream gives them once."""
        with ExitStack() as stack:
            if self.path is not None:
                file: BinaryIO = stack.enter_context(self.path.open("rb"))
            elif self.stream is not None:
                file, self.stream = self.stream, None
            else:
                raise EmbeddingsFileError(
                    f"{self.name} can be read once only: save it to a file to read it again."
                )
            text = TextIOWrapper(file, encoding="utf-8-sig", newline="")
            # The stream is closed where it was opened.
            stack.callback(text.detach)
            yield _lines(text, self.name)


def file_source(path: Path, format_name: str | None = None) -> Source:
    """A file, whose format is given or follows from its suffix."""
    chosen = None if format_name is None else parse_format(format_name)
    if not path.is_file():
        if path.is_dir():
            raise EmbeddingsFileError(f"{path} is a folder: name a file in it.")
        raise EmbeddingsFileError(f"There is no file {path}: check the path.")
    return Source(str(path), chosen or format_of(path), path)


def open_source(source: str | Path, format_name: str | None, until: ExitStack) -> Source:
    """A file, standard input for "-", or a pipe that has a path.

    What cannot be read in one pass is copied to a temporary file, removed when `until` closes.
    """
    if str(source) == STANDARD_INPUT:
        return _stream_source(_standard_input(), "Standard input", format_name, until)
    path = Path(source)
    try:
        if not path.exists() or path.is_file() or path.is_dir():
            return file_source(path, format_name)
        pipe = until.enter_context(path.open("rb"))
    except OSError as error:  # such as a name that is too long
        raise EmbeddingsFileError(f"{path} cannot be read: {error.strerror}.") from error
    return _stream_source(pipe, str(path), format_name, until)


def _standard_input() -> BinaryIO:
    stream = sys.stdin
    if stream is None or stream.closed or not hasattr(stream, "buffer"):
        raise EmbeddingsFileError(
            "Standard input is closed, so that nothing can be read from '-': pipe rows into the "
            "command, or name a file."
        )
    return stream.buffer


def _stream_source(
    stream: BinaryIO, name: str, format_name: str | None, until: ExitStack
) -> Source:
    try:
        head = stream.readline(FIRST_BYTES)
        chosen = parse_format(format_name) if format_name else sniff_format(head, name)
        joined = BufferedReader(_Joined(head, stream))
        if chosen == "jsonl":
            return Source(name, chosen, stream=joined)
        # Labels of a CSV file are integers if all of them are, which takes a pass to find out; the
        # others have their directory at the end.
        copy = until.enter_context(
            tempfile.NamedTemporaryFile(prefix="nearsure-", suffix=f".{chosen}")  # noqa: SIM115
        )
        shutil.copyfileobj(joined, copy)
        copy.flush()
    except OSError as error:
        raise EmbeddingsFileError(f"{name} cannot be read: {error}.") from error
    return Source(name, chosen, Path(copy.name))


class _Joined(RawIOBase):
    """Bytes that were read ahead, then the stream they came from."""

    def __init__(self, head: bytes, stream: BinaryIO) -> None:
        self._head, self._stream = head, stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401
        if not self._head:
            # What has arrived, not a full buffer: rows of a slow writer are not delayed.
            read = getattr(self._stream, "read1", self._stream.read)
            self._head = read(len(buffer))
        part, self._head = self._head[: len(buffer)], self._head[len(buffer) :]
        buffer[: len(part)] = part
        return len(part)


def _lines(text: TextIO, name: str) -> Iterator[str]:
    while line := text.readline(LONGEST_LINE + 1):
        if len(line) > LONGEST_LINE:
            raise EmbeddingsFileError(
                f"{name} has a line of more than {LONGEST_LINE} characters: it is no table of one "
                "row a line."
            )
        yield line


# About a file that is cut off, altered or of another format. Arrow's errors are ValueErrors or
# OSErrors; an archive that is encrypted or packed in a rare way gives a RuntimeError.
BROKEN = (
    zipfile.BadZipFile,
    zlib.error,
    SafetensorError,
    EOFError,
    OSError,
    ValueError,
    RuntimeError,
    csv.Error,
)


@contextmanager
def translate_errors(source: Source) -> Iterator[None]:
    """Turn what a broken file makes a library raise into an EmbeddingsFileError."""
    try:
        yield
    except EmbeddingsFileError:
        raise
    except BROKEN as error:
        raise EmbeddingsFileError(
            f"{source} cannot be read as .{source.format}: {error}. It may be cut off or of "
            "another format: copy or write it again."
        ) from error
