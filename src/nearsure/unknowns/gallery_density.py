"""How densely each class of the gallery lies about its own members."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import logsumexp

from nearsure.arrays import FloatArray, IntArray
from nearsure.errors import InvalidInputError
from nearsure.neighbors import Neighbors, integer_codes
from nearsure.rules import check_temperature

# Evidence of being known needs a wider view than the choice between classes: on sentences and on
# birds, 3 T separated known from unknown better than T (and 2 T and 4 T nearly as well).
WIDENING = 3.0


@dataclass(frozen=True, eq=False)
class GalleryDensity:
    """Log-mass that the class of each support point has at that point.

    The mass of a class at z is the sum of exp(-|z - z_i|^2 / W) over its members among the
    neighbours of z: what NED divides by that of all classes, left undivided.

    Parameters
    ----------
    kernel_width : float
        W, in units of a squared distance.
    class_sizes : array of shape (n_classes,)
        How many members each class has.
    member_log_masses : array of shape (n_support,)
        Log-mass of a point's class at the point, as a query at its place would see it.
    reaches : array of shape (n_support,), optional
        Squared distance up to which neighbours were counted in it, -1 for a point that was not
        searched. Only support points that left themselves out need it: see `usual_log_mass`.
    mean_log_mass : float, optional
        Mean over all members of the gallery; by default that of `member_log_masses`.

    Examples
    --------
    >>> own = Neighbors([[1.0], [1.0], [4.0]], [[0], [0], [0]], ids=[[1], [0], [1]])
    >>> density = GalleryDensity.measure(own, [0, 1, 2], [0, 0, 1], temperature=1.0)
    >>> density.member_log_masses.round(2)  # the third has no fellow: it takes the mean of all
    array([0.36, 0.36, 0.36])
    """

    kernel_width: float
    class_sizes: IntArray
    member_log_masses: FloatArray
    reaches: FloatArray | None = None
    mean_log_mass: float | None = None

    @property
    def mean(self) -> float:
        """Mean log-mass over all members of the gallery."""
        if self.mean_log_mass is not None:
            return self.mean_log_mass
        return float(self.member_log_masses.mean())

    @classmethod
    def measure(
        cls,
        own_neighbors: Neighbors,
        own_ids: ArrayLike,
        support_labels: ArrayLike,
        *,
        temperature: float,
        widening: float = WIDENING,
        class_sizes: IntArray | None = None,
    ) -> "GalleryDensity":
        """Measure it on support points that leave themselves out.

        Parameters
        ----------
        own_neighbors : Neighbors
            Neighbours of support points, without the points themselves: see `leave_one_out`.
        own_ids : array of shape (n,)
            Row numbers of those points. The rest of the gallery takes the mean of its class.
        support_labels : array of shape (n_support,)
            Integer class codes of the gallery.
        temperature : float
            T of NED.
        widening : float
            W / T.
        class_sizes : array of shape (n_classes,), optional
            Members of each class, where `support_labels` are not those of the whole gallery: the
            points that were searched, and a stand-in of each class for those that were not.
        """
        codes, ids = integer_codes(support_labels), np.asarray(own_ids)
        if ids.shape != (len(own_neighbors),):
            raise InvalidInputError(
                f"own_ids must be one row number for each of the {len(own_neighbors)} points. "
                f"Got an array of shape {ids.shape} instead."
            )
        check_temperature(temperature)
        width = widening * temperature
        check_temperature(width)
        sizes = np.bincount(codes) if class_sizes is None else class_sizes
        own_codes = codes[ids]
        measured = log_class_mass(own_neighbors, own_codes, width)
        # The k-th neighbour is nearer than any member of a class that is not among the k.
        missed = np.isneginf(measured) & (own_neighbors.counts > 0)
        last = np.maximum(own_neighbors.counts - 1, 0)
        farthest = own_neighbors.sq_distances[np.arange(len(last)), last]
        measured[missed] = -farthest[missed] / width
        alone = (sizes[own_codes] == 1) | (own_neighbors.counts == 0)
        measured[alone] = np.nan
        log_masses = np.full(len(codes), np.nan)
        log_masses[ids] = measured + log_of_left_out_share(own_codes, sizes)
        reaches = np.full(len(codes), -1.0)
        reaches[ids] = np.where(alone, -1.0, farthest)
        filled, class_means = _filled(log_masses, codes)
        # Who was not measured has the mean of its class: a class counts with all of its members.
        present = sizes[: len(class_means)] > 0
        mean = np.average(class_means[present], weights=sizes[: len(class_means)][present])
        return cls(width, sizes, filled, reaches, float(mean))


def log_class_mass(neighbors: Neighbors, codes: IntArray, width: float) -> FloatArray:
    """Log of the sum of exp(-d / width) over neighbours of the given class; -inf without one."""
    of_class = neighbors.labels == codes[:, None]
    with np.errstate(over="ignore"):
        exponents = np.where(of_class, -neighbors.sq_distances / width, -np.inf)
    log_mass: FloatArray = np.asarray(logsumexp(exponents, axis=1), np.float64)
    return log_mass


def log_of_left_out_share(codes: IntArray, class_sizes: IntArray) -> FloatArray:
    """What a point's own absence costs its class, log(n / (n - 1)); 0 for a class of one."""
    sizes = class_sizes[codes].astype(np.float64)
    return -np.log1p(-1 / np.maximum(sizes, 2.0)) * (sizes > 1)


def _filled(log_masses: FloatArray, codes: IntArray) -> tuple[FloatArray, FloatArray]:
    """Points without a measure take the mean of their class, or else of the gallery.

    Those means, by class, come second.
    """
    known = ~np.isnan(log_masses)
    if not known.any():
        raise InvalidInputError(
            "Some class must have two or more members, or known queries cannot be imitated. "
            "Got none whose point sees another one. Add a second member to some classes."
        )
    counts = np.bincount(codes, known)
    sums = np.bincount(codes, np.where(known, log_masses, 0.0))
    class_means = np.full(len(counts), log_masses[known].mean())
    np.divide(sums, counts, out=class_means, where=counts > 0)
    return np.where(known, log_masses, class_means[codes]), class_means
