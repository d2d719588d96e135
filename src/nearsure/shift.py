"""Whether unlabelled queries are like the gallery's own points, and own points that stand for them.

Queries that differ are rehearsed in three ways. Own points are moved at random until they lie as
far away (noise); they are weighed by class (other proportions); or they lose the members of their
class that are nearer than a radius, until the rule is as unsure of them as of the queries
(novelty). What is promised for the queries is then chosen on these points.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import inf

import numpy as np
from scipy.special import chdtrc

from nearsure.arrays import AnyArray, BoolArray, FloatArray, IntArray
from nearsure.bursts import draw_one_per_group
from nearsure.decisions import AcceptThreshold
from nearsure.drift import FEWEST, SMALLEST_GAP, fit_cut, gather_evidence
from nearsure.errors import InvalidInputError
from nearsure.loo import keep_first
from nearsure.neighbors import Neighbors
from nearsure.posterior import Posterior

__all__ = [
    "ClassShares",
    "QueryCheck",
    "Reading",
    "Traits",
    "check_queries",
    "compare_labels",
    "draw_by_weight",
    "estimate_class_shares",
    "find_differences",
    "measure_traits",
    "rehearse_queries",
    "thin_queries",
]

Score = Callable[[Neighbors], Posterior]


def thin_queries(
    neighbors: Neighbors, posterior: Posterior, class_sizes: IntArray, *, seed: int = 0
) -> Neighbors:
    """Take one random member of its class from each query, as leaving out takes it from own points.

    The class is drawn from the posterior. Without this, queries are nearer than own points, and
    where classes have two or three members, every test of equality raises a false alarm.
    """
    rng = np.random.default_rng(seed)
    ends = np.cumsum(posterior.probabilities)
    starts = np.concatenate([[0.0], ends])[posterior.indptr[:-1]]
    totals = np.concatenate([[0.0], ends])[posterior.indptr[1:]] - starts
    place = np.searchsorted(ends, starts + rng.random(len(posterior)) * totals, side="right")
    place = np.minimum(place, posterior.indptr[1:] - 1)
    drawn = posterior.codes[place]
    # Member number 1 .. size by distance; those beyond the list are not seen.
    victim = rng.integers(1, np.maximum(class_sizes[drawn], 1) + 1)
    same = (neighbors.labels == drawn[:, None]) & neighbors.valid
    gone = same & (np.cumsum(same, axis=1) == victim[:, None])
    return keep_first(neighbors, neighbors.valid & ~gone, neighbors.k)


# The far distance is that of this neighbour: far enough to lie outside a burst.
FAR = 30
# Neighbours whose labels are compared with the answer.
VOTERS = 10


@dataclass(frozen=True, eq=False)
class Traits:
    """What shows at once whether points are alike, one entry a point.

    Parameters
    ----------
    labels : array of shape (n,)
        Predicted classes.
    confidence : array of shape (n,)
        Of the prediction.
    near : array of shape (n,)
        Squared distance of the nearest neighbour.
    """

    labels: IntArray
    confidence: FloatArray
    near: FloatArray

    def __len__(self) -> int:
        return len(self.labels)

    def join(self, others: "Traits") -> "Traits":
        """Those of these points and of others."""
        return Traits(
            np.concatenate([self.labels, others.labels]),
            np.concatenate([self.confidence, others.confidence]),
            np.concatenate([self.near, others.near]),
        )


def measure_traits(neighbors: Neighbors, posterior: Posterior) -> Traits:
    """Label, confidence and nearest squared distance of points with neighbours."""
    asked = neighbors.counts > 0
    return Traits(
        posterior.labels[asked], posterior.confidence[asked], neighbors.sq_distances[asked, 0]
    )


def _measure_spread(neighbors: Neighbors, posterior: Posterior) -> tuple[FloatArray, FloatArray]:
    """The far squared distance, and the share of the first neighbours that are of the answer."""
    asked = np.flatnonzero(neighbors.counts > 0)
    far = np.minimum(neighbors.counts[asked], FAR) - 1
    agrees = neighbors.labels[asked, :VOTERS] == posterior.labels[asked, None]
    return neighbors.sq_distances[asked, far], agrees.mean(axis=1)


def rehearse_queries(own: Neighbors, codes: IntArray, *, radius: float, k: int) -> Neighbors:
    """Let own points stand for new queries: members of their class within `radius` are left out.

    Parameters
    ----------
    own : Neighbors
        Of own points without themselves (and their groups); more than k of them.
    codes : array of shape (n,)
        Their classes.
    radius : float
        Euclidean.
    k : int
        Neighbours that are kept.
    """
    fellow = (own.labels == codes[:, None]) & (own.sq_distances < radius**2)
    return keep_first(own, own.valid & ~fellow, k)


def lower_own_class(own: Neighbors, codes: IntArray, queries: Neighbors) -> Neighbors:
    """Let a head be as unsure of own points as it is of queries, by their own class's logit.

    Leaving members out takes nothing from a head, which has not seen the point itself.

    Parameters
    ----------
    own, queries : Neighbors
        Of own points and of queries, with what a head says of them; without it, nothing is done.
    codes : array of shape (n,)
        Classes of the own points.
    """
    scores, asked = own.class_scores, queries.class_scores
    if scores is None or asked is None:
        return own
    is_own = scores.codes == codes[:, None]
    own_class = np.where(is_own, scores.log_shares, -inf).max(axis=1)
    margins = own_class - np.where(is_own, -inf, scores.log_shares).max(axis=1)
    sure = np.exp(asked.log_shares.max(axis=1))
    start = np.exp(scores.log_shares.max(axis=1))
    target = sure.mean() - _compare_means(start, sure)[1]
    if start.mean() <= target or not (margins > 0).any():
        return own
    # The longer the way, the more points have passed where the head is least sure of them.
    for by in np.quantile(margins[np.isfinite(margins) & (margins > 0)], QUANTILES):
        lowered = scores.lower(codes, float(by))
        if np.exp(lowered.log_shares.max(axis=1)).mean() <= target:
            break
    return own.with_scores(lowered)


def move_isotropically(vectors: AnyArray, length: float, seed: int) -> AnyArray:
    """Vectors with normal noise, alike in all directions, of this root mean square length."""
    drawn = np.random.default_rng(seed).normal(size=vectors.shape)
    moved = vectors + (length / vectors.shape[1] ** 0.5) * drawn
    return np.asarray(moved, vectors.dtype)


def move_like_data(vectors: AnyArray, length: float, seed: int) -> AnyArray:
    """Vectors moved along differences of random pairs of them: noise in the directions of the data.

    The root mean square length of the way is `length`.
    """
    rng = np.random.default_rng(seed)
    way = vectors - vectors[rng.permutation(len(vectors))]
    way = way[rng.permutation(len(vectors))].astype(np.float64)
    usual = np.sqrt((way**2).sum(axis=1).mean()) or 1.0
    return np.asarray(vectors + (length / usual) * way, vectors.dtype)


# From rows of own points, a way to move vectors and its length, to neighbours of the moved points.
Perturb = Callable[[IntArray, Callable[..., AnyArray], float], Neighbors]


# A prior of this standard deviation on the ratio of a class's share among queries to the gallery's.
RATIO_DEVIATION = 1.0
# What queries may ask for in place of the gallery's shares: a power of them.
POWERS = (1.0, 0.75, 0.5, 0.25, 0.0)
# More is not to be had from some dozens of queries.
LARGEST_RATIO = 10.0
# Rare false alarms: each withdraws a promise. And a shift that moves a promise by some points.
SHARE_LEVEL = 0.001
SMALLEST_SHARE_SHIFT = 0.05
# A matrix of all pairs of classes is solved: beyond this, shares are not estimated.
MOST_CLASSES = 2000
# Expected counts below this are pooled, as Pearson's test needs.
FEWEST_EXPECTED = 5


@dataclass(frozen=True, eq=False)
class ClassShares:
    """How often the classes are asked for, beside the gallery; `estimate_class_shares` makes it.

    Parameters
    ----------
    ratios : array of shape (n_classes,)
        Share among the queries over share in the gallery.
    distance : float
        Half of the summed differences of shares: what share of the queries would have to change.
    """

    ratios: FloatArray
    distance: float


def estimate_class_shares(
    own: Posterior, codes: IntArray, queries: Posterior, class_sizes: IntArray
) -> ClassShares:
    """Find class ratios that let the own points' mean posterior be that of the queries.

    Ridge regression, weighted by the sampling variance of each class's mean posterior, towards a
    power of the gallery's shares: from the same shares (1) to the same for all classes (0), the
    one that explains most. A rare class alone says next to nothing about its ratio. Unlike EM on
    the queries' posterior (Saerens), it takes how classes are confused from the own points, and
    does not starve classes that overlap.

    References
    ----------
    K. Azizzadenesheli, A. Liu, F. Yang, A. Anandkumar, Regularized learning for domain adaptation
    under label shifts, ICLR 2019.
    """
    n_classes = len(class_sizes)
    if n_classes > MOST_CLASSES:
        return ClassShares(np.ones(n_classes), 0.0)
    confusion = np.zeros((n_classes, n_classes))
    np.add.at(confusion, (own.codes, codes[own.rows]), own.probabilities / len(own))
    means, variance = _mean_posterior(queries, n_classes)
    _, own_variance = _mean_posterior(own, n_classes)
    noise = variance / len(queries) + own_variance / len(own) + 1e-9
    scaled = confusion / noise[:, None]
    left = confusion.T @ scaled + np.eye(n_classes) / RATIO_DEVIATION**2
    shares = np.bincount(codes, minlength=n_classes) / len(codes)
    found = []
    for power in POWERS:
        expected = np.maximum(shares, 1.0 / len(codes)) ** (power - 1.0)
        expected = _clip_ratios(expected / (shares @ expected), shares)
        moved = np.linalg.solve(left, scaled.T @ (means - confusion @ expected))
        missed = means - confusion @ (expected + moved)
        loss = (missed**2 / noise).sum() + (moved**2).sum() / RATIO_DEVIATION**2
        found.append((float(loss), -power, _clip_ratios(expected + moved, shares)))
    ratios = min(found, key=lambda each: each[:2])[2]
    return ClassShares(
        ratios=ratios,
        distance=float(0.5 * np.abs(shares * (ratios - 1.0)).sum()),
    )


def _clip_ratios(ratios: FloatArray, shares: FloatArray) -> FloatArray:
    """Ratios within limits, of a mean of 1 over the shares."""
    clipped = np.clip(ratios, 1.0 / LARGEST_RATIO, LARGEST_RATIO)
    scaled: FloatArray = clipped / (shares @ clipped)
    return scaled


def _mean_posterior(posterior: Posterior, n_classes: int) -> tuple[FloatArray, FloatArray]:
    n = len(posterior)
    mean = np.bincount(posterior.codes, posterior.probabilities, minlength=n_classes) / n
    square = np.bincount(posterior.codes, posterior.probabilities**2, minlength=n_classes) / n
    return mean, square - mean**2


def compare_labels(own: IntArray, queries: IntArray) -> tuple[float, float]:
    """Whether two samples of predicted labels have one distribution.

    Returns
    -------
    p_value : float
        Of Pearson's test; rare classes are pooled with others that are as rare.
    distance : float
        Half of the summed differences of shares, less what chance alone makes of it.
    """
    _, codes = np.unique(np.concatenate([own, queries]), return_inverse=True)
    a = np.bincount(codes[: len(own)], minlength=codes.max() + 1).astype(np.float64)
    b = np.bincount(codes[len(own) :], minlength=len(a)).astype(np.float64)
    share = (a + b) / len(codes)
    per_point = 1.0 / len(own) + 1.0 / len(queries)
    by_chance = np.sqrt(2.0 / np.pi * share * (1.0 - share) * per_point)
    distance = 0.5 * float((np.abs(a / len(own) - b / len(queries)) - by_chance).sum())
    # Rare classes are pooled with those of like share: a long tail shows even if all are rare.
    order = np.argsort(-share, kind="stable")
    expected = np.cumsum(share[order]) * min(len(own), len(queries))
    last = max(expected[-1] // FEWEST_EXPECTED - 1, 0)
    _, bins = np.unique(np.minimum(expected // FEWEST_EXPECTED, last), return_inverse=True)
    a, b = (np.bincount(bins, counts[order]).astype(np.float64) for counts in (a, b))
    ea, eb = (a + b) * len(own) / len(codes), (a + b) * len(queries) / len(codes)
    statistic = ((a - ea) ** 2 / ea).sum() + ((b - eb) ** 2 / eb).sum()
    return float(chdtrc(max(1, len(a) - 1), statistic)), max(distance, 0.0)


# Of each of the two tests of a distribution. Every batch of queries is tested, and one of random
# halves shall hardly ever raise an alarm.
LEVEL = 0.001
# A fall of the mean confidence counts from here, and from so many standard errors.
SMALLEST_FALL = 0.01
DEVIATIONS = 3.0
# Radii that are tried: a step is 4% of the way from the nearest to the farthest members.
N_RADII = 24
# Of the margins by which a head is right: by so much it is made less sure of own points.
QUANTILES = tuple(np.linspace(0.02, 0.9, N_RADII))
# Queries beyond the gallery whose neighbours agree less, by so many standard errors.
AGREEMENT_DEVIATIONS = 2.0
# Points on which the length of the noise is found, and how often it is doubled and halved.
N_MATCHED = 300
MOST_DOUBLINGS = 14
N_HALVINGS = 4
# What class shares must explain of the way that queries lie farther or are less sure, and noise of
# the way that their far neighbours are farther. Class shares explained changes of other kinds to
# 0.1 at most.
EXPLAINED = 0.4
# Neighbours of queries agree less than those of points that explain them, by this at most.
LARGEST_DISAGREEMENT = 0.02
# Within it are all members of a class; its square is finite.
LARGEST_RADIUS = 1e150


LESS_SURE = "their answers are less sure"
FARTHER = "they lie farther away"
OTHER_SHARES = "their classes come in other proportions"


def find_differences(own: Traits, queries: Traits) -> tuple[str, ...]:
    """How queries differ from the gallery's own points; empty if they do not.

    Parameters
    ----------
    own : Traits
        Of own points, each left out itself.
    queries : Traits
        Of queries that were thinned as own points are; at least FEWEST.
    """
    reasons = []
    fall, error = _compare_means(own.confidence, queries.confidence)
    if fall >= max(SMALLEST_FALL, DEVIATIONS * error) or (
        fall > 0 and _differ(own.confidence, queries.confidence)
    ):
        reasons.append(LESS_SURE)
    if np.median(queries.near) > np.median(own.near) and _differ(own.near, queries.near):
        reasons.append(FARTHER)
    p_value, distance = compare_labels(own.labels, queries.labels)
    if p_value <= SHARE_LEVEL and distance >= SMALLEST_SHARE_SHIFT:
        reasons.append(OTHER_SHARES)
    return tuple(reasons)


def describe_differences(reasons: tuple[str, ...], others: str = "the gallery") -> str:
    """A warning about queries that differ from the gallery, or from others, as sentences."""
    return (
        f"These queries are not like {others}: {', and '.join(reasons)}. Confidence may be too "
        f"high for them, and what is promised for queries like {others} may not hold. Make "
        "promises for these queries (accept_threshold with queries), or label some of them "
        "(recalibrate)."
    )


@dataclass(frozen=True, eq=False)
class Reading:
    """Own points that stand for the queries in one way.

    Parameters
    ----------
    name : {"plain", "novelty", "noise", "class shift"}
    confidence, correct : array of shape (n,)
        Of own points so rehearsed; with a class shift, of those that are drawn.
    """

    name: str
    confidence: FloatArray
    correct: BoolArray

    @property
    def accuracy(self) -> float:
        """Share of right answers."""
        return float(self.correct.mean())


@dataclass(frozen=True, eq=False)
class QueryCheck:
    """What own points must do to be like the queries; `check_queries` makes it.

    Parameters
    ----------
    reasons : tuple of str
        How the queries differ from the gallery's own points; empty if they do not.
    outside : bool
        Whether queries lie beyond the gallery and their neighbours disagree: nothing is promised.
    readings : tuple of Reading
        Of which none can be ruled out; the plain one if queries are alike.
    shares : ClassShares
    accuracy : tuple of float
        Range that should hold the share of right answers (95%).
    """

    reasons: tuple[str, ...]
    outside: bool
    readings: tuple[Reading, ...]
    shares: ClassShares
    accuracy: tuple[float, float]

    @property
    def alike(self) -> bool:
        """Whether the queries are like the gallery's own points."""
        return not self.reasons


def check_enough(queries: Neighbors) -> None:
    """An error unless there are enough queries to be compared with others."""
    if len(queries) < FEWEST:
        raise InvalidInputError(
            f"The 'queries' parameter must hold at least {FEWEST} points, or chance drowns any "
            f"shift. Got {len(queries)} instead: collect more before comparing."
        )


def check_queries(
    own: Neighbors,
    codes: IntArray,
    queries: Neighbors,
    class_sizes: IntArray,
    score: Score,
    *,
    deepen: Callable[[], Neighbors] | None = None,
    perturb: Perturb | None = None,
    groups: IntArray | None = None,
    copies: IntArray | None = None,
    near: Score | None = None,
    seed: int = 0,
) -> QueryCheck:
    """Compare unlabelled queries with the gallery's own points, and rehearse them if they differ.

    Parameters
    ----------
    own : Neighbors
        Of own points without themselves (or their groups).
    codes : array of shape (n,)
        Their classes.
    queries : Neighbors
        Of the queries, with as many neighbours as the rule takes; at least FEWEST queries.
    class_sizes : array of shape (n_classes,)
        Members of each class.
    score : callable
        From neighbours to a posterior: the fitted rule, without the factors of `nearsure.loo`.
    deepen : callable, optional
        Gives the same own points with more neighbours, 200, say. It is called only if queries
        differ: some of them are then left out.
    perturb : callable, optional
        Searches own points that were moved. Without it, noise is taken for novelty.
    groups : array of shape (n,), optional
        Groups that were left out together; one point of each takes part in a promise.
    copies : array of shape (n,), optional
        Groups of near-copies that `deepen` leaves out together and `own` does not: one point of
        each is rehearsed.
    near : callable, optional
        The rule by neighbours alone, by which queries are compared; by default `score`. Heads of
        own points have seen fewer members of small classes than that of queries.
    seed : int
        Of the members that are taken from queries, and of the points that take part.
    """
    check_enough(queries)
    k = min(queries.k, own.k)
    # What is drawn must not depend on the order of the queries.
    queries = queries.first(k).take(np.argsort(queries.sq_distances[:, 0], kind="stable"))
    plain, answer = own.first(k), score(own.first(k))
    asked = score(queries)
    thinned = thin_queries(queries, asked, class_sizes, seed=seed)
    posterior = score(thinned)
    start, now = measure_traits(plain, answer), measure_traits(thinned, posterior)
    # Points of a group are no independent draws: counted alone, they would raise false alarms.
    alone = np.arange(len(codes)) if groups is None else draw_one_per_group(groups, seed=seed)
    by_near = score if near is None else near
    ours, theirs = plain.take(alone), thinned
    reasons = find_differences(
        measure_traits(ours, by_near(ours)), measure_traits(theirs, by_near(theirs))
    )
    shares = ClassShares(np.ones(len(class_sizes)), 0.0)
    if OTHER_SHARES in reasons:
        shares = estimate_class_shares(answer.take(alone), codes[alone], posterior, class_sizes)
    correct = answer.labels == codes
    readings = [Reading("plain", answer.confidence[alone], correct[alone])]
    outside = False
    if reasons:
        more = own if deepen is None else deepen()
        alone = alone if copies is None else draw_one_per_group(copies, seed=seed)
        rehearsal = _Rehearsal(more, codes, alone, start, now, score, k)
        start_spread = _measure_spread(plain, answer)
        now_spread = _measure_spread(thinned, posterior)
        weights = shares.ratios[codes]
        readings = []
        if FARTHER in reasons and perturb is not None:
            # Points that are moved so far that their answers are chance stand for nothing.
            chance = min(0.5, 2.0 * float(np.bincount(codes).max()) / len(codes))
            played = rehearsal.play_noise(perturb, start_spread, now_spread)
            readings += [each for each in played if each.accuracy > chance]
            outside = len(readings) < len(played)
        if OTHER_SHARES in reasons:
            shifted = rehearsal.play_class_shift(weights)
            readings += [] if shifted is None else [shifted]
        if not readings:
            disagreement, error = _compare_means(start_spread[1], now_spread[1])
            fell = disagreement > AGREEMENT_DEVIATIONS * error
            outside |= fell and bool(now.near.mean() > start_spread[0].mean())
            rehearsal = replace(rehearsal, own=lower_own_class(more, codes, thinned))
            readings = [rehearsal.play_novelty(np.ones(len(codes)))]
            if OTHER_SHARES in reasons:
                readings.append(rehearsal.play_novelty(weights, "class shift"))
    low, high = _estimate_range(
        plain, answer, correct, queries, asked, float(now.confidence.mean()), readings
    )
    return QueryCheck(
        reasons=reasons,
        outside=outside,
        readings=tuple(readings),
        shares=shares,
        # Beyond the gallery own points stand for nothing, and confidence means little.
        accuracy=(0.0 if outside else low, high),
    )


def _compare_means(own: FloatArray, queries: FloatArray) -> tuple[float, float]:
    """How much lower the queries' mean is, and the standard error of that."""
    error = np.hypot(own.std() / len(own) ** 0.5, queries.std() / len(queries) ** 0.5)
    return float(own.mean() - queries.mean()), float(error)


def _estimate_range(  # noqa: PLR0917
    plain: Neighbors,
    answer: Posterior,
    correct: BoolArray,
    queries: Neighbors,
    asked: Posterior,
    thinned_confidence: float,
    readings: list[Reading],
) -> tuple[float, float]:
    """From the lowest to the highest of all estimates, widened by the chance of the draw."""
    own, found = gather_evidence(plain, answer), gather_evidence(queries, asked)
    sure, right = float(found.confidence.mean()), float(correct.mean())
    estimates = [
        sure,
        # Harmless changes, such as blur, make answers unsure sooner than wrong.
        (sure + right) / 2,
        fit_cut(own, correct).share(found) if correct.any() else 0.0,
    ]
    for reading in readings:
        estimates.append(reading.accuracy)
        if reading.name == "class shift":
            # What other shares leave unexplained.
            left = float(reading.confidence.mean()) - thinned_confidence
            estimates.append(float(np.clip(reading.accuracy - left, 0.0, 1.0)))
        elif reading.name == "noise":
            # In many directions it changes distances, and hardly an answer.
            estimates.append(right)
    n = 1.0 / (1.0 / len(queries) + 1.0 / len(plain))
    return _widen(min(estimates), n, -1.96), _widen(max(estimates), n, 1.96)


def _widen(share: float, n: float, deviations: float) -> float:
    """Wilson's bound for a share of n."""
    z = deviations**2 / n
    middle = (share + z / 2) / (1 + z)
    half = deviations / (1 + z) * np.sqrt(share * (1 - share) / n + z / (4 * n))
    return float(np.clip(middle + half, 0.0, 1.0))


def _differ(own: FloatArray, queries: FloatArray) -> bool:
    """The test of Kolmogorov and Smirnov in its asymptotic limit, which scipy takes longer for."""
    own, queries = np.sort(own), np.sort(queries)
    gap = max(_largest_gap(own, queries), _largest_gap(queries, own))
    n = len(own) * len(queries) / (len(own) + len(queries))
    return gap >= max(SMALLEST_GAP, float(np.sqrt(-0.5 * np.log(LEVEL / 2) / n)))


def _largest_gap(a: FloatArray, b: FloatArray) -> float:
    """How far the distribution of sorted `a` is above that of sorted `b` at most."""
    below = np.searchsorted(b, a, side="right") / len(b)
    return float((np.searchsorted(a, a, side="right") / len(a) - below).max())


@dataclass(frozen=True, eq=False)
class _Rehearsal:
    """Own points, and the ways in which they can stand for queries that differ from them.

    Parameters
    ----------
    own : Neighbors
        More than k of each point.
    codes : array of shape (n,)
        Their classes.
    alone : array of shape (m,)
        Points that take part in a promise: one of each group.
    start, queries : Traits
        Of own points with k neighbours, and of thinned queries.
    score : callable
    k : int
    """

    own: Neighbors
    codes: IntArray
    alone: IntArray
    start: Traits
    queries: Traits
    score: Score
    k: int

    def play_noise(
        self,
        perturb: Perturb,
        own_spread: tuple[FloatArray, FloatArray],
        query_spread: tuple[FloatArray, FloatArray],
    ) -> list[Reading]:
        """Own points that were moved until they lie as far away; those readings that may be true.

        None, if moved points are surer than the queries or their neighbours agree more: queries
        are then other than noisy. Noise in the directions of the data does more harm than noise in
        all directions at the same distance; where both may be true, both count.
        """
        found = []
        for move in (move_isotropically, move_like_data):
            length = self._match_length(perturb, move)
            if length is None:
                continue
            moved = perturb(self.alone, move, length)
            posterior = self.score(moved)
            far, agreement = _measure_spread(moved, posterior)
            surer, margin = _compare_means(posterior.confidence, self.queries.confidence)
            margin = max(SMALLEST_FALL, DEVIATIONS * margin)
            agrees, error = _compare_means(agreement, query_spread[1])
            agreement_margin = max(LARGEST_DISAGREEMENT, DEVIATIONS * error)
            farther = query_spread[0].mean() - own_spread[0].mean()
            if (
                surer > margin
                or agrees > agreement_margin
                or farther < EXPLAINED * (far.mean() - own_spread[0].mean())
            ):
                continue
            correct = posterior.labels == self.codes[self.alone]
            # Far from all points a head may be as sure as of queries: neighbours tell them apart.
            close = surer >= -margin and agrees >= -agreement_margin
            found.append((close, Reading("noise", posterior.confidence, correct)))
        as_close = [reading for close, reading in found if close]
        return as_close or [reading for _, reading in found]

    def _match_length(self, perturb: Perturb, move: Callable[..., AnyArray]) -> float | None:
        """Length of the noise that puts own points as far away as the queries, by the median."""
        rows = self.alone[:: -(-len(self.alone) // N_MATCHED)]
        target = float(np.median(self.queries.near))

        def reaches(length: float) -> bool:
            return bool(np.median(perturb(rows, move, length).sq_distances[:, 0]) >= target)

        gap = target - float(np.median(self.start.near))
        high = float(np.sqrt(max(gap, 1e-6 * target)))
        low = high / 2.0
        for _ in range(MOST_DOUBLINGS):
            if reaches(high):
                break
            low, high = high, 2.0 * high
        else:
            return None
        for _ in range(N_HALVINGS):
            middle = (low * high) ** 0.5
            low, high = (low, middle) if reaches(middle) else (middle, high)
        return high

    def play_class_shift(self, weights: FloatArray) -> Reading | None:
        """Own points weighed by class; None if queries differ in more than class shares."""
        asked = weights[self.own.counts > 0]
        for own, queries in (
            (self.start.near, self.queries.near),
            (-self.start.confidence, -self.queries.confidence),
        ):
            if not _explains(own, float(np.average(own, weights=asked)), queries):
                return None
        return self._read("class shift", self.score(self.own.first(self.k)), weights)

    def play_novelty(self, weights: FloatArray, name: str = "novelty") -> Reading:
        """Own points without the members of their class that are nearer than a radius."""
        # As unsure as the queries, on the careful side.
        _, error = _compare_means(self.start.confidence, self.queries.confidence)
        target = self.queries.confidence.mean() - error
        for radius in self._list_radii():
            new = self.score(rehearse_queries(self.own, self.codes, radius=radius, k=self.k))
            if np.average(new.confidence, weights=weights) <= target:
                break
        return self._read(name, new, weights)

    def _list_radii(self) -> Iterator[float]:
        """Radii to try: 0, a grid over the members of the class, and one that holds them all."""
        yield 0.0
        own = self.own
        same = (own.labels == self.codes[:, None]) & own.valid
        some = same.any(axis=1)
        nearest = np.sqrt(own.sq_distances[some, same.argmax(axis=1)[some]])
        last = np.sqrt(own.sq_distances[np.arange(len(own)), np.maximum(own.counts, 1) - 1])
        yield from np.linspace(np.quantile(nearest, 0.02), np.quantile(last, 0.9), N_RADII)
        yield LARGEST_RADIUS

    def _read(self, name: str, posterior: Posterior, weights: FloatArray) -> Reading:
        confidence, correct = posterior.confidence[self.alone], posterior.labels == self.codes
        drawn = draw_by_weight(confidence, weights[self.alone])
        return Reading(name, confidence[drawn], correct[self.alone[drawn]])


def _explains(own: FloatArray, rehearsed: float, queries: FloatArray) -> bool:
    """Whether a mean moves with the queries' far enough; if that rises beyond chance at all."""
    fall, error = _compare_means(own, queries)
    return -fall <= DEVIATIONS * error or rehearsed - own.mean() >= EXPLAINED * -fall


def draw_by_weight(confidence: FloatArray, weights: FloatArray) -> IntArray:
    """Draw points in proportion to their weights, as many as they are worth.

    Parameters
    ----------
    confidence, weights : array of shape (n,)
        Points are drawn in even steps of their weight, in the order of their confidence: every
        threshold then accepts its share of the weight to within one point.

    Returns
    -------
    array of int
        Places; (sum w)^2 / sum w^2 of them, the number of even weights that tell a mean as well
        (Kish's effective size). A place of large weight occurs more than once.

    Examples
    --------
    >>> draw_by_weight(np.array([0.9, 0.8, 0.7, 0.6]), np.array([1.0, 1.0, 1.0, 1.0]))
    array([0, 1, 2, 3])
    >>> draw_by_weight(np.array([0.9, 0.8, 0.7, 0.6]), np.array([3.0, 1.0, 1.0, 1.0]))
    array([0, 0, 2])
    """
    n = int(weights.sum() ** 2 / (weights**2).sum() * (1 + 1e-9))
    order = np.argsort(-confidence, kind="stable")
    ends = np.cumsum(weights[order])
    steps = (np.arange(n) + 0.5) / n * ends[-1]
    return np.asarray(order[np.searchsorted(ends, steps)], np.int64)


def choose_for_queries(
    plain: AcceptThreshold,
    check: QueryCheck,
    choose: Callable[[FloatArray, BoolArray], AcceptThreshold],
) -> AcceptThreshold:
    """The plain threshold if queries are alike; else the strictest of plain and all readings.

    Parameters
    ----------
    plain : AcceptThreshold
        Chosen on the gallery's own points; where it has groups, on one of each.
    check : QueryCheck
        Of the queries.
    choose : callable
        From confidence and whether answers are right to a threshold, as `plain` was chosen.

    Returns
    -------
    AcceptThreshold
        With its state; a withdrawn one accepts nothing.
    """
    if check.alike:
        return plain
    candidates = [plain, *(choose(own.confidence, own.correct) for own in check.readings)]
    strictest = max(candidates, key=lambda chosen: chosen.threshold)
    if strictest is plain and {own.name for own in check.readings} == {"noise"}:
        # Points that lie as far away keep it.
        return replace(plain, reasons=check.reasons)
    strictest = replace(strictest, rests_on=plain.rests_on, reasons=check.reasons)
    if strictest.reached and not check.outside:
        # What is measured is that of the points that stand for the queries.
        stand_ins = check.readings[0]
        accepted = stand_ins.confidence >= strictest.threshold
        if accepted.any():
            return replace(
                strictest,
                state="adjusted",
                n_points=len(accepted),
                n_wrong=int((~stand_ins.correct).sum()),
                n_accepted=int(accepted.sum()),
                n_wrong_accepted=int((accepted & ~stand_ins.correct).sum()),
            )
    return withdraw(strictest, check.reasons)


def withdraw(promise: AcceptThreshold, reasons: tuple[str, ...]) -> AcceptThreshold:
    """The same without a promise: nothing is accepted."""
    return replace(
        promise,
        state="withdrawn",
        reasons=reasons,
        threshold=inf,
        n_accepted=0,
        n_wrong_accepted=0,
        promised=0.0 if promise.kind == "precision" else 1.0,
    )
