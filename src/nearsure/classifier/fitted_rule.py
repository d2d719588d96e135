"""From neighbours to a calibrated posterior: a rule, its parameters, a prior, a calibrator."""

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, Self, cast, get_args

import numpy as np

from nearsure.arrays import FloatArray, IntArray
from nearsure.calibration import (
    CALIBRATORS,
    Calibrator,
    ShrunkPlatt,
    Unchanged,
    calibrator_from_dict,
    with_confidence,
)
from nearsure.classifier.own_pass import OwnPass
from nearsure.forms import SharpenedFit, SharpenedNED, fit_sharpened
from nearsure.neighbors import Neighbors
from nearsure.objectives import ObjectiveName
from nearsure.posterior import Posterior, aggregate, divided_among
from nearsure.rules import RULE_NAMES, rule_weights
from nearsure.schema import (
    OBJECT,
    POSITIVE,
    check_fields,
    integer,
    list_of,
    nullable,
    one_of,
    reading,
    unreadable,
)
from nearsure.temperature import TemperatureFit, fit_temperature

if TYPE_CHECKING:
    from nearsure.rules import RuleName

SharpenedName = Literal["sharpened", "adaptive"]
JUST_ABOVE = 1e-9
SHARPENED_NAMES: tuple[SharpenedName, ...] = get_args(SharpenedName)
_STORED = {
    "name": one_of(*RULE_NAMES, *SHARPENED_NAMES),
    "temperature": nullable(POSITIVE),
    "form": nullable(OBJECT),
    "temperature_fit": nullable(OBJECT),
    "sharpened_fit": nullable(OBJECT),
    "calibrator": OBJECT,
    "class_sizes": nullable(list_of(integer(0, 2**53))),
}


@dataclass(frozen=True, eq=False)
class FittedRule:
    """All that was learned from a gallery about how sure to be; `fit_rule` makes it.

    Parameters
    ----------
    name : str
        The rule.
    temperature : float or None
        T, for NED and its sharpened forms.
    form : SharpenedNED or None
        The parameters of a sharpened form.
    temperature_fit : TemperatureFit or None
        How NED's T was fitted; None if it was given, or if the rule has none.
    sharpened_fit : SharpenedFit or None
        How the form was fitted.
    calibrator : Calibrator
        What is done to the confidence afterwards.
    class_sizes : array of shape (n_classes,) or None
        Members of each class at the fit.
    """

    name: str
    temperature: float | None = None
    form: SharpenedNED | None = None
    temperature_fit: TemperatureFit | None = None
    sharpened_fit: SharpenedFit | None = None
    calibrator: Calibrator = field(default_factory=Unchanged)
    class_sizes: IntArray | None = None

    def posterior(
        self,
        neighbors: Neighbors,
        *,
        n_classes: int | None = None,
        class_sizes: IntArray | None = None,
        prior_factors: FloatArray | None = None,
        own: OwnPass | None = None,
    ) -> Posterior:
        """Calibrated probabilities of queries, or of the support points of an own pass.

        Parameters
        ----------
        neighbors : Neighbors
            Of queries; those of `own`, if that is given.
        n_classes : int, optional
            Classes of the gallery; by default one more than the largest code among the neighbours.
        class_sizes : array of shape (n_classes,), optional
            Members of each class now; by default as at the fit.
        prior_factors : array of shape (n_classes,), optional
            See `nearsure.forms.class_prior`.
        own : OwnPass, optional
            That these are points of the gallery.
        """
        posterior = self.claimed(
            neighbors,
            n_classes=n_classes,
            class_sizes=class_sizes,
            prior_factors=prior_factors,
            own=own,
        )
        if isinstance(self.calibrator, Unchanged):
            return posterior
        # The best of n classes has more than 1 / n, whatever a calibrator says.
        sizes = self.class_sizes if class_sizes is None else class_sizes
        n_possible = posterior.n_classes if sizes is None else int((sizes > 0).sum())
        least = min(1.0, (1.0 + JUST_ABOVE) / max(1, n_possible))
        confidence = np.maximum(self.calibrator(posterior.confidence), least)
        return with_confidence(posterior, np.where(np.diff(posterior.indptr) > 0, confidence, 0.0))

    def claimed(
        self,
        neighbors: Neighbors,
        *,
        n_classes: int | None = None,
        class_sizes: IntArray | None = None,
        prior_factors: FloatArray | None = None,
        own: OwnPass | None = None,
    ) -> Posterior:
        """The same before calibration."""
        if self.form is not None:
            return self.form.posterior(
                neighbors,
                n_classes=n_classes,
                class_sizes=self.class_sizes if class_sizes is None else class_sizes,
                class_factors=prior_factors,
                own_codes=None if own is None else own.codes,
                own_factors=None if own is None else own.factors,
            )
        weights = rule_weights(neighbors, cast("RuleName", self.name), self.temperature)
        return aggregate(neighbors, weights, n_classes=n_classes, class_factors=prior_factors)

    def vote_shares(
        self,
        neighbors: Neighbors,
        *,
        class_sizes: IntArray | None = None,
        prior_factors: FloatArray | None = None,
    ) -> FloatArray:
        """What each neighbour contributes to the answer, before calibration.

        A class's probability is divided among its neighbours in proportion to their weights.

        Returns
        -------
        array of shape (n, k)
            In [0, 1], rows sum to 1; 0 behind ``neighbors.counts``.
        """
        claimed = self.claimed(neighbors, class_sizes=class_sizes, prior_factors=prior_factors)
        if self.form is None:
            weights = rule_weights(neighbors, cast("RuleName", self.name), self.temperature)
        else:
            weights = self.form.weights(neighbors)
        return divided_among(neighbors, weights, claimed)

    def to_dict(self) -> dict[str, Any]:
        """In JSON's types."""
        return {
            "name": self.name,
            "temperature": self.temperature,
            "form": self.form and self.form.to_dict(),
            "temperature_fit": self.temperature_fit and self.temperature_fit.to_dict(),
            "sharpened_fit": self.sharpened_fit and self.sharpened_fit.to_dict(),
            "calibrator": self.calibrator.to_dict(),
            "class_sizes": None if self.class_sizes is None else self.class_sizes.tolist(),
        }

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> Self:
        """The inverse of `to_dict`; `ModelFileError` for anything else."""
        check_fields("The rule", fields, _STORED)
        name, form, fit, sharpened, sizes = (
            fields[key]
            for key in ("name", "form", "temperature_fit", "sharpened_fit", "class_sizes")
        )
        has_form = name in SHARPENED_NAMES
        has_temperature = has_form or name == "ned"
        parts = (
            (fields["temperature"], "temperature", has_temperature),
            (form, "form", has_form),
            (sharpened, "sharpened_fit", has_form),
        )
        for part, key, is_due in parts:
            if (part is not None) != is_due:
                problem = "must not be null" if is_due else "must be null"
                raise unreadable("The rule", f"{key!r} {problem} for rule {name!r}")
        with reading("The calibrator"):
            calibrator = calibrator_from_dict(fields["calibrator"])
        return cls(
            name=name,
            temperature=fields["temperature"],
            form=None if form is None else SharpenedNED.from_dict(form),
            temperature_fit=None if fit is None else TemperatureFit.from_dict(fit),
            sharpened_fit=None if sharpened is None else SharpenedFit.from_dict(sharpened),
            calibrator=calibrator,
            class_sizes=None if sizes is None else np.array(sizes, np.int64),
        )


def fit_rule(
    name: str,
    own: OwnPass | None,
    *,
    temperature: float | None,
    objective: ObjectiveName,
    calibration: str,
    class_sizes: IntArray,
    prior_factors: FloatArray | None,
) -> FittedRule:
    """Fit a rule's parameters and its calibrator on the gallery's own points.

    Parameters
    ----------
    name : str
        The rule.
    own : OwnPass or None
        The points; None where nothing has to be fitted.
    temperature : float or None
        T of NED, if it is given.
    objective : {"nll", "brier", "top_label"}
        What T of NED minimises.
    calibration : str
        Name of a calibrator.
    class_sizes : array of shape (n_classes,)
        Members of each class of the gallery.
    prior_factors : array of shape (n_classes,), optional
        Of another prior than the gallery's frequencies: a point of a class that is rarer in the
        gallery than among the queries counts more when the calibrator is fitted.
    """
    rule = FittedRule(name, temperature, class_sizes=class_sizes)
    if name in SHARPENED_NAMES and own is not None:
        fit = fit_sharpened(
            own.neighbors,
            own.codes,
            free=name,
            own_factors=own.factors,
            class_sizes=class_sizes,
        )
        if fit.temperature_fit.status != "interior":
            # Nothing was sharpened, and the factors would only break ties by the true label.
            own = own.without_factors()
        rule = replace(
            rule,
            temperature=fit.form.temperature,
            form=fit.form,
            temperature_fit=fit.temperature_fit,
            sharpened_fit=fit,
        )
    elif name == "ned" and temperature is None and own is not None:
        found = fit_temperature(own.neighbors, own.codes, objective=objective)
        rule = replace(rule, temperature=found.temperature, temperature_fit=found)
    n_classes = len(class_sizes)
    if calibration == "none" or own is None or n_classes == 1:
        return rule
    claimed = rule.claimed(own.neighbors, n_classes=n_classes, prior_factors=prior_factors, own=own)
    asked = np.diff(claimed.indptr) > 0
    confidence, correct = claimed.confidence[asked], (claimed.labels == own.codes)[asked]
    calibrator: Calibrator
    if calibration == "shrunk":
        weights = None if prior_factors is None else prior_factors[own.codes[asked]]
        calibrator = ShrunkPlatt.fit(confidence, correct, weights=weights)
    else:
        calibrator = CALIBRATORS[calibration].fit(confidence, correct)
    return replace(rule, calibrator=calibrator)
