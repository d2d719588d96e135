"""The promise of the threshold in use, as recent queries have left it."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from math import isfinite

from nearsure.arrays import AnyArray
from nearsure.classifier import NEDClassifier
from nearsure.service.answers import DEFAULT_CERTAINTY, PromiseState, ThresholdInUse

# Asked for where only the difference is of interest.
ANY_PRECISION = 0.9


@dataclass(frozen=True)
class Promise:
    """What recent queries have shown; of one fit and one threshold.

    Parameters
    ----------
    state : {"holds", "adjusted", "withdrawn"}
        They are like the gallery; they are not, and another threshold is used for them; or nothing
        can be promised for them.
    sentence : str
        What that means.
    threshold : float or None
        The one that is used for them, if it is adjusted.
    reasons : tuple of str
        What tells them from the gallery.
    accuracy : pair of float or None
        The range in which the share of right answers should lie, where they differ.
    n_queries : int
        How many were looked at.
    checked : datetime or None
        When; None before the first check.
    """

    state: PromiseState
    sentence: str
    threshold: float | None = None
    reasons: tuple[str, ...] = ()
    accuracy: tuple[float, float] | None = None
    n_queries: int = 0
    checked: datetime | None = None

    def apply(self, threshold: ThresholdInUse) -> ThresholdInUse:
        """What is left of a threshold."""
        if self.state == "holds":
            return threshold
        return replace(threshold, threshold=self.threshold)

    def renew(self) -> "Promise":
        """The promise of another fit or threshold until it is checked itself.

        If recent queries differed, nothing is promised for that moment.
        """
        return PENDING if self.reasons or self.state != "holds" else UNCHECKED


UNCHECKED = Promise("holds", "Recent queries were not compared yet with those that it is for.")
PENDING = Promise(
    "withdrawn",
    "What can be promised for recent queries is being looked up. Nothing is accepted meanwhile.",
)


def keep_promise(classifier: NEDClassifier, n_queries: int) -> Promise:
    """The promise after queries that are like the gallery, or like those labelled."""
    sentence = f"The last {n_queries:,} queries are like {_name_others(classifier)}."
    return Promise("holds", sentence, n_queries=n_queries, checked=datetime.now(UTC))


def leave_promise(classifier: NEDClassifier) -> Promise:
    """The promise where queries are not compared yet, or there is nothing to compare them with."""
    sentence = "The fit holds too little to compare recent queries with."
    if classifier.recalibrated_ is not None:
        sentence = "It rests on labelled queries, and is for queries like them."
    return Promise("holds", sentence, checked=datetime.now(UTC))


def _name_others(classifier: NEDClassifier) -> str:
    return "the gallery" if classifier.recalibrated_ is None else "those labelled"


def choose_promise(classifier: NEDClassifier, in_use: ThresholdInUse, queries: AnyArray) -> Promise:
    """What can be promised for queries that seem to differ from the gallery.

    Parameters
    ----------
    classifier : NEDClassifier
        Which answers them.
    in_use : ThresholdInUse
        Whose promise it is.
    queries : array of shape (n, dimension)
    """
    precision = in_use.precision
    chosen = classifier.accept_threshold(
        precision=precision or ANY_PRECISION, certainty=DEFAULT_CERTAINTY, queries=queries
    )
    if not chosen.reasons:
        return keep_promise(classifier, len(queries))
    is_promised = precision is not None and in_use.threshold is not None
    sentence = str(chosen)
    if not is_promised:
        sentence = (
            f"The last {len(queries):,} queries are not like {_name_others(classifier)}: "
            f"{' and '.join(chosen.reasons)}. Confidence may be too high."
        )
    return Promise(
        chosen.state if is_promised else "holds",
        sentence,
        threshold=chosen.threshold if isfinite(chosen.threshold) else None,
        reasons=chosen.reasons,
        accuracy=classifier.compare_queries(queries).accuracy_range,
        n_queries=len(queries),
        checked=datetime.now(UTC),
    )
