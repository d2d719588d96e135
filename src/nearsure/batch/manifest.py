"""What a scored partition was made from, so that it is made once and never taken for another.

Every scored file carries, in its own footer, the digest of model, settings and partition: it is
written with the rows or not at all. `scored.json` lists the partitions of a run that was finished;
without it, a folder is not whole.
"""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from nearsure.batch.parquet_rows import opened
from nearsure.batch.partitions import SUFFIX, Listing, Partition
from nearsure.errors import EmbeddingsFileError, InvalidInputError
from nearsure.whole_files import written_whole

MANIFEST = "scored.json"
FORMAT = 1
FOOTER_KEY = b"nearsure"


def digest_of(partition: Partition, model: str, settings: Mapping[str, Any]) -> str:
    """All that a scored partition depends on, in one word."""
    made_from = {
        "format": FORMAT,
        "nearsure": version("nearsure"),
        "model": model,
        "settings": dict(settings),
        # Not the folder, so that a data set may move.
        "partition": {name: value for name, value in partition.to_dict().items() if name != "root"},
    }
    text = json.dumps(made_from, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def is_scored(path: Path, digest: str) -> bool:
    """Whether a scored file is there, whole, and made from the same."""
    try:
        with opened(path) as file:
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
    # What an earlier run made of a file that is broken now may stay.
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
    """Say that a folder is whole."""
    manifest = {
        "format": FORMAT,
        "model_sha256": model,
        "settings": dict(settings),
        "partitions": [partition.to_dict() for partition in partitions],
    }
    with written_whole(output / MANIFEST) as draft:
        draft.write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")


@dataclass(frozen=True)
class Manifest:
    """What a finished run wrote down.

    Parameters
    ----------
    partitions : tuple of Partition
        In the order of the data set.
    settings : dict
        Of the run.
    """

    partitions: tuple[Partition, ...]
    settings: dict[str, Any]


def read_manifest(output: Path) -> Manifest:
    """The manifest of a folder that is whole."""
    path = output / MANIFEST
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
        partitions = tuple(Partition(**partition) for partition in fields["partitions"])
        return Manifest(partitions, fields["settings"])
    except FileNotFoundError:
        raise InvalidInputError(
            f"{output} must hold what score_partitions finished. It has no {MANIFEST}: score its "
            "partitions first, or again until none fails."
        ) from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InvalidInputError(
            f"{path} cannot be read ({error}). Score again: what is finished is kept."
        ) from error
