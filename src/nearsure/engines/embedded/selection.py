"""The rows that still count, in the form that faiss asks for."""

from typing import Any

import numpy as np

from nearsure.arrays import AnyArray, BoolArray, IntArray
from nearsure.engines.embedded.native import faiss


class Selection:
    """Rows that a search may find.

    Parameters
    ----------
    row_mask : array of shape (n_rows,)
        Which rows count.
    faiss_mask : array of shape (n_faiss_rows,)
        Which rows of the faiss index stand for any of them.
    """

    def __init__(self, row_mask: BoolArray, faiss_mask: BoolArray) -> None:
        self.row_mask = row_mask
        self._faiss_mask = faiss_mask
        self._n_selected = int(faiss_mask.sum())
        # faiss keeps a pointer to the bits, so they live as long as the selector.
        self._bits = np.packbits(faiss_mask, bitorder="little")
        self.selector: Any = faiss.IDSelectorBitmap(self._bits)

    def nearest(
        self, distances: AnyArray, found: IntArray, k: int, n_needed: int
    ) -> tuple[AnyArray, IntArray]:
        """The first k that are selected among what a search without a selector found.

        Parameters
        ----------
        distances, found : array of shape (n, n_found)
            Ascending; rows of the faiss index, with -1 for padding. n_found is at least k.
        k : int
            How many to keep.
        n_needed : int
            Where fewer than these are selected, though there are more, the last of the k is
            given as missing: too few were looked at.

        Returns
        -------
        distances, found : array of shape (n, k)
        """
        selected = self._faiss_mask[found] & (found >= 0)
        first = np.argsort(~selected, axis=1, kind="stable")[:, :k]
        counts = selected.sum(axis=1)
        found = np.take_along_axis(found, first, axis=1)
        found[np.arange(k) >= counts[:, None]] = -1
        found[counts < min(n_needed, self._n_selected), -1] = -1
        return np.take_along_axis(distances, first, axis=1), found


def selector_of(selection: Selection | None) -> dict[str, Any]:
    """The selector as an option of faiss's search parameters, if there is one."""
    return {} if selection is None else {"sel": selection.selector}


def mask_of(selection: Selection | None) -> BoolArray | None:
    """The rows that count; None if all do."""
    return None if selection is None else selection.row_mask
