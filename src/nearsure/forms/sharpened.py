"""Sharpened NED: which neighbours count and how sure the answer is, set apart.

    p(c | z) ~ n_c (sum over the k nearest i with y_i = c of exp(-|z - z_i|^2 / T(z)) / n_c)^gamma
    T(z) = T * (mean squared distance of z's k neighbours / what is typical)^beta

NED's one T must choose both how far the vote reaches and how sharp the posterior is, and on real
embeddings the two want different values. With gamma the reach can be wide and the posterior sharp;
with beta a query that is far from everything, or in a sparse region, measures with its own scale.
n_c is the size of the class: what is sharpened is its density, and its frequency counts once. gamma
= 1 and beta = 0 is the paper's formula.
"""

from dataclasses import asdict, dataclass
from numbers import Real
from typing import Any, Self

import numpy as np

from nearsure.arrays import FloatArray, IntArray
from nearsure.errors import InvalidInputError
from nearsure.neighbors import Neighbors
from nearsure.posterior import Posterior, aggregate
from nearsure.rules import check_temperature
from nearsure.schema import POSITIVE, check_fields, number

# A query on top of all its neighbours has scale 0; its excess distances are 0, too, and any
# temperature gives the same weights.
SMALLEST_RATIO = 1e-9
LARGEST = float(np.finfo(np.float64).max)
# Far beyond what a fit may find, and no power overflows.
_STORED = {
    "temperature": POSITIVE,
    "sharpness": number("a number in [0.001, 1000]", 1e-3, 1e3),
    "adaptivity": number("a number in [-100, 100]", -100.0, 100.0),
    "typical_distance": POSITIVE,
}


@dataclass(frozen=True)
class SharpenedNED:
    """The parameters of sharpened NED; `fit_sharpened` finds them.

    Parameters
    ----------
    temperature : float
        T, in units of a squared distance.
    sharpness : float
        gamma, above 0: 1 is NED's, more is surer.
    adaptivity : float
        beta: 0 is one temperature for all queries, 1 makes it proportional to a query's own scale.
    typical_distance : float
        Mean squared distance to the k neighbours at which T(z) is T.

    Examples
    --------
    >>> form = SharpenedNED(temperature=1.0, sharpness=2.0)
    >>> form.posterior(Neighbors([[0.0, 1.0, 4.0]], [[2, 0, 0]])).probabilities.round(3)
    array([0.87, 0.13])
    """

    temperature: float
    sharpness: float = 1.0
    adaptivity: float = 0.0
    typical_distance: float = 1.0

    def __post_init__(self) -> None:
        check_temperature(self.temperature)
        for name in ("sharpness", "typical_distance"):
            value = getattr(self, name)
            if not (_is_number(value) and 0 < value < np.inf):
                raise InvalidInputError(
                    f"{name} must be a finite number > 0. Got {value!r} instead."
                )
        if not (_is_number(self.adaptivity) and np.isfinite(self.adaptivity)):
            raise InvalidInputError(
                f"adaptivity must be a finite number. Got {self.adaptivity!r} instead."
            )

    def log_ratios(self, neighbors: Neighbors) -> FloatArray:
        """Logarithm of each query's scale over the typical one, shape (n,)."""
        return log_scale_ratios(query_scales(neighbors), self.typical_distance)

    def weights(self, neighbors: Neighbors) -> FloatArray:
        """exp(-excess / T(z)), shape (n, k), zero on padding; the nearest weighs 1."""
        excess = neighbors.sq_distances
        if not neighbors.is_full:
            excess = np.where(neighbors.valid, excess, 0.0)
        excess = np.maximum(excess - excess[:, :1], 0.0)
        # A tiny T(z) makes the quotient infinite and the weight exactly 0: no accident.
        with np.errstate(over="ignore", under="ignore"):
            inverse = np.exp(-self.adaptivity * self.log_ratios(neighbors)) / self.temperature
            weights = np.exp(-excess * np.minimum(inverse, LARGEST)[:, None])
        return weights if neighbors.is_full else np.where(neighbors.valid, weights, 0.0)

    def posterior(
        self,
        neighbors: Neighbors,
        *,
        n_classes: int | None = None,
        class_sizes: IntArray | None = None,
        class_factors: FloatArray | None = None,
        own_codes: IntArray | None = None,
        own_factors: FloatArray | None = None,
    ) -> Posterior:
        """p(c | z) of queries, or of support points that leave themselves out.

        Parameters
        ----------
        neighbors : Neighbors
            What a search returned, with the k that the parameters were fitted for.
        n_classes : int, optional
            Number of classes; by default one more than the largest code among the neighbours.
        class_sizes : array of shape (n_classes,), optional
            n_c; by default all classes are of one size.
        class_factors : array of shape (n_classes,), optional
            Of another prior than the frequencies; see `nearsure.forms.class_prior`.
        own_codes, own_factors : array of shape (n,), optional
            For support points: their classes, and what leaving themselves out took from the sums of
            these; see `nearsure.forms.left_out`.
        """
        weights = self.weights(neighbors)
        if own_codes is not None and own_factors is not None:
            own = neighbors.labels == own_codes[:, None]
            weights *= np.where(own, own_factors[:, None], 1.0)
        if class_sizes is not None and self.sharpness != 1.0:
            # n_c^(1 - gamma) behind the power is this before it, and asks for the sizes of the
            # neighbours' classes alone, however many there are.
            sizes = class_sizes[np.where(neighbors.valid, neighbors.labels, 0)]
            weights *= np.maximum(sizes, 1) ** (1.0 / self.sharpness - 1.0)
        return aggregate(
            neighbors,
            weights,
            n_classes=n_classes,
            sharpness=self.sharpness,
            class_factors=class_factors,
        )

    def to_dict(self) -> dict[str, Any]:
        """The parameters, for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> Self:
        """The inverse of `to_dict`; `ModelFileError` for anything else."""
        check_fields("The sharpened form", fields, _STORED)
        return cls(**fields)


def query_scales(neighbors: Neighbors) -> FloatArray:
    """Mean squared distance of each query's neighbours, shape (n,); 0 where it has none."""
    counts = np.maximum(neighbors.counts, 1)[:, None]
    # Divided first: the sum of distances may overflow where their mean does not.
    shares = neighbors.sq_distances / counts
    if not neighbors.is_full:
        shares = np.where(neighbors.valid, shares, 0.0)
    return np.asarray(shares.sum(axis=1), np.float64)


def log_scale_ratios(scales: FloatArray, typical: float) -> FloatArray:
    """Logarithm of scales over the typical one, of which none is 0."""
    smallest = np.finfo(np.float64).tiny
    ratios = np.log(np.maximum(scales, smallest)) - np.log(max(typical, smallest))
    return np.asarray(np.maximum(ratios, np.log(SMALLEST_RATIO)), np.float64)


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)
