"""`nearsure embed`: images or texts to vectors, for those who have none yet."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from nearsure.atomic import atomic_write
from nearsure.cli import options, outputs
from nearsure.cli.inputs import end_encoded, load_encoder
from nearsure.cli.options import output_option
from nearsure.cli.outputs import Format, check_files, notice, progress, translate_errors
from nearsure.errors import ConfigError

if TYPE_CHECKING:
    from nearsure.embedding_files import EmbeddingChunk

FORMATS: dict[str, Format] = {".jsonl": "jsonl", ".csv": "csv", ".parquet": "parquet"}
# Names that the other commands find in an npz file.
ARRAYS = {"id": "ids", "label": "labels", "text": "texts", "image": "images", "vector": "vectors"}


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
    strict: Annotated[
        bool, Option("--strict", help="Stop at the first image that cannot be decoded.")
    ] = False,
    batch_size: Annotated[
        int, Option(min=1, max=4096, help="Number of images or texts that are encoded together.")
    ] = 16,
    device: Annotated[str, Option(help="Where the encoder runs: cpu, cuda, cuda:1, mps.")] = "cpu",
    quiet: options.Quiet = False,
) -> None:
    """Turn images or texts into vectors, with ids and labels.

    An image's label is the folder that it is in, its id is the path below SOURCE. Texts are lines,
    or the column "text" beside "label" and "id"; they are kept beside the vectors.

    All files are checked first. Images that cannot be decoded are left out, listed at the end,
    and the exit code is 1. What was encoded before an interruption is kept in OUTPUT.partial; the
    same command resumes from there.

    Example: nearsure embed photos --encoder image -o gallery.npz

    Example: nearsure embed sentences.csv --encoder text -o gallery.parquet
    """
    outputs.set_quiet(quiet)
    from nearsure.encoders import describe_encoder
    from nearsure.encoders.inputs import read_inputs
    from nearsure.encoders.rows import EncodedRows, PartialVectors

    if output.suffix.lower() not in {".npz", *FORMATS}:
        raise ConfigError(
            f"--output must end in .npz, {', '.join(FORMATS)}. Got {output.name} instead."
        )
    check_files({"SOURCE": source}, {"--output": output})
    loaded = load_encoder(encoder, device=device, batch_size=batch_size)
    inputs = read_inputs(source, loaded.kind)
    output.parent.mkdir(parents=True, exist_ok=True)
    partial = PartialVectors(
        output.with_name(f"{output.name}.partial"),
        describe_encoder(encoder, loaded),
        loaded.dimension,
    )
    if len(partial):
        notice(f"resuming: {len(partial):,} of {len(inputs):,} are already encoded.")
    rows = EncodedRows(loaded, inputs, batch_size=batch_size, strict=strict, partial=partial)
    written = 0
    with progress("encoding", None), _open_output(output) as write:
        for chunk in rows.chunks(batch_size):
            write(_columns(chunk, output))
            written += len(chunk)
    partial.remove()
    if not quiet:
        typer.echo(f"wrote {output}: {written} vectors of {loaded.dimension} numbers")
    end_encoded(rows)


def _columns(chunk: "EmbeddingChunk", output: Path) -> dict[str, Any]:
    columns: dict[str, Any] = {"id": chunk.ids}
    if chunk.labels is not None:
        columns["label"] = chunk.labels
    if chunk.texts is not None:
        columns["text"] = chunk.texts
    if chunk.pictures is not None:
        # Readers of the file resolve these paths from its folder.
        columns["image"] = [
            Path(os.path.relpath(path, output.parent)).as_posix()
            for path in chunk.pictures
            if path is not None
        ]
    return columns | {"vector": chunk.vectors}


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
