"""The span of points that are fewer than their features: what heads are fitted in.

Means, scatter and the weights of logistic regression are sums of points, and a shrunk covariance is
the same in all directions that no point has. So a head of n points that is fitted in their n
coordinates is that of all d, and takes (n / d)^3 of the time.
"""

from dataclasses import dataclass, replace

import numpy as np

from nearsure.arrays import AnyArray, FloatArray
from nearsure.heads.class_means import ClassMeans
from nearsure.heads.fitted_head import FittedHead
from nearsure.heads.linear import LinearHead


@dataclass(frozen=True, eq=False)
class Span:
    """Coordinates of points within the directions that they have.

    Parameters
    ----------
    basis : array of shape (d, n)
        Orthonormal columns.
    centre : array of shape (d,)
        The origin of the coordinates.

    Examples
    --------
    >>> span = Span.of_points(np.array([[1.0, 5.0, 2.0], [1.0, 8.0, 6.0]]))
    >>> within = span.reduce(np.array([[1.0, 5.0, 2.0], [1.0, 8.0, 6.0]]))
    >>> within.shape, np.linalg.norm(within[0] - within[1]).round(9)
    ((2, 2), np.float64(5.0))
    """

    basis: FloatArray
    centre: FloatArray

    @classmethod
    def of_points(cls, vectors: AnyArray) -> "Span":
        """Of points of shape (n, d) with n < d; some may be copies of others."""
        centre = vectors.mean(axis=0, dtype=np.float64)
        basis, _ = np.linalg.qr((vectors - centre).T)
        return cls(basis, centre)

    def reduce(self, vectors: AnyArray) -> FloatArray:
        """Coordinates of points, shape (n, n)."""
        within: FloatArray = (vectors - self.centre) @ self.basis
        return within

    def expand(self, head: FittedHead, beyond: float) -> FittedHead:
        """A head of coordinates as one of all features.

        Parameters
        ----------
        head : FittedHead
            Fitted on what `reduce` gave.
        beyond : float
            What the factor of its means is along directions that no point has.
        """
        means = None if head.means is None else self._expand_means(head.means, beyond)
        return replace(
            head,
            full=self._expand_linear(head.full).rounded() if means is None else means.head(),
            folds=tuple(self._expand_linear(each).rounded() for each in head.folds),
            means=means,
            class_folds=tuple(self._expand_linear(each).rounded() for each in head.class_folds),
        )

    def _expand_linear(self, head: LinearHead) -> LinearHead:
        return LinearHead(
            head.weights @ self.basis.T, head.intercepts, self._expand_centre(head.centre)
        )

    def _expand_means(self, means: ClassMeans, beyond: float) -> ClassMeans:
        factor = self.basis @ means.factor @ self.basis.T
        factor -= beyond * (self.basis @ self.basis.T)
        factor[np.diag_indices_from(factor)] += beyond
        centre = self._expand_centre(means.centre)
        return replace(means, means=means.means @ self.basis.T, factor=factor, centre=centre)

    def _expand_centre(self, centre: FloatArray) -> FloatArray:
        moved: FloatArray = self.centre + self.basis @ centre
        return moved
