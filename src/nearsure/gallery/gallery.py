"""A labelled gallery: points are added, removed, relabelled and searched."""

from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from nearsure.arrays import AnyArray, BoolArray, FloatArray, IntArray
from nearsure.engines.checks import checked_ids
from nearsure.engines.contract import Engine, Fingerprint, Found
from nearsure.errors import GalleryMismatchError, InvalidInputError, UnusableGalleryError
from nearsure.gallery.counts import (
    ClassCounts,
    IdTable,
    LabelCodes,
    census_of_labels,
    counted_as,
    counted_by_table,
)
from nearsure.gallery.leave_out import AskedPoints, portions, search_leaving_out
from nearsure.index import ExactIndex
from nearsure.index.rows import GrowingRows, ids_from
from nearsure.labels import extended_names
from nearsure.loo import in_places, members_left_of_groups, search_leaving_one_out
from nearsure.neighbors import PADDING_LABEL, Neighbors, assemble
from nearsure.validation import check_distinct, checked_codes, checked_vectors, integer_ids

# Points of other classes are looked for among this many times k neighbours.
FARTHEST_LOOK = 16
# Through what neighbours in memory are found.
EXACT: Fingerprint = {"engine": "faiss", "index": "exact"}


class _CountedPoints:
    """What galleries in memory and in an engine share: classes, their sizes, and what changed.

    Parameters
    ----------
    counts : ClassCounts
        Sizes of its classes.
    labels : LabelCodes
        Its classes. Labels go in and out as labels; codes are places in this list.

    Attributes
    ----------
    engine : Engine or None
        Where the points live; None where they are in memory, and nobody else can change them.
    """

    engine: Engine | None = None

    def __init__(self, counts: ClassCounts, labels: LabelCodes) -> None:
        self.counts, self.labels = counts, labels
        self._changed: AnyArray = np.empty(0, np.int64)

    def __len__(self) -> int:
        return self.counts.n_points

    @property
    def classes(self) -> AnyArray:
        """The labels, in the order of their codes; others may add some to an engine."""
        return self.labels.classes

    @property
    def class_counts(self) -> IntArray:
        """How many points each class has, indexed by code."""
        return self.counts.by_code(len(self.labels))

    @property
    def n_changes(self) -> int:
        """How often a point was added, removed or relabelled: a mark for `share_changed`."""
        return len(self._changed)

    def share_changed(self, since: int) -> float:
        """Points changed through this gallery since a mark, as a share of the points of now.

        Each point, known by its id, counts once, however often it changed. Removed points count,
        so that the share may exceed 1.

        Parameters
        ----------
        since : int
            What `n_changes` was at the mark.

        Examples
        --------
        >>> gallery = MemoryGallery([[0.0], [1.0], [5.0]], codes=[0, 0, 1])
        >>> mark = gallery.n_changes
        >>> gallery.relabel(gallery.add([[6.0]], labels=[1]), labels=[0])
        >>> gallery.share_changed(since=mark)
        0.25
        """
        if not 0 <= since <= self.n_changes:
            raise InvalidInputError(
                f"since must be an earlier n_changes, in [0, {self.n_changes}]. "
                f"Got {since} instead."
            )
        return len(self.changed_ids(since)) / len(self)

    def changed_ids(self, since: int) -> AnyArray:
        """The ids that were changed since a mark, ascending, each once."""
        return np.unique(self._changed[since:])

    def mark_changed(self, ids: AnyArray) -> None:
        """Count ids as changed: those of a gallery that this one continues, say."""
        if len(ids):
            before = self._changed if len(self._changed) else ids[:0]  # Ids may be text.
            self._changed = np.concatenate([before, ids])


def _check_groups(groups: ArrayLike | None, *, has_groups: bool) -> None:
    if (groups is not None) != has_groups:
        raise InvalidInputError(
            "groups must be given if, and only if, the gallery was made with groups. Got "
            + ("none, and it was." if has_groups else "groups, and it was not.")
        )


class EngineGallery(_CountedPoints):
    """Points in an engine, with class codes; of their vectors only what is asked for comes here.

    Ids are of the engine's kind. Sizes of classes are counted when it is opened, and by its own
    changes from then on; `recount` sees those of others.

    Parameters
    ----------
    engine : Engine
        Holds the vectors, and the labels if it can.
    counts : ClassCounts
        Sizes of its classes.
    labels : LabelCodes
        Its classes. Labels go in and out as labels; codes are places in this list.
    codes : IdTable, optional
        Class codes of all ids, for an engine that holds no labels, and where there are groups.
    groups : IdTable, optional
        Groups of all ids.
    codes_in_engine : bool, default False
        Whether the engine, which nobody else writes to, holds class codes for labels.
    """

    def __init__(
        self,
        engine: Engine,
        counts: ClassCounts,
        labels: LabelCodes,
        codes: IdTable | None = None,
        groups: IdTable | None = None,
        *,
        codes_in_engine: bool = False,
    ) -> None:
        super().__init__(counts, labels)
        self.engine: Engine = engine
        self.codes_beside, self.groups_beside = codes, groups
        self.codes_in_engine = codes_in_engine

    def fingerprint(self) -> Fingerprint:
        """Through what the engine finds neighbours."""
        return dict(self.engine.fingerprint())

    @property
    def ids(self) -> AnyArray:
        """The ids of all points, ascending."""
        return _joined([portion.ids for portion in self.engine.scan()])

    @property
    def codes(self) -> IntArray:
        """The class codes of all points, in the order of `ids`."""
        return _joined([self._codes(part.ids, part.labels) for part in self.engine.scan()])

    @property
    def next_id(self) -> int:
        """The id that the next point gets if none is given: the largest that was seen + 1."""
        if self.engine.capabilities.ids != "integer":
            raise InvalidInputError("ids must be given: those of this engine are text. Got none.")
        return self.counts.next_id

    def recount(self) -> None:
        """Count points and classes anew, with what others have changed, in one pass over all."""
        if not self.engine.capabilities.holds_labels:
            counts = counted_by_table(self.engine, _some(self.codes_beside))
        elif self.codes_in_engine:
            codes, sizes, next_id = census_of_labels(self.engine)
            counts = ClassCounts(np.bincount(codes, sizes, len(self.labels)), next_id)
        else:
            counts = counted_as(self.engine, self.labels)
        self.counts = counts.not_below(self.counts)

    def without_empty_classes(self) -> "EngineGallery":
        """The same gallery, counted anew, with a list of those classes that have points.

        Codes that stand beside or in the engine keep the list that they are places in.
        """
        self.recount()
        if self.codes_in_engine or self.codes_beside is not None:
            return self
        counts = self.class_counts
        kept = np.flatnonzero(counts)
        if len(kept) == len(counts):
            return self
        # A list and a gallery of their own: codes that were handed out are places in the old one.
        gallery = EngineGallery(
            self.engine,
            ClassCounts(counts[kept], self.counts.next_id),
            LabelCodes(self.classes[kept]),
        )
        gallery.mark_changed(self.changed_ids(0))
        return gallery

    def keep_groups(self, groups: IdTable) -> None:
        """Take groups of all ids, beside the engine."""
        parts = [(part.ids, self._codes(part.ids, part.labels)) for part in self.engine.scan()]
        codes = IdTable(_joined([ids for ids, _ in parts]), _joined([own for _, own in parts]))
        groups.places_of(codes.ids)
        self.codes_beside, self.groups_beside = codes, groups

    def changed_elsewhere(self) -> int:
        """By how many points the engine's size differs from what this gallery has counted."""
        return abs(self.engine.size() - len(self))

    def ids_at(self, places: IntArray) -> AnyArray:
        """The ids at some places in the order of all ids, found in one pass over them."""
        found, seen = [], 0
        for portion in self.engine.scan():
            here = places[(places >= seen) & (places < seen + len(portion.ids))]
            found.append(portion.ids[here - seen])
            seen += len(portion.ids)
        return _joined(found)

    def holds(self, ids: AnyArray) -> BoolArray:
        """Which of some ids are those of points, found in one pass over all."""
        there = np.zeros(len(ids), np.bool_)
        for portion in self.engine.scan():
            there |= np.isin(ids, portion.ids)
        return there

    def codes_of(self, ids: ArrayLike) -> IntArray:
        """The class codes of the points with these ids, shape (n,)."""
        wanted, places = np.unique(np.asarray(ids), return_inverse=True)
        if not self.engine.capabilities.holds_labels:
            return _some(self.codes_beside).of(wanted)[places]
        parts = [self._codes(part, self.engine.fetch(part).labels) for part in portions(wanted)]
        codes: IntArray = _joined(parts)[places]
        return codes

    def _counted_codes_of(self, ids: AnyArray) -> IntArray:
        """The same of points that are to change, whose classes must have been counted."""
        codes = self.codes_of(ids)
        if not self.counts.has_counted(codes):
            self.recount()
        return codes

    def members_left(self, ids: AnyArray) -> IntArray:
        """How many members each point's class has without the point, or its group, shape (n,)."""
        if self.groups_beside is None:
            left: IntArray = self.class_counts[self.codes_of(ids)] - 1
            return left
        rows = self.groups_beside.places_of(ids)
        codes = _some(self.codes_beside).of(self.groups_beside.ids)
        return members_left_of_groups(codes, self.groups_beside.values, rows)

    def add(
        self,
        vectors: AnyArray,
        labels: AnyArray,
        groups: IntArray | None = None,
        ids: ArrayLike | None = None,
    ) -> AnyArray:
        """Add points to the engine, all or none; their ids.

        A new class is named first, so that whoever finds its points finds its name. Should they
        not be added then, it stays, without members.
        """
        _check_groups(groups, has_groups=self.groups_beside is not None)
        if not len(vectors):
            return np.empty(0, np.int64)
        codes = self._named(labels)
        if ids is not None:
            return self._add(vectors, codes, groups, checked_ids(ids, self.engine.capabilities))
        try:
            return self._add(vectors, codes, groups, self._new_ids(len(vectors)))
        except InvalidInputError:
            # Others may have taken these ids.
            taken = self.next_id
            self.recount()
            if self.next_id == taken:
                raise
            return self._add(vectors, codes, groups, self._new_ids(len(vectors)))

    def _add(
        self, vectors: AnyArray, codes: IntArray, groups: IntArray | None, ids: AnyArray
    ) -> AnyArray:
        """Beside the engine first: who finds a point there must find its label here."""
        beside = [(self.codes_beside, codes), (self.groups_beside, groups)]
        tables = [(table, values) for table, values in beside if table is not None]
        there = [table for table, _ in tables if np.isin(ids, table.ids).any()]
        if there:
            raise InvalidInputError(
                "ids of new points must be new. Got some that the gallery holds already."
            )
        for table, values in tables:
            table.add(ids, np.asarray(values))
        try:
            self.engine.add(vectors, ids, self._labels_for_engine(codes))
        except BaseException:
            for table, _ in tables:
                table.remove(ids)
            raise
        self.counts = self.counts.after(come=codes, new_ids=ids)
        self.mark_changed(ids)
        return ids

    def remove(self, ids: ArrayLike, *, allow_empty_class: bool = False) -> None:
        """Remove points from the engine, all or none."""
        gone = checked_ids(ids, self.engine.capabilities)
        if not gone.size:
            return
        if len(gone) >= len(self):
            self.recount()  # Others may have added points.
        if len(gone) >= len(self):
            raise InvalidInputError(
                f"At least one point must be left in the gallery. Got all {len(gone)} to remove."
            )
        codes = self._counted_codes_of(gone)
        counts = self.counts.after(gone=codes, allow_empty_class=allow_empty_class)
        self.engine.remove(gone)
        for table in (self.codes_beside, self.groups_beside):
            if table is not None:
                table.remove(gone)
        self.counts = counts
        self.mark_changed(gone)

    def relabel(self, ids: ArrayLike, labels: AnyArray, *, allow_empty_class: bool = False) -> None:
        """Give points other labels, all or none."""
        relabelled = checked_ids(ids, self.engine.capabilities)
        if not relabelled.size:
            return
        before, codes = self._counted_codes_of(relabelled), self._named(labels)
        other = before != codes
        counts = self.counts.after(
            gone=before[other], come=codes[other], allow_empty_class=allow_empty_class
        )
        stored = self._labels_for_engine(codes)
        if stored is not None and other.any():
            self.engine.relabel(relabelled[other], stored[other])
        if self.codes_beside is not None:
            self.codes_beside.put(relabelled, codes)
        self.counts = counts
        self.mark_changed(relabelled[other])

    def search(self, queries: AnyArray, k: int) -> Neighbors:
        """The k nearest points of each query, with class codes as labels; fewer if so counted."""
        found = self.engine.search(queries, k)
        if not found.counts.any() and not self.engine.size():
            raise UnusableGalleryError(
                "The gallery must hold points to be answered from. The engine holds none any more: "
                "they were removed, or the table emptied, since the fit. Load them again, or fit."
            )
        return self._neighbors(found)

    def leave_one_out(self, ids: ArrayLike | None, k: int) -> Neighbors:
        """The k nearest of all other points of some points, their groups left out with them.

        Only their vectors come here, some at a time, and they are left out by id.
        """
        asked = self.ids if ids is None else np.asarray(ids)
        return search_leaving_out(self, asked, k, self._other_points)

    def leave_class_out(self, ids: ArrayLike | None, k: int) -> Neighbors:
        """The k nearest points of other classes of some points, which then look like unknowns.

        Rows hold fewer, or none, where a class has so many members about a point that few others
        come into view: no engine is asked for more than some times k neighbours.
        """
        asked = self.ids if ids is None else np.asarray(ids)
        return search_leaving_out(self, asked, k, _other_classes, largest=FARTHEST_LOOK * (k + 1))

    def points_of(self, ids: AnyArray) -> AskedPoints:
        """Some points with their vectors and codes, to be asked about."""
        stored = self.engine.fetch(ids)
        return AskedPoints(ids, np.asarray(stored.vectors), self._codes(ids, stored.labels))

    def _other_points(self, found: Neighbors, asked: AskedPoints) -> BoolArray:
        """Which neighbours stay when each point is left out, or its group."""
        ids = np.asarray(found.ids)
        others: BoolArray = (ids != asked.ids[:, None]) & found.valid
        if self.groups_beside is not None:
            theirs = np.full(ids.shape, -1)
            theirs[found.valid] = self.groups_beside.of(ids[found.valid])
            others &= theirs != self.groups_beside.of(asked.ids)[:, None]
        return others

    def _neighbors(self, found: Found) -> Neighbors:
        full = bool(found.counts.min() == found.ids.shape[1])
        if full:
            codes = self._codes(found.ids, found.labels)
        else:
            valid = np.arange(found.ids.shape[1]) < found.counts[:, None]
            codes = np.full(found.ids.shape, PADDING_LABEL)
            labels = None if found.labels is None else found.labels[valid]
            codes[valid] = self._codes(found.ids[valid], labels)
        return Neighbors(found.sq_distances, codes, found.ids, None if full else found.counts)

    def _codes(self, ids: AnyArray, labels: AnyArray | None) -> IntArray:
        if labels is None:
            return _some(self.codes_beside).of(ids)
        return labels if self.codes_in_engine else self.labels.of(labels)

    def _named(self, labels: AnyArray) -> IntArray:
        """Class codes of labels, of which new ones have no member yet."""
        codes, new = self.labels.name(labels)
        self.counts = self.counts.with_empty(new)
        return codes

    def _labels_for_engine(self, codes: IntArray) -> AnyArray | None:
        if not self.engine.capabilities.holds_labels:
            return None
        return codes if self.codes_in_engine else self.labels.classes[codes]

    def _new_ids(self, n_new: int) -> IntArray:
        return ids_from(self.next_id, n_new)


def _other_classes(found: Neighbors, asked: AskedPoints) -> BoolArray:
    """Which neighbours stay when each point's class is left out."""
    others: BoolArray = (found.labels != asked.codes[:, None]) & found.valid
    return others


def _joined(parts: list[AnyArray]) -> AnyArray:
    return np.concatenate(parts) if parts else np.empty(0, np.int64)


def _some(table: IdTable | None) -> IdTable:
    if table is None:
        raise GalleryMismatchError(
            "The engine holds no labels. Give them beside it: fit_engine(y, ids)."
        )
    return table


# Classes of more members than this many times k are left out by searching the others.
LARGE_CLASS = 8


class MemoryGallery(_CountedPoints):
    """Points in memory, searched exactly; their ids stay with them through every change.

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
        The `next_id` of a gallery that this one continues, so that no id is used twice.
    classes : array of shape (n_classes,), optional
        The labels that codes stand for; by default the codes themselves.

    Examples
    --------
    >>> gallery = MemoryGallery([[0.0], [1.0], [5.0]], codes=[0, 0, 1])
    >>> gallery.add([[6.0], [7.0]], labels=[1, 2])
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
        classes: AnyArray | None = None,
    ) -> None:
        points = checked_vectors(vectors)
        own_codes = checked_codes(codes, len(points))
        self._groups = (
            None if groups is None else GrowingRows(integer_ids(groups, len(points), "groups"))
        )
        self._index = ExactIndex(points, ids, next_id=next_id)
        self._codes = GrowingRows(own_codes)
        labels = np.arange(own_codes.max() + 1) if classes is None else classes
        counts = ClassCounts(np.bincount(own_codes, minlength=len(labels)))
        super().__init__(counts, LabelCodes(labels))

    def fingerprint(self) -> Fingerprint:
        """Exact search by faiss."""
        return EXACT

    def recount(self) -> None:
        """Nothing is to be counted: nobody else can have changed anything."""

    def without_empty_classes(self) -> "MemoryGallery":
        """The gallery as it is: classes that its own changes have emptied stay."""
        return self

    def changed_elsewhere(self) -> int:
        """None."""
        return 0

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
        labels: ArrayLike,
        groups: ArrayLike | None = None,
        ids: ArrayLike | None = None,
    ) -> IntArray:
        """Add points, in time that does not depend on how many there are.

        Parameters
        ----------
        vectors : array of shape (n, n_features)
            Their vectors, finite, which are kept in the precision of the gallery.
        labels : array of shape (n,)
            Their labels, of old or new classes.
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
        own_groups = self._checked_groups(groups, n_added)
        named, counts, codes = self._named(labels)
        counts = counts.after(come=codes)
        for kept in (self._codes, self._groups):
            if kept is not None:
                kept.reserve(n_added)
        new_ids = self._index.add(vectors, ids)
        self._codes.append(codes)
        if self._groups is not None and own_groups is not None:
            self._groups.append(own_groups)
        # No other could use a new class before: it is named once its points are there.
        self.labels, self.counts = named, counts
        self.mark_changed(new_ids)
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
        gone = self._codes.rows[rows]
        counts = self.counts.after(gone=gone, allow_empty_class=allow_empty_class)
        moves = self._index.remove(rows)
        self._codes.remove(moves)
        if self._groups is not None:
            self._groups.remove(moves)
        self.counts = counts
        self.mark_changed(removed)

    def relabel(
        self, ids: ArrayLike, labels: ArrayLike, *, allow_empty_class: bool = False
    ) -> None:
        """Give points other labels.

        Parameters
        ----------
        ids : array of shape (n,)
            Their ids, distinct.
        labels : array of shape (n,)
            Their new labels. A point that has its label already does not count as changed.
        allow_empty_class : bool, default False
            Whether a class may lose its last point. Its code stays; no answer has it any more.
        """
        relabelled, rows = self._distinct_points(ids)
        named, counts, codes = self._named(labels)
        before = self._codes.rows[rows]
        other = codes != before
        counts = counts.after(
            gone=before[other], come=codes[other], allow_empty_class=allow_empty_class
        )
        self._codes.put(rows, codes)
        self.labels, self.counts = named, counts
        self.mark_changed(relabelled[other])

    def _named(self, labels: ArrayLike) -> tuple[LabelCodes, ClassCounts, IntArray]:
        """The classes with those of some labels, their sizes before, and the labels' codes."""
        classes, codes = extended_names(np.asarray(labels), self.classes)
        n_before = len(self.labels)
        if len(classes) == n_before:
            return self.labels, self.counts, codes
        new = np.arange(n_before, len(classes))
        return LabelCodes(classes), self.counts.with_empty(new), codes

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
        return assemble(sq_distances, self._codes.rows[rows], self._index.ids_of(rows))

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

    def _distinct_points(self, ids: ArrayLike) -> tuple[IntArray, IntArray]:
        """Ids that occur once each, and their rows."""
        own = integer_ids(ids)
        check_distinct(own)
        return own, self._index.rows_of(own)

    def _checked_groups(self, groups: ArrayLike | None, n_points: int) -> IntArray | None:
        _check_groups(groups, has_groups=self._groups is not None)
        return None if groups is None else integer_ids(groups, n_points, "groups")


Gallery: TypeAlias = MemoryGallery | EngineGallery


class _ByRow:
    """An index that answers with row numbers, which codes and groups are looked up by."""

    def __init__(self, index: ExactIndex) -> None:
        self._index = index

    def __len__(self) -> int:
        return len(self._index)

    def search(self, queries: AnyArray, k: int) -> tuple[FloatArray, IntArray]:
        return self._index.search_rows(queries, k)
