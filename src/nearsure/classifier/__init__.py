"""The estimator: a labelled gallery in, labels with calibrated confidence out."""

from nearsure.classifier.estimator import NEDClassifier
from nearsure.classifier.fitted_rule import FittedRule
from nearsure.classifier.from_neighbors import fit_confidence
from nearsure.classifier.prediction import Prediction
from nearsure.classifier.staleness import Staleness

__all__ = ["FittedRule", "NEDClassifier", "Prediction", "Staleness", "fit_confidence"]
