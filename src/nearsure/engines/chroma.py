"""Galleries in Chroma: its embedded engine in a folder, or any client of it."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from nearsure.arrays import AnyArray
from nearsure.engines.contract import Capabilities, Fingerprint, Kind, Metric, Stored
from nearsure.engines.hits import Hits, array_of_kind, concatenate_points, in_order
from nearsure.engines.registry import uri_or_variable
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

    from chromadb.api import ClientAPI
    from chromadb.api.client import Client

PATH_VARIABLE = "NEARSURE_CHROMA_PATH"
SPACES: dict[str, Metric] = {"l2": "euclidean", "cosine": "cosine"}
# What `create` notes in the collection's metadata: Chroma knows no kinds, and no dimension before
# the first point.
NOTE = "nearsure_"


class ChromaEngine(SimpleEngine):
    """A collection of Chroma as a gallery.

    Chroma finds neighbours through an HNSW graph, most but not all of them; it has no exact search.
    How much effort a search takes is a property of the collection (`ef`, Chroma's ``ef_search``).
    A change of up to `portion` points (the client's largest batch, some 5,000) is one transaction
    of Chroma's log, in a folder an SQLite file: once the call returns, it is found and survives a
    restart. A larger change takes several; see `SimpleEngine`. Let one process open a folder at a
    time.

    Chroma's ids are texts. Of a collection that `create` made with integers they are the digits.

    Parameters
    ----------
    uri : str or chromadb client, optional
        A folder, or a client, which stays open; by default what ``NEARSURE_CHROMA_PATH`` holds.
    collection : str
        Its name, of at least three characters. `create` makes one.
    label_field : str or None
        Key of the label in the metadata of points; None if there are none.

    Examples
    --------
    >>> engine = ChromaEngine.create(dimension=2, uri="galleries")  # doctest: +SKIP
    >>> engine.add(np.eye(2), ids=np.array([7, 8]), labels=np.array([0, 1]))  # doctest: +SKIP
    >>> engine.search(np.array([[0.0, 2.0]]), k=1).ids  # doctest: +SKIP
    array([[8]])
    """

    name = "Chroma"
    # Its scan reads page after page, between which nothing may change.
    one_thread = True

    def __init__(
        self,
        uri: "str | ClientAPI | None" = None,
        *,
        collection: str = "gallery",
        label_field: str | None = "label",
    ) -> None:
        super().__init__()
        self._name, self._label_field = collection, label_field
        self._owns_client = uri is None or isinstance(uri, str)
        with self.asking():
            self._client = client = _connect(uri)
            self.portion = client.get_max_batch_size()
        try:
            with self.asking():
                self._collection = client.get_collection(collection, embedding_function=None)
                first = self._collection.get(limit=1, include=["embeddings", "metadatas"])
            self._look_up(first)
        except BaseException:
            self.close()
            raise

    @classmethod
    def create(
        cls,
        dimension: int,
        uri: "str | ClientAPI | None" = None,
        *,
        collection: str = "gallery",
        ids: Kind = "integer",
        labels: Kind | None = "integer",
        label_field: str = "label",
        metric: Metric = "euclidean",
        M: int = 16,
        ef_construction: int = 200,
        ef: int = 128,
    ) -> "Self":
        """Make a collection and open it.

        Parameters
        ----------
        dimension : int
            Length of a vector.
        ids, labels : {"integer", "text"}
            Kinds of ids and labels; ``labels=None`` for a collection without.
        metric : {"euclidean", "cosine"}
            How vectors are compared.
        M, ef_construction, ef : int
            Links of a point in the graph, and how many points are kept in sight when it is linked,
            and by a search.
        uri, collection, label_field
            As for the constructor.
        """
        space = "l2" if metric == "euclidean" else "cosine"
        graph = {
            "space": space,
            "max_neighbors": M,
            "ef_construction": ef_construction,
            "ef_search": ef,
        }
        note = {f"{NOTE}ids": ids, f"{NOTE}labels": labels or "none", f"{NOTE}dimension": dimension}
        client = _connect(uri)
        try:
            with translating(lambda error: _meaning(error, collection)):
                client.create_collection(
                    collection,
                    configuration=cast("Any", {"hnsw": graph}),
                    metadata=note,
                    embedding_function=None,
                )
            engine = cls(
                client, collection=collection, label_field=None if labels is None else label_field
            )
        except BaseException:
            if client is not uri:
                _close(client)
            raise
        engine._owns_client = client is not uri
        return engine

    def _look_up(self, first: Mapping[str, Any]) -> None:
        graph = self._collection.configuration_json.get("hnsw") or {}
        metric = SPACES.get(graph.get("space", ""))
        if metric is None:
            raise GalleryMismatchError(
                f"The collection {self._name!r} must have an HNSW graph of space l2 or cosine. It "
                f"has {graph.get('space')!r}."
            )
        self.metric = metric
        self._built_with = {
            "M": graph["max_neighbors"],
            "ef_construction": graph["ef_construction"],
            "ef": graph["ef_search"],
        }
        note = self._collection.metadata or {}
        dimension = note.get(f"{NOTE}dimension")
        ids, labels = note.get(f"{NOTE}ids", "text"), note.get(f"{NOTE}labels")
        if dimension is None:
            if not first["ids"]:
                raise GalleryMismatchError(
                    f"The collection {self._name!r} must hold points, or be made by "
                    "ChromaEngine.create: Chroma does not know the dimension of an empty one."
                )
            dimension = len(first["embeddings"][0])
            label = (first["metadatas"][0] or {}).get(self._label_field)
            labels = "integer" if isinstance(label, int) else "text"
        if labels == "none":
            self._label_field = None
        self.dimension = int(dimension)
        self.capabilities = Capabilities(
            exact=False,
            holds_labels=self._label_field is not None,
            ids=cast("Kind", ids),
            labels=None if self._label_field is None else cast("Kind", labels),
        )

    def fingerprint(self) -> Fingerprint:
        """All that decides which neighbours are found."""
        common = {"engine": "chroma", "metric": self.metric, "dimension": self.dimension}
        return {**common, "index": "hnsw", **self._built_with}

    def count(self) -> int:
        """How many points there are."""
        return self._collection.count()

    def nearest(self, queries: AnyArray, limit: int) -> Hits:
        """The nearest points of some queries, with their vectors."""
        found: Any = self._collection.query(
            query_embeddings=list(queries), n_results=limit, include=["embeddings", "metadatas"]
        )
        rows = np.repeat(np.arange(len(queries)), [len(ids) for ids in found["ids"]])
        points = self._points(
            [own for ids in found["ids"] for own in ids],
            [own for metadata in found["metadatas"] for own in metadata],
            [own for vectors in found["embeddings"] for own in vectors],
        )
        return Hits(rows, points.ids, points.labels, points.vectors)

    def put(self, vectors: AnyArray, ids: AnyArray, labels: AnyArray | None) -> None:
        """Write points, in the place of those with the same ids."""
        self._collection.upsert(
            self._names(ids), list(vectors), None if labels is None else self._metadata(labels)
        )

    def put_labels(self, ids: AnyArray, labels: AnyArray) -> None:
        """Give points other labels; the rest of their metadata stays."""
        self._collection.update(self._names(ids), metadatas=self._metadata(labels))

    def delete(self, ids: AnyArray) -> None:
        """Remove points."""
        self._collection.delete(self._names(ids))

    def get(self, ids: AnyArray) -> Stored:
        """Those points that are there."""
        found: Any = self._collection.get(self._names(ids), include=["embeddings", "metadatas"])
        return self._points(found["ids"], found["metadatas"], found["embeddings"])

    def get_ids(self, ids: AnyArray) -> list[Any]:
        """Those ids that are there."""
        return self._own_ids(self._collection.get(self._names(ids), include=[])["ids"])

    def scan(self) -> Iterator[Stored]:
        """All ids and labels, ids ascending; all are read first."""
        self._changes.check_whole()
        parts, start, step = [self._points([], [])], 0, 10_000
        with self.asking():
            while True:
                page: Any = self._collection.get(limit=step, offset=start, include=["metadatas"])
                parts.append(self._points(page["ids"], page["metadatas"]))
                if len(page["ids"]) < step:
                    break
                start += step
        yield from in_order(concatenate_points(parts))

    def close(self) -> None:
        """Give back the client, unless it was given."""
        if self._owns_client:
            self._owns_client = False
            _close(self._client)

    def __repr__(self) -> str:
        return f"<ChromaEngine on {self._name!r}>"

    def translate(self, error: Exception) -> NearsureError:
        """What an error of the client means."""
        return _meaning(error, self._name)

    def _names(self, ids: AnyArray) -> list[str]:
        return [str(own) for own in ids.tolist()]

    def _own_ids(self, names: Sequence[str]) -> list[Any]:
        return list(map(int, names)) if self.capabilities.ids == "integer" else list(names)

    def _metadata(self, labels: AnyArray) -> list[Any]:
        return [{str(self._label_field): label} for label in labels.tolist()]

    def _points(
        self,
        names: Sequence[str],
        metadata: Sequence[Mapping[str, Any] | None],
        vectors: Sequence[Any] | None = None,
    ) -> Stored:
        kinds, labels = self.capabilities, None
        if kinds.labels is not None:
            of_points = [(own or {}).get(str(self._label_field)) for own in metadata]
            labels = array_of_kind(of_points, kinds.labels)
        ids = array_of_kind(self._own_ids(names), kinds.ids)
        if vectors is None:
            return Stored(ids, labels)
        # Doubles, of which Chroma holds single precision.
        table = np.asarray(vectors, np.float32).reshape(-1, self.dimension)
        return Stored(ids, labels, table)


def _connect(uri: "str | ClientAPI | None") -> "ClientAPI":
    if uri is not None and not isinstance(uri, str):
        return uri
    chroma = require("chromadb", extra="chroma", purpose="A gallery in Chroma")
    quiet = chroma.config.Settings(anonymized_telemetry=False)
    path = uri_or_variable(uri, PATH_VARIABLE)
    with translating(lambda error: _meaning(error, path)):
        return cast("ClientAPI", chroma.PersistentClient(path, settings=quiet))


def _close(client: "ClientAPI") -> None:
    """Close a client that `_connect` made: it is a `Client`, though Chroma promises less."""
    cast("Client", client).close()


def _meaning(error: Exception, place: str) -> NearsureError:
    """An error of the client as one of nearsure."""
    text, name = str(error), type(error).__name__
    if name == "NotFoundError":
        return GalleryNotFoundError(
            f"Chroma has no collection {place!r}. ChromaEngine.create makes one."
        )
    if "already exists" in text:
        return InvalidInputError(
            f"collection must be a new name. Got {place!r}, which already exists. Open it with "
            "ChromaEngine(...), or delete it first."
        )
    if "ermission" in text or "readonly" in text or "Read-only" in text:
        return EngineAccessError(f"Chroma may not read or write there: {text[:300]}")
    if isinstance(error, OSError) or "locked" in text or "closed" in text:
        return EngineUnavailableError(f"Chroma cannot be reached. Try again. {text[:300]}")
    if name in {"InvalidArgumentError", "InvalidDimensionException"}:
        return InvalidInputError(f"Chroma refuses: {text[:300]}")
    return EngineError(f"Chroma could not do it: {name}: {text[:300]}")
