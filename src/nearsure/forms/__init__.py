"""Forms of NED beyond the paper's formula, each with its fit."""

from nearsure.forms.class_variance import class_variance_weights, fit_class_variance
from nearsure.forms.missed_mass import MissedMass, leave_room
from nearsure.forms.prior import prior_factors, with_prior
from nearsure.forms.sharpened import FreeParameters, SharpenedFit, SharpenedNED, fit_sharpened

__all__ = [
    "FreeParameters",
    "MissedMass",
    "SharpenedFit",
    "SharpenedNED",
    "class_variance_weights",
    "fit_class_variance",
    "fit_sharpened",
    "leave_room",
    "prior_factors",
    "with_prior",
]
