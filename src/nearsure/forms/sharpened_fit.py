"""T, gamma and beta of sharpened NED, found together on the support set by one likelihood."""

from dataclasses import asdict, dataclass
from typing import Any, Literal, Self, get_args

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import minimize

from nearsure.arrays import FloatArray, IntArray
from nearsure.errors import InvalidInputError
from nearsure.forms.sharpened import SharpenedNED, log_scale_ratios, query_scales
from nearsure.forms.sharpened_objective import SharpenedLikelihood
from nearsure.neighbors import Neighbors, integer_codes
from nearsure.schema import NUMBER, OBJECT, check_fields, list_of, nullable, one_of
from nearsure.temperature import TemperatureFit, fit_temperature

FreeParameters = Literal["sharpened", "adaptive"]

# Where the search starts, as (T over NED's, gamma, beta): NED itself, wider and sharper, narrower
# and flatter. The likelihood may have more than one valley, and a start in each costs little.
STARTS = ((1.0, 1.0, 0.0), (2.0, 2.0, 0.0), (2.5, 2.0, 1.0), (0.5, 0.6, 0.0))
# The starts only have to find the right valley, for which this many points are enough.
START_SAMPLE = 2000
FACTOR_OF_TEMPERATURE = 100.0
# Beyond, the data (pairs of near-duplicates, say) tell T and gamma no longer apart.
SHARPNESS_RANGE = 0.2, 5.0
ADAPTIVITY_RANGE = -2.0, 4.0
# Without data gamma is 1 and beta is 0, give or take this much in log gamma and beta: as much as
# one observation says, which a handful of points cannot outvote, and a hundred do not feel.
PRIOR_SPREAD = 1.0
_STORED = {
    "form": OBJECT,
    "free": one_of(*get_args(FreeParameters)),
    "loss": NUMBER,
    "ned_loss": NUMBER,
    "standard_errors": nullable(list_of(NUMBER, 3)),
    "start_losses": list_of(NUMBER),
    "temperature_fit": OBJECT,
}


@dataclass(frozen=True)
class SharpenedFit:
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

    form: SharpenedNED
    free: FreeParameters
    loss: float
    ned_loss: float
    standard_errors: tuple[float, float, float] | None
    start_losses: tuple[float, ...]
    temperature_fit: TemperatureFit

    def to_dict(self) -> dict[str, Any]:
        """The fit as numbers, strings and lists, for JSON."""
        fields = asdict(self)
        return {**fields, "temperature_fit": self.temperature_fit.to_dict()}

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> Self:
        """The inverse of `to_dict`; `ModelFileError` for anything else."""
        check_fields("The fit of the sharpened form", fields, _STORED)
        errors = fields["standard_errors"]
        return cls(
            **{
                **fields,
                "form": SharpenedNED.from_dict(fields["form"]),
                "standard_errors": None if errors is None else tuple(errors),
                "start_losses": tuple(fields["start_losses"]),
                "temperature_fit": TemperatureFit.from_dict(fields["temperature_fit"]),
            }
        )


def fit_sharpened(
    neighbors: Neighbors,
    labels: ArrayLike,
    *,
    free: FreeParameters = "adaptive",
    own_factors: FloatArray | None = None,
    class_sizes: IntArray | None = None,
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
        See `nearsure.forms.left_out.own_class_factors`; by default all 1.
    class_sizes : array of shape (n_classes,), optional
        Members of each class in the support set; by default all classes are of one size.

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
    if free not in get_args(FreeParameters):
        names = " or ".join(map(repr, get_args(FreeParameters)))
        raise InvalidInputError(f"free must be {names}. Got {free!r} instead.")
    ned = fit_temperature(neighbors, labels)
    codes = integer_codes(labels)
    factors = _checked_factors(own_factors, len(codes))
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
    every = SharpenedLikelihood(scaled, codes, log_ratios, factors, class_sizes)
    some = slice(None, None, -(-len(codes) // START_SAMPLE))
    sample = every
    if len(codes[some]) < len(codes):
        sample = SharpenedLikelihood(
            scaled.take(some), codes[some], log_ratios[some], factors[some], class_sizes
        )
    bounds = _bounds(free)
    starts = [np.clip([np.log(t), np.log(g), b], *bounds.T) for t, g, b in STARTS]
    ends = sorted((_descended(sample, start, bounds) for start in starts), key=lambda end: end[1])
    best = ends[0][0]
    if sample is not every:
        best = _descended(every, best, bounds)[0]
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
        standard_errors=_standard_errors(every, best, bounds),
        start_losses=tuple(loss for _, loss in ends),
        temperature_fit=ned,
    )


def _checked_factors(own_factors: FloatArray | None, n: int) -> FloatArray:
    if own_factors is None:
        return np.ones(n)
    if own_factors.shape != (n,) or not (own_factors >= 1).all():
        raise InvalidInputError(
            f"own_factors must be one number >= 1 for each of the {n} points. "
            f"Got an array of shape {own_factors.shape} instead."
        )
    return own_factors


def _bounds(free: FreeParameters) -> FloatArray:
    """Lowest and highest (log T over NED's, log gamma, beta), shape (3, 2)."""
    reach = np.log(FACTOR_OF_TEMPERATURE)
    adaptivity = ADAPTIVITY_RANGE if free == "adaptive" else (0.0, 0.0)
    return np.array([(-reach, reach), tuple(np.log(SHARPNESS_RANGE)), adaptivity])


def _descended(
    likelihood: SharpenedLikelihood, start: FloatArray, bounds: FloatArray
) -> tuple[FloatArray, float]:
    """The bottom of the valley about a start, and the penalised loss there."""

    def penalised(parameters: FloatArray) -> tuple[float, FloatArray]:
        losses, slopes = likelihood(parameters)
        pull = np.array([0.0, parameters[1], parameters[2]]) / PRIOR_SPREAD**2 / len(losses)
        penalty = float(pull @ parameters) / 2
        return float(losses.mean()) + penalty, slopes.mean(axis=0) + pull

    end = minimize(penalised, start, jac=True, bounds=bounds.tolist(), method="L-BFGS-B", tol=1e-10)
    return np.asarray(end.x, np.float64), float(end.fun)


def _standard_errors(
    likelihood: SharpenedLikelihood, parameters: FloatArray, bounds: FloatArray
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
    if not (variances > 0).all():
        return None
    errors = np.zeros(3)
    errors[free] = np.sqrt(variances)
    first, second, third = errors.tolist()
    return first, second, third
