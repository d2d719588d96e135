"""What libraries raise about a broken file, in one sentence."""

import csv
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager

from safetensors import SafetensorError

from nearsure.embedding_files.sources import Source
from nearsure.errors import EmbeddingsFileError

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
def in_one_sentence(source: Source) -> Iterator[None]:
    """Turn what a broken file makes a library raise into an EmbeddingsFileError."""
    try:
        yield
    except EmbeddingsFileError:
        raise
    except BROKEN as error:
        raise EmbeddingsFileError(
            f"{source} cannot be read as .{source.format}: {error}. It may be cut off or of "
            "another format: copy or write it anew."
        ) from error
