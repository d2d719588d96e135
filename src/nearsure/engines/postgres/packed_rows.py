"""From rows that hold many points each to arrays."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nearsure.arrays import AnyArray, FloatArray, IntArray
from nearsure.engines.postgres.layout import Layout
from nearsure.errors import UnusableGalleryError


@dataclass(frozen=True, eq=False)
class PackedRows:
    """Points of several rows, behind each other.

    Parameters
    ----------
    ids, labels : array of shape (n,)
        Labels are None if the table has none.
    counts : array of shape (n_rows,)
        How many points each row held.
    rest : bytes
        Vectors or distances, as PostgreSQL sends them.
    """

    ids: AnyArray
    labels: AnyArray | None
    counts: IntArray
    rest: bytes

    def vectors(self, layout: Layout) -> AnyArray:
        """The rest, if it holds vectors; shape (n, dimension)."""
        return layout.stored.decode(self.rest, len(self.ids))

    def distances(self) -> FloatArray:
        """The rest, if it holds distances; shape (n,)."""
        return np.frombuffer(self.rest, ">f8").astype(np.float64)


def unpacked(layout: Layout, rows: Sequence[Sequence[Any]]) -> PackedRows:
    """What rows of packed ids, labels (if there are any) and a rest hold together."""
    columns = list(zip(*rows, strict=True))
    ids, counts = layout.id.unpacked(columns[0])
    labels = None
    if layout.label is not None:
        labels, n_labels = layout.label.unpacked(columns[1])
        if not np.array_equal(n_labels, counts):
            raise UnusableGalleryError(layout.label.has_nulls)
    return PackedRows(ids, labels, counts, b"".join(part or b"" for part in columns[-1]))
