"""Each step fitted on leave-one-out scores: what is done to a posterior afterwards."""

from collections.abc import Callable

import numpy as np

from nearsure.calibration import CALIBRATORS, PosteriorTemperature, with_confidence
from nearsure.classifier.fitted_rule import JUST_ABOVE
from nearsure.forms.missed_by_confidence import MissedByConfidence
from nearsure.forms.missed_mass import MissedMass, leave_room
from nearsure.lab.ablation.bases import Gallery
from nearsure.lab.ablation.variants import MISSED_BY_CONFIDENCE, MISSED_SHARE, RAW, TEMPERATURE
from nearsure.posterior import Posterior

Step = Callable[[Posterior], Posterior]


def fit_step(name: str, own: Callable[[], Posterior], gallery: Gallery) -> Step:
    """Fit a step.

    Parameters
    ----------
    name : str
        One of `variants.STEP_TITLES`.
    own : callable
        Gives the posterior of the gallery's points, each without itself; "raw" never asks.
    gallery : Gallery
        The points.
    """
    if name == RAW:
        return lambda posterior: posterior
    if name in {MISSED_SHARE, MISSED_BY_CONFIDENCE}:
        return _missed(own(), gallery, by_confidence=name == MISSED_BY_CONFIDENCE)
    claimed = own()
    if name == TEMPERATURE:
        return PosteriorTemperature.fit(claimed, gallery.codes)
    calibrator = CALIBRATORS[name].fit(claimed.confidence, claimed.labels == gallery.codes)

    def calibrated(posterior: Posterior) -> Posterior:
        # As in the classifier: the best of n classes has more than 1 / n.
        least = min(1.0, (1.0 + JUST_ABOVE) / posterior.n_classes)
        return with_confidence(posterior, np.maximum(calibrator(posterior.confidence), least))

    return calibrated


def _missed(own: Posterior, gallery: Gallery, *, by_confidence: bool) -> Step:
    counts = np.bincount(gallery.codes, minlength=gallery.n_classes)
    share = MissedMass.fit(gallery.own.neighbors, gallery.codes, counts).share
    if not by_confidence:
        return lambda posterior: leave_room(posterior, share)
    found = (gallery.own.neighbors.labels == gallery.codes[:, None]).any(axis=1)
    missed = MissedByConfidence.fit(own.confidence, ~found, share)
    return lambda posterior: leave_room(posterior, missed(posterior.confidence))
