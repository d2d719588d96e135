"""Histogram binning: the share that is right among rows of about the same confidence."""

from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from nearsure.calibration.equal_mass import bin_starts, edges_between, runs_of
from nearsure.calibration.steps import Steps
from nearsure.metrics.validation import check_positive_integer, check_scored

N_BINS = 10


@dataclass(frozen=True)
class Histogram(Steps):
    """The share that is right in each bin of equally many rows; `fit` makes it.

    It need not ascend, and it ties what was ranked within a bin.

    References
    ----------
    Zadrozny, Elkan: Obtaining Calibrated Probability Estimates from Decision Trees and Naive
    Bayesian Classifiers. ICML 2001.

    Examples
    --------
    >>> calibrator = Histogram.fit([0.2, 0.4, 0.6, 0.8], [False, True, True, True], n_bins=2)
    >>> calibrator.edges, calibrator([0.3, 0.9])
    ((0.5,), array([0.5, 1. ]))
    """

    name: ClassVar[str] = "histogram"

    @classmethod
    def fit(cls, confidence: ArrayLike, correct: ArrayLike, *, n_bins: int = N_BINS) -> Self:
        """Count in bins.

        No bin is empty and no equal confidences are parted: with ties, or fewer rows than n_bins,
        there are fewer bins. With one bin, as where all confidences are equal, the answer is the
        share that is right. A bin whose rows are all right answers 1, and all wrong 0, however
        few they are.

        Parameters
        ----------
        confidence, correct
            As of `Isotonic.fit`.
        n_bins : int, default=10
            Number of bins.
        """
        confidence, correct = check_scored(confidence, correct)
        n_bins = check_positive_integer("n_bins", n_bins)
        order = np.argsort(confidence, kind="stable")
        ordered = confidence[order]
        starts = bin_starts(runs_of(ordered), len(ordered), n_bins)
        n_right = np.add.reduceat(correct[order], starts, dtype=np.int64)
        shares = n_right / np.diff(starts, append=len(ordered))
        return cls(tuple(edges_between(ordered, starts).tolist()), tuple(shares.tolist()))
