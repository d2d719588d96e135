"""Negative log-likelihood: the surprise at the true class."""

from math import inf

import numpy as np
from numpy.typing import ArrayLike

from nearsure.arrays import FloatArray
from nearsure.metrics.traits import declare
from nearsure.metrics.validation import check_labels, check_open_fraction
from nearsure.posterior import Posterior


@declare(0.0, inf)
def negative_log_likelihood(
    posterior: Posterior, labels: ArrayLike, *, floor: float | None = None
) -> float:
    """Return the mean over rows of -log p(true class), in nats.

    Parameters
    ----------
    posterior : Posterior
        Probabilities of n queries.
    labels : array-like of shape (n,)
        True class codes. A code that the row's posterior does not hold, or that is no class of it
        at all, is a class of probability 0.
    floor : float, optional
        Smallest probability that is scored, in (0, 1). By default nothing is raised to a floor, and
        **one row whose true class has probability 0 makes the result infinite**. That is common
        for nearest neighbours: the true class need not be among them. With a floor the value
        depends on it, so report the two together.

    Returns
    -------
    float
        The mean, at least 0; infinity if a true class has probability 0 and there is no floor.

    Examples
    --------
    >>> import numpy as np
    >>> from nearsure.posterior import Posterior
    >>> posterior = Posterior(
    ...     np.array([0, 2, 3]), np.array([0, 1, 1]), np.array([0.75, 0.25, 1.0]), n_classes=3
    ... )
    >>> round(negative_log_likelihood(posterior, [1, 1]), 4)  # log(4) / 2
    0.6931
    >>> negative_log_likelihood(posterior, [1, 2])
    inf
    >>> round(negative_log_likelihood(posterior, [1, 2], floor=1e-3), 4)
    4.147
    """
    return float(np.mean(row_negative_log_likelihoods(posterior, labels, floor=floor)))


def row_negative_log_likelihoods(
    posterior: Posterior, labels: ArrayLike, *, floor: float | None = None
) -> FloatArray:
    """Return -log p(true class) of each row, in nats.

    Parameters
    ----------
    posterior : Posterior
        Probabilities of n queries.
    labels : array-like of shape (n,)
        True class codes, as in :func:`negative_log_likelihood`.
    floor : float, optional
        Smallest probability that is scored, in (0, 1).

    Returns
    -------
    ndarray of shape (n,)
        At least 0; infinity where the true class has probability 0 and there is no floor.

    Examples
    --------
    >>> import numpy as np
    >>> from nearsure.posterior import Posterior
    >>> posterior = Posterior(np.array([0, 1]), np.array([1]), np.array([1.0]), n_classes=2)
    >>> row_negative_log_likelihoods(posterior, [0]).tolist()
    [inf]
    """
    probability = posterior.probability_of(check_labels(labels, n_rows=len(posterior)))
    if floor is not None:
        probability = np.maximum(probability, check_open_fraction("floor", floor))
    surprise = np.full(len(posterior), inf)
    possible = probability > 0
    surprise[possible] = -np.log(probability[possible]) + 0.0  # + 0.0 turns -0.0 into 0.0
    return surprise
