"""Points of an engine, searched among the others."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from nearsure.arrays import AnyArray, BoolArray, IntArray
from nearsure.engines.contract import Engine
from nearsure.errors import InvalidInputError
from nearsure.loo import in_places, keep_first
from nearsure.neighbors import Neighbors

# Points whose vectors are fetched at a time.
PORTION = 2048
# Neighbours that are listed at a time, of all points together.
LISTED = 4_000_000


@dataclass(frozen=True, eq=False)
class AskedPoints:
    """Points of a gallery that are asked about themselves.

    Parameters
    ----------
    ids : array of shape (n,)
        Of the points.
    vectors : array of shape (n, dimension)
        Theirs.
    codes : array of shape (n,)
        Their classes.
    """

    ids: AnyArray
    vectors: AnyArray
    codes: IntArray

    def take(self, rows: IntArray) -> "AskedPoints":
        """Some of them."""
        return AskedPoints(self.ids[rows], self.vectors[rows], self.codes[rows])


class Searched(Protocol):
    """What is searched."""

    engine: Engine

    def __len__(self) -> int: ...

    def search(self, queries: AnyArray, k: int) -> Neighbors:
        """The k nearest points of each query."""

    def points_of(self, ids: AnyArray) -> AskedPoints:
        """Some points, with their vectors."""


def search_leaving_out(
    gallery: Searched,
    ids: AnyArray,
    k: int,
    others: Callable[[Neighbors, AskedPoints], BoolArray],
    largest: int | None = None,
) -> Neighbors:
    """The k nearest of those points that are not left out.

    One more than k is asked for, and four times as many again where more than one was left out.

    Parameters
    ----------
    gallery : Searched
        With its engine.
    ids : array of shape (n,)
        The points.
    k : int
        How many neighbours.
    others : callable
        From what was found for some points, and the points, to which neighbours stay.
    largest : int, optional
        The most neighbours to ask for; by default as many as there are, or the engine lists.

    Returns
    -------
    Neighbors
        Rows hold fewer than k, or none, where the engine lists no more.
    """
    if not len(ids):
        raise InvalidInputError("At least one point must be asked about. Got none.")
    limits = (len(gallery), gallery.engine.capabilities.largest_k, largest)
    n_most = min(limit for limit in limits if limit is not None)
    parts: list[tuple[IntArray, Neighbors]] = []
    first = 0
    for some in portions(ids):
        asked = gallery.points_of(some)
        open_rows, n_searched = np.arange(len(some)), min(k + 1, n_most)
        while open_rows.size:
            still_open = []
            for rows in blocks(open_rows, max(1, LISTED // n_searched)):
                found = gallery.search(asked.vectors[rows], n_searched)
                kept = keep_first(found, others(found, asked.take(rows)), k)
                parts.append((first + rows, kept))
                # An engine that lists fewer than it was asked for has no more to give.
                more = (kept.counts < k) & found.valid[:, -1]
                still_open.append(rows[more])
            open_rows = np.concatenate(still_open)
            if n_searched == n_most:
                break
            n_searched = min(4 * n_searched, n_most)
        first += len(some)
    return in_places(parts, len(ids))


def portions(ids: AnyArray) -> Iterator[AnyArray]:
    """Some ids at a time."""
    return blocks(ids, PORTION)


def blocks(rows: AnyArray, size: int) -> Iterator[AnyArray]:
    """Some of them at a time."""
    for start in range(0, len(rows), size):
        yield rows[start : start + size]
