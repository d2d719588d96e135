"""How one variant did on one set of queries, as numbers that go to JSON and come back."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Self

import numpy as np

from nearsure.arrays import IntArray
from nearsure.errors import InvalidInputError
from nearsure.lab.ablation.variants import Variant
from nearsure.metrics import (
    Interval,
    accuracy,
    bootstrap_interval,
    brier_score,
    calibration_floor,
    expected_calibration_error,
)
from nearsure.posterior import Posterior

N_SIMULATIONS = 500
INTERVALS = ("accuracy_interval", "ece_interval")
MEASURES = ("accuracy", "ece", "floor", "brier", "overconfidence")


@dataclass(frozen=True)
class Measured:
    """One row.

    Parameters
    ----------
    variant : str
        Name of the variant.
    accuracy, ece : float
        Fractions; ECE with 15 bins of equal width.
    floor : float
        Expected ECE of a perfectly calibrated forecaster with the same confidences.
    brier : float
        Over all classes, in [0, 2].
    overconfidence : float
        Mean confidence less accuracy.
    accuracy_interval, ece_interval : Interval, optional
        Bootstrap over the queries.
    """

    variant: str
    accuracy: float
    ece: float
    floor: float
    brier: float
    overconfidence: float
    accuracy_interval: Interval | None = None
    ece_interval: Interval | None = None

    @property
    def excess(self) -> float:
        """ECE less its floor; below 0 by chance."""
        return self.ece - self.floor

    def to_dict(self) -> dict[str, Any]:
        """In JSON's types; intervals only where there are any."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    @classmethod
    def from_dict(cls, row: dict[str, Any]) -> Self:
        """The inverse of `to_dict`."""
        restored = dict(row)
        for name in INTERVALS:
            if name in row:
                restored[name] = Interval(**row[name])
        try:
            return cls(**restored)
        except TypeError as error:
            raise InvalidInputError(
                f"A measured row must have the fields {[field.name for field in fields(cls)]}. "
                f"Got {sorted(row)} instead: was it written by another version?"
            ) from error


def measure(
    variant: Variant,
    posterior: Posterior,
    codes: IntArray,
    *,
    seed: int,
    n_resamples: int | None = None,
) -> Measured:
    """Measure a posterior.

    Parameters
    ----------
    variant : Variant
        Whose it is.
    posterior : Posterior
        Of n queries.
    codes : array of shape (n,)
        Their true classes.
    seed : int
        Of the floor and the bootstrap.
    n_resamples : int, optional
        Of the intervals; none are made without it.
    """
    confidence, correct = posterior.confidence, posterior.labels == codes
    intervals: dict[str, Interval] = {}
    if n_resamples is not None:
        intervals = {
            "accuracy_interval": bootstrap_interval(
                accuracy, correct, seed=seed, n_resamples=n_resamples
            ),
            "ece_interval": bootstrap_interval(
                expected_calibration_error, confidence, correct, seed=seed, n_resamples=n_resamples
            ),
        }
    return Measured(
        variant.name,
        accuracy=float(correct.mean()),
        ece=expected_calibration_error(confidence, correct),
        floor=calibration_floor(confidence, seed=seed, n_simulations=N_SIMULATIONS),
        brier=brier_score(posterior, codes),
        overconfidence=float(confidence.mean() - correct.mean()),
        **intervals,
    )


def mean_of(rows: Sequence[Measured]) -> Measured:
    """The mean of each measure over rows of one variant.

    Parameters
    ----------
    rows : sequence of Measured
        At least one, all of the same variant.
    """
    names = {row.variant for row in rows}
    if len(names) != 1:
        raise InvalidInputError(f"The rows must be of one variant. Got {sorted(names)} instead.")
    means: dict[str, Any] = {
        name: float(np.mean([getattr(row, name) for row in rows])) for name in MEASURES
    }
    return Measured(names.pop(), **means)
