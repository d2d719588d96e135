"""Accuracy: how often the prediction is right."""

from numpy.typing import ArrayLike

from nearsure.metrics.traits import declare
from nearsure.metrics.validation import check_correct


@declare(0.0, 1.0)
def accuracy(correct: ArrayLike) -> float:
    """Return the fraction of rows that are right.

    Parameters
    ----------
    correct : array-like of shape (n,)
        Whether each prediction is right: boolean, or 0 and 1.

    Returns
    -------
    float
        The accuracy, in [0, 1].

    Examples
    --------
    >>> accuracy([True, True, False, True])
    0.75
    """
    return float(check_correct(correct).mean())
