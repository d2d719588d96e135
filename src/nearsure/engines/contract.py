"""What an engine is to nearsure: a place that holds vectors under ids and finds the nearest.

Whatever an engine calls a distance, an adapter hands out squared Euclidean distances, ascending,
equal ones in the order of ids, and gives how many of the k it found. The rest of nearsure reads
nothing else. `docs/engines.md` shows how to write an adapter; `tests/engines/contract.py` checks
one.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

from nearsure.arrays import AnyArray, FloatArray, IntArray

Fingerprint = Mapping[str, str | int | float | bool | None]
# Of ids and of labels.
Kind = Literal["integer", "text"]
Metric = Literal["euclidean", "cosine"]


@dataclass(frozen=True)
class Capabilities:
    """What an engine can do, so that nothing is asked of it that it cannot.

    Parameters
    ----------
    exact : bool
        Whether answers hold the true k nearest, up to ties.
    holds_labels : bool
        Whether it keeps a label beside each vector; otherwise nearsure keeps them itself.
    ids : {"integer", "text"}
        What names a vector: int64, or strings.
    labels : {"integer", "text"} or None
        What its labels are; None if it has none.
    largest_k : int or None
        The most neighbours that it can be asked for; None if there is no limit.
    """

    exact: bool
    holds_labels: bool
    ids: Kind = "integer"
    labels: Kind | None = None
    largest_k: int | None = None


@dataclass(frozen=True, eq=False)
class Found:
    """The answer to a search; `nearsure.engines.hits` makes it of whatever an engine returns.

    Parameters
    ----------
    sq_distances : array of shape (n, k)
        Squared Euclidean distances, ascending, equal ones in the order of ids; infinite behind
        `counts`.
    ids : array of shape (n, k)
        Int64 or strings; -1 or "" behind `counts`.
    counts : array of shape (n,)
        How many entries of each row are valid.
    labels : array of shape (n, k) or None
        Int64 or strings; None if the engine holds none.
    """

    sq_distances: FloatArray
    ids: AnyArray
    counts: IntArray
    labels: AnyArray | None = None


@dataclass(frozen=True, eq=False)
class Stored:
    """Some of the points that an engine holds.

    Parameters
    ----------
    ids : array of shape (n,)
        Int64 or strings.
    labels : array of shape (n,) or None
        Int64 or strings; None if the engine holds none.
    vectors : array of shape (n, dimension) or None
        None where they were not asked for.
    """

    ids: AnyArray
    labels: AnyArray | None = None
    vectors: AnyArray | None = None


@dataclass(frozen=True)
class Effort:
    """How much of an approximate index is searched: candidates of a graph, probes of lists.

    Parameters
    ----------
    name : str
        Its key in the fingerprint.
    value : int
        What `search` takes.
    largest : int
        The most that the engine takes.
    """

    name: str
    value: int
    largest: int


@runtime_checkable
class AdjustableEngine(Protocol):
    """What an approximate engine may have besides: searches that take more effort than usual.

    A fit measures how many of the true neighbours are found, and raises the effort where they are
    too few. An engine without this is measured all the same.
    """

    @property
    def effort(self) -> Effort | None:
        """The effort of `search`, and its range; None if there is none to choose."""

    def search_with_effort(self, queries: AnyArray, k: int, effort: int) -> Found:
        """The same as `search`, with this effort, from 1 to the largest."""


@runtime_checkable
class Engine(Protocol):
    """The contract. Every method raises errors of `nearsure.errors`, which hold no secrets.

    A change is whole or not at all; where an engine cannot promise that, it raises
    `PartialGalleryError` until the change has been repeated or undone. Methods may be called from
    several threads at once.
    """

    @property
    def capabilities(self) -> Capabilities:
        """What it can do."""

    @property
    def dimension(self) -> int:
        """Length of a vector."""

    @property
    def metric(self) -> Metric:
        """Whether vectors are compared as they are, or at unit length (|z - z_i|^2 = 2 - 2 cos)."""

    def fingerprint(self) -> Fingerprint:
        """All that decides which neighbours are found: engine, index type, parameters.

        No address, no secret, nothing that changes with the points. It costs no request.
        """

    def size(self) -> int:
        """How many points there are now, whoever added them."""

    def search(self, queries: AnyArray, k: int) -> Found:
        """The k nearest points of each query.

        Parameters
        ----------
        queries : array of shape (n, dimension)
            Finite float32 or float64, n >= 1. Large batches are divided by the engine.
        k : int
            At least 1; more than there are points gives them all, and `counts` has how many.
        """

    def add(self, vectors: AnyArray, ids: AnyArray, labels: AnyArray | None = None) -> None:
        """Add points, all or none.

        Parameters
        ----------
        vectors : array of shape (n, dimension)
            Finite.
        ids : array of shape (n,)
            Distinct; none may be there already.
        labels : array of shape (n,), optional
            Given if, and only if, the engine holds labels.
        """

    def remove(self, ids: AnyArray) -> None:
        """Remove points, all or none; an id that is not there is an error."""

    def relabel(self, ids: AnyArray, labels: AnyArray) -> None:
        """Give points other labels, all or none; only for engines that hold labels."""

    def fetch(self, ids: AnyArray) -> Stored:
        """Points with vectors and labels, in the order of `ids`; a missing id is an error."""

    def scan(self) -> Iterator[Stored]:
        """All ids and labels, in portions, ids ascending; without vectors.

        What others add or remove meanwhile may or may not be seen.
        """

    def close(self) -> None:
        """Give back connections and files. Closing twice is no error."""
