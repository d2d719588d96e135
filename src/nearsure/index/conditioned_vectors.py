"""Vectors twice, as they are and as float32 serves them best, while they come and go."""

import numpy as np

from nearsure.arrays import AnyArray
from nearsure.index.conditioning import Conditioning
from nearsure.index.growing_rows import GrowingRows, RowMoves


class ConditionedVectors:
    """Vectors for exact distances, and beside them what faiss sees.

    They are centred and scaled as suited them when they were last all looked at, which is again
    when half as many have come and gone as there are. An odd centre or scale costs time at worst.

    Parameters
    ----------
    vectors : array of shape (n, n_features), float32 or float64
        The vectors, which are not copied before the first change.

    Attributes
    ----------
    vectors : array of shape (n, n_features)
        The vectors of now.
    proposing : array of shape (n, n_features), float32
        The same, conditioned; the very same array where they need not be.
    sq_norms : array of shape (n,), float32
        The squared norms of `proposing`.
    conditioning : Conditioning
        What leads from one to the other.
    """

    def __init__(self, vectors: AnyArray) -> None:
        self.vectors = vectors
        self._kept = GrowingRows(vectors)
        self._condition()

    def _condition(self) -> None:
        """Look at all vectors for what suits float32 best."""
        self.conditioning = Conditioning.of(self.vectors)
        self.proposing = self.conditioning.apply(self.vectors)
        self.sq_norms = np.einsum("nm,nm->n", self.proposing, self.proposing)
        in_place = self.proposing is self.vectors
        self._kept_proposing = None if in_place else GrowingRows(self.proposing)
        self._kept_sq_norms = GrowingRows(self.sq_norms)
        self._n_changed = 0

    def append(self, added: AnyArray) -> None:
        """Add vectors of the same width and precision behind the last."""
        conditioned = self.conditioning.apply(added)
        sq_norms = np.einsum("nm,nm->n", conditioned, conditioned)
        self._kept.reserve(len(added))
        self._kept_sq_norms.reserve(len(added))
        if self._kept_proposing is not None:
            self._kept_proposing.append(conditioned)
        self._kept.append(added)
        self._kept_sq_norms.append(sq_norms)
        self._after_change(len(added))

    def remove(self, moves: RowMoves) -> None:
        """Remove rows, as `moves_into_holes` says."""
        n_removed = len(self.vectors) - moves.n_left
        self._kept.remove(moves)
        self._kept_sq_norms.remove(moves)
        if self._kept_proposing is not None:
            self._kept_proposing.remove(moves)
        self._after_change(n_removed)

    def _after_change(self, n_changed: int) -> None:
        self.vectors = self._kept.rows
        self._n_changed += n_changed
        # The time that this takes has been spent on the changes themselves already.
        if 2 * self._n_changed >= len(self.vectors):
            self._condition()
        else:
            self.proposing = (self._kept_proposing or self._kept).rows
            self.sq_norms = self._kept_sq_norms.rows
