"""Forms of NED beyond the paper's formula, each with what it is fitted by."""

from nearsure.forms.sharpened import SharpenedNED
from nearsure.forms.sharpened_fit import FreeParameters, SharpenedFit, fit_sharpened

__all__ = ["FreeParameters", "SharpenedFit", "SharpenedNED", "fit_sharpened"]
