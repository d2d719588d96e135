"""What is written to a collection, whole or not taken for whole."""

from collections.abc import Callable
from typing import Any

import numpy as np

from nearsure.arrays import AnyArray
from nearsure.engines.milvus.answers import array_of
from nearsure.engines.milvus.expressions import one_of
from nearsure.engines.milvus.layout import Collection
from nearsure.engines.milvus.limits import ATOMIC_BYTES, portions
from nearsure.engines.milvus.open_change import Change, OpenChange, OpenChanges, checksum_of
from nearsure.engines.milvus.reading import Reader, id_portions, unknown_ids
from nearsure.errors import InvalidInputError, PartialGalleryError
from nearsure.index.stable_ids import a_few


class Writer:
    """Writes of one collection.

    Points are upserted, never inserted: Milvus takes an inserted id twice, also where a client
    repeats a request whose answer got lost.
    """

    def __init__(self, collection: Collection, changes: OpenChanges, reader: Reader) -> None:
        self._collection, self._changes, self._reader = collection, changes, reader
        self._fields, self._layout = collection.fields, collection.layout
        self._lock = collection.connection.write_lock

    def add(
        self,
        vectors: AnyArray,
        ids: AnyArray,
        labels: AnyArray | None,
        progress: Callable[[int], None] | None,
    ) -> None:
        """Add points that are not there, or complete a load of the same points."""
        parts = list(portions(len(ids), self._row_bytes(ids, labels), len(ids), ATOMIC_BYTES))
        change = self._announced("load", len(parts), ids, labels, vectors)
        with self._lock:
            resumed = self._changes.check_none(change)
            there = self._reader.are_there(ids)
            if there.any() and not resumed:
                raise InvalidInputError(
                    f"ids of new points must be new. Got {a_few(ids[there].tolist())}, which the "
                    "gallery holds already. Remove these points first."
                )
            if change is not None:
                self._changes.announce(change, ids)
            for part in parts:
                if not there[part].all():
                    self._upsert(self._rows(vectors[part], ids[part], labels, part))
                if progress is not None:
                    progress(part.stop)
            self._done(change)

    def remove(self, ids: AnyArray) -> None:
        """Remove points that are there, or complete a removal of the same."""
        parts = list(id_portions(ids))
        change = self._announced("removal", len(parts), ids)
        with self._lock:
            self._check_there(ids, change)
            if change is not None:
                self._changes.announce(change, ids)
            for part in parts:
                self._delete(ids[part])
            self._done(change)

    def relabel(self, ids: AnyArray, labels: AnyArray) -> None:
        """Give points other labels, or complete doing so.

        A row is written anew as a whole, with what other fields it has.
        """
        field = str(self._fields.label)
        label_of = dict(zip(ids.tolist(), labels.tolist(), strict=True))
        bytes_each = self._row_bytes(ids, labels)
        parts = list(portions(len(ids), bytes_each, len(ids), ATOMIC_BYTES))
        change = self._announced("relabelling", len(parts), ids)
        with self._lock:
            self._check_there(ids, change)
            if change is not None:
                self._changes.announce(change, ids)
            for part in parts:
                rows = []
                for few in id_portions(ids[part], bytes_each):
                    rows += self._reader.whole_rows(ids[part][few])
                for row in rows:
                    row[field] = label_of[row[self._fields.id]]
                self._upsert(rows)
            self._done(change)

    def undo_load(self) -> None:
        """Remove what came of a load that was cut off."""
        with self._lock:
            change = self._changes.current()
            if change is None:
                return
            if change.kind != "load":
                raise PartialGalleryError(
                    f"A {change.kind} was cut off, which cannot be undone: do the same again."
                )
            for listed in self._changes.listed_ids(change):
                ids = array_of(listed, self._layout.ids)
                for part in id_portions(ids):
                    self._delete(ids[part])
            self._done(change)

    def _announced(
        self, kind: Change, n_requests: int, ids: AnyArray, *others: AnyArray | None
    ) -> OpenChange | None:
        """What to announce; None if one request, of one shard, does it."""
        if n_requests <= 1 and (self._layout.n_shards == 1 or len(ids) <= 1):
            return None
        return OpenChange(kind, len(ids), checksum_of(ids, *others))

    def _check_there(self, ids: AnyArray, change: OpenChange | None) -> None:
        if self._changes.check_none(change):
            return
        there = self._reader.are_there(ids)
        if not there.all():
            raise unknown_ids(ids[~there].tolist())

    def _done(self, change: OpenChange | None) -> None:
        if change is not None:
            self._changes.strike_off()

    def _row_bytes(self, ids: AnyArray, labels: AnyArray | None) -> int:
        texts = sum(
            int(np.char.str_len(values).max(initial=0)) * 4
            for values in (ids, labels)
            if values is not None and values.dtype.kind == "U"
        )
        return self._layout.row_bytes + texts

    def _rows(
        self, vectors: AnyArray, ids: AnyArray, labels: AnyArray | None, part: slice
    ) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = [
            {self._fields.id: own, self._fields.vector: vector}
            for own, vector in zip(ids.tolist(), vectors, strict=True)
        ]
        if labels is not None:
            for row, label in zip(rows, labels[part].tolist(), strict=True):
                row[str(self._fields.label)] = label
        return rows

    def _upsert(self, rows: list[dict[str, Any]]) -> None:
        self._collection.ask("upsert", rows)

    def _delete(self, ids: AnyArray) -> None:
        self._collection.ask("delete", filter=one_of(self._fields.id, ids))
