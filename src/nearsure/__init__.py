"""nearsure: calibrated confidence for nearest-neighbour search results."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nearsure.classifier import NEDClassifier, Prediction, fit_confidence
    from nearsure.engines.registry import open_engine
    from nearsure.loo import leave_one_out
    from nearsure.neighbors import Neighbors
    from nearsure.pairs import PairConfidence
    from nearsure.posterior import Posterior, score
    from nearsure.temperature import TemperatureFit, fit_temperature

__all__ = [
    "NEDClassifier",
    "Neighbors",
    "PairConfidence",
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

# Imported when first asked for: a command that only says how it is used needs none of it.
_HOMES = {
    "NEDClassifier": "nearsure.classifier",
    "Neighbors": "nearsure.neighbors",
    "PairConfidence": "nearsure.pairs",
    "Posterior": "nearsure.posterior",
    "Prediction": "nearsure.classifier",
    "TemperatureFit": "nearsure.temperature",
    "fit_confidence": "nearsure.classifier",
    "fit_temperature": "nearsure.temperature",
    "leave_one_out": "nearsure.loo",
    "open_engine": "nearsure.engines.registry",
    "score": "nearsure.posterior",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
