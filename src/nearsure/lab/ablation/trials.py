"""Which points are the gallery and which ask: one trial for each split of a data set."""

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from nearsure.arrays import AnyArray, IntArray
from nearsure.lab.ablation.variants import Gallery, Searched
from nearsure.lab.protocols import (
    ProtocolNeighbors,
    all_against_others,
    gallery_half,
    given_gallery,
)

Condition = Literal["half", "given", "all", "scarce"]
FEWEST_MEMBERS, MOST_MEMBERS = 2, 12


@dataclass(frozen=True, eq=False)
class Labelled:
    """Vectors with their class codes.

    Parameters
    ----------
    vectors : array of shape (n, d)
        Embeddings.
    codes : array of shape (n,)
        Classes.
    """

    vectors: AnyArray
    codes: IntArray

    @property
    def key(self) -> str:
        """Digest of every number, for the cache."""
        found = hashlib.sha256(np.ascontiguousarray(self.vectors).tobytes())
        found.update(np.ascontiguousarray(self.codes, np.int64).tobytes())
        return found.hexdigest()[:12]

    def take(self, rows: AnyArray) -> "Labelled":
        """Some of the points, by index or mask."""
        return Labelled(self.vectors[rows], self.codes[rows])


@dataclass(frozen=True, eq=False)
class Trial:
    """A gallery and its queries.

    Parameters
    ----------
    dataset : str
        Name of the data.
    condition : {"half", "given", "all", "scarce"}
        How gallery and queries came about: a random half of every class, the data set's own split,
        every point against all others, or a few members of each class.
    seed : int
        Of the split; 0 where there is none.
    gallery : Labelled
        With every class 0, 1, ... present.
    queries : Labelled or None
        None: every gallery point is searched among the others.
    """

    dataset: str
    condition: Condition
    seed: int
    gallery: Labelled
    queries: Labelled | None

    @property
    def asking(self) -> Labelled:
        """The queries, wherever they come from."""
        return self.queries or self.gallery

    def searched(self, k: int) -> tuple[Gallery, Searched]:
        """Neighbours of the gallery's points among each other, and of the queries."""
        own = Searched(self._widest.own.first(k), self.gallery.vectors)
        queries = Searched(self._widest.queries.first(k), self.asking.vectors)
        return Gallery(own, self.gallery.codes), queries

    @cached_property
    def _widest(self) -> ProtocolNeighbors:
        vectors, codes = self.gallery.vectors, self.gallery.codes
        k = min(WIDEST_K, len(codes) - 1)
        if self.queries is None:
            return all_against_others(vectors, codes, k=k)
        return given_gallery(vectors, codes, self.queries.vectors, self.queries.codes, k=k)


# Searched once; smaller k are the first of these neighbours.
WIDEST_K = 100


def half_trial(dataset: str, points: Labelled, seed: int) -> Trial:
    """Half of every class the gallery, the other half queries."""
    half = gallery_half(points.codes, seed=seed)
    return Trial(dataset, "half", seed, points.take(half), points.take(~half))


def scarce_trial(dataset: str, points: Labelled, seed: int) -> Trial:
    """A gallery of 2 to 12 members a class, and queries in proportion to them.

    The number of members is drawn for each class; one that has too few points for it and a query
    keeps half of them. Queries are as frequent in a class as its members are in the gallery, which
    is what every rule here takes for granted.

    Parameters
    ----------
    dataset : str
        Name of the data.
    points : Labelled
        At least four points in each class.
    seed : int
        Of all draws.
    """
    rng = np.random.default_rng([seed, 7])
    totals = np.bincount(points.codes)
    members = rng.integers(FEWEST_MEMBERS, MOST_MEMBERS + 1, size=len(totals))
    members = np.where(members < totals, members, totals // 2)
    # As many queries a member as the class that has fewest to spare can give.
    a_member = ((totals - members) / members).min()
    # Rounded up or down at random, so that small classes are asked about as often as they should.
    asked = np.floor(a_member * members + rng.random(len(totals))).astype(np.int64)
    asked = np.minimum(asked, totals - members)
    gallery, queries = [], []
    by_class = np.split(np.argsort(points.codes, kind="stable"), np.cumsum(totals)[:-1])
    for rows, n_members, n_asked in zip(by_class, members, asked, strict=True):
        drawn = rng.permutation(rows)
        gallery.append(drawn[:n_members])
        queries.append(drawn[n_members : n_members + n_asked])
    chosen = (np.sort(np.concatenate(rows)) for rows in (gallery, queries))
    return Trial(dataset, "scarce", seed, *map(points.take, chosen))
