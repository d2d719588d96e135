"""Class means in one metric: linear discriminant analysis, the parametric limit of NED.

The paper's theorem takes a class's density for a sum of kernels about its members. With one normal
density a class, all of one covariance S, the same argument gives

    log p(c | z) = log n_c - t / 2 (z - m_c)' inverse(S) (z - m_c) + constant,

which is linear in z. Embeddings are not normal, and the tails of a normal density are too thin for
them: t, fitted like NED's T, is what they are tempered by.

All of it comes from sums over points, which portions of a gallery add up to, and from which a point
can be taken out again exactly.
"""

from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import cholesky
from scipy.linalg.lapack import dtrtri

from nearsure.arrays import AnyArray, FloatArray, IntArray
from nearsure.heads.linear import LinearHead

# Beyond so many features, the metric has one variance for each, and no covariance.
MOST_CORRELATED = 2048
# What sums of squares leave of a variance of 0, relative to the squares; and the smallest variance
# whose inverse leaves weights that a file can keep.
ROUNDING, SMALLEST_VARIANCE = 1e-10, 1e-60
# Points that set the centre, and that are added up at a time.
PORTION = 2048


@dataclass(frozen=True, eq=False)
class Moments:
    """Sums over labelled points: counts, sums and squares about a centre.

    Parameters
    ----------
    centre : array of shape (d,)
        What is taken from every vector first, as squares of large numbers lose their last digits.
    counts : array of shape (n_classes,)
        Members.
    sums : array of shape (n_classes, d)
        Of the members' vectors.
    squares : array of shape (d, d) or (d,)
        Sum of the outer products of all vectors, or of their squares alone.
    n_features : int
        d, or more if vectors are coordinates within a `nearsure.heads.span.Span`.

    Examples
    --------
    >>> empty = Moments.empty(np.zeros(1), n_classes=2)
    >>> both = empty.add(np.array([[1.0], [3.0]]), np.array([0, 0]))
    >>> both.means[0]
    array([2.])
    >>> both.add(np.array([[3.0]]), np.array([0]), sign=-1).means[0]
    array([1.])
    """

    centre: FloatArray
    counts: FloatArray
    sums: FloatArray
    squares: FloatArray
    n_features: int

    @classmethod
    def empty(cls, centre: FloatArray, n_classes: int, n_features: int | None = None) -> "Moments":
        """Of no points; `n_features` is by default the length of the centre."""
        d = len(centre)
        squares = np.zeros((d, d) if d <= MOST_CORRELATED else d)
        sums = np.zeros((n_classes, d))
        return cls(centre, np.zeros(n_classes), sums, squares, n_features or d)

    def add(self, vectors: AnyArray, codes: IntArray, *, sign: int = 1) -> "Moments":
        """With more points, or without some of them (sign -1); the arrays are changed in place.

        Parameters
        ----------
        vectors, codes : array of shape (n, d) and (n,)
            The points, at most some thousand.
        sign : {1, -1}
            Whether they come or go.
        """
        if not len(codes):
            return self
        moved = np.asarray(vectors, np.float64) - self.centre
        order = np.argsort(codes, kind="stable")
        present, starts, sizes = np.unique(codes[order], return_index=True, return_counts=True)
        self.counts[present] += sign * sizes
        self.sums[present] += sign * np.add.reduceat(moved[order], starts, axis=0)
        if self.squares.ndim > 1:
            self.squares[...] += sign * (moved.T @ moved)
        else:
            self.squares[...] += sign * (moved**2).sum(axis=0)
        return self

    def __add__(self, other: "Moments") -> "Moments":
        return replace(
            self,
            counts=self.counts + other.counts,
            sums=self.sums + other.sums,
            squares=self.squares + other.squares,
        )

    def __sub__(self, other: "Moments") -> "Moments":
        return replace(
            self,
            counts=self.counts - other.counts,
            sums=self.sums - other.sums,
            squares=self.squares - other.squares,
        )

    @property
    def means(self) -> FloatArray:
        """Of each class, about the centre; 0 for one without members."""
        means: FloatArray = self.sums / np.maximum(self.counts, 1.0)[:, None]
        return means

    @property
    def covariance(self) -> FloatArray:
        """Of points about the means of their classes, of the shape of `squares`."""
        n_free = self.counts.sum() - (self.counts > 0).sum()
        # The product of a matrix with itself takes half the time of that of two.
        rooted = self.means * np.sqrt(self.counts)[:, None]
        correlated = self.squares.ndim > 1
        between = rooted.T @ rooted if correlated else (rooted**2).sum(axis=0)
        covariance: FloatArray = (self.squares - between) / max(1.0, n_free)
        return covariance

    @property
    def has_spread(self) -> bool:
        """Whether points differ from the means of their classes by more than rounding."""
        squares = np.diag(self.squares) if self.squares.ndim > 1 else self.squares
        spread = (squares - (self.means * self.sums).sum(axis=0)).mean()
        least = max(ROUNDING * squares.mean(), SMALLEST_VARIANCE * self.counts.sum())
        return bool(spread > least)


@dataclass(frozen=True, eq=False)
class ClassMeans:
    """Means in a metric; `fit_class_means` makes it.

    Parameters
    ----------
    means : array of shape (n_classes, d)
        About the centre; in single precision where classes are many, until they change.
    counts : array of shape (n_classes,)
        Members of each class.
    factor : array of shape (d, d) or (d,)
        B, with B B' the inverse of the covariance, so that points times B are whitened.
    scale : float
        t.
    centre : array of shape (d,)
        Of all points.
    """

    means: FloatArray
    counts: FloatArray
    factor: FloatArray
    scale: float
    centre: FloatArray

    def whiten(self, vectors: AnyArray) -> FloatArray:
        """Points in the metric: covariance about the class means is near 1."""
        moved = np.asarray(vectors, np.float64) - self.centre
        whitened: FloatArray = moved @ self.factor if self.factor.ndim > 1 else moved * self.factor
        return whitened

    def unwhiten(self, weights: FloatArray) -> FloatArray:
        """Weights of whitened points as weights of the points."""
        raw: FloatArray = weights @ self.factor.T if self.factor.ndim > 1 else weights * self.factor
        return raw

    def take(self, codes: IntArray) -> "ClassMeans":
        """Some of the classes."""
        return replace(self, means=self.means[codes], counts=self.counts[codes])

    def head(
        self, dtype: type[np.floating] = np.float64, out: FloatArray | None = None
    ) -> LinearHead:
        """The logits that means and metric give, with weights of a precision, in `out` if given."""
        means = self.means.astype(dtype, copy=False)
        factor = (np.sqrt(self.scale) * self.factor).astype(dtype)
        if factor.ndim == 1:
            weights = np.multiply(means, factor**2, out=out)
        elif len(means) > len(factor):
            # The inverse of the covariance first, where classes are more than features.
            weights = np.matmul(means, factor @ factor.T, out=out)
        else:
            weights = np.matmul(means @ factor, factor.T, out=out)
        with np.errstate(divide="ignore"):
            prior = np.log(self.counts)
        intercepts = prior - 0.5 * np.einsum("cd,cd->c", weights, means)
        return LinearHead(weights, intercepts, self.centre)

    def changed(
        self, vectors: AnyArray, codes: IntArray, n_classes: int, *, sign: int
    ) -> "ClassMeans":
        """With points added (sign 1) or removed (-1); the metric stays.

        Parameters
        ----------
        vectors, codes : array of shape (n, d) and (n,)
            The points.
        n_classes : int
            How many classes there are now.
        sign : {1, -1}
            Whether they come or go.
        """
        means = lengthen(np.asarray(self.means, np.float64), n_classes)
        counts = lengthen(self.counts, n_classes)
        touched = np.unique(codes)
        sums = means[touched] * counts[touched, None]
        moved = np.asarray(vectors, np.float64) - self.centre
        np.add.at(sums, np.searchsorted(touched, codes), sign * moved)
        np.add.at(counts, codes, float(sign))
        counts = np.maximum(counts, 0.0)
        means[touched] = sums / np.maximum(counts[touched], 1.0)[:, None]
        means[touched[counts[touched] == 0]] = 0.0
        return replace(self, means=means, counts=counts)


def lengthen(values: FloatArray, n: int) -> FloatArray:
    """A copy of an array of at least n rows; those that it has not are 0."""
    more = max(0, n - len(values))
    return np.pad(values, ((0, more), *[(0, 0)] * (values.ndim - 1)))


def fit_class_means(
    moments: Moments,
    shrinkage: float,
    scale: float = 1.0,
    *,
    covariance: FloatArray | None = None,
    is_widened: bool = False,
) -> ClassMeans:
    """Class means in the metric of the covariance that all classes share.

    Parameters
    ----------
    moments : Moments
        Of all points.
    shrinkage : float
        In (0, 1]: how much of a covariance that is the same in all directions is mixed in.
    scale : float
        t.
    covariance : array of shape (d, d) or (d,), optional
        Of points that have spread; by default that of all.
    is_widened : bool
        Whether the metric is one to fit weights in, see `find_factor`, and none of the means.

    Examples
    --------
    >>> points, codes = np.array([[0.0], [2.0], [9.0], [11.0]]), np.array([0, 0, 1, 1])
    >>> moments = Moments.empty(np.zeros(1), 2).add(points, codes)
    >>> head = fit_class_means(moments, shrinkage=0.5).head()
    >>> logits = head.logits(np.array([[5.5]]))[0]  # half way between the means 1 and 10
    >>> bool(logits[0] == logits[1])
    True
    """
    shared = moments.covariance if covariance is None else covariance
    factor = find_factor(shared, shrinkage, moments.n_features, is_widened=is_widened)
    return ClassMeans(moments.means, moments.counts, factor, scale, moments.centre)


def find_factor(
    covariance: FloatArray,
    shrinkage: float,
    n_features: int | None = None,
    *,
    is_widened: bool = False,
) -> FloatArray:
    """B, with B B' the inverse of a covariance, or of variances, that is shrunk.

    The usual variance is the mean over `n_features`, by default those of the covariance.

    Widened, the plain metric is added to it: B B' = inverse(S) + 1 / usual variance. Weights of
    points times B are sums of two, one penalised in either metric.
    """
    n_features = n_features or len(covariance)
    if covariance.ndim == 1:
        usual = float(covariance.sum()) / n_features
        shrunk = (1.0 - shrinkage) * np.maximum(covariance, 0.0) + shrinkage * usual
        return np.asarray(np.sqrt(1.0 / shrunk + is_widened / usual))
    usual = float(np.trace(covariance)) / n_features
    shrunk = (1.0 - shrinkage) * covariance
    shrunk[np.diag_indices_from(shrunk)] += shrinkage * usual
    # inverse(L L') = B B' with B = inverse(L').
    lower = cholesky(shrunk, lower=True, check_finite=False)
    inverse, _ = dtrtri(lower, lower=1)
    if not is_widened:
        return np.asarray(inverse.T)
    both = inverse.T @ inverse
    both[np.diag_indices_from(both)] += 1.0 / usual
    return np.asarray(cholesky(both, lower=True, check_finite=False))


def pool_covariance(vectors: AnyArray, codes: IntArray) -> FloatArray | None:
    """Covariance of points about the means of their classes; None if they lie on them.

    It is that of `Moments`, in one product in place of two.

    Examples
    --------
    >>> pool_covariance(np.array([[0.0], [2.0], [9.0], [11.0]]), np.array([0, 0, 1, 1]))
    array([[2.]])
    """
    order = np.argsort(codes, kind="stable")
    _, starts, sizes = np.unique(codes[order], return_index=True, return_counts=True)
    (n, d), n_classes = vectors.shape, len(starts)
    squares = np.zeros((d, d) if d <= MOST_CORRELATED else d)
    means = np.empty((n_classes, d))
    # Some classes at a time, in memory that is used again.
    portions = np.flatnonzero(np.diff(starts // PORTION)) + 1
    for some in np.split(np.arange(n_classes), portions):
        rows = order[starts[some[0]] : starts[some[-1]] + sizes[some[-1]]]
        moved = np.asarray(vectors[rows], np.float64)
        sums = np.add.reduceat(moved, starts[some] - starts[some[0]], axis=0)
        means[some] = sums / sizes[some, None]
        moved -= np.repeat(means[some], sizes[some], axis=0)
        squares += moved.T @ moved if d <= MOST_CORRELATED else (moved**2).sum(axis=0)
    within = float(np.trace(squares) if squares.ndim > 1 else squares.sum())
    means -= means.mean(axis=0)
    between = float(sizes @ np.vecdot(means, means))
    if within <= max(ROUNDING * (within + between), SMALLEST_VARIANCE * n * d):
        return None
    covariance: FloatArray = squares / max(1, n - n_classes)
    return covariance
