"""What a gallery must be able to say for a classifier to be fitted on it."""

from typing import Protocol

from numpy.typing import ArrayLike

from nearsure.arrays import AnyArray, IntArray
from nearsure.neighbors import Neighbors


class Gallery(Protocol):
    """Labelled points, in memory (`SupportSet`) or in an engine (`EngineGallery`)."""

    def __len__(self) -> int: ...

    @property
    def classes(self) -> AnyArray:
        """The labels that class codes stand for."""

    @property
    def ids(self) -> AnyArray:
        """Ids of all points."""

    @property
    def codes(self) -> IntArray:
        """Class codes of all points, in the order of `ids`."""

    @property
    def class_counts(self) -> IntArray:
        """Members of each class, indexed by code."""

    @property
    def n_changes(self) -> int:
        """How often a point was added, removed or relabelled."""

    def ids_at(self, places: IntArray) -> AnyArray:
        """The ids at some places in the order of all ids, places ascending."""

    def holds(self, ids: AnyArray) -> AnyArray:
        """Which of some ids are there."""

    def codes_of(self, ids: AnyArray) -> IntArray:
        """Class codes of points."""

    def members_left(self, ids: AnyArray) -> IntArray:
        """Members of each point's class that are left without it, or its group."""

    def search(self, queries: AnyArray, k: int) -> Neighbors:
        """The k nearest points of each query."""

    def leave_one_out(self, ids: AnyArray | None, k: int) -> Neighbors:
        """The k nearest of all other points of some points, or of all."""

    def leave_class_out(self, ids: AnyArray | None, k: int) -> Neighbors:
        """The k nearest points of other classes of some points, or of all."""

    def remove(self, ids: ArrayLike, *, allow_empty_class: bool = False) -> None:
        """Remove points."""

    def share_changed(self, since: int) -> float:
        """Points changed since a mark, as a share of the points of now."""
