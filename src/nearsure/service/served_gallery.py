"""The gallery that is served: answers while it is written to, and while it is fitted anew."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from threading import RLock
from typing import TypeVar

import numpy as np

from nearsure.arrays import AnyArray
from nearsure.classifier import NEDClassifier
from nearsure.engines.contract import Engine, Stored
from nearsure.errors import InvalidInputError
from nearsure.service.answers import Answers, answered
from nearsure.service.fits import (
    Fit,
    fitted_again,
    fitted_from_nothing,
    ignore_fit_warnings,
    keep,
    with_changes,
)
from nearsure.service.item_names import first_free_integer, new_ids
from nearsure.service.kept_notes import THRESHOLD, Notes
from nearsure.service.problems import ProblemError
from nearsure.service.thresholds import ThresholdInUse, chosen_for, set_by_hand

Result = TypeVar("Result")

# How often something that reads the whole gallery is tried beside writers, before they wait for it.
ATTEMPTS = 3
SMALLEST_GALLERY = 2


class ServedGallery:
    """An engine and the fit on what it holds.

    Methods may be called from several threads. One writes at a time; reading waits for nobody. What
    a method has changed is durable when it returns, as far as the engine's changes are.

    Parameters
    ----------
    engine : Engine
        Holds the points.
    notes : Notes
        Where fit and threshold are kept.
    fit : Fit or None
        None as long as there are too few points.
    precision : float or None
        Target of the threshold, if none was set.
    """

    def __init__(
        self, engine: Engine, notes: Notes, fit: Fit | None, precision: float | None = None
    ) -> None:
        self.engine = engine
        self._notes, self._fit, self._precision = notes, fit, precision
        self._writing = RLock()
        self._n_writes = 0
        self._written_since: list[AnyArray] | None = None
        self._unsaved = False
        self._first_free: int | None = None

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
        prediction = fit.classifier.predict_with_confidence(vectors)
        answers = answered(fit.classifier, prediction, fit.threshold, fit.number)
        return [(answers, row) for row in range(len(vectors))]

    def predict_item(self, item: AnyArray) -> Answers:
        """What a point, given as an array of one id, would be taken for without itself."""
        fit = self.fit
        self.stored(item)
        prediction = fit.classifier.predict_own(item)
        return answered(fit.classifier, prediction, fit.threshold, fit.number)

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
            if self._first_free is None:
                self._first_free = first_free_integer(self.engine)
            ids = new_ids(texts, self.engine, self._first_free)
            if len(np.unique(ids)) < len(ids):
                raise InvalidInputError("The ids of new items must differ. Got one twice.")
            try:
                if self._fit is None:
                    self.engine.add(vectors, ids, labels)
                else:
                    ignore_fit_warnings()
                    self._fit.classifier.add(vectors, labels, ids=ids)
            except InvalidInputError as error:
                raise self._taken(ids) or error from error
            if ids.dtype.kind == "i":
                self._first_free = max(self._first_free, int(ids.max()) + 1)
            self._note(ids)
            return ids

    def relabel(self, ids: AnyArray, label: AnyArray) -> int:
        """Give points one other label, all or none; how many there were."""
        self._check_writable()
        with self._writing:
            self._check_there(ids)
            labels = np.repeat(label, len(ids))
            if self._fit is None:
                self.engine.relabel(ids, labels)
            else:
                ignore_fit_warnings()
                self._fit.classifier.relabel(ids, labels, allow_empty_class=True)
            self._note(ids)
            return len(ids)

    def remove(self, ids: AnyArray) -> int:
        """Remove points, all or none; how many there were."""
        self._check_writable()
        with self._writing:
            self._check_there(ids)
            if self._fit is None:
                self.engine.remove(ids)
            elif len(ids) >= self.engine.size():
                raise ProblemError(
                    409, "last_item", "At least one item must be left in a gallery that answers."
                )
            else:
                ignore_fit_warnings()
                self._fit.classifier.remove(ids, allow_empty_class=True)
            self._note(ids)
            return len(ids)

    def refit(self) -> Fit:
        """Fit anew on the gallery of now; the old fit answers until the new one takes over."""

        def fitted() -> tuple[Fit | None, Fit]:
            before = self._fit
            with self._writing:
                self._written_since = []
            if before is None:
                classifier = fitted_from_nothing(self.engine)
            else:
                classifier = fitted_again(before.classifier, self.engine)
            number = 1 if before is None else before.number + 1
            return before, Fit(classifier, number, self._carried_over(classifier, number))

        try:
            before, new = self.steadily(fitted)
            with self._writing:
                if self._fit is not before:
                    # Somebody has set another threshold meanwhile.
                    threshold = self._carried_over(new.classifier, new.number)
                    new = replace(new, threshold=threshold)
                with_changes(new.classifier, self._written_since or [])
                keep(new, self._notes)
                self._fit, self._unsaved = new, False
        finally:
            self._written_since = None
        return new

    def threshold_for(self, precision: float, certainty: float) -> ThresholdInUse:
        """The threshold that would be chosen now."""

        def chosen() -> ThresholdInUse:
            fit = self.fit
            return chosen_for(fit.classifier, precision, fit.number, certainty=certainty)

        return self._chosen_steadily(chosen)

    def set_threshold(self, threshold: float | None, precision: float | None) -> ThresholdInUse:
        """Use another threshold from now on, or none."""

        def chosen() -> ThresholdInUse:
            fit = self.fit
            if threshold is not None:
                return set_by_hand(threshold, fit.number)
            if precision is not None:
                return chosen_for(fit.classifier, precision, fit.number)
            return ThresholdInUse(model=fit.number)

        new = self._chosen_steadily(chosen)
        with self._writing:
            if new.model != self.fit.number:
                # A new fit has taken over meanwhile.
                new = chosen()
            self._notes.put(THRESHOLD, new.to_bytes())
            self._fit = replace(self.fit, threshold=new)
        return new

    def steadily(self, work: Callable[[], Result]) -> Result:
        """Do what reads the whole gallery; again if a write came between, at last without them."""
        for _ in range(ATTEMPTS - 1):
            before = self._n_writes
            try:
                return work()
            except Exception:
                # Whoever writes now may have changed points, but counts them at the end.
                with self._writing:
                    if self._n_writes == before:
                        raise
        with self._writing:
            return work()

    def close(self, patience: float = 5.0) -> None:
        """Keep what is known of changes since the fit, and close the engine.

        Parameters
        ----------
        patience : float
            Seconds to wait for a writer.
        """
        if self._writing.acquire(timeout=patience):
            try:
                # Where some were not seen, the older note tells how many.
                if self._fit is not None and self._unsaved and not self._fit.n_unseen:
                    keep(self._fit, self._notes)
            finally:
                self._writing.release()
        self.engine.close()

    def _chosen_steadily(self, choose: Callable[[], ThresholdInUse]) -> ThresholdInUse:
        try:
            return self.steadily(choose)
        except InvalidInputError as error:
            # What was asked is right: the gallery has too few points of the fit left.
            raise ProblemError(409, "no_threshold", str(error)) from error

    def _carried_over(self, classifier: NEDClassifier, number: int) -> ThresholdInUse:
        """The threshold of a new fit: set by hand it stays, for a precision it is chosen anew."""
        if self._fit is None:
            in_use = ThresholdInUse(precision=self._precision)
        else:
            in_use = self._fit.threshold
        if in_use.precision is None:
            return replace(in_use, model=number)
        return chosen_for(classifier, in_use.precision, number)

    def _check_writable(self) -> None:
        if not self.engine.capabilities.holds_labels:
            raise ProblemError(
                409,
                "labels_elsewhere",
                "This engine holds no labels, so that items cannot be changed here: change them "
                "there, and fit again.",
            )

    def _check_there(self, ids: AnyArray) -> None:
        if len(np.unique(ids)) < len(ids):
            raise InvalidInputError("The ids must differ. Got one twice.")
        self.stored(ids)

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

    def _note(self, ids: AnyArray) -> None:
        """Remember that points were changed."""
        self._n_writes += 1
        self._unsaved = True
        if self._written_since is not None:
            self._written_since.append(ids)
