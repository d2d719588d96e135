"""Add, remove and relabel points of a Milvus collection."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, Literal

import numpy as np

from nearsure.arrays import AnyArray, BoolArray
from nearsure.engines.checks import check_all_there, check_none_there
from nearsure.engines.milvus.client import TooLargeError
from nearsure.engines.milvus.collection import (
    ATOMIC_BYTES,
    ask_in_portions,
    one_of,
    portions,
    wait_for_index,
)
from nearsure.engines.milvus.reader import Reader, id_portions
from nearsure.errors import EngineUnavailableError, PartialGalleryError

Kind = Literal["add", "remove", "relabel"]


@dataclass
class Change:
    """A change of points; if it takes several requests, it may be cut off between two of them."""

    kind: Kind
    ids: frozenset[Any]
    takes_several: bool


class Writer:
    """Writes of one collection.

    Points are upserted, never inserted: Milvus takes an inserted id twice, also where a client
    repeats a request whose answer got lost.
    """

    def __init__(self, reader: Reader) -> None:
        self._reader, self._layout = reader, reader.layout
        self._cut_off: Change | None = None

    def check_whole(self) -> None:
        """An error while a change that was cut off is neither completed nor taken back."""
        change = self._cut_off
        if change is not None:
            remedy = f"Repeat {change.kind}() with the same points"
            if change.kind == "add":
                remedy += ", or take it back with remove() of the same ids"
            raise PartialGalleryError(
                f"{change.kind}() of {len(change.ids)} points in {self._reader.name!r} was cut "
                f"off, so that the gallery is not whole. {remedy}."
            )

    def add(
        self,
        vectors: AnyArray,
        ids: AnyArray,
        labels: AnyArray | None,
        progress: Callable[[int], None] | None,
    ) -> None:
        """Add points that are not there, or complete a load of the same points."""
        parts = list(portions(len(ids), self._row_bytes(ids, labels), len(ids), ATOMIC_BYTES))
        with self._reader.connection.write_lock:
            change, is_repeated = self._begin("add", ids, len(parts))
            there = self._reader.are_there(ids)
            if change.takes_several:
                is_repeated = is_repeated or self._holds(vectors, ids, labels, there)
            if not is_repeated:
                check_none_there(ids[there].tolist())
            with self._noting(change):
                for part in parts:
                    self._upsert(self._rows(vectors[part], ids[part], labels, part))
                    if progress is not None:
                        progress(part.stop)
        if change.takes_several:
            try:
                wait_for_index(self._reader.connection, self._reader.name)
            except EngineUnavailableError as error:
                raise EngineUnavailableError(
                    f"All {len(ids)} points were added; do not add them again. {error}"
                ) from None

    def remove(self, ids: AnyArray) -> None:
        """Remove points that are there, or complete a removal, or take back a load."""
        parts = list(id_portions(ids))
        with self._reader.connection.write_lock:
            change, is_repeated = self._begin("remove", ids, len(parts))
            if not is_repeated:
                self._check_there(ids)
            with self._noting(change):
                for part in parts:
                    self._reader.ask("delete", filter=one_of(self._layout.id_field, ids[part]))

    def relabel(self, ids: AnyArray, labels: AnyArray) -> None:
        """Give points other labels, or complete doing so.

        A row is written anew as a whole, with what other fields it has. How large these are is
        known once they have been read, so that the first two requests are made up first.
        """
        with self._reader.connection.write_lock:
            self._begin("relabel", ids, 1)
            self._check_there(ids)
            requests = self._relabelled_rows(ids, labels)
            waiting = list(islice(requests, 2))
            change, _ = self._begin("relabel", ids, len(waiting))
            with self._noting(change):
                for rows in chain(waiting, requests):
                    try:
                        self._upsert(rows)
                    except TooLargeError:
                        if len(rows) == 1:
                            raise
                        change.takes_several = True
                        self._upsert_in_halves(rows)

    def _begin(self, kind: Kind, ids: AnyArray, n_requests: int) -> tuple[Change, bool]:
        """A change, and whether it repeats or takes back the one that was cut off."""
        takes_several = n_requests > 1 or (self._layout.n_shards > 1 and len(ids) > 1)
        change = Change(kind, frozenset(ids.tolist()), takes_several)
        earlier = self._cut_off
        if earlier is None:
            return change, False
        if change.ids != earlier.ids or kind not in {earlier.kind, "remove"}:
            self.check_whole()
        return change, True

    @contextmanager
    def _noting(self, change: Change) -> Iterator[None]:
        """Remember a change that is cut off, until it is completed or taken back."""
        try:
            yield
        except BaseException:
            if change.takes_several:
                self._cut_off = change
            raise
        self._cut_off = None

    def _holds(
        self, vectors: AnyArray, ids: AnyArray, labels: AnyArray | None, there: BoolArray
    ) -> bool:
        """Whether the gallery has those ids that are there with the same vectors and labels."""
        held = self._reader.fetch(ids[there])
        has_labels = labels is None or np.array_equal(np.asarray(held.labels), labels[there])
        return has_labels and np.array_equal(np.asarray(held.vectors), vectors[there])

    def _check_there(self, ids: AnyArray) -> None:
        check_all_there(ids, set(ids[self._reader.are_there(ids)].tolist()))

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
            {self._layout.id_field: own, self._layout.vector_field: vector}
            for own, vector in zip(ids.tolist(), vectors, strict=True)
        ]
        if labels is not None:
            for row, label in zip(rows, labels[part].tolist(), strict=True):
                row[str(self._layout.label_field)] = label
        return rows

    def _relabelled_rows(self, ids: AnyArray, labels: AnyArray) -> Iterator[list[dict[str, Any]]]:
        """Whole rows with other labels, as many at once as one request may hold."""
        field = str(self._layout.label_field)
        label_of = dict(zip(ids.tolist(), labels.tolist(), strict=True))
        together: list[dict[str, Any]] = []
        n_bytes = 0
        for row in self._reader.whole_rows(ids, self._row_bytes(ids, labels)):
            row[field] = label_of[row[self._layout.id_field]]
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
        others = {name: value for name, value in row.items() if name != self._layout.vector_field}
        return self._layout.row_bytes + len(json.dumps(others, default=repr))

    def _upsert_in_halves(self, rows: list[dict[str, Any]]) -> None:
        """Write what was too large for one request."""
        whole = [slice(0, len(rows))]
        for _ in ask_in_portions(whole, lambda part: self._upsert(rows[part])):
            pass

    def _upsert(self, rows: list[dict[str, Any]]) -> None:
        self._reader.ask("upsert", rows)
