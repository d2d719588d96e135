"""Add, remove and relabel points of a Milvus collection."""

import hashlib
import json
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, Literal

import numpy as np

from nearsure.arrays import AnyArray
from nearsure.engines.milvus.client import Connection, TooLargeError
from nearsure.engines.milvus.collection import (
    ATOMIC_BYTES,
    LONGEST_TEXT,
    REQUEST_BYTES,
    Collection,
    add_index,
    asked_in_portions,
    bring_into_memory,
    literal,
    one_of,
    portions,
    wait_for_index,
)
from nearsure.engines.milvus.reader import Reader, array_of, id_portions, unknown_ids
from nearsure.errors import (
    EngineError,
    EngineUnavailableError,
    GalleryNotFoundError,
    InvalidInputError,
    PartialGalleryError,
)
from nearsure.validation import preview

# Changes of several requests, announced before the first and struck off after the last.
#
# Milvus has no transactions: what needs several requests may be cut off between two of them. So a
# small collection beside the gallery, ``<gallery>_open_change``, is made before the first request
# and dropped after the last. It is made and dropped in one step each, survives whoever writes, and
# while it is there the gallery must not be taken for whole. The name of its text field says what is
# under way; its rows hold the ids, so that a load can be undone by somebody who does not have its
# points.


Change = Literal["load", "removal", "relabelling"]

_FIELD = re.compile(r"(load|removal|relabelling)_of_(\d+)_points_([0-9a-f]{32})")
_HASHED_ROWS = 65536
_REMEDIES = {
    "load": "repeat add() with the same points, or undo it with undo_load()",
    "removal": "repeat remove() with the same ids",
    "relabelling": "repeat relabel() for the same ids",
}


@dataclass(frozen=True)
class OpenChange:
    """What is under way: of how many points, and a checksum of them."""

    kind: Change
    n_points: int
    checksum: str

    @property
    def field(self) -> str:
        """The same as the name of a field."""
        return f"{self.kind}_of_{self.n_points}_points_{self.checksum}"


class OpenChanges:
    """The announcements of one gallery."""

    def __init__(self, connection: Connection, gallery: str) -> None:
        self._connection, self._gallery = connection, gallery
        self._name = f"{gallery}_open_change"

    def current(self) -> OpenChange | None:
        """What is under way, or was cut off."""
        if not self._connection.ask("has_collection", self._name):
            return None
        for field in self._connection.ask("describe_collection", self._name)["fields"]:
            match = _FIELD.fullmatch(field["name"])
            if match:
                kind: Any = match[1]
                return OpenChange(kind, int(match[2]), match[3])
        raise EngineError(
            f"The collection {self._name!r} is not nearsure's, and stands where nearsure notes "
            "what is under way. Rename it, or the gallery."
        )

    def check_none(self, own: OpenChange | None = None) -> bool:
        """Raise if a change other than one's own is open; return whether one's own is."""
        current = self.current()
        if current is not None and current != own:
            raise PartialGalleryError(
                f"A {current.kind} of {current.n_points} points in {self._gallery!r} is under way "
                f"or was cut off, so that the gallery is not whole. If nobody is at it, "
                f"{_REMEDIES[current.kind]}."
            )
        return current is not None

    def announce(self, change: OpenChange, ids: AnyArray) -> None:
        """Note a change and its ids; once more does no harm."""
        rows = list(_packed(np.sort(ids)))
        if self.current() is None:
            try:
                self._connection.ask("create_collection", self._name, schema=_schema(change))
            except EngineError:
                # Another was first. That is an error unless it announced the same.
                if not self.check_none(change):
                    raise
        for part in portions(len(rows), LONGEST_TEXT, len(rows), REQUEST_BYTES):
            numbered = enumerate(rows[part], part.start)
            self._connection.ask(
                "upsert",
                self._name,
                [{"part": i, change.field: row, "nothing": [0.0, 0.0]} for i, row in numbered],
            )

    def strike_off(self) -> None:
        """The change is done."""
        with suppress(GalleryNotFoundError):  # dropped by a request whose answer got lost
            self._connection.ask("drop_collection", self._name)

    def listed_ids(self, change: OpenChange) -> Iterator[list[Any]]:
        """The ids of an announced change; none if they were not all written down.

        Then the announcement itself was cut off, and nothing was changed yet.
        """
        from pymilvus import MilvusClient  # noqa: PLC0415

        indexes = MilvusClient.prepare_index_params()
        indexes.add_index("nothing", index_type="FLAT", metric_type="L2")
        add_index(self._connection, self._name, indexes)
        bring_into_memory(self._connection, self._name)
        most = REQUEST_BYTES // LONGEST_TEXT
        listed: list[list[Any]] = []
        start = 0
        while True:
            rows = self._connection.ask(
                "query",
                self._name,
                filter=f"part >= {start} and part < {start + most}",
                output_fields=[change.field],
                consistency_level="Strong",
            )
            listed += [json.loads(row[change.field]) for row in rows]
            if len(rows) < most:
                break
            start += most
        if sum(map(len, listed)) == change.n_points:
            yield from listed


def checksum_of(ids: AnyArray, *others: AnyArray | None) -> str:
    """A checksum of points that does not depend on their order."""
    order = np.argsort(ids)
    total = hashlib.sha256()
    for values in (ids, *others):
        for start in range(0, len(order) if values is not None else 0, _HASHED_ROWS):
            part = values[order[start : start + _HASHED_ROWS]]  # type: ignore[index]
            text = "\x00".join(part.tolist()).encode() if part.dtype.kind == "U" else part.tobytes()
            total.update(text)
        total.update(b"\x01")
    return total.hexdigest()[:32]


def _packed(ids: AnyArray) -> Iterator[str]:
    """Ids as texts that a field can hold."""
    longest = max(len(literal(own).encode()) for own in ids.tolist()) + 2
    if longest > LONGEST_TEXT:
        raise InvalidInputError(
            f"ids of a change of several requests must have at most {LONGEST_TEXT // 2} bytes. "
            f"Got one of {longest}."
        )
    for part in portions(len(ids), longest, len(ids), LONGEST_TEXT):
        yield json.dumps(ids[part].tolist(), ensure_ascii=False, separators=(",", ":"))


def _schema(change: OpenChange) -> Any:  # noqa: ANN401
    from pymilvus import DataType, MilvusClient  # noqa: PLC0415

    schema = MilvusClient.create_schema(auto_id=False, enable_dynamic_field=False)
    schema.add_field("part", DataType.INT64, is_primary=True)
    schema.add_field(change.field, DataType.VARCHAR, max_length=LONGEST_TEXT)
    # Every collection must have a vector.
    schema.add_field("nothing", DataType.FLOAT_VECTOR, dim=2)
    return schema


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
                    f"ids of new points must be new. Got {preview(ids[there].tolist())}, which the "
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
