"""Galleries in Milvus, behind the contract of `nearsure.engines`."""

import os
import weakref
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from nearsure.arrays import AnyArray
from nearsure.engines import checks
from nearsure.engines.contract import Capabilities, Effort, Fingerprint, Found, Kind, Stored
from nearsure.engines.milvus import collection as layouts
from nearsure.engines.milvus.client import Connection, address_of
from nearsure.engines.milvus.collection import Consistency, IndexName, MetricName, Settings
from nearsure.engines.milvus.points import Points
from nearsure.engines.registry import uri_or_variable
from nearsure.errors import InvalidInputError
from nearsure.index import unit_vectors

if TYPE_CHECKING:
    from typing import Self

URI_VARIABLE, TOKEN_VARIABLE = "NEARSURE_MILVUS_URI", "NEARSURE_MILVUS_TOKEN"
N_SAMPLED = 256


class MilvusEngine:
    """A collection of Milvus as a gallery.

    The same code opens a file of milvus-lite, a server and a cluster; only the URI differs. Milvus
    has no transactions. A change that fits into one request (about 4 MB) is there as a whole or not
    at all, and if it is unknown which, the error tells. A larger one takes several requests,
    and others see its points come or go with each of them. If it is cut off, this engine raises
    `PartialGalleryError` until the change has been repeated or, for a load, taken back with
    `remove` of the same ids; other engines and processes see the part that was done. Ids are
    checked before points are added, but Milvus itself would take an id twice: let one process write
    at a time. After a fork, an engine works in the parent alone.

    Parameters
    ----------
    uri : str, optional
        ``http(s)://host:port``, or a path that ends in ``.db`` for milvus-lite; by default what the
        environment variable ``NEARSURE_MILVUS_URI`` holds.
    token : str, optional
        ``user:password`` or an API key; by default what ``NEARSURE_MILVUS_TOKEN`` holds, if
        anything.
    collection : str
        Its name. `create` makes one.
    id_field, vector_field : str
        The primary key (INT64 or VARCHAR) and the vector (FLOAT_VECTOR).
    label_field : str or None
        The label (INT64 or VARCHAR); None if the collection holds none.
    metric : {"euclidean", "cosine", "inner_product"}, optional
        If given, must be that of the collection's index. ``"inner_product"`` is for vectors of unit
        length, and is the same as cosine for them.
    index : {"flat", "hnsw", "ivf"}, optional
        If given, must be the collection's.
    ef : int
        For HNSW, how many points a search keeps in sight; as many as are asked for if that is more.
    nprobe : int, optional
        For IVF, how many lists a search looks through; by default 16, or all if there are fewer.
    refine : bool
        Whether distances are recomputed in double precision from the vectors that Milvus
        returns. Otherwise its own are converted.
    consistency : {"Strong", "Session", "Bounded", "Eventually"}
        What a search must see. With ``"Strong"`` it sees every write that was acknowledged before,
        whoever wrote, and waits for it (up to some 0.2 s on a server); with the others it may miss
        recent ones. Checks before a write, and `size`, are always strong.
    timeout : float
        Seconds that a request may take.

    Attributes
    ----------
    capabilities, dimension, metric
        As the contract has them.

    Examples
    --------
    >>> engine = MilvusEngine.create(dimension=2, uri="gallery.db")  # doctest: +SKIP
    >>> engine.add(np.eye(2), ids=np.array([7, 8]), labels=np.array([0, 1]))  # doctest: +SKIP
    >>> engine.search(np.array([[0.0, 2.0]]), k=1).ids  # doctest: +SKIP
    array([[8]])
    """

    def __init__(
        self,
        uri: str | None = None,
        *,
        token: str | None = None,
        collection: str = "gallery",
        id_field: str = "id",
        label_field: str | None = "label",
        vector_field: str = "embedding",
        metric: MetricName | None = None,
        index: IndexName | None = None,
        ef: int = 64,
        nprobe: int | None = None,
        refine: bool = True,
        consistency: Consistency = "Strong",
        timeout: float = 60.0,
    ) -> None:
        self._settings = Settings(metric, index, ef, nprobe, refine, consistency)
        self._connection = _connection(uri, token, timeout, may_create=False)
        # An engine that is forgotten gives its connection back, too.
        weakref.finalize(self, self._connection.close)
        try:
            fields = (id_field, label_field, vector_field)
            self._layout = layout = layouts.look_up(self._connection, collection, *fields)
            self._settings.check_against(layout, collection)
            layouts.bring_into_memory(self._connection, collection)
            self._points = Points(self._connection, collection, layout, self._settings)
            if layout.metric_type == "IP":
                layouts.check_unit(self._points.sample(N_SAMPLED), f"the collection {collection!r}")
        except BaseException:
            self._connection.close()
            raise
        self.dimension = layout.dimension
        self.metric = layout.meaning
        self.capabilities = Capabilities(
            exact=layout.is_exact,
            holds_labels=layout.labels is not None,
            ids=layout.ids,
            labels=layout.labels,
            largest_k=layouts.LARGEST_K,
        )

    @classmethod
    def create(
        cls,
        dimension: int,
        uri: str | None = None,
        *,
        token: str | None = None,
        collection: str = "gallery",
        ids: Kind = "integer",
        labels: Kind | None = "integer",
        id_field: str = "id",
        label_field: str = "label",
        vector_field: str = "embedding",
        metric: MetricName = "euclidean",
        index: IndexName = "flat",
        M: int = 16,
        ef_construction: int = 200,
        nlist: int = 128,
        text_length: int = 1024,
        ef: int = 64,
        nprobe: int | None = None,
        refine: bool = True,
        consistency: Consistency = "Strong",
        timeout: float = 60.0,
    ) -> "Self":
        """Make a collection with its index, wait until it is in memory, and open it.

        Parameters
        ----------
        dimension : int
            Length of a vector.
        ids, labels : {"integer", "text"}
            Kinds of ids and labels; ``labels=None`` for a collection without.
        M, ef_construction : int
            For HNSW: links of a point, and how many points are kept in sight when it is linked.
        nlist : int
            For IVF: number of lists.
        text_length : int
            Most bytes of a text that is an id or a label.
        uri, token, collection, id_field, label_field, vector_field, metric, index, ef, nprobe
            As for the constructor.
        refine, consistency, timeout
            As for the constructor.
        """
        # What is wrong is said before anything is made.
        Settings(metric, index, ef, nprobe, refine, consistency)
        if index == "ivf" and nprobe is not None and nprobe > nlist:
            raise InvalidInputError(f"nprobe must be at most nlist, {nlist}. Got {nprobe} instead.")
        if dimension < 1 or not 1 <= text_length <= layouts.LONGEST_TEXT:
            raise InvalidInputError(
                f"dimension must be at least 1 and text_length lie in [1, {layouts.LONGEST_TEXT}]. "
                f"Got {dimension} and {text_length} instead."
            )
        build = {"hnsw": {"M": M, "efConstruction": ef_construction}, "ivf": {"nlist": nlist}}
        layout = layouts.Layout(
            id_field,
            None if labels is None else label_field,
            vector_field,
            dimension,
            ids,
            labels,
            longest_id=text_length,
            longest_label=text_length,
            n_shards=1,
            index_type=layouts.INDEX_TYPES[index],
            metric_type=layouts.METRIC_TYPES[metric],
            built_with=build.get(index, {}),
        )
        with closing(_connection(uri, token, timeout, may_create=True)) as connection:
            if connection.ask("has_collection", collection):
                raise InvalidInputError(
                    f"collection must be a new name. Got {collection!r}, which already exists. "
                    "Open it with MilvusEngine(...), or drop it first."
                )
            layouts.make(connection, collection, layout)
            return cls(
                uri,
                token=token,
                collection=collection,
                id_field=id_field,
                label_field=layout.label_field,
                vector_field=vector_field,
                metric=metric,
                index=index,
                ef=ef,
                nprobe=nprobe,
                refine=refine,
                consistency=consistency,
                timeout=timeout,
            )

    def fingerprint(self) -> Fingerprint:
        """All that decides which neighbours are found."""
        return self._settings.fingerprint(self._layout)

    def size(self) -> int:
        """How many points there are now."""
        self._points.changes.check_whole()
        return self._points.count()

    @property
    def effort(self) -> Effort | None:
        """``ef`` or ``nprobe``, and its limit; None where every point is compared."""
        return self._settings.effort(self._layout)

    def search(self, queries: AnyArray, k: int) -> Found:
        """The k nearest points of each query."""
        return self._search(queries, k, self._settings)

    def search_with_effort(self, queries: AnyArray, k: int, effort: int) -> Found:
        """The same with another ``ef`` or ``nprobe``."""
        own: dict[str, Any] = {**checks.checked_effort(effort, self.effort)}
        return self._search(queries, k, replace(self._settings, **own))

    def _search(self, queries: AnyArray, k: int, settings: Settings) -> Found:
        queries = checks.checked_queries(queries, self.dimension)
        k = checks.checked_k(k, self.capabilities)
        if self.metric == "cosine":
            queries = unit_vectors(queries)
        self._points.changes.check_whole()
        return self._points.search(queries, k, settings)

    def add(
        self,
        vectors: AnyArray,
        ids: AnyArray,
        labels: AnyArray | None = None,
        *,
        progress: Callable[[int], None] | None = None,
    ) -> None:
        """Add points; see the contract.

        A load that was cut off is completed by adding the same points again, also by another
        process: a load of several requests takes an id that is there with the same vector and
        label. Afterwards `add` waits until the index covers what the server has closed off; see
        `finish_index`.

        Parameters
        ----------
        progress : callable, optional
            Called with the number of points that are there so far, after each request.
        """
        points, own_ids, own_labels = checks.checked_points(
            vectors, ids, labels, dimension=self.dimension, capabilities=self.capabilities
        )
        layouts.check_expressible(own_ids, "ids", self._layout.longest_id)
        if own_labels is not None:
            layouts.check_expressible(own_labels, "labels", self._layout.longest_label)
        rounded = checks.single_precision(points, "vectors")
        if self._layout.metric_type == "IP":
            layouts.check_unit(rounded, "vectors")
        elif self._layout.metric_type == "COSINE":
            checks.check_direction(rounded)
        self._points.add(rounded, own_ids, own_labels, progress)

    def finish_index(self) -> None:
        """Make the server close off what was added, and wait until its index covers all of it.

        A server indexes what it has closed off, which it does by itself once there are some hundred
        megabytes, or after a while; until then new points are found by looking at each of them. So
        this is worth its seconds after a load, before many searches. The server takes the index
        into its memory some seconds later, by itself. `add` waits too, after a load of several
        requests, but only for what the server has closed off by then. A file of milvus-lite builds
        its index in the background, without a way to wait for it.
        """
        self._points.ask("flush")
        layouts.wait_for_index(self._connection, self._points.name)

    def remove(self, ids: AnyArray) -> None:
        """Remove points. A removal that was cut off is completed by removing the same ids again."""
        self._points.remove(self._checked_ids(ids))

    def relabel(self, ids: AnyArray, labels: AnyArray) -> None:
        """Give points other labels. If it was cut off, it is completed by doing it again."""
        if self._layout.labels is None:
            raise InvalidInputError("This collection holds no labels to change.")
        own_ids = self._checked_ids(ids)
        own_labels = checks.checked_labels(labels, len(own_ids), self.capabilities)
        layouts.check_expressible(own_labels, "labels", self._layout.longest_label)
        self._points.relabel(own_ids, own_labels)

    def fetch(self, ids: AnyArray) -> Stored:
        """Points with vectors (as stored) and labels, in the order of `ids`."""
        own_ids = self._checked_ids(ids)
        self._points.changes.check_whole()
        return self._points.fetch(own_ids)

    def scan(self) -> Iterator[Stored]:
        """All ids and labels, in portions, ids ascending."""
        self._points.changes.check_whole()
        yield from self._points.scan()

    def close(self) -> None:
        """Give back the connection, or the file."""
        self._connection.close()

    def __enter__(self) -> "Self":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<MilvusEngine on {self._points.name!r}, {self._connection.place}>"

    def _checked_ids(self, ids: AnyArray) -> AnyArray:
        own_ids = checks.checked_ids(ids, self.capabilities)
        layouts.check_expressible(own_ids, "ids", self._layout.longest_id)
        return own_ids


def _connection(
    uri: str | None, token: str | None, timeout: float, *, may_create: bool
) -> Connection:
    uri = uri_or_variable(uri, URI_VARIABLE)
    if timeout <= 0:
        raise InvalidInputError(f"timeout must be above 0 seconds. Got {timeout} instead.")
    address = address_of(uri, token or os.environ.get(TOKEN_VARIABLE))
    return Connection(address, timeout, may_create=may_create)
