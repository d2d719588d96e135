"""Bayesian binning into quantiles (BBQ): many histograms, each by what it explains."""

from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betaln, softmax

from nearsure.arrays import FloatArray, IntArray
from nearsure.calibration.equal_mass import bin_starts, edges_between, runs_of
from nearsure.calibration.logistic import inside
from nearsure.calibration.steps import Steps
from nearsure.metrics.validation import check_scored

# The paper's C: numbers of bins from the cube root of n over C, to C times it.
RANGE_FACTOR = 10.0
# The paper's N' = 2 B: two rows for each bin, seen in advance.
PRIOR_ROWS = 2.0
# Histograms of less weight change no answer in any digit that is shown, only the size of the map.
NEGLIGIBLE_WEIGHT = 1e-12


@dataclass(frozen=True)
class BayesianBinning(Steps):
    """The mean of histograms of many sizes, weighted by their evidence; `fit` makes it.

    It need not ascend. The prior keeps it away from 0 and 1.

    References
    ----------
    Naeini, Cooper, Hauskrecht: Obtaining Well Calibrated Probabilities Using Bayesian Binning.
    AAAI 2015.

    Examples
    --------
    >>> BayesianBinning.fit([0.7, 0.7, 0.7], [True, True, False])([0.7])  # (2 + 1) / (3 + 2)
    array([0.6])
    """

    name: ClassVar[str] = "bbq"

    @classmethod
    def fit(cls, confidence: ArrayLike, correct: ArrayLike) -> Self:
        r"""Weigh the histograms of equally many rows by their marginal likelihood.

        There is one for each number of bins from :math:`n^{1/3} / 10` to :math:`10\, n^{1/3}`, all
        equally likely beforehand; those that ties make the same count once. If all confidences are
        equal there is one bin, and the answer is (n_right + 1) / (n + 2). Rows alike right or wrong
        give answers near 1 or 0, but not at them.

        Parameters
        ----------
        confidence, correct
            As of `Isotonic.fit`.

        Notes
        -----
        The share that is right in bin b has the prior :math:`\mathrm{Beta}(2 p_b, 2 - 2 p_b)`,
        with the bin's middle :math:`p_b`. With :math:`m_b` of :math:`n_b` rows right, the evidence
        is :math:`\prod_b \mathrm{B}(m_b + 2 p_b, n_b - m_b + 2 - 2 p_b) / \mathrm{B}(2 p_b,
        2 - 2 p_b)` and the answer of the bin :math:`(m_b + 2 p_b) / (n_b + 2)`.
        """
        confidence, correct = check_scored(confidence, correct)
        order = np.argsort(confidence, kind="stable")
        ordered, right = confidence[order], correct[order].astype(np.int64)
        histograms = [_Histogram.of(ordered, right, starts) for starts in _binnings(ordered)]
        weights = softmax(np.array([histogram.log_evidence for histogram in histograms]))
        kept = np.flatnonzero(weights > NEGLIGIBLE_WEIGHT)
        edges = np.unique(np.concatenate([histograms[i].edges for i in kept]))
        lowest = np.concatenate([[0.0], edges])
        answers = sum(
            (weights[i] * histograms[i].answers_at(lowest) for i in kept), np.zeros(len(lowest))
        )
        calibrated = np.clip(answers / weights[kept].sum(), 0.0, 1.0)
        return cls(tuple(edges.tolist()), tuple(calibrated.tolist()))


@dataclass(frozen=True, eq=False)
class _Histogram:
    edges: FloatArray
    answers: FloatArray
    log_evidence: float

    @classmethod
    def of(cls, ordered: FloatArray, right: IntArray, starts: IntArray) -> Self:
        """The histogram of sorted rows whose bins begin at `starts`."""
        edges = edges_between(ordered, starts)
        n_right = np.add.reduceat(right, starts)
        n_rows = np.diff(starts, append=len(ordered))
        bounds = np.concatenate([[0.0], edges, [1.0]])
        middle = inside((bounds[:-1] + bounds[1:]) / 2.0)
        for_right, for_wrong = PRIOR_ROWS * middle, PRIOR_ROWS * (1.0 - middle)
        log_evidence = betaln(n_right + for_right, n_rows - n_right + for_wrong) - betaln(
            for_right, for_wrong
        )
        answers = (n_right + for_right) / (n_rows + PRIOR_ROWS)
        return cls(edges, answers, float(log_evidence.sum()))

    def answers_at(self, confidence: FloatArray) -> FloatArray:
        return self.answers[np.searchsorted(self.edges, confidence, side="right")]


def _binnings(ordered: FloatArray) -> list[IntArray]:
    """The distinct binnings of the paper's numbers of bins, each as the first rows of its bins."""
    n = len(ordered)
    fewest = max(1, int(np.cbrt(n) / RANGE_FACTOR))
    most = min(n, int(np.ceil(np.cbrt(n) * RANGE_FACTOR)))
    runs = runs_of(ordered)
    binnings = (bin_starts(runs, n, n_bins) for n_bins in range(fewest, most + 1))
    return list({starts.tobytes(): starts for starts in binnings}.values())
