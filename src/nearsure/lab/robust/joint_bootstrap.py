"""One set of resampled queries for every variant and method, and fast sums over all of them.

Variants show the same queries, so an interval for a mean over variants, or for a difference
between methods, must draw the same queries in all of them. With bins of equal width a query's bin
does not change when it is drawn again. So the calibration error of a resample is made of sums of
``confidence - correct`` over the drawn queries of each bin, and those of all resamples are one
product of matrices: how often each query was drawn, times the summands.
"""

from dataclasses import dataclass

import numpy as np

from nearsure.arrays import FloatArray
from nearsure.errors import InvalidInputError
from nearsure.lab.robust.methods import Scores
from nearsure.metrics import Interval
from nearsure.metrics.binning import width_bins
from nearsure.metrics.validation import check_positive_integer, generator_of

N_BINS = 15
SURE = 0.9
LEVEL = 0.95
# Numbers are kept to this many decimals: far beyond the bootstrap's noise, and short of the last
# bits, which depend on how many threads did the sums.
DECIMALS = 7
# Drawn queries that are floating-point numbers at once; the result does not depend on it.
BLOCK_ENTRIES = 1 << 21


@dataclass(frozen=True, eq=False)
class Measures:
    """Numbers of every method on the queries (row 0) and on each resample (the other rows).

    Parameters
    ----------
    accuracy : array of shape (1 + n_resamples, n_methods)
        Share of queries whose label is right.
    ece : array of the same shape
        Expected calibration error, 15 bins of equal width.
    confidence : array of the same shape
        Mean confidence.
    confidently_wrong : array of the same shape
        Share of queries, of all, that are wrong with a confidence of 0.9 or more.
    confidence_when_wrong : array of the same shape
        Mean confidence of the wrong answers; NaN where none is wrong.
    top_label_brier : array of the same shape
        Mean squared difference between confidence and being right (1) or wrong (0).
    """

    accuracy: FloatArray
    ece: FloatArray
    confidence: FloatArray
    confidently_wrong: FloatArray
    confidence_when_wrong: FloatArray
    top_label_brier: FloatArray


MEASURE_NAMES: tuple[str, ...] = tuple(Measures.__dataclass_fields__)


class JointBootstrap:
    """How often each query is drawn in each resample, the same for all that is measured.

    Parameters
    ----------
    n_queries : int
        Queries to draw from, and to draw.
    seed : int
        Source of the draws. They are those of `bootstrap_interval` with this seed.
    n_resamples : int
        How many times.
    """

    def __init__(self, n_queries: int, *, seed: int, n_resamples: int) -> None:
        self.n_queries = check_positive_integer("n_queries", n_queries)
        n_resamples = check_positive_integer("n_resamples", n_resamples)
        rng = generator_of(seed)
        # Row 0 is the data themselves. A byte is enough: a query is drawn once on average, and 256
        # times with a chance below 1e-500.
        self._drawn = np.ones((1 + n_resamples, n_queries), np.uint8)
        for row in self._drawn[1:]:
            chosen = rng.integers(0, n_queries, size=n_queries)
            row[:] = np.bincount(chosen, minlength=n_queries)

    def sums(self, summands: FloatArray) -> FloatArray:
        """Sums over the queries and over each resample, shape (1 + n_resamples, m).

        Parameters
        ----------
        summands : array of shape (n_queries, m)
            What each query adds.
        """
        step = max(1, BLOCK_ENTRIES // self.n_queries)
        blocks = range(0, len(self._drawn), step)
        return np.concatenate(
            [self._drawn[first : first + step].astype(np.float64) @ summands for first in blocks]
        )

    def measure(self, scores: Scores) -> Measures:
        """Every measure of every method."""
        if len(scores) != self.n_queries:
            raise InvalidInputError(
                f"There must be scores of the {self.n_queries} queries that are drawn. "
                f"Got {len(scores)} instead: changed queries must be the clean ones, changed."
            )
        confidence, correct = scores.confidence.T, scores.correct.T
        # Summed in groups of columns, so that memory stays bounded by a few columns a method.
        right = self.sums(correct.astype(np.float64)) / self.n_queries
        wrong_confidence = self.sums(np.where(correct, 0.0, confidence)) / self.n_queries
        wrong = 1.0 - right
        return Measures(
            accuracy=right,
            ece=self._calibration_errors(scores),
            confidence=self.sums(confidence) / self.n_queries,
            confidently_wrong=self.sums((~correct & (confidence >= SURE)).astype(np.float64))
            / self.n_queries,
            confidence_when_wrong=np.divide(
                wrong_confidence, wrong, out=np.full_like(wrong, np.nan), where=wrong > 0
            ),
            top_label_brier=self.sums((confidence - correct) ** 2) / self.n_queries,
        )

    def _calibration_errors(self, scores: Scores) -> FloatArray:
        n_methods = len(scores.confidence)
        gaps = np.zeros((self.n_queries, n_methods, N_BINS))
        queries = np.arange(self.n_queries)
        for method in range(n_methods):
            confidence, correct = scores.confidence[method], scores.correct[method]
            gaps[queries, method, width_bins(confidence, N_BINS)] = confidence - correct
        totals = self.sums(gaps.reshape(self.n_queries, -1))
        absolute = np.abs(totals).reshape(-1, n_methods, N_BINS)
        return np.asarray(absolute.sum(axis=2) / self.n_queries, np.float64)


def mean_of(measures: list[Measures]) -> Measures:
    """The mean over variants, in the data and in each resample."""
    return Measures(
        **{
            name: np.mean([getattr(found, name) for found in measures], axis=0)
            for name in MEASURE_NAMES
        }
    )


def basic_interval(values: FloatArray, *, low: float = 0.0, high: float = 1.0) -> Interval:
    """The basic bootstrap interval of an estimate, `values[0]`, from its resamples, the rest.

    It is the interval of `bootstrap_interval`, which says why it is not the percentile one.

    Parameters
    ----------
    values : array of shape (1 + n_resamples,)
        The measure on the data and on each resample; NaN where it is not defined.
    low, high : float
        Range of the measure, which the interval is clipped to.
    """
    estimate, resampled = float(values[0]), values[1:]
    defined = resampled[~np.isnan(resampled)]
    n_undefined = len(resampled) - len(defined)
    tail = (1.0 - LEVEL) / 2.0
    if np.isnan(estimate) or n_undefined > tail * len(resampled):
        ends = np.full(2, np.nan)
    else:
        q_low, q_high = np.quantile(defined, (tail, 1.0 - tail), method="inverted_cdf")
        ends = np.clip((2 * estimate - q_high, 2 * estimate - q_low), low, high)
    return Interval(
        round(estimate, DECIMALS),
        round(float(ends[0]), DECIMALS),
        round(float(ends[1]), DECIMALS),
        LEVEL,
        n_undefined,
    )
