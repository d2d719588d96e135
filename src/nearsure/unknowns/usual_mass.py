"""The mass that a class usually has where its members lie, about a query."""

import numpy as np

from nearsure.arrays import BoolArray, FloatArray, IntArray
from nearsure.errors import InvalidInputError
from nearsure.neighbors import Neighbors
from nearsure.unknowns.gallery_density import GalleryDensity, log_of_left_out_share


def usual_log_mass(
    neighbors: Neighbors,
    weights: FloatArray,
    density: GalleryDensity,
    own_codes: IntArray | None = None,
) -> FloatArray:
    """Mean of the log-masses that neighbours have themselves, shape (n,).

    Parameters
    ----------
    neighbors : Neighbors
        With ids that are row numbers of the gallery.
    weights : array of shape (n, k)
        How much each neighbour counts; 0 where it does not.
    density : GalleryDensity
        Of that gallery.
    own_codes : array of shape (n,), optional
        Class codes of the points, if they are support points that left themselves out. No query
        adds to the mass about its neighbours, so what they added is taken out of it.

    Examples
    --------
    A class of three at 0, 1 and 3. The second has two fellows, but to the first, who asks, only
    the third, whose kernel then stands for all three.

    >>> ids = [[1, 2], [0, 2], [1, 0]]
    >>> own = Neighbors([[1.0, 9.0], [1.0, 4.0], [4.0, 9.0]], [[0, 0]] * 3, ids)
    >>> density = GalleryDensity.measure(own, [0, 1, 2], [0] * 3, temperature=1.0, widening=1.0)
    >>> first, only_the_second = own.take([0]), np.array([[1.0, 0.0]])
    >>> usual_log_mass(first, only_the_second, density), np.log([3 / 2 * (np.exp(-1) + np.exp(-4))])
    (array([-0.54594754]), array([-0.54594754]))
    >>> usual_log_mass(first, only_the_second, density, np.array([0])), np.log([3 * np.exp(-4)])
    (array([-2.90138771]), array([-2.90138771]))
    """
    ids = np.where(neighbors.valid, np.asarray(neighbors.ids), 0)
    log_masses = density.member_log_masses[ids]
    if own_codes is not None:
        fellow = (neighbors.labels == own_codes[:, None]) & neighbors.valid & (weights > 0)
        log_masses = log_masses.copy()
        log_masses[fellow] = _without_the_asker(neighbors, ids, fellow, density)
    usual: FloatArray = np.einsum("nk,nk->n", weights, log_masses)
    return usual


def _without_the_asker(
    neighbors: Neighbors, ids: IntArray, fellow: BoolArray, density: GalleryDensity
) -> FloatArray:
    """Log-masses at fellows of a point as they would be if it were not in the gallery."""
    if density.reaches is None:
        raise InvalidInputError(
            "density must have reaches, or support points that left themselves out cannot be taken "
            "out of the mass about their neighbours. Got none: GalleryDensity.measure gives them."
        )
    rows, log_kernel = ids[fellow], -neighbors.sq_distances[fellow] / density.kernel_width
    codes, reaches = neighbors.labels[fellow], density.reaches[rows]
    with_it = density.member_log_masses[rows]
    counted = neighbors.sq_distances[fellow] <= reaches
    measured = with_it - log_of_left_out_share(codes, density.class_sizes)
    with np.errstate(divide="ignore", over="ignore"):
        rest = measured + np.log1p(-np.minimum(np.exp(log_kernel - measured), 1.0))
    # As in GalleryDensity: where nobody of the class is left within reach, the farthest stands in.
    rest = np.maximum(rest, -reaches / density.kernel_width)
    sizes = density.class_sizes[codes].astype(np.float64)
    pair = sizes <= 2  # noqa: PLR2004
    made_up = rest - np.log1p(-2 / np.where(pair, np.inf, sizes))
    made_up[pair] = density.mean
    return np.where(counted, made_up, with_it)
