"""The estimator: a labelled gallery in, labels with calibrated confidence out."""

from nearsure.classifier.estimator import NEDClassifier
from nearsure.classifier.results import Prediction, Staleness, Support
from nearsure.classifier.rule import FittedRule, fit_confidence

__all__ = ["FittedRule", "NEDClassifier", "Prediction", "Staleness", "Support", "fit_confidence"]
