"""Points in an approximate index. It cannot forget, so removed rows are passed over."""

from typing import Self

import numpy as np

from nearsure.arrays import AnyArray, IntArray
from nearsure.engines.contract import Found, Stored
from nearsure.engines.embedded.answers import found_of
from nearsure.engines.embedded.coarse_centre import CoarseCentre
from nearsure.engines.embedded.faiss_rows import FaissRows
from nearsure.engines.embedded.loading import loaded_rows
from nearsure.engines.embedded.point_table import PointTable
from nearsure.engines.embedded.shelf import Arrays, Change, Numbers, Shelf
from nearsure.engines.embedded.stored_index import index_bytes

# When more than this share of the rows is dead, the index is made anew without them.
DEAD_SHARE = 0.2
# Queries that found too few are searched for again, first with this much more effort.
MORE_EFFORT = 8


class ApproximateShelf:
    """Approximate search over rows that stay where they are.

    Parameters
    ----------
    rows : FaissRows
        The vectors, moved by `centre`.
    centre : CoarseCentre
        What they were moved by.
    table : PointTable
        Ids and labels of the rows.
    """

    def __init__(self, rows: FaissRows, centre: CoarseCentre, table: PointTable) -> None:
        self._rows = rows
        self._centre = centre
        self._table = table
        self._select()

    def __len__(self) -> int:
        return self._table.n_alive

    def search(self, queries: AnyArray, k: int) -> Found:
        """The k nearest points, nearly always; k in any case, if there are so many."""
        moved = self._centre.moved(queries, "queries")
        n_found, selection = min(k, len(self)), self._selection
        distances, rows = self._rows.search(moved, n_found, selection)
        for effort in (MORE_EFFORT, None):
            lacking = np.flatnonzero(rows[:, -1] < 0)
            if not lacking.size:
                break
            distances[lacking], rows[lacking] = (
                self._rows.search_all(moved[lacking], n_found, selection)
                if effort is None
                else self._rows.search(moved[lacking], n_found, selection, effort)
            )
        sq_distances = distances.astype(np.float64)
        if self._centre.scale != 1.0:
            sq_distances *= self._centre.scale**2
        labels = self._table.labels[rows]
        return found_of(sq_distances, self._table.ids.of(rows), labels, k, sorted_ties=False)

    def adding(self, vectors: AnyArray, ids: IntArray, labels: IntArray) -> Change:
        """Add points; into an index made anew if this one is far too small for them."""
        self._table.check_new(ids)
        moved = self._centre.moved(vectors, "vectors")
        if self._rows.is_outgrown_by(len(self) + len(ids)):
            grown = self._rebuilt(self._table.alive_rows(), moved, ids, labels)
            return lambda: grown

        def add() -> Shelf:
            n_before = self._rows.n_rows
            self._table.reserve(len(ids))
            try:
                self._rows.add(moved)
            except BaseException:
                # faiss cannot take rows back: what it has taken is dead.
                strays = np.arange(n_before, self._rows.n_rows)
                self._table.append(ids[: len(strays)], labels[: len(strays)])
                self._table.bury(strays)
                self._select()
                raise
            self._table.append(ids, labels)
            self._select()
            return self

        return add

    def removing(self, ids: IntArray) -> Change:
        """Remove points; by an index made anew if too many rows would be dead."""
        removed = self._table.rows_of(ids)
        n_left = len(self) - len(removed)
        if not n_left:
            return lambda: None
        if self._rows.n_rows - n_left > DEAD_SHARE * self._rows.n_rows:
            kept = np.setdiff1d(self._table.alive_rows(), removed, assume_unique=True)
            left = self._rebuilt(kept)
            return lambda: left

        def remove() -> Shelf:
            self._table.bury(removed)
            self._select()
            return self

        return remove

    def relabelling(self, ids: IntArray, labels: IntArray) -> Change:
        """Give points other labels."""
        rows = self._table.rows_of(ids)

        def relabel() -> Shelf:
            self._table.relabel(rows, labels)
            return self

        return relabel

    def fetch(self, ids: IntArray) -> Stored:
        """Points with vectors and labels."""
        rows = self._table.rows_of(ids)
        vectors = self._centre.moved_back(self._rows.vectors_of(rows))
        return Stored(ids, self._table.labels[rows], vectors)

    def ids_and_labels(self) -> tuple[IntArray, IntArray]:
        """Of all points, by ascending id."""
        rows = self._table.alive_rows()
        ids = self._table.ids.of(rows)
        order = np.argsort(ids)
        return ids[order], self._table.labels[rows[order]]

    def to_state(self) -> tuple[Numbers, Arrays]:
        """The index as bytes, and what is kept beside it."""
        table, nodes = self._table, self._rows.nodes
        arrays = {
            "index": index_bytes(self._rows.index),
            "centre": self._centre.centre,
            "labels": table.labels.copy(),
        }
        if not table.ids.are_rows:
            arrays["ids"] = table.ids.values.copy()
        if table.is_alive is not None:
            arrays["dead_rows"] = np.flatnonzero(~table.is_alive)
        if nodes is not None:
            arrays["nodes"] = nodes.copy()
        return {"scale": self._centre.scale, "n_trained": self._rows.n_trained}, arrays

    def _rebuilt(
        self,
        kept: IntArray,
        moved: AnyArray | None = None,
        new_ids: IntArray | None = None,
        new_labels: IntArray | None = None,
    ) -> Self:
        """A shelf of some rows of this one, and new points behind them."""
        ids, labels = self._table.ids.of(kept), self._table.labels[kept]
        if new_ids is not None and new_labels is not None:
            ids, labels = np.append(ids, new_ids), np.append(labels, new_labels)
        places = np.arange(len(ids))

        def vectors_of(some: IntArray | slice) -> AnyArray:
            wanted = places[some]
            old = self._rows.vectors_of(kept[wanted[wanted < len(kept)]])
            if moved is None:
                return old
            return np.concatenate([old, moved[wanted[wanted >= len(kept)] - len(kept)]])

        rows = loaded_rows(self._rows.kind, self._rows.settings, vectors_of, len(ids))
        return type(self)(rows, self._centre, PointTable(ids, labels))

    def _select(self) -> None:
        """See anew which rows a search may find."""
        is_alive = self._table.is_alive
        self._selection = None if is_alive is None else self._rows.selected(is_alive)
