"""Temperature scaling of a whole posterior: every probability to one power."""

from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq

from nearsure.arrays import FloatArray, IntArray
from nearsure.calibration.plain_numbers import PlainNumbers, check_finite
from nearsure.errors import InvalidInputError
from nearsure.metrics.validation import check_labels
from nearsure.posterior import Posterior

# At the one end all classes of a row are as good as equal; at the other only the top one is left.
SMALLEST_EXPONENT, LARGEST_EXPONENT = 1e-3, 1e3
EXPONENT_TOLERANCE = 1e-9
# One standard error of a likelihood: what a parameter may cost before the data reject it.
ONE_STANDARD_ERROR_OF_LIKELIHOOD = 0.5


@dataclass(frozen=True)
class PosteriorTemperature(PlainNumbers):
    """p(c) to the power `exponent`, and normalized again; `fit` makes it.

    Above 1 it claims more, below 1 less. It takes any rule's posterior and changes neither labels
    nor ranking. Classes that have probability 0, or none, stay so. What a row leaves unassigned
    (it sums to less than 1) stays unassigned.

    Parameters
    ----------
    exponent : float
        Above 0; 1 / temperature.

    References
    ----------
    Guo, Pleiss, Sun, Weinberger: On Calibration of Modern Neural Networks. ICML 2017.

    Examples
    --------
    >>> posterior = Posterior(np.array([0, 2]), np.array([1, 0]), np.array([0.75, 0.25]), 2)
    >>> PosteriorTemperature(2.0)(posterior).probabilities
    array([0.9, 0.1])
    """

    name: ClassVar[str] = "posterior_temperature"
    exponent: float

    def __post_init__(self) -> None:
        check_finite("PosteriorTemperature", exponent=self.exponent)
        if self.exponent <= 0:
            raise InvalidInputError(
                "The 'exponent' of PosteriorTemperature must be above 0. "
                f"Got {self.exponent} instead: make it with PosteriorTemperature.fit."
            )

    @classmethod
    def fit(cls, posterior: Posterior, labels: ArrayLike) -> Self:
        """The exponent of greatest likelihood of the true classes.

        Points whose class has probability 0 have it at every exponent. They are left out, as in
        `fit_temperature`, and the exponent claims too much where they are many.

        The loss is convex. If it falls all the way (every true class is the top one: to infinity;
        the top ones are right no more often than the others: to 0), the answer is the exponent
        nearest to 1 that is not half a unit of log-likelihood worse than the limit, 1e3 or 1e-3.
        It is 1 where the exponent does not matter, as with one class in every row.

        Parameters
        ----------
        posterior : Posterior
            Probabilities of n points, each left out of its own neighbours.
        labels : array-like of shape (n,)
            Their true class codes.
        """
        codes = check_labels(labels, n_rows=len(posterior))
        hit = posterior.probability_of(codes) > 0
        if not hit.any():
            raise InvalidInputError(
                "No point's class has a probability above 0, so these posteriors say nothing about "
                "the exponent. Search more neighbours, or check that labels and posterior belong "
                "together."
            )
        loss = _Loss(posterior.take(hit), codes[hit])
        if loss.slope(LARGEST_EXPONENT) <= 0:
            return cls(_nearest_to_one(loss, LARGEST_EXPONENT))
        if loss.slope(SMALLEST_EXPONENT) >= 0:
            return cls(_nearest_to_one(loss, SMALLEST_EXPONENT))
        best = brentq(
            loss.slope, SMALLEST_EXPONENT, LARGEST_EXPONENT, xtol=EXPONENT_TOLERANCE, maxiter=500
        )
        return cls(float(best))

    @property
    def temperature(self) -> float:
        """What the logarithms of the probabilities are divided by."""
        return 1.0 / self.exponent

    def __call__(self, posterior: Posterior) -> Posterior:
        """The posterior of the same classes in the same order."""
        rows, n = posterior.rows, len(posterior)
        before = posterior.probabilities
        totals = np.bincount(rows, before, minlength=n)
        # Relative to the top class, whose power is then 1, no row underflows to nothing.
        relative = np.divide(
            before, posterior.confidence[rows], out=np.zeros_like(before), where=before > 0
        )
        powers = relative**self.exponent
        sums = np.bincount(rows, powers, minlength=n)
        after = np.divide(powers, sums[rows], out=np.zeros_like(powers), where=before > 0)
        probabilities = np.minimum(after * totals[rows], 1.0)
        return Posterior(posterior.indptr, posterior.codes, probabilities, posterior.n_classes)


class _Loss:
    """-log p(true class), summed over points, as a function of the exponent."""

    def __init__(self, posterior: Posterior, codes: IntArray) -> None:
        positive = posterior.probabilities > 0
        self._rows = posterior.rows[positive]
        self._n = len(posterior)
        true = np.log(posterior.probability_of(codes))
        # Log of each class's probability over that of the true class.
        self._excess: FloatArray = np.log(posterior.probabilities[positive]) - true[self._rows]
        self._largest = np.zeros(self._n)
        np.maximum.at(self._largest, self._rows, self._excess)

    def __call__(self, exponent: float) -> float:
        """The sum of log(sum of powers relative to the true class)."""
        return float((exponent * self._largest + np.log(self._sums(exponent)[1])).sum())

    def slope(self, exponent: float) -> float:
        powers, sums = self._sums(exponent)
        return float(((powers * self._excess) / sums[self._rows]).sum())

    def _sums(self, exponent: float) -> tuple[FloatArray, FloatArray]:
        powers: FloatArray = np.exp(exponent * (self._excess - self._largest[self._rows]))
        sums = np.bincount(self._rows, powers, minlength=self._n)
        return powers, np.asarray(sums, np.float64)


def _nearest_to_one(loss: _Loss, limit: float) -> float:
    """The exponent between 1 and a limit that is nearest to 1 and not rejected against it."""
    allowed = loss(limit) + ONE_STANDARD_ERROR_OF_LIKELIHOOD
    if loss(1.0) <= allowed:
        return 1.0
    return float(brentq(lambda exponent: loss(exponent) - allowed, 1.0, limit))
