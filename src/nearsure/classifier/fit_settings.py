"""What the parameters of a classifier mean for a gallery."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from nearsure.arrays import AnyArray, FloatArray, IntArray
from nearsure.classifier.class_sizes import factors_of_prior
from nearsure.classifier.fitted_rule import SHARPENED_NAMES
from nearsure.classifier.parameters import (
    chosen_calibration,
    chosen_neighbors,
    chosen_rule,
    prior_of_classes,
)
from nearsure.errors import InvalidInputError
from nearsure.unknowns.class_left_out import check_several_classes


@dataclass(frozen=True, eq=False)
class FitSettings:
    """What is fitted, and how.

    Parameters
    ----------
    k : int
        Neighbours.
    rule, calibration : str
        By name, none of them "auto".
    temperature : float or None
        T of NED, if it was given.
    prior : "support", "uniform" or array of shape (n_classes,)
        Of the classes.
    prior_factors : array of shape (n_classes,) or None
        What it multiplies each class by.
    needs_own_pass : bool
        Whether the gallery has to be asked about itself.
    """

    k: int
    rule: str
    calibration: str
    temperature: float | None
    prior: Literal["support", "uniform"] | FloatArray
    prior_factors: FloatArray | None
    needs_own_pass: bool


def settings_for(parameters: Mapping[str, Any], sizes: IntArray, classes: AnyArray) -> FitSettings:
    """The settings for a gallery with classes of these sizes; an error if they cannot be met."""
    n_points = int(sizes.sum())
    rule = chosen_rule(parameters["rule"], parameters["temperature"], parameters["objective"])
    calibration = chosen_calibration(parameters["calibration"], rule, parameters["prior"])
    given = parameters["temperature"]
    temperature = None if given == "auto" else float(given)
    prior = prior_of_classes(parameters["prior"], classes)
    needs_own_pass = (
        rule in SHARPENED_NAMES
        or (rule == "ned" and temperature is None)
        or calibration != "none"
        or parameters["unknown_share"] is not None
    )
    k = chosen_neighbors(parameters["n_neighbors"], n_points)
    factors = factors_of_prior(prior, sizes)
    if n_points == 1 and needs_own_pass:
        raise InvalidInputError(
            "Nothing can be fitted on n_samples = 1 support point. Give the temperature."
        )
    if parameters["unknown_share"] is not None:
        check_several_classes(np.flatnonzero(sizes))
    return FitSettings(k, rule, calibration, temperature, prior, factors, needs_own_pass)
