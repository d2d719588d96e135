"""A calibrated confidence put back into the posterior that it came from."""

import numpy as np
from numpy.typing import ArrayLike

from nearsure.calibration.calibrator import asked_confidence
from nearsure.errors import InvalidInputError
from nearsure.posterior import Posterior

# A row that lacks less than this of 1 lacks it by rounding, and leaves nothing unassigned.
ROUNDING = 1e-12
# A class that would rise above the top one ends this little below it, so that the top stays the top
# in a dense matrix, too, where no order of entries says which of two equal ones it is.
JUST_BELOW = 1.0 - 1e-12


def with_confidence(posterior: Posterior, confidence: ArrayLike) -> Posterior:
    """The posterior with another confidence in each label, the label and the ranking unchanged.

    The top class gets the new confidence. What is left of 1 goes to the other classes in their old
    proportions, with two exceptions, in which a part stays unassigned and the row sums to less
    than 1:

    - No class may rise above the top one. A class that would ends just below it.
    - A row with one class only has no other to take the rest.

    What a row left unassigned before is one of those that share the rest. A query without
    neighbours has no class, and stays so whatever its confidence.

    Parameters
    ----------
    posterior : Posterior
        Probabilities of n queries.
    confidence : array-like of shape (n,)
        The new confidence in each label, in [0, 1].

    Returns
    -------
    Posterior
        Of the same classes in the same order.

    Examples
    --------
    >>> posterior = Posterior(np.array([0, 3]), np.array([4, 0, 2]), np.array([0.6, 0.3, 0.1]), 5)
    >>> with_confidence(posterior, [0.8]).probabilities.round(3)
    array([0.8 , 0.15, 0.05])
    >>> with_confidence(posterior, [0.4]).probabilities.round(3)  # 0.45 would be above the top
    array([0.4 , 0.4 , 0.15])
    """
    new = asked_confidence(confidence)
    if new.shape != (len(posterior),):
        raise InvalidInputError(
            f"The 'confidence' parameter must be one number for each of the {len(posterior)} "
            f"queries. Got an array of shape {new.shape} instead."
        )
    n, rows = len(posterior), posterior.rows
    has_top = np.diff(posterior.indptr) > 0
    top = posterior.indptr[:-1][has_top]
    others = posterior.probabilities.copy()
    others[top] = 0.0
    others_total = np.bincount(rows, others, minlength=n)
    unassigned = 1.0 - others_total - posterior.confidence
    rest = others_total + np.where(unassigned > ROUNDING, unassigned, 0.0)
    # Divided first: a rest of 1e-300 has no finite inverse.
    shares = np.divide(others, rest[rows], out=np.zeros_like(others), where=others > 0)
    probabilities = np.minimum(shares * (1.0 - new)[rows], JUST_BELOW * new[rows])
    probabilities[top] = new[has_top]
    return Posterior(posterior.indptr, posterior.codes, probabilities, posterior.n_classes)
