"""The served gallery: it answers while it is changed and while it is refitted."""

import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from threading import Lock, RLock
from typing import Literal, TypeVar

import numpy as np

from nearsure.arrays import AnyArray, BoolArray
from nearsure.classifier import NEDClassifier
from nearsure.engines.contract import Engine, Stored
from nearsure.errors import EngineError, InvalidInputError, NearsureError, PartialGalleryError
from nearsure.service.answers import (
    Answers,
    ThresholdInUse,
    choose_again,
    choose_threshold,
    make_fixed_threshold,
)
from nearsure.service.batching import WorkThreads
from nearsure.service.errors import Overloaded, ProblemError, engine_unavailable
from nearsure.service.items import free_integers, new_ids
from nearsure.service.labels import learn_labels
from nearsure.service.promise import PENDING, UNCHECKED, Promise, leave_promise
from nearsure.service.reviews import ConfirmedLabels, RemovedItems
from nearsure.service.schemas import RefitState
from nearsure.service.store import (
    THRESHOLD,
    Fit,
    KeptFit,
    Notes,
    RecordedChanges,
    count_changes,
    fit_gallery,
    ignore_fit_warnings,
    keep,
    load_counted,
)

SMALLEST_GALLERY = 2
# How often something that reads the whole gallery starts over if items vanish while it reads.
MOST_RESTARTS = 3
# Thresholds that are remembered: a slider asks for the same ones again.
MOST_THRESHOLDS = 256
log = logging.getLogger("nearsure.service")
Result = TypeVar("Result")


class ServedGallery:
    """An engine and the fit on what it holds.

    Methods may be called from several threads. One writes at a time; reads do not wait, and a
    writer does not wait for long reads. What a method has changed is durable when it returns, as
    far as the engine's changes are.

    Parameters
    ----------
    engine : Engine
        Holds the points.
    notes : Notes
        Where fit and threshold are kept.
    changes : RecordedChanges or None
        Where the engine writes down what is changed, if it does.
    threshold : ThresholdInUse
        What the first fit chooses its threshold by.
    fit : Fit or None
        None as long as there are too few points.
    kept : KeptFit or None
        The fit before, which the next one goes on from while there is none.
    """

    def __init__(
        self,
        engine: Engine,
        notes: Notes,
        changes: RecordedChanges | None,
        threshold: ThresholdInUse,
        *,
        fit: Fit | None = None,
        kept: KeptFit | None = None,
    ) -> None:
        self.engine = engine
        self._notes, self._changes = notes, changes
        self._first_threshold, self._fit, self._kept = threshold, fit, kept
        self._writing, self._copying = RLock(), Lock()
        self._copy: tuple[NEDClassifier, int] | None = None
        self._thresholds: dict[tuple[float, float], ThresholdInUse] = {}
        # The second: those after which a reader may miss what it has seen before.
        self._n_writes = self._n_disturbances = 0
        self._written_since: list[AnyArray] | None = None
        self._unsaved = False
        self._free: range | None = None
        self._confirmed, self._removed = ConfirmedLabels(notes), RemovedItems(engine)

    @property
    def fit(self) -> Fit:
        """What answers now.

        Raises
        ------
        ProblemError
            409 if nothing is fitted yet.
        """
        fit = self._fit
        if fit is None:
            raise ProblemError(
                409,
                "not_fitted_yet",
                "The gallery holds too few items to answer from. Add some with POST /v1/items, "
                "then POST /v1/refit.",
            )
        return fit

    @property
    def is_fitted(self) -> bool:
        """Whether there is something that answers."""
        return self._fit is not None

    @property
    def version(self) -> tuple[int, int]:
        """Changes with each fit and each write."""
        fit = self._fit
        return 0 if fit is None else fit.number, self._n_writes

    def predict(self, vectors: AnyArray) -> list[tuple[Answers, int]]:
        """Answers to queries, shape (n, dimension), each with its row."""
        fit = self.fit
        # Whether queries differ from the gallery is told by the promise, for many of them at once.
        prediction = fit.classifier.predict_with_confidence(vectors, compare=False)
        answers = fit.answer(prediction)
        return [(answers, row) for row in range(len(vectors))]

    def predict_item(self, item: AnyArray) -> Answers:
        """The answer for an item, given as an array of one id, with the item left out."""
        fit = self.fit
        with self._requiring(item):
            prediction = fit.classifier.predict_own(item)
        return fit.answer(prediction)

    def stored(self, ids: AnyArray) -> Stored:
        """Points with labels and vectors; 404 if one is not there."""
        try:
            return self.engine.fetch(ids)
        except InvalidInputError as error:
            missing = [own for own in ids.tolist() if not self._holds(own, ids)]
            named = ", ".join(repr(own) for own in missing[:3])
            raise ProblemError(
                404, "no_such_item", f"The gallery holds no item {named or 'of this id'}."
            ) from error

    def labels_beside(self, ids: AnyArray) -> AnyArray:
        """Labels of points in an engine that holds none."""
        return self.fit.classifier.support_labels(ids)

    def add(self, vectors: AnyArray, labels: AnyArray, texts: Sequence[str | None]) -> AnyArray:
        """Add points, all or none.

        Parameters
        ----------
        vectors : array of shape (n, dimension)
            Finite.
        labels : array of shape (n,)
            As the engine has them.
        texts : sequence of str or None
            Ids; None where one is to be made.
        """
        self._check_writable()
        with self._writing:
            ids = new_ids(texts, self.engine, self._free_integers(texts))
            if len(np.unique(ids)) < len(ids):
                raise InvalidInputError("The ids of new items must differ. Got one twice.")
            try:
                if self._fit is None:
                    with self._noting(ids):
                        self.engine.add(vectors, ids, labels)
                else:
                    classifier = self._fit.classifier
                    has_new = not np.isin(labels, classifier.classes_).all()
                    given = ids[[text is not None for text in texts]]
                    # Before the classifier takes new classes up for good.
                    if has_new and (taken := self._taken(given)) is not None:
                        raise taken
                    with self._noting(ids, disturbs=has_new):
                        classifier.add(vectors, labels, ids=ids)
            except InvalidInputError as error:
                if None in texts:
                    # Others may have taken ids that were free.
                    self._free = None
                raise self._taken(ids) or error from error
            if self._free is not None:
                self._free = free_integers([np.sort(ids)], 1, self._free)
            return ids

    def add_with_looks(
        self,
        vectors: AnyArray,
        labels: AnyArray,
        names: Sequence[str | None],
        pictures: Sequence[bytes | None],
        texts: Sequence[str | None],
    ) -> AnyArray:
        """Add points with small pictures and texts, all or none, to an engine that keeps these.

        Raises
        ------
        ProblemError
            503 if the points were added without them, and could not be removed again.
        """
        with self._writing:
            ids = self.add(vectors, labels, names)
            own = ids.tolist()
            small = {name: one for name, one in zip(own, pictures, strict=True) if one is not None}
            written = {name: one for name, one in zip(own, texts, strict=True) if one is not None}
            with self._removing_if_it_fails(ids):
                if small:
                    self.engine.put_pictures(small)  # type: ignore[attr-defined]
                if written:
                    self.engine.put_texts(written)  # type: ignore[attr-defined]
            return ids

    def relabel(self, ids: AnyArray, label: AnyArray) -> int:
        """Give points one other label, all or none; how many there were."""
        self._check_writable()
        labels = np.repeat(label, len(ids))
        with self._writing, self._requiring(ids), self._noting(ids):
            if self._fit is None:
                self.engine.relabel(ids, labels)
            else:
                self._fit.classifier.relabel(ids, labels, allow_empty_class=True)
        return len(ids)

    def remove(self, ids: AnyArray) -> int:
        """Remove points, all or none; how many there were."""
        self._check_writable()
        with self._writing:
            try:
                found = self.stored(ids)
                kept = self._removed.read(ids, np.asarray(found.labels), np.asarray(found.vectors))
                self._remove(ids)
                self._removed.keep(kept)
            except PartialGalleryError:
                # An addition or a removal was cut off: until it is taken back or completed, the
                # engine lets nothing be read or counted.
                with self._noting(ids):
                    self.engine.remove(ids)
                    if self._fit is not None:
                        self._fit.classifier.recount(ids)
        return len(ids)

    def restore(self, ids: AnyArray) -> int:
        """Undo the removal of points, all or none; how many there were.

        Raises
        ------
        ProblemError
            404 if one was not removed here, or is forgotten by now.
        """
        with self._writing:
            missing = self._removed.missing(ids)
            if missing:
                message = f"Item {missing[0]!r} is none of those that were removed last."
                raise ProblemError(404, "not_removed", message)
            vectors, labels = self._removed.points(ids)
            self.add(vectors, labels, list(map(str, ids.tolist())))
            with self._removing_if_it_fails(ids):
                self._removed.put_back(ids.tolist())
        return len(ids)

    def confirm(self, ids: AnyArray, label: AnyArray) -> int:
        """Take the label of points for right until it or the vector changes; how many there were.

        Raises
        ------
        ProblemError
            409 if one has another label.
        """
        with self._writing:
            labels, vectors = self._labelled(self.stored(ids))
            others = ids[labels != label]
            if len(others):
                raise ProblemError(
                    409,
                    "other_label",
                    f"Item {others.tolist()[0]!r} has another label by now. Look at it again.",
                )
            self._confirmed.add(ids, labels, vectors)
            self._n_writes += 1
        return len(ids)

    def unconfirm(self, ids: AnyArray) -> int:
        """Take the label of points for neither right nor wrong; how many there were."""
        with self._writing:
            self.stored(ids)
            self._confirmed.discard(ids)
            self._n_writes += 1
        return len(ids)

    def confirmed(self, ids: AnyArray) -> BoolArray:
        """Which points, shape (n,), have a label that was confirmed as it is, shape (n,)."""
        found = self._confirmed.named(ids)
        if found.any():
            # One that was removed meanwhile starts the reader over, and is no problem of a client.
            stored = self.engine.fetch(ids[found])
            found[found] = self._confirmed.match(ids[found], *self._labelled(stored))
        return found

    def refit(self) -> Fit:
        """Fit on the current gallery; the old fit answers until the new one takes over."""
        try:
            # Queries that are labelled meanwhile have to be known to the new fit.
            while (new := self._repeat(self._refit_once)) is None:
                log.info("Queries were labelled while the gallery was fitted: fitting again.")
            return new
        finally:
            with self._writing:
                self._written_since = None

    def read_whole(self, read: Callable[[NEDClassifier, int], Result]) -> Result:
        """What a function reads from all items, given a copy of the classifier and its number.

        The copy keeps its class sizes; the items are those of the engine, and may change.

        Raises
        ------
        Overloaded
            If items vanished each time.
        """
        return self._repeat(lambda: read(*self._counted_copy()))

    def threshold_for(self, precision: float, certainty: float) -> ThresholdInUse:
        """The threshold that would be chosen now; computed once until the next write."""
        # A write begins another table, so that what is chosen beside it is not kept.
        chosen, key = self._thresholds, (precision, certainty)
        threshold = chosen.get(key)
        if threshold is None:
            try:
                threshold = self.read_whole(
                    partial(choose_threshold, precision, certainty=certainty)
                )
            except InvalidInputError as error:
                # The request is right: the gallery has too few points of the fit left.
                raise ProblemError(409, "no_threshold", str(error)) from error
            if len(chosen) >= MOST_THRESHOLDS:
                chosen.clear()
            chosen[key] = threshold
        return threshold

    def use_threshold(self, chosen: ThresholdInUse) -> bool:
        """Use what `threshold_for` gave from now on; False if another fit has taken over since."""
        with self._writing:
            if chosen.model != self.fit.number:
                return False
            new = replace(chosen, is_set=True)
            self._notes.update({THRESHOLD: new.to_bytes()})
            promise = self.fit.promise.renew()
            self._fit = replace(self.fit, threshold=new, promise=promise)
        return True

    def use_promise(self, promise: Promise, of: Fit) -> bool:
        """Use what was found about a fit and its threshold; False if there are others by now."""
        with self._writing:
            if self._fit is None or self._fit.threshold is not of.threshold:
                return False
            self._fit = replace(self._fit, promise=promise)
        return True

    def set_threshold(self, threshold: float | None) -> ThresholdInUse:
        """Use a threshold from now on, or none."""
        with self._writing:
            new = make_fixed_threshold(threshold, self.fit.number)
            self.use_threshold(new)
        return new

    def recalibrate(self, vectors: AnyArray, labels: AnyArray) -> Fit:
        """Fit the confidence to labelled queries, beside those that were labelled before.

        A query that was labelled before has the new label.

        Parameters
        ----------
        vectors : array of shape (n, dimension)
            Queries.
        labels : array of shape (n,)
            Their true labels, as the engine has them.
        """
        return self._relearn(partial(learn_labels, vectors=vectors, labels=labels))

    def forget_labels(self) -> Fit:
        """Let confidence and promises rest on the gallery alone again."""
        return self._relearn(NEDClassifier.forget_labels)

    def close(self, patience: float = 5.0) -> None:
        """Store the counts of changes since the fit, and close the engine.

        Parameters
        ----------
        patience : float
            Seconds to wait for a writer.
        """
        if self._writing.acquire(timeout=patience):
            try:
                # If some were not counted, the older note holds their number.
                if self._fit is not None and self._unsaved and not self._fit.n_unseen:
                    keep(self._fit, self._notes)
            except EngineError as error:
                log.warning("What changed since the fit was not kept: %s", error)
            finally:
                self._writing.release()
        self.engine.close()

    def _before(self) -> KeptFit | None:
        """What a new fit goes on from."""
        if self._fit is None:
            return self._kept
        return KeptFit(self._fit.classifier.to_bytes(), self._fit.number, self._fit.threshold)

    def _threshold(self) -> ThresholdInUse:
        return self._first_threshold if self._fit is None else self._fit.threshold

    def _remove(self, ids: AnyArray) -> None:
        with self._requiring(ids):
            if self._fit is None:
                with self._noting(ids):
                    self.engine.remove(ids)
                return
            if len(ids) >= self.engine.size():
                message = "At least one item must be left in a gallery that answers."
                raise ProblemError(409, "last_item", message)
            with self._noting(ids):
                self._fit.classifier.remove(ids, allow_empty_class=True)

    def _labelled(self, stored: Stored) -> tuple[AnyArray, AnyArray]:
        """Labels and vectors of points."""
        labels = self.labels_beside(stored.ids) if stored.labels is None else stored.labels
        return np.asarray(labels), np.asarray(stored.vectors)

    @contextmanager
    def _removing_if_it_fails(self, ids: AnyArray) -> Iterator[None]:
        """Points that were just added go again if what belongs beside them cannot be kept."""
        try:
            yield
        except Exception as error:
            log.warning("Pictures or texts of new items could not be kept: %s", error)
            try:
                self._remove(ids)
            except Exception as second:
                log.exception("The new items could not be removed again.")
                raise ProblemError(
                    503,
                    "partly_added",
                    f"The {len(ids)} items were added, but not all of their pictures and texts, "
                    "and they could not be removed again. Remove them, and add them again.",
                ) from second
            raise

    def _free_integers(self, texts: Sequence[str | None]) -> range:
        """As many integers that are no ids as there are items, or more, if any is needed."""
        if None not in texts or self.engine.capabilities.ids == "text":
            return range(0)
        if self._free is None or self._free.stop - self._free.start < len(texts):
            self._free = free_integers((part.ids for part in self.engine.scan()), len(texts))
        return self._free

    def _refit_once(self) -> Fit | None:
        """A new fit; None if the one it was to follow has been replaced."""
        with self._writing:
            before, in_use = self._before(), self._threshold()
            last_change = None if self._changes is None else self._changes.last()
            self._written_since = []
            start = self.version[0]
        classifier = fit_gallery(self.engine, None if before is None else before.model)
        number = 1 if before is None else before.number + 1
        while True:
            threshold = choose_again(in_use, classifier, number)
            with self._writing:
                if self.version[0] != start:
                    return None
                if self._threshold() is not in_use:
                    # Another one was set meanwhile.
                    in_use = self._threshold()
                    continue
                count_changes(classifier, self._written_since)
                promise = UNCHECKED if self._fit is None else self._fit.promise.renew()
                new = Fit(classifier, number, threshold, last_change=last_change, promise=promise)
                keep(new, self._notes)
                self._fit, self._unsaved = new, False
                self._forget_copy()
                break
        if self._changes is not None and last_change is not None:
            self._changes.forget(last_change)
        return new

    def _relearn(self, learn: Callable[[NEDClassifier], object]) -> Fit:
        """Change a copy of the classifier, and let it take over as the next fit."""
        with self._writing:
            before = self.fit
            classifier = load_counted(before.classifier.to_bytes(), self.engine)
            learn(classifier)
            number = before.number + 1
            threshold = choose_again(before.threshold, classifier, number)
            new = replace(
                before,
                classifier=classifier,
                number=number,
                threshold=threshold,
                # Labels are forgotten where queries differ from the gallery, as a rule.
                promise=PENDING if classifier.recalibrated_ is None else leave_promise(classifier),
            )
            keep(new, self._notes)
            self._fit, self._unsaved = new, False
            self._forget_copy()
        return new

    def _repeat(self, read: Callable[[], Result]) -> Result:
        """Read the whole gallery, from the start again if a write made that fail."""
        for _ in range(1 + MOST_RESTARTS):
            n_before = self._n_disturbances
            try:
                return read()
            except (LookupError, ValueError) as error:
                # A vanished item, or a label that was new. A writer that has removed it may not
                # have counted that yet.
                with self._writing:
                    is_disturbed = self._n_disturbances != n_before
                if isinstance(error, EngineError) or not is_disturbed:
                    raise
                log.info("The gallery changed while it was read: %s", error)
        raise Overloaded(
            "Items were removed or relabelled while the gallery was read, and again after it was "
            f"started over {MOST_RESTARTS} times. Try again when fewer are changed."
        )

    def _counted_copy(self) -> tuple[NEDClassifier, int]:
        """A copy of the classifier and the number of its fit, kept until the next write."""
        with self._copying:
            copy = self._copy
            if copy is None:
                with self._writing:
                    fit, version = self.fit, self.version
                    model = fit.classifier.to_bytes()
                copy = load_counted(model, self.engine), fit.number
                with self._writing:
                    if self.version == version:
                        self._copy = copy
            return copy

    def _forget_copy(self) -> None:
        # In this order: a new table never gets a threshold of an old copy.
        self._copy = None
        self._thresholds = {}

    def _check_writable(self) -> None:
        if not self.engine.capabilities.holds_labels:
            raise ProblemError(
                409,
                "labels_elsewhere",
                "This engine holds no labels, so that items cannot be changed here: change them "
                "there, and fit again.",
            )

    @contextmanager
    def _requiring(self, ids: AnyArray) -> Iterator[None]:
        """404 if an item is not there, or is removed by others before the block has used it."""
        if len(np.unique(ids)) < len(ids):
            raise InvalidInputError("The ids must differ. Got one twice.")
        self.stored(ids)
        try:
            yield
        except InvalidInputError:
            self.stored(ids)
            raise

    def _taken(self, ids: AnyArray) -> ProblemError | None:
        """The problem that some of these ids are there already, if that is one."""
        there = [own for own in ids.tolist() if self._holds(own, ids)]
        if not there:
            return None
        named = ", ".join(repr(own) for own in there[:3])
        return ProblemError(409, "item_exists", f"The gallery holds {named} already.")

    def _holds(self, own: str | int, like: AnyArray) -> bool:
        try:
            self.engine.fetch(np.array([own], like.dtype))
        except InvalidInputError:
            return False
        return True

    @contextmanager
    def _noting(self, ids: AnyArray, *, disturbs: bool = True) -> Iterator[None]:
        """Record that points are changed, also where the outcome is unknown.

        `disturbs` is false if a reader of the whole gallery misses nothing it has seen before.
        """
        ignore_fit_warnings()
        try:
            yield
        except EngineError:
            self._note(ids, disturbs=disturbs)
            raise
        self._note(ids, disturbs=disturbs)

    def _note(self, ids: AnyArray, *, disturbs: bool) -> None:
        self._n_writes += 1
        self._n_disturbances += disturbs
        self._unsaved = True
        self._forget_copy()
        if self._written_since is not None:
            self._written_since.append(ids)


class Refits:
    """Starts fits of a gallery, and keeps how the last one ended.

    Parameters
    ----------
    gallery : ServedGallery
        What is fitted.
    threads : WorkThreads
        Where it is fitted.
    on_fit : callable
        Called after each new fit.
    """

    def __init__(
        self, gallery: ServedGallery, threads: WorkThreads, on_fit: Callable[[], None]
    ) -> None:
        self._gallery, self._threads, self._on_fit = gallery, threads, on_fit
        self._lock = Lock()
        # It returns why it failed.
        self._last: Future[str | None] | None = None

    def state(self) -> RefitState:
        """Whether a fit is under way, and how the last one ended."""
        last, number = self._last, self._gallery.version[0]
        if last is not None and not last.done():
            return RefitState(state="running", model=number)
        failure = None if last is None else last.result()
        state: Literal["idle", "failed"] = "idle" if failure is None else "failed"
        return RefitState(state=state, model=number, message=failure)

    def start(self) -> RefitState:
        """Start a fit, unless one is under way."""
        n_items = self._gallery.engine.size()
        if n_items < SMALLEST_GALLERY:
            raise ProblemError(
                409,
                "too_few_items",
                f"A fit needs {SMALLEST_GALLERY} items. The gallery holds {n_items}: add some with "
                "POST /v1/items.",
            )
        with self._lock:
            if self._last is None or self._last.done():
                self._last = self._threads.submit(self._refit)
        return self.state()

    def wait(self, timeout: float) -> None:
        """Wait for the fit that is under way."""
        if self._last is not None:
            wait([self._last], timeout)

    def _refit(self) -> str | None:
        try:
            fit = self._gallery.refit()
        except (NearsureError, ProblemError) as error:
            log.warning("The fit failed: %s", error)
            # The address and the user of an engine are not shown.
            return str(engine_unavailable() if isinstance(error, EngineError) else error)
        except Exception:
            log.exception("The fit failed.")
            return "The fit failed for a reason that the log of the service gives."
        log.info("Fit %d answers from now on.", fit.number)
        self._on_fit()
        return None
