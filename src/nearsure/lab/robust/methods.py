"""Rules and calibrated rules, fitted on the clean gallery and never again."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from nearsure.arrays import BoolArray, FloatArray, IntArray
from nearsure.calibration import CALIBRATORS, Calibrator, Unchanged
from nearsure.comparison import score_by, title_of
from nearsure.lab.evaluation import fit_with_notes
from nearsure.neighbors import Neighbors
from nearsure.rules import RULE_NAMES, RuleName
from nearsure.temperature import TemperatureFit

if TYPE_CHECKING:
    from typing import Self

RAW = "raw"
STEP_TITLES = {"platt": "Platt", "bbq": "BBQ"}


def base_title(base: str) -> str:
    """What the base of a method is called in tables."""
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
METHODS = tuple(Method(rule, step) for step in STEPS for rule in RULE_NAMES)
NED = Method("ned")


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
class FrozenMethods:
    """T and the calibrators of every rule, known from clean gallery points alone; `fit` makes it.

    Parameters
    ----------
    k : int
        Neighbours that every rule uses.
    temperature_fit : TemperatureFit
        T of NED.
    calibrators : mapping of Method to Calibrator
        One for each of `METHODS`.
    gallery_codes : array of shape (n_gallery,)
        Class codes of the points that it was fitted on, which are the support set.
    notes : tuple of str
        What the fit warned of.
    """

    k: int
    temperature_fit: TemperatureFit
    calibrators: Mapping[Method, Calibrator]
    gallery_codes: IntArray
    notes: tuple[str, ...] = ()

    @classmethod
    def fit(cls, own: Neighbors, codes: IntArray) -> "Self":
        """Fit T by leave-one-out likelihood, and the calibrators on the same neighbours.

        Parameters
        ----------
        own : Neighbors
            The k neighbours of each clean gallery point among the others.
        codes : array of shape (n_gallery,)
            Class codes of the gallery.
        """
        temperature_fit, notes = fit_with_notes(own, codes)
        calibrators: dict[Method, Calibrator] = {}
        for rule in RULE_NAMES:
            confidence, correct = _top_label(rule, own, codes, temperature_fit.temperature)
            for step in STEPS:
                fitted = Unchanged() if step == RAW else CALIBRATORS[step].fit(confidence, correct)
                calibrators[Method(rule, step)] = fitted
        return cls(own.k, temperature_fit, MappingProxyType(calibrators), codes.copy(), notes)

    def scores(self, queries: Neighbors, codes: IntArray) -> Scores:
        """Score queries, clean or not, by every method.

        Parameters
        ----------
        queries : Neighbors
            Their neighbours in the clean gallery, at least k of them.
        codes : array of shape (n,)
            Their true class codes; one that the gallery lacks never matches.
        """
        queries = queries.first(self.k)
        by_rule: dict[str, tuple[FloatArray, BoolArray]] = {
            rule: _top_label(rule, queries, codes, self.temperature_fit.temperature)
            for rule in RULE_NAMES
        }
        return Scores(
            np.stack([self.calibrators[method](by_rule[method.base][0]) for method in METHODS]),
            np.stack([by_rule[method.base][1] for method in METHODS]),
        )


def _top_label(
    rule: RuleName, neighbors: Neighbors, codes: IntArray, temperature: float
) -> tuple[FloatArray, BoolArray]:
    """A rule's confidence in its label, and whether that is the true one."""
    labels, confidence = score_by(rule, neighbors, temperature).top(1)
    return confidence[:, 0], labels[:, 0] == codes
