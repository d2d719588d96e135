"""An HNSW graph with one node for each distinct vector."""

from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from nearsure.arrays import AnyArray, BoolArray, IntArray
from nearsure.engines.embedded.base import (
    ApproximateType,
    IndexSettings,
    Selection,
    faiss,
    mask_of,
    selector_of,
    threads,
)
from nearsure.index.exact import fingerprints, first_of_equals
from nearsure.index.rows import GrowingRows, RowIds

if TYPE_CHECKING:
    from typing import Self

# Equal vectors, of which a graph holds one.
#
# Hundreds of copies of one vector link to each other alone: a search that comes among them stays
# there and finds nothing else. So a vector has one node in the graph, however many points have it.


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


# A search must keep more candidates than it is asked for, or the last ones are poor.
SPARE_CANDIDATES = 16


class HnswRows:
    """Float32 vectors in an `IndexHNSWFlat`, which stores them once.

    Parameters
    ----------
    index : faiss.IndexHNSWFlat
        The graph.
    nodes : array of shape (n_rows,)
        The node of each row.
    settings : IndexSettings
        How it is built and searched.
    """

    def __init__(self, index: Any, nodes: IntArray, settings: IndexSettings) -> None:  # noqa: ANN401
        self.index = index
        index.hnsw.efConstruction = settings.hnsw_ef_construction
        self._storage = faiss.downcast_index(index.storage)
        self._copies = Copies(nodes)
        self.settings = settings
        self._prints: RowIds | None = None

    @classmethod
    def empty(cls, dimension: int, settings: IndexSettings) -> "Self":
        """A graph without nodes."""
        index = faiss.IndexHNSWFlat(dimension, settings.hnsw_links)
        return cls(index, np.empty(0, np.int64), settings)

    @property
    def kind(self) -> ApproximateType:
        """Which index it is."""
        return "hnsw"

    @property
    def n_trained(self) -> None:
        """A graph is not trained."""

    @property
    def n_rows(self) -> int:
        """How many rows there are."""
        return self._copies.n_rows

    @property
    def nodes(self) -> IntArray | None:
        """The node of each row; None if that is the row itself."""
        return self._copies.nodes if self._copies.exist else None

    def reserve(self, n_rows: int) -> None:
        """Make room for the first rows, which would otherwise be copied each time it doubles."""
        n_links = round(n_rows * self.settings.hnsw_links * 2.05)
        for held, size in (
            (self._storage.codes, n_rows * self._storage.code_size),
            (self.index.hnsw.neighbors, n_links),
        ):
            held.resize(size)
            held.resize(0)

    def add(self, vectors: AnyArray) -> None:
        """Add rows; those whose vector is there already join its node."""
        n_before = self.index.ntotal
        prints = fingerprints(vectors)
        firsts = first_of_equals(vectors, prints)
        is_new = firsts == np.arange(len(vectors))
        nodes = np.full(len(vectors), -1)
        nodes[is_new] = self._known_nodes(vectors[is_new], prints[is_new])
        is_new &= nodes < 0
        nodes[is_new] = n_before + np.arange(int(is_new.sum()))
        try:
            self._link(vectors if is_new.all() else vectors[is_new])
        except BaseException:
            # What faiss has taken cannot be taken back. Every node has a row, wanted or not.
            self._note(np.arange(n_before, self.index.ntotal), prints[is_new])
            raise
        self._note(nodes[firsts], prints[is_new])

    def search(
        self,
        queries: AnyArray,
        k: int,
        selection: Selection | None,
        effort: int | None = None,
        times: int = 1,
    ) -> tuple[AnyArray, IntArray]:
        """The k nearest rows, nearly always."""
        ef = times * max(effort or self.settings.hnsw_ef_search, k + SPARE_CANDIDATES)
        if ef >= self.index.ntotal:
            return self.search_all(queries, k, selection)
        options = faiss.SearchParametersHNSW(efSearch=ef)
        if selection is None:
            distances, nodes = self.index.search(queries, k, params=options)
        else:
            # With a selector, the dead about a query would use up its candidates unseen.
            distances, nodes = self.index.search(queries, ef, params=options)
            distances, nodes = selection.nearest(distances, nodes, k, k + SPARE_CANDIDATES)
        return self._copies.expanded(distances, nodes, k, mask_of(selection))

    def search_all(
        self, queries: AnyArray, k: int, selection: Selection | None
    ) -> tuple[AnyArray, IntArray]:
        """The k nearest rows, found by comparing with every vector."""
        # With a selector faiss computes by differences; without one, by products that cancel.
        options = faiss.SearchParameters(**selector_of(selection) or {"sel": faiss.IDSelectorAll()})
        n_found = min(k, self.index.ntotal)
        distances, nodes = self._storage.search(queries, n_found, params=options)
        return self._copies.expanded(distances, nodes, k, mask_of(selection))

    def selected(self, row_mask: BoolArray) -> Selection:
        """A selection for `search`."""
        return Selection(row_mask, self._copies.node_mask(row_mask))

    def vectors_of(self, rows: IntArray) -> AnyArray:
        """The vectors of rows."""
        vectors: AnyArray = self._vectors()[self._copies.nodes_of(rows)]
        return vectors

    def is_outgrown_by(self, n_points: int) -> bool:
        """Never: a graph grows with its points."""
        del n_points
        return False

    def _link(self, vectors: AnyArray) -> None:
        if not len(vectors):
            return
        # What is drawn depends on the number of nodes, not on whether they were read from a file.
        self.index.hnsw.rng = faiss.RandomGenerator(self.settings.seed + self.index.ntotal)
        with threads(self.settings.build_threads):
            self.index.add(vectors)

    def _note(self, nodes: IntArray, new_prints: IntArray) -> None:
        n_new = self.index.ntotal - self._copies.n_nodes
        self._copies.append(nodes)
        if self._prints is not None:
            self._prints.append(new_prints[:n_new])

    def _vectors(self) -> AnyArray:
        """The vectors of all nodes, where faiss has them; good until the next addition."""
        shape = self.index.ntotal, self.index.d
        held: AnyArray = faiss.rev_swig_ptr(self._storage.get_xb(), shape[0] * shape[1])
        return held.reshape(shape)

    def _known_nodes(self, vectors: AnyArray, prints: IntArray) -> IntArray:
        """The nodes that hold these vectors already; -1 where there is none."""
        if not self.index.ntotal:
            return np.full(len(vectors), -1)
        if self._prints is None:
            self._prints = RowIds(fingerprints(self._vectors()))
        nodes = self._prints.last_rows(prints)
        known = np.flatnonzero(nodes >= 0)
        unequal = (self._vectors()[nodes[known]] != vectors[known]).any(axis=1)
        nodes[known[unequal]] = -1
        return nodes
