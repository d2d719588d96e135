"""A cut through the leave-one-out pass: above it lie as many points as were answered rightly."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from nearsure.drift.evidence import Evidence
from nearsure.metrics.validation import check_correct, check_same_length


@dataclass(frozen=True)
class CertaintyCut:
    """Which points are counted as right; `fit_cut` makes it.

    Parameters
    ----------
    threshold : float
        Certainty above which a point is counted.
    tied_share : float
        Share of the points exactly at the threshold that is counted, in [0, 1].
    """

    threshold: float
    tied_share: float

    def share(self, evidence: Evidence) -> float:
        """Share of the points that is counted: their estimated accuracy."""
        above = float((evidence.certainty > self.threshold).mean())
        tied = float((evidence.certainty == self.threshold).mean())
        return min(1.0, above + self.tied_share * tied)


def fit_cut(evidence: Evidence, correct: ArrayLike) -> CertaintyCut:
    """The cut above which lie as many gallery points as were answered rightly.

    Parameters
    ----------
    evidence : Evidence
        Of gallery points, each found without itself.
    correct : array of shape (n,)
        Whether each was given its own class.

    Returns
    -------
    CertaintyCut

    References
    ----------
    S. Garg, S. Balakrishnan, Z. C. Lipton, B. Neyshabur, H. Sedghi, Leveraging unlabeled data to
    predict out-of-distribution performance, ICLR 2022 (ATC with negative entropy).

    Examples
    --------
    >>> certainty = np.array([-0.1, -0.2, -0.6, -0.9])
    >>> points = Evidence(np.exp(certainty), certainty, np.ones(4))
    >>> cut = fit_cut(points, [True, False, True, False])
    >>> cut.threshold, cut.share(points)
    (-0.2, 0.5)
    """
    right = check_correct(correct)
    check_same_length(evidence=len(evidence), correct=len(right))
    n_right, n = int(right.sum()), len(right)
    if n_right == 0:
        return CertaintyCut(np.inf, 0.0)
    threshold = float(np.partition(evidence.certainty, n - n_right)[n - n_right])
    above = int((evidence.certainty > threshold).sum())
    tied = int((evidence.certainty == threshold).sum())
    return CertaintyCut(threshold, (n_right - above) / tied)
