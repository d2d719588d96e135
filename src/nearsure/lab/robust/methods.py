"""Rules and calibrated rules, fitted on the clean gallery and never again."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, get_args

import numpy as np

from nearsure.arrays import BoolArray, FloatArray, IntArray
from nearsure.calibration import Calibrator, Isotonic, Platt, Unchanged
from nearsure.comparison import TITLES, score_by
from nearsure.lab.evaluation import fit_with_notes
from nearsure.neighbors import Neighbors
from nearsure.rules import RULE_NAMES, RuleName
from nearsure.temperature import TemperatureFit

Calibration = Literal["raw", "isotonic", "platt"]
CALIBRATIONS: tuple[Calibration, ...] = get_args(Calibration)
CALIBRATION_TITLES: dict[Calibration, str] = {
    "raw": "",
    "isotonic": " + isotonic",
    "platt": " + Platt",
}


@dataclass(frozen=True)
class Method:
    """Whose labels, and what is done to the confidence in them.

    Parameters
    ----------
    rule : {"1nn", "knn", "dudani", "gou", "ned"}
        Gives the label and a confidence.
    calibration : {"raw", "isotonic", "platt"}
        What follows; "raw" is nothing.

    Examples
    --------
    >>> Method("gou", "platt").title
    'WkNN (Gou) + Platt'
    """

    rule: RuleName
    calibration: Calibration = "raw"

    @property
    def title(self) -> str:
        """For people."""
        return TITLES[self.rule] + CALIBRATION_TITLES[self.calibration]

    @property
    def key(self) -> str:
        """For programs."""
        return f"{self.rule}-{self.calibration}"


METHODS = tuple(Method(rule, calibration) for calibration in CALIBRATIONS for rule in RULE_NAMES)
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

    def __len__(self) -> int:
        return int(self.confidence.shape[1])


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
    def fit(cls, own: Neighbors, own_codes: IntArray, *, k: int) -> "FrozenMethods":
        """Fit T by leave-one-out likelihood, and the calibrators on the same neighbours.

        Parameters
        ----------
        own : Neighbors
            Neighbours of each clean gallery point among the others, at least k of them.
        own_codes : array of shape (n_gallery,)
            Class codes of the gallery.
        k : int
            Neighbours to use.
        """
        own, codes = own.first(k), np.asarray(own_codes)
        temperature_fit, notes = fit_with_notes(own, codes)
        calibrators: dict[Method, Calibrator] = {}
        for rule in RULE_NAMES:
            confidence, correct = _top_label(rule, own, codes, temperature_fit.temperature)
            calibrators[Method(rule, "raw")] = Unchanged()
            calibrators[Method(rule, "isotonic")] = Isotonic.fit(confidence, correct)
            calibrators[Method(rule, "platt")] = Platt.fit(confidence, correct)
        return cls(k, temperature_fit, MappingProxyType(calibrators), codes.copy(), notes)

    @property
    def n_gallery(self) -> int:
        """Points of the support set."""
        return len(self.gallery_codes)

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
        by_rule = {
            rule: _top_label(rule, queries, codes, self.temperature_fit.temperature)
            for rule in RULE_NAMES
        }
        return Scores(
            np.stack([self.calibrators[method](by_rule[method.rule][0]) for method in METHODS]),
            np.stack([by_rule[method.rule][1] for method in METHODS]),
        )


def _top_label(
    rule: RuleName, neighbors: Neighbors, codes: IntArray, temperature: float
) -> tuple[FloatArray, BoolArray]:
    """A rule's confidence in its label, and whether that is the true one."""
    labels, confidence = score_by(rule, neighbors, temperature).top(1)
    return confidence[:, 0], labels[:, 0] == codes
