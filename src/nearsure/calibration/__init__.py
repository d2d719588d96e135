"""Post-hoc calibration: a map from the confidence that a rule claims to the one that it earns.

A calibrator is fitted once, on the confidence in the top label and whether that label was right,
for any rule. In nearest-neighbour search these come without a held-out set: every support point
is scored by its neighbours, itself left out (`nearsure.leaving_one_out`). Afterwards the calibrator
is only applied. It never touches the label, so accuracy stays the rule's.

===============  ======================  =====================================================
name             class                   the map
===============  ======================  =====================================================
``"none"``       `Unchanged`             none
``"isotonic"``   `Isotonic`              the nearest ascending curve
``"platt"``      `Platt`                 a line on the logit
``"shrunk"``     `ShrunkPlatt`           the same, drawn towards no change
``"beta"``       `Beta`                  a log p - b log(1 - p) + c on the logit, ascending
``"histogram"``  `Histogram`             the share that is right, in bins of equally many rows
``"bbq"``        `BayesianBinning`       the mean of many such histograms, by their evidence
===============  ======================  =====================================================

`with_confidence` puts a calibrated confidence back into a posterior. `PosteriorTemperature` is the
one that calibrates the whole posterior instead: every probability to one power.

Examples
--------
>>> import numpy as np
>>> confidence = np.array([0.6, 0.7, 0.8, 0.9])
>>> calibrator = CALIBRATORS["isotonic"].fit(confidence, [False, True, False, True])
>>> calibrator([0.6, 0.75, 1.0])
array([0. , 0.5, 1. ])
>>> calibrator_from_dict(calibrator.to_dict()) == calibrator
True
"""

from nearsure.calibration.bayesian_binning import BayesianBinning
from nearsure.calibration.beta import Beta
from nearsure.calibration.calibrator import Calibrator, Unchanged
from nearsure.calibration.histogram import Histogram
from nearsure.calibration.isotonic import Isotonic
from nearsure.calibration.platt import Platt
from nearsure.calibration.posterior_temperature import PosteriorTemperature
from nearsure.calibration.registry import CALIBRATORS, calibrator_from_dict
from nearsure.calibration.rescaled import with_confidence
from nearsure.calibration.shrunk_platt import ShrunkPlatt

__all__ = [
    "CALIBRATORS",
    "BayesianBinning",
    "Beta",
    "Calibrator",
    "Histogram",
    "Isotonic",
    "Platt",
    "PosteriorTemperature",
    "ShrunkPlatt",
    "Unchanged",
    "calibrator_from_dict",
    "with_confidence",
]
