"""How sure a whole row of a posterior is, and not its label alone."""

import numpy as np

from nearsure.arrays import FloatArray
from nearsure.posterior import Posterior


def certainty(posterior: Posterior) -> FloatArray:
    """Negative entropy of each row, in nats: 0 if it is sure, the lower the less sure.

    What a row lacks of 1, as a calibrated one may, is a class more that nobody voted for. If it
    lacks more than the label has, it is as many such classes as it takes for none to be more
    probable than the label: a row that gives its label next to nothing is not sure of the rest.

    Parameters
    ----------
    posterior : Posterior
        Probabilities of n queries.

    Returns
    -------
    array of shape (n,)
        Minus infinity for a query without neighbours, or with no confidence at all.

    Examples
    --------
    >>> rows = Posterior(np.array([0, 1, 3]), np.array([0, 0, 1]), np.array([0.5, 0.5, 0.5]), 3)
    >>> certainty(rows)  # the first one lacks a half
    array([-0.69314718, -0.69314718])
    """
    top = posterior.confidence
    sure_of_something = top > 0
    assigned = np.bincount(posterior.rows, posterior.probabilities, minlength=len(posterior))
    lacking = np.maximum(1.0 - assigned, 0.0)
    n_as_top = np.floor(np.divide(lacking, top, out=np.zeros_like(top), where=sure_of_something))
    last = np.maximum(lacking - n_as_top * top, 0.0)
    entropy = posterior.entropy + n_as_top * _surprise(top) + _surprise(last)
    # 0 - 0 is 0, where -0 would be another text for the same number.
    return np.where(sure_of_something, 0.0 - entropy, -np.inf)


def _surprise(p: FloatArray) -> FloatArray:
    return np.asarray(-p * np.log(p, out=np.zeros_like(p), where=p > 0), np.float64)
