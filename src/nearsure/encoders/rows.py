"""Vectors of images and texts as rows, like those of a file; an interrupted run goes on."""

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearsure.embedding_files import EmbeddingChunk, EmbeddingStream
from nearsure.embedding_files.rows import LabelsWanted, RowReader
from nearsure.encoders import BATCH, Encoder
from nearsure.encoders.inputs import EncoderInput, read_inputs, why_unreadable
from nearsure.errors import BrokenImageError, ConfigError, EmbeddingsFileError
from nearsure.progress import tracked

# More are not given at once, so that answers to the first do not wait for all.
LARGEST_CHUNK = 512
Vectors = NDArray[np.float32]


class PartialVectors:
    """Vectors of an unfinished run, in a file beside its output.

    Parameters
    ----------
    path : Path
        The file; it is made with the first vectors.
    encoder : str
        Name and version: what another has encoded is not used.
    dimension : int
        Of its vectors.
    """

    def __init__(self, path: Path, encoder: str, dimension: int) -> None:
        self._path, self._dimension = path, dimension
        self._header = json.dumps({"encoder": encoder, "dimension": dimension}).encode() + b"\n"
        self._dtype = np.dtype([("key", "V32"), ("vector", "<f4", (dimension,))])
        self._rows: Any = np.empty(0, self._dtype)
        self._places: dict[bytes, int] = {}
        if not path.is_file():
            return
        with path.open("rb") as file:
            is_own = file.read(len(self._header)) == self._header
        if not is_own:
            path.unlink()
            return
        n_rows = (path.stat().st_size - len(self._header)) // self._dtype.itemsize
        # A row that was cut off goes.
        os.truncate(path, len(self._header) + n_rows * self._dtype.itemsize)
        if n_rows:
            self._rows = np.memmap(path, self._dtype, "r", len(self._header), (n_rows,))
            self._places = {key.tobytes(): row for row, key in enumerate(self._rows["key"])}

    def __len__(self) -> int:
        return len(self._places)

    def get(self, one: EncoderInput) -> Vectors | None:
        """The vector of an input as it is now, if it was encoded before."""
        place = self._places.get(_digest(one))
        return None if place is None else np.array(self._rows["vector"][place], np.float32)

    def keep(self, inputs: Sequence[EncoderInput], vectors: Vectors) -> None:
        """Keep vectors, for the next run."""
        rows: Any = np.empty(len(inputs), self._dtype)
        rows["key"] = [np.void(_digest(one)) for one in inputs]
        rows["vector"] = vectors
        with self._path.open("ab", buffering=0) as file:
            file.write((b"" if file.tell() else self._header) + rows.tobytes())

    def remove(self) -> None:
        """The run has come to its end."""
        self._rows, self._places = np.empty(0, self._dtype), {}
        self._path.unlink(missing_ok=True)


def _digest(one: EncoderInput) -> bytes:
    """What tells an input from others, and from itself before it was changed."""
    if one.image is None:
        return sha256(one.text.encode(errors="surrogatepass")).digest()
    found = one.image.stat()
    return sha256(f"{one.id}\0{found.st_size}\0{found.st_mtime_ns}".encode()).digest()


class EncodedRows(RowReader):
    """Inputs, encoded as they are read; what cannot be decoded is left out and listed.

    Files are looked at before anything is encoded.

    Parameters
    ----------
    encoder : Encoder
        What encodes them.
    inputs : sequence of EncoderInput
        All of one kind.
    batch_size : int
        How many are encoded together.
    strict : bool
        Whether the first broken image is an error.
    partial : PartialVectors, optional
        Where vectors are kept for the next run, should this one be interrupted.

    Attributes
    ----------
    broken : list of str
        Images that were left out, each with the reason.
    """

    def __init__(
        self,
        encoder: Encoder,
        inputs: Sequence[EncoderInput],
        *,
        batch_size: int = BATCH,
        strict: bool = False,
        partial: PartialVectors | None = None,
    ) -> None:
        self._encoder, self._batch_size, self._strict = encoder, batch_size, strict
        self._partial = partial
        self.dimension = encoder.dimension
        self.broken: list[str] = []
        self._n_inputs = len(inputs)
        self._inputs = [one for one in inputs if self._is_readable(one)]
        # As many as may come: some may not be decoded.
        self.n_rows = len(self._inputs)

    def chunks(self, rows: int) -> Iterator[EmbeddingChunk]:
        """Chunks of `rows` rows, or fewer."""
        first = 0
        for portion, vectors in self._portions(min(rows, LARGEST_CHUNK)):
            yield _chunk(portion, vectors, first)
            first += len(portion)
        if not first:
            raise BrokenImageError(
                f"None of the {self._n_inputs} images can be decoded: {self.broken[0]}"
            )

    def _portions(self, largest: int) -> Iterator[tuple[list[EncoderInput], Vectors]]:
        """Whole batches, as many as go into a portion; what cannot be decoded is left out."""
        step = min(self._batch_size, largest)
        batches = [self._inputs[at : at + step] for at in range(0, len(self._inputs), step)]
        kept: list[EncoderInput] = []
        parts: list[Vectors] = []
        for batch in tracked("encoding", batches, len(self._inputs), len):
            if len(kept) + len(batch) > largest:
                yield kept, np.concatenate(parts)
                kept, parts = [], []
            own, vectors = self._encode_new(batch)
            kept += own
            parts.append(vectors)
        if kept:
            yield kept, np.concatenate(parts)

    def _is_readable(self, one: EncoderInput) -> bool:
        reason = None if one.image is None else why_unreadable(one.image)
        if reason is not None:
            self._leave_out(one, reason)
        return reason is None

    def _leave_out(self, one: EncoderInput, reason: str) -> None:
        sentence = f"{one.image} cannot be decoded: {reason}."
        if self._strict:
            raise BrokenImageError(sentence)
        self.broken.append(sentence)

    def _encode_new(self, batch: Sequence[EncoderInput]) -> tuple[list[EncoderInput], Vectors]:
        """Encode those of a batch that no earlier run has encoded."""
        known: dict[str | int, Vectors] = {}
        if self._partial is not None and len(self._partial):
            found = {one.id: self._partial.get(one) for one in batch}
            known = {name: vector for name, vector in found.items() if vector is not None}
        new = [one for one in batch if one.id not in known]
        if new:
            encoded, vectors = self._encode_batch(new)
            if self._partial is not None and encoded:
                self._partial.keep(encoded, vectors)
            known |= {one.id: vector for one, vector in zip(encoded, vectors, strict=True)}
        kept = [one for one in batch if one.id in known]
        vectors = np.array([known[one.id] for one in kept], np.float32)
        return kept, vectors.reshape(len(kept), self.dimension)

    def _encode_batch(self, batch: Sequence[EncoderInput]) -> tuple[list[EncoderInput], Vectors]:
        try:
            return list(batch), encode(self._encoder, batch)
        except (BrokenImageError, OSError):
            # One at a time, so that the broken one is known.
            kept, vectors = [], [np.empty((0, self.dimension), np.float32)]
            for one in batch:
                try:
                    vectors.append(encode(self._encoder, [one]))
                except (BrokenImageError, OSError) as error:
                    reason = str(error).removeprefix("Image 1 cannot be decoded: ").rstrip(".")
                    self._leave_out(one, reason)
                else:
                    kept.append(one)
            return kept, np.concatenate(vectors)


def encode(encoder: Encoder, inputs: Sequence[EncoderInput]) -> Vectors:
    """Vectors of shape (n, dimension); an error if an encoder gives something else."""
    contents: Any = [one.content() for one in inputs]  # all bytes, or all text
    returned = encoder.encode(contents)
    try:
        vectors = np.asarray(returned, np.float32)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"The encoder must give an array of numbers: {error}.") from error
    expected = (len(inputs), encoder.dimension)
    if vectors.shape != expected:
        raise ConfigError(
            f"The encoder must give an array of shape {expected} for {len(inputs)} inputs. Got "
            f"{vectors.shape} instead."
        )
    finite = np.isfinite(vectors).all(axis=1)
    if not finite.all():
        name = inputs[int(finite.argmin())].id
        raise ConfigError(f"The encoder must give finite numbers. Got others for {name!r}.")
    return vectors


def _chunk(portion: Sequence[EncoderInput], vectors: Vectors, first: int) -> EmbeddingChunk:
    one = portion[0]
    has_images = one.image is not None
    return EmbeddingChunk(
        vectors,
        None if one.label is None else np.array([one.label for one in portion]),
        np.array([one.id for one in portion]),
        [os.path.abspath(str(one.image)) for one in portion] if has_images else None,  # noqa: PTH100
        None if has_images else [one.text for one in portion],
        None if one.group is None else np.array([one.group for one in portion]),
        first,
    )


class EncodedStream(EmbeddingStream):
    """The vectors of a folder of images or a file of texts, which `open_encoded` makes."""

    def __init__(self, name: str, rows: EncodedRows) -> None:
        super().__init__(name, rows, None, ExitStack())
        self._rows = rows

    @property
    def broken(self) -> list[str]:
        """Images that were left out, each with the reason; complete once all rows were read."""
        return self._rows.broken


def open_encoded(
    source: str,
    *more: str,
    encoder: Encoder,
    labels: LabelsWanted = "optional",
    groups_from_folder: bool = False,
    groups_key: str | None = None,
) -> EncodedStream:
    """Open images or texts to read their vectors a chunk at a time, as of a file.

    Parameters
    ----------
    source, *more : str
        A folder of images, an image, or a file of texts; see `read_inputs`. Of several, ids begin
        with the source, and there are no labels.
    encoder : Encoder
        What encodes them.
    labels : {"required", "optional", "none"}
        As of `open_embeddings`.
    groups_from_folder : bool
        As of `image_inputs`.
    groups_key : str, optional
        As of `text_inputs`.
    """
    read = partial(
        read_inputs,
        kind=encoder.kind,
        groups_from_folder=groups_from_folder,
        groups_key=groups_key,
    )
    inputs = read(Path(source))
    if more:
        inputs = [_of_source(source, one) for one in inputs]
        inputs += [_of_source(each, one) for each in more for one in read(Path(each))]
    if labels == "required" and inputs[0].label is None:
        needed = "a folder for each class" if encoder.kind == "image" else "a column 'label'"
        raise EmbeddingsFileError(f"{source} must have labels: {needed}.")
    return EncodedStream(source, EncodedRows(encoder, inputs))


def _of_source(source: str, one: EncoderInput) -> EncoderInput:
    """An input of one of several sources, named by its path."""
    if one.image is None:
        return replace(one, id=f"{source}:{one.id}", label=None)
    return replace(one, id=one.image.as_posix(), label=None)
