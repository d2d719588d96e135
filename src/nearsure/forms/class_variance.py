"""A variance for each class: Sigma_j = alpha_j I (eq:approx-conf-score-identity-cov).

A neighbour of class j weighs exp(-|z - z_i|^2 / T_j) / T_j^(m / 2), where T_j = 2 alpha_j and m is
the dimension. The normaliser keeps a wide class from winning wherever nothing is near. With m the
number of features of an embedding it is enormous: a class that is wider by a tenth would lose a
factor of 10^5 in 256 dimensions. The vectors of a class do not fill their space, so m is an
effective dimension, fitted like the rest unless it is given.

Thousands of T_j cannot be fitted one by one. So T_j = T r_j^eta, where r_j is the class's own
scale, measured and shrunk, over the mean scale: three numbers to fit, and eta = 0 is NED.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from nearsure.arrays import AnyArray, BoolArray, FloatArray, IntArray
from nearsure.errors import InvalidInputError
from nearsure.forms.class_covariance import losses_and_pull, weights_of_exponents
from nearsure.minimization import minimize
from nearsure.neighbors import PADDING_LABEL, Neighbors
from nearsure.schema import Document
from nearsure.temperature import fit_temperature
from nearsure.validation import integer_codes


def class_scale_ratios(
    neighbors: Neighbors, codes: IntArray, *, n_classes: int
) -> tuple[FloatArray, FloatArray]:
    """Scale of each class over the mean scale, and what it is without each point itself.

    A point's scale is its squared distance to the nearest other member of its class; where none
    is among its neighbours, that to its farthest neighbour, which is not farther. A class's scale
    is the mean of its points', shrunk towards that of all: n_j points count n_j, and the mean of
    all counts as many as the spread within classes is larger than that between them (variances,
    by moments). Classes that differ by no more than chance all get 1.

    Parameters
    ----------
    neighbors : Neighbors
        Leave-one-out neighbours of n support points.
    codes : array of shape (n,)
        Their class codes.
    n_classes : int
        Number of classes, above every code.

    Returns
    -------
    ratios : array of shape (n_classes,)
        1 for a class without a known scale: of one member or none.
    own_ratios : array of shape (n,)
        The ratio of each point's own class, measured on its other points.

    Examples
    --------
    Two points of class 0 are near each other, two of class 1 are far:

    >>> pairs = Neighbors([[1.0], [1.0], [9.0], [9.0]], [[0], [0], [1], [1]])
    >>> class_scale_ratios(pairs, np.array([0, 0, 1, 1]), n_classes=2)[0]
    array([0.2, 1.8])
    """
    if codes.min() < 0 or codes.max() >= n_classes:
        raise InvalidInputError(
            f"codes must lie in [0, {n_classes}), the number of classes. "
            f"Got {codes.min()} to {codes.max()} instead."
        )
    own = neighbors.labels == codes[:, None]
    last = np.maximum(neighbors.counts - 1, 0)
    column = np.where(own.any(axis=1), own.argmax(axis=1), last)
    scales = np.take_along_axis(neighbors.sq_distances, column[:, None], axis=1)[:, 0]
    # A lone member has nothing to be near to, and a row of padding no distance at all.
    known = (np.bincount(codes, minlength=n_classes)[codes] > 1) & (neighbors.counts > 0)
    scales = np.where(known, scales, 0.0)
    counts = np.asarray(np.bincount(codes, known, minlength=n_classes), np.float64)
    sums = np.asarray(np.bincount(codes, scales, minlength=n_classes), np.float64)
    overall = sums.sum() / max(counts.sum(), 1.0)
    if overall == 0:
        return np.ones(n_classes), np.ones(len(codes))
    prior_points = _prior_points(scales, codes, known, counts, sums)
    if np.isinf(prior_points):
        return np.ones(n_classes), np.ones(len(codes))
    ratios = _shrink(sums / overall, counts, prior_points)
    own_ratios = _shrink(
        (sums[codes] - scales) / overall, np.where(known, counts[codes] - 1.0, 0.0), prior_points
    )
    # A class of exact duplicates has the scale 0; a kernel needs some width.
    smallest = ratios[ratios > 0].min()
    return np.maximum(ratios, smallest), np.maximum(own_ratios, smallest)


def _shrink(sums: FloatArray, counts: FloatArray, prior_points: float) -> FloatArray:
    weight = counts + prior_points
    return np.divide(sums + prior_points, weight, out=np.ones_like(weight), where=weight > 0)


def _prior_points(
    scales: FloatArray, codes: IntArray, known: BoolArray, counts: FloatArray, sums: FloatArray
) -> float:
    """Variance within classes over that between: the points that the overall mean counts as.

    The unbiased estimators of one-way analysis of variance, for classes of unequal size.
    """
    present = counts > 0
    n, n_present = counts.sum(), int(present.sum())
    if n_present < 2 or n <= n_present:  # noqa: PLR2004
        return np.inf
    means = np.divide(sums, counts, out=np.zeros_like(sums), where=present)
    within = np.where(known, scales - means[codes], 0.0)
    within_variance = float(np.vecdot(within, within)) / (n - n_present)
    effective_size = (n - np.square(counts).sum() / n) / (n_present - 1)
    between_square = float((counts * np.square(means - sums.sum() / n)).sum()) / (n_present - 1)
    between_variance = (between_square - within_variance) / effective_size
    return within_variance / between_variance if between_variance > 0 else np.inf


# r_j^2 would be twice as steep as the measured scales: no reason to go beyond.
LARGEST_ETA = 2.0
LARGEST_DIMENSION = 1000.0
# At eta = 0 the loss does not depend on the dimension; it has to be approached from elsewhere.
STARTS = ((0.05, 2.0), (0.5, 2.0), (0.5, 20.0), (1.0, 8.0))


@dataclass(frozen=True, eq=False)
class ClassVariance(Document):
    """A temperature for each class, T_j = T r_j^eta.

    Parameters
    ----------
    temperature : float
        T, that of a class of mean scale.
    eta : float
        How far T_j follows the class's scale; 0 is NED.
    dimension : float
        m of the normaliser T_j^(-m / 2), at least 0.
    scale_ratios : array of shape (n_classes,)
        r_j, positive; 1 for a class that nothing is known about.
    loss : float
        Mean -log p(true class) of the leave-one-out points used; NaN if given, not fitted.

    Examples
    --------
    >>> form = ClassVariance(2.0, eta=1.0, dimension=2.0, scale_ratios=np.array([1.0, 4.0]))
    >>> form.temperatures
    array([2., 8.])
    """

    temperature: float
    eta: float
    dimension: float
    scale_ratios: FloatArray
    loss: float = float("nan")

    @property
    def temperatures(self) -> FloatArray:
        """T_j, shape (n_classes,)."""
        return np.asarray(self.temperature * self.scale_ratios**self.eta, np.float64)


def class_variance_weights(neighbors: Neighbors, form: ClassVariance) -> FloatArray:
    """Weights of shape (n, k) for `nearsure.posterior.aggregate`, 0 on padding.

    The largest weight of each row is 1: the factor cancels, and nothing under- or overflows.

    Parameters
    ----------
    neighbors : Neighbors
        With labels below the form's number of classes.
    form : ClassVariance
        What `fit_class_variance` found.

    Examples
    --------
    >>> form = ClassVariance(1.0, eta=1.0, dimension=2.0, scale_ratios=np.array([1.0, 4.0]))
    >>> class_variance_weights(Neighbors([[1.0, 4.0]], [[0, 1]]), form)
    array([[1.  , 0.25]])
    """
    log_ratios = np.log(form.scale_ratios)[_class_places(neighbors, len(form.scale_ratios))]
    nearest = np.where(neighbors.counts > 0, neighbors.sq_distances[:, 0], 0.0)[:, None]
    inverse = np.exp(-form.eta * log_ratios) / form.temperature
    # Written about the nearest neighbour's distance, eta = 0 is NED to the last bit.
    with np.errstate(over="ignore", under="ignore"):
        exponents = -(neighbors.sq_distances - nearest) * inverse
        exponents -= nearest * (inverse - 1.0 / form.temperature)
        exponents -= 0.5 * form.dimension * form.eta * log_ratios
        return weights_of_exponents(exponents, neighbors)


def fit_class_variance(
    neighbors: Neighbors, labels: ArrayLike, *, n_classes: int, dimension: float | None = None
) -> ClassVariance:
    """Find T, eta and the dimension under which the support points explain each other best.

    A point's own distance takes part in the scale of its own class. For that point, and for no
    other, its class's scale is taken without it, or the fit would see its own answer.

    Parameters
    ----------
    neighbors : Neighbors
        Neighbours of support points among the support set, without the points themselves.
    labels : array of shape (n,)
        Class codes of the points. Those whose class is not among their neighbours are left out.
    n_classes : int
        Number of classes of the support set.
    dimension : float, optional
        m of the normaliser, such as the paper's number of features; by default it is fitted.

    Returns
    -------
    ClassVariance
        With eta = 0 where no other is better.

    Warns
    -----
    ManyMissesWarning, DegenerateTemperatureWarning
        As `fit_temperature`, which finds the T to start from.
    """
    codes = integer_codes(labels)
    common = fit_temperature(neighbors, codes)
    if dimension is not None and not 0 <= dimension < np.inf:
        raise InvalidInputError(
            "dimension must be a finite number of at least 0, such as the number of features. "
            f"Got {dimension!r} instead."
        )
    ratios, own_ratios = class_scale_ratios(neighbors, codes, n_classes=n_classes)
    without_classes = ClassVariance(
        common.temperature, 0.0, 0.0 if dimension is None else dimension, ratios, common.loss
    )
    if common.status != "interior":
        return without_classes
    loss = ClassVarianceLoss(neighbors, codes, np.log(ratios), np.log(own_ratios))
    log_temperature = np.log(common.temperature)
    best = without_classes
    span = (0.0, LARGEST_DIMENSION) if dimension is None else (dimension, dimension)
    bounds = [(log_temperature - 5.0, log_temperature + 5.0), (0.0, LARGEST_ETA), span]
    for eta, start in STARTS:
        first = np.array([log_temperature, eta, np.clip(start, *span)])
        found = minimize(loss, first, bounds=bounds)
        if found.fun < best.loss:
            log_t, found_eta, found_dimension = found.x.tolist()
            best = ClassVariance(
                float(np.exp(log_t)), found_eta, found_dimension, ratios, float(found.fun)
            )
    return best


class ClassVarianceLoss:
    """Mean -log p(true class) and its gradient, as a function of (log T, eta, m).

    With e_i the logarithm of a weight, the gradient of -log p(c) is E[de] - E_c[de], means under
    the weights over all neighbours and over those of class c.

    Parameters
    ----------
    neighbors, labels
        As of `fit_class_variance`.
    log_ratios : array of shape (n_classes,)
        log r_j.
    own_log_ratios : array of shape (n,)
        log r_j of each point's own class, measured without the point.
    """

    def __init__(
        self,
        neighbors: Neighbors,
        labels: IntArray,
        log_ratios: FloatArray,
        own_log_ratios: FloatArray,
    ) -> None:
        own = neighbors.labels == labels[:, None]
        hit = own.any(axis=1)
        self._own = own[hit]
        self._valid = neighbors.valid[hit]
        self._sq_distances = np.where(self._valid, neighbors.sq_distances[hit], 0.0)
        places = _class_places(neighbors, len(log_ratios))[hit]
        self._log_ratios = np.where(self._own, own_log_ratios[hit][:, None], log_ratios[places])

    def __call__(self, parameters: AnyArray) -> tuple[float, FloatArray]:
        """Loss, and gradient of shape (3,)."""
        log_temperature, eta, dimension = parameters.tolist()
        scaled = self._sq_distances * np.exp(-log_temperature - eta * self._log_ratios)
        exponents = -scaled - 0.5 * dimension * eta * self._log_ratios
        exponents[~self._valid] = -np.inf
        losses, pull = losses_and_pull(exponents, self._own)
        derivatives = (
            scaled,
            (scaled - 0.5 * dimension) * self._log_ratios,
            -0.5 * eta * self._log_ratios,
        )
        gradient = [float(np.vecdot(pull, slope).mean()) for slope in derivatives]
        return float(losses.mean()), np.array(gradient)


def _class_places(neighbors: Neighbors, n_classes: int) -> IntArray:
    """Labels to look up what a class has; padding looks up class 0, and weighs nothing."""
    if neighbors.labels.max() >= n_classes:
        raise InvalidInputError(
            f"labels of the neighbours must be below the number of classes, {n_classes}. "
            f"Got {neighbors.labels.max()} instead: search the support set that was fitted."
        )
    return np.where(neighbors.labels == PADDING_LABEL, 0, neighbors.labels)
