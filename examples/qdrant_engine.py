"""Qdrant as an engine of nearsure: an adapter in sixty lines, checked by the contract's tests."""
# ruff: noqa: D102, INP001  (the contract documents the methods)

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from qdrant_client import QdrantClient, models
from qdrant_client.http.exceptions import ResponseHandlingException

from nearsure.arrays import AnyArray
from nearsure.engines import Capabilities, Fingerprint, Hits, SimpleEngine, Stored
from nearsure.errors import GalleryMismatchError, InvalidInputError


class QdrantEngine(SimpleEngine):
    """A collection of Qdrant: integer ids from 0 on, text labels in the payload, exact search."""

    capabilities = Capabilities(exact=True, holds_labels=True, ids="integer", labels="text")
    name, unreachable, one_thread = "Qdrant", (ResponseHandlingException,), True

    def __init__(self, client: QdrantClient, collection: str, dimension: int) -> None:
        super().__init__()
        self._client, self._collection, self.dimension = client, collection, dimension
        # Not Distance.COSINE, which scales vectors when they are stored.
        plain = models.VectorParams(size=dimension, distance=models.Distance.EUCLID)
        with self.asking():
            if not client.collection_exists(collection):
                client.create_collection(collection, vectors_config=plain)
            held = client.get_collection(collection).config.params.vectors
        if held != plain:
            raise GalleryMismatchError(f"The collection must hold {plain!r}. Got {held!r}.")

    def fingerprint(self) -> Fingerprint:
        return {"engine": "qdrant", "index": "exact"}

    def count(self) -> int:
        return self._client.count(self._collection, exact=True).count

    def nearest(self, queries: AnyArray, limit: int) -> Hits:
        exact = models.SearchParams(exact=True)
        options: Any = {"limit": limit, "params": exact, "with_vector": True, "with_payload": True}
        requests = [models.QueryRequest(query=query, **options) for query in queries.tolist()]
        answers = self._client.query_batch_points(self._collection, requests)
        points = self._stored([point for answer in answers for point in answer.points])
        rows = np.repeat(np.arange(len(queries)), [len(answer.points) for answer in answers])
        # Qdrant says the root of a distance in single precision: the vectors say it better.
        return Hits(rows, points.ids, points.labels, points.vectors)

    def put(self, vectors: AnyArray, ids: AnyArray, labels: AnyArray | None) -> None:
        if ids.min() < 0:
            raise InvalidInputError(f"ids of Qdrant must be 0 or more. Got {ids.min()} instead.")
        payloads = [{"label": label} for label in np.asarray(labels).tolist()]
        batch = models.Batch(ids=ids.tolist(), vectors=vectors.tolist(), payloads=payloads)
        self._client.upsert(self._collection, batch, wait=True)

    def delete(self, ids: AnyArray) -> None:
        self._client.delete(self._collection, ids.tolist(), wait=True)

    def get(self, ids: AnyArray) -> Stored:
        return self._stored(
            self._client.retrieve(self._collection, ids.tolist(), with_vectors=True)
        )

    def scan(self) -> Iterator[Stored]:
        following: models.ExtendedPointId | None = 0  # Qdrant scrolls in the order of ids.
        while following is not None:
            with self.asking():
                page, following = self._client.scroll(
                    self._collection, limit=1000, offset=following
                )
            yield Stored(self._stored(page).ids, self._stored(page).labels)

    def _stored(self, points: Sequence[models.Record | models.ScoredPoint]) -> Stored:
        vectors = np.array([point.vector or [] for point in points], np.float32)
        labels = np.array([(point.payload or {})["label"] for point in points], str)
        ids = np.array([point.id for point in points], np.int64)
        return Stored(ids, labels, vectors.reshape(-1, self.dimension))
