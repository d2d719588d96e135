"""What holds the points of an engine: exactly, or in an approximate index."""

from collections.abc import Callable, Mapping
from typing import Protocol, TypeAlias

from nearsure.arrays import AnyArray, IntArray
from nearsure.engines.contract import Found, Stored

Arrays: TypeAlias = dict[str, AnyArray]
Numbers: TypeAlias = Mapping[str, float | int | str | None]


class Shelf(Protocol):
    """At least one point, found again by id or by nearness.

    Changes come in two steps. A method that ends in "ing" checks and prepares, while others read,
    and changes nothing; what it returns makes the change, while nobody reads, and returns the shelf
    to use from then on; None if nothing is left to hold.
    """

    def __len__(self) -> int: ...

    def search(self, queries: AnyArray, k: int) -> Found:
        """The k nearest points, padded where there are fewer."""

    def adding(self, vectors: AnyArray, ids: IntArray, labels: IntArray) -> "Change":
        """Add points."""

    def removing(self, ids: IntArray) -> "Change":
        """Remove points."""

    def relabelling(self, ids: IntArray, labels: IntArray) -> "Change":
        """Give points other labels."""

    def fetch(self, ids: IntArray) -> Stored:
        """Points with vectors and labels."""

    def ids_and_labels(self) -> tuple[IntArray, IntArray]:
        """Of all points, by ascending id; copies."""

    def to_state(self) -> tuple[Numbers, Arrays]:
        """All that it takes to make the same shelf."""


Change: TypeAlias = Callable[[], Shelf | None]
