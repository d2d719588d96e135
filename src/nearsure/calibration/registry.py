"""Calibrators by name, for settings and for files."""

from collections.abc import Mapping
from typing import Any

from nearsure.calibration.bayesian_binning import BayesianBinning
from nearsure.calibration.beta import Beta
from nearsure.calibration.calibrator import Calibrator, Unchanged
from nearsure.calibration.histogram import Histogram
from nearsure.calibration.isotonic import Isotonic
from nearsure.calibration.platt import Platt
from nearsure.calibration.shrunk_platt import ShrunkPlatt
from nearsure.errors import InvalidInputError

CALIBRATORS: dict[str, type[Calibrator]] = {
    "none": Unchanged,
    "isotonic": Isotonic,
    "platt": Platt,
    "shrunk": ShrunkPlatt,
    "beta": Beta,
    "histogram": Histogram,
    "bbq": BayesianBinning,
}


def calibrator_from_dict(fields: Mapping[str, Any]) -> Calibrator:
    """The calibrator of any kind whose `to_dict` gave these fields.

    Parameters
    ----------
    fields : mapping
        Its name and numbers.

    Examples
    --------
    >>> calibrator_from_dict({"name": "platt", "slope": 1.0, "intercept": 0.0, "constant": None})
    Platt(slope=1.0, intercept=0.0, constant=None)
    """
    name = fields.get("name")
    if not (isinstance(name, str) and name in CALIBRATORS):
        raise InvalidInputError(
            f"The 'name' of a calibrator must be one of {sorted(CALIBRATORS)}. Got {name!r} "
            "instead: pass what its to_dict gave."
        )
    return CALIBRATORS[name].from_dict(fields)
