"""The five rules: what weight w_i each neighbour's vote has (eq:wknn_confident_neighbor).

A rule is a function from neighbours to weights of shape (n, k), zero on padding. The nearest
neighbour, or one as near, weighs 1 under every rule, so no sum of weights is ever zero. Adding a
rule means adding a function here and its name to `RuleName`; `nearsure.posterior` turns the weights
into probabilities for all of them.
"""

from collections.abc import Callable
from numbers import Real
from typing import Literal, get_args

import numpy as np

from nearsure.arrays import FloatArray
from nearsure.errors import InvalidInputError
from nearsure.neighbors import Neighbors

RuleName = Literal["1nn", "knn", "dudani", "gou", "ned"]
RULE_NAMES: tuple[RuleName, ...] = get_args(RuleName)


def nearest_weights(neighbors: Neighbors) -> FloatArray:
    """1NN: the nearest neighbour alone decides; among equally near ones, the smallest class code.

    Examples
    --------
    >>> nearest_weights(Neighbors([[0.1, 0.1, 0.5]], [[7, 2, 2]]))
    array([[0., 1., 0.]])
    """
    as_near_as_first = neighbors.sq_distances == neighbors.sq_distances[:, :1]
    codes = np.where(as_near_as_first, neighbors.labels, np.iinfo(np.int64).max)
    winner = codes.argmin(axis=1)
    weights = np.zeros_like(neighbors.sq_distances)
    np.put_along_axis(weights, winner[:, None], 1.0, axis=1)
    return _without_padding(weights, neighbors)


def knn_weights(neighbors: Neighbors) -> FloatArray:
    """KNN: every neighbour counts the same (eq:knn_confident_neighbor).

    Examples
    --------
    >>> knn_weights(Neighbors([[0.1, 0.2, 0.5]], [[7, 2, 2]]))
    array([[1., 1., 1.]])
    """
    return _without_padding(np.ones_like(neighbors.sq_distances), neighbors)


def dudani_weights(neighbors: Neighbors) -> FloatArray:
    """Dudani's weighted kNN: w_i = (d_k - d_i) / (d_k - d_1), all 1 where d_k = d_1.

    Distances are Euclidean, not squared. The k-th neighbour itself has weight 0 unless all are
    equally far.

    References
    ----------
    S. A. Dudani, The distance-weighted k-nearest-neighbor rule, IEEE SMC 6(4), 1976.

    Examples
    --------
    >>> dudani_weights(Neighbors([[1.0, 4.0, 9.0]], [[7, 2, 2]]))
    array([[1. , 0.5, 0. ]])
    """
    return _without_padding(_dudani(*_nearest_and_farthest(neighbors)), neighbors)


def gou_weights(neighbors: Neighbors) -> FloatArray:
    """Gou's weighted kNN: Dudani's weight times (d_k + d_1) / (d_k + d_i).

    References
    ----------
    J. Gou, L. Du, Y. Zhang, T. Xiong, A new distance-weighted k-nearest neighbor classifier,
    Journal of Information and Computational Science 9(6), 2012.

    Examples
    --------
    >>> gou_weights(Neighbors([[1.0, 4.0, 9.0]], [[7, 2, 2]]))
    array([[1. , 0.4, 0. ]])
    """
    distances, nearest, farthest = _nearest_and_farthest(neighbors)
    damping = np.divide(
        farthest + nearest,
        farthest + distances,
        out=np.ones_like(distances),
        where=farthest > nearest,
    )
    return _without_padding(_dudani(distances, nearest, farthest) * damping, neighbors)


def ned_weights(neighbors: Neighbors, temperature: float) -> FloatArray:
    """NED: w_i = exp(-|z - z_i|^2 / T) (eq:ned), up to a factor that every vote shares.

    The smallest distance of each row is subtracted from the exponent. The factor cancels in the
    normalised sum, and with the nearest weight at exactly 1 no T and no distance makes it 0 / 0.

    Examples
    --------
    >>> ned_weights(Neighbors([[5.0, 6.0, 7.0]], [[7, 2, 2]]), temperature=1.0).round(3)
    array([[1.   , 0.368, 0.135]])
    """
    check_temperature(temperature)
    excess = neighbors.sq_distances - _first_column(neighbors)
    # Under a tiny T the quotient may be infinite, and its weight is then exactly 0: no accident.
    with np.errstate(over="ignore", under="ignore"):
        np.divide(excess, -float(temperature), out=excess)
        np.exp(excess, out=excess)
    return _without_padding(excess, neighbors)


# NED stands apart because it alone has a parameter.
RULES_WITHOUT_PARAMETER: dict[str, Callable[[Neighbors], FloatArray]] = {
    "1nn": nearest_weights,
    "knn": knn_weights,
    "dudani": dudani_weights,
    "gou": gou_weights,
}


def rule_weights(
    neighbors: Neighbors, rule: RuleName, temperature: float | None = None
) -> FloatArray:
    """Weights of the rule of that name; NED needs its temperature, no other rule takes one.

    Examples
    --------
    >>> rule_weights(Neighbors([[0.1, 0.2, 0.5]], [[7, 2, 2]]), "1nn")
    array([[1., 0., 0.]])
    """
    check_rule(rule)
    if rule == "ned":
        if temperature is None:
            raise InvalidInputError(
                "temperature is missing: rule 'ned' needs it. fit_temperature finds it."
            )
        return ned_weights(neighbors, temperature)
    if temperature is not None:
        raise InvalidInputError(
            f"temperature must be None for rule {rule!r}, which has none. Got {temperature}."
        )
    return RULES_WITHOUT_PARAMETER[rule](neighbors)


def check_rule(rule: str) -> None:
    """Raise an error that names the rules if `rule` is not one of them."""
    if rule not in RULE_NAMES:
        names = ", ".join(repr(name) for name in RULE_NAMES)
        raise InvalidInputError(f"rule must be one of {names}. Got {rule!r} instead.")


def check_temperature(temperature: float) -> None:
    """Raise an error unless the temperature is a finite number above 0."""
    number = isinstance(temperature, Real) and not isinstance(temperature, bool)
    if not (number and 0 < temperature < np.inf):
        raise InvalidInputError(
            f"temperature must be a finite number > 0. Got {temperature!r} instead."
        )


def _first_column(neighbors: Neighbors) -> FloatArray:
    """The smallest distance of each row; 0 for a row of nothing but padding."""
    nearest = neighbors.sq_distances[:, :1]
    return nearest if neighbors.is_full else np.where(neighbors.counts[:, None] > 0, nearest, 0.0)


def _nearest_and_farthest(neighbors: Neighbors) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Euclidean distances, and d_1 and d_k of each row, where k counts the valid neighbours."""
    if neighbors.is_full:
        distances = np.sqrt(neighbors.sq_distances)
        return distances, distances[:, :1], distances[:, -1:]
    distances = np.sqrt(np.where(neighbors.valid, neighbors.sq_distances, 0.0))
    last = np.maximum(neighbors.counts - 1, 0)[:, None]
    return distances, distances[:, :1], np.take_along_axis(distances, last, axis=1)


def _dudani(distances: FloatArray, nearest: FloatArray, farthest: FloatArray) -> FloatArray:
    return np.divide(
        farthest - distances,
        farthest - nearest,
        out=np.ones_like(distances),
        where=farthest > nearest,
    )


def _without_padding(weights: FloatArray, neighbors: Neighbors) -> FloatArray:
    return weights if neighbors.is_full else np.where(neighbors.valid, weights, 0.0)
