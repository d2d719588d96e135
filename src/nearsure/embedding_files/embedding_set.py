"""Vectors with labels, all in memory."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nearsure.arrays import AnyArray
from nearsure.embedding_files.checked_columns import LABEL_KINDS
from nearsure.errors import InvalidInputError


@dataclass(frozen=True, eq=False)
class EmbeddingSet:
    """Vectors with the label of each.

    Parameters
    ----------
    vectors : array of shape (n, d), float32
        Finite.
    labels : array of shape (n,)
        Integers or strings.

    Examples
    --------
    >>> len(EmbeddingSet(np.zeros((2, 3), np.float32), np.array(["owl", "wren"])))
    2
    """

    vectors: NDArray[np.float32]
    labels: AnyArray

    def __post_init__(self) -> None:
        vectors, labels = self.vectors, self.labels
        if vectors.ndim != 2 or 0 in vectors.shape or vectors.dtype != np.float32:  # noqa: PLR2004
            raise InvalidInputError(
                "vectors must be float32 of shape (n, d) with at least one row and one column. "
                f"Got {vectors.dtype} of shape {vectors.shape} instead."
            )
        if labels.shape != (len(vectors),) or labels.dtype.kind not in LABEL_KINDS:
            raise InvalidInputError(
                f"labels must be one integer or string for each of the {len(vectors)} vectors. "
                f"Got {labels.dtype} of shape {labels.shape} instead."
            )
        if not np.isfinite(vectors).all():
            row = int(np.flatnonzero(~np.isfinite(vectors).all(axis=1))[0])
            raise InvalidInputError(f"vectors must be finite. Row {row} is not.")

    def __len__(self) -> int:
        return len(self.vectors)
