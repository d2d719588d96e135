"""How far the points around a point bear out its label.

Three things set it apart from p(own label):

- Votes are mutual. A point is asked by others, too, and how it fits among those is evidence of the
  same kind, without a further search.
- Votes are partly second-hand. A neighbour stands for its own label and, with the weight
  `second_hand`, for what its other neighbours are. That reaches beyond the k nearest: where no
  neighbour shares the label, p(own label) is 0 for near and far classes alike, and here it is not.
  What a neighbour knows from the point itself is taken out, or a wrong label would vouch for
  itself.
- The label is compared with its best rival, so that a point in a crowd of many classes is not as
  suspect as one in the midst of another class.
"""

import numpy as np
from scipy.sparse import csr_array

from nearsure.arrays import FloatArray, IntArray
from nearsure.audit.support_points import SupportPoints
from nearsure.errors import InvalidInputError

SECOND_HAND = 0.3
# Below this share of its votes, what a neighbour knows from others is rounding.
NOTHING_LEFT = 1e-9


def label_trust(
    points: SupportPoints,
    weights: FloatArray,
    p_rival: FloatArray,
    *,
    second_hand: float = SECOND_HAND,
) -> FloatArray:
    """Belief in a point's own label as a share of that and of the belief in its best rival.

    Parameters
    ----------
    points : SupportPoints
        The gallery.
    weights : array of shape (n_entries,)
        What the vote of each neighbour weighs, for ``points.asking`` and ``points.asked``.
    p_rival : array of shape (n,)
        Leave-one-out probability of the best class that is not the point's own.
    second_hand : float
        Weight in [0, 1) of what a neighbour's other neighbours are, against what it is itself.

    Returns
    -------
    array of shape (n,)
        In [0, 1]; below 0.5 the rival is believed more. NaN for a point without neighbours.

    Examples
    --------
    Two pairs far apart, one point of the second pair labelled as the first:

    >>> points = SupportPoints(
    ...     ids=np.arange(5),
    ...     codes=np.array([0, 0, 1, 1, 0]),
    ...     asking=np.array([0, 1, 2, 3, 4, 4]),
    ...     asked=np.array([1, 0, 3, 2, 2, 3]),
    ... )
    >>> label_trust(points, np.ones(6), p_rival=np.array([0.0, 0.0, 0.0, 0.0, 1.0])).round(2)
    array([1., 1., 1., 1., 0.])
    """
    if not 0 <= second_hand < 1:
        raise InvalidInputError(f"second_hand must lie in [0, 1). Got {second_hand} instead.")
    votes = mutual_votes(points, weights).tocoo()
    judged, voter = votes.row.astype(np.int64), votes.col.astype(np.int64)
    vote = np.asarray(votes.data, np.float64)
    n_points = len(points.codes)
    totals = np.bincount(judged, vote, minlength=n_points)
    for_own_class = _votes_for(points.codes, judged, voter, vote, wanted=points.codes[judged])
    agrees = (points.codes[judged] == points.codes[voter]).astype(np.float64)
    # The judged point is among the voter's own voters, with the same vote and for its own class.
    of_others = totals[voter] - vote
    known = of_others > NOTHING_LEFT * totals[voter]
    hearsay = np.divide(for_own_class - vote, of_others, out=agrees.copy(), where=known)
    opinion = (1 - second_hand) * agrees + second_hand * np.clip(hearsay, 0.0, 1.0)
    belief = np.bincount(judged, vote * opinion, minlength=n_points)
    has_neighbors = np.bincount(points.asking, minlength=n_points) > 0
    trust = np.full(n_points, np.nan)
    np.divide(belief, belief + totals * p_rival, out=trust, where=has_neighbors)
    return trust


def mutual_votes(points: SupportPoints, weights: FloatArray) -> csr_array:
    """Symmetric matrix of shape (n, n): what two points weigh for each other.

    Each point hands out one vote to its neighbours; an entry is what either gave the other.
    """
    n_points = len(points.codes)
    shares = weights / np.bincount(points.asking, weights, minlength=n_points)[points.asking]
    given = csr_array((shares, (points.asking, points.asked)), shape=(n_points, n_points))
    return csr_array(given + given.T)


def _votes_for(
    codes: IntArray, judged: IntArray, voter: IntArray, vote: FloatArray, *, wanted: IntArray
) -> FloatArray:
    """Sum of the votes that each entry's voter itself gets from points of the class wanted."""
    n_classes = int(codes.max()) + 1
    keys, place = np.unique(judged * n_classes + codes[voter], return_inverse=True)
    sums = np.bincount(place, vote)
    # The voter has the judged point as a voter in turn, so the class wanted is always there.
    return np.asarray(sums[np.searchsorted(keys, voter * n_classes + wanted)])
