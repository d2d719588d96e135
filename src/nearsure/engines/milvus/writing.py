"""What is written to a collection, whole or not taken for whole."""

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from itertools import chain, islice
from typing import Any

import numpy as np

from nearsure.arrays import AnyArray
from nearsure.engines.milvus.answers import array_of
from nearsure.engines.milvus.expressions import one_of
from nearsure.engines.milvus.failures import TooLargeError
from nearsure.engines.milvus.layout import Collection, wait_for_index
from nearsure.engines.milvus.limits import ATOMIC_BYTES, asked_in_portions, portions
from nearsure.engines.milvus.open_change import Change, OpenChange, OpenChanges, checksum_of
from nearsure.engines.milvus.reading import Reader, id_portions, unknown_ids
from nearsure.errors import EngineUnavailableError, InvalidInputError, PartialGalleryError
from nearsure.index.stable_ids import a_few


class Writer:
    """Writes of one collection.

    Points are upserted, never inserted: Milvus takes an inserted id twice, also where a client
    repeats a request whose answer got lost.
    """

    def __init__(self, collection: Collection, changes: OpenChanges, reader: Reader) -> None:
        self._collection, self._changes, self._reader = collection, changes, reader
        self._fields, self._layout = collection.fields, collection.layout

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
        if change is not None:
            try:
                wait_for_index(self._collection.connection, self._collection.name)
            except EngineUnavailableError as error:
                raise EngineUnavailableError(
                    f"All {len(ids)} points were added; do not add them again. {error}"
                ) from None

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

        A row is written anew as a whole, with what other fields it has. How large these are is
        known once they have been read, so that the first two requests are made up before it is
        decided whether the change is announced.
        """
        change = OpenChange("relabelling", len(ids), checksum_of(ids))
        with self._lock:
            is_announced = self._check_there(ids, change)
            requests = self._relabelled(ids, labels)
            waiting = list(islice(requests, 2))
            if not is_announced and self._announced("relabelling", len(waiting), ids):
                self._changes.announce(change, ids)
                is_announced = True
            for rows in chain(waiting, requests):
                try:
                    self._upsert(rows)
                except TooLargeError:
                    if len(rows) == 1:
                        raise
                    if not is_announced:
                        self._changes.announce(change, ids)
                        is_announced = True
                    self._upsert_in_halves(rows)
            self._done(change if is_announced else None)

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

    @property
    def _lock(self) -> AbstractContextManager[Any]:
        return self._collection.connection.write_lock

    def _announced(
        self, kind: Change, n_requests: int, ids: AnyArray, *others: AnyArray | None
    ) -> OpenChange | None:
        """What to announce; None if one request, of one shard, does it."""
        if n_requests <= 1 and (self._layout.n_shards == 1 or len(ids) <= 1):
            return None
        return OpenChange(kind, len(ids), checksum_of(ids, *others))

    def _check_there(self, ids: AnyArray, change: OpenChange | None) -> bool:
        """An error for ids that are not there; whether the change was announced before."""
        if self._changes.check_none(change):
            return True
        there = self._reader.are_there(ids)
        if not there.all():
            raise unknown_ids(ids[~there].tolist())
        return False

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

    def _relabelled(self, ids: AnyArray, labels: AnyArray) -> Iterator[list[dict[str, Any]]]:
        """Whole rows with other labels, as many at once as one request may hold."""
        field = str(self._fields.label)
        label_of = dict(zip(ids.tolist(), labels.tolist(), strict=True))
        together: list[dict[str, Any]] = []
        n_bytes = 0
        for row in self._reader.whole_rows(ids, self._row_bytes(ids, labels)):
            row[field] = label_of[row[self._fields.id]]
            own_bytes = self._bytes_of(row)
            if together and n_bytes + own_bytes > ATOMIC_BYTES:
                yield together
                together, n_bytes = [], 0
            together.append(row)
            n_bytes += own_bytes
        if together:
            yield together

    def _bytes_of(self, row: dict[str, Any]) -> int:
        """About what a row takes in a request, rather too much."""
        others = {name: value for name, value in row.items() if name != self._fields.vector}
        return self._layout.row_bytes + len(json.dumps(others, default=repr))

    def _upsert_in_halves(self, rows: list[dict[str, Any]]) -> None:
        """Write what was too large for one request."""
        whole = [slice(0, len(rows))]
        for _ in asked_in_portions(whole, lambda part: self._upsert(rows[part])):
            pass

    def _upsert(self, rows: list[dict[str, Any]]) -> None:
        self._collection.ask("upsert", rows)

    def _delete(self, ids: AnyArray) -> None:
        self._collection.ask("delete", filter=one_of(self._fields.id, ids))
