"""The formats of files: by suffix, by name, and by their first bytes."""

from pathlib import Path

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


def checked_format(name: str) -> str:
    """A format that was asked for by its name or suffix."""
    found = SUFFIXES.get(f".{name.lower().removeprefix('.')}")
    if found is None:
        raise InvalidInputError(
            f"The 'format' parameter must be one of {', '.join(FORMATS)}. Got {name!r} instead."
        )
    return found


def sniffed_format(head: bytes, name: str) -> str:
    """The format of a stream whose first line is `head`: JSON lines unless it is another's.

    Examples
    --------
    >>> sniffed_format(b'{"vector": [1, 2]}', "Standard input")
    'jsonl'
    >>> sniffed_format(b"id,label,x,y", "Standard input")
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
