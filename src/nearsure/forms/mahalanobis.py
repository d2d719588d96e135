"""Distances to neighbours, each under the covariance of the neighbour's class."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from scipy.linalg import LinAlgError, cholesky, solve_triangular

from nearsure.arrays import AnyArray, BoolArray, FloatArray, IntArray
from nearsure.errors import InvalidInputError
from nearsure.neighbors import PADDING_LABEL, Neighbors

# Pairs whose differences are held at a time: 16 MB of them in 512 dimensions.
PAIRS_AT_ONCE = 4096

PairDistances = tuple[FloatArray, FloatArray]


@dataclass(frozen=True, eq=False)
class Pairs:
    """Queries, and neighbours of theirs that are all of one class.

    Every vector stands here once, however many pairs it is in, for it is whitened once.

    Parameters
    ----------
    rows : array of shape (p,)
        Row numbers of the queries.
    queries : array of shape (p, n_features)
        Their vectors.
    members : array of shape (q, n_features)
        The neighbours, both counted from one and the same origin.
    query_places, member_places : array of shape (m,)
        Which of them make a pair.
    """

    rows: IntArray
    queries: FloatArray
    members: FloatArray
    query_places: IntArray
    member_places: IntArray

    def __len__(self) -> int:
        return len(self.query_places)

    def of_queries(self, some: BoolArray) -> "Pairs":
        """The pairs of some of the queries, by a mask of shape (p,), in the same order."""
        kept = some[self.query_places]
        new_places = np.cumsum(some) - 1
        return Pairs(
            self.rows[some],
            self.queries[some],
            self.members,
            new_places[self.query_places[kept]],
            self.member_places[kept],
        )


OfPairs = Callable[[Pairs], PairDistances]


def class_mahalanobis(
    neighbors: Neighbors,
    queries: AnyArray,
    support: AnyArray,
    of_class: Callable[[int], OfPairs],
) -> PairDistances:
    """Squared Mahalanobis distances and log-determinants of all neighbours, class by class.

    Parameters
    ----------
    neighbors : Neighbors
        With ids that are rows of `support`.
    queries : array of shape (n, n_features)
        The vectors that were searched.
    support : array of shape (n_support, n_features)
        The vectors they were searched in.
    of_class : callable
        From a class code to a function of m `Pairs` of a query and a neighbour of that class,
        which gives m distances and m log-determinants.

    Returns
    -------
    sq_distances, log_determinants : array of shape (n, k)
        Infinity and 0 on padding.
    """
    if neighbors.ids is None or neighbors.ids.dtype.kind not in "iu":
        raise InvalidInputError(
            "neighbors must have ids that are rows of the support vectors, by which these are "
            "found. Got none: pass ids= to the constructor of Neighbors."
        )
    if queries.shape != (len(neighbors), support.shape[1]):
        raise InvalidInputError(
            f"queries must have the shape ({len(neighbors)}, {support.shape[1]}): one vector for "
            f"each row of the neighbours. Got {queries.shape} instead."
        )
    ids = neighbors.ids.ravel()
    if ids.max() >= len(support):
        raise InvalidInputError(
            f"ids must be rows of the {len(support)} support vectors. Got {ids.max()} instead."
        )
    sq_distances = np.full(len(ids), np.inf)
    log_determinants = np.zeros(len(ids))
    for code, entries in _entries_by_class(neighbors):
        of_pairs = of_class(code)
        for start in range(0, len(entries), PAIRS_AT_ONCE):
            some = entries[start : start + PAIRS_AT_ONCE]
            rows, query_places = np.unique(some // neighbors.k, return_inverse=True)
            members, member_places = np.unique(ids[some], return_inverse=True)
            # Counted from a member, vectors far from the origin lose nothing when whitened.
            origin = support[members[0]].astype(np.float64)
            sq_distances[some], log_determinants[some] = of_pairs(
                Pairs(
                    rows,
                    queries[rows] - origin,
                    support[members] - origin,
                    query_places,
                    member_places,
                )
            )
    shape = neighbors.sq_distances.shape
    return sq_distances.reshape(shape), log_determinants.reshape(shape)


def lower_factor(covariance: FloatArray) -> FloatArray:
    """L of covariance = L L', shape (n_features, n_features); an error if it has none."""
    try:
        return np.asarray(cholesky(covariance, lower=True), np.float64)
    except LinAlgError as error:
        raise InvalidInputError(
            "A covariance must be symmetric and positive definite. Got one that is not: shrink "
            "it towards a multiple of the identity."
        ) from error


def log_determinant_of(factor: FloatArray) -> float:
    """Logarithm of the determinant of a covariance, by its `factor` as of `pair_distances`."""
    if factor.ndim == 1:
        return float(np.log(factor).sum())
    return float(2.0 * np.log(np.diag(factor)).sum())


def pair_distances(
    pairs: Pairs,
    factor: FloatArray,
    *,
    removed: FloatArray | None = None,
    shares: FloatArray | None = None,
) -> FloatArray:
    """Squared Mahalanobis distances of m pairs under one covariance.

    With `removed` and `shares`, query i has the covariance C - shares_i removed_i removed_i',
    by the formula of Sherman and Morrison: no matrix is factored anew.

    Parameters
    ----------
    pairs : Pairs
        Queries and neighbours.
    factor : array of shape (n_features, n_features) or (n_features,)
        The lower Cholesky factor of C; for a diagonal C its diagonal itself, and then no more
        than the diagonal of what is removed goes.
    removed : array of shape (p, n_features), optional
        What is taken out of the covariance for each query.
    shares : array of shape (p,), optional
        And how much of it.
    """
    of_query, of_member = pairs.query_places, pairs.member_places
    if factor.ndim == 1:
        variances = np.broadcast_to(factor, pairs.queries.shape)
        if removed is not None and shares is not None:
            variances = variances - shares[:, None] * np.square(removed)
        differences = pairs.queries[of_query] - pairs.members[of_member]
        return np.asarray((np.square(differences) / variances[of_query]).sum(axis=1))
    white = _whitened(pairs.queries, factor)[of_query] - _whitened(pairs.members, factor)[of_member]
    sq_distances = np.vecdot(white, white)
    if removed is not None and shares is not None:
        white_removed = _whitened(removed, factor)
        left = 1.0 - shares * np.vecdot(white_removed, white_removed)
        along = np.vecdot(white, white_removed[of_query])
        sq_distances += (shares / left)[of_query] * np.square(along)
    return np.asarray(sq_distances)


def _whitened(vectors: FloatArray, factor: FloatArray) -> FloatArray:
    return np.asarray(solve_triangular(factor, vectors.T, lower=True, check_finite=False).T)


def _entries_by_class(neighbors: Neighbors) -> Iterator[tuple[int, IntArray]]:
    """Each class code with the places of its neighbours in the flattened result."""
    labels = neighbors.labels.ravel()
    by_class = np.argsort(labels, kind="stable")
    ends = np.append(np.flatnonzero(np.diff(labels[by_class])) + 1, len(labels))
    start = 0
    for end in ends.tolist():
        code = int(labels[by_class[start]])
        if code != PADDING_LABEL:
            yield code, by_class[start:end]
        start = end
