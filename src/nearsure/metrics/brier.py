"""Brier score: the squared distance of the posterior from the truth."""

import numpy as np
from numpy.typing import ArrayLike

from nearsure.arrays import FloatArray
from nearsure.metrics.traits import declare
from nearsure.metrics.validation import check_labels
from nearsure.posterior import Posterior


@declare(0.0, 2.0)
def brier_score(posterior: Posterior, labels: ArrayLike) -> float:
    """Return the multiclass Brier score: the mean over rows of the sum over classes.

    Parameters
    ----------
    posterior : Posterior
        Probabilities of n queries.
    labels : array-like of shape (n,)
        True class codes. A code that the row's posterior does not hold, or that is no class of it
        at all, is a class of probability 0: the row scores the sum of its squares plus 1.

    Returns
    -------
    float
        The score, in [0, 2]; 0 is best. With two classes it is twice the binary Brier score, as
        scikit-learn's ``brier_score_loss(..., scale_by_half=False)``.

    References
    ----------
    Brier: Verification of Forecasts Expressed in Terms of Probability. Monthly Weather Review
    78(1), 1950.

    Examples
    --------
    >>> import numpy as np
    >>> from nearsure.posterior import Posterior
    >>> posterior = Posterior(
    ...     np.array([0, 2, 3]), np.array([0, 1, 1]), np.array([0.75, 0.25, 1.0]), n_classes=3
    ... )
    >>> brier_score(posterior, [0, 2])  # (1/16 + 1/16) and (1 + 1)
    1.0625
    """
    return float(np.mean(row_brier_scores(posterior, labels)))


def row_brier_scores(posterior: Posterior, labels: ArrayLike) -> FloatArray:
    """Return the Brier score of each row.

    Parameters
    ----------
    posterior : Posterior
        Probabilities of n queries.
    labels : array-like of shape (n,)
        True class codes, as in :func:`brier_score`.

    Returns
    -------
    ndarray of shape (n,)
        The sum over classes of (probability - [class is true])^2, in [0, 2].

    Examples
    --------
    >>> import numpy as np
    >>> from nearsure.posterior import Posterior
    >>> posterior = Posterior(
    ...     np.array([0, 2, 3]), np.array([0, 1, 1]), np.array([0.75, 0.25, 1.0]), n_classes=3
    ... )
    >>> row_brier_scores(posterior, [0, 2]).tolist()
    [0.125, 2.0]
    """
    true_codes = check_labels(labels, n_rows=len(posterior))
    is_true = posterior.codes == true_codes[posterior.rows]
    scores = np.bincount(
        posterior.rows, (posterior.probabilities - is_true) ** 2, minlength=len(posterior)
    )
    has_true = np.bincount(posterior.rows, is_true, minlength=len(posterior))
    # A true class without an entry has probability 0 and adds (0 - 1)^2.
    return scores + (1.0 - has_true)
