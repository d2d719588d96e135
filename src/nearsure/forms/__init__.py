"""Forms of NED beyond the paper's formula, each with its fit."""

from nearsure.forms.class_covariance import (
    ClassCovariance,
    class_covariance_weights,
    fit_class_covariance,
)
from nearsure.forms.class_variance import class_variance_weights, fit_class_variance
from nearsure.forms.missed_mass import MissedMass, leave_room
from nearsure.forms.prior import prior_factors, with_prior
from nearsure.forms.sharpened import FreeParameters, SharpenedFit, SharpenedNED, fit_sharpened

__all__ = [
    "ClassCovariance",
    "FreeParameters",
    "MissedMass",
    "SharpenedFit",
    "SharpenedNED",
    "class_covariance_weights",
    "class_variance_weights",
    "fit_class_covariance",
    "fit_class_variance",
    "fit_sharpened",
    "leave_room",
    "prior_factors",
    "with_prior",
]
