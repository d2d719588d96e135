"""From neighbours to a calibrated posterior: a rule, its parameters, a prior, a calibrator."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Self, cast, get_args

import numpy as np

from nearsure.arrays import FloatArray
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
from nearsure.forms.class_prior import with_prior
from nearsure.neighbors import Neighbors
from nearsure.objectives import ObjectiveName
from nearsure.posterior import Posterior, score
from nearsure.temperature import TemperatureFit, fit_temperature

if TYPE_CHECKING:
    from nearsure.rules import RuleName

SharpenedName = Literal["sharpened", "adaptive"]
JUST_ABOVE = 1e-9
SHARPENED_NAMES: tuple[SharpenedName, ...] = get_args(SharpenedName)


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
    """

    name: str
    temperature: float | None = None
    form: SharpenedNED | None = None
    temperature_fit: TemperatureFit | None = None
    sharpened_fit: SharpenedFit | None = None
    calibrator: Calibrator = field(default_factory=Unchanged)

    def posterior(
        self,
        neighbors: Neighbors,
        *,
        n_classes: int | None = None,
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
        prior_factors : array of shape (n_classes,), optional
            See `nearsure.forms.class_prior`.
        own : OwnPass, optional
            That these are points of the gallery.
        """
        posterior = self.claimed(
            neighbors, n_classes=n_classes, prior_factors=prior_factors, own=own
        )
        if isinstance(self.calibrator, Unchanged):
            return posterior
        # The best of n classes has more than 1 / n, whatever a calibrator says.
        least = min(1.0, (1.0 + JUST_ABOVE) / max(1, posterior.n_classes))
        confidence = np.maximum(self.calibrator(posterior.confidence), least)
        return with_confidence(posterior, np.where(np.diff(posterior.indptr) > 0, confidence, 0.0))

    def claimed(
        self,
        neighbors: Neighbors,
        *,
        n_classes: int | None = None,
        prior_factors: FloatArray | None = None,
        own: OwnPass | None = None,
    ) -> Posterior:
        """The same before calibration."""
        if self.form is not None:
            posterior = self.form.posterior(
                neighbors,
                n_classes=n_classes,
                own_codes=None if own is None else own.codes,
                own_factors=None if own is None else own.factors,
            )
        else:
            rule = cast("RuleName", self.name)
            posterior = score(
                neighbors, rule=rule, temperature=self.temperature, n_classes=n_classes
            )
        return posterior if prior_factors is None else with_prior(posterior, prior_factors)

    def to_dict(self) -> dict[str, Any]:
        """In JSON's types."""
        return {
            "name": self.name,
            "temperature": self.temperature,
            "form": self.form and self.form.to_dict(),
            "temperature_fit": self.temperature_fit and self.temperature_fit.to_dict(),
            "sharpened_fit": self.sharpened_fit and self.sharpened_fit.to_dict(),
            "calibrator": self.calibrator.to_dict(),
        }

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> Self:
        """The inverse of `to_dict`."""
        form, fit, sharpened = (
            fields[name] for name in ("form", "temperature_fit", "sharpened_fit")
        )
        return cls(
            name=fields["name"],
            temperature=fields["temperature"],
            form=form and SharpenedNED.from_dict(form),
            temperature_fit=fit and TemperatureFit.from_dict(fit),
            sharpened_fit=sharpened and SharpenedFit.from_dict(sharpened),
            calibrator=calibrator_from_dict(fields["calibrator"]),
        )


def fit_rule(
    name: str,
    own: OwnPass | None,
    *,
    temperature: float | None,
    objective: ObjectiveName,
    calibration: str,
    n_classes: int,
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
    n_classes : int
        Classes of the gallery.
    prior_factors : array of shape (n_classes,), optional
        Of another prior than the gallery's frequencies: a point of a class that is rarer in the
        gallery than among the queries counts more when the calibrator is fitted.
    """
    rule = FittedRule(name, temperature)
    if name in SHARPENED_NAMES and own is not None:
        fit = fit_sharpened(own.neighbors, own.codes, free=name, own_factors=own.factors)
        rule = FittedRule(name, fit.form.temperature, fit.form, fit.temperature_fit, fit)
    elif name == "ned" and temperature is None and own is not None:
        found = fit_temperature(own.neighbors, own.codes, objective=objective)
        rule = FittedRule(name, found.temperature, temperature_fit=found)
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
    return FittedRule(
        name, rule.temperature, rule.form, rule.temperature_fit, rule.sharpened_fit, calibrator
    )
