"""Search, read, add, remove and relabel the points of a Milvus collection."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice
from typing import Any

import numpy as np

from nearsure import neighbors
from nearsure.arrays import AnyArray, BoolArray
from nearsure.engines.changes import Change, ChangeName, Changes
from nearsure.engines.checks import check_all_there, check_none_there, single_precision
from nearsure.engines.contract import Found, Stored
from nearsure.engines.hits import (
    SPARE_CANDIDATES,
    Hits,
    arrange_points,
    array_of_kind,
    concatenate_found,
    concatenate_points,
    found_from_hits,
    replace_rows,
    select_points,
    with_distances,
    with_vectors,
)
from nearsure.engines.milvus.client import Connection, TooLargeError
from nearsure.engines.milvus.collection import (
    ATOMIC_BYTES,
    LARGEST_K,
    LARGEST_PORTION,
    MOST_IDS,
    MOST_QUERIES,
    Layout,
    Settings,
    ask_in_portions,
    between,
    check_unit,
    literal,
    one_of,
    portions,
    wait_for_index,
)
from nearsure.errors import (
    EngineUnavailableError,
    GalleryMismatchError,
    InvalidInputError,
)

CONVENTIONS = {
    "L2": neighbors.squared_l2,
    "COSINE": neighbors.cosine_similarity,
    "IP": neighbors.inner_product,
}


def hits_of(answer: Any, layout: Layout, *, refine: bool) -> Hits:  # noqa: ANN401
    """What a search returned, for all its queries."""
    queries = np.repeat(np.arange(len(answer)), [len(found) for found in answer])
    ids = array_of_kind([own for found in answer for own in found.ids], layout.ids)
    rows = [row for found in answer for row in list.__iter__(found)]
    labels = None
    if layout.labels is not None:
        labels = array_of_kind([row["entity"][layout.label_field] for row in rows], layout.labels)
    hits = Hits(queries, ids, labels)
    if refine:
        vectors = _hit_vectors(answer, rows, layout.vector_field, layout.dimension)
        if layout.metric_type == "IP":
            check_unit(vectors, "the collection")
        return with_vectors(hits, vectors, layout.meaning)
    scores = np.array([score for found in answer for score in found.distances], np.float64)
    try:
        return with_distances(hits, scores, CONVENTIONS[layout.metric_type])
    except InvalidInputError as error:
        raise GalleryMismatchError(f"What the collection holds does not fit: {error}") from None


def row_vectors(rows: Any, field: str, dimension: int) -> AnyArray:  # noqa: ANN401
    """The vectors of rows that a query returned, of shape (n, dimension)."""
    packed = _packed(getattr(rows, "_lazy_field_data", ()), field, len(rows) * dimension)
    vectors = [row[field] for row in rows] if packed is None else packed
    return np.asarray(vectors, np.float32).reshape(len(rows), dimension)


def _hit_vectors(answer: Any, rows: list[Any], field: str, dimension: int) -> AnyArray:  # noqa: ANN401
    # One message for all queries, which each list of hits refers to.
    messages = getattr(answer[0], "lazy_field_data", ()) if len(answer) else ()
    packed = _packed(messages, field, len(rows) * dimension)
    if packed is None:
        answer.materialize()
        packed = np.array([row["entity"][field] for row in rows], np.float32)
    return packed.reshape(len(rows), dimension)


def _packed(messages: Any, field: str, n_numbers: int) -> AnyArray | None:  # noqa: ANN401
    """All numbers of a vector field at once.

    pymilvus makes a list of Python floats of each vector when it is looked at, which takes longer
    than the search. In a message they lie as packed single precision, behind a tag and a length.
    None if they do not lie there, as in other versions of pymilvus.
    """
    for message in messages:
        if message.field_name == field and message.vectors.HasField("float_vector"):
            numbers = message.vectors.float_vector
            if n_numbers and len(numbers.data) == n_numbers:
                return np.frombuffer(numbers.SerializeToString()[-4 * n_numbers :], "<f4")
    return None


EXPRESSION_BYTES = 2**20
SMALL_ROW = 64
SMALLEST_PORTION = 4


class Points:
    """The points of one collection, asked for in requests that Milvus takes.

    They are upserted, never inserted: Milvus takes an inserted id twice, also where a client
    repeats a request whose answer got lost.
    """

    def __init__(
        self, connection: Connection, name: str, layout: Layout, settings: Settings
    ) -> None:
        self.connection, self.name, self.layout = connection, name, layout
        self._settings = settings
        self.changes = Changes(name)
        label = self.layout.label_field
        self._named = [self.layout.id_field] + ([] if label is None else [label])

    def ask(self, method: str, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401
        """Call a method of the client for this collection."""
        return self.connection.ask(method, self.name, *arguments, **options)

    def search(self, queries: AnyArray, k: int, settings: Settings) -> Found:
        """The k nearest points; `queries` have unit length where the metric asks for it.

        The lists that IVF looks through may hold fewer than k points. Such queries are asked again,
        of all lists.
        """
        found = self._search(queries, k, settings)
        n_lists = settings.lists_left(self.layout)
        short = np.flatnonzero(found.counts < k)
        if n_lists is None or not len(short):
            return found
        return replace_rows(found, short, self._search(queries[short], k, settings, n_lists))

    def _search(
        self, queries: AnyArray, k: int, settings: Settings, nprobe: int | None = None
    ) -> Found:
        n_candidates = min(k + SPARE_CANDIDATES, LARGEST_K)
        sent = single_precision(queries, "queries")
        outputs = [] if self.layout.label_field is None else [self.layout.label_field]
        hit_bytes = SMALL_ROW
        if settings.refine:
            outputs.append(self.layout.vector_field)
            hit_bytes = self.layout.row_bytes

        def ask(part: slice) -> Any:  # noqa: ANN401
            return self.ask(
                "search",
                sent[part],
                anns_field=self.layout.vector_field,
                limit=n_candidates,
                output_fields=outputs,
                search_params=settings.search_params(self.layout, n_candidates, nprobe),
                consistency_level=settings.consistency,
            )

        parts = portions(len(queries), n_candidates * hit_bytes, MOST_QUERIES)
        found = []
        for part, answer in ask_in_portions(parts, ask):
            hits = hits_of(answer, self.layout, refine=settings.refine)
            found.append(found_from_hits(queries[part], hits, k))
        return concatenate_found(found)

    def count(self) -> int:
        """How many points there are."""
        rows = self._query("", ["count(*)"], consistency_level="Strong")
        return int(rows[0]["count(*)"])

    def are_there(self, ids: AnyArray) -> BoolArray:
        """Which ids are there now."""
        known: set[Any] = set()
        parts = list(id_portions(ids))
        if len(parts) > 1 and not self.count():
            # The first load, which is the largest as a rule.
            return np.zeros(len(ids), np.bool_)
        for rows in self._rows_of(ids, parts, [self.layout.id_field], consistency_level="Strong"):
            known.update(row[self.layout.id_field] for row in rows)
        return np.array([own in known for own in ids.tolist()], np.bool_)

    def fetch(self, ids: AnyArray) -> Stored:
        """Points in the order of `ids`; an error if some are not there."""
        layout = self.layout
        parts = [replace(self._points([]), vectors=np.empty((0, layout.dimension), np.float32))]
        portions_of_ids = id_portions(ids, layout.row_bytes)
        for rows in self._rows_of(ids, portions_of_ids, [*self._named, layout.vector_field]):
            # pymilvus would make a list of each vector that its own iterator passes.
            points = self._points(list(list.__iter__(rows)))
            vectors = row_vectors(rows, layout.vector_field, layout.dimension)
            parts.append(replace(points, vectors=vectors))
        return arrange_points(concatenate_points(parts), ids)

    def whole_rows(self, ids: AnyArray, row_bytes: int) -> Iterator[dict[str, Any]]:
        """All fields of points, also those that nearsure does not use, in any order."""
        for rows in self._rows_of(
            ids, id_portions(ids, row_bytes), ["*"], consistency_level="Strong"
        ):
            yield from map(dict, rows)

    def sample(self, n: int) -> AnyArray:
        """The vectors of a few points."""
        rows = self._query("", [self.layout.vector_field], limit=n)
        return row_vectors(rows, self.layout.vector_field, self.layout.dimension)

    def scan(self) -> Iterator[Stored]:
        """All ids and labels, ids ascending.

        Milvus promises no order, and which ids it gives if there are more than the limit differs
        between its versions. Fewer than the limit are all there are. So a portion that is full is
        only taken as a hint at how far the next attempt should reach.
        """
        reached = up_to = None
        overfull = False
        limit = LARGEST_PORTION
        while True:
            expression = between(self.layout.id_field, reached, up_to)
            try:
                rows = self._query(expression, self._named, limit=limit)
            except TooLargeError:
                if limit <= SMALLEST_PORTION:
                    raise
                limit //= 2
                continue
            points = self._points(rows)
            ids, order = np.unique(points.ids, return_index=True)
            if len(rows) == limit:
                # All but the last, if they come in order; the nearer half, if they do not.
                nearer = ids[(len(ids) - 1) // 2 if overfull else max(len(ids) - 2, 0)].item()
                if nearer == up_to:
                    raise GalleryMismatchError(
                        f"Ids must be distinct. Got {nearer!r} at least {limit} times."
                    )
                up_to, overfull = nearer, True
                continue
            if len(ids):
                yield select_points(points, order)
            if up_to is None:
                return
            reached, up_to, overfull = up_to, None, False

    def _points(self, rows: Sequence[Any]) -> Stored:
        """The ids and labels of rows."""
        layout = self.layout
        ids = array_of_kind([row[layout.id_field] for row in rows], layout.ids)
        if layout.labels is None:
            return Stored(ids)
        return Stored(ids, array_of_kind([row[layout.label_field] for row in rows], layout.labels))

    def _rows_of(
        self, ids: AnyArray, parts: Iterable[slice], outputs: list[str], **options: str
    ) -> Iterator[Any]:
        """Some fields of those points that are there, in lists."""

        def ask(part: slice) -> Any:  # noqa: ANN401
            expression = one_of(self.layout.id_field, ids[part])
            return self._query(expression, outputs, **options)

        for _, rows in ask_in_portions(parts, ask):
            yield rows

    def _query(self, expression: str, outputs: list[str], **options: Any) -> Any:  # noqa: ANN401
        every = {"consistency_level": self._settings.consistency, **options}
        return self.ask("query", filter=expression, output_fields=outputs, **every)

    def add(
        self,
        vectors: AnyArray,
        ids: AnyArray,
        labels: AnyArray | None,
        progress: Callable[[int], None] | None,
    ) -> None:
        """Add points that are not there, or complete a load of the same points."""
        parts = list(portions(len(ids), self._row_bytes(ids, labels), len(ids), ATOMIC_BYTES))
        with self.connection.write_lock:
            change, is_repeated = self._begin("add", ids, len(parts))
            there = self.are_there(ids)
            if change.takes_several:
                is_repeated = is_repeated or self._holds(vectors, ids, labels, there)
            if not is_repeated:
                check_none_there(ids[there].tolist())
            with self.changes.noting(change):
                for part in parts:
                    self._upsert(self._rows(vectors, ids, labels, part))
                    if progress is not None:
                        progress(part.stop)
        if change.takes_several:
            try:
                wait_for_index(self.connection, self.name)
            except EngineUnavailableError as error:
                raise EngineUnavailableError(
                    f"All {len(ids)} points were added; do not add them again. {error}"
                ) from None

    def remove(self, ids: AnyArray) -> None:
        """Remove points that are there, or complete a removal, or take back a load."""
        parts = list(id_portions(ids))
        with self.connection.write_lock:
            change, is_repeated = self._begin("remove", ids, len(parts))
            if not is_repeated:
                self._check_there(ids)
            with self.changes.noting(change):
                for part in parts:
                    self.ask("delete", filter=one_of(self.layout.id_field, ids[part]))

    def relabel(self, ids: AnyArray, labels: AnyArray) -> None:
        """Give points other labels, or complete doing so.

        A row is rewritten as a whole, with what other fields it has. How large these are is
        known once they have been read, so that the first two requests are made up first.
        """
        with self.connection.write_lock:
            self._begin("relabel", ids, 1)
            self._check_there(ids)
            requests = self._relabelled_rows(ids, labels)
            waiting = list(islice(requests, 2))
            change, _ = self._begin("relabel", ids, len(waiting))
            with self.changes.noting(change):
                for rows in chain(waiting, requests):
                    try:
                        self._upsert(rows)
                    except TooLargeError:
                        if len(rows) == 1:
                            raise
                        change.takes_several = True
                        self._upsert_in_halves(rows)

    def _begin(self, kind: ChangeName, ids: AnyArray, n_requests: int) -> tuple[Change, bool]:
        """A change, and whether it repeats or takes back the one that was cut off."""
        takes_several = n_requests > 1 or (self.layout.n_shards > 1 and len(ids) > 1)
        return self.changes.begin(kind, ids, takes_several=takes_several)

    def _holds(
        self, vectors: AnyArray, ids: AnyArray, labels: AnyArray | None, there: BoolArray
    ) -> bool:
        """Whether the gallery has those ids that are there with the same vectors and labels."""
        held = self.fetch(ids[there])
        has_labels = labels is None or np.array_equal(np.asarray(held.labels), labels[there])
        return has_labels and np.array_equal(np.asarray(held.vectors), vectors[there])

    def _check_there(self, ids: AnyArray) -> None:
        check_all_there(ids, set(ids[self.are_there(ids)].tolist()))

    def _row_bytes(self, ids: AnyArray, labels: AnyArray | None) -> int:
        texts = sum(
            int(np.char.str_len(values).max(initial=0)) * 4
            for values in (ids, labels)
            if values is not None and values.dtype.kind == "U"
        )
        return self.layout.row_bytes + texts

    def _rows(
        self, vectors: AnyArray, ids: AnyArray, labels: AnyArray | None, part: slice
    ) -> list[dict[str, Any]]:
        columns: dict[str, Any] = {
            self.layout.id_field: ids[part].tolist(),
            self.layout.vector_field: vectors[part],
        }
        if labels is not None:
            columns[str(self.layout.label_field)] = labels[part].tolist()
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]

    def _relabelled_rows(self, ids: AnyArray, labels: AnyArray) -> Iterator[list[dict[str, Any]]]:
        """Whole rows with other labels, as many at once as one request may hold."""
        field = str(self.layout.label_field)
        label_of = dict(zip(ids.tolist(), labels.tolist(), strict=True))
        together: list[dict[str, Any]] = []
        n_bytes = 0
        for row in self.whole_rows(ids, self._row_bytes(ids, labels)):
            row[field] = label_of[row[self.layout.id_field]]
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
        others = {name: value for name, value in row.items() if name != self.layout.vector_field}
        return self.layout.row_bytes + len(json.dumps(others, default=repr))

    def _upsert_in_halves(self, rows: list[dict[str, Any]]) -> None:
        """Write what was too large for one request."""
        whole = [slice(0, len(rows))]
        list(ask_in_portions(whole, lambda part: self._upsert(rows[part])))

    def _upsert(self, rows: list[dict[str, Any]]) -> None:
        self.ask("upsert", rows)


def id_portions(ids: AnyArray, row_bytes: int = SMALL_ROW) -> Iterator[slice]:
    """Slices of ids that one expression may name, and whose rows one answer may hold."""
    longest = max((len(literal(own).encode()) for own in ids.tolist()), default=0) + 2
    most = min(MOST_IDS, max(1, EXPRESSION_BYTES // longest))
    return portions(len(ids), row_bytes, most)
