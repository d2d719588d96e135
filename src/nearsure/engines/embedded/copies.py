"""Equal vectors, of which a graph holds one.

Hundreds of copies of one vector link to each other alone: a search that comes among them stays
there and finds nothing else. So a vector has one node in the graph, however many points have it.
"""

from itertools import islice

import numpy as np

from nearsure.arrays import AnyArray, BoolArray, IntArray
from nearsure.index.growing_rows import GrowingRows


class Copies:
    """Which node of a graph stands for each row. It takes no memory while no row is a copy.

    Parameters
    ----------
    nodes : array of shape (n_rows,)
        The node of each row. A node's first row comes before those of the nodes after it.

    Examples
    --------
    >>> copies = Copies(np.array([0, 1, 0]))
    >>> copies.append(np.array([2, 1]))
    >>> distances, rows = copies.expanded(np.array([[0.5, 0.7]]), np.array([[1, 0]]), 3, None)
    >>> distances, rows
    (array([[0.5, 0.5, 0.7]]), array([[1, 4, 0]]))
    """

    def __init__(self, nodes: IntArray) -> None:
        self.n_rows = 0
        self.n_nodes = 0
        self._node_of: GrowingRows | None = None
        self._first_row: GrowingRows | None = None
        self._rows_of: dict[int, list[int]] = {}
        self.append(nodes)

    @property
    def nodes(self) -> IntArray:
        """The node of each row."""
        return np.arange(self.n_rows) if self._node_of is None else self._node_of.rows

    @property
    def exist(self) -> bool:
        """Whether any row is a copy of another."""
        return self._node_of is not None

    def nodes_of(self, rows: IntArray) -> IntArray:
        """The node of each of some rows."""
        nodes: IntArray = rows if self._node_of is None else self._node_of.rows[rows]
        return nodes

    def append(self, nodes: IntArray) -> None:
        """Let these nodes, known ones or the next, stand for the next rows."""
        rows = np.arange(self.n_rows, self.n_rows + len(nodes))
        distinct, places = np.unique(nodes, return_index=True)
        is_first = np.zeros(len(nodes), np.bool_)
        is_first[places[distinct >= self.n_nodes]] = True
        if self._node_of is None and not is_first.all():
            self._node_of = GrowingRows(np.arange(self.n_rows))
            self._first_row = GrowingRows(np.arange(self.n_nodes))
        if self._node_of is not None and self._first_row is not None:
            self._node_of.append(nodes)
            self._first_row.append(rows[is_first])
            first_row = self._first_row.rows
            for node, row in zip(nodes[~is_first].tolist(), rows[~is_first].tolist(), strict=True):
                self._rows_of.setdefault(node, [int(first_row[node])]).append(row)
        self.n_rows += len(nodes)
        self.n_nodes += int(is_first.sum())

    def node_mask(self, row_mask: BoolArray) -> BoolArray:
        """Whether each node stands for any of the rows in a mask."""
        if self._node_of is None:
            return row_mask
        mask = np.zeros(self.n_nodes, np.bool_)
        mask[self._node_of.rows[row_mask]] = True
        return mask

    def expanded(
        self, distances: AnyArray, nodes: IntArray, k: int, row_mask: BoolArray | None
    ) -> tuple[AnyArray, IntArray]:
        """From the nodes that a search found to the k nearest rows.

        Parameters
        ----------
        distances, nodes : array of shape (n, n_found)
            Ascending; the node -1 is padding.
        k : int
            How many rows.
        row_mask : array of shape (n_rows,) or None
            Which rows count; None for all.

        Returns
        -------
        distances, rows : array of shape (n, k)
            The row -1 is padding.
        """
        if self._first_row is None:
            return distances, nodes
        rows = np.full((len(nodes), k), -1, np.int64)
        spread = np.full((len(nodes), k), np.inf, distances.dtype)
        width = min(k, nodes.shape[1])
        rows[:, :width] = np.where(nodes < 0, -1, self._first_row.rows[nodes])[:, :width]
        spread[:, :width] = distances[:, :width]
        shared = np.zeros(self.n_nodes + 1, np.bool_)  # the last place is that of the padding
        shared[list(self._rows_of)] = True
        for query in np.flatnonzero(shared[nodes].any(axis=1)).tolist():
            places, own = self._rows_at(nodes[query].tolist(), k, row_mask)
            rows[query, : len(own)], rows[query, len(own) :] = own, -1
            spread[query, : len(own)] = distances[query, places]
            spread[query, len(own) :] = np.inf
        return spread, rows

    def _rows_at(
        self, nodes: list[int], k: int, row_mask: BoolArray | None
    ) -> tuple[list[int], list[int]]:
        """The first k rows of nodes in their order, and the places of their nodes."""
        first_row = np.empty(0) if self._first_row is None else self._first_row.rows
        places: list[int] = []
        rows: list[int] = []
        for place, node in enumerate(nodes):
            if node < 0 or len(rows) >= k:
                break
            own = self._rows_of.get(node)
            n_wanted = k - len(rows)
            if own is None:
                own = [int(first_row[node])]
            elif row_mask is None:
                own = own[:n_wanted]
            else:
                own = list(islice((row for row in own if row_mask[row]), n_wanted))
            rows += own
            places += [place] * len(own)
        return places, rows
