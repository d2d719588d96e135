"""Rules and calibrated rules, fitted on the clean gallery and never again."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from nearsure.arrays import AnyArray, BoolArray, FloatArray, IntArray
from nearsure.calibration import CALIBRATORS, Calibrator, Unchanged
from nearsure.classifier import NEDClassifier
from nearsure.classifier.rule import FittedRule
from nearsure.comparison import score_by, title_of
from nearsure.heads.fitted_head import FittedHead
from nearsure.lab import default_rule
from nearsure.lab.evaluation import collect_fit_warnings, fit_with_notes
from nearsure.neighbors import Neighbors
from nearsure.rules import RULE_NAMES, RuleName
from nearsure.temperature import TemperatureFit

if TYPE_CHECKING:
    from typing import Self

RAW = "raw"
STEP_TITLES = {"platt": "Platt", "bbq": "BBQ"}
OWN_NAMES = (default_rule.NEIGHBORS_ALONE, default_rule.DEFAULT)


def base_title(base: str) -> str:
    """What the base of a method is called in tables."""
    if base in OWN_NAMES:
        return base
    return title_of(base) if base in RULE_NAMES else base[:1].upper() + base[1:]


@dataclass(frozen=True)
class Method:
    """What makes a posterior of neighbours, and what is done to it.

    Parameters
    ----------
    base : str
        A rule, or a form of NED: it gives the label and a confidence.
    step : str
        A calibrator, or another step that is fitted on leave-one-out scores; "raw" is none.

    Examples
    --------
    >>> Method("gou", "platt").title
    'WkNN (Gou) + Platt'
    >>> Method.from_name("gou + platt") == Method("gou", "platt")
    True
    """

    base: str
    step: str = RAW

    @property
    def title(self) -> str:
        """For tables."""
        title = base_title(self.base)
        return title if self.step == RAW else f"{title} + {STEP_TITLES.get(self.step, self.step)}"

    @property
    def name(self) -> str:
        """For files."""
        return self.base if self.step == RAW else f"{self.base} + {self.step}"

    @classmethod
    def from_name(cls, name: str) -> "Self":
        """The inverse of `name`."""
        base, _, step = name.partition(" + ")
        return cls(base, step or RAW)


STEPS = (RAW, "isotonic", "platt")
NED = Method("ned")
# `NEDClassifier` without a head, and as it comes.
NEIGHBORS_ALONE, DEFAULT = map(Method, OWN_NAMES)
METHODS = (
    *(Method(rule, step) for step in STEPS for rule in RULE_NAMES),
    NEIGHBORS_ALONE,
    DEFAULT,
)


@dataclass(frozen=True, eq=False)
class Scores:
    """Confidence and correctness of every method on the same queries.

    Parameters
    ----------
    confidence : array of shape (n_methods, n)
        By the methods of `METHODS`, in their order.
    correct : array of shape (n_methods, n)
        Whether the label is right; the same for all methods of a rule.
    """

    confidence: FloatArray
    correct: BoolArray


@dataclass(frozen=True, eq=False)
class FrozenClassifier:
    """What two fits of `NEDClassifier` on the clean gallery say of any neighbours; `fit` makes it.

    Parameters
    ----------
    alone, whole : FittedRule
        Neighbours alone, and with what stands beside them.
    head : FittedHead or None
        That; None where none is of use.
    n_classes : int
        Of the gallery.
    """

    alone: FittedRule
    whole: FittedRule
    head: FittedHead | None
    n_classes: int

    @classmethod
    def fit(cls, vectors: AnyArray, codes: IntArray, k: int) -> "Self":
        """Fit on vectors of shape (n, d), whose ids are then their rows."""
        alone, whole = (
            NEDClassifier(n_neighbors=k, head=head).fit(vectors, codes) for head in (None, "auto")
        )
        head = whole._fitted.gallery.head  # noqa: SLF001
        return cls(alone.rule_, whole.rule_, head, int(codes.max()) + 1)

    def add_class_scores(
        self, neighbors: Neighbors, vectors: AnyArray, gallery_rows: IntArray
    ) -> Neighbors:
        """Neighbours with what the head says of the vectors that they were found for.

        Parameters
        ----------
        neighbors : Neighbors
            Of n queries.
        vectors : array of shape (n, d)
            The queries.
        gallery_rows : array of shape (n,)
            Where the gallery holds the clean image of a query, which is then scored by a head that
            has not seen it; -1 where it holds none.
        """
        if self.head is None:
            return neighbors
        labels, sq_distances = neighbors.labels, neighbors.sq_distances
        if (gallery_rows < 0).all():
            return neighbors.with_scores(self.head.score(vectors, labels, sq_distances))
        return neighbors.with_scores(
            self.head.score_own(vectors, labels, gallery_rows, sq_distances)
        )

    def scores(
        self, queries: Neighbors, codes: IntArray
    ) -> dict[Method, tuple[FloatArray, BoolArray]]:
        """Confidence of both, and whether they are right, on neighbours with class scores."""
        found = {}
        for method, rule in ((NEIGHBORS_ALONE, self.alone), (DEFAULT, self.whole)):
            posterior = rule.posterior(queries, n_classes=self.n_classes)
            found[method] = posterior.confidence, posterior.labels == codes
        return found


@dataclass(frozen=True, eq=False)
class FrozenMethods:
    """T and the calibrators of every rule, known from clean gallery points alone; `fit` makes it.

    Parameters
    ----------
    k : int
        Neighbours that every rule uses.
    temperature_fit : TemperatureFit
        T of NED.
    calibrators : mapping of Method to Calibrator
        One for each rule and step.
    classifier : FrozenClassifier
        The other methods.
    gallery_codes : array of shape (n_gallery,)
        Class codes of the points that it was fitted on, which are the support set.
    notes : tuple of str
        What the fits warned of.
    """

    k: int
    temperature_fit: TemperatureFit
    calibrators: Mapping[Method, Calibrator]
    classifier: FrozenClassifier
    gallery_codes: IntArray
    notes: tuple[str, ...] = ()

    @classmethod
    def fit(cls, own: Neighbors, codes: IntArray, vectors: AnyArray) -> "Self":
        """Fit T by leave-one-out likelihood, and the calibrators on the same neighbours.

        Parameters
        ----------
        own : Neighbors
            The k neighbours of each clean gallery point among the others.
        codes : array of shape (n_gallery,)
            Class codes of the gallery.
        vectors : array of shape (n_gallery, d)
            Its points.
        """
        temperature_fit, notes = fit_with_notes(own, codes)
        calibrators: dict[Method, Calibrator] = {}
        for rule in RULE_NAMES:
            confidence, correct = _top_label(rule, own, codes, temperature_fit.temperature)
            for step in STEPS:
                fitted = Unchanged() if step == RAW else CALIBRATORS[step].fit(confidence, correct)
                calibrators[Method(rule, step)] = fitted
        with collect_fit_warnings() as more:
            classifier = FrozenClassifier.fit(vectors, codes, own.k)
        return cls(
            own.k,
            temperature_fit,
            MappingProxyType(calibrators),
            classifier,
            codes.copy(),
            tuple(dict.fromkeys((*notes, *more))),
        )

    def scores(self, queries: Neighbors, codes: IntArray) -> Scores:
        """Score queries, clean or not, by every method.

        Parameters
        ----------
        queries : Neighbors
            Their neighbours in the clean gallery, at least k of them, with class scores; see
            `FrozenClassifier.add_class_scores`.
        codes : array of shape (n,)
            Their true class codes; one that the gallery lacks never matches.
        """
        queries = queries.first(self.k)
        found: dict[Method, tuple[FloatArray, BoolArray]] = {}
        for rule in RULE_NAMES:
            claimed, correct = _top_label(rule, queries, codes, self.temperature_fit.temperature)
            for step in STEPS:
                method = Method(rule, step)
                found[method] = self.calibrators[method](claimed), correct
        found |= self.classifier.scores(queries, codes)
        return Scores(
            np.stack([found[method][0] for method in METHODS]),
            np.stack([found[method][1] for method in METHODS]),
        )


def _top_label(
    rule: RuleName, neighbors: Neighbors, codes: IntArray, temperature: float
) -> tuple[FloatArray, BoolArray]:
    """A rule's confidence in its label, and whether that is the true one."""
    labels, confidence = score_by(rule, neighbors, temperature).top(1)
    return confidence[:, 0], labels[:, 0] == codes
