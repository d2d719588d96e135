"""A dense matrix of probabilities from a posterior whose rows leave something over."""

import numpy as np

from nearsure.arrays import BoolArray, FloatArray
from nearsure.calibration.rescaled import JUST_BELOW
from nearsure.posterior import Posterior

# Probabilities that are filled in at a time, so that little more than the result is in memory.
BLOCK_ENTRIES = 1 << 20


def filled(
    posterior: Posterior, totals: FloatArray, possible: BoolArray | None = None
) -> FloatArray:
    """Probabilities of all classes; what a row lacks of its total goes to the others.

    A calibrated row sums to less than 1: the rest is the chance of a class that is not among the
    neighbours. It is shared evenly by the classes without an entry. No class rises above the top
    one, so that the most probable class stays the label; what is then left over goes to all
    classes as far as they lie below it.

    Parameters
    ----------
    posterior : Posterior
        Of n queries. The top class of a row has at least its total over the possible classes.
    totals : array of shape (n,)
        What each row shall sum to.
    possible : array of shape (n_classes,), optional
        Which classes can be the answer at all; by default every one.

    Returns
    -------
    array of shape (n, n_classes)

    Examples
    --------
    >>> filled(Posterior(np.array([0, 1]), np.array([2]), np.array([0.9]), 3), np.ones(1))
    array([[0.05, 0.05, 0.9 ]])
    """
    dense = np.empty((len(posterior), posterior.n_classes))
    step = max(1, BLOCK_ENTRIES // max(1, posterior.n_classes))
    for start in range(0, len(posterior), step):
        rows = slice(start, start + step)
        dense[rows] = _filled_block(
            posterior.take(np.arange(len(posterior))[rows]), totals[rows], possible
        )
    return dense


def _filled_block(
    posterior: Posterior, totals: FloatArray, possible: BoolArray | None
) -> FloatArray:
    dense: FloatArray = posterior.to_csr().toarray()
    absent = np.ones(dense.shape, np.bool_)
    absent[posterior.rows, posterior.codes] = False
    if possible is not None:
        absent &= possible
    top = posterior.confidence[:, None]
    missing = np.maximum(totals[:, None] - dense.sum(axis=1, keepdims=True), 0.0)
    n_absent = absent.sum(axis=1, keepdims=True)
    share = np.minimum(missing / np.maximum(n_absent, 1), JUST_BELOW * top)
    dense += np.where(absent, share, 0.0)
    missing = np.maximum(totals[:, None] - dense.sum(axis=1, keepdims=True), 0.0)
    room = np.maximum(JUST_BELOW * top - dense, 0.0)
    if possible is not None:
        room *= possible
    all_room = room.sum(axis=1, keepdims=True)
    part = np.divide(missing, all_room, out=np.zeros_like(missing), where=all_room > 0)
    return np.asarray(dense + room * np.minimum(part, 1.0), np.float64)
