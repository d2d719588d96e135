"""Evidence that a query is of a known class, and how dense the gallery is."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import logsumexp

from nearsure.arrays import AnyArray, BoolArray, FloatArray, IntArray
from nearsure.errors import InvalidInputError
from nearsure.neighbors import PADDING_LABEL, Neighbors
from nearsure.posterior import Posterior, score
from nearsure.rules import check_temperature
from nearsure.validation import integer_codes

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
        searched. Only support points that were left out need it: see `usual_log_mass`.
    mean_log_mass : float, optional
        Mean over all members of the gallery; by default that of `member_log_masses`.

    Examples
    --------
    >>> own = Neighbors([[1.0], [1.0], [4.0]], [[0], [0], [0]], ids=[[1], [0], [1]])
    >>> density = GalleryDensity.measure(own, [0, 1, 2], [0, 0, 1], temperature=1.0)
    >>> density.member_log_masses.round(2)  # the third, alone in its class, has the mean
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
        """Measure it on support points, each left out of its own neighbours.

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
        filled, class_means = _fill_missing(log_masses, codes)
        # Points that were not measured have the mean of their class: all members of a class count.
        present = sizes[: len(class_means)] > 0
        mean = np.average(class_means[present], weights=sizes[: len(class_means)][present])
        return cls(width, sizes, filled, reaches, float(mean))


def log_class_mass(neighbors: Neighbors, codes: IntArray, width: float) -> FloatArray:
    """Log of the sum of exp(-d / width) over neighbours of a class; -inf without one."""
    of_class = neighbors.labels == codes[:, None]
    with np.errstate(over="ignore"):
        exponents = np.where(of_class, -neighbors.sq_distances / width, -np.inf)
    return np.asarray(logsumexp(exponents, axis=1), np.float64)


def log_of_left_out_share(codes: IntArray, class_sizes: IntArray) -> FloatArray:
    """What leaving a point out costs its class, log(n / (n - 1)); 0 for a class of one."""
    sizes = class_sizes[codes].astype(np.float64)
    return -np.log1p(-1 / np.maximum(sizes, 2.0)) * (sizes > 1)


def _fill_missing(log_masses: FloatArray, codes: IntArray) -> tuple[FloatArray, FloatArray]:
    """Give points without a measure the mean of their class, or else of the gallery.

    Returned with the means by class.
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


def usual_log_mass(
    neighbors: Neighbors,
    weights: FloatArray,
    density: GalleryDensity,
    own_codes: IntArray | None = None,
) -> FloatArray:
    """Mean of the log-masses at the neighbours, shape (n,).

    Parameters
    ----------
    neighbors : Neighbors
        With ids that are row numbers of the gallery.
    weights : array of shape (n, k)
        How much each neighbour counts; 0 where it does not.
    density : GalleryDensity
        Of that gallery.
    own_codes : array of shape (n,), optional
        Class codes of the points, if they are support points that were left out. No query adds to
        the mass at its neighbours, so what the points added is taken out of it.

    Examples
    --------
    A class of three at 0, 1 and 3. At the second, the other two count; but where the first is the
    query, only the third counts, and its kernel then stands for all three.

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
        same_class = (neighbors.labels == own_codes[:, None]) & neighbors.valid & (weights > 0)
        log_masses = log_masses.copy()
        log_masses[same_class] = _remove_own_kernels(neighbors, ids, same_class, density)
    return np.asarray(np.einsum("nk,nk->n", weights, log_masses), np.float64)


def _remove_own_kernels(
    neighbors: Neighbors, ids: IntArray, same_class: BoolArray, density: GalleryDensity
) -> FloatArray:
    """Log-masses at neighbours of a point's class, as they would be without the point."""
    if density.reaches is None:
        raise InvalidInputError(
            "density must have reaches, or support points that left themselves out cannot be taken "
            "out of the mass about their neighbours. Got none: GalleryDensity.measure gives them."
        )
    rows, log_kernel = ids[same_class], -neighbors.sq_distances[same_class] / density.kernel_width
    codes, reaches = neighbors.labels[same_class], density.reaches[rows]
    with_it = density.member_log_masses[rows]
    counted = neighbors.sq_distances[same_class] <= reaches
    measured = with_it - log_of_left_out_share(codes, density.class_sizes)
    with np.errstate(divide="ignore", over="ignore"):
        rest = measured + np.log1p(-np.minimum(np.exp(log_kernel - measured), 1.0))
    # As in GalleryDensity: where no member of the class is within reach, the farthest stands in.
    rest = np.maximum(rest, -reaches / density.kernel_width)
    sizes = density.class_sizes[codes].astype(np.float64)
    pair = sizes <= 2  # noqa: PLR2004
    made_up = rest - np.log1p(-2 / np.where(pair, np.inf, sizes))
    made_up[pair] = density.mean
    return np.where(counted, made_up, with_it)


@dataclass(frozen=True, eq=False)
class Evidence:
    """Some numbers for each of n queries; the larger, the more likely a query is known.

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
    largest_logit : array of shape (n,), optional
        Of logistic regression beside the neighbours: how well the best class fits, on a scale that
        shares of the probability do not have. NaN where it has not seen the most probable class,
        and has no say.
    """

    log_mass: FloatArray
    relative_log_mass: FloatArray
    confidence: FloatArray
    largest_logit: FloatArray | None = None

    @property
    def _columns(self) -> tuple[FloatArray, ...]:
        near = (self.log_mass, self.relative_log_mass, self.confidence)
        return near if self.largest_logit is None else (*near, self.largest_logit)

    def __post_init__(self) -> None:
        columns = self._columns
        if any(column.shape != (len(self.log_mass),) for column in columns):
            raise InvalidInputError(
                "The parts of evidence must be arrays of one length. "
                f"Got shapes {', '.join(str(column.shape) for column in columns)} instead."
            )
        if any(np.isnan(column).any() for column in columns[:3]) or any(
            np.isposinf(column).any() for column in columns
        ):
            raise InvalidInputError("Evidence must be numbers. Got NaN or infinity instead.")

    def __len__(self) -> int:
        return len(self.log_mass)

    @property
    def matrix(self) -> FloatArray:
        """The columns, shape (n, 3) or, with logits, (n, 4)."""
        return np.stack(self._columns, axis=1)

    @property
    def seen(self) -> BoolArray:
        """Whether a query has a neighbour at all within reach of floating-point numbers."""
        return np.isfinite(self.log_mass)

    def take(self, rows: AnyArray) -> "Evidence":
        """The evidence of some of the queries, by index (repeats allowed) or mask."""
        return Evidence(*(column[rows] for column in self._columns))


def collect_evidence(
    neighbors: Neighbors,
    posterior: Posterior,
    density: GalleryDensity,
    *,
    own_codes: ArrayLike | None = None,
    with_logits: bool = False,
) -> Evidence:
    """Collect the evidence of queries from their neighbours and their posterior.

    Parameters
    ----------
    neighbors : Neighbors
        With ids that are row numbers of the gallery.
    posterior : Posterior
        p(c | known) of the same queries, by any rule.
    density : GalleryDensity
        Of that gallery.
    own_codes : array of shape (n,), optional
        Class codes of the points, if they are support points that were left out. Their class then
        lacked a member that it has for a query, and its mass is corrected for that; the mass at
        their neighbours is taken without them.
    with_logits : bool
        Whether the largest logit of the head beside the neighbours is evidence, too.

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
        correction = log_of_left_out_share(own, density.class_sizes)
        log_mass = log_mass + np.where(strongest == own, correction, 0.0)
    logits: FloatArray | None = None
    if with_logits and (scores := neighbors.class_scores) is not None:
        best = posterior.labels
        unheard = (best >= scores.n_known) | np.isin(best, scores.unheard)
        logits = np.where(unheard, np.nan, scores.largest_logits)
    return Evidence(log_mass, log_mass - usual, posterior.confidence, logits)
