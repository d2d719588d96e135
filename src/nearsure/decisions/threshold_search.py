"""The laxest threshold on the confidence that a run of exact tests lets stand.

Precision
---------
The thresholds are the m-th largest confidences, for ranks m that are fixed before anything is seen:
they depend on the number of points, the target and the certainty. Each is tested with the exact
binomial p-value of "no more than the target are right among the accepted", from the strictest to
the laxest, as in Learn-then-Test. A threshold accepts all points of its confidence, so ties need no
rule of their own: ranks within a tie are one threshold.

A plain fixed sequence spends all of 1 - certainty on its first threshold and ends at the first
failure. An unlucky error among the few most confident points then costs everything. Here two
thresholds hold half of the level each: the first that can be certified at all, and one at the
geometric middle of the ranks. A threshold that passes hands its level on to the next, one that
fails loses it (Wiens' fallback procedure).

Measured on five made distributions of confidence, three targets and 200 to 5000 points: two starts
and one accept the same on average, 0.65 of what the true precision would allow; two accept more
where there are points to spare (0.74 rather than 0.60) and less where they barely suffice. 5, 10
and 50 starts accept 0.62, 0.60 and 0.56. About 100 ranks are enough.

Why ranks are valid: suppose that lowering the threshold never raises the true precision, which is
what a confidence is for. Given how many points lie in the smallest part of the confidences whose
precision is below the target, those points are right independently and with less than the target's
probability, and so are all below them. Hence every p-value of a threshold that should fail is an
honest one, and by the union bound the levels of those thresholds sum to no more than 1 - certainty.
Where the precision does rise here and there, the tests of this package measure no excess either.

False accepts
-------------
The share of the wrong answers that are accepted can only grow as the threshold falls, so the points
that must not be accepted give a distribution-free bound from one of their order statistics (Wilks),
without any sequence and without the assumption.

References
----------
Angelopoulos, Bates, Candes, Jordan, Lei: Learn then Test. 2021.
Wiens: A fixed sequence Bonferroni procedure for testing multiple endpoints. 2003.
Wilks: Determination of Sample Sizes for Setting Tolerance Limits. 1941.
"""

from math import ceil, inf, log

import numpy as np

from nearsure.arrays import BoolArray, FloatArray, IntArray
from nearsure.decisions.binomial_bounds import at_least_p_value, upper_bound

N_RANKS = 100


def laxest_precise(
    confidence: FloatArray, correct: BoolArray, *, precision: float, certainty: float
) -> float:
    """Return the laxest certified threshold, or infinity if there is none.

    Parameters
    ----------
    confidence, correct : array of shape (n,)
        Checked points.
    precision : float
        Share of the accepted that shall be right, in (0, 1).
    certainty : float
        Share of all draws of the points whose threshold shall keep that, in (0, 1).
    """
    descending = np.argsort(-confidence, kind="stable")
    ranks, levels = ranks_and_levels(len(confidence), precision, 1.0 - certainty)
    threshold, tie = np.unique(-confidence[descending][ranks - 1], return_inverse=True)
    accepted = np.searchsorted(-confidence[descending], threshold, side="right")
    right = np.cumsum(correct[descending])[accepted - 1]
    p_values = at_least_p_value(right, accepted, share=precision)
    laxest, level = inf, 0.0
    for negated, p_value, own_level in zip(
        threshold, p_values, np.bincount(tie, levels), strict=True
    ):
        level += own_level
        if p_value <= level:
            laxest = -negated
        else:
            level = 0.0
    return float(laxest)


def ranks_and_levels(
    n_points: int, precision: float, error_level: float
) -> tuple[IntArray, FloatArray]:
    """Return the ranks whose confidence is tested, ascending, and the level that each brings."""
    first = fewest_points(precision, error_level / 2)
    if first >= n_points:  # only all points together may suffice
        return np.array([n_points]), np.array([error_level])
    ranks = np.unique(np.linspace(first, n_points, N_RANKS).round().astype(np.int64))
    levels = np.zeros(len(ranks))
    second = np.searchsorted(ranks, np.sqrt(first * n_points))
    levels[0] = error_level / 2
    levels[second] += error_level / 2
    return ranks, levels


def fewest_points(share: float, error_level: float) -> int:
    """Return how many points, all of them right, certify a share."""
    return ceil(log(error_level) / log(share))


def laxest_rejecting(
    confidence: FloatArray, correct: BoolArray, *, false_accept_rate: float, certainty: float
) -> float:
    """Return the laxest threshold that keeps the wrong answers out, or infinity.

    Parameters
    ----------
    confidence, correct : array of shape (n,)
        Checked points.
    false_accept_rate : float
        Share of the wrong answers that may be accepted, in (0, 1).
    certainty : float
        Share of all draws of the points whose threshold shall keep that, in (0, 1).
    """
    wrong = np.sort(confidence[~correct])[::-1]
    bounds = upper_bound(np.arange(len(wrong) + 1), len(wrong), certainty=certainty)
    n_allowed = int(np.searchsorted(bounds, false_accept_rate, side="right")) - 1
    if n_allowed < 0:
        return inf
    # Strictly above the first wrong answer that is not allowed in: the bound of all wrong answers
    # is 1, so that there is always such a one.
    above = confidence[confidence > wrong[n_allowed]]
    return float(above.min(initial=inf))
