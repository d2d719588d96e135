"""What an approximate index is to the shelf that it stands in."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from nearsure.arrays import AnyArray, BoolArray, IntArray
from nearsure.engines.embedded.choice import ApproximateType, IndexSettings
from nearsure.engines.embedded.native import faiss
from nearsure.engines.embedded.selection import Selection


class FaissRows(Protocol):
    """Float32 vectors in numbered rows, which faiss searches; rows are added, never removed."""

    index: Any
    """The faiss index."""
    settings: IndexSettings
    """How it is built and searched."""

    @property
    def kind(self) -> ApproximateType:
        """Which index it is."""

    @property
    def n_rows(self) -> int:
        """How many rows there are."""

    @property
    def n_trained(self) -> int | None:
        """For how many points it was trained; None if it is not."""

    def reserve(self, n_rows: int) -> None:
        """Make room for the first rows."""

    def add(self, vectors: AnyArray) -> None:
        """Add float32 rows behind the last."""

    def search(
        self, queries: AnyArray, k: int, selection: Selection | None, effort: int = 1
    ) -> tuple[AnyArray, IntArray]:
        """The k nearest rows, as faiss finds them: squared distances and rows, padded with -1.

        `effort` says how many times as much of the index as usual is looked at.
        """

    def search_all(
        self, queries: AnyArray, k: int, selection: Selection | None
    ) -> tuple[AnyArray, IntArray]:
        """The same, with every row looked at."""

    def selected(self, row_mask: BoolArray) -> Selection:
        """A selection for `search`; good until rows are added."""

    def vectors_of(self, rows: IntArray) -> AnyArray:
        """The float32 vectors of some rows."""

    def is_outgrown_by(self, n_points: int) -> bool:
        """Whether so many points would be better served by an index made for them."""

    @property
    def nodes(self) -> IntArray | None:
        """The row of the faiss index that stands for each row; None if that is the row itself."""


@contextmanager
def threads(n_threads: int | None) -> Iterator[None]:
    """Let faiss use this many threads, in calls from this thread; None leaves it as it is."""
    if n_threads is None:
        yield
        return
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(n_threads)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)
