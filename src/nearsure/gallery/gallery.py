"""A labelled gallery: points in an engine are added, removed, relabelled and searched."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

import numpy as np
from numpy.typing import ArrayLike

from nearsure.arrays import AnyArray, BoolArray, IntArray
from nearsure.engines.checks import checked_ids
from nearsure.engines.contract import AdjustableEngine, Engine, Fingerprint, Found
from nearsure.engines.embedded.exact import MemoryEngine
from nearsure.errors import InvalidInputError, UnusableGalleryError
from nearsure.gallery.counts import (
    ClassCounts,
    LabelCodes,
    census_of_labels,
    counted_as,
    counted_by_table,
    values_beside,
)
from nearsure.index.exact import QUERY_BLOCK, unit_vectors
from nearsure.index.rows import PointTable, ids_from
from nearsure.loo import in_places, keep_first, members_left_of_groups
from nearsure.neighbors import PADDING_LABEL, Neighbors, assemble
from nearsure.progress import tracked
from nearsure.validation import check_distinct, integer_ids

if TYPE_CHECKING:
    from typing import Self

    from nearsure.gallery.recall import Recall
    from nearsure.heads.fitted_head import FittedHead

# Points whose vectors are fetched at a time.
PORTION = 2048
# Neighbours that are listed at a time, of all points together.
LISTED = 4_000_000
# Points of other classes are looked for among this many times k neighbours.
FARTHEST_LOOK = 16
# In memory, classes of more members than this many times k are left out by searching the others.
LARGE_CLASS = 8


@dataclass(frozen=True, eq=False)
class AskedPoints:
    """Points of a gallery that are searched among the others.

    Parameters
    ----------
    ids, vectors, codes : array of shape (n,), (n, dimension), (n,)
    """

    ids: AnyArray
    vectors: AnyArray
    codes: IntArray

    def take(self, rows: IntArray) -> "AskedPoints":
        """Some of them."""
        return AskedPoints(self.ids[rows], self.vectors[rows], self.codes[rows])


class Gallery:
    """Points in an engine, with class codes; of their vectors only what is needed comes here.

    Ids are of the engine's kind. Sizes of classes are counted when it is opened, and by its own
    changes from then on; `recount` finds those of others. A call that raises an error changes
    nothing; but a new class, in an engine that others may use, keeps its name.

    Parameters
    ----------
    engine : Engine
        Holds the vectors, and the labels if it can.
    counts : ClassCounts
        Sizes of its classes.
    labels : LabelCodes
        Its classes. Labels go in and out as labels; codes are places in this list.
    codes : PointTable, optional
        Class codes of all ids, for an engine that holds no labels, and where there are groups.
    groups : PointTable, optional
        Groups of all ids.
    codes_in_engine : bool, default False
        Whether the engine, which nobody else writes to, holds class codes for labels.

    Examples
    --------
    >>> gallery = Gallery.of_points(np.array([[0.0], [1.0], [5.0]]), np.array([0, 0, 1]))
    >>> gallery.add(np.array([[6.0], [7.0]]), labels=np.array([1, 2]))
    array([3, 4])
    >>> gallery.remove([0])
    >>> found = gallery.search(np.array([[0.0]]), k=2)
    >>> found.ids, found.labels
    (array([[1, 2]]), array([[0, 1]]))
    >>> gallery.class_counts
    array([1, 2, 1])
    """

    def __init__(
        self,
        engine: Engine,
        counts: ClassCounts,
        labels: LabelCodes,
        codes: PointTable | None = None,
        groups: PointTable | None = None,
        *,
        codes_in_engine: bool = False,
    ) -> None:
        self.engine, self.counts, self.labels = engine, counts, labels
        self.codes_beside, self.groups_beside = codes, groups
        self.codes_in_engine = codes_in_engine
        # The head that is used beside the neighbours, if any.
        self.head: FittedHead | None = None
        # What the engine finds, and with which effort; None if it is exact, or was not asked.
        self.recall: Recall | None = None
        self._changed: AnyArray = np.empty(0, np.int64)

    @classmethod
    def of_points(
        cls,
        vectors: AnyArray,
        codes: IntArray,
        groups: IntArray | None = None,
        *,
        ids: IntArray | None = None,
        next_id: int | None = None,
        classes: AnyArray | None = None,
    ) -> "Self":
        """A gallery in memory, searched exactly.

        Parameters
        ----------
        vectors : array of shape (n, n_features), float32 or float64
            Kept without a copy until the first change; they must not change otherwise.
        codes : array of shape (n,)
            Class codes.
        groups : array of shape (n,), optional
            Codes of groups (a burst of photographs): a point's group is left out with it.
        ids : array of shape (n,), optional
            Distinct 64-bit integers; by default 0, 1, 2, ...
        next_id : int, optional
            The `next_id` of a gallery that this one continues, so that no id is used twice.
        classes : array of shape (n_classes,), optional
            The labels that codes stand for; by default the codes themselves.
        """
        own = np.arange(len(codes)) if ids is None else ids
        labels = np.arange(codes.max() + 1) if classes is None else classes
        counts = ClassCounts(np.bincount(codes, minlength=len(labels))).after(new_ids=own)
        counts.next_id = max(counts.next_id, next_id or 0)
        gallery = cls(
            MemoryEngine(vectors, own, codes), counts, LabelCodes(labels), codes_in_engine=True
        )
        if groups is not None:
            gallery.codes_beside = PointTable(own, codes)
            gallery.groups_beside = PointTable(own, groups)
        return gallery

    def __len__(self) -> int:
        return self.counts.n_points

    @property
    def in_memory(self) -> bool:
        """Whether the points are in memory, where nobody else can change them."""
        return isinstance(self.engine, MemoryEngine)

    @property
    def classes(self) -> AnyArray:
        """The labels, in the order of their codes; others may add some to an engine."""
        return self.labels.classes

    @property
    def class_counts(self) -> IntArray:
        """How many points each class has, indexed by code."""
        return self.counts.by_code(len(self.labels))

    def fingerprint(self) -> Fingerprint:
        """Through what the engine finds neighbours, and how many of them."""
        own = self.engine.fingerprint()
        return own if self.recall is None else self.recall.mark(own)

    @property
    def ids(self) -> AnyArray:
        """The ids of all points, ascending."""
        return _join([portion.ids for portion in self.engine.scan()])

    @property
    def codes(self) -> IntArray:
        """The class codes of all points, in the order of `ids`."""
        return _join([self._codes(part.ids, part.labels) for part in self.engine.scan()])

    @property
    def groups(self) -> IntArray | None:
        """The groups of all points, in the order of `ids`; None if there are none."""
        return None if self.groups_beside is None else values_beside(self.groups_beside, self.ids)

    @property
    def next_id(self) -> int:
        """The id that the next point gets if none is given: the largest that was seen + 1."""
        if self.engine.capabilities.ids != "integer":
            raise InvalidInputError("ids must be given: those of this engine are text. Got none.")
        return self.counts.next_id

    @property
    def n_changes(self) -> int:
        """How often a point was added, removed or relabelled: a mark for `share_changed`."""
        return len(self._changed)

    def share_changed(self, since: int) -> float:
        """Points changed through this gallery since a mark, as a share of the points of now.

        Each point, identified by its id, counts once, however often it changed. Removed points
        count, so that the share may exceed 1.

        Parameters
        ----------
        since : int
            What `n_changes` was at the mark.

        Examples
        --------
        >>> gallery = Gallery.of_points(np.array([[0.0], [1.0], [5.0]]), np.array([0, 0, 1]))
        >>> mark = gallery.n_changes
        >>> added = gallery.add(np.array([[6.0]]), labels=np.array([1]))
        >>> gallery.relabel(added, labels=np.array([0]))
        >>> gallery.share_changed(since=mark)
        0.25
        """
        return len(self.changed_ids(since)) / len(self)

    def changed_ids(self, since: int) -> AnyArray:
        """The ids that were changed since a mark, ascending, each once."""
        return np.unique(self._changed[since:])

    def mark_changed(self, ids: AnyArray) -> None:
        """Count ids as changed: those of a gallery that this one continues, say."""
        if len(ids):
            before = self._changed if len(self._changed) else ids[:0]  # Ids may be text.
            self._changed = np.concatenate([before, ids])

    def recount(self) -> None:
        """Count points and classes again, with what others have changed, in one pass over all."""
        if not self.engine.capabilities.holds_labels:
            counts = counted_by_table(self.engine, self.codes_beside)
        elif self.codes_in_engine:
            codes, sizes, next_id = census_of_labels(self.engine)
            counts = ClassCounts(np.bincount(codes, sizes, len(self.labels)), next_id)
        else:
            counts = counted_as(self.engine, self.labels)
        self.counts = counts.not_below(self.counts)

    def without_empty_classes(self) -> "Gallery":
        """The same gallery, counted again, with a list of those classes that have points.

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
        gallery = Gallery(
            self.engine,
            ClassCounts(counts[kept], self.counts.next_id),
            LabelCodes(self.classes[kept]),
        )
        gallery.mark_changed(self.changed_ids(0))
        return gallery

    def keep_groups(self, ids: AnyArray, groups: IntArray) -> None:
        """Take groups of all ids, beside the engine."""
        table = PointTable(ids, groups)
        own = self.ids
        values_beside(table, own)
        self.codes_beside, self.groups_beside = PointTable(own, self.codes), table

    def forget_groups(self) -> None:
        """Leave points out alone from now on."""
        self.groups_beside = None
        if self.engine.capabilities.holds_labels:
            self.codes_beside = None

    def check_ids(self, ids: ArrayLike) -> AnyArray:
        """Distinct ids of the engine's kind, or an error."""
        if not self.in_memory:
            return checked_ids(ids, self.engine.capabilities)
        own = integer_ids(ids)
        check_distinct(own)
        return own

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
        return _join(found)

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
            return values_beside(self.codes_beside, wanted)[places]
        parts = [
            self._codes(part, self.engine.fetch(part).labels) for part in _blocks(wanted, PORTION)
        ]
        codes: IntArray = _join(parts)[places]
        return codes

    def members_left(self, ids: AnyArray, codes: IntArray) -> IntArray:
        """How many members each point's class has without the point, or its group, shape (n,).

        Parameters
        ----------
        ids, codes : array of shape (n,)
            Of the points.
        """
        if self.groups_beside is None:
            left: IntArray = self.class_counts[codes] - 1
            return left
        own, groups = self.groups_beside.by_id()
        places = np.minimum(np.searchsorted(own, ids), len(own) - 1)
        if (own[places] != ids).any():
            raise InvalidInputError("ids must be those of points in the gallery. Some are gone.")
        return members_left_of_groups(values_beside(self.codes_beside, own), groups, places)

    def add(
        self,
        vectors: AnyArray,
        labels: AnyArray,
        groups: IntArray | None = None,
        ids: ArrayLike | None = None,
    ) -> AnyArray:
        """Add points to the engine, all or none; their ids.

        Parameters
        ----------
        vectors : array of shape (n, n_features)
            Their vectors.
        labels : array of shape (n,)
            Their labels, of old or new classes.
        groups : array of shape (n,), optional
            Their groups: given if, and only if, the gallery has groups.
        ids : array of shape (n,), optional
            Their ids, which no point of the gallery has; by default they count on from `next_id`.
        """
        self._check_groups(groups)
        if not len(vectors):
            return np.empty(0, np.int64)
        with self._named(labels) as codes:
            if ids is not None:
                own = self.check_ids(ids)
                if len(own) != len(vectors):
                    raise InvalidInputError(
                        f"ids must be one for each of the {len(vectors)} points. "
                        f"Got {len(own)} instead."
                    )
                return self._add(vectors, codes, groups, own)
            taken = self.next_id
            try:
                return self._add(vectors, codes, groups, ids_from(taken, len(vectors)))
            except InvalidInputError:
                # Others may have taken these ids.
                self.recount()
                if self.next_id == taken:
                    raise
                return self._add(vectors, codes, groups, ids_from(self.next_id, len(vectors)))

    def _add(
        self, vectors: AnyArray, codes: IntArray, groups: IntArray | None, ids: AnyArray
    ) -> AnyArray:
        """Beside the engine first: who finds a point there must find its label here."""
        beside = ((self.codes_beside, codes), (self.groups_beside, groups))
        tables = [(table, np.asarray(values)) for table, values in beside if table is not None]
        for table, _ in tables:
            table.check_new(ids)
        for table, values in tables:
            table.append(ids, values)
        try:
            self.engine.add(vectors, ids, self._labels_for_engine(codes))
        except BaseException:
            self._remove_beside(ids)
            raise
        self.counts = self.counts.after(come=codes, new_ids=ids)
        self._change_head(ids, self._comparable(vectors), codes, sign=1)
        self.mark_changed(ids)
        return ids

    def remove(self, ids: ArrayLike, *, allow_empty_class: bool = False) -> None:
        """Remove points from the engine, all or none.

        Parameters
        ----------
        ids : array of shape (n,)
            Their ids, distinct. At least one point must be left.
        allow_empty_class : bool, default False
            Whether a class may lose its last point. Its code stays; no answer has it any more.
        """
        gone = self.check_ids(ids)
        if not gone.size:
            return
        codes = self._counted_codes_of(gone)
        if len(gone) >= len(self):
            self.recount()  # Others may have added points.
        if len(gone) >= len(self):
            raise InvalidInputError(
                f"At least one point must be left in the gallery. Got all {len(gone)} to remove."
            )
        counts = self.counts.after(gone=codes, allow_empty_class=allow_empty_class)
        vectors = self._vectors_for_head(gone)
        self.engine.remove(gone)
        self._remove_beside(gone)
        self.counts = counts
        self._change_head(gone, vectors, codes, sign=-1)
        self.mark_changed(gone)

    def _vectors_for_head(self, ids: AnyArray) -> AnyArray | None:
        """Vectors of points that are to change, if a head follows changes."""
        if self.head is None or self.head.means is None:
            return None
        return self.points_of(ids).vectors

    def points_of(self, ids: AnyArray) -> AskedPoints:
        """Points with vectors as they are compared: of unit length under cosine."""
        points = self._points_of(ids)
        return replace(points, vectors=self._comparable(points.vectors))

    def _comparable(self, vectors: AnyArray) -> AnyArray:
        return unit_vectors(vectors) if self.engine.metric == "cosine" else vectors

    def _change_head(
        self, ids: AnyArray, vectors: AnyArray | None, codes: IntArray, *, sign: int
    ) -> None:
        if self.head is not None and vectors is not None:
            self.head = self.head.changed(
                ids, vectors, codes, len(self.labels), sign=sign, like=self._find_seen(ids)
            )

    def _remove_beside(self, ids: AnyArray) -> None:
        self.codes_beside, self.groups_beside = (
            None if table is None else _remove_from(table, ids)
            for table in (self.codes_beside, self.groups_beside)
        )

    def relabel(self, ids: ArrayLike, labels: AnyArray, *, allow_empty_class: bool = False) -> None:
        """Give points other labels, all or none.

        Parameters
        ----------
        ids : array of shape (n,)
            Their ids, distinct.
        labels : array of shape (n,)
            Their new labels. A point that has its label already does not count as changed.
        allow_empty_class : bool, default False
            Whether a class may lose its last point. Its code stays; no answer has it any more.
        """
        relabelled = self.check_ids(ids)
        if not relabelled.size:
            return
        before = self._counted_codes_of(relabelled)
        with self._named(labels) as codes:
            other = before != codes
            counts = self.counts.after(
                gone=before[other], come=codes[other], allow_empty_class=allow_empty_class
            )
            stored = self._labels_for_engine(codes)
            vectors = self._vectors_for_head(relabelled[other]) if other.any() else None
            if stored is not None and other.any():
                self.engine.relabel(relabelled[other], stored[other])
        if self.codes_beside is not None:
            self.codes_beside.relabel(self.codes_beside.rows_of(relabelled), codes)
        self.counts = counts
        changed = relabelled[other]
        self._change_head(changed, vectors, before[other], sign=-1)
        self._change_head(changed, vectors, codes[other], sign=1)
        self.mark_changed(changed)

    @contextmanager
    def _named(self, labels: AnyArray) -> Iterator[IntArray]:
        """Class codes of labels, of which new ones have no member yet.

        A new class is named before its points are added, so that whoever finds the points finds
        the name. If the change fails, the name stays, unless nobody else can have seen it.
        """
        classes, counts = self.classes, self.counts
        codes, new = self.labels.name(labels)
        self.counts = counts.with_empty(new)
        try:
            yield codes
        except BaseException:
            if self.in_memory and new.size:
                self.labels, self.counts = LabelCodes(classes), counts
            raise

    def _counted_codes_of(self, ids: AnyArray) -> IntArray:
        """Class codes of points that are to change, whose classes must have been counted."""
        codes = self.codes_of(ids)
        if not self.counts.has_counted(codes):
            self.recount()
        return codes

    def search(self, queries: AnyArray, k: int) -> Neighbors:
        """The k nearest points of each query, with class codes as labels; fewer if so counted."""
        found = self._find(queries, k)
        if self.head is None:
            return found
        return found.with_scores(self.head.score(queries, found.labels, found.sq_distances))

    def without_head(self) -> "Gallery":
        """The same gallery, for a fit of its own."""
        gallery = copy(self)
        gallery.head = None
        return gallery

    def _find(self, queries: AnyArray, k: int) -> Neighbors:
        engine, recall = self.engine, self.recall
        own = engine.effort if isinstance(engine, AdjustableEngine) else None
        # Its index may be of another kind by now.
        if recall is None or recall.effort is None or own is None or own.name != recall.effort_name:
            found = engine.search(queries, k)
        else:
            effort = min(recall.effort, own.largest)
            found = cast("AdjustableEngine", engine).search_with_effort(queries, k, effort)
        if not found.counts.any() and not self.engine.size():
            raise UnusableGalleryError(
                "The gallery must hold points to be answered from. The engine holds none any more: "
                "they were removed, or the table emptied, since the fit. Load them again, or fit."
            )
        return self._neighbors(found)

    def leave_one_out(
        self, ids: ArrayLike | None, k: int, move: Callable[[AnyArray], AnyArray] | None = None
    ) -> Neighbors:
        """The k nearest of all other points of some points, their groups left out with them.

        Only their vectors come here, some at a time, and they are left out by id.

        Parameters
        ----------
        ids : array of shape (n,) or None
            The points; None for all, in the order of `ids`.
        k : int
            How many neighbours. Rows hold fewer where there are no more.
        move : callable, optional
            From their vectors, some at a time, to those that are searched instead.
        """
        if len(self) == 1:
            raise InvalidInputError("A gallery of one point has nothing to be compared with.")
        return self._search_others(self._asked_ids(ids), k, self._other_points, move=move)

    def leave_class_out(self, ids: ArrayLike | None, k: int) -> Neighbors:
        """The k nearest points of other classes of some points, which then look like unknowns.

        Outside memory, rows hold fewer, or none, where a class has so many members about a point
        that few others come into view: no engine is asked for more than some times k neighbours.

        Parameters
        ----------
        ids : array of shape (n,) or None
            The points; None for all, in the order of `ids`.
        k : int
            How many neighbours.
        """
        asked = self._asked_ids(ids)
        if not isinstance(self.engine, MemoryEngine):
            return self._search_others(asked, k, _other_classes, FARTHEST_LOOK * (k + 1))
        codes = self.codes_of(asked)
        large = np.flatnonzero(self.class_counts > LARGE_CLASS * k)
        small = np.flatnonzero(~np.isin(codes, large))
        # A point of a large class finds nothing but fellows for long: it is searched among the
        # others instead.
        parts = []
        if small.size:
            parts.append((small, self._search_others(asked[small], k, _other_classes)))
        for code in np.intersect1d(large, codes).tolist():
            places = np.flatnonzero(codes == code)
            vectors = np.asarray(self.engine.fetch(asked[places]).vectors)
            found = self._neighbors(self.engine.search_other_labels(vectors, code, k))
            points = AskedPoints(asked[places], vectors, codes[places])
            parts.append((places, self._with_own_scores(found, points, without_class=True)))
        return in_places(parts, len(asked))

    def _asked_ids(self, ids: ArrayLike | None) -> AnyArray:
        asked = self.ids if ids is None else np.asarray(ids)
        if asked.ndim != 1:
            raise InvalidInputError(
                f"ids must be an array of one dimension. Got the shape {asked.shape} instead."
            )
        return asked

    def _search_others(
        self,
        ids: AnyArray,
        k: int,
        are_others: Callable[[Neighbors, AskedPoints], BoolArray],
        largest: int | None = None,
        move: Callable[[AnyArray], AnyArray] | None = None,
    ) -> Neighbors:
        """The k nearest of those points that are not left out.

        One more than k is asked for, and four times as many again where more than one was left out.

        Parameters
        ----------
        ids : array of shape (n,)
            The points.
        k : int
            How many neighbours.
        are_others : callable
            From what was found for some points, and the points, to which neighbours stay.
        largest : int, optional
            The most neighbours to ask for; by default as many as there are, or the engine lists.
        move : callable, optional
            As of `leave_one_out`.
        """
        if not len(ids):
            raise InvalidInputError("At least one id must be given. Got none.")
        limits = (len(self), self.engine.capabilities.largest_k, largest)
        n_most = min(limit for limit in limits if limit is not None)
        k = min(k, len(self) - 1)
        parts: list[tuple[IntArray, Neighbors]] = []
        first = 0
        blocks = _blocks(ids, QUERY_BLOCK if self.in_memory else PORTION)
        for some in tracked("searching the gallery", blocks, len(ids), len):
            asked = self._points_of(some)
            if move is not None:
                asked = replace(asked, vectors=move(asked.vectors))
            open_rows, n_searched = np.arange(len(some)), min(k + 1, n_most)
            here: list[tuple[IntArray, Neighbors]] = []
            while open_rows.size:
                still_open = []
                for rows in _blocks(open_rows, max(1, LISTED // n_searched)):
                    found = self._find(asked.vectors[rows], n_searched)
                    kept = keep_first(found, are_others(found, asked.take(rows)), k)
                    here.append((rows, kept))
                    # An engine that lists fewer than it was asked for has no more to give.
                    more = (kept.counts < k) & found.valid[:, -1]
                    still_open.append(rows[more])
                open_rows = np.concatenate(still_open)
                if n_searched == n_most:
                    break
                n_searched = min(4 * n_searched, n_most)
            block = self._with_own_scores(
                in_places(here, len(some)), asked, without_class=are_others is _other_classes
            )
            parts.append((np.arange(first, first + len(some)), block))
            first += len(some)
        return in_places(parts, len(ids)) if len(parts) > 1 else parts[0][1]

    def _with_own_scores(
        self, found: Neighbors, asked: AskedPoints, *, without_class: bool
    ) -> Neighbors:
        """Beside neighbours of own points, what heads say that have not seen the points."""
        if self.head is None:
            return found
        points = (self._comparable(asked.vectors), found.labels, self._find_seen(asked.ids))
        if without_class:
            scores = self.head.score_without_class(*points, asked.codes, found.sq_distances)
        else:
            scores = self.head.score_own(*points, found.sq_distances)
        return found.with_scores(scores)

    def _find_seen(self, ids: AnyArray) -> AnyArray:
        """By which ids the head knows points: one that came later is scored as its group is."""
        if self.head is None or self.groups_beside is None:
            return ids
        new = ~np.isin(ids, self.head.seen_ids)
        if not new.any():
            return ids
        own, groups = self.groups_beside.by_id()
        seen = np.isin(own, self.head.seen_ids)
        known, first = np.unique(groups[seen], return_index=True)
        wanted = values_beside(self.groups_beside, ids[new])
        places = np.minimum(np.searchsorted(known, wanted), max(0, len(known) - 1))
        is_known = known[places] == wanted if len(known) else np.zeros(len(wanted), np.bool_)
        found = ids.copy()
        found[np.flatnonzero(new)[is_known]] = own[seen][first[places[is_known]]]
        return found

    def _points_of(self, ids: AnyArray) -> AskedPoints:
        stored = self.engine.fetch(ids)
        return AskedPoints(ids, np.asarray(stored.vectors), self._codes(ids, stored.labels))

    def _other_points(self, found: Neighbors, asked: AskedPoints) -> BoolArray:
        """Which neighbours stay when each point is left out, or its group."""
        ids = np.asarray(found.ids)
        others: BoolArray = (ids != asked.ids[:, None]) & found.valid
        if self.groups_beside is not None:
            theirs = np.full(ids.shape, -1)
            theirs[found.valid] = values_beside(self.groups_beside, ids[found.valid])
            others &= theirs != values_beside(self.groups_beside, asked.ids)[:, None]
        return others

    def _neighbors(self, found: Found) -> Neighbors:
        full = bool(found.counts.min() == found.ids.shape[1])
        if full:
            codes = self._codes(found.ids, found.labels)
            if self.in_memory:
                return assemble(found.sq_distances, codes, found.ids)
        else:
            valid = np.arange(found.ids.shape[1]) < found.counts[:, None]
            codes = np.full(found.ids.shape, PADDING_LABEL)
            labels = None if found.labels is None else found.labels[valid]
            codes[valid] = self._codes(found.ids[valid], labels)
        return Neighbors(found.sq_distances, codes, found.ids, None if full else found.counts)

    def _codes(self, ids: AnyArray, labels: AnyArray | None) -> IntArray:
        if labels is None:
            return values_beside(self.codes_beside, ids)
        return labels if self.codes_in_engine else self.labels.of(labels)

    def _labels_for_engine(self, codes: IntArray) -> AnyArray | None:
        if not self.engine.capabilities.holds_labels:
            return None
        return codes if self.codes_in_engine else self.labels.classes[codes]

    def _check_groups(self, groups: ArrayLike | None) -> None:
        has_groups = self.groups_beside is not None
        if (groups is not None) != has_groups:
            raise InvalidInputError(
                "groups must be given if, and only if, the gallery was made with groups. Got "
                + ("none, and it was." if has_groups else "groups, and it was not.")
            )


def _other_classes(found: Neighbors, asked: AskedPoints) -> BoolArray:
    """Which neighbours stay when each point's class is left out."""
    others: BoolArray = (found.labels != asked.codes[:, None]) & found.valid
    return others


def _remove_from(table: PointTable, ids: AnyArray) -> PointTable:
    """The table without some ids; a new one where most of its rows are deleted."""
    table.mark_deleted(table.rows_of(ids))
    return table if 2 * table.n_alive >= len(table.ids) else PointTable(*table.by_id())


def _join(parts: list[AnyArray]) -> AnyArray:
    return np.concatenate(parts) if parts else np.empty(0, np.int64)


def _blocks(rows: AnyArray, size: int) -> Iterator[AnyArray]:
    for start in range(0, len(rows), size):
        yield rows[start : start + size]
