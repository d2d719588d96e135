"""A labelled gallery whose vectors stay where they are: in an engine."""

import numpy as np
from numpy.typing import ArrayLike

from nearsure.arrays import AnyArray, BoolArray, IntArray
from nearsure.engine_gallery.census import census_of_labels, counted_as, counted_by_table
from nearsure.engine_gallery.class_counts import ClassCounts
from nearsure.engine_gallery.id_table import IdTable
from nearsure.engine_gallery.label_codes import LabelCodes
from nearsure.engine_gallery.leaving_out import AskedPoints, portions, search_leaving_out
from nearsure.engines.checks import checked_ids
from nearsure.engines.contract import Engine, Found
from nearsure.errors import GalleryMismatchError, InvalidInputError, UnusableGalleryError
from nearsure.index.stable_ids import ids_from
from nearsure.neighbors import PADDING_LABEL, Neighbors
from nearsure.support_checks import members_left_of_groups

# A point that leaves its class out looks for others among this many times k neighbours.
FARTHEST_LOOK = 16


class EngineGallery:
    """Points in an engine, with class codes; of their vectors only what is asked for comes here.

    It offers what `SupportSet` does, with ids of the engine's kind. Sizes of classes are counted
    when it is opened, and by its own changes from then on; `recount` sees those of others.

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
        self.engine, self.counts = engine, counts
        self.labels, self.codes_beside, self.groups_beside = labels, codes, groups
        self.codes_in_engine = codes_in_engine
        self._changed: list[AnyArray] = []
        self._n_changes = 0

    def __len__(self) -> int:
        return self.counts.n_points

    @property
    def classes(self) -> AnyArray:
        """The labels, in the order of their codes; others may add some at any moment."""
        return self.labels.classes

    @property
    def ids(self) -> AnyArray:
        """The ids of all points, ascending."""
        return _joined([portion.ids for portion in self.engine.scan()])

    @property
    def codes(self) -> IntArray:
        """The class codes of all points, in the order of `ids`."""
        return _joined([self._codes(part.ids, part.labels) for part in self.engine.scan()])

    @property
    def class_counts(self) -> IntArray:
        """How many points each class has, indexed by code."""
        return self.counts.by_code(len(self.labels))

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
        """By how many points the engine's size differs from what this gallery knows of."""
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

        A new class is named first, so that whoever finds its points knows it. Should they not be
        added then, it stays, without members.
        """
        if (groups is None) != (self.groups_beside is None):
            raise InvalidInputError(
                "groups must be given if, and only if, the gallery was made with groups. Got "
                + ("none, and it was." if groups is None else "groups, and it was not.")
            )
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
        self._record(ids)
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
        self._record(gone)

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
        self._record(relabelled[other])

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

    @property
    def n_changes(self) -> int:
        """How often a point was added, removed or relabelled through this gallery."""
        return self._n_changes

    def share_changed(self, since: int) -> float:
        """Points changed through this gallery since a mark, as a share of the points of now."""
        return len(self.changed_ids(since)) / len(self)

    def changed_ids(self, since: int) -> AnyArray:
        """The ids that were changed since a mark, ascending, each once."""
        if not self._changed:
            return np.empty(0, np.int64)
        return np.unique(np.concatenate(self._changed)[since:])

    def mark_changed(self, ids: AnyArray) -> None:
        """Count ids as changed before: those of a gallery that this one continues."""
        if len(ids):
            self._record(ids)

    def points_of(self, ids: AnyArray) -> AskedPoints:
        """Some points with their vectors and codes, to be asked about."""
        stored = self.engine.fetch(ids)
        return AskedPoints(ids, np.asarray(stored.vectors), self._codes(ids, stored.labels))

    def _other_points(self, found: Neighbors, asked: AskedPoints) -> BoolArray:
        """Which neighbours stay when each point leaves itself out, or its group."""
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

    def _record(self, ids: AnyArray) -> None:
        self._changed.append(ids)
        self._n_changes += len(ids)


def _other_classes(found: Neighbors, asked: AskedPoints) -> BoolArray:
    """Which neighbours stay when each point leaves its class out."""
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
