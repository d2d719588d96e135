"""Plots of confidence: numbers first, ink second.

A display holds the numbers of a figure and needs nothing but the core; only its ``plot`` needs
matplotlib (``pip install 'nearsure[plot]'``). As in scikit-learn, ``plot(ax)`` draws on the given
axes and returns the display. No global style is changed.
"""

from nearsure.displays.confidence_histogram import ConfidenceHistogramDisplay
from nearsure.displays.neighbor_curve import NeighborCurveDisplay
from nearsure.displays.pair_curve import PairCurveDisplay
from nearsure.displays.reliability import ReliabilityDisplay
from nearsure.displays.risk_coverage import RiskCoverageDisplay

__all__ = [
    "ConfidenceHistogramDisplay",
    "NeighborCurveDisplay",
    "PairCurveDisplay",
    "ReliabilityDisplay",
    "RiskCoverageDisplay",
]
