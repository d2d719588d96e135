"""Sharpened NED: which neighbours count, and how sure the answer is, as two parameters.

    p(c | z) ~ n_c (sum over the k nearest i with y_i = c of exp(-|z - z_i|^2 / T(z)) / n_c)^gamma
    T(z) = T * (mean squared distance of z's k neighbours / what is typical)^beta

NED's one T decides both how far the vote reaches and how sharp the posterior is, and on real
embeddings the two need different values. With gamma the reach can be wide and the posterior sharp;
with beta a query that is far from everything, or in a sparse region, measures with its own scale.
n_c is the size of the class: what is sharpened is its density, and its frequency counts once. gamma
= 1 and beta = 0 is the paper's formula.
"""

from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real
from typing import ClassVar, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import ArrayLike

from nearsure import schema
from nearsure.arrays import FloatArray, IntArray
from nearsure.errors import InvalidInputError
from nearsure.minimization import minimize
from nearsure.neighbors import Neighbors
from nearsure.posterior import Posterior, aggregate
from nearsure.rules import check_temperature
from nearsure.temperature import TemperatureFit, fit_temperature
from nearsure.validation import integer_codes

FreeParameters = Literal["sharpened", "adaptive"]
SHARPENED_NAMES: tuple[FreeParameters, ...] = get_args(FreeParameters)


# A query on top of all its neighbours has scale 0; its excess distances are 0, too, and any
# temperature gives the same weights.
SMALLEST_RATIO = 1e-9
LARGEST = float(np.finfo(np.float64).max)


@dataclass(frozen=True)
class SharpenedNED(schema.Document):
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

    _owner: ClassVar = "The sharpened form"
    # Far beyond what a fit may find, and no power overflows.
    _table: ClassVar = {
        "temperature": schema.POSITIVE,
        "sharpness": schema.number("a number in [0.001, 1000]", 1e-3, 1e3),
        "adaptivity": schema.number("a number in [-100, 100]", -100.0, 100.0),
        "typical_distance": schema.POSITIVE,
    }
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
        """p(c | z) of queries, or of support points that are left out.

        Parameters
        ----------
        neighbors : Neighbors
            What a search returned, with the k that the parameters were fitted for.
        n_classes : int, optional
            Number of classes; by default one more than the largest code among the neighbours.
        class_sizes : array of shape (n_classes,), optional
            n_c; by default all classes are of one size.
        class_factors : array of shape (n_classes,), optional
            Of another prior than the frequencies; see `nearsure.forms.prior`.
        own_codes, own_factors : array of shape (n,), optional
            For support points: their classes, and what leaving the points out took from the sums of
            these; see `nearsure.loo`.
        """
        weights = self.weights(neighbors)
        if own_codes is not None and own_factors is not None:
            own = neighbors.labels == own_codes[:, None]
            weights *= np.where(own, own_factors[:, None], 1.0)
        if class_sizes is not None and self.sharpness != 1.0:
            # n_c^(1 - gamma) behind the power is this before it, and needs the sizes of the
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


# -log p(true class) of leave-one-out points under sharpened NED, with derivatives.
#
# Write s_i for a neighbour's distance beyond the nearest, r for a point's scale over the typical
# one, b = exp(-log T - beta log r), L_c = log of the sum of exp(-b s_i) over the neighbours of
# class c, and E_c[s] for the mean of s under the weights in that sum. With n_c for the size of
# class c, its logit is gamma (L_c - log n_c) + log n_c, so
#
#     d logit_c / d log T     = gamma b E_c[s]
#     d logit_c / d log gamma = gamma (L_c - log n_c)
#     d logit_c / d beta      = gamma b log r E_c[s]
#
# and d log p(y) is that of the true class's logit less its mean over the classes under p.


N_PARAMETERS = 3


class SharpenedLikelihood:
    """The loss of every point as a function of (log T, log gamma, beta).

    Parameters
    ----------
    neighbors : Neighbors
        Of points that are left out; each has a neighbour of its own class.
    labels : array of shape (n,)
        Class codes of the points.
    log_ratios : array of shape (n,)
        log r.
    own_factors : array of shape (n,)
        What the sum of the own class is multiplied by; see `nearsure.loo`.
    class_sizes : array of shape (n_classes,), optional
        n_c; by default 1 for all.
    """

    def __init__(
        self,
        neighbors: Neighbors,
        labels: IntArray,
        log_ratios: FloatArray,
        own_factors: FloatArray,
        class_sizes: IntArray | None = None,
    ) -> None:
        by_class = np.argsort(neighbors.labels, axis=1, kind="stable")
        codes = np.take_along_axis(neighbors.labels, by_class, axis=1)
        excess = neighbors.sq_distances - neighbors.sq_distances[:, :1]
        excess = np.take_along_axis(excess, by_class, axis=1)
        starts_class = np.ones(codes.shape, np.bool_)
        starts_class[:, 1:] = codes[:, 1:] != codes[:, :-1]
        # Padding has the smallest label and sorts first: a class of no weight, which is dropped.
        keep = np.take_along_axis(neighbors.valid, by_class, axis=1).ravel()
        starts = np.flatnonzero(starts_class.ravel()[keep])
        rows = np.repeat(np.arange(len(codes)), neighbors.counts)
        self._rows = rows[starts]
        self._row_starts = np.flatnonzero(np.diff(self._rows, prepend=-1))
        # Shifted by its class's nearest, no sum underflows, however far the class is.
        flat = excess.ravel()[keep]
        self._nearest = flat[starts]
        lengths = np.diff(starts, append=len(flat))
        # The nearest weighs 1, and has nothing to add up if it is alone, as most of many classes
        # are.
        several = lengths > 1
        self._several = np.flatnonzero(several)
        among = np.repeat(several, lengths)
        self._beyond = (flat - np.repeat(self._nearest, lengths))[among]
        self._row_of_entry = rows[among]
        self._starts = np.cumsum(lengths[several]) - lengths[several]
        class_of_run = codes.ravel()[keep][starts]
        is_true = class_of_run == labels[self._rows]
        self._true = np.flatnonzero(is_true)
        self._log_sizes = np.zeros(len(starts))
        if class_sizes is not None:
            self._log_sizes = np.log(np.maximum(class_sizes, 1))[class_of_run]
        corrections = np.where(is_true, np.log(own_factors)[self._rows], 0.0)
        self._log_factors = corrections - self._log_sizes
        self._log_ratios = log_ratios

    def __call__(self, parameters: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Losses of shape (n,) and their derivatives of shape (n, 3)."""
        log_temperature, log_sharpness, adaptivity = parameters
        sharpness = np.exp(log_sharpness)
        inverse = np.exp(-log_temperature - adaptivity * self._log_ratios)
        weights = np.exp(-inverse[self._row_of_entry] * self._beyond)
        log_sums, means = np.zeros((2, len(self._rows)))
        if self._several.size:
            sums = np.add.reduceat(weights, self._starts)
            moments = np.add.reduceat(weights * self._beyond, self._starts)
            log_sums[self._several], means[self._several] = np.log(sums), moments / sums
        by_class = inverse[self._rows]
        sharpened = sharpness * (log_sums - by_class * self._nearest + self._log_factors)
        logits = sharpened + self._log_sizes
        slopes = sharpness * by_class * (self._nearest + means)
        highest = np.maximum.reduceat(logits, self._row_starts)
        shares = np.exp(logits - highest[self._rows])
        totals = np.add.reduceat(shares, self._row_starts)
        shares /= totals[self._rows]
        losses = highest + np.log(totals) - logits[self._true]

        def mean_less_true(of_class: FloatArray) -> FloatArray:
            mean = np.add.reduceat(shares * of_class, self._row_starts)
            return np.asarray(mean - of_class[self._true], np.float64)

        by_temperature = mean_less_true(slopes)
        return losses, np.stack(
            [by_temperature, mean_less_true(sharpened), by_temperature * self._log_ratios], axis=1
        )


_Losses = Callable[[FloatArray], tuple[FloatArray, FloatArray]]
# Points whose losses are computed at a time, so that all that takes part stays in the cache.
BLOCK = 1000


def _in_blocks(
    neighbors: Neighbors,
    labels: IntArray,
    log_ratios: FloatArray,
    own_factors: FloatArray,
    class_sizes: IntArray | None,
) -> _Losses:
    """`SharpenedLikelihood`, to the last bit, in less time."""
    blocks = [
        SharpenedLikelihood(
            neighbors.take(rows), labels[rows], log_ratios[rows], own_factors[rows], class_sizes
        )
        for rows in (slice(start, start + BLOCK) for start in range(0, len(labels), BLOCK))
    ]

    def evaluate(parameters: FloatArray) -> tuple[FloatArray, FloatArray]:
        losses, slopes = zip(*(block(parameters) for block in blocks), strict=True)
        return np.concatenate(losses), np.concatenate(slopes)

    return evaluate


# Where the search starts, as (T over NED's, gamma, beta): NED itself, wider and sharper, narrower
# and flatter. The likelihood may have more than one valley, and a start in each costs little.
STARTS = ((1.0, 1.0, 0.0), (2.0, 2.0, 0.0), (2.5, 2.0, 1.0), (0.5, 0.6, 0.0))
# The starts only have to find the right valley, for which this many points are enough.
START_SAMPLE = 2000
# Of losses and slopes: when it is found, and at the end.
VALLEY_TOLERANCE, TOLERANCE = 1e-7, 1e-10
FACTOR_OF_TEMPERATURE = 100.0
# Beyond, the data (pairs of near-duplicates, say) tell T and gamma no longer apart.
SHARPNESS_RANGE = 0.2, 5.0
ADAPTIVITY_RANGE = -2.0, 4.0
# Without data gamma is 1 and beta is 0, give or take this much in log gamma and beta: as much as
# one observation: a handful of points cannot outweigh it, and beside a hundred it hardly counts.
PRIOR_SPREAD = 1.0


@dataclass(frozen=True)
class SharpenedFit(schema.Document):
    """A fitted form and what is known about it.

    Parameters
    ----------
    form : SharpenedNED
        The parameters.
    free : {"sharpened", "adaptive"}
        Which were fitted: T and gamma, or T, gamma and beta.
    loss, ned_loss : float
        Mean loss of the points used, under this form and under NED with its own best T.
    standard_errors : tuple of 3 floats or None
        Of log T, log gamma and beta (sandwich estimate); None where the data do not determine
        them, 0 for what was not free.
    start_losses : tuple of float
        What the searches ended at: equal numbers mean that every start found the same valley.
    temperature_fit : TemperatureFit
        NED's own fit, which it started from.
    """

    _owner: ClassVar = "The fit of the sharpened form"
    _table: ClassVar = {
        "form": schema.OBJECT,
        "free": schema.one_of(*SHARPENED_NAMES),
        "loss": schema.NUMBER,
        "ned_loss": schema.NUMBER,
        "standard_errors": schema.nullable(schema.list_of(schema.NUMBER, 3)),
        "start_losses": schema.list_of(schema.NUMBER),
        "temperature_fit": schema.OBJECT,
    }
    form: SharpenedNED
    free: FreeParameters
    loss: float
    ned_loss: float
    standard_errors: tuple[float, float, float] | None
    start_losses: tuple[float, ...]
    temperature_fit: TemperatureFit


def fit_sharpened(
    neighbors: Neighbors,
    labels: ArrayLike,
    *,
    free: FreeParameters = "adaptive",
    own_factors: FloatArray | None = None,
    class_sizes: IntArray | None = None,
    n_draws: int = 1,
    near: SharpenedNED | None = None,
    with_errors: bool = True,
) -> SharpenedFit:
    """Find the parameters under which the support points explain each other best.

    Points whose class is not among their neighbours have no likelihood under any parameters, and
    are left out, as in `fit_temperature`. Where that finds no minimum (separable data, one class,
    duplicates) there is nothing to sharpen: the form is NED at that temperature.

    Parameters
    ----------
    neighbors : Neighbors
        Neighbours of support points among the support set, without the points themselves.
    labels : array of shape (n,)
        Integer class codes of the points.
    free : {"sharpened", "adaptive"}
        Fit T and gamma, or T, gamma and beta.
    own_factors : array of shape (n,), optional
        See `nearsure.loo.own_class_factors`; by default all 1.
    class_sizes : array of shape (n_classes,), optional
        Members of each class in the support set; by default all classes are of one size.
    n_draws : int, default=1
        How often each point occurs, one draw of all points after the other: it counts once.
    near : SharpenedNED, optional
        Whose T and beta are taken as far as the points do not determine them; by default gamma is
        taken for 1 and beta for 0.
    with_errors : bool, default=True
        Whether standard errors are estimated.

    Returns
    -------
    SharpenedFit

    Warns
    -----
    ManyMissesWarning, DegenerateTemperatureWarning
        As `fit_temperature` does.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> labels = rng.integers(0, 2, (300, 9))
    >>> own = np.where(rng.random(300) < 0.8, labels[:, 0], labels[:, 4])
    >>> fit = fit_sharpened(Neighbors(np.sort(rng.random((300, 9))), labels), own)
    >>> bool(fit.loss <= fit.ned_loss)
    True
    """
    if free not in SHARPENED_NAMES:
        names = " or ".join(map(repr, SHARPENED_NAMES))
        raise InvalidInputError(f"free must be {names}. Got {free!r} instead.")
    codes = integer_codes(labels)
    one_draw = slice(0, len(codes) // n_draws)
    ned = fit_temperature(neighbors if n_draws == 1 else neighbors.take(one_draw), codes[one_draw])
    factors = np.ones(len(codes)) if own_factors is None else own_factors
    if factors.shape != codes.shape or not (factors >= 1).all():
        raise InvalidInputError(
            f"own_factors must be one number >= 1 for each of the {len(codes)} points. "
            f"Got an array of shape {factors.shape} instead."
        )
    typical = float(np.median(query_scales(neighbors))) or 1.0
    if ned.status != "interior":
        form = SharpenedNED(ned.temperature, typical_distance=typical)
        return SharpenedFit(form, free, ned.loss, ned.loss, None, (), ned)
    hit = (neighbors.labels == codes[:, None]).any(axis=1)
    neighbors, codes, factors = neighbors.take(hit), codes[hit], factors[hit]
    # In units of NED's own temperature no scale of the data overflows.
    scaled = Neighbors(
        neighbors.sq_distances / ned.temperature, neighbors.labels, counts=neighbors.counts
    )
    log_ratios = log_scale_ratios(query_scales(neighbors), typical)
    every = _in_blocks(scaled, codes, log_ratios, factors, class_sizes)
    some = slice(None, None, -(-len(codes) // START_SAMPLE))
    sample = every
    if len(codes[some]) < len(codes):
        sample = _in_blocks(
            scaled.take(some), codes[some], log_ratios[some], factors[some], class_sizes
        )
    # Lowest and highest (log T over NED's, log gamma, beta).
    reach = np.log(FACTOR_OF_TEMPERATURE)
    adaptivity = ADAPTIVITY_RANGE if free == "adaptive" else (0.0, 0.0)
    bounds = np.array([(-reach, reach), tuple(np.log(SHARPNESS_RANGE)), adaptivity])
    starts = [np.clip([np.log(t), np.log(g), b], *bounds.T) for t, g, b in STARTS]
    prior = _Prior(np.zeros(3), np.array([0.0, 1.0, 1.0]) * n_draws / PRIOR_SPREAD**2)
    if near is not None:
        centre = np.array([np.log(near.temperature / ned.temperature), 0.0, near.adaptivity])
        prior = _Prior(centre, np.array([1.0, 0.0, 1.0]) * n_draws / PRIOR_SPREAD**2)
    ends = sorted(
        (_descend(sample, start, bounds, prior, VALLEY_TOLERANCE) for start in starts),
        key=lambda end: end[1],
    )
    best, _ = _descend(every, ends[0][0], bounds, prior, TOLERANCE)
    form = SharpenedNED(
        temperature=float(ned.temperature * np.exp(best[0])),
        sharpness=float(np.exp(best[1])),
        adaptivity=float(best[2]),
        typical_distance=typical,
    )
    return SharpenedFit(
        form=form,
        free=free,
        loss=float(every(best)[0].mean()),
        ned_loss=float(every(np.zeros(3))[0].mean()),
        standard_errors=_standard_errors(every, best, bounds, n_draws) if with_errors else None,
        start_losses=tuple(loss for _, loss in ends),
        temperature_fit=ned,
    )


class _Prior(NamedTuple):
    """Normal about a centre, with one precision for each of (log T over NED's, log gamma, beta)."""

    centre: FloatArray
    precisions: FloatArray


def _descend(
    likelihood: _Losses,
    start: FloatArray,
    bounds: FloatArray,
    prior: _Prior,
    tolerance: float,
) -> tuple[FloatArray, float]:
    """The bottom of the valley about a start, and the penalised loss there."""

    def penalised(parameters: FloatArray) -> tuple[float, FloatArray]:
        losses, slopes = likelihood(parameters)
        away = parameters - prior.centre
        pull = prior.precisions * away / len(losses)
        penalty = float(pull @ away) / 2
        return float(losses.mean()) + penalty, slopes.mean(axis=0) + pull

    end = minimize(penalised, start, bounds=bounds.tolist(), tolerance=tolerance)
    return np.asarray(end.x, np.float64), float(end.fun)


def _standard_errors(
    likelihood: _Losses, parameters: FloatArray, bounds: FloatArray, n_draws: int
) -> tuple[float, float, float] | None:
    """Sandwich estimate: inverse curvature, variance of the slopes, inverse curvature."""
    free = np.flatnonzero(bounds[:, 0] < bounds[:, 1])
    if (np.abs(bounds[free] - parameters[free, None]) < np.array([1e-9])).any():
        return None  # at an end of the range there is no valley to measure
    step = 1e-4
    curvature = np.empty((len(free), len(free)))
    for row, parameter in enumerate(free):
        aside = np.zeros(3)
        aside[parameter] = step
        above, below = (likelihood(parameters + sign * aside)[1].mean(axis=0) for sign in (1, -1))
        curvature[row] = (above - below)[free] / (2 * step)
    slopes = likelihood(parameters)[1][:, free]
    try:
        inverse = np.linalg.inv((curvature + curvature.T) / 2)
    except np.linalg.LinAlgError:
        return None
    variances = np.diag(inverse @ (slopes.T @ slopes / len(slopes)) @ inverse) / len(slopes)
    # Draws of one point are no more than one point.
    variances = variances * n_draws
    if not (variances > 0).all():
        return None
    errors = np.zeros(3)
    errors[free] = np.sqrt(variances)
    first, second, third = errors.tolist()
    return first, second, third
