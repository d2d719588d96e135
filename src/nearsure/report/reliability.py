"""What was claimed against what came true, and how many answers were how sure."""

import numpy as np

from nearsure.arrays import BoolArray, FloatArray
from nearsure.metrics import bin_by_confidence
from nearsure.metrics.binning import width_bins
from nearsure.report.document import HistogramBin, ReliabilityBin
from nearsure.report.plain import shares_of

# The bins of every calibration error in nearsure.
RELIABILITY_BINS = 15
HISTOGRAM_BINS = 20


def reliability_bins(confidence: FloatArray, correct: BoolArray) -> tuple[ReliabilityBin, ...]:
    """The bins that the ECE is made of, without empty ones.

    Parameters
    ----------
    confidence, correct : array of shape (n,)
        Of the answers.
    """
    bins = bin_by_confidence(confidence, correct, n_bins=RELIABILITY_BINS)
    right = np.rint(np.nan_to_num(bins.accuracy) * bins.counts).astype(np.int64)
    shares = shares_of(right, bins.counts)
    return tuple(
        ReliabilityBin(
            low=float(bins.edges[place]),
            high=float(bins.edges[place + 1]),
            count=int(bins.counts[place]),
            confidence=float(bins.mean_confidence[place]),
            accuracy=shares[place],
        )
        for place in np.flatnonzero(bins.counts)
    )


def confidence_histogram(confidence: FloatArray, correct: BoolArray) -> tuple[HistogramBin, ...]:
    """Right and wrong answers by confidence, empty bins included."""
    places = width_bins(confidence, HISTOGRAM_BINS)
    right = np.bincount(places[correct], minlength=HISTOGRAM_BINS)
    wrong = np.bincount(places[~correct], minlength=HISTOGRAM_BINS)
    return tuple(
        HistogramBin(
            place / HISTOGRAM_BINS,
            (place + 1) / HISTOGRAM_BINS,
            int(right[place]),
            int(wrong[place]),
        )
        for place in range(HISTOGRAM_BINS)
    )
