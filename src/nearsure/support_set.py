"""A labelled gallery that lives: points are added, removed and relabelled without a rebuild."""

import numpy as np
from numpy.typing import ArrayLike

from nearsure.arrays import AnyArray, BoolArray, FloatArray, IntArray
from nearsure.errors import InvalidInputError
from nearsure.index import ExactIndex
from nearsure.index.growing_rows import GrowingRows
from nearsure.index.stable_ids import check_distinct, integer_ids
from nearsure.leaving_one_out import in_places, search_leaving_one_out
from nearsure.neighbors import Neighbors
from nearsure.support_checks import (
    check_not_emptied,
    checked_codes,
    checked_vectors,
    members_left_of_groups,
    sizes_of_classes,
)

# Classes of more members than this many times k are left out by searching the others.
LARGE_CLASS = 8


class SupportSet:
    """Vectors with class codes, groups and ids that stay with them through every change.

    Answers depend on the points alone, not on the changes that led to them. A call that raises an
    error changes nothing.

    Parameters
    ----------
    vectors : array of shape (n, n_features)
        The support vectors, finite. Float32 and float64 are kept without a copy until the first
        change, and must not change otherwise.
    codes : array of shape (n,)
        Integer class codes, not negative.
    groups : array of shape (n,), optional
        Integer codes of groups (a burst of photographs): a point's group is left out with it.
        Points added later must then have one, too.
    ids : array of shape (n,), optional
        Distinct 64-bit integers; by default 0, 1, 2, ...
    next_id : int, optional
        The `next_id` of a support set that this one continues, so that no id is used twice.
    changed_ids : array of shape (m,), optional
        Ids that had changed since a mark in a support set that this one continues: they count as
        changed since the mark 0.
    classes : array of shape (n_classes,), optional
        The labels that codes stand for; by default the codes themselves.

    Examples
    --------
    >>> gallery = SupportSet([[0.0], [1.0], [5.0]], codes=[0, 0, 1])
    >>> gallery.add([[6.0], [7.0]], codes=[1, 2])
    array([3, 4])
    >>> gallery.remove([0])
    >>> found = gallery.search([[0.0]], k=2)
    >>> found.ids, found.labels
    (array([[1, 2]]), array([[0, 1]]))
    >>> gallery.class_counts
    array([1, 2, 1])
    """

    def __init__(
        self,
        vectors: ArrayLike,
        codes: ArrayLike,
        groups: ArrayLike | None = None,
        ids: ArrayLike | None = None,
        *,
        next_id: int | None = None,
        changed_ids: ArrayLike | None = None,
        classes: AnyArray | None = None,
    ) -> None:
        points = checked_vectors(vectors)
        own_codes = checked_codes(codes, len(points))
        self._groups = (
            None if groups is None else GrowingRows(integer_ids(groups, len(points), "groups"))
        )
        self._index = ExactIndex(points, ids, next_id=next_id)
        self._codes = GrowingRows(own_codes)
        self.classes = np.arange(own_codes.max() + 1) if classes is None else classes
        self._counts = sizes_of_classes(own_codes)
        # Made when it is asked for, and kept until a change: every query asks.
        self._counts_by_code: IntArray | None = None
        changed = (
            np.empty(0, np.int64) if changed_ids is None else np.asarray(changed_ids, np.int64)
        )
        self._changed_ids = GrowingRows(changed)

    def __len__(self) -> int:
        return len(self._index)

    @property
    def vectors(self) -> AnyArray:
        """The vectors, shape (n, n_features), in the order of `ids`: a view, until a change."""
        view: AnyArray = self._index.vectors.view()
        view.flags.writeable = False
        return view

    @property
    def ids(self) -> IntArray:
        """The ids of all points, shape (n,). Removals change their order."""
        return self._index.ids.copy()

    @property
    def codes(self) -> IntArray:
        """The class codes of all points, shape (n,), in the order of `ids`."""
        return self._codes.rows.copy()

    @property
    def groups(self) -> IntArray | None:
        """The groups of all points, shape (n,), in the order of `ids`; None if there are none."""
        return None if self._groups is None else self._groups.rows.copy()

    @property
    def next_id(self) -> int:
        """The id that the next point gets if none is given: the largest ever used + 1."""
        return self._index.next_id

    @property
    def class_counts(self) -> IntArray:
        """How many points each class has, indexed by code, up to the largest ever used.

        A class code stays when its last point goes; the class just has no member.
        """
        if self._counts_by_code is None:
            counts = np.zeros(max(self._counts) + 1, np.int64)
            counts[list(self._counts)] = list(self._counts.values())
            counts.flags.writeable = False
            self._counts_by_code = counts
        return self._counts_by_code

    def ids_at(self, places: IntArray) -> IntArray:
        """The ids at some places in the order of ids, which no history of a gallery changes."""
        ids: IntArray = np.sort(self._index.ids)[places]
        return ids

    def holds(self, ids: ArrayLike) -> BoolArray:
        """Which of some ids are those of points, shape (n,)."""
        return np.isin(integer_ids(ids), self._index.ids)

    def codes_of(self, ids: ArrayLike) -> IntArray:
        """The class codes of the points with these ids, shape (n,)."""
        codes: IntArray = self._codes.rows[self._index.rows_of(ids)]
        return codes

    def members_left(self, ids: ArrayLike) -> IntArray:
        """How many members each point's class has without the point, or its group, shape (n,)."""
        rows, codes = self._index.rows_of(ids), self._codes.rows
        if self._groups is None:
            left: IntArray = self.class_counts[codes[rows]] - 1
            return left
        return members_left_of_groups(codes, self._groups.rows, rows)

    def add(
        self,
        vectors: ArrayLike,
        codes: ArrayLike,
        groups: ArrayLike | None = None,
        ids: ArrayLike | None = None,
    ) -> IntArray:
        """Add points, in time that does not depend on how many there are.

        Parameters
        ----------
        vectors : array of shape (n, n_features)
            Their vectors, finite, which are kept in the precision of the gallery.
        codes : array of shape (n,)
            Their class codes, which may be new.
        groups : array of shape (n,), optional
            Their groups: given if, and only if, the gallery has groups.
        ids : array of shape (n,), optional
            Their ids, which no point of the gallery has; by default they count on from `next_id`.

        Returns
        -------
        ids : array of shape (n,)
            The ids of the new points.
        """
        n_added = len(np.atleast_1d(np.asarray(vectors)))
        own_codes = checked_codes(codes, n_added)
        own_groups = self._checked_groups(groups, n_added)
        counts = self._counts_after(come=own_codes)
        for kept in (self._codes, self._groups, self._changed_ids):
            if kept is not None:
                kept.reserve(n_added)
        new_ids = self._index.add(vectors, ids)
        self._codes.append(own_codes)
        if self._groups is not None and own_groups is not None:
            self._groups.append(own_groups)
        self._record(new_ids, counts)
        return new_ids

    def remove(self, ids: ArrayLike, *, allow_empty_class: bool = False) -> None:
        """Remove points, in time that does not depend on how many there are.

        Parameters
        ----------
        ids : array of shape (n,)
            Their ids, distinct. At least one point must be left.
        allow_empty_class : bool, default False
            Whether a class may lose its last point. Its code stays; no answer has it any more.
        """
        removed, rows = self._distinct_points(ids)
        if len(rows) == len(self):
            raise InvalidInputError(
                f"At least one point must be left in the gallery. Got all {len(rows)} to remove."
            )
        counts = self._counts_after(gone=self._codes.rows[rows])
        check_not_emptied(counts, allowed=allow_empty_class)
        self._changed_ids.reserve(len(rows))
        moves = self._index.remove(rows)
        self._codes.remove(moves)
        if self._groups is not None:
            self._groups.remove(moves)
        self._record(removed, counts)

    def relabel(self, ids: ArrayLike, codes: ArrayLike, *, allow_empty_class: bool = False) -> None:
        """Give points other class codes.

        Parameters
        ----------
        ids : array of shape (n,)
            Their ids, distinct.
        codes : array of shape (n,)
            Their new class codes. A point that has its code already does not count as changed.
        allow_empty_class : bool, default False
            Whether a class may lose its last point. Its code stays; no answer has it any more.
        """
        relabelled, rows = self._distinct_points(ids)
        own_codes = checked_codes(codes, len(rows))
        before = self._codes.rows[rows]
        other = own_codes != before
        counts = self._counts_after(gone=before[other], come=own_codes[other])
        check_not_emptied(counts, allowed=allow_empty_class)
        self._changed_ids.reserve(len(rows))
        self._codes.put(rows, own_codes)
        self._record(relabelled[other], counts)

    def search(self, queries: ArrayLike, k: int) -> Neighbors:
        """The k nearest points of each query, with class codes as labels.

        Parameters
        ----------
        queries : array of shape (n, n_features)
            The queries.
        k : int
            How many neighbours, at most the number of points.
        """
        sq_distances, rows = self._index.search_rows(np.asarray(queries), k)
        return Neighbors(sq_distances, self._codes.rows[rows], self._index.ids_of(rows))

    def leave_one_out(self, ids: ArrayLike | None, k: int) -> Neighbors:
        """The k nearest of all other points of some points, their groups left out with them.

        Parameters
        ----------
        ids : array of shape (n,) or None
            The points; None for all, in the order of `ids`.
        k : int
            How many neighbours. Rows hold fewer where there are no more.
        """
        rows = np.arange(len(self)) if ids is None else self._index.rows_of(ids)
        return self._leaving_out(rows, k, None if self._groups is None else self._groups.rows)

    def leave_class_out(self, ids: ArrayLike | None, k: int) -> Neighbors:
        """The k nearest points of other classes of some points, which then look like unknowns.

        Parameters
        ----------
        ids : array of shape (n,) or None
            The points; None for all, in the order of `ids`.
        k : int
            How many neighbours. Rows hold fewer where there are no more.
        """
        rows = np.arange(len(self)) if ids is None else self._index.rows_of(ids)
        codes = self._codes.rows
        large = np.flatnonzero(self.class_counts > LARGE_CLASS * k)
        small = np.flatnonzero(~np.isin(codes[rows], large))
        # A point of a large class finds nothing but fellows for long: it is searched among the
        # others instead.
        parts = [(small, self._leaving_out(rows[small], k, codes))] if small.size else []
        for code in large.tolist():
            places = np.flatnonzero(codes[rows] == code)
            if places.size:
                parts.append((places, self._among_others(rows[places], code, k)))
        return in_places(parts, len(rows))

    def _among_others(self, rows: IntArray, code: int, k: int) -> Neighbors:
        """The k nearest points of other classes than one, for points of that class."""
        others = np.flatnonzero(self._codes.rows != code)
        if not others.size:
            nobody = np.zeros((len(rows), 1))
            return Neighbors(
                nobody, nobody.astype(np.int64), nobody.astype(np.int64), np.zeros(len(rows), int)
            )
        index = ExactIndex(self._index.vectors[others], self._index.ids_of(others))
        sq_distances, found = index.search_rows(self._index.vectors[rows], min(k, len(others)))
        return Neighbors(
            sq_distances, self._codes.rows[others][found], self._index.ids_of(others[found])
        )

    def _leaving_out(self, rows: IntArray, k: int, groups: IntArray | None) -> Neighbors:
        found = search_leaving_one_out(
            _ByRow(self._index),
            self._index.vectors[rows],
            rows,
            self._codes.rows,
            k=k,
            groups=groups,
        )
        found_ids = self._index.ids_of(np.asarray(found.ids))
        return Neighbors(found.sq_distances, found.labels, found_ids, found.counts)

    @property
    def n_changes(self) -> int:
        """How often a point was added, removed or relabelled: a mark for `share_changed`."""
        return len(self._changed_ids.rows)

    def share_changed(self, since: int) -> float:
        """Points added, removed or relabelled since a mark, as a share of the points of now.

        Each point, known by its id, counts once, however often it changed. Removed points count,
        so that the share may exceed 1. What was changed is kept for this, 8 bytes a change.

        Parameters
        ----------
        since : int
            What `n_changes` was at the mark.

        Examples
        --------
        >>> gallery = SupportSet([[0.0], [1.0], [5.0]], codes=[0, 0, 1])
        >>> mark = gallery.n_changes
        >>> gallery.relabel(gallery.add([[6.0]], codes=[1]), codes=[0])
        >>> gallery.share_changed(since=mark)
        0.25
        """
        if not 0 <= since <= self.n_changes:
            raise InvalidInputError(
                f"since must be an earlier n_changes, in [0, {self.n_changes}]. "
                f"Got {since} instead."
            )
        return len(self.changed_ids(since)) / len(self)

    def changed_ids(self, since: int) -> IntArray:
        """The ids that were added, removed or relabelled since a mark, ascending, each once."""
        return np.unique(self._changed_ids.rows[since:])

    def _distinct_points(self, ids: ArrayLike) -> tuple[IntArray, IntArray]:
        """Ids that occur once each, and their rows."""
        own = integer_ids(ids)
        check_distinct(own)
        return own, self._index.rows_of(own)

    def _checked_groups(self, groups: ArrayLike | None, n_points: int) -> IntArray | None:
        if (groups is None) != (self._groups is None):
            raise InvalidInputError(
                "groups must be given if, and only if, the gallery was made with groups. Got "
                + ("none, and it was." if groups is None else "groups, and it was not.")
            )
        return None if groups is None else integer_ids(groups, n_points, "groups")

    def _counts_after(
        self, *, gone: IntArray | None = None, come: IntArray | None = None
    ) -> dict[int, int]:
        """The class codes that lose or gain points, and how many each then has."""
        lost, gained = sizes_of_classes(gone), sizes_of_classes(come)
        return {
            code: self._counts.get(code, 0) + gained.get(code, 0) - lost.get(code, 0)
            for code in lost | gained
        }

    def _record(self, changed_ids: IntArray, counts: dict[int, int]) -> None:
        self._counts |= counts
        self._counts_by_code = None
        self._changed_ids.append(changed_ids)


class _ByRow:
    """An index that answers with row numbers, which codes and groups are looked up by."""

    def __init__(self, index: ExactIndex) -> None:
        self._index = index

    def __len__(self) -> int:
        return len(self._index)

    def search(self, queries: AnyArray, k: int) -> tuple[FloatArray, IntArray]:
        return self._index.search_rows(queries, k)
