"""Protocols: which points are the gallery, which are queries, and which fit T."""

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from nearsure.arrays import AnyArray, BoolArray, IntArray
from nearsure.errors import InvalidInputError
from nearsure.index import ExactIndex
from nearsure.labels import classes_and_codes, codes_of
from nearsure.loo import search_leaving_one_out
from nearsure.neighbors import Neighbors

ProtocolName = Literal["all_against_others", "gallery_and_queries", "given_gallery"]
PROTOCOL_NAMES: tuple[ProtocolName, ...] = get_args(ProtocolName)


@dataclass(frozen=True, eq=False)
class ProtocolNeighbors:
    """What an experiment's search found.

    Parameters
    ----------
    protocol : {"all_against_others", "gallery_and_queries", "given_gallery"}
        Which points are the gallery, and which are queries.
    own : Neighbors
        Neighbours of each gallery point among the others, on which T is fitted.
    own_codes : array of shape (n_gallery,)
        Class codes of the gallery.
    queries : Neighbors
        Neighbours of the queries in the gallery.
    query_codes : array of shape (n_queries,)
        True class codes of the queries; one that the gallery lacks never matches.
    n_classes : int
        Classes in the gallery.
    """

    protocol: ProtocolName
    own: Neighbors
    own_codes: IntArray
    queries: Neighbors
    query_codes: IntArray
    n_classes: int

    @property
    def k(self) -> int:
        """Neighbours that were searched for each point."""
        return self.queries.k

    @property
    def n_unknown_queries(self) -> int:
        """Queries of a class that the gallery lacks; no rule can be right about them."""
        return int((~np.isin(self.query_codes, self.own_codes)).sum())


@dataclass(frozen=True, eq=False)
class ProtocolPoints:
    """The vectors that a protocol compares, for what needs more of them than neighbours.

    Parameters
    ----------
    vectors : array of shape (n_gallery, d)
        The gallery.
    codes : array of shape (n_gallery,)
        Its class codes, 0, 1, ..., each of them present.
    queries : array of shape (n_queries, d) or None
        None where every point of the gallery is a query against all the others.
    """

    vectors: AnyArray
    codes: IntArray
    queries: AnyArray | None = None


def encode_labels(
    gallery_labels: ArrayLike, query_labels: ArrayLike | None = None
) -> tuple[IntArray, IntArray]:
    """Class codes of the gallery and of the queries.

    Parameters
    ----------
    gallery_labels : array of shape (n_gallery,)
        Labels, integers or strings.
    query_labels : array of shape (n_queries,), optional
        Labels of the same kind; by default those of the gallery.

    Returns
    -------
    gallery_codes : array of shape (n_gallery,)
        Codes 0, 1, ... of the sorted classes.
    query_codes : array of shape (n_queries,)
        Codes among the same classes, and the number of classes for a label that is not among them.

    Examples
    --------
    >>> encode_labels(["wren", "owl"], ["owl", "kiwi"])
    (array([1, 0]), array([0, 2]))
    """
    gallery = np.asarray(gallery_labels)
    classes, codes = classes_and_codes(gallery)
    if query_labels is None:
        return codes, codes
    queries = np.asarray(query_labels)
    if (queries.dtype.kind in "US") != (gallery.dtype.kind in "US"):
        raise InvalidInputError(
            "Labels of queries and gallery must be of one kind, or no query would match. "
            f"Got {queries.dtype} and {gallery.dtype} instead: write both as text or as integers."
        )
    return codes, codes_of(queries, classes)


def all_against_others(vectors: AnyArray, codes: IntArray, *, k: int) -> ProtocolNeighbors:
    """Every point is a query against all the others: the paper's protocol.

    T is fitted on the very neighbours that are then scored, one parameter on thousands of points.
    `gallery_and_queries` keeps the two apart.

    Parameters
    ----------
    vectors : array of shape (n, d), float32 or float64
        Embeddings.
    codes : array of shape (n,)
        Class codes, as `encode_labels` makes them.
    k : int
        How many neighbours to search; evaluation may use fewer.
    """
    _check_k(len(codes), k)
    own = own_neighbors(ExactIndex(vectors), codes, k=k)
    return ProtocolNeighbors("all_against_others", own, codes, own, codes, len(np.unique(codes)))


def gallery_and_queries(
    vectors: AnyArray, codes: IntArray, *, k: int, seed: int
) -> ProtocolNeighbors:
    """Half of every class is the gallery and fits T; the other half asks, and T never saw it.

    Parameters
    ----------
    vectors, codes, k
        As of `all_against_others`.
    seed : int
        Seed of the split; see `gallery_half`.
    """
    in_gallery = gallery_half(codes, seed=seed)
    if in_gallery.all():
        raise InvalidInputError(
            "Some class must have two points or more, one to ask and one to be found. "
            f"Got {len(codes)} points of as many classes instead."
        )
    return _search_gallery(
        "gallery_and_queries",
        (vectors[in_gallery], codes[in_gallery]),
        (vectors[~in_gallery], codes[~in_gallery]),
        k=k,
    )


def given_gallery(
    gallery_vectors: AnyArray,
    gallery_codes: IntArray,
    query_vectors: AnyArray,
    query_codes: IntArray,
    *,
    k: int,
) -> ProtocolNeighbors:
    """Gallery and queries as the data set has them.

    Parameters
    ----------
    gallery_vectors : array of shape (n_gallery, d), float32 or float64
        Embeddings of the gallery, which also fit T.
    gallery_codes : array of shape (n_gallery,)
        Their class codes, as `encode_labels` makes them.
    query_vectors : array of shape (n_queries, d)
        Embeddings of the queries.
    query_codes : array of shape (n_queries,)
        Their class codes.
    k : int
        How many neighbours to search; evaluation may use fewer.
    """
    return _search_gallery(
        "given_gallery", (gallery_vectors, gallery_codes), (query_vectors, query_codes), k=k
    )


def gallery_half(codes: IntArray, *, seed: int) -> BoolArray:
    """A random half of every class; the larger half of an odd one, and all of a single point.

    Examples
    --------
    >>> gallery_half(np.array([0, 0, 0, 0, 1]), seed=0).sum()
    np.int64(3)
    """
    order = np.random.default_rng(seed).permutation(len(codes))
    # Sorted by class with the random order kept inside, every other point of a class is taken.
    order = order[np.argsort(codes[order], kind="stable")]
    _, starts, counts = np.unique(codes[order], return_index=True, return_counts=True)
    place_in_class = np.arange(len(codes)) - np.repeat(starts, counts)
    chosen = np.zeros(len(codes), np.bool_)
    chosen[order] = place_in_class % 2 == 0
    return chosen


def _search_gallery(
    protocol: ProtocolName,
    gallery: tuple[AnyArray, IntArray],
    queries: tuple[AnyArray, IntArray],
    *,
    k: int,
) -> ProtocolNeighbors:
    vectors, codes = gallery
    _check_k(len(codes), k)
    index = ExactIndex(vectors)
    found = query_neighbors(index, codes, queries[0], k=k)
    own = own_neighbors(index, codes, k=k)
    return ProtocolNeighbors(protocol, own, codes, found, queries[1], len(np.unique(codes)))


def query_neighbors(index: ExactIndex, codes: IntArray, queries: AnyArray, *, k: int) -> Neighbors:
    """Neighbours of queries in a gallery with these class codes."""
    sq_distances, ids = index.search(queries, k)
    return Neighbors(sq_distances, codes[ids], ids)


def own_neighbors(index: ExactIndex, codes: IntArray, *, k: int) -> Neighbors:
    """Neighbours of each point of a gallery among the others."""
    return search_leaving_one_out(index, index.vectors, np.arange(len(index)), codes, k=k)


def _check_k(n_gallery: int, k: int) -> None:
    if not 1 <= k < n_gallery:
        raise InvalidInputError(
            f"k must lie in [1, {n_gallery - 1}]: each of the {n_gallery} gallery points is "
            f"searched among the others. Got {k} instead."
        )
