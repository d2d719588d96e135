"""What a file of arrays holds, told before anything is read: npz, npy, Parquet, safetensors."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from nearsure.arrays import AnyArray


@dataclass(frozen=True)
class StoredArray:
    """An array in a file.

    Parameters
    ----------
    shape : tuple of int or None
        Its shape; None for a length that is known only once it is read.
    kind : str
        numpy's letter for the kind of its entries: f, i, u, b, U, S; O for what is refused.
    dtype : str
        Their type, for messages.
    pieces : callable
        Given a number of rows, gives the array in pieces of so many, the last one shorter. A text
        that is missing is None.
    """

    shape: tuple[int | None, ...]
    kind: str
    dtype: str
    pieces: Callable[[int], Iterator[AnyArray]]

    def __str__(self) -> str:
        lengths = ", ".join("?" if length is None else str(length) for length in self.shape)
        return f"{self.dtype} ({lengths})"


def pieces_of(array: AnyArray, rows: int) -> Iterator[AnyArray]:
    """An array that is in memory, or mapped to it, in pieces that are copies."""
    for first in range(0, len(array), rows):
        yield np.array(array[first : first + rows])


def in_even_pieces(pieces: Iterator[AnyArray], rows: int) -> Iterator[AnyArray]:
    """Pieces of any lengths as pieces of `rows` rows each, the last one shorter.

    Examples
    --------
    >>> uneven = iter([np.arange(3), np.arange(3, 4), np.arange(4, 9)])
    >>> [piece.tolist() for piece in in_even_pieces(uneven, 4)]
    [[0, 1, 2, 3], [4, 5, 6, 7], [8]]
    """
    waiting: list[AnyArray] = []
    n_waiting = 0
    for piece in pieces:
        rest = piece
        while n_waiting + len(rest) >= rows:
            cut = rows - n_waiting
            yield _joined([*waiting, rest[:cut]])
            rest, waiting, n_waiting = rest[cut:], [], 0
        if len(rest):
            waiting.append(rest)
            n_waiting += len(rest)
    if waiting:
        yield _joined(waiting)


def _joined(parts: list[AnyArray]) -> AnyArray:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)
