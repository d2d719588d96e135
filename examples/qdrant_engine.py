"""Qdrant as an engine of nearsure: an example of an adapter, checked by the contract's tests."""
# ruff: noqa: D102, INP001  (the contract documents the methods)

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import RLock

import numpy as np
from qdrant_client import QdrantClient, models
from qdrant_client.http.exceptions import ResponseHandlingException, UnexpectedResponse

from nearsure.arrays import AnyArray
from nearsure.engines import Capabilities, Fingerprint, Found, Hits, Stored, checks, found_from_hits
from nearsure.engines.hits import SPARE_CANDIDATES
from nearsure.errors import (
    EngineError,
    EngineUnavailableError,
    GalleryMismatchError,
    InvalidInputError,
)


class QdrantEngine:
    """A collection of Qdrant: integer ids from 0 on, text labels in the payload, exact search."""

    capabilities = Capabilities(exact=True, holds_labels=True, ids="integer", labels="text")
    metric = "euclidean"

    def __init__(self, client: QdrantClient, collection: str, dimension: int) -> None:
        self._client, self._collection, self.dimension = client, collection, dimension
        self._lock = RLock()
        with self._asking():
            if not client.collection_exists(collection):
                # Not Distance.COSINE, which scales vectors when they are stored.
                plain = models.VectorParams(size=dimension, distance=models.Distance.EUCLID)
                client.create_collection(collection, vectors_config=plain)
            held = client.get_collection(collection).config.params.vectors
        if not (
            isinstance(held, models.VectorParams)
            and (held.size, held.distance) == (dimension, models.Distance.EUCLID)
        ):
            raise GalleryMismatchError(
                f"The collection must hold Euclidean vectors of length {dimension}. Got {held!r}."
            )

    def fingerprint(self) -> Fingerprint:
        return {"engine": "qdrant", "index": "exact", "metric": self.metric}

    def size(self) -> int:
        with self._asking():
            return self._client.count(self._collection, exact=True).count

    def search(self, queries: AnyArray, k: int) -> Found:
        queries = checks.checked_queries(queries, self.dimension)
        limit = checks.checked_k(k, self.capabilities) + SPARE_CANDIDATES
        points, rows = [], []
        for start in range(0, len(queries), 64):
            requests = [
                models.QueryRequest(
                    query=query,
                    limit=limit,
                    params=models.SearchParams(exact=True),
                    with_vector=True,
                    with_payload=True,
                )
                for query in queries[start : start + 64].tolist()
            ]
            with self._asking():
                answers = self._client.query_batch_points(self._collection, requests)
            for row, answer in enumerate(answers, start):
                points += answer.points
                rows += [row] * len(answer.points)
        near = self._stored(points)
        # Qdrant says the root of a distance in single precision: it is computed anew.
        hits = Hits(np.array(rows, np.int64), near.ids, near.labels, near.vectors)
        return found_from_hits(queries, hits, k)

    def add(self, vectors: AnyArray, ids: AnyArray, labels: AnyArray | None = None) -> None:
        vectors, ids, labels = checks.checked_points(
            vectors, ids, labels, dimension=self.dimension, capabilities=self.capabilities
        )
        if ids.min() < 0:
            raise InvalidInputError(f"ids of Qdrant must be 0 or more. Got {ids.min()} instead.")
        with self._asking():
            if there := self._client.retrieve(self._collection, ids.tolist()):
                raise InvalidInputError(f"ids must be new. Got {there[0].id}, which is there.")
            self._upsert(vectors, ids, labels)

    def remove(self, ids: AnyArray) -> None:
        with self._asking():
            self._client.delete(self._collection, self.fetch(ids).ids.tolist(), wait=True)

    def relabel(self, ids: AnyArray, labels: AnyArray) -> None:
        with self._asking():
            stored = self.fetch(ids)
            labels = checks.checked_labels(labels, len(stored.ids), self.capabilities)
            self._upsert(stored.vectors, stored.ids, labels)

    def fetch(self, ids: AnyArray) -> Stored:
        wanted = checks.checked_ids(ids, self.capabilities).tolist()
        with self._asking():
            found = self._client.retrieve(self._collection, wanted, with_vectors=True)
        point_of = {point.id: point for point in found}
        if unknown := [own for own in wanted if own not in point_of]:
            raise InvalidInputError(f"ids must be there. Got {unknown[:5]}, which are not.")
        return self._stored([point_of[own] for own in wanted])

    def scan(self) -> Iterator[Stored]:
        following: models.ExtendedPointId | None = 0  # Qdrant scrolls in the order of ids.
        while following is not None:
            with self._asking():
                portion, following = self._client.scroll(
                    self._collection, limit=1000, offset=following
                )
            stored = self._stored(portion)
            yield Stored(stored.ids, stored.labels)

    def close(self) -> None:
        """The client belongs to the caller, who closes it."""

    def _upsert(self, vectors: AnyArray | None, ids: AnyArray, labels: AnyArray | None) -> None:
        # One operation of Qdrant's log, which is replayed whole. A request may hold 32 MB.
        payloads = [{"label": label} for label in np.asarray(labels).tolist()]
        lists = np.asarray(vectors).tolist()
        batch = models.Batch(ids=ids.tolist(), vectors=lists, payloads=payloads)
        self._client.upsert(self._collection, batch, wait=True)

    def _stored(self, points: Sequence[models.Record | models.ScoredPoint]) -> Stored:
        vectors = np.array([point.vector or [] for point in points], np.float32)
        return Stored(
            np.array([point.id for point in points], np.int64),
            np.array([(point.payload or {})["label"] for point in points], str),
            vectors.reshape(-1, self.dimension),
        )

    @contextmanager
    def _asking(self) -> Iterator[None]:
        # To look whether ids are there and to write are two requests, so that no other process
        # may write; and the client's local mode takes one thread at a time.
        with self._lock:
            try:
                yield
            except ResponseHandlingException:
                raise EngineUnavailableError("Qdrant cannot be reached. Try again.") from None
            except UnexpectedResponse as refusal:
                raise EngineError(f"Qdrant refused: status {refusal.status_code}.") from None
            except UnicodeEncodeError:
                raise InvalidInputError("Labels must be valid Unicode.") from None
