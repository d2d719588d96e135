"""Damaged images: what a classifier's confidence is worth when pictures are poor."""

from nearsure.robustness.corrupt import corrupt, corruption_rng
from nearsure.robustness.corruption_sheet import corruption_sheet
from nearsure.robustness.image_checks import CORRUPTIONS, SEVERITIES
from nearsure.robustness.severity_constants import severity_constants

__all__ = [
    "CORRUPTIONS",
    "SEVERITIES",
    "corrupt",
    "corruption_rng",
    "corruption_sheet",
    "severity_constants",
]
