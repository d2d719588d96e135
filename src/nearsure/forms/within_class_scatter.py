"""Covariances of classes, each shrunk towards what the classes have in common.

With A_j the scatter of class j about its mean, n_j its size, A = sum A_j, N points and C classes,

    pooled   P = (1 - a) A / (N - C) + a v I    a by Ledoit and Wolf, v the mean variance
    class    Sigma_j = (1 - w_j) P + w_j A_j / (n_j - 1),    w_j = (n_j - 1) / (n_j - 1 + strength)

so that a class of as many points as the strength counts about half. P is positive definite, and
so is every Sigma_j.

A support point shapes the covariances by which it is judged. Without point i of class j,

    A_j and A lose  n_j / (n_j - 1)  u u'    with u = z_i - mean of class j,

so every covariance loses a multiple of u u', and no class has to be measured anew. What is kept as
it was: a and v, on which one point has next to no influence; w_j, because a class that trusts
itself less is thereby wider where it has no points; and the determinant, because a class of one
point less has one direction less to be wide in. By either, a point's own class would stand out
from all others by the very fact that a point was taken out of it.

References
----------
O. Ledoit, M. Wolf, A well-conditioned estimator for large-dimensional covariance matrices, Journal
of Multivariate Analysis 88(2), 2004.
J. H. Friedman, Regularized discriminant analysis, JASA 84(405), 1989: classes shrunk to the pool.
"""

from typing import Literal, get_args

import numpy as np
from sklearn.covariance import ledoit_wolf_shrinkage

from nearsure.arrays import AnyArray, BoolArray, FloatArray, IntArray
from nearsure.errors import InvalidInputError
from nearsure.forms.mahalanobis import (
    OfPairs,
    PairDistances,
    Pairs,
    log_determinant_of,
    lower_factor,
    pair_distances,
)

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
        check_kind(kind)
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

    def without_the_point(self, code: int, strength: float) -> OfPairs:
        """Distances of support points to members of a class, as if the points were not there.

        Parameters
        ----------
        code : int
            The neighbours' class.
        strength : float
            As of `covariance`.

        Returns
        -------
        callable
            For `class_mahalanobis`, where the queries are the support points in their order.
        """
        count = int(self.counts[code])
        pooled = self._pooled(self._degrees - 1)
        scatter = self._class_scatter(code)
        weight = _weight(count, strength)
        of_pool = (1.0 - weight) * (1.0 - self._shrinkage) / (self._degrees - 1)
        of_own = weight / max(count - 2, 1)
        other_factor = self._factor((1.0 - weight) * pooled + weight / max(count - 1, 1) * scatter)
        log_determinant = log_determinant_of(self._factor(self.covariance(code, strength)))
        own_factor = self._factor((1.0 - weight) * pooled + of_own * scatter)

        def of_pairs(pairs: Pairs) -> PairDistances:
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
            return sq_distances, np.full(len(pairs), log_determinant)

        return of_pairs

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

    def _factor(self, covariance: FloatArray) -> FloatArray:
        return lower_factor(covariance) if self._kind == "full" else covariance


def check_kind(kind: str) -> None:
    """Raise an error that names the kinds if `kind` is not one of them."""
    if kind not in get_args(CovarianceKind):
        names = ", ".join(repr(name) for name in get_args(CovarianceKind))
        raise InvalidInputError(f"kind must be one of {names}. Got {kind!r} instead.")


def _weight(count: int, strength: float) -> float:
    """w_j, 0 for a class of one member, which has no scatter."""
    return (count - 1) / (count - 1 + strength) if count > 1 else 0.0
