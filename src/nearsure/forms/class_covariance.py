"""A covariance for each class: the appendix's Sigma_j (eq:approx-conf-score).

A neighbour z_i of class j weighs exp(-d_i / T) / det(Sigma_j)^(s / 2), where
d_i = (z - z_i)' Sigma_j^-1 (z - z_i). In the paper s = 1; in many dimensions the determinant then
outweighs every distance, so s is fitted in [0, 1]. Sigma_j = I is NED.

The candidates stay the k nearest by Euclidean distance: this form weighs what a search found, and
finds nothing new.

Full covariances cost n_features^2 for each class in memory and n_features^3 in time: they suit a
few hundred features, and diagonal ones any number.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import LinAlgError, cholesky, solve_triangular
from sklearn.covariance import ledoit_wolf_shrinkage

from nearsure.arrays import AnyArray, BoolArray, FloatArray, IntArray
from nearsure.errors import InvalidInputError
from nearsure.minimization import minimize
from nearsure.neighbors import PADDING_LABEL, Neighbors
from nearsure.rules import check_temperature
from nearsure.validation import integer_codes


def log_sum_and_shares(exponents: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Logarithm of the sum of exp over each row, and each entry's share of that sum.

    Parameters
    ----------
    exponents : array of shape (n, k)
        At least one of each row finite; minus infinity weighs nothing.

    Examples
    --------
    >>> log_sum_and_shares(np.array([[-1000.0, -1000.0, -np.inf]]))
    (array([-999.30685282]), array([[0.5, 0.5, 0. ]]))
    """
    largest = exponents.max(axis=1, keepdims=True)
    shares = np.exp(exponents - largest)
    total = shares.sum(axis=1, keepdims=True)
    shares /= total
    return (np.log(total) + largest)[:, 0], shares


def losses_and_pull(exponents: FloatArray, own: BoolArray) -> tuple[FloatArray, FloatArray]:
    """-log p(true class) of each row, and its derivative by every exponent.

    Parameters
    ----------
    exponents : array of shape (n, k)
        Logarithms of the weights; minus infinity on padding.
    own : array of shape (n, k)
        Which neighbours are of the row's own class; at least one in each row.

    Examples
    --------
    >>> losses, pull = losses_and_pull(np.log([[0.75, 0.25]]), np.array([[True, False]]))
    >>> losses.round(3), pull
    (array([0.288]), array([[-0.25,  0.25]]))
    """
    log_all, shares = log_sum_and_shares(exponents)
    log_own, own_shares = log_sum_and_shares(np.where(own, exponents, -np.inf))
    shares -= own_shares
    return log_all - log_own, shares


def weights_of_exponents(exponents: FloatArray, neighbors: Neighbors) -> FloatArray:
    """Weights of which the largest of each row is 1, from their logarithms; 0 on padding.

    Parameters
    ----------
    exponents : array of shape (n, k)
        Logarithms of the weights; anything but NaN on padding.
    neighbors : Neighbors
        Whose exponents they are.
    """
    exponents = np.where(neighbors.valid, exponents, -np.inf)
    largest = np.where(neighbors.counts > 0, exponents.max(axis=1), 0.0)
    return np.asarray(np.exp(exponents - largest[:, None]))


# Pairs whose differences are held at a time: 16 MB of them in 512 dimensions.
PAIRS_AT_ONCE = 4096


@dataclass(frozen=True, eq=False)
class Pairs:
    """Queries, and neighbours of theirs that are all of one class.

    Every vector stands here once, however many pairs it is in, for it is whitened once.

    Parameters
    ----------
    rows : array of shape (p,)
        Row numbers of the queries.
    queries : array of shape (p, n_features)
        Their vectors.
    members : array of shape (q, n_features)
        The neighbours, both counted from one and the same origin.
    query_places, member_places : array of shape (m,)
        Which of them make a pair.
    """

    rows: IntArray
    queries: FloatArray
    members: FloatArray
    query_places: IntArray
    member_places: IntArray

    def __len__(self) -> int:
        return len(self.query_places)

    def of_queries(self, some: BoolArray) -> "Pairs":
        """The pairs of some of the queries, by a mask of shape (p,), in the same order."""
        kept = some[self.query_places]
        new_places = np.cumsum(some) - 1
        return Pairs(
            self.rows[some],
            self.queries[some],
            self.members,
            new_places[self.query_places[kept]],
            self.member_places[kept],
        )


# Distances of pairs whose neighbour is of one class, and the log-determinant of its covariance.
OfClass = tuple[Callable[[Pairs], FloatArray], float]


def class_mahalanobis(
    neighbors: Neighbors, queries: AnyArray, support: AnyArray, of_class: Callable[[int], OfClass]
) -> tuple[FloatArray, FloatArray]:
    """Squared Mahalanobis distances and log-determinants of all neighbours, class by class.

    Parameters
    ----------
    neighbors : Neighbors
        With ids that are rows of `support`.
    queries : array of shape (n, n_features)
        The vectors that were searched.
    support : array of shape (n_support, n_features)
        The vectors they were searched in.
    of_class : callable
        From a class code to a function of m `Pairs` of a query and a neighbour of that class,
        which gives m distances, and to a log-determinant.

    Returns
    -------
    sq_distances, log_determinants : array of shape (n, k)
        Infinity and 0 on padding.
    """
    if neighbors.ids is None or neighbors.ids.dtype.kind not in "iu":
        raise InvalidInputError(
            "neighbors must have ids that are rows of the support vectors, by which these are "
            "found. Got none: pass ids= to the constructor of Neighbors."
        )
    if queries.shape != (len(neighbors), support.shape[1]):
        raise InvalidInputError(
            f"queries must have the shape ({len(neighbors)}, {support.shape[1]}): one vector for "
            f"each row of the neighbours. Got {queries.shape} instead."
        )
    ids = neighbors.ids.ravel()
    if ids.max() >= len(support):
        raise InvalidInputError(
            f"ids must be rows of the {len(support)} support vectors. Got {ids.max()} instead."
        )
    sq_distances = np.full(len(ids), np.inf)
    log_determinants = np.zeros(len(ids))
    for code, entries in _entries_by_class(neighbors):
        of_pairs, log_determinants[entries] = of_class(code)
        for start in range(0, len(entries), PAIRS_AT_ONCE):
            some = entries[start : start + PAIRS_AT_ONCE]
            rows, query_places = np.unique(some // neighbors.k, return_inverse=True)
            members, member_places = np.unique(ids[some], return_inverse=True)
            # Counted from a member, vectors far from the origin lose nothing when whitened.
            origin = support[members[0]].astype(np.float64)
            from_origin = queries[rows] - origin, support[members] - origin
            pairs = Pairs(rows, *from_origin, query_places, member_places)
            sq_distances[some] = of_pairs(pairs)
    shape = neighbors.sq_distances.shape
    return sq_distances.reshape(shape), log_determinants.reshape(shape)


def lower_factor(covariance: FloatArray) -> FloatArray:
    """L of covariance = L L', or an error if it has none; a diagonal is its own factor."""
    if covariance.ndim == 1:
        return covariance
    try:
        return np.asarray(cholesky(covariance, lower=True), np.float64)
    except LinAlgError as error:
        raise InvalidInputError(
            "A covariance must be symmetric and positive definite. Got one that is not: shrink "
            "it towards a multiple of the identity."
        ) from error


def log_determinant_of(factor: FloatArray) -> float:
    """Logarithm of the determinant of a covariance, by its `factor` as of `pair_distances`."""
    if factor.ndim == 1:
        return float(np.log(factor).sum())
    return float(2.0 * np.log(np.diag(factor)).sum())


def pair_distances(
    pairs: Pairs,
    factor: FloatArray,
    *,
    removed: FloatArray | None = None,
    shares: FloatArray | None = None,
) -> FloatArray:
    """Squared Mahalanobis distances of m pairs under one covariance.

    With `removed` and `shares`, query i has the covariance C - shares_i removed_i removed_i',
    by the formula of Sherman and Morrison: no matrix is factored again.

    Parameters
    ----------
    pairs : Pairs
        Queries and neighbours.
    factor : array of shape (n_features, n_features) or (n_features,)
        The lower Cholesky factor of C; for a diagonal C its diagonal itself, and then no more
        than the diagonal of what is removed goes.
    removed : array of shape (p, n_features), optional
        What is taken out of the covariance for each query.
    shares : array of shape (p,), optional
        And how much of it.
    """
    of_query, of_member = pairs.query_places, pairs.member_places
    if factor.ndim == 1:
        variances = np.broadcast_to(factor, pairs.queries.shape)
        if removed is not None and shares is not None:
            variances = variances - shares[:, None] * np.square(removed)
        differences = pairs.queries[of_query] - pairs.members[of_member]
        return np.asarray((np.square(differences) / variances[of_query]).sum(axis=1))
    white = _whiten(pairs.queries, factor)[of_query] - _whiten(pairs.members, factor)[of_member]
    sq_distances = np.vecdot(white, white)
    if removed is not None and shares is not None:
        white_removed = _whiten(removed, factor)
        left = 1.0 - shares * np.vecdot(white_removed, white_removed)
        along = np.vecdot(white, white_removed[of_query])
        sq_distances += (shares / left)[of_query] * np.square(along)
    return np.asarray(sq_distances)


def _whiten(vectors: FloatArray, factor: FloatArray) -> FloatArray:
    return np.asarray(solve_triangular(factor, vectors.T, lower=True, check_finite=False).T)


def _entries_by_class(neighbors: Neighbors) -> Iterator[tuple[int, IntArray]]:
    """Each class code with the places of its neighbours in the flattened result."""
    labels = neighbors.labels.ravel()
    by_class = np.argsort(labels, kind="stable")
    ends = np.append(np.flatnonzero(np.diff(labels[by_class])) + 1, len(labels))
    start = 0
    for end in ends.tolist():
        code = int(labels[by_class[start]])
        if code != PADDING_LABEL:
            yield code, by_class[start:end]
        start = end


# Covariances of classes, each shrunk towards what the classes have in common.
#
# With A_j the scatter of class j about its mean, n_j its size, A = sum A_j, N points and C classes,
#
#   pooled   P = (1 - a) A / (N - C) + a v I    a by Ledoit and Wolf, v the mean variance
#   class    Sigma_j = (1 - w_j) P + w_j A_j / (n_j - 1),    w_j = (n_j - 1) / (n_j - 1 + strength)
#
# so that a class of as many points as the strength counts about half. P is positive definite, and
# so is every Sigma_j.
#
# A support point takes part in the covariances by which it is scored. Without point i of class j,
#
#     A_j and A lose  n_j / (n_j - 1)  u u'    with u = z_i - mean of class j,
#
# so every covariance loses a multiple of u u', and no class has to be measured again. What is kept
# as it was: a and v, on which one point has next to no influence; w_j, because a class of less
# weight is thereby wider where it has no points; and the determinant, because a class of one
# point less has one direction less to be wide in. By either, a point's own class would stand out
# from all others by the very fact that a point was taken out of it.
#
# References
# ----------
# O. Ledoit, M. Wolf, A well-conditioned estimator for large-dimensional covariance matrices,
# Journal of Multivariate Analysis 88(2), 2004. J. H. Friedman, Regularized discriminant analysis,
# JASA 84(405), 1989: classes shrunk to the pool.


CovarianceKind = Literal["diagonal", "full"]


class WithinClassScatter:
    """The scatter of the support vectors about their class means, and covariances made of it.

    Parameters
    ----------
    vectors : array of shape (n_support, n_features)
        The support vectors.
    codes : array of shape (n_support,)
        Their class codes.
    n_classes : int
        Number of classes, above every code.
    kind : {"diagonal", "full"}
        Whether features are taken as independent.
    """

    def __init__(
        self, vectors: AnyArray, codes: IntArray, *, n_classes: int, kind: CovarianceKind
    ) -> None:
        if kind not in get_args(CovarianceKind):
            names = ", ".join(repr(name) for name in get_args(CovarianceKind))
            raise InvalidInputError(f"kind must be one of {names}. Got {kind!r} instead.")
        if vectors.ndim != 2 or codes.shape != (len(vectors),):  # noqa: PLR2004
            raise InvalidInputError(
                "vectors must have the shape (n, n_features), with one class code for each row. "
                f"Got shapes {vectors.shape} and {codes.shape} instead."
            )
        self._kind = kind
        self._codes = codes
        self.counts = np.bincount(codes, minlength=n_classes)
        self._degrees = len(codes) - int((self.counts > 0).sum())
        if self._degrees < 2:  # noqa: PLR2004
            raise InvalidInputError(
                "A covariance within classes needs at least two points more than classes. "
                f"Got {len(codes)} points of {len(codes) - self._degrees} classes instead."
            )
        sums = np.zeros((n_classes, vectors.shape[1]))
        np.add.at(sums, codes, vectors)
        means = sums / np.maximum(self.counts, 1)[:, None]
        self._deviations = vectors - means[codes]
        self._by_class = np.split(np.argsort(codes, kind="stable"), np.cumsum(self.counts)[:-1])
        self._scatter = self._product(self._deviations)
        self._mean_variance = float(np.square(self._deviations).sum()) / (
            self._degrees * vectors.shape[1]
        )
        if self._mean_variance == 0:
            raise InvalidInputError(
                "Some class must hold vectors that differ, or no covariance can be measured. "
                "Got none: all members of a class are equal."
            )
        self._shrinkage = float(ledoit_wolf_shrinkage(self._deviations, assume_centered=True))

    def covariance(self, code: int, strength: float) -> FloatArray:
        """Sigma_j, shape (n_features, n_features), or its diagonal."""
        count = int(self.counts[code])
        own = self._class_scatter(code) / max(count - 1, 1)
        weight = _weight(count, strength)
        return (1.0 - weight) * self._pooled(self._degrees) + weight * own

    def without_the_point(self, code: int, strength: float) -> OfClass:
        """Distances of support points to members of a class, as if the points were not there.

        Parameters
        ----------
        code : int
            The neighbours' class.
        strength : float
            As of `covariance`.

        Returns
        -------
        callable, float
            For `class_mahalanobis`, where the queries are the support points in their order.
        """
        count = int(self.counts[code])
        pooled = self._pooled(self._degrees - 1)
        scatter = self._class_scatter(code)
        weight = _weight(count, strength)
        of_pool = (1.0 - weight) * (1.0 - self._shrinkage) / (self._degrees - 1)
        of_own = weight / max(count - 2, 1)
        other_factor = lower_factor((1.0 - weight) * pooled + weight / max(count - 1, 1) * scatter)
        log_determinant = log_determinant_of(lower_factor(self.covariance(code, strength)))
        own_factor = lower_factor((1.0 - weight) * pooled + of_own * scatter)

        def of_pairs(pairs: Pairs) -> FloatArray:
            own: BoolArray = self._codes[pairs.rows] == code
            sizes = self.counts[self._codes[pairs.rows]]
            # A lone member is its class's mean: u is 0 and nothing goes.
            lost = sizes / np.maximum(sizes - 1, 1)
            removed = self._deviations[pairs.rows]
            sq_distances = np.empty(len(pairs))
            for some, factor, share in (
                (own, own_factor, of_pool + of_own),
                (~own, other_factor, of_pool),
            ):
                sq_distances[some[pairs.query_places]] = pair_distances(
                    pairs.of_queries(some), factor, removed=removed[some], shares=share * lost[some]
                )
            return sq_distances

        return of_pairs, log_determinant

    def _pooled(self, degrees: int) -> FloatArray:
        variance = self._shrinkage * self._mean_variance
        n_features = self._deviations.shape[1]
        target = np.full(n_features, variance)
        if self._kind == "full":
            target = np.diag(target)
        return np.asarray((1.0 - self._shrinkage) / degrees * self._scatter + target)

    def _class_scatter(self, code: int) -> FloatArray:
        return self._product(self._deviations[self._by_class[code]])

    def _product(self, deviations: FloatArray) -> FloatArray:
        if self._kind == "full":
            return np.asarray(deviations.T @ deviations, np.float64)
        return np.asarray(np.square(deviations).sum(axis=0))


def _weight(count: int, strength: float) -> float:
    """w_j, 0 for a class of one member, which has no scatter."""
    return (count - 1) / (count - 1 + strength) if count > 1 else 0.0


# How many points the common covariance counts as, tried in turn; infinity gives all classes one.
STRENGTHS = (10.0, 30.0, 100.0, np.inf)
# Where the search for T and s starts, T in units of a typical excess of distance.
STARTS = ((0.3, 0.0), (0.3, 0.2))
LOG_TEMPERATURE_SPAN = 6.0


@dataclass(frozen=True, eq=False)
class ClassCovariance:
    """A covariance for each class, and how sharply distances under it are weighed.

    Parameters
    ----------
    covariances : array of shape (n_classes, n_features, n_features) or (n_classes, n_features)
        Sigma_j, or their diagonals. Full ones of thousands of classes take gigabytes.
    temperature : float
        T, in units of a squared Mahalanobis distance. The appendix's T is 2.
    determinant_share : float
        s, in [0, 1].
    strength : float
        How many points the common covariance counted as; NaN if covariances were given.
    loss : float
        Mean -log p(true class) of the leave-one-out points used; NaN if given, not fitted.
    """

    covariances: FloatArray
    temperature: float
    determinant_share: float = 1.0
    strength: float = float("nan")
    loss: float = float("nan")

    def __post_init__(self) -> None:
        check_temperature(self.temperature)
        if not 0 <= self.determinant_share <= 1:
            raise InvalidInputError(
                f"determinant_share must lie in [0, 1]. Got {self.determinant_share!r} instead."
            )
        shape = self.covariances.shape
        square = len(shape) == 3 and shape[1] == shape[2]  # noqa: PLR2004
        if not square and len(shape) != 2:  # noqa: PLR2004
            raise InvalidInputError(
                "covariances must have the shape (n_classes, n_features, n_features), or "
                f"(n_classes, n_features) for diagonal ones. Got {shape} instead."
            )
        if not np.isfinite(self.covariances).all():
            raise InvalidInputError("covariances must be finite. Got NaN or infinity instead.")
        if len(shape) == 2 and self.covariances.min() <= 0:  # noqa: PLR2004
            raise InvalidInputError(
                f"Variances must be positive. Got {self.covariances.min():.6g} instead."
            )

    def of_class(self, code: int) -> OfClass:
        """Distances of pairs whose neighbour is of that class, for `class_mahalanobis`."""
        if code >= len(self.covariances):
            raise InvalidInputError(
                f"labels of the neighbours must be below {len(self.covariances)}, the number of "
                f"covariances. Got {code} instead: search the support set that was fitted."
            )
        factor = lower_factor(self.covariances[code])
        return lambda pairs: pair_distances(pairs, factor), log_determinant_of(factor)


def class_covariance_weights(
    neighbors: Neighbors, queries: AnyArray, support: AnyArray, form: ClassCovariance
) -> FloatArray:
    """Weights of shape (n, k) for `nearsure.posterior.aggregate`, 0 on padding.

    The largest weight of each row is 1: the factor cancels, and nothing under- or overflows.

    Parameters
    ----------
    neighbors : Neighbors
        With ids that are rows of `support`.
    queries : array of shape (n, n_features)
        The vectors that were searched.
    support : array of shape (n_support, n_features)
        The vectors they were searched in.
    form : ClassCovariance
        What `fit_class_covariance` found.

    Examples
    --------
    Class 1 is wide along the second feature:

    >>> form = ClassCovariance(np.array([[1.0, 1.0], [1.0, 4.0]]), temperature=1.0)
    >>> found = Neighbors([[1.0, 4.0]], [[0, 1]], ids=[[0, 1]])
    >>> support = np.array([[1.0, 0.0], [0.0, 2.0]])
    >>> class_covariance_weights(found, np.array([[0.0, 0.0]]), support, form)
    array([[1. , 0.5]])
    """
    sq_distances, log_determinants = class_mahalanobis(neighbors, queries, support, form.of_class)
    exponents = -sq_distances / form.temperature
    exponents -= 0.5 * form.determinant_share * log_determinants
    return weights_of_exponents(exponents, neighbors)


def fit_class_covariance(
    neighbors: Neighbors,
    labels: ArrayLike,
    support: AnyArray,
    *,
    n_classes: int,
    kind: CovarianceKind = "diagonal",
    strength: float | None = None,
    determinant_share: float | None = None,
) -> ClassCovariance:
    """Measure the covariances of the classes, and fit T and s to leave-one-out points.

    A point's own share of the covariances is taken out before the point is scored by them; see
    `within_class_scatter`.

    Parameters
    ----------
    neighbors : Neighbors
        Neighbours of all support points in the support set, in its order, without the points
        themselves; with ids that are rows of `support`.
    labels : array of shape (n_support,)
        Class codes of the support set. Points whose class is not among their neighbours are left
        out of the likelihood.
    support : array of shape (n_support, n_features)
        The support vectors.
    n_classes : int
        Number of classes of the support set.
    kind : {"diagonal", "full"}
        Whether features are taken as independent within a class.
    strength : float, optional
        How many points the covariance common to all classes counts as against a class's own; by
        default the best of 10, 30, 100 and infinity, in likelihood.
    determinant_share : float, optional
        s; by default it is fitted. The paper's is 1.

    Returns
    -------
    ClassCovariance
    """
    codes = integer_codes(labels)
    if len(support) != len(neighbors):
        raise InvalidInputError(
            "neighbors must be those of all support points, in their order. "
            f"Got {len(neighbors)} rows for {len(support)} support vectors instead."
        )
    if strength is not None and not strength > 0:
        raise InvalidInputError(f"strength must be above 0. Got {strength!r} instead.")
    scatter = WithinClassScatter(support, codes, n_classes=n_classes, kind=kind)
    own = neighbors.labels == codes[:, None]
    hit = own.any(axis=1)
    if not hit.any():
        raise InvalidInputError(
            "No point has a neighbour of its own class, so these neighbours say nothing about T. "
            "Search more neighbours, or use classes of two or more members."
        )

    def fit(strength: float) -> tuple[float, float, float, float]:
        sq_distances, log_determinants = class_mahalanobis(
            neighbors, support, support, lambda code: scatter.without_the_point(code, strength)
        )
        loss = CovarianceLoss(sq_distances[hit], log_determinants[hit], own[hit])
        return (*_minimum(loss, determinant_share), strength)

    loss, temperature, share, best = min(
        fit(tried) for tried in (STRENGTHS if strength is None else (strength,))
    )
    covariances = np.stack([scatter.covariance(code, best) for code in range(n_classes)])
    return ClassCovariance(covariances, temperature, share, best, loss)


class CovarianceLoss:
    """Mean -log p(true class) and its gradient, as a function of (log T, s).

    Parameters
    ----------
    sq_distances, log_determinants : array of shape (n, k)
        What `class_mahalanobis` gave for leave-one-out points.
    own : array of shape (n, k)
        Which neighbours are of the point's own class; at least one in each row.
    """

    def __init__(
        self, sq_distances: FloatArray, log_determinants: FloatArray, own: BoolArray
    ) -> None:
        self._padding = np.isinf(sq_distances)
        nearest = sq_distances.min(axis=1, keepdims=True)
        self.excess = np.where(self._padding, 0.0, sq_distances - nearest)
        # Only differences matter, and smaller numbers round less.
        self._log_determinants = log_determinants - log_determinants[:, :1]
        self._own = own

    def __call__(self, parameters: AnyArray) -> tuple[float, FloatArray]:
        """Loss, and gradient of shape (2,)."""
        log_temperature, share = parameters.tolist()
        scaled = self.excess * np.exp(-log_temperature)
        exponents = -scaled - 0.5 * share * self._log_determinants
        exponents[self._padding] = -np.inf
        losses, pull = losses_and_pull(exponents, self._own)
        slopes = (scaled, -0.5 * self._log_determinants)
        return float(losses.mean()), np.array([np.vecdot(pull, s).mean() for s in slopes])


def _minimum(loss: CovarianceLoss, share: float | None) -> tuple[float, float, float]:
    """The least loss, and T and s at which it is."""
    positive = loss.excess[loss.excess > 0]
    typical = float(np.log(np.median(positive))) if positive.size else 0.0
    span = (0.0, 1.0) if share is None else (share, share)
    bounds = [(typical - LOG_TEMPERATURE_SPAN, typical + LOG_TEMPERATURE_SPAN), span]
    starts = [np.array([typical + np.log(t), np.clip(s, *span)]) for t, s in STARTS]
    ends = [minimize(loss, start, bounds=bounds) for start in starts]
    best = min(ends, key=lambda end: float(end.fun))
    return float(best.fun), float(np.exp(best.x[0])), float(best.x[1])
