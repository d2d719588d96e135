"""`nearsure embed`: images or texts to vectors, for those who have none yet."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer
from typer import Argument, Option

from nearsure.atomic import atomic_write
from nearsure.cli import options, outputs
from nearsure.cli.options import output_option
from nearsure.cli.outputs import Format, check_files, notice, progress, translate_errors
from nearsure.errors import BrokenImageError, ConfigError, EmbeddingsFileError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from nearsure.encoders import Encoder
    from nearsure.encoders.inputs import EncoderInput

# Inputs that are encoded together, between two steps of the progress bar.
PORTION = 32
FORMATS: dict[str, Format] = {".jsonl": "jsonl", ".csv": "csv", ".parquet": "parquet"}
# Names that the other commands find in an npz file.
ARRAYS = {"id": "ids", "label": "labels", "image": "images", "vector": "vectors"}

Encoded: TypeAlias = "tuple[Sequence[EncoderInput], NDArray[np.float32]]"


def embed(
    source: Annotated[
        Path,
        Argument(
            help="Folder of images with one folder per class, or a txt, csv or jsonl file of texts."
        ),
    ],
    *,
    encoder: Annotated[str, Option(help="image, text, or module:attribute for your own encoder.")],
    output: Annotated[
        Path, output_option("--output", "-o", help="npz, jsonl, csv or parquet file.")
    ],
    skip_broken_images: Annotated[
        bool, Option("--skip-broken-images", help="Skip images that cannot be decoded.")
    ] = False,
    quiet: options.Quiet = False,
) -> None:
    """Turn images or texts into vectors, with ids and labels.

    An image's label is the folder that it lies in, its id the path below SOURCE. Texts are lines,
    or the column "text" beside "label" and "id".

    Example: nearsure embed photos --encoder image -o gallery.npz

    Example: nearsure embed sentences.csv --encoder text -o gallery.parquet
    """
    outputs.set_quiet(quiet)
    from nearsure.encoders import open_encoder
    from nearsure.encoders.inputs import image_inputs, text_inputs

    if output.suffix.lower() not in {".npz", *FORMATS}:
        raise ConfigError(
            f"--output must end in .npz, {', '.join(FORMATS)}. Got {output.name} instead."
        )
    check_files({"SOURCE": source}, {"--output": output})
    loaded = open_encoder(encoder)
    inputs = image_inputs(source) if loaded.kind == "image" else text_inputs(source)
    _check_inputs(inputs, source)
    written = 0
    with _open_output(output) as write:
        for encoded, vectors in _encode_all(loaded, inputs, skip=skip_broken_images):
            write(_columns(encoded, vectors, output))
            written += len(encoded)
        if not written:
            raise BrokenImageError(f"None of the {len(inputs)} images of {source} can be decoded.")
    if written < len(inputs):
        broken = len(inputs) - written
        notice(f"left out {broken} of {len(inputs)} images, which cannot be decoded.")
    if not quiet:
        typer.echo(f"wrote {output}: {written} vectors of {loaded.dimension} numbers")


def _encode_all(
    encoder: "Encoder", inputs: "Sequence[EncoderInput]", *, skip: bool
) -> Iterator[Encoded]:
    with progress("encoding", len(inputs)) as advance:
        for start in range(0, len(inputs), PORTION):
            portion = inputs[start : start + PORTION]
            try:
                vectors = _encode(encoder, portion)
            except BrokenImageError:
                portion, vectors = _encode_singly(encoder, portion, skip=skip)
            if portion:
                yield portion, vectors
            advance(len(inputs[start : start + PORTION]))


def _check_inputs(inputs: "Sequence[EncoderInput]", source: Path) -> None:
    """Raise an error if other commands could not read what would be written."""
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


def _encode(encoder: "Encoder", portion: "Sequence[EncoderInput]") -> "NDArray[np.float32]":
    """Encode some inputs, and check what the encoder returned."""
    import numpy as np

    contents: Any = [one.content() for one in portion]  # all bytes, or all text
    returned = encoder.encode(contents)
    try:
        vectors = np.asarray(returned, np.float32)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"The encoder must give an array of numbers: {error}.") from error
    expected = (len(portion), encoder.dimension)
    if vectors.shape != expected:
        raise ConfigError(
            f"The encoder must give an array of shape {expected} for {len(portion)} inputs. Got "
            f"{vectors.shape} instead."
        )
    finite = np.isfinite(vectors).all(axis=1)
    if not finite.all():
        name = portion[int(finite.argmin())].id
        raise ConfigError(f"The encoder must give finite numbers. Got others for {name!r}.")
    return vectors


def _encode_singly(encoder: "Encoder", portion: "Sequence[EncoderInput]", *, skip: bool) -> Encoded:
    """Encode inputs one at a time, so that an error names the file."""
    import numpy as np

    kept, vectors = [], [np.empty((0, encoder.dimension), np.float32)]
    for one in portion:
        try:
            vectors.append(_encode(encoder, [one]))
        except BrokenImageError as error:
            if not skip:
                reason = str(error).removeprefix("Image 1 cannot be decoded: ").rstrip(".")
                raise BrokenImageError(
                    f"{one.image} cannot be decoded: {reason}. --skip-broken-images leaves such "
                    "images out."
                ) from error
        else:
            kept.append(one)
    return kept, np.concatenate(vectors)


def _columns(
    encoded: "Sequence[EncoderInput]", vectors: "NDArray[np.float32]", output: Path
) -> dict[str, Any]:
    columns: dict[str, Any] = {"id": [one.id for one in encoded]}
    if encoded[0].label is not None:
        columns["label"] = [one.label for one in encoded]
    if encoded[0].image is not None:
        # Readers of the file resolve these paths from its folder.
        columns["image"] = [
            Path(os.path.relpath(one.image, output.parent)).as_posix()
            for one in encoded
            if one.image is not None
        ]
    return columns | {"vector": vectors}


@contextmanager
def _open_output(path: Path) -> Iterator[Callable[[dict[str, Any]], None]]:
    """Open a file; gives the function that writes rows, given as columns."""
    from nearsure.embedding_files import open_records

    chosen = FORMATS.get(path.suffix.lower())
    if chosen is not None:
        with open_records(path, chosen) as records:
            yield records.write
        return
    import numpy as np

    parts: list[dict[str, Any]] = []
    yield parts.append
    arrays: dict[str, Any] = {
        ARRAYS[name]: np.concatenate([np.asarray(part[name]) for part in parts])
        for name in parts[0]
    }
    with translate_errors("--output", path), atomic_write(path, keep_suffix=True) as draft:
        np.savez(draft, **arrays)
