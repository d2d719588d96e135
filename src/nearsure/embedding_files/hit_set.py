"""What an engine returned, with labels of any kind."""

from dataclasses import dataclass

import numpy as np

from nearsure.arrays import AnyArray, FloatArray, IntArray
from nearsure.errors import InvalidInputError


@dataclass(frozen=True, eq=False)
class HitSet:
    """The hits of n queries, at most k each, in the engine's order and its own distances.

    Parameters
    ----------
    distances : array of shape (n, k)
        As the engine gives them: of any convention, in any order; infinity behind `counts`.
    neighbor_labels : array of shape (n, k)
        Integers or texts; -1 or "" behind `counts`.
    counts : array of shape (n,)
        How many hits each query has.
    ids : array of shape (n, k), optional
        Of the hits, integers or texts; -1 or "" behind `counts`.
    own_ids : array of shape (n,), optional
        Of the queries, integers or texts.
    truth : array of shape (n,), optional
        The true label of each query, of the kind of `neighbor_labels`.

    Examples
    --------
    >>> hits = HitSet(np.array([[0.1, 0.4]]), np.array([["owl", "wren"]]), np.array([2]))
    >>> len(hits), hits.k
    (1, 2)
    """

    distances: FloatArray
    neighbor_labels: AnyArray
    counts: IntArray
    ids: AnyArray | None = None
    own_ids: AnyArray | None = None
    truth: AnyArray | None = None

    def __post_init__(self) -> None:
        shape = self.distances.shape
        if len(shape) != 2 or 0 in shape:  # noqa: PLR2004
            raise InvalidInputError(
                "distances must be of shape (n, k) with at least one query and one hit. "
                f"Got shape {shape} instead."
            )
        for name, array, expected in (
            ("neighbor_labels", self.neighbor_labels, shape),
            ("counts", self.counts, shape[:1]),
            ("ids", self.ids, shape),
            ("own_ids", self.own_ids, shape[:1]),
            ("truth", self.truth, shape[:1]),
        ):
            if array is not None and array.shape != expected:
                raise InvalidInputError(
                    f"{name} must be of shape {expected}, to go with distances of shape {shape}. "
                    f"Got shape {array.shape} instead."
                )
        if self.counts.min() < 0 or self.counts.max() > shape[1]:
            raise InvalidInputError(
                f"counts must lie in [0, {shape[1]}]. "
                f"Got {self.counts.min()} to {self.counts.max()} instead."
            )
        bad = np.flatnonzero((~np.isfinite(self.distances) & self.valid).any(axis=1))
        if bad.size:
            raise InvalidInputError(
                f"distances must be finite. Query {bad[0]} has NaN or infinity ({bad.size} such "
                "queries): leave such hits out."
            )
        if self.truth is not None and _kind(self.truth) != _kind(self.neighbor_labels):
            raise InvalidInputError(
                "truth and the labels of hits must both be integers or both be texts. "
                f"Got {self.truth.dtype} and {self.neighbor_labels.dtype} instead."
            )

    @property
    def k(self) -> int:
        """How many hits a query has at most."""
        return int(self.distances.shape[1])

    @property
    def valid(self) -> AnyArray:
        """Mask of shape (n, k), False behind `counts`."""
        return np.arange(self.k) < self.counts[:, None]

    def __len__(self) -> int:
        return len(self.distances)


def _kind(labels: AnyArray) -> str:
    return "text" if labels.dtype.kind == "U" else "integer"
