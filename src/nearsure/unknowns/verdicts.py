"""Known, ambiguous or unknown: one verdict a query, and one confidence that covers all three."""

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nearsure.arrays import FloatArray
from nearsure.errors import InvalidInputError
from nearsure.posterior import Posterior

VerdictName: TypeAlias = Literal["known", "ambiguous", "unknown"]
VERDICT_NAMES: tuple[VerdictName, ...] = get_args(VerdictName)


@dataclass(frozen=True, eq=False)
class Verdicts:
    """What to make of n queries.

    Parameters
    ----------
    names : array of shape (n,) of str
        "known": take the winning class. "ambiguous": of the gallery, but no class has enough of
        the probability. "unknown": of no class of the gallery.
    confidence : array of shape (n,)
        p(known) p(c | known) of the winning class c: the probability that naming it is right.
    p_known : array of shape (n,)
        Probability that the query is of the gallery at all.
    """

    names: NDArray[np.str_]
    confidence: FloatArray
    p_known: FloatArray

    def __len__(self) -> int:
        return len(self.names)

    def counts(self) -> dict[VerdictName, int]:
        """How many queries have each verdict."""
        return {name: int((self.names == name).sum()) for name in VERDICT_NAMES}


def judge(
    p_known: ArrayLike,
    posterior: Posterior,
    *,
    least_p_known: float = 0.5,
    least_class_probability: float = 0.5,
) -> Verdicts:
    """Tell what is unknown from what is known but undecided.

    Both mean a low confidence, but not the same remedy: an unknown query wants a new class, an
    ambiguous one a second look at the classes it lies between.

    Parameters
    ----------
    p_known : array of shape (n,)
        From `KnownModel.p_known`.
    posterior : Posterior
        p(c | known) of the same queries, by any rule.
    least_p_known : float
        Below it a query is "unknown". At 0.5 an error either way costs the same; the cost of
        taking an unknown for known, over the sum of both costs, is the threshold for others.
    least_class_probability : float
        A query that is not unknown is "ambiguous" if p(c | known) of its best class is below it.
        At 0.5 it is ambiguous unless one class outweighs all others together.

    Returns
    -------
    Verdicts

    Examples
    --------
    >>> from nearsure import Neighbors, score
    >>> found = Neighbors([[0.1, 0.9, 1.0], [0.5, 0.5, 0.6], [9.0, 9.5, 9.9]], [[0, 1, 2]] * 3)
    >>> verdicts = judge([0.99, 0.9, 0.02], score(found, temperature=0.2))
    >>> verdicts.names.tolist(), verdicts.confidence.round(2)
    (['known', 'ambiguous', 'unknown'], array([0.96, 0.35, 0.02]))
    """
    chances = np.asarray(p_known, np.float64)
    if chances.shape != (len(posterior),):
        raise InvalidInputError(
            f"p_known must be one probability for each of the {len(posterior)} queries. "
            f"Got an array of shape {chances.shape} instead."
        )
    if not ((chances >= 0) & (chances <= 1)).all():
        raise InvalidInputError("p_known must lie in [0, 1]. Got other values.")
    thresholds: dict[str, Any] = {
        "least_p_known": least_p_known,
        "least_class_probability": least_class_probability,
    }
    for name, value in thresholds.items():
        if not 0 <= value <= 1:
            raise InvalidInputError(f"{name} must lie in [0, 1]. Got {value} instead.")
    class_probability = posterior.confidence
    names = np.where(class_probability < least_class_probability, "ambiguous", "known")
    names = np.where(chances < least_p_known, "unknown", names)
    return Verdicts(names, chances * class_probability, chances)
