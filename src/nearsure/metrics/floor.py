"""Calibration floor: the ECE that chance alone gives a perfectly calibrated forecaster."""

import numpy as np
from numpy.typing import ArrayLike

from nearsure.metrics.binning import Binning, assign_bins
from nearsure.metrics.traits import declare
from nearsure.metrics.validation import check_confidence, check_positive_integer, generator_of

# Draws held in memory at once; the result does not depend on it.
MAX_DRAWS = 1 << 21


@declare(0.0, 1.0)
def calibration_floor(
    confidence: ArrayLike,
    *,
    seed: int | np.random.Generator,
    n_bins: int = 15,
    binning: Binning = "width",
    n_simulations: int = 1000,
) -> float:
    """Return the expected ECE of a perfectly calibrated forecaster with these confidences.

    Even if every confidence were exactly the chance of being right, the ECE of finitely many rows
    would not be 0. An observed ECE says something only as far as it exceeds this floor.

    Parameters
    ----------
    confidence : array-like of shape (n,)
        Confidence of each prediction, in [0, 1].
    seed : int or numpy.random.Generator
        Source of the simulated outcomes.
    n_bins : int, default=15
        Number of bins.
    binning : {"width", "mass"}, default="width"
        Bins of equal width or of equally many rows; see
        :func:`~nearsure.metrics.bin_by_confidence`.
    n_simulations : int, default=1000
        Simulated data sets. Each draws ``correct ~ Bernoulli(confidence)`` once per row.

    Returns
    -------
    float
        Mean ECE of the simulations, a fraction in [0, 1].

    Notes
    -----
    Rows are sorted first, so with an int seed the result does not depend on their order.

    References
    ----------
    Vaicenavicius et al.: Evaluating Model Calibration in Classification. AISTATS 2019, which
    simulates the same distribution (consistency resampling) for a test of calibration.

    Examples
    --------
    >>> calibration_floor([0.5] * 100, seed=0) > 0.03
    True
    >>> calibration_floor([0.0, 1.0], seed=0)
    0.0
    """
    n_simulations = check_positive_integer("n_simulations", n_simulations)
    ordered = np.sort(check_confidence(confidence))
    _, assignment = assign_bins(ordered, n_bins=n_bins, binning=binning)
    starts = np.flatnonzero(np.diff(assignment, prepend=-1))
    expected_hits = np.add.reduceat(ordered, starts)
    rng = generator_of(seed)
    total = 0.0
    per_chunk = max(1, MAX_DRAWS // len(ordered))
    for first in range(0, n_simulations, per_chunk):
        size = (min(per_chunk, n_simulations - first), len(ordered))
        hits = np.add.reduceat(rng.random(size) < ordered, starts, axis=1, dtype=np.int64)
        total += float(np.abs(hits - expected_hits).sum())
    return total / (n_simulations * len(ordered))
