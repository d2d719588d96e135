"""Points whose label is little believed by the points around them."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from nearsure.arrays import AnyArray, FloatArray, IntArray
from nearsure.audit.label_trust import SECOND_HAND, label_trust
from nearsure.audit.support_points import support_points
from nearsure.errors import InvalidInputError
from nearsure.neighbors import Neighbors
from nearsure.posterior import aggregate
from nearsure.rules import ned_weights


@dataclass(frozen=True, eq=False)
class SuspectLabels:
    """Points ranked by how little their label is believed; `suspect_labels` makes it.

    Parameters
    ----------
    ids : array of shape (n_ranked,)
        Which points, most suspect first.
    codes : array of shape (n_ranked,)
        Their own class codes.
    suggested_codes : array of shape (n_ranked,)
        The most probable other class; -1 where all neighbours are of the point's own class.
    p_own, p_suggested : array of shape (n_ranked,)
        Leave-one-out probabilities of the two; a code of -1 has 0.
    trust : array of shape (n_ranked,)
        What the points are ranked by, in [0, 1]; below 0.5 the other class is believed more.
    """

    ids: AnyArray
    codes: IntArray
    suggested_codes: IntArray
    p_own: FloatArray
    p_suggested: FloatArray
    trust: FloatArray

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def n_doubted(self) -> int:
        """Points whose label is believed less than another, which come first."""
        return int((self.trust < 0.5).sum())  # noqa: PLR2004

    def first(self, n: int) -> "SuspectLabels":
        """The n most suspect of them, or all if there are fewer."""
        if n < 0:
            raise InvalidInputError(f"n must not be negative. Got {n} instead.")
        return SuspectLabels(
            self.ids[:n],
            self.codes[:n],
            self.suggested_codes[:n],
            self.p_own[:n],
            self.p_suggested[:n],
            self.trust[:n],
        )


def suspect_labels(
    neighbors: Neighbors,
    codes: ArrayLike,
    *,
    temperature: float,
    ids: ArrayLike | None = None,
    second_hand: float = SECOND_HAND,
) -> SuspectLabels:
    """Rank the points of a gallery by how little their own label is believed.

    The ranking is by the trust that `nearsure.audit.label_trust` explains; equal trust is broken
    by the larger p(suggested), then by row. It finds labels that are wrong at random best.
    Labels that were mistaken for the most similar class look like honest neighbours of that
    class, and are found far less often; p(own) - p(suggested) ranks those better.
    A larger k than for prediction, 100 say, makes the top of the ranking a little purer.
    The only member of a class has no one to speak for it and is always suspect: see
    `small_classes`. Points without neighbours are not ranked.

    Parameters
    ----------
    neighbors : Neighbors
        Leave-one-out neighbours of all points of the gallery, with ids.
    codes : array of shape (n,)
        Class codes of the points.
    temperature : float
        T of NED, fitted on these neighbours.
    ids : array of shape (n,), optional
        Identity of each point, by which `neighbors` names it; by default its row number.
    second_hand : float
        Weight in [0, 1) of what a neighbour's other neighbours are, against what it is itself.

    Returns
    -------
    SuspectLabels
        All points that have neighbours, the most suspect first.

    Examples
    --------
    Row 2 lies among class 1 but is labelled 0:

    >>> neighbors = Neighbors(
    ...     sq_distances=[[1, 9], [1, 9], [1, 1], [1, 1], [1, 1]],
    ...     labels=[[0, 0], [0, 0], [1, 1], [0, 1], [0, 1]],
    ...     ids=[[1, 2], [0, 2], [3, 4], [2, 4], [2, 3]],
    ... )
    >>> suspects = suspect_labels(neighbors, [0, 0, 0, 1, 1], temperature=1.0)
    >>> worst = suspects.first(1)
    >>> worst.ids, worst.codes, worst.suggested_codes, worst.p_suggested
    (array([2]), array([0]), array([1]), array([1.]))
    """
    points = support_points(neighbors, codes, ids)
    weights = ned_weights(neighbors, temperature)
    posterior = aggregate(neighbors, weights)
    best, p_best = posterior.top(2)
    other = (best[:, 0] == points.codes).astype(np.int64)
    rows = np.arange(len(points.codes))
    suggested, p_suggested = best[rows, other], p_best[rows, other]
    trust = label_trust(points, weights[neighbors.valid], p_suggested, second_hand=second_hand)
    ranked = np.lexsort((-p_suggested, trust))[: int((neighbors.counts > 0).sum())]
    return SuspectLabels(
        ids=points.ids[ranked],
        codes=points.codes[ranked],
        suggested_codes=suggested[ranked],
        p_own=posterior.probability_of(points.codes)[ranked],
        p_suggested=p_suggested[ranked],
        trust=trust[ranked],
    )
