"""What the classifier answers."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nearsure.arrays import AnyArray, FloatArray
from nearsure.neighbors import Neighbors
from nearsure.posterior import Posterior


@dataclass(frozen=True, eq=False)
class Prediction:
    """Labels, how sure they are, and the neighbours that vouch for them.

    Parameters
    ----------
    labels : array of shape (n,)
        The most probable class of each query.
    confidence : array of shape (n,)
        Its probability, in [0, 1]: p(known) p(c | known) where unknown queries are expected.
    neighbors : Neighbors
        The evidence; ``neighbors.ids`` are ids of the gallery, row numbers unless it was changed.
    posterior : Posterior
        The probabilities of all classes among the neighbours; codes index ``classes_``. What a row
        lacks of 1 is the chance of another class, or of none.
    p_known : array of shape (n,), or None
        Probability that a query is of any class of the gallery; None without `unknown_share`.
    verdicts : array of shape (n,) of str, or None
        "known", "ambiguous" (of the gallery, but split between its classes) or "unknown".
    """

    labels: AnyArray
    confidence: FloatArray
    neighbors: Neighbors
    posterior: Posterior
    p_known: FloatArray | None = None
    verdicts: NDArray[np.str_] | None = None
