"""How heads are fitted: shrinkage, temperature and strength by points that were left out."""

from dataclasses import replace

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.sparse import csr_array
from scipy.special import logsumexp, softmax

from nearsure.arrays import AnyArray, FloatArray, IntArray
from nearsure.heads.class_means import (
    PORTION,
    ClassMeans,
    Moments,
    find_factor,
    fit_class_means,
    pool_covariance,
)
from nearsure.heads.fitted_head import FittedHead
from nearsure.heads.folds import CLASS_FOLDS, LabelledFolds, spread_classes
from nearsure.heads.linear import LinearHead
from nearsure.heads.logistic import fit_logistic_head
from nearsure.minimization import minimize
from nearsure.progress import tracked

# With fewer classes, what is left without a fold of them is another problem, and its logits say
# nothing of the whole.
FEWEST_CLASSES = 10
# The strength is chosen on points of so many folds, by heads that are fitted on so many points at
# most, as it hardly depends on their number.
CHOICE_FOLDS, MOST_CHOSEN_BY = 2, 3000
SHRINKAGES = (0.03, 0.1, 0.3, 0.6, 1.0)
# Where classes are too many to choose by all their logits: what most galleries choose.
USUAL_SHRINKAGE, USUAL_SCALE = 0.3, 0.2
# From the strongest penalty on, as long as likelihood grows.
STRENGTHS = (1000.0, 300.0, 100.0, 30.0, 10.0, 3.0)
SCALES = (-7.0, 3.0)  # logarithms
# Of the logarithms of two heads' weights about a half of each, before any point is seen.
PRIOR_DEVIATION = 2.0
# A point counts no less probable than this, or one mislabelled point would outweigh all others.
LEAST_PROBABILITY = 1e-3


def fit_many_means(
    points: LabelledFolds, n_classes: int, apart: LabelledFolds
) -> FittedHead | None:
    """Class means for more classes than can be scored; None if points do not vary.

    Shrinkage and scale are what is usual.

    Parameters
    ----------
    points : LabelledFolds
        The points.
    n_classes : int
        How many classes there are.
    apart : LabelledFolds
        Those of them whose metric serves all folds.
    """
    covariance = pool_covariance(apart.vectors, apart.codes)
    if covariance is None:
        return None
    vectors, n_folds = points.vectors, int(points.folds.max()) + 1
    places = points.folds * n_classes + points.codes
    sizes = np.bincount(places, minlength=n_folds * n_classes)
    # One row for a class in a fold, with a one for each member. Sums of few numbers stay in single
    # precision, as what is as large as the gallery takes time to move.
    members = csr_array(
        (
            np.ones(len(places), vectors.dtype),
            np.argsort(places, kind="stable"),
            np.append(0, np.cumsum(sizes)),
        ),
        shape=(len(sizes), len(places)),
    )
    sums, counts = members @ vectors, sizes.reshape(n_folds, n_classes).astype(np.float64)
    sums = sums.reshape(n_folds, n_classes, -1)
    total, n_members = sums.sum(axis=0), counts.sum(axis=0)
    centre = vectors[:PORTION].mean(axis=0, dtype=np.float64)
    factor = find_factor(covariance, USUAL_SHRINKAGE)

    def average(of_class: AnyArray, n: FloatArray) -> ClassMeans:
        """Of sums that are changed in place."""
        of_class /= np.maximum(n, 1.0)[:, None].astype(of_class.dtype)
        of_class -= centre.astype(of_class.dtype)
        of_class[n == 0] = 0.0
        return ClassMeans(of_class, n, factor, USUAL_SCALE, centre)

    heads, rest = [], np.empty_like(total)
    for fold, own in enumerate(sums):
        means = average(np.subtract(total, own, out=rest), n_members - counts[fold])
        # Fresh pages would cost as much as the product: weights take the place of the sums.
        head = means.head(np.float32, out=own if own.dtype == np.float32 else None)
        heads.append(replace(head, intercepts=_in_single(head.intercepts)))
    means = average(total, n_members)
    return FittedHead("means", means.head(np.float32), tuple(heads), means, near_only=True)


def fit_means_head(folds: list[Moments], chosen_on: LabelledFolds) -> tuple[FittedHead, float]:
    """Class means; shrinkage and scale by the likelihood of points that were left out.

    Parameters
    ----------
    folds : list of Moments
        Of the points of each fold.
    chosen_on : LabelledFolds
        Points to choose by.

    Returns
    -------
    head : FittedHead
    shrinkage : float
        Of its metric.
    """
    total = sum(folds[1:], start=folds[0])
    # Pairs that two folds divide leave no covariance.
    is_spread = all((total - fold).has_spread for fold in folds)
    found = []
    for candidate in SHRINKAGES if is_spread else (1.0,):
        parts = [
            _without_prior(_fit_without(folds[fold], total, candidate), some)
            for fold, some in chosen_on.by_fold(len(folds))
        ]
        found.append((*_temper(parts), candidate))
    _, scale, shrinkage = min(found)
    heads = tuple(_fit_without(fold, total, shrinkage, scale).head().rounded() for fold in folds)
    means = fit_class_means(total, shrinkage, scale)
    return FittedHead("means", means.head(), heads, means), shrinkage


def _fit_without(
    fold: Moments,
    total: Moments,
    shrinkage: float,
    scale: float = 1.0,
    *,
    is_widened: bool = False,
) -> ClassMeans:
    """Class means of all points but a fold."""
    # Where the metric is the same in all directions, its one number is that of all points.
    covariance = total.covariance if shrinkage == 1.0 else None
    return fit_class_means(
        total - fold, shrinkage, scale, covariance=covariance, is_widened=is_widened
    )


# Logits to be scaled, logits that are not, and the true classes.
_Tempered = tuple[FloatArray, FloatArray, IntArray]


def _without_prior(means: ClassMeans, points: LabelledFolds) -> _Tempered:
    present = means.counts > 0
    known = points.take(present[points.codes])
    # With a member each, classes have a prior of 0.
    logits = replace(means, counts=np.ones(len(present))).head().logits(known.vectors)
    prior = np.where(present, np.log(np.maximum(means.counts, 1.0)), -np.inf)
    return logits, prior, known.codes


def _temper(parts: list[_Tempered]) -> tuple[float, float]:
    """Loss and scale at which the true classes of points are most probable."""
    n_points = sum(len(codes) for *_, codes in parts)
    if not n_points:
        return np.inf, 1.0

    def loss(log_scale: float) -> float:
        lost = 0.0
        for scaled, fixed, codes in parts:
            logits = np.exp(log_scale) * scaled + fixed
            p_true = np.exp(logits[np.arange(len(codes)), codes] - logsumexp(logits, axis=1))
            lost -= np.log(LEAST_PROBABILITY + (1.0 - LEAST_PROBABILITY) * p_true).sum()
        return float(lost / n_points)

    found = minimize_scalar(loss, bounds=SCALES, method="bounded", options={"xatol": 0.02})
    return float(found.fun), float(np.exp(found.x))


def fit_logistic_folds(
    points: LabelledFolds,
    folds: list[Moments],
    shrinkage: float,
    *,
    beside: FittedHead | None = None,
    without_classes: bool = False,
) -> FittedHead:
    """Logistic regression in the metric of the class means; strength by likelihood left out.

    The metric is widened where likelihood says so: that of the means keeps weights small along
    directions in which classes vary much, though classes may differ there, too.

    Parameters
    ----------
    points : LabelledFolds
        To fit on, at random.
    folds : list of Moments
        As of `fit_means_head`.
    shrinkage : float
        Of the metric.
    beside : FittedHead, optional
        Class means, whose logits are added, by a weight that is fitted on points left out. By
        default none.
    without_classes : bool
        Whether to fit heads without the classes of each fold of these, too.
    """
    total = sum(folds[1:], start=folds[0])
    n_classes = len(total.counts)

    def prepare(
        fold: int | None, most: int | None = None, *, is_widened: bool
    ) -> tuple[ClassMeans, LabelledFolds]:
        metric = (
            fit_class_means(total, shrinkage, is_widened=is_widened)
            if fold is None
            else _fit_without(folds[fold], total, shrinkage, is_widened=is_widened)
        )
        rows = np.flatnonzero(points.folds != (-1 if fold is None else fold))[:most]
        others = points.take(rows)
        return metric, replace(others, vectors=metric.whiten(others.vectors))

    chosen = []
    # The plain metric has nothing to be added to.
    for is_widened in (False, True) if shrinkage < 1.0 else (False,):
        tried = [
            (*prepare(fold, MOST_CHOSEN_BY, is_widened=is_widened), some)
            for fold, some in points.by_fold(CHOICE_FOLDS)
        ]
        chosen.append((*_choose_strength(tried, n_classes), is_widened))
    _, strength, scale, is_widened = min(chosen)

    def fit(
        metric: ClassMeans, others: LabelledFolds, start: FloatArray | None = None
    ) -> tuple[LinearHead, FloatArray]:
        weights = fit_logistic_head(others.vectors, others.codes, n_classes, strength, start)
        return _as_head(weights, metric, scale), weights

    metric, whole = prepare(None, is_widened=is_widened)
    full, weights = fit(metric, whole)
    without = tracked("fitting a head", range(len(folds)), len(folds))
    heads = [fit(*prepare(fold, is_widened=is_widened))[0] for fold in without]
    shares = (1.0, 0.0)
    if beside is not None:
        shares = _weigh(
            [(heads[fold], beside.folds[fold], some) for fold, some in points.by_fold(len(folds))]
        )
        full = _blend(full, beside.full, shares)
        heads = [_blend(*both, shares) for both in zip(heads, beside.folds, strict=True)]
    head = FittedHead("logistic", full.rounded(), tuple(each.rounded() for each in heads))
    present = np.unique(points.codes)
    if not without_classes or len(present) < FEWEST_CLASSES:
        return head
    fold_of_class = np.zeros(n_classes, np.int64)
    fold_of_class[present] = spread_classes(metric.whiten(metric.means[present] + metric.centre))
    class_folds = []
    for fold in range(CLASS_FOLDS):
        others = points.take(np.flatnonzero(fold_of_class[points.codes] != fold))
        # In many dimensions a class leaves its mark on the metric, too.
        moments = Moments.empty(total.centre, n_classes, total.n_features)
        moments.add(others.vectors, others.codes)
        is_shared = shrinkage == 1.0 or not moments.has_spread
        covariance = total.covariance if is_shared else None
        metric = fit_class_means(moments, shrinkage, covariance=covariance, is_widened=is_widened)
        others = replace(others, vectors=metric.whiten(others.vectors))
        # From the weights for all classes, few steps are left.
        left, _ = fit(metric, others, weights)
        if beside is not None and beside.means is not None:
            means = fit_class_means(moments, shrinkage, beside.means.scale, covariance=covariance)
            left = _blend(left, means.head(), shares)
        class_folds.append(left.rounded())
    return replace(head, class_folds=tuple(class_folds), fold_of_class=fold_of_class)


def _weigh(parts: list[tuple[LinearHead, LinearHead, LabelledFolds]]) -> tuple[float, float]:
    """Weights of two heads' logits at which the true classes of points are most probable.

    Parameters
    ----------
    parts : list of (LinearHead, LinearHead, LabelledFolds)
        Two heads that have seen the same points, and points that neither has seen.
    """
    scored = []
    for one, other, some in parts:
        unheard = np.union1d(one.unheard, other.unheard)
        known = some.take(~np.isin(some.codes, unheard))
        both = np.stack([one.logits(known.vectors), other.logits(known.vectors)])
        both[:, :, unheard] = 0.0
        fixed = np.zeros(len(one.intercepts))
        fixed[unheard] = -np.inf
        scored.append((both, fixed, known.codes))
    n_points = max(1, sum(len(codes) for *_, codes in scored))
    usual = np.log([0.5, 0.5])

    def loss(logs: FloatArray) -> tuple[float, FloatArray]:
        shares = np.exp(logs)
        far = (logs - usual) / PRIOR_DEVIATION**2
        lost, slopes = 0.5 * float(far @ (logs - usual)), far
        for both, fixed, codes in scored:
            p = softmax(np.tensordot(shares, both, axes=1) + fixed, axis=1)
            rows = np.arange(len(codes))
            kept = LEAST_PROBABILITY + (1.0 - LEAST_PROBABILITY) * p[rows, codes]
            # d loss / d logit, as of `nearsure.heads.joint`.
            pull = (1.0 - LEAST_PROBABILITY) * p[rows, codes] / kept
            p *= pull[:, None]
            p[rows, codes] -= pull
            lost -= float(np.log(kept).sum())
            slopes = slopes + shares * np.tensordot(both, p, axes=2)
        return lost / n_points, slopes / n_points

    found = minimize(loss, usual, bounds=[SCALES] * 2)
    one, other = np.exp(found.x).tolist()
    return one, other


def _blend(one: LinearHead, other: LinearHead, shares: tuple[float, float]) -> LinearHead:
    """The sum of two heads' logits, of one centre, times their weights: a linear head, too."""
    weights = shares[0] * one.weights + shares[1] * other.weights
    intercepts = shares[0] * one.intercepts + shares[1] * other.intercepts
    return LinearHead(weights, intercepts, one.centre)


def _choose_strength(
    tried: list[tuple[ClassMeans, LabelledFolds, LabelledFolds]], n_classes: int
) -> tuple[float, float, float]:
    """Loss, strength and scale; from whitened points to fit on, and points to choose by."""
    starts: list[FloatArray | None] = [None] * len(tried)
    best = (np.inf, STRENGTHS[0], 1.0)
    for strength in tracked("choosing a head", STRENGTHS, len(STRENGTHS)):
        parts = []
        for i, (means, others, some) in enumerate(tried):
            starts[i] = weights = fit_logistic_head(
                others.vectors, others.codes, n_classes, strength, starts[i]
            )
            is_known = np.isfinite(weights[:, -1])
            weights = np.where(is_known[:, None], weights, 0.0)
            known = some.take(is_known[some.codes])
            logits = _as_head(weights, means, 1.0).logits(known.vectors)
            parts.append((logits, np.where(is_known, 0.0, -np.inf), known.codes))
        loss, scale = _temper(parts)
        if loss >= best[0]:
            break
        best = (loss, strength, scale)
    return best


def _as_head(weights: FloatArray, means: ClassMeans, scale: float) -> LinearHead:
    raw = means.unwhiten(weights[:, :-1])
    return LinearHead(scale * raw, scale * weights[:, -1], means.centre)


def _in_single(values: FloatArray) -> FloatArray:
    return values.astype(np.float32).astype(np.float64)
