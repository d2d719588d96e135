"""Galleries in Qdrant: a folder or memory through its client, or a server."""

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast
from uuid import NAMESPACE_OID, UUID, uuid5

import numpy as np

from nearsure.arrays import AnyArray
from nearsure.engines.contract import Capabilities, Effort, Fingerprint, Kind, Metric, Stored
from nearsure.engines.hits import Hits, array_of_kind, concatenate_points, in_order
from nearsure.engines.registry import uri_or_variable, without
from nearsure.engines.simple import SimpleEngine, translating
from nearsure.errors import (
    EngineAccessError,
    EngineError,
    EngineUnavailableError,
    GalleryMismatchError,
    GalleryNotFoundError,
    InvalidInputError,
    NearsureError,
)
from nearsure.extras import require

if TYPE_CHECKING:
    from typing import Self

    from qdrant_client import QdrantClient

URL_VARIABLE, KEY_VARIABLE = "NEARSURE_QDRANT_URL", "NEARSURE_QDRANT_API_KEY"
METRICS: dict[str, Metric] = {"Euclid": "euclidean", "Cosine": "cosine"}
# Where `create` keeps the kinds of ids and labels, and a point its id if Qdrant cannot name it.
NOTE, ID_KEY = "nearsure", "nearsure_id"
# A server takes 32 MB at once, and a number may have some twenty characters of JSON.
REQUEST_NUMBERS = 2**20
LARGEST_EF = 2**16
UNAUTHORIZED, FORBIDDEN, NOT_FOUND = 401, 403, 404


class QdrantEngine(SimpleEngine):
    """A collection of Qdrant as a gallery.

    On a server, a change of up to `portion` points (about a million numbers) is one operation of
    its log, with ``wait=True``: once the call returns, every search sees it, and it survives a
    restart. A larger change takes several operations; see `SimpleEngine`. The client's local mode,
    in a folder or in memory, compares with every point, writes point by point, and takes one
    process at a time: it is for trials of some ten thousand points.

    Qdrant names points by integers from 0 on or UUIDs. Other texts are kept in the payload, and
    their point is named by a UUID that is computed from them.

    Parameters
    ----------
    uri : str or QdrantClient, optional
        ``http(s)://host:port``, a folder, ``":memory:"``, or a client, which stays open; by default
        what ``NEARSURE_QDRANT_URL`` holds.
    api_key : str, optional
        By default what ``NEARSURE_QDRANT_API_KEY`` holds, if anything.
    collection : str
        Its name. `create` makes one.
    label_field : str or None
        Key of the label in the payload; None if there are none.
    vector_name : str
        Name of the vector, for collections with named vectors.
    exact : bool
        Whether a server compares with every point. Otherwise it finds most neighbours through its
        HNSW graph, once it has one: Qdrant builds it for segments above its indexing threshold.
    ef : int
        How many points a search in the graph keeps in sight; as many as are asked for if that is
        more.
    timeout : float
        Seconds that a request may take.

    Examples
    --------
    >>> engine = QdrantEngine.create(dimension=2, uri=":memory:")  # doctest: +SKIP
    >>> engine.add(np.eye(2), ids=np.array([7, 8]), labels=np.array([0, 1]))  # doctest: +SKIP
    >>> engine.search(np.array([[0.0, 2.0]]), k=1).ids  # doctest: +SKIP
    array([[8]])
    """

    name = "Qdrant"

    def __init__(
        self,
        uri: "str | QdrantClient | None" = None,
        *,
        api_key: str | None = None,
        collection: str = "gallery",
        label_field: str | None = "label",
        vector_name: str = "",
        exact: bool = False,
        ef: int = 128,
        timeout: float = 60.0,
    ) -> None:
        super().__init__()
        if ef < 1:
            raise InvalidInputError(f"ef must be at least 1. Got {ef} instead.")
        self._models = _qdrant().models
        self._collection, self._ef = collection, ef
        self._label_field, self._vector_name = label_field, vector_name
        self._secrets = (api_key or os.environ.get(KEY_VARIABLE),)
        self._owns_client = uri is None or isinstance(uri, str)
        self._client = client = _connect(uri, self._secrets[0], timeout)
        # Local mode is not made for threads; a server's client is.
        self.one_thread = is_local = _is_local(client)
        self._is_exact, self._sends_parameters = exact or is_local, not is_local
        try:
            self._look_up()
        except BaseException:
            self.close()
            raise
        self.portion = max(1, REQUEST_NUMBERS // self.dimension)
        self.batch = max(1, min(64, self.portion // 100))

    @classmethod
    def create(
        cls,
        dimension: int,
        uri: "str | QdrantClient | None" = None,
        *,
        api_key: str | None = None,
        collection: str = "gallery",
        ids: Kind = "integer",
        labels: Kind | None = "integer",
        label_field: str = "label",
        vector_name: str = "",
        metric: Metric = "euclidean",
        M: int = 16,
        ef_construction: int = 200,
        exact: bool = False,
        ef: int = 128,
        timeout: float = 60.0,
    ) -> "Self":
        """Make a collection and open it.

        Parameters
        ----------
        dimension : int
            Length of a vector.
        ids, labels : {"integer", "text"}
            Kinds of ids and labels; ``labels=None`` for a collection without.
        metric : {"euclidean", "cosine"}
            How vectors are compared; under cosine, Qdrant stores them at unit length.
        M, ef_construction : int
            Links of a point in the graph, and how many points are kept in sight when it is linked.
        uri, api_key, collection, label_field, vector_name, exact, ef, timeout
            As for the constructor.
        """
        models = _qdrant().models
        client = _connect(uri, api_key or os.environ.get(KEY_VARIABLE), timeout)
        distance = models.Distance.EUCLID if metric == "euclidean" else models.Distance.COSINE
        vectors = models.VectorParams(size=dimension, distance=distance)
        try:
            with translating(lambda error: _meaning(error, collection, (api_key,))):
                client.create_collection(
                    collection,
                    vectors_config={vector_name: vectors} if vector_name else vectors,
                    hnsw_config=models.HnswConfigDiff(m=M, ef_construct=ef_construction),
                    metadata={NOTE: {"ids": ids, "labels": labels}},
                )
            engine = cls(
                client,
                api_key=api_key,
                collection=collection,
                label_field=None if labels is None else label_field,
                vector_name=vector_name,
                exact=exact,
                ef=ef,
            )
        except BaseException:
            if client is not uri:
                client.close()
            raise
        engine._owns_client = client is not uri
        return engine

    def _look_up(self) -> None:
        with self.asking():
            info = self._client.get_collection(self._collection)
            first, _ = self._client.scroll(self._collection, limit=1)
        held = info.config.params.vectors
        vectors = held.get(self._vector_name) if isinstance(held, Mapping) else held
        metric = None if vectors is None else METRICS.get(vectors.distance.value)
        if vectors is None or metric is None or vectors.multivector_config is not None:
            raise GalleryMismatchError(
                f"The collection {self._collection!r} must hold one vector a point, compared by "
                f"Euclid or Cosine. It holds {held!r}. Say which with vector_name."
            )
        self.dimension, self.metric = vectors.size, metric
        graph = vectors.hnsw_config or info.config.hnsw_config
        self._built_with = {"M": graph.m, "ef_construction": graph.ef_construct}
        ids, labels = self._kinds((info.config.metadata or {}).get(NOTE), first)
        self.capabilities = Capabilities(
            exact=self._is_exact, holds_labels=labels is not None, ids=ids, labels=labels
        )

    def _kinds(self, note: Any, first: Sequence[Any]) -> tuple[Kind, Kind | None]:  # noqa: ANN401
        """What `create` noted, or else what a first point has."""
        if note is None and first:
            label = (first[0].payload or {}).get(self._label_field)
            note = {
                "ids": "integer" if isinstance(first[0].id, int) else "text",
                "labels": "text" if isinstance(label, str) else "integer",
            }
        note = note or {"ids": "integer", "labels": "integer"}
        return note["ids"], None if self._label_field is None else note["labels"]

    def fingerprint(self) -> Fingerprint:
        """All that decides which neighbours are found."""
        common = {"engine": "qdrant", "metric": self.metric, "dimension": self.dimension}
        if self._is_exact:
            return {**common, "index": "exact"}
        return {**common, "index": "hnsw", **self._built_with, "ef": self._ef}

    def count(self) -> int:
        """How many points there are."""
        return self._client.count(self._collection, exact=True).count

    @property
    def effort(self) -> Effort | None:
        """``ef``; None where every point is compared."""
        return None if self._is_exact else Effort("ef", self._ef, max(LARGEST_EF, self._ef))

    def nearest(self, queries: AnyArray, limit: int) -> Hits:
        """The nearest points of some queries, with their vectors."""
        return self.nearest_with_effort(queries, limit, self._ef)

    def nearest_with_effort(self, queries: AnyArray, limit: int, effort: int) -> Hits:
        """The same with another ``ef``.

        Qdrant returns the root of a distance in single precision; the vectors give it better.
        """
        options: dict[str, Any] = {"limit": limit, "with_payload": True, "with_vector": True}
        if self._sends_parameters:
            options["params"] = self._models.SearchParams(
                exact=self._is_exact, hnsw_ef=max(effort, limit)
            )
        if self._vector_name:
            options |= {"using": self._vector_name, "with_vector": [self._vector_name]}
        requests = [self._models.QueryRequest(query=own, **options) for own in queries.tolist()]
        answers = self._client.query_batch_points(self._collection, requests)
        points = self._points([point for answer in answers for point in answer.points])
        rows = np.repeat(np.arange(len(queries)), [len(answer.points) for answer in answers])
        return Hits(rows, points.ids, points.labels, points.vectors)

    def put(self, vectors: AnyArray, ids: AnyArray, labels: AnyArray | None) -> None:
        """Write points, in the place of those with the same ids."""
        names = self._names(ids)
        payloads: list[dict[str, Any]] = [{} for _ in names]
        for payload, own, name in zip(payloads, ids.tolist(), names, strict=True):
            if own != name:
                payload[ID_KEY] = own
        if labels is not None:
            for payload, label in zip(payloads, labels.tolist(), strict=True):
                payload[str(self._label_field)] = label
        lists = vectors.tolist()
        batch = self._models.Batch(
            ids=names,
            vectors={self._vector_name: lists} if self._vector_name else lists,
            payloads=payloads,
        )
        self._client.upsert(self._collection, batch, wait=True)

    def put_labels(self, ids: AnyArray, labels: AnyArray) -> None:
        """Give points other labels; the rest of the payload stays."""
        models, named = self._models, np.array(self._names(ids), object)
        operations = [
            models.SetPayloadOperation(
                set_payload=models.SetPayload(
                    payload={str(self._label_field): label.item()},
                    points=named[labels == label].tolist(),
                )
            )
            for label in np.unique(labels)
        ]
        self._client.batch_update_points(self._collection, operations, wait=True)

    def delete(self, ids: AnyArray) -> None:
        """Remove points."""
        self._client.delete(self._collection, [*self._names(ids)], wait=True)

    def get(self, ids: AnyArray) -> Stored:
        """Those points that are there."""
        return self._points(
            self._client.retrieve(self._collection, self._names(ids), with_vectors=True)
        )

    def check_ids(self, ids: AnyArray) -> None:
        """Raise an error for negative ids."""
        if ids.dtype.kind != "U" and len(ids) and ids.min() < 0:
            raise InvalidInputError(f"ids of Qdrant must be 0 or more. Got {ids.min()} instead.")

    def get_ids(self, ids: AnyArray) -> list[Any]:
        """Those ids that are there."""
        records = self._client.retrieve(self._collection, self._names(ids), with_payload=[ID_KEY])
        return [(record.payload or {}).get(ID_KEY, record.id) for record in records]

    def scan(self) -> Iterator[Stored]:
        """All ids and labels, ids ascending; all are read first."""
        self._changes.check_whole()
        parts, following = [self._points([])], None
        with self.asking():
            while True:
                page, following = self._client.scroll(
                    self._collection, limit=10_000, offset=following
                )
                parts.append(self._points(page))
                if following is None:
                    break
        points = concatenate_points(parts)
        yield from in_order(Stored(points.ids, points.labels))

    def close(self) -> None:
        """Give back the client, unless it was given."""
        if self._owns_client:
            self._client.close()

    def __repr__(self) -> str:
        return f"<QdrantEngine on {self._collection!r}>"

    def translate(self, error: Exception) -> NearsureError:
        """What an error of the client means."""
        return _meaning(error, self._collection, self._secrets)

    def _names(self, ids: AnyArray) -> list[int | str]:
        """Integers and UUIDs as they are; the UUID of other texts."""
        if ids.dtype.kind == "U":
            return [
                own if _is_uuid(own) else str(uuid5(NAMESPACE_OID, own)) for own in ids.tolist()
            ]
        self.check_ids(ids)
        return cast("list[int | str]", ids.tolist())

    def _points(self, records: Sequence[Any]) -> Stored:
        payloads = [record.payload or {} for record in records]
        own = [
            payload.get(ID_KEY, record.id)
            for payload, record in zip(payloads, records, strict=True)
        ]
        kinds, vectors = self.capabilities, [record.vector for record in records]
        if self._vector_name:
            vectors = [None if each is None else each[self._vector_name] for each in vectors]
        labels = None
        if kinds.labels is not None:
            of_points = [payload.get(self._label_field) for payload in payloads]
            labels = array_of_kind(of_points, kinds.labels)
        table = np.array([] if None in vectors else vectors, np.float32)
        return Stored(array_of_kind(own, kinds.ids), labels, table.reshape(-1, self.dimension))


def _qdrant() -> Any:  # noqa: ANN401
    return require("qdrant_client", extra="qdrant", purpose="A gallery in Qdrant")


def _connect(
    uri: "str | QdrantClient | None", api_key: str | None, timeout: float
) -> "QdrantClient":
    if uri is not None and not isinstance(uri, str):
        return uri
    make, uri = _qdrant().QdrantClient, uri_or_variable(uri, URL_VARIABLE)
    options: dict[str, Any] = {"path": uri, "force_disable_check_same_thread": True}
    if "://" in uri:
        options = {"url": uri, "api_key": api_key, "check_compatibility": False}
        options["timeout"] = math.ceil(timeout)
    elif uri == ":memory:":
        options = {"location": uri}
    with translating(lambda error: _meaning(error, uri, (api_key,))):
        return cast("QdrantClient", make(**options))


def _is_local(client: "QdrantClient") -> bool:
    options = client.init_options
    return options.get("path") is not None or options.get("location") == ":memory:"


def _is_uuid(text: str) -> bool:
    try:
        return str(UUID(text)) == text
    except ValueError:
        return False


def _is_gone(error: Exception) -> bool:
    return type(error).__name__ == "ResponseHandlingException" or "closed" in str(error)


def _meaning(error: Exception, place: str, secrets: tuple[str | None, ...]) -> NearsureError:
    """An error of the client as one of nearsure, without secrets."""
    status = getattr(error, "status_code", None)
    text = without(str(error), *secrets)
    if status in {UNAUTHORIZED, FORBIDDEN}:
        return EngineAccessError("Qdrant refuses: set api_key= or NEARSURE_QDRANT_API_KEY.")
    if status == NOT_FOUND or "not found" in text:
        return GalleryNotFoundError(
            f"Qdrant has no collection {place!r}. QdrantEngine.create makes one."
        )
    if "already exists" in text:
        return InvalidInputError(
            f"collection must be a new name. Got {place!r}, which already exists. Open it with "
            "QdrantEngine(...), or delete it first."
        )
    if "already accessed" in text:
        text = (
            "The folder is open in another client; local mode takes one at a time. Close it there, "
            "pass that client as uri, or run a server."
        )
    if "one at a time" in text or isinstance(error, OSError) or _is_gone(error):
        return EngineUnavailableError(f"Qdrant cannot be reached. {text[:300]}")
    return EngineError(f"Qdrant could not do it: {type(error).__name__}: {text[:300]}")
