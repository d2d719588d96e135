"""Some rows of a file of embeddings."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from nearsure.arrays import AnyArray


@dataclass(frozen=True, eq=False)
class EmbeddingChunk:
    """Vectors, and what is known about each.

    Parameters
    ----------
    vectors : array of shape (m, d), float32
        Finite.
    labels, ids : array of shape (m,), optional
        Integers or texts; of one kind in all chunks of a file.
    pictures : list of str or None, optional
        Path of each row's picture, as the file has it.
    first_row : int
        Place of the first row in the file, from 0.
    """

    vectors: NDArray[np.float32]
    labels: AnyArray | None = None
    ids: AnyArray | None = None
    pictures: list[str | None] | None = None
    first_row: int = 0

    def __len__(self) -> int:
        return len(self.vectors)


class RowReader(Protocol):
    """A file or stream, open at its first row."""

    @property
    def dimension(self) -> int:
        """Entries of a vector."""

    @property
    def n_rows(self) -> int | None:
        """How many rows there are; None if that takes reading them."""

    def chunks(self, rows: int) -> Iterator[EmbeddingChunk]:
        """Chunks of `rows` rows, the last one shorter."""

    def close(self) -> None:
        """Let go of the file."""
