"""What a gallery tells of itself and of its points from the file alone, without the index."""

from abc import ABC, abstractmethod
from collections.abc import Iterator

import numpy as np

from nearsure.arrays import AnyArray
from nearsure.engines import checks
from nearsure.engines.contract import Capabilities, Fingerprint, Stored
from nearsure.engines.embedded import IndexSettings
from nearsure.engines.sqlite.connection import GalleryFile
from nearsure.engines.sqlite.file_check import check_tables
from nearsure.engines.sqlite.pictures import picture_of
from nearsure.engines.sqlite.point_rows import READ_AT_ONCE, PointRows
from nearsure.engines.sqlite.schema import Layout, Metric
from nearsure.errors import InvalidInputError

# Points that one check reads.
CHECKED_AT_ONCE = 1000


class StoredGallery(ABC):
    """capabilities, dimension, metric, fingerprint; fetch, scan, page, count, picture, check."""

    index_type: str
    _file: GalleryFile
    _layout: Layout
    _points: PointRows
    _settings: IndexSettings
    _checked_up_to: str | int | None = None

    @abstractmethod
    def size(self) -> int:
        """How many points there are."""

    @property
    def capabilities(self) -> Capabilities:
        """What it can do."""
        return Capabilities(
            exact=self.index_type == "exact",
            holds_labels=True,
            ids=self._layout.ids,
            labels=self._layout.labels,
        )

    @property
    def dimension(self) -> int:
        """Length of a vector."""
        return self._layout.dimension

    @property
    def metric(self) -> Metric:
        """Whether vectors are compared as they are, or at unit length."""
        return self._layout.metric

    def fingerprint(self) -> Fingerprint:
        """Engine, index and its settings; metric and precision where they are not the usual."""
        usual = Layout(1)
        unusual = {
            name: getattr(self._layout, name)
            for name in ("metric", "precision")
            if getattr(self._layout, name) != getattr(usual, name)
        }
        settings = self._settings.of(self.index_type)
        return {"engine": "sqlite", "index": self.index_type, **unusual, **settings}

    def fetch(self, ids: AnyArray) -> Stored:
        """Points with vectors and labels, in the order of `ids`, which may come twice."""
        given = np.asarray(ids)
        distinct, places = np.unique(given, return_inverse=True)
        known = checks.checked_ids(given if given.ndim != 1 else distinct, self.capabilities)
        with self._file.reading() as connection:
            return self._points.fetch(connection, known[places])

    def scan(self) -> Iterator[Stored]:
        """All ids and labels in portions, ids ascending; each portion as it is when it is taken."""
        portion = self.page(limit=READ_AT_ONCE)
        while len(portion.ids):
            yield portion
            portion = self.page(after=portion.ids[-1].item(), limit=READ_AT_ONCE)

    def page(
        self,
        after: str | int | None = None,
        limit: int = 100,
        label: str | int | None = None,
    ) -> Stored:
        """Some ids and labels, ids ascending, without vectors.

        Parameters
        ----------
        after : str or int, optional
            Only ids beyond this one, which need not be there; by default from the first on.
        limit : int
            How many at most.
        label : str or int, optional
            Only points with this label.
        """
        if limit < 1:
            raise InvalidInputError(f"limit must be at least 1. Got {limit} instead.")
        first = None if after is None else self._checked_id(after)
        with self._file.reading() as connection:
            return self._points.page(connection, first, int(limit), self._checked_label(label))

    def count(self, label: str | int | None = None) -> int:
        """How many points have a label; by default, how many there are."""
        if label is None:
            return self.size()
        with self._file.reading() as connection:
            return self._points.count(connection, self._checked_label(label))

    def picture(self, own_id: str | int) -> bytes | None:
        """The picture of a point; None if there is none, or no such point."""
        wanted = self._checked_id(own_id)
        with self._file.reading() as connection:
            return picture_of(connection, wanted)

    def check(self) -> None:
        """An error unless the file can be read now, whatever was read of it before.

        It reads what the tables are, and some points, the next time those behind them: little
        enough to be asked every second. Points that could not be read are tried again.
        """
        with self._file.reading() as connection:
            # What a connection remembers need not be in the file any more.
            connection.execute("PRAGMA shrink_memory")
            check_tables(connection, self._file.shown)
            ids = self._points.page(connection, self._checked_up_to, CHECKED_AT_ONCE, None).ids
            self._points.fetch(connection, ids)
        self._checked_up_to = ids[-1].item() if len(ids) == CHECKED_AT_ONCE else None

    def __repr__(self) -> str:
        return (
            f"SqliteEngine({self._file.shown!r}, dimension={self.dimension}, "
            f"index={self.index_type!r}, metric={self.metric!r})"
        )

    def _checked_id(self, own_id: str | int) -> str | int:
        checked: str | int = checks.checked_ids(np.array([own_id]), self.capabilities)[0].item()
        return checked

    def _checked_label(self, label: str | int | None) -> str | int | None:
        if label is None:
            return None
        own: str | int = checks.checked_labels(np.array([label]), 1, self.capabilities)[0].item()
        return own
