"""Damaged images: what a classifier's confidence is worth when pictures are poor."""

from nearsure.robustness.corrupt import (
    CORRUPTIONS,
    SEVERITIES,
    corrupt,
    corruption_rng,
    severity_constants,
)
from nearsure.robustness.sheet import corruption_sheet

__all__ = [
    "CORRUPTIONS",
    "SEVERITIES",
    "corrupt",
    "corruption_rng",
    "corruption_sheet",
    "severity_constants",
]
