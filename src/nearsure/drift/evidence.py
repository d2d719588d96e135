"""What a batch tells without labels: how sure the rule is, and how far the nearest neighbour."""

from dataclasses import dataclass

import numpy as np

from nearsure.arrays import AnyArray, FloatArray
from nearsure.drift.certainty import certainty
from nearsure.errors import InvalidInputError
from nearsure.neighbors import Neighbors
from nearsure.posterior import Posterior


@dataclass(frozen=True, eq=False)
class Evidence:
    """Three numbers for each point of a batch; `gather_evidence` makes it.

    Parameters
    ----------
    confidence : array of shape (n,)
        Probability of the predicted class; 0 for a point without neighbours.
    certainty : array of shape (n,)
        Negative entropy of all its classes, at most 0; minus infinity for a point without
        neighbours. See `nearsure.drift.certainty`.
    distance : array of shape (n,)
        Euclidean distance to the nearest neighbour; infinite for a point without neighbours.
    """

    confidence: FloatArray
    certainty: FloatArray
    distance: FloatArray

    def __post_init__(self) -> None:
        shapes = [values.shape for values in (self.confidence, self.certainty, self.distance)]
        if self.confidence.ndim != 1 or len(set(shapes)) > 1:
            raise InvalidInputError(
                "Confidence, certainty and distance must be arrays of shape (n,), one entry a "
                f"point. Got shapes {shapes[0]}, {shapes[1]} and {shapes[2]} instead."
            )

    def __len__(self) -> int:
        return len(self.confidence)

    def take(self, rows: AnyArray) -> "Evidence":
        """The evidence of some of the points, by index (repeats allowed) or mask."""
        return Evidence(self.confidence[rows], self.certainty[rows], self.distance[rows])


def gather_evidence(neighbors: Neighbors, posterior: Posterior) -> Evidence:
    """Confidence, certainty and nearest distance of each point.

    Parameters
    ----------
    neighbors : Neighbors
        What a search returned.
    posterior : Posterior
        What any rule made of these very neighbours.

    Examples
    --------
    >>> from nearsure import score
    >>> neighbors = Neighbors([[4.0, 9.0]], [[0, 0]])
    >>> evidence = gather_evidence(neighbors, score(neighbors, rule="knn"))
    >>> evidence.confidence, evidence.certainty, evidence.distance
    (array([1.]), array([0.]), array([2.]))
    """
    if len(neighbors) != len(posterior):
        raise InvalidInputError(
            "Neighbours and posterior must be of the same points. "
            f"Got {len(neighbors)} and {len(posterior)} points instead: score these neighbours."
        )
    labels, confidence = posterior.top(1)
    # Rows without neighbours hold the padding label in both, and pass.
    foreign = ~(neighbors.labels == labels).any(axis=1)
    if foreign.any():
        row = int(np.flatnonzero(foreign)[0])
        raise InvalidInputError(
            "The posterior must be of these neighbours, in the same order. Got the class "
            f"{int(labels[row, 0])} at row {row}, which has no neighbour of it: score these "
            "neighbours."
        )
    return Evidence(confidence[:, 0], certainty(posterior), np.sqrt(neighbors.sq_distances[:, 0]))
