"""What a few labelled queries say about the confidence of the queries to come.

The calibrator of a gallery was fitted on its own points. Where queries differ from them, some of
the queries are labelled, and their answers move it: the new logit of a confidence is ``slope *
logit + intercept``. Beforehand there are three cases, which are weighed by how well each explains
the labels (the marginal likelihood, summed over a grid):

- queries are like the gallery: slope 1, intercept 0;
- the truth is somewhere between that and what own points say that stand for these queries (see
  `nearsure.shift`, which needs no labels), a little aside at most;
- intercept and logarithm of the slope are about 0, by Student's t, whose tails let labels that
  contradict the gallery outright have their way.

The line is the mean of all: with few labels, or labels that agree with the gallery, it stays near
the gallery's fit; with hundreds it is that of the labels.

References
----------
Hoeffding: On the Distribution of the Number of Successes in Independent Trials. 1956.
MacKay: Information Theory, Inference, and Learning Algorithms, chapter 28. 2003.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import logit, logsumexp
from scipy.stats import norm, t

from nearsure.arrays import AnyArray, BoolArray, FloatArray, IntArray
from nearsure.calibration import ShrunkPlatt, clip_inside
from nearsure.errors import InvalidInputError
from nearsure.labels import restored_classes, stored_classes
from nearsure.schema import COUNT, TEXT, array, check_fields, number, unreadable
from nearsure.validation import check_positive_integer

if TYPE_CHECKING:
    from typing import Self

# Fewer labels hold next to nothing: the standard error of a share of 20 is up to 11 points.
FEWEST_LABELS = 20
# Before any label: the chance that the gallery's calibration holds, and the same if the queries'
# confidence or distances differ from those of its own points.
LIKE_GALLERY, UNLIKE_GALLERY = 0.7, 0.3
# If it does not hold: the chance that the truth is on the way to what own points say.
ON_THE_WAY = 0.8
STEPS = np.linspace(0.0, 1.0, 7)
ASIDE = 0.15
# Scales of intercept and log slope otherwise.
SCALES, DEGREES = (0.3, 0.4), 4
# Own points that are hardly surer of right answers than of wrong ones stand for nothing.
LEAST_SLOPE = 0.05
# The grid: intercepts, logarithms of slopes, places along each, and how often it is narrowed.
WIDEST = ((-6.0, 6.0), (-np.log(16.0), np.log(16.0)))
N_PLACES, N_PASSES = 41, 3
LABELS_AT_ONCE = 500
# Rows of one band of confidence, which are ordered by class, of which this many are labelled.
LABELS_IN_BAND = 5


def fit_line(
    confidence: FloatArray,
    correct: BoolArray,
    weights: FloatArray | None = None,
    *,
    like_gallery: float = LIKE_GALLERY,
    rehearsed: Sequence[ShrunkPlatt] = (),
) -> tuple[ShrunkPlatt, float]:
    """Find the line that labelled queries speak for, and the chance that none was needed.

    Parameters
    ----------
    confidence : array of shape (n,)
        Of the answers, as the gallery's fit has it.
    correct : array of shape (n,)
        Whether they are right.
    weights : array of shape (n,), optional
        How much each answer counts, in answers; by default 1.
    like_gallery : float
        The chance that none is needed before the labels are seen.
    rehearsed : sequence of ShrunkPlatt
        What own points that stand for these queries make of the confidence.

    Examples
    --------
    >>> sure = np.full(60, 0.9)
    >>> line, like_gallery = fit_line(sure, np.arange(60) % 10 > 0)
    >>> line([0.9]).round(2), like_gallery > 0.5
    (array([0.9]), True)
    >>> line, like_gallery = fit_line(sure, np.arange(60) % 2 > 0)
    >>> line([0.9]).round(2), like_gallery < 0.001
    (array([0.55]), True)
    """
    x = np.asarray(logit(clip_inside(confidence)), np.float64)
    counts = np.ones(len(x)) if weights is None else weights
    log_alike = np.log(like_gallery) + counts @ (correct * x - np.logaddexp(0.0, x))
    ranges = list(WIDEST)
    for _ in range(N_PASSES):
        intercepts, log_slopes = (np.linspace(low, high, N_PLACES) for low, high in ranges)
        cell = (intercepts[1] - intercepts[0]) * (log_slopes[1] - log_slopes[0])
        log_weights = (
            np.log1p(-like_gallery)
            + np.log(cell)
            + _log_prior(intercepts, log_slopes, rehearsed)
            + _log_likelihood(intercepts, np.exp(log_slopes), x, correct, counts)
        )
        log_moved = logsumexp(log_weights)
        chances = np.exp(log_weights - log_moved)
        shares = chances.sum(axis=1), chances.sum(axis=0)
        ranges = [_narrow(*each) for each in zip((intercepts, log_slopes), shares, strict=True)]
    alike = float(np.exp(log_alike - np.logaddexp(log_alike, log_moved)))
    slope = alike + (1.0 - alike) * float(shares[1] @ np.exp(log_slopes))
    return ShrunkPlatt(slope, (1.0 - alike) * float(shares[0] @ intercepts)), alike


def _narrow(places: FloatArray, shares: FloatArray) -> tuple[float, float]:
    """The range of all that counts, even where one place has nearly all the weight."""
    mean = float(shares @ places)
    spread = float(np.sqrt(shares @ (places - mean) ** 2))
    reach = max(6.0 * spread, 1.5 * float(places[1] - places[0]))
    return max(mean - reach, float(places[0])), min(mean + reach, float(places[-1]))


def _log_prior(
    intercepts: FloatArray, log_slopes: FloatArray, rehearsed: Sequence[ShrunkPlatt]
) -> FloatArray:
    """Log density of lines if one is needed, shape (n_intercepts, n_slopes)."""
    free = np.add.outer(
        t.logpdf(intercepts, DEGREES, scale=SCALES[0]),
        t.logpdf(log_slopes, DEGREES, scale=SCALES[1]),
    )
    ways = [
        np.add.outer(
            norm.logpdf(intercepts, step * line.intercept, ASIDE),
            norm.logpdf(log_slopes, step * np.log(line.slope), ASIDE),
        )
        for line in rehearsed
        if line.slope >= LEAST_SLOPE
        for step in STEPS
    ]
    if not ways:
        return np.asarray(free, np.float64)
    on_the_way = logsumexp(ways, axis=0) - np.log(len(ways))
    mixed = np.logaddexp(np.log1p(-ON_THE_WAY) + free, np.log(ON_THE_WAY) + on_the_way)
    return np.asarray(mixed, np.float64)


def _log_likelihood(
    intercepts: FloatArray,
    slopes: FloatArray,
    x: FloatArray,
    correct: BoolArray,
    counts: FloatArray,
) -> FloatArray:
    right = counts * correct
    total = np.add.outer(intercepts * right.sum(), slopes * (x @ right))
    for start in range(0, len(x), LABELS_AT_ONCE):
        block = slice(start, start + LABELS_AT_ONCE)
        # No slope and no confidence of the grid are so large that these overflow.
        odds = np.exp(np.multiply.outer(slopes, x[block]))
        for row, factor in enumerate(np.exp(intercepts)):
            total[row] -= np.log(1.0 + factor * odds) @ counts[block]
    return np.asarray(total, np.float64)


def choose_rows(
    confidence: FloatArray, codes: IntArray, n: int, rng: np.random.Generator
) -> IntArray:
    """Choose so many rows, spread over the confidence and the predicted classes, each as likely.

    Rows are ordered by confidence in bands, and by class within a band; of each of n blocks of
    equally many rows one is drawn. So the rows are a fair sample, of which a promise may be made,
    and say more than rows drawn without regard: the number of right ones among those above any
    confidence varies less (Hoeffding). Rows near a threshold are not preferred, as a promise from
    such a sample would be about another mixture of queries.

    Parameters
    ----------
    confidence, codes : array of shape (n_rows,)
        Of the answers.
    n : int
        At most n_rows, or it is refused.
    rng : numpy.random.Generator
        Source of the draws.

    Returns
    -------
    array of shape (n,)
        Ascending.
    """
    n, n_rows = check_positive_integer("n", n), len(confidence)
    if n > n_rows:
        raise InvalidInputError(
            f"The 'n' parameter must be at most the number of queries, {n_rows}. Got {n} instead."
        )
    # Blocks of one size, so that every row is as likely, and rows of equal confidence in no order.
    rows = rng.permutation(n_rows)[: n_rows - n_rows % n]
    rows = rows[np.argsort(confidence[rows], kind="stable")]
    bands = np.arange(len(rows)) * n // (LABELS_IN_BAND * len(rows))
    blocks = rows[np.lexsort((codes[rows], bands))].reshape(n, -1)
    return np.sort(blocks[np.arange(n), rng.integers(blocks.shape[1], size=n)])


_FRACTION = number("a number in [0, 1]", 0.0, 1.0)
_NUMBERS = {
    "n_right": COUNT,
    "mean_before": _FRACTION,
    "mean_after": _FRACTION,
    "like_gallery": _FRACTION,
}


@dataclass(frozen=True, eq=False)
class Recalibration:
    """What `NEDClassifier.recalibrate` has learned, and from what.

    Parameters
    ----------
    vectors : array of shape (n, n_features)
        The labelled queries, which `refit` scores again.
    labels : array of shape (n,)
        Their labels.
    n_right : int
        How many of them were answered correctly.
    mean_before, mean_after : float
        Mean confidence of their answers, as the gallery's fit had it and as it is now.
    like_gallery : float
        Probability that the gallery's own calibration holds for these queries.
    """

    vectors: AnyArray
    labels: AnyArray
    n_right: int
    mean_before: float
    mean_after: float
    like_gallery: float

    def __len__(self) -> int:
        return len(self.labels)

    def __str__(self) -> str:
        n = len(self)
        return (
            f"{n:,} labelled queries, {self.n_right / n:.1%} of them answered correctly: mean "
            f"confidence {self.mean_before:.1%} by the gallery alone, {self.mean_after:.1%} now. "
            "The gallery's own calibration holds for them with probability "
            f"{self.like_gallery:.2g}."
        )

    def to_state(self) -> tuple[dict[str, Any], dict[str, AnyArray]]:
        """Numbers for JSON, and arrays."""
        numbers = {name: getattr(self, name) for name in _NUMBERS}
        arrays = {
            "labelled_vectors": self.vectors,
            "labelled_labels": stored_classes(self.labels),
        }
        return {"labels_dtype": self.labels.dtype.str, **numbers}, arrays

    @classmethod
    def from_state(
        cls, numbers: dict[str, Any], arrays: dict[str, AnyArray], *, n_features: int
    ) -> "Self":
        """The inverse of `to_state`; `ModelFileError` for anything else."""
        owner = "The recalibration of the model"
        check_fields(owner, numbers, {"labels_dtype": TEXT, **_NUMBERS})
        labels = restored_classes(arrays["labelled_labels"], numbers["labels_dtype"])
        vectors = array("float32 float64", len(labels), n_features, low=-1e150, high=1e150)
        own = {"labelled_vectors": arrays["labelled_vectors"]}
        check_fields(owner, own, {"labelled_vectors": vectors})
        if numbers["n_right"] > len(labels) or not len(labels):
            raise unreadable(owner, "there must be some, and no more right than there are")
        fields = {name: numbers[name] for name in _NUMBERS}
        return cls(vectors=own["labelled_vectors"], labels=labels, **fields)
