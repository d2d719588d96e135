"""What this process holds of a gallery to search it: an index of rows, and their names."""

import logging
from dataclasses import dataclass
from typing import Self

import numpy as np

from nearsure.arrays import AnyArray, IntArray
from nearsure.engines.contract import Found
from nearsure.engines.embedded import IndexSettings, chosen_index
from nearsure.engines.hits import SPARE_CANDIDATES
from nearsure.engines.sqlite.connection import GalleryFile
from nearsure.engines.sqlite.gallery_index import GalleryIndex
from nearsure.engines.sqlite.index_cache import IndexCache
from nearsure.engines.sqlite.point_names import PointNames
from nearsure.engines.sqlite.point_rows import PointRows
from nearsure.engines.sqlite.schema import Layout
from nearsure.errors import EngineError, InvalidInputError

# An index that has less than this share in common with the gallery is built anew.
LEAST_COMMON = 0.5
log = logging.getLogger("nearsure.engines")


@dataclass(frozen=True, eq=False)
class Memory:
    """Index and names, in step with the file.

    Parameters
    ----------
    index : GalleryIndex
        Its ids are rows of the file; its labels mean nothing.
    names : PointNames
        Ids and labels of these rows.
    is_cached : bool
        Whether the file beside the gallery holds just this index.
    """

    index: GalleryIndex
    names: PointNames
    is_cached: bool

    @classmethod
    def of(cls, file: GalleryFile, layout: Layout, index: str, settings: IndexSettings) -> Self:
        """What a file holds; the index is built, or taken from beside the file."""
        points, names, cache = PointRows(layout), PointNames(layout), IndexCache(file)
        with file.reading() as connection:
            for portion in points.names(connection):
                rows, ids, labels = (list(column) for column in zip(*portion, strict=True))
                names.put(np.array(rows, np.int64), ids, labels)
            rows_there = names.rows
            empty = GalleryIndex(
                layout.dimension, chosen_index(index, len(rows_there)), layout.metric, settings
            )
            if not len(rows_there):
                return cls(empty, names, is_cached=False)
            cached = cache.read(empty)
            if cached is not None:
                new, gone = _differences(cached, rows_there)
                if len(new) + len(gone) <= LEAST_COMMON * len(rows_there):
                    vectors = points.vectors_of_rows(connection, new)
                    if _has_followed(cached, new, vectors, gone):
                        return cls(cached, names, is_cached=not (len(new) or len(gone)))
            vectors = points.all_vectors(connection, len(rows_there))
        built = _built(empty, rows_there, vectors, file.shown)
        cache.write(built)
        return cls(built, names, is_cached=True)

    def search(self, queries: AnyArray, k: int) -> Found:
        """The k nearest points of each query."""
        return self.names.named(self.index.search(queries, k + SPARE_CANDIDATES), k)

    def add(self, rows: IntArray, vectors: AnyArray) -> None:
        """Put rows into the index."""
        self.index.add(vectors, rows, np.zeros(len(rows), np.int64))


def _differences(index: GalleryIndex, rows: IntArray) -> tuple[IntArray, IntArray]:
    """The rows that an index lacks, ascending, and those that it has too many."""
    held = np.concatenate([np.empty(0, np.int64), *(part.ids for part in index.scan())])
    return np.setdiff1d(rows, held), np.setdiff1d(held, rows)


def _has_followed(index: GalleryIndex, new: IntArray, vectors: AnyArray, gone: IntArray) -> bool:
    """Bring an index up to date, if it can take the new vectors."""
    try:
        if len(new):
            index.add(vectors, new, np.zeros(len(new), np.int64))
        if len(gone):
            index.remove(gone)
    except InvalidInputError:
        return False
    return True


def _built(empty: GalleryIndex, rows: IntArray, vectors: AnyArray, shown: str) -> GalleryIndex:
    for index in (empty.index_type, "exact"):
        try:
            return GalleryIndex.from_points(
                vectors,
                labels=np.zeros(len(rows), np.int64),
                ids=rows,
                index=index,
                metric=empty.metric,
                settings=empty.settings,
            )
        except InvalidInputError as error:
            log.warning("An index %r of %s cannot be built: %s", index, shown, error)
    raise EngineError(
        f"{shown} holds vectors that no index takes; another program has written them. Restore "
        "it from a backup: nearsure restore BACKUP FILE"
    )
