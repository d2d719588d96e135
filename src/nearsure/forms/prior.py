"""Queries that ask for the classes in other proportions than the support set holds them.

The paper takes the class frequencies of the support set as the prior (eq:approx-pi), so that a
class of many members is expected often. Where queries are known to come otherwise, Bayes' rule
exchanges the prior: p'(c) is proportional to p(c) prior_c / frequency_c.
"""

from dataclasses import replace
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from nearsure.arrays import FloatArray, IntArray
from nearsure.errors import InvalidInputError
from nearsure.neighbors import Neighbors
from nearsure.posterior import Posterior


def factors_of_prior(
    prior: Literal["support", "uniform"] | FloatArray, sizes: IntArray
) -> FloatArray | None:
    """What another prior than the gallery's frequencies multiplies each class by."""
    if isinstance(prior, str):
        return None if prior == "support" else prior_factors(prior, sizes)
    if prior.shape == sizes.shape:
        # A class that has lost its last point cannot be the answer, whatever its prior was.
        prior = np.where(sizes > 0, prior, 0.0)
    return prior_factors(prior, sizes)


def with_newcomers(
    prior: Literal["support", "uniform"] | FloatArray, n_classes: int
) -> Literal["support", "uniform"] | FloatArray:
    """A prior that was given, with that of a usual class for those that others have added since."""
    if isinstance(prior, str) or len(prior) >= n_classes:
        return prior
    return np.append(prior, np.full(n_classes - len(prior), prior.mean()))


PriorName = Literal["support", "uniform"]


def prior_factors(prior: PriorName | ArrayLike, class_counts: ArrayLike) -> FloatArray:
    """What each class's probability is multiplied by under another prior.

    Parameters
    ----------
    prior : {"support", "uniform"} or array of shape (n_classes,)
        How often queries come from each class: as often as the support set holds it, all classes
        alike, or as given in the order of the classes (any positive sum; it is normalised).
    class_counts : array of shape (n_classes,)
        Members of each class in the support set.

    Returns
    -------
    array of shape (n_classes,)
        prior_c / frequency_c; 1 for a class without members, which no neighbour is of.

    Examples
    --------
    >>> prior_factors("uniform", [30, 10])
    array([0.66666667, 2.        ])
    >>> prior_factors([3, 1], [10, 10])
    array([1.5, 0.5])
    """
    counts = _check_counts(class_counts)
    present = counts > 0
    if not isinstance(prior, str):
        shares = _check_prior(prior, counts)
    elif prior == "support":
        return np.ones(len(counts))
    elif prior == "uniform":
        shares = present / present.sum()
    else:
        raise InvalidInputError(
            "prior must be 'support', 'uniform' or one number for each class. "
            f"Got {prior!r} instead."
        )
    factors: FloatArray = np.ones(len(counts))
    np.divide(shares * counts.sum(), counts, out=factors, where=present)
    return factors


def with_prior(
    posterior: Posterior, factors: ArrayLike, *, neighbors: Neighbors | None = None
) -> Posterior:
    """The posterior under another prior, ranked again.

    A query whose probabilities sum to less than 1 keeps its sum: what was left for classes that
    are not among its neighbours stays left.

    Parameters
    ----------
    posterior : Posterior
        Under the prior of the support set.
    factors : array of shape (n_classes,)
        What `prior_factors` gives: positive numbers.
    neighbors : Neighbors, optional
        What the posterior was made of. Classes that become equally probable are then ranked as
        everywhere, the nearer first and then the smaller code; without, they keep their order.

    Examples
    --------
    >>> from nearsure.posterior import score
    >>> found = Neighbors([[1.0, 2.0, 3.0]], [[0, 0, 1]])
    >>> even = with_prior(score(found, rule="knn"), prior_factors("uniform", [40, 10]))
    >>> even.labels, even.confidence.round(3)
    (array([1]), array([0.667]))
    """
    factors = np.asarray(factors, np.float64)
    if factors.shape != (posterior.n_classes,):
        raise InvalidInputError(
            f"factors must be one number for each of the {posterior.n_classes} classes. "
            f"Got an array of shape {factors.shape} instead: prior_factors makes them."
        )
    if not ((factors > 0) & (factors < np.inf)).all():
        raise InvalidInputError(
            f"factors must be finite and positive. Got {factors.min()} to {factors.max()} "
            "instead: prior_factors makes them."
        )
    n, rows, codes = len(posterior), posterior.rows, posterior.codes
    weighed = posterior.probabilities * factors[codes]
    if neighbors is None:
        order = np.lexsort((-weighed, rows))  # stable: what no key parts keeps its order
    else:
        order = np.lexsort((codes, _nearest_distances(posterior, neighbors), -weighed, rows))
    weighed, codes = weighed[order], codes[order]
    # Added best first, as everywhere, so that a lone class keeps exactly what it had.
    totals = np.bincount(rows, weighed, minlength=n)
    sums = np.bincount(rows, posterior.probabilities, minlength=n)
    probabilities = weighed / np.where(totals > 0, totals, 1.0)[rows] * sums[rows]
    return replace(posterior, codes=codes, probabilities=np.minimum(probabilities, 1.0))


def _nearest_distances(posterior: Posterior, neighbors: Neighbors) -> FloatArray:
    """Squared distance to the nearest neighbour of each entry's class."""
    if len(neighbors) != len(posterior):
        raise InvalidInputError(
            f"neighbors must be those of the posterior's {len(posterior)} queries. "
            f"Got {len(neighbors)} rows instead."
        )
    width = posterior.n_classes + 1
    pairs = np.arange(len(neighbors))[:, None] * width + neighbors.labels + 1
    # Neighbours ascend, so the first of a class is its nearest.
    known, first = np.unique(pairs, return_index=True)
    asked = posterior.rows * width + posterior.codes + 1
    places = np.minimum(np.searchsorted(known, asked), len(known) - 1)
    if not np.array_equal(known[places], asked):
        raise InvalidInputError(
            "neighbors must be what the posterior was made of. Got some without a class that the "
            "posterior holds."
        )
    return np.asarray(neighbors.sq_distances.ravel()[first[places]], np.float64)


def _check_counts(class_counts: ArrayLike) -> IntArray:
    counts = np.asarray(class_counts)
    if counts.ndim != 1 or counts.dtype.kind not in "iu" or not counts.size or counts.min() < 0:
        raise InvalidInputError(
            "class_counts must be one integer of at least 0 for each class. "
            f"Got an array of {counts.dtype} of shape {counts.shape} instead: "
            "numpy.bincount(codes, minlength=n_classes) makes it."
        )
    if counts.sum() == 0:
        raise InvalidInputError("class_counts must count at least one member. Got none.")
    return counts.astype(np.int64, copy=False)


def _check_prior(prior: ArrayLike, counts: IntArray) -> FloatArray:
    given = np.asarray(prior)
    if given.shape != counts.shape or given.dtype.kind not in "iuf":
        raise InvalidInputError(
            f"prior must be one number for each of the {len(counts)} classes, in their order. "
            f"Got an array of {given.dtype} of shape {given.shape} instead."
        )
    shares = given.astype(np.float64)
    if (wrong := ~(np.isfinite(shares) & (shares >= 0))).any():
        raise InvalidInputError(
            "prior must hold finite numbers of at least 0. "
            f"Got {shares[wrong][0]} for class {int(np.flatnonzero(wrong)[0])} instead."
        )
    if (excluded := (shares == 0) & (counts > 0)).any():
        raise InvalidInputError(
            "prior must be positive for every class that has members. Got 0 for class "
            f"{int(np.flatnonzero(excluded)[0])} instead: if no query is of that class, remove "
            "its members from the support set, or they take the place of others among the k."
        )
    if (unheard := (shares > 0) & (counts == 0)).any():
        raise InvalidInputError(
            "prior must be 0 for a class without members, which no neighbour can be of. Got "
            f"{shares[unheard][0]} for class {int(np.flatnonzero(unheard)[0])} instead: add "
            "members of it to the support set."
        )
    return np.asarray(shares / shares.sum(), np.float64)
