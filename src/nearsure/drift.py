"""Whether incoming queries still look like the gallery, and how often they are answered rightly.

Labels of the queries are not needed: they are compared with the gallery's leave-one-out points.
"""

from dataclasses import dataclass
from functools import partial
from math import nan
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import ks_2samp, kstwo

from nearsure.arrays import AnyArray, FloatArray
from nearsure.errors import InvalidInputError
from nearsure.metrics.bootstrap import Interval
from nearsure.neighbors import Neighbors
from nearsure.posterior import Posterior
from nearsure.table import html_paragraphs, make_frame
from nearsure.validation import (
    check_correct,
    check_open_fraction,
    check_positive_integer,
    check_same_length,
    generator_of,
    integer_codes,
)

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]

__all__ = [
    "CertaintyCut",
    "DistributionShift",
    "EstimatedAccuracy",
    "Evidence",
    "QueryDrift",
    "certainty",
    "compare_queries",
    "compare_samples",
    "estimate_accuracy",
    "fit_cut",
    "gather_evidence",
]


def certainty(posterior: Posterior) -> FloatArray:
    """Negative entropy of each row, in nats: 0 if it is sure, the lower the less sure.

    What a row lacks of 1, as a calibrated one may, counts as one more class. If it lacks more than
    the label has, it counts as several classes, so many that none is more probable than the label:
    a row whose label has next to no probability is not sure of the rest.

    Parameters
    ----------
    posterior : Posterior
        Probabilities of n queries.

    Returns
    -------
    array of shape (n,)
        Minus infinity for a query without neighbours, or with no confidence at all.

    Examples
    --------
    >>> rows = Posterior(np.array([0, 1, 3]), np.array([0, 0, 1]), np.array([0.5, 0.5, 0.5]), 3)
    >>> certainty(rows)  # the first one lacks a half
    array([-0.69314718, -0.69314718])
    """
    top = posterior.confidence
    sure_of_something = top > 0
    assigned = np.bincount(posterior.rows, posterior.probabilities, minlength=len(posterior))
    lacking = np.maximum(1.0 - assigned, 0.0)
    n_as_top = np.floor(np.divide(lacking, top, out=np.zeros_like(top), where=sure_of_something))
    last = np.maximum(lacking - n_as_top * top, 0.0)
    entropy = posterior.entropy + n_as_top * _surprise(top) + _surprise(last)
    # 0 - 0 is 0, where -0 would be another text for the same number.
    return np.where(sure_of_something, 0.0 - entropy, -np.inf)


def _surprise(p: FloatArray) -> FloatArray:
    return np.asarray(-p * np.log(p, out=np.zeros_like(p), where=p > 0), np.float64)


@dataclass(frozen=True, eq=False)
class Evidence:
    """Three numbers for each point of a batch; `gather_evidence` makes it.

    Parameters
    ----------
    confidence : array of shape (n,)
        Probability of the predicted class; 0 for a point without neighbours.
    certainty : array of shape (n,)
        Negative entropy of all its classes, at most 0; minus infinity for a point without
        neighbours. See `nearsure.drift`.
    distance : array of shape (n,)
        Euclidean distance to the nearest neighbour; infinite for a point without neighbours.
    """

    confidence: FloatArray
    certainty: FloatArray
    distance: FloatArray

    def __post_init__(self) -> None:
        shapes = [values.shape for values in (self.confidence, self.certainty, self.distance)]
        if self.confidence.ndim != 1 or len(set(shapes)) > 1:
            raise InvalidInputError(
                "Confidence, certainty and distance must be arrays of shape (n,), one entry a "
                f"point. Got shapes {shapes[0]}, {shapes[1]} and {shapes[2]} instead."
            )

    def __len__(self) -> int:
        return len(self.confidence)

    def take(self, rows: AnyArray) -> "Evidence":
        """The evidence of some of the points, by index (repeats allowed) or mask."""
        return Evidence(self.confidence[rows], self.certainty[rows], self.distance[rows])


def gather_evidence(neighbors: Neighbors, posterior: Posterior) -> Evidence:
    """Confidence, certainty and nearest distance of each point.

    Parameters
    ----------
    neighbors : Neighbors
        What a search returned.
    posterior : Posterior
        What any rule made of these very neighbours.

    Examples
    --------
    >>> from nearsure import score
    >>> neighbors = Neighbors([[4.0, 9.0]], [[0, 0]])
    >>> evidence = gather_evidence(neighbors, score(neighbors, rule="knn"))
    >>> evidence.confidence, evidence.certainty, evidence.distance
    (array([1.]), array([0.]), array([2.]))
    """
    if len(neighbors) != len(posterior):
        raise InvalidInputError(
            "Neighbours and posterior must be of the same points. "
            f"Got {len(neighbors)} and {len(posterior)} points instead: score these neighbours."
        )
    labels, confidence = posterior.top(1)
    # Rows without neighbours hold the padding label in both, and pass.
    foreign = ~(neighbors.labels == labels).any(axis=1)
    # A head may answer with a class that no neighbour is of.
    if neighbors.class_scores is None and foreign.any():
        row = int(np.flatnonzero(foreign)[0])
        raise InvalidInputError(
            "The posterior must be of these neighbours, in the same order. Got the class "
            f"{int(labels[row, 0])} at row {row}, which has no neighbour of it: score these "
            "neighbours."
        )
    return Evidence(confidence[:, 0], certainty(posterior), np.sqrt(neighbors.sq_distances[:, 0]))


@dataclass(frozen=True)
class CertaintyCut:
    """Which points are counted as right; `fit_cut` makes it.

    Parameters
    ----------
    threshold : float
        Certainty above which a point is counted.
    tied_share : float
        Share of the points exactly at the threshold that is counted, in [0, 1].
    """

    threshold: float
    tied_share: float

    def share(self, evidence: Evidence) -> float:
        """Share of the points that is counted: their estimated accuracy."""
        above = float((evidence.certainty > self.threshold).mean())
        tied = float((evidence.certainty == self.threshold).mean())
        return min(1.0, above + self.tied_share * tied)


def fit_cut(evidence: Evidence, correct: ArrayLike) -> CertaintyCut:
    """The cut above which lie as many gallery points as were answered rightly.

    Parameters
    ----------
    evidence : Evidence
        Of gallery points, each found without itself.
    correct : array of shape (n,)
        Whether each was given its own class.

    Returns
    -------
    CertaintyCut

    References
    ----------
    S. Garg, S. Balakrishnan, Z. C. Lipton, B. Neyshabur, H. Sedghi, Leveraging unlabeled data to
    predict out-of-distribution performance, ICLR 2022 (ATC with negative entropy).

    Examples
    --------
    >>> certainty = np.array([-0.1, -0.2, -0.6, -0.9])
    >>> points = Evidence(np.exp(certainty), certainty, np.ones(4))
    >>> cut = fit_cut(points, [True, False, True, False])
    >>> cut.threshold, cut.share(points)
    (-0.2, 0.5)
    """
    right = check_correct(correct)
    check_same_length(evidence=len(evidence), correct=len(right))
    n_right, n = int(right.sum()), len(right)
    if n_right == 0:
        return CertaintyCut(np.inf, 0.0)
    threshold = float(np.partition(evidence.certainty, n - n_right)[n - n_right])
    above = int((evidence.certainty > threshold).sum())
    tied = int((evidence.certainty == threshold).sum())
    return CertaintyCut(threshold, (n_right - above) / tied)


# With fewer, even samples that hardly overlap would not be told apart with any certainty.
FEWEST = 30
LEVEL = 0.01
# Of 225 kinds of corrupted images all 157 that cost 10 points of accuracy moved more than this.
SMALLEST_GAP = 0.1


@dataclass(frozen=True)
class DistributionShift:
    """What the values of queries are beside those of gallery points.

    Parameters
    ----------
    gap : float
        Kolmogorov and Smirnov's statistic, in [0, 1]: wherever a threshold is put, the shares of
        the two samples below it differ by at most this, and at some threshold by this. It is an
        effect size: unlike a p-value it does not grow with the number of queries.
    p_value : float
        Chance of such a gap between samples of one distribution.
    direction : float
        Cliff's delta, in [-1, 1]: chance that a query's value is above a gallery point's, less the
        chance that it is below.
    own_median, query_median : float
        Medians of gallery points and of queries.
    n_own, n_queries : int
        Sizes of the samples.
    level : float
        Largest p-value that may raise an alarm.
    smallest_gap : float
        Smallest gap that may raise an alarm.
    """

    gap: float
    p_value: float
    direction: float
    own_median: float
    query_median: float
    n_own: int
    n_queries: int
    level: float
    smallest_gap: float

    @property
    def alarm(self) -> bool:
        """Whether the gap is both beyond chance and large enough to matter."""
        return self.p_value <= self.level and self.gap >= self.smallest_gap

    @property
    def gap_needed(self) -> float:
        """The smallest gap that raises an alarm with samples of these sizes."""
        # Size of the one sample whose gap to a known distribution scatters as that of two.
        effective_size = np.round(self.n_own * self.n_queries / (self.n_own + self.n_queries))
        return max(self.smallest_gap, float(kstwo.isf(self.level, effective_size)))


def compare_samples(
    own: ArrayLike, queries: ArrayLike, *, level: float = LEVEL, smallest_gap: float = SMALLEST_GAP
) -> DistributionShift:
    """Compare a number of the queries with the same number of gallery points.

    A p-value alone would raise an alarm about any large batch, as no two real distributions are
    the same; a gap alone about any small one. An alarm needs both.

    Parameters
    ----------
    own : array of shape (n_own,)
        Values of gallery points, each found without itself. Infinity is allowed, NaN is not.
    queries : array of shape (n_queries,)
        Values of queries.
    level : float
        Chance of a false alarm that is accepted, in (0, 1).
    smallest_gap : float
        Smallest gap that raises an alarm, in (0, 1).

    Returns
    -------
    DistributionShift

    Notes
    -----
    All but the medians depends on the order of the values alone: a distance, its square and its
    logarithm give the same. With ties, as in shares of k votes, the p-value is too large rather
    than too small. Gallery points share neighbours and are not quite independent, and each has one
    neighbour of its class fewer than a query has. On the clean halves of three image sets, at a
    level of 5% for both tests together, 0 to 10% of the batches of 50 to 1,000 queries had such
    p-values, and 0 to 6% a gap of 0.1 as well.

    References
    ----------
    J. L. Hodges, The significance probability of the Smirnov two-sample test, Arkiv för
    Matematik 3, 1958. N. Cliff, Dominance statistics, Psychological Bulletin 114(3), 1993.

    Examples
    --------
    >>> shift = compare_samples(range(100), range(50, 150))
    >>> shift.gap, round(shift.direction, 2), shift.alarm
    (0.5, 0.75, True)
    """
    level = check_open_fraction("level", level)
    smallest_gap = check_open_fraction("smallest_gap", smallest_gap)
    own_values, query_values = _check_sample("own", own), _check_sample("queries", queries)
    test = ks_2samp(own_values, query_values, method="asymp")
    return DistributionShift(
        gap=float(test.statistic),
        p_value=float(test.pvalue),
        direction=_cliffs_delta(own_values, query_values),
        own_median=_median(own_values),
        query_median=_median(query_values),
        n_own=len(own_values),
        n_queries=len(query_values),
        level=level,
        smallest_gap=smallest_gap,
    )


def _cliffs_delta(own: FloatArray, queries: FloatArray) -> float:
    ordered = np.sort(own)
    below = np.searchsorted(ordered, queries, "left")
    not_above = np.searchsorted(ordered, queries, "right")
    return float(((below + not_above) / len(own)).mean() - 1.0)


def _median(values: FloatArray) -> float:
    # An observed value, as the mean of two infinities' neighbours would be infinite.
    return float(np.quantile(values, 0.5, method="inverted_cdf"))


def _check_sample(name: str, values: ArrayLike) -> FloatArray:
    array = np.asarray(values, np.float64)
    if array.ndim != 1 or len(array) < FEWEST:
        raise InvalidInputError(
            f"The '{name}' parameter must be an array of at least {FEWEST} values, or chance "
            f"drowns any shift. Got shape {array.shape} instead: collect more before comparing."
        )
    if np.isnan(array).any():
        raise InvalidInputError(
            f"The '{name}' parameter must not hold NaN. Got {int(np.isnan(array).sum())} of "
            f"{len(array)} instead."
        )
    return array


N_RESAMPLES = 500
INTERVAL_LEVEL = 0.95
BLIND_SPOTS = (
    "An estimate, not a measurement: it assumes that confidence means the same for these queries "
    "as for the gallery. Wrong answers of high confidence (attacked queries, classes that the "
    "gallery lacks, wrong labels in it) are counted as right, and right answers of low "
    "confidence, such as those far from everything, as wrong. The interval covers chance, not "
    "these errors: label some queries to measure the accuracy."
)


@dataclass(frozen=True)
class EstimatedAccuracy:
    """Two estimates of the share of right answers among queries without labels.

    Parameters
    ----------
    thresholded : Interval
        Share of the queries above the gallery's `cut`: the one to read.
    mean_confidence : Interval
        Mean confidence of the queries, which is their accuracy if the rule stays calibrated.
    own_accuracy : float
        Leave-one-out accuracy of the gallery points.
    own_mean_confidence : float
        Their mean confidence.
    cut : CertaintyCut
        What was found on the gallery.
    n_own, n_queries : int
        Sizes of the samples.
    """

    thresholded: Interval
    mean_confidence: Interval
    own_accuracy: float
    own_mean_confidence: float
    cut: CertaintyCut
    n_own: int
    n_queries: int

    @property
    def estimate(self) -> float:
        """The estimated accuracy, in [0, 1]."""
        return self.thresholded.estimate


def estimate_accuracy(
    own: Evidence,
    own_correct: ArrayLike,
    queries: Evidence,
    *,
    seed: int | np.random.Generator = 0,
    n_resamples: int = N_RESAMPLES,
    level: float = INTERVAL_LEVEL,
) -> EstimatedAccuracy:
    """Estimate the accuracy of unlabelled queries.

    A query is counted as right if it is as sure, by the entropy of its posterior, as the surest of
    the gallery's own points, of which as many are taken as were answered rightly: see `fit_cut`.
    Nothing is fitted on queries, and their distance counts only through the rule's posterior.

    Parameters
    ----------
    own : Evidence
        Of gallery points, each found without itself.
    own_correct : array of shape (n_own,)
        Whether each was given its own class.
    queries : Evidence
        Of the queries, found with as many neighbours.
    seed : int or numpy.random.Generator
        Source of the resamples.
    n_resamples : int
        Resamples of gallery points and of queries, for the intervals.
    level : float
        Nominal coverage of the intervals, in (0, 1).

    Returns
    -------
    EstimatedAccuracy

    Notes
    -----
    ``python -m benchmarks.drift`` measures it on queries under 15 corruptions at 5 severities, with
    the default rule of `NEDClassifier` and with NED. Mean absolute error in points, then the worst
    of the 75:

    ======================  ===========  ===========  ===========
    rule and estimate       glyphs       birds        cars
    ======================  ===========  ===========  ===========
    default, this one       3.1 (13)     3.0 (10)     3.6 (21)
    default, ATC by conf.   3.8 (27)     3.3 (15)     5.0 (25)
    default, mean conf.     7.0 (40)     9.3 (24)     12.2 (36)
    NED, this one           4.7 (30)     2.5 (8)      3.5 (21)
    NED, ATC by conf.       6.8 (40)     3.4 (14)     4.4 (24)
    NED, mean confidence    8.9 (44)     5.9 (18)     9.9 (32)
    ======================  ===========  ===========  ===========

    Entropy was preferred to confidence with these three sets in view. It is not better everywhere.
    On scikit-learn's digits under noise of standard deviation 4 (pixels being 0 to 16) the default
    rule answers 95.6% rightly and the estimate is 87.4%; at 6 they are 89.7% and 65.3%, while the
    mean confidence is 79.9%: far from everything the rule measures with a query's own scale and is
    ever less sure, sooner than it is wrong. NED's estimate is within 2 points there. A plain vote
    of 50 neighbours among classes of ten (glyphs) has 40 votes for other classes, whose entropy
    says little: an error of 11.0 points, at worst 63, where ATC by confidence has 4.3 and 7.

    What it cannot see is much. Of points whose class is left out of the gallery it counts 40 to 46%
    as right on the three sets (digits: 37 to 52%), and of queries attacked to be sure and wrong up
    to all. Such batches mostly raise an alarm, as they are farther or surer than the gallery; but
    300 birds under PGD of 1/255, less than 1% of which were still answered rightly, raised none and
    were taken to be right in 63% of the cases (NED: 54%).

    A gallery point has one neighbour of its class fewer than a query has. Where classes are small,
    the leave-one-out accuracy may be too low, and so may the estimate: by 1.7 points (NED: 2.6) on
    clean glyphs, with ten images a class. A class of one image counts as wrong.

    The intervals are percentiles over resamples of both samples; they hold the chance of the draw
    and not the error above.

    Examples
    --------
    >>> certainty, near = np.linspace(-1.0, 0.0, 200), np.full(200, 1.0)
    >>> own = Evidence(np.exp(certainty), certainty, near)
    >>> correct = np.arange(200) % 10 < 7
    >>> estimate_accuracy(own, correct, own).estimate
    0.7
    >>> less_sure = Evidence(np.exp(certainty - 0.5), certainty - 0.5, near)
    >>> estimate_accuracy(own, correct, less_sure).estimate
    0.2
    """
    right = check_correct(own_correct)
    check_same_length(own=len(own), own_correct=len(right))
    for name, evidence in (("own", own), ("queries", queries)):
        if len(evidence) < FEWEST:
            raise InvalidInputError(
                f"The '{name}' parameter must hold at least {FEWEST} points, or an estimate is "
                f"mere chance. Got {len(evidence)} instead: collect more."
            )
    if not right.any():
        raise InvalidInputError(
            "Some gallery point must be answered correctly without itself, or the gallery says "
            f"nothing about queries. Got none of {len(right)}: give classes two members or more."
        )
    level = check_open_fraction("level", level)
    n_resamples = check_positive_integer("n_resamples", n_resamples)
    rng = generator_of(seed)
    cut = fit_cut(own, right)
    shares, means = np.empty((2, n_resamples))
    for draw in range(n_resamples):
        own_rows = rng.integers(len(own), size=len(own))
        drawn = queries.take(rng.integers(len(queries), size=len(queries)))
        shares[draw] = fit_cut(own.take(own_rows), right[own_rows]).share(drawn)
        means[draw] = drawn.confidence.mean()
    return EstimatedAccuracy(
        thresholded=_interval(cut.share(queries), shares, level),
        mean_confidence=_interval(float(queries.confidence.mean()), means, level),
        own_accuracy=float(right.mean()),
        own_mean_confidence=float(own.confidence.mean()),
        cut=cut,
        n_own=len(own),
        n_queries=len(queries),
    )


def _interval(estimate: float, resampled: FloatArray, level: float) -> Interval:
    tail = (1.0 - level) / 2.0
    low, high = np.quantile(resampled, (tail, 1.0 - tail))
    return Interval(estimate, float(low), float(high), level)


TESTS = 2


@dataclass(frozen=True, repr=False)
class QueryDrift:
    """How queries differ from the gallery's own points; printed, a summary of ten lines at most.

    Parameters
    ----------
    confidence : DistributionShift
        Of the confidence.
    distance : DistributionShift
        Of the Euclidean distance to the nearest neighbour.
    accuracy : EstimatedAccuracy
        What that probably means for the answers, with the leave-one-out accuracy beside it.
    accuracy_range : pair of float, optional
        Where the share of right answers should lie (95%), by several estimates and own points that
        stand for the queries; see `nearsure.shift`. Wide where these disagree.
    share_shift : float, optional
        Share of the queries that would have to ask for another class to ask as often for each as
        the gallery has it; 0 if that is chance.
    """

    confidence: DistributionShift
    distance: DistributionShift
    accuracy: EstimatedAccuracy
    accuracy_range: tuple[float, float] | None = None
    share_shift: float | None = None

    @property
    def alarm(self) -> bool:
        """Whether confidence or distance raises an alarm."""
        return self.confidence.alarm or self.distance.alarm

    def __repr__(self) -> str:
        return f"{self._findings()}\nAn estimate, not a measurement: to_text() lists its limits."

    def _repr_html_(self) -> str:
        return html_paragraphs(repr(self))

    def to_text(self) -> str:
        """The findings for people, in percent, and what they cannot see."""
        return f"{self._findings()}\n{BLIND_SPOTS}"

    def to_frame(self) -> "pd.DataFrame":
        """One row as a data frame of pandas, so that batches of queries can be laid together."""
        found = self.accuracy
        row: dict[str, float] = {"n_queries": found.n_queries, "alarm": self.alarm}
        for name, shift in (("confidence", self.confidence), ("distance", self.distance)):
            numbers = ("own_median", "query_median", "gap", "p_value", "direction", "alarm")
            row |= {f"{name}_{number}": getattr(shift, number) for number in numbers}
        low, high = self.accuracy_range or (nan, nan)
        row |= {
            "accuracy": found.estimate,
            "accuracy_low": low,
            "accuracy_high": high,
            "own_accuracy": found.own_accuracy,
            "mean_confidence": found.mean_confidence.estimate,
            "own_mean_confidence": found.own_mean_confidence,
            "share_shift": nan if self.share_shift is None else self.share_shift,
        }
        return make_frame({name: [value] for name, value in row.items()})

    def _findings(self) -> str:
        found = self.accuracy
        verdict = "ALARM" if self.alarm else "no alarm"
        accuracy, confidence = _percent(found.thresholded), _percent(found.mean_confidence)
        own_confidence = found.own_mean_confidence
        added = []
        if self.accuracy_range is not None:
            low, high = self.accuracy_range
            added.append(f"accuracy lies within {100 * low:.1f}% to {100 * high:.1f}%")
        if self.share_shift:
            added.append(
                f"class shares differ from the gallery's by {100 * self.share_shift:.0f}% of the "
                "queries: give them as prior if they are known, or let adapt_prior estimate them"
            )
        return "\n".join(
            (
                f"{found.n_queries} queries compared with {found.n_own} gallery points: {verdict}",
                _shift_line("confidence", self.confidence, ("lower", "higher")),
                _shift_line("distance", self.distance, ("nearer", "farther")),
                f"estimated accuracy  {accuracy}; gallery points {100 * found.own_accuracy:.1f}%",
                f"mean confidence     {confidence}; gallery points {100 * own_confidence:.1f}%",
                *added,
            )
        )


def compare_queries(
    own_neighbors: Neighbors,
    own_posterior: Posterior,
    own_codes: ArrayLike,
    query_neighbors: Neighbors,
    query_posterior: Posterior,
    *,
    alarm_level: float = LEVEL,
    smallest_gap: float = SMALLEST_GAP,
    seed: int | np.random.Generator = 0,
    n_resamples: int = N_RESAMPLES,
    interval_level: float = INTERVAL_LEVEL,
) -> QueryDrift:
    """Compare unlabelled queries with the gallery's leave-one-out pass.

    Parameters
    ----------
    own_neighbors : Neighbors
        Neighbours of gallery points without the points themselves: see `leave_one_out`. All of the
        gallery or a random sample of it.
    own_posterior : Posterior
        What a rule made of them.
    own_codes : array of shape (n_own,)
        Class codes of these gallery points.
    query_neighbors : Neighbors
        Neighbours of the queries, as many as of the gallery points.
    query_posterior : Posterior
        What the same rule, at the same temperature, made of them.
    alarm_level : float
        Chance of a false alarm that is accepted, in (0, 1); each of the two tests has half of it.
    smallest_gap : float
        Gap between the distributions that matters, in (0, 1): see `DistributionShift`.
    seed, n_resamples, interval_level
        Of the intervals of the estimated accuracy.

    Returns
    -------
    QueryDrift

    Examples
    --------
    >>> from nearsure import score
    >>> from nearsure.index import ExactIndex
    >>> from nearsure.loo import search_leaving_one_out
    >>> rng = np.random.default_rng(0)
    >>> codes = np.repeat(np.arange(4), 50)
    >>> gallery = 4.0 * np.eye(4)[codes] + rng.normal(size=(200, 4))
    >>> index = ExactIndex(gallery)
    >>> own = search_leaving_one_out(index, gallery, np.arange(200), codes, k=10)
    >>> sq_distances, ids = index.search(gallery[:100] + rng.normal(size=(100, 4)) * 3.0, 10)
    >>> queries = Neighbors(sq_distances, codes[ids])
    >>> drift = compare_queries(
    ...     own, score(own, rule="knn"), codes, queries, score(queries, rule="knn")
    ... )
    >>> drift.alarm, drift.distance.direction > 0
    (True, True)
    >>> drift.accuracy.estimate < drift.accuracy.own_accuracy
    True
    """
    if own_neighbors.k != query_neighbors.k:
        fewer = min(own_neighbors.k, query_neighbors.k)
        raise InvalidInputError(
            "Gallery points and queries must have as many neighbours, or their confidence is not "
            f"comparable. Got k = {own_neighbors.k} and {query_neighbors.k} instead: cut both with "
            f"first({fewer}) and score them again."
        )
    codes = integer_codes(own_codes)
    if codes.shape != (len(own_neighbors),):
        raise InvalidInputError(
            f"The 'own_codes' parameter must be one class code for each of the "
            f"{len(own_neighbors)} gallery points. Got an array of shape {codes.shape} instead."
        )
    level = check_open_fraction("alarm_level", alarm_level) / TESTS
    compare = partial(compare_samples, level=level, smallest_gap=smallest_gap)
    own = gather_evidence(own_neighbors, own_posterior)
    queries = gather_evidence(query_neighbors, query_posterior)
    return QueryDrift(
        confidence=compare(own.confidence, queries.confidence),
        distance=compare(own.distance, queries.distance),
        accuracy=estimate_accuracy(
            own,
            own_posterior.labels == codes,
            queries,
            seed=seed,
            n_resamples=n_resamples,
            level=interval_level,
        ),
    )


def _shift_line(name: str, shift: DistributionShift, words: tuple[str, str]) -> str:
    below, above = words
    word = above if shift.direction > 0 else below if shift.direction < 0 else "alike"
    verdict = "ALARM" if shift.alarm else f"no alarm below a gap of {shift.gap_needed:.3f}"
    return (
        f"{name:<19} {word}: median {shift.own_median:.4g} -> {shift.query_median:.4g}, "
        f"gap {shift.gap:.3f}, p = {shift.p_value:.2g} ({verdict})"
    )


def _percent(interval: Interval) -> str:
    return (
        f"{100 * interval.estimate:.1f}% ({100 * interval.low:.1f}% to {100 * interval.high:.1f}%)"
    )
