"""Where records go: a file that appears whole or not at all, or standard output."""

import os
import sys
from contextlib import suppress
from io import RawIOBase
from pathlib import Path
from typing import Any, BinaryIO, TextIO, cast

from nearsure.errors import EmbeddingsFileError
from nearsure.whole_files import Draft


class WholeFile:
    """A file that is written under another name beside it, and renamed at the end."""

    def __init__(self, path: Path) -> None:
        if path.is_dir():
            raise EmbeddingsFileError(f"{path} is a folder: name a file in it.")
        try:
            self._draft = Draft.of(path)
            self.stream: BinaryIO = self._draft.path.open("wb")
        except OSError as error:
            raise EmbeddingsFileError(
                f"{path} cannot be written: {error.strerror or error}."
            ) from error

    def keep(self) -> None:
        """Close the file and give it its name."""
        try:
            self.stream.close()
            self._draft.keep()
        except BaseException:
            self.drop()
            raise

    def drop(self) -> None:
        """Remove what was written."""
        # On a full or lost disk this fails, too, and would hide why.
        with suppress(OSError):
            self.stream.close()
        self._draft.drop()

    def forsake(self) -> None:
        """Whoever read from a pipe has gone."""


class StandardOutput:
    """Standard output, which stays open."""

    def __init__(self) -> None:
        text = sys.stdout
        if text is None or text.closed:
            raise EmbeddingsFileError("Standard output is closed: name a file to write to.")
        text.flush()
        # A notebook's takes text alone.
        has_bytes = hasattr(text, "buffer")
        self.takes_bytes = has_bytes and not text.isatty()
        self.stream: BinaryIO = text.buffer if has_bytes else cast("BinaryIO", _AsText(text))

    def keep(self) -> None:
        """Send what is still held back."""
        self.stream.flush()

    def drop(self) -> None:
        """What was sent cannot be called back."""
        with suppress(OSError):
            self.stream.flush()

    def forsake(self) -> None:
        """Whoever read has gone: let what Python still holds go nowhere, without a word."""
        with suppress(OSError, ValueError):
            output = self.stream.fileno()
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, output)
            os.close(nowhere)


class _AsText(RawIOBase):
    """Bytes of UTF-8 written to a stream of text, whole characters at a time."""

    def __init__(self, text: TextIO) -> None:
        self._text = text

    def write(self, content: Any) -> int:  # noqa: ANN401
        self._text.write(bytes(content).decode("utf-8"))
        return len(content)

    def flush(self) -> None:
        self._text.flush()
