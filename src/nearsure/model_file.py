"""One file that holds a fitted model: safetensors, with a JSON manifest in its header.

The manifest carries the format's version and a checksum of every tensor, and has a checksum itself.
A file is written beside its destination, flushed and renamed, so that a crash at any moment leaves
either the old file or the new one, whole. Nothing in it is ever executed: there is no pickle.
"""

import hashlib
import json
import os
from pathlib import Path
from typing import Any, cast

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load, save, save_file

from nearsure.arrays import AnyArray
from nearsure.atomic import atomic_write
from nearsure.errors import ModelFileError
from nearsure.schema import OBJECT, check_fields, integer, unreadable

FORMAT_VERSION = 4
# Version 3 had no heads, and is otherwise the same.
READABLE = (3, FORMAT_VERSION)
# The name in messages of a model that is in no file.
KEPT = "The model that was kept"
_HEADER = {"format_version": integer(0), "manifest": OBJECT, "sha256": OBJECT}


def write_model(
    path: str | os.PathLike[str], manifest: dict[str, Any], tensors: dict[str, AnyArray]
) -> None:
    """Write a model, replacing the file at `path` whole or not at all.

    Parameters
    ----------
    path : path-like
        Where to; missing folders are made.
    manifest : dict
        Anything that JSON can hold.
    tensors : dict of str to array
        Numeric arrays.
    """
    path = Path(path)
    tensors, metadata = _prepare(manifest, tensors)
    with atomic_write(path) as draft:
        # With the permissions of any new file; safetensors would let only the owner read it.
        draft.touch()
        mode = draft.stat().st_mode
        try:
            save_file(tensors, draft, metadata=metadata)
        except SafetensorError as error:
            raise ModelFileError(f"{path} cannot be written: {error}.") from error
        draft.chmod(mode)


def model_bytes(manifest: dict[str, Any], tensors: dict[str, AnyArray]) -> bytes:
    """What `write_model` would write, to be stored elsewhere than in a file."""
    tensors, metadata = _prepare(manifest, tensors)
    return save(tensors, metadata=metadata)


def _prepare(
    manifest: dict[str, Any], tensors: dict[str, AnyArray]
) -> tuple[dict[str, AnyArray], dict[str, str]]:
    """Tensors as safetensors takes them, and the header."""
    tensors = {
        name: np.ascontiguousarray(tensor, tensor.dtype.newbyteorder("="))
        for name, tensor in tensors.items()
    }
    header = json.dumps(
        {
            "format_version": FORMAT_VERSION,
            "manifest": manifest,
            "sha256": {name: _checksum(tensor) for name, tensor in tensors.items()},
        },
        allow_nan=False,
    )
    return tensors, {"nearsure": header, "sha256": hashlib.sha256(header.encode()).hexdigest()}


def read_model(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, AnyArray]]:
    """Read a model and verify every part of it.

    Returns
    -------
    manifest : dict
    tensors : dict of str to array

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ModelFileError
        If the file is cut off, altered, of another kind, or of another format version.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"There is no model file at {path}.")
    try:
        with safe_open(path, framework="numpy") as file:
            header = _verify_header(path, file.metadata())
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise _cut_off_error(path, error) from error
    return _verify(path, header, tensors)


def read_model_bytes(content: bytes) -> tuple[dict[str, Any], dict[str, AnyArray]]:
    """The inverse of `model_bytes`, as careful as `read_model`."""
    try:
        tensors = load(content)
    except (SafetensorError, KeyError) as error:
        raise _cut_off_error(KEPT, error) from error
    # After 8 bytes with its length comes a header in JSON, which safetensors has just checked.
    length = int.from_bytes(content[:8], "little")
    stored = json.loads(content[8 : 8 + length])
    return _verify(KEPT, _verify_header(KEPT, stored.get("__metadata__")), tensors)


def _cut_off_error(source: Path | str, error: Exception) -> ModelFileError:
    return ModelFileError(
        f"{source} is cut off or is not a nearsure model: {error}. Save the model again."
    )


def _verify(
    source: Path | str, header: dict[str, Any], tensors: dict[str, AnyArray]
) -> tuple[dict[str, Any], dict[str, AnyArray]]:
    checksums = {name: _checksum(tensor) for name, tensor in tensors.items()}
    if checksums != header["sha256"]:
        raise ModelFileError(
            f"{source} has been altered since it was saved: the checksums of its arrays do not "
            "match. Save the model again."
        )
    return header["manifest"], tensors


def _verify_header(path: Path | str, metadata: dict[str, str] | None) -> dict[str, Any]:
    if not metadata or not {"nearsure", "sha256"} <= set(metadata):
        raise ModelFileError(
            f"{path} is a safetensors file, but not a nearsure model. NEDClassifier.save makes one."
        )
    if hashlib.sha256(metadata["nearsure"].encode()).hexdigest() != metadata["sha256"]:
        raise ModelFileError(
            f"{path} has been altered since it was saved: the checksum of its manifest does not "
            "match. Save the model again."
        )
    try:
        header = json.loads(metadata["nearsure"])
    except (ValueError, RecursionError) as error:
        raise unreadable(str(path), "its manifest is not JSON") from error
    check_fields(str(path), header, _HEADER)
    version = header["format_version"]
    if version not in READABLE:
        remedy = (
            "Upgrade nearsure: pip install --upgrade nearsure"
            if version > FORMAT_VERSION
            else "Fit and save the model again."
        )
        raise ModelFileError(
            f"{path} has format version {version}, and this nearsure reads {FORMAT_VERSION}. "
            f"{remedy}"
        )
    return cast("dict[str, Any]", header)


def _checksum(tensor: AnyArray) -> str:
    digest = hashlib.sha256(f"{tensor.dtype.str}{tensor.shape}".encode())
    digest.update(np.ascontiguousarray(tensor).data.cast("B") if tensor.size else b"")
    return digest.hexdigest()


def sha256_of(path: Path) -> str:
    """The digest of a file, read in pieces."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()
