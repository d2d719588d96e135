"""A covariance for each class: the appendix's Sigma_j (eq:approx-conf-score).

A neighbour z_i of class j weighs exp(-d_i / T) / det(Sigma_j)^(s / 2), where
d_i = (z - z_i)' Sigma_j^-1 (z - z_i). In the paper s = 1; in many dimensions the determinant then
outweighs every distance, so s is fitted in [0, 1]. Sigma_j = I is NED.

The candidates stay the k nearest by Euclidean distance: this form weighs what a search found, and
finds nothing new.

Full covariances cost n_features^2 for each class in memory and n_features^3 in time: they suit a
few hundred features, and diagonal ones any number.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import minimize

from nearsure.arrays import AnyArray, BoolArray, FloatArray
from nearsure.errors import InvalidInputError
from nearsure.forms.log_sums import losses_and_pull, weights_of_exponents
from nearsure.forms.mahalanobis import (
    OfPairs,
    class_mahalanobis,
    log_determinant_of,
    lower_factor,
    pair_distances,
)
from nearsure.forms.within_class_scatter import CovarianceKind, WithinClassScatter
from nearsure.neighbors import Neighbors, integer_codes
from nearsure.rules import check_temperature

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

    def of_class(self, code: int) -> OfPairs:
        """Distances of pairs whose neighbour is of that class, for `class_mahalanobis`."""
        if code >= len(self.covariances):
            raise InvalidInputError(
                f"labels of the neighbours must be below {len(self.covariances)}, the number of "
                f"covariances. Got {code} instead: search the support set that was fitted."
            )
        covariance = self.covariances[code]
        factor = covariance if covariance.ndim == 1 else lower_factor(covariance)
        log_determinant = log_determinant_of(factor)
        return lambda pairs: (pair_distances(pairs, factor), np.full(len(pairs), log_determinant))


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

    A point's own share of the covariances is taken out before the point is judged by them; see
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

    def fitted(strength: float) -> tuple[float, float, float, float]:
        sq_distances, log_determinants = class_mahalanobis(
            neighbors, support, support, lambda code: scatter.without_the_point(code, strength)
        )
        loss = CovarianceLoss(sq_distances[hit], log_determinants[hit], own[hit])
        return (*_minimum(loss, determinant_share), strength)

    loss, temperature, share, best = min(
        fitted(tried) for tried in (STRENGTHS if strength is None else (strength,))
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
    best = min(
        (
            minimize(
                loss,
                np.array([typical + np.log(factor), np.clip(start, *span)]),
                jac=True,
                method="L-BFGS-B",
                bounds=[(typical - LOG_TEMPERATURE_SPAN, typical + LOG_TEMPERATURE_SPAN), span],
            )
            for factor, start in STARTS
        ),
        key=lambda found: float(found.fun),
    )
    return float(best.fun), float(np.exp(best.x[0])), float(best.x[1])
