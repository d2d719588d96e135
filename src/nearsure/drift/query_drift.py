"""Incoming queries beside the gallery's leave-one-out pass, in one report."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from nearsure.drift.distribution_shift import (
    LEVEL,
    SMALLEST_GAP,
    DistributionShift,
    compare_samples,
)
from nearsure.drift.estimated_accuracy import (
    BLIND_SPOTS,
    INTERVAL_LEVEL,
    N_RESAMPLES,
    EstimatedAccuracy,
    estimate_accuracy,
)
from nearsure.drift.evidence import gather_evidence
from nearsure.errors import InvalidInputError
from nearsure.metrics.bootstrap import Interval
from nearsure.metrics.validation import check_open_fraction
from nearsure.neighbors import Neighbors, integer_codes
from nearsure.posterior import Posterior

TESTS = 2


@dataclass(frozen=True)
class QueryDrift:
    """How queries differ from the gallery's own points.

    Parameters
    ----------
    confidence : DistributionShift
        Of the confidence.
    distance : DistributionShift
        Of the Euclidean distance to the nearest neighbour.
    accuracy : EstimatedAccuracy
        What that probably means for the answers, with the leave-one-out accuracy beside it.
    """

    confidence: DistributionShift
    distance: DistributionShift
    accuracy: EstimatedAccuracy

    @property
    def alarm(self) -> bool:
        """Whether confidence or distance raises an alarm."""
        return self.confidence.alarm or self.distance.alarm

    def to_text(self) -> str:
        """The findings for people, in percent."""
        found = self.accuracy
        verdict = "ALARM" if self.alarm else "no alarm"
        accuracy, confidence = _percent(found.thresholded), _percent(found.mean_confidence)
        own_confidence = found.own_mean_confidence
        return "\n".join(
            (
                f"{found.n_queries} queries beside {found.n_own} gallery points: {verdict}",
                _shift_line("confidence", self.confidence, ("lower", "higher")),
                _shift_line("distance", self.distance, ("nearer", "farther")),
                f"estimated accuracy  {accuracy}; gallery points {100 * found.own_accuracy:.1f}%",
                f"mean confidence     {confidence}; gallery points {100 * own_confidence:.1f}%",
                BLIND_SPOTS,
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
    >>> from nearsure.leaving_one_out import search_leaving_one_out
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
    own = gather_evidence(own_neighbors, own_posterior)
    queries = gather_evidence(query_neighbors, query_posterior)
    return QueryDrift(
        confidence=compare_samples(
            own.confidence, queries.confidence, level=level, smallest_gap=smallest_gap
        ),
        distance=compare_samples(
            own.distance, queries.distance, level=level, smallest_gap=smallest_gap
        ),
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
