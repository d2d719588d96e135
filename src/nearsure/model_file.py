"""One file that holds a fitted model: safetensors, with a JSON manifest in its header.

The manifest carries the format's version and a checksum of every tensor, and has a checksum itself.
A file is written beside its destination, flushed and renamed, so that a crash at any moment leaves
either the old file or the new one, whole. Nothing in it is ever executed: there is no pickle.
"""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from nearsure.arrays import AnyArray
from nearsure.errors import ModelFileError
from nearsure.whole_files import written_whole

FORMAT_VERSION = 3


def write_model(
    path: str | os.PathLike[str], manifest: dict[str, Any], tensors: dict[str, AnyArray]
) -> None:
    """Write a model, replacing the file at `path` whole or not at all.

    Parameters
    ----------
    path : path-like
        Where to.
    manifest : dict
        Anything that JSON can hold.
    tensors : dict of str to array
        Numeric arrays.
    """
    path = Path(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(f"There is no folder {path.parent} to save a model in.")
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
    metadata = {"nearsure": header, "sha256": hashlib.sha256(header.encode()).hexdigest()}
    with written_whole(path) as draft:
        # Others may read what they may read of a new file here; safetensors would let nobody.
        draft.touch()
        mode = draft.stat().st_mode
        try:
            save_file(tensors, draft, metadata=metadata)
        except SafetensorError as error:
            raise ModelFileError(f"{path} cannot be written: {error}.") from error
        draft.chmod(mode)


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
        If the file is cut off, altered, of another kind, or of a newer format.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"There is no model file at {path}.")
    try:
        with safe_open(path, framework="numpy") as file:
            header = _verified_header(path, file.metadata())
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise ModelFileError(
            f"{path} is cut off or is not a nearsure model: {error}. Save the model again."
        ) from error
    checksums = {name: _checksum(tensor) for name, tensor in tensors.items()}
    if checksums != header["sha256"]:
        raise ModelFileError(
            f"{path} has been altered since it was saved: the checksums of its arrays do not "
            "match. Save the model again."
        )
    manifest: dict[str, Any] = header["manifest"]
    return manifest, tensors


def _verified_header(path: Path, metadata: dict[str, str] | None) -> dict[str, Any]:
    if not metadata or not {"nearsure", "sha256"} <= set(metadata):
        raise ModelFileError(
            f"{path} is a safetensors file, but not a nearsure model. NEDClassifier.save makes one."
        )
    if hashlib.sha256(metadata["nearsure"].encode()).hexdigest() != metadata["sha256"]:
        raise ModelFileError(
            f"{path} has been altered since it was saved: the checksum of its manifest does not "
            "match. Save the model again."
        )
    header: dict[str, Any] = json.loads(metadata["nearsure"])
    if header["format_version"] > FORMAT_VERSION:
        raise ModelFileError(
            f"{path} has format version {header['format_version']}, and this nearsure reads up to "
            f"{FORMAT_VERSION}. Upgrade nearsure: pip install --upgrade nearsure"
        )
    return header


def _checksum(tensor: AnyArray) -> str:
    digest = hashlib.sha256(f"{tensor.dtype.str}{tensor.shape}".encode())
    digest.update(np.ascontiguousarray(tensor).data.cast("B") if tensor.size else b"")
    return digest.hexdigest()
