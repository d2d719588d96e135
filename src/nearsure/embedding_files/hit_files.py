"""Search results that somebody's own engine returned, from a file or standard input."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from nearsure.embedding_files.broken_files import in_one_sentence
from nearsure.embedding_files.hit_arrays import hits_of_arrays
from nearsure.embedding_files.hit_rows import hits_of_objects
from nearsure.embedding_files.hit_set import HitSet
from nearsure.embedding_files.hit_table import objects_of_table
from nearsure.embedding_files.json_values import PlacedObject, json_objects
from nearsure.embedding_files.parquet_arrays import BUFFER_BYTES, arrow
from nearsure.embedding_files.sources import Source, open_source
from nearsure.errors import EmbeddingsFileError, InvalidInputError


def load_hits(source: str | Path, *, format: str | None = None) -> HitSet:  # noqa: A002
    """Read what an engine returned for some queries.

    Parameters
    ----------
    source : path or "-"
        An .npz, .safetensors, .jsonl, .ndjson, .parquet or .csv file, or "-" for standard input.

        - Arrays: distances and labels of shape (n, k); optional ids (n, k), counts (n,), truth
          (n,), own_ids (n,). Without counts, trailing ids of -1 are taken as no hits, as faiss
          pads.
        - A line of JSON, or a row of a Parquet file with columns of lists: ``{"distances": [..],
          "labels": [..], "ids": [..], "truth": .., "id": ..}``, of which distances and labels must
          be there. Queries may have different numbers of hits.
        - CSV: a row for each hit, with a header query,distance,label and optionally neighbor (the
          hit's id) and truth.
    format : str, optional
        npz, safetensors, jsonl, parquet or csv, in place of what the suffix says.

    Returns
    -------
    HitSet

    Raises
    ------
    EmbeddingsFileError
        If the file is missing, broken, or lacks a part.
    """
    with ExitStack() as stack:
        opened = open_source(source, format, stack)
        try:
            if opened.format in ("npz", "safetensors"):
                return hits_of_arrays(opened)
            return hits_of_objects(opened.name, _objects(opened))
        except InvalidInputError as error:
            raise EmbeddingsFileError(f"{opened} does not hold hits: {error}") from error


def _objects(source: Source) -> Iterator[PlacedObject]:
    if source.format == "jsonl":
        return json_objects(source)
    if source.format == "csv":
        return objects_of_table(source)
    if source.format == "parquet":
        return _objects_of_parquet(source)
    raise EmbeddingsFileError(
        f"{source} must be npz, safetensors, jsonl, parquet or csv to hold hits. "
        f"Got {source.format} instead."
    )


def _objects_of_parquet(source: Source) -> Iterator[PlacedObject]:
    parquet = arrow("pyarrow.parquet")
    first = 0
    with (
        in_one_sentence(source),
        parquet.ParquetFile(source.file, buffer_size=BUFFER_BYTES) as file,
    ):
        for batch in file.iter_batches():
            for row, fields in enumerate(batch.to_pylist(), first):
                yield f"Row {row} of {source}", fields
            first += len(batch)
