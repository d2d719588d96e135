"""What speaks for a query being of a class of the gallery, and what against."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from nearsure.arrays import AnyArray, BoolArray, FloatArray
from nearsure.errors import InvalidInputError
from nearsure.neighbors import PADDING_LABEL, Neighbors, integer_codes
from nearsure.posterior import Posterior, score
from nearsure.unknowns.gallery_density import (
    GalleryDensity,
    log_class_mass,
    log_of_left_out_share,
)
from nearsure.unknowns.usual_mass import usual_log_mass


@dataclass(frozen=True, eq=False)
class Evidence:
    """Three numbers for each of n queries; the larger, the more likely a query is known.

    Confidence alone is not enough: it is relative, and a query far from everything may be of one
    class with confidence 1 because that class is a little less far. Mass is absolute.

    Parameters
    ----------
    log_mass : array of shape (n,)
        Log-mass of the strongest class at the query, the one with the largest mass; -inf for a
        query without neighbours.
    relative_log_mass : array of shape (n,)
        The same less what it is on average at that class's own members nearby: about 0 for one
        more member, whether its class is dense or sparse.
    confidence : array of shape (n,)
        p(c | known) of the most probable class, from the posterior. Its rule and temperature may
        name another class than the strongest.
    """

    log_mass: FloatArray
    relative_log_mass: FloatArray
    confidence: FloatArray

    def __post_init__(self) -> None:
        columns = (self.log_mass, self.relative_log_mass, self.confidence)
        if any(column.shape != (len(self.log_mass),) for column in columns):
            raise InvalidInputError(
                "The parts of evidence must be arrays of one length. "
                f"Got shapes {', '.join(str(column.shape) for column in columns)} instead."
            )
        if any(np.isnan(column).any() or np.isposinf(column).any() for column in columns):
            raise InvalidInputError("Evidence must be numbers. Got NaN or infinity instead.")

    def __len__(self) -> int:
        return len(self.log_mass)

    @property
    def matrix(self) -> FloatArray:
        """The three columns, shape (n, 3)."""
        return np.stack([self.log_mass, self.relative_log_mass, self.confidence], axis=1)

    @property
    def seen(self) -> BoolArray:
        """Whether a query has a neighbour at all within reach of floating-point numbers."""
        return np.isfinite(self.log_mass)

    def take(self, rows: AnyArray) -> "Evidence":
        """The evidence of some of the queries, by index (repeats allowed) or mask."""
        return Evidence(self.log_mass[rows], self.relative_log_mass[rows], self.confidence[rows])


def collect_evidence(
    neighbors: Neighbors,
    posterior: Posterior,
    density: GalleryDensity,
    *,
    own_codes: ArrayLike | None = None,
) -> Evidence:
    """Evidence of queries from their neighbours and what a rule makes of them.

    Parameters
    ----------
    neighbors : Neighbors
        With ids that are row numbers of the gallery.
    posterior : Posterior
        p(c | known) of the same queries, by any rule.
    density : GalleryDensity
        Of that gallery.
    own_codes : array of shape (n,), optional
        Class codes of the points, if they are support points that left themselves out. Their
        class then lacked a member that it has for a query, and its mass is made up for that; and
        the mass about their neighbours is taken without them.

    Returns
    -------
    Evidence

    Examples
    --------
    >>> from nearsure import score
    >>> density = GalleryDensity(3.0, np.array([2, 1]), np.array([0.4, 0.4, 0.4]))
    >>> near_and_far = Neighbors([[0.3, 6.0], [30.0, 60.0]], [[0, 1], [0, 1]], [[0, 2], [0, 2]])
    >>> evidence = collect_evidence(near_and_far, score(near_and_far, temperature=1.0), density)
    >>> evidence.confidence.round(3), evidence.relative_log_mass.round(1)
    (array([0.997, 1.   ]), array([ -0.5, -10.4]))
    """
    if neighbors.ids is None or neighbors.ids.dtype.kind not in "iu":
        raise InvalidInputError(
            "neighbors must have ids that are row numbers of the gallery, by which the density "
            "about each neighbour is found. Got none: pass ids= to the constructor of Neighbors."
        )
    if len(posterior) != len(neighbors):
        raise InvalidInputError(
            f"posterior must be of the {len(neighbors)} queries of the neighbours. "
            f"Got one of {len(posterior)} instead."
        )
    strongest = score(neighbors, temperature=density.kernel_width).labels
    log_mass = log_class_mass(neighbors, strongest, density.kernel_width)
    log_mass[strongest == PADDING_LABEL] = -np.inf
    of_strongest = (neighbors.labels == strongest[:, None]) & neighbors.valid
    with np.errstate(invalid="ignore", over="ignore", under="ignore"):
        exponents = -neighbors.sq_distances / density.kernel_width - log_mass[:, None]
        weights = np.where(of_strongest & np.isfinite(exponents), np.exp(exponents), 0.0)
    largest = np.where(neighbors.valid, neighbors.ids, 0).max()
    if largest >= len(density.member_log_masses):
        raise InvalidInputError(
            f"ids must be row numbers of the {len(density.member_log_masses)} support points. "
            f"Got {largest} instead."
        )
    own = None if own_codes is None else integer_codes(own_codes)
    usual = usual_log_mass(neighbors, weights, density, own)
    if own is not None:
        log_mass = log_mass + np.where(
            strongest == own, log_of_left_out_share(own, density.class_sizes), 0.0
        )
    return Evidence(log_mass, log_mass - usual, posterior.confidence)
