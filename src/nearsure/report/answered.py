"""Queries with what was answered and what would have been right: all that a report is made of."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from nearsure.arrays import AnyArray, BoolArray, FloatArray, IntArray
from nearsure.classifier.prediction import Prediction
from nearsure.report.document import Label
from nearsure.report.plain import plain_label

NO_ANSWER = "(no answer)"


@dataclass(frozen=True, eq=False)
class Answered:
    """Queries of known truth, answered by a classifier.

    Parameters
    ----------
    prediction : Prediction
        The answers.
    classes : array of shape (n_classes,)
        Labels that class codes stand for.
    ids : array of shape (n,)
        What the queries are called.
    truth : array of shape (n,)
        Their true labels.
    codes : array of shape (n,)
        The class codes of these; ``n_classes`` for a class that the gallery lacks.
    """

    prediction: Prediction
    classes: AnyArray
    ids: AnyArray
    truth: AnyArray
    codes: IntArray

    def __len__(self) -> int:
        return len(self.codes)

    @cached_property
    def answers(self) -> IntArray:
        """Class codes of the answers; -1 for a query that found no neighbour."""
        return self.prediction.posterior.labels

    @cached_property
    def confidence(self) -> FloatArray:
        """How sure they are."""
        return self.prediction.posterior.confidence

    @cached_property
    def correct(self) -> BoolArray:
        """Whether they are right; never, for a class that the gallery lacks."""
        return np.asarray(self.answers == self.codes, np.bool_)

    @cached_property
    def known(self) -> BoolArray:
        """Whether a query is of a class that the gallery has."""
        return np.asarray(self.codes < len(self.classes), np.bool_)

    def label_of(self, code: int) -> Label:
        """The label of an answer."""
        return NO_ANSWER if code < 0 else plain_label(self.classes[code])
