"""nearsure: calibrated confidence for nearest-neighbour search results."""

from nearsure.classifier import NEDClassifier, Prediction, fit_confidence
from nearsure.engines.registry import open_engine
from nearsure.leave_one_out import leave_one_out
from nearsure.neighbors import Neighbors
from nearsure.posterior import Posterior, score
from nearsure.temperature import TemperatureFit, fit_temperature

__all__ = [
    "NEDClassifier",
    "Neighbors",
    "Posterior",
    "Prediction",
    "TemperatureFit",
    "fit_confidence",
    "fit_temperature",
    "leave_one_out",
    "open_engine",
    "score",
]
__version__ = "0.1.0"
