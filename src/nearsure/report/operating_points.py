"""What each threshold on the confidence would accept, and how much of it is right."""

from collections.abc import Sequence

import numpy as np

from nearsure.arrays import BoolArray, FloatArray
from nearsure.report.document import OperatingPoint, Promise
from nearsure.report.plain import shares_of

# Steps of 0.005, then 0.001, then 0.0005: most confidences lie near 1, and so do most choices.
GRID = np.concatenate(
    [np.arange(190) / 200, np.arange(950, 990) / 1000, np.arange(1980, 2001) / 2000]
)


def operating_points(
    confidence: FloatArray, correct: BoolArray, promises: Sequence[Promise] = ()
) -> tuple[OperatingPoint, ...]:
    """One point for each threshold of a grid, and for those that were promised, ascending.

    Parameters
    ----------
    confidence, correct : array of shape (n,)
        Of the answers; those of at least the threshold are accepted.
    promises : sequence of Promise
        Whose thresholds are to be found among the points.
    """
    promised = [promise.threshold for promise in promises if promise.threshold is not None]
    thresholds = np.unique(np.concatenate([GRID, promised]))
    order = np.argsort(confidence, kind="stable")
    below = np.searchsorted(confidence[order], thresholds, side="left")
    right_above = np.append(np.cumsum(correct[order][::-1])[::-1], 0)
    accepted = len(confidence) - below
    shares = shares_of(right_above[below], accepted)
    return tuple(
        OperatingPoint(float(threshold), int(n), int(n) / len(confidence), share)
        for threshold, n, share in zip(thresholds, accepted, shares, strict=True)
    )
