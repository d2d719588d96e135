"""Changes of several requests, announced before the first and struck off after the last.

Milvus has no transactions: what needs several requests may be cut off between two of them. So a
small collection beside the gallery, ``<gallery>_open_change``, is made before the first request and
dropped after the last. It is made and dropped in one step each, survives whoever writes, and while
it is there the gallery must not be taken for whole. The name of its text field says what is under
way; its rows hold the ids, so that a load can be undone by somebody who does not have its points.
"""

import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from nearsure.arrays import AnyArray
from nearsure.engines.milvus.connection import Connection
from nearsure.engines.milvus.expressions import literal
from nearsure.engines.milvus.layout import add_index, bring_into_memory
from nearsure.engines.milvus.limits import LONGEST_TEXT, REQUEST_BYTES, portions
from nearsure.errors import (
    EngineError,
    GalleryNotFoundError,
    InvalidInputError,
    PartialGalleryError,
)

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
