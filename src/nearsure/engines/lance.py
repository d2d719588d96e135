"""Galleries in LanceDB: a folder or an object store, without a server."""

from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np

from nearsure.arrays import AnyArray
from nearsure.engines.checks import checked_effort
from nearsure.engines.contract import Capabilities, Effort, Fingerprint, Kind, Metric, Stored
from nearsure.engines.hits import Hits, array_of_kind, in_order
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

    from lancedb.db import DBConnection
    from lancedb.query import LanceVectorQueryBuilder

URI_VARIABLE = "NEARSURE_LANCE_URI"
DISTANCE_TYPES: dict[str, Literal["l2", "cosine"]] = {"euclidean": "l2", "cosine": "cosine"}
# Ids are named in an expression.
MOST_IDS = 1000
LARGEST_EFFORT = 2**16


class LanceEngine(SimpleEngine):
    """A table of LanceDB as a gallery.

    Every change is one new version of the table: whole or not at all, also if the process is
    killed, and seen by every search that begins afterwards, in this process and in others. Writers
    of several processes do not block one another, so that two may add the same id: let one write.

    Without an index every point is compared, and all neighbours are found. `create_index` makes
    one, after which most are found; points that are added later are compared one by one until
    `finish_index` takes them into it.

    Parameters
    ----------
    uri : str or lancedb.DBConnection, optional
        A folder, ``s3://...``, or a connection; by default what ``NEARSURE_LANCE_URI`` holds.
    table : str
        Its name. `create` makes one.
    id_field, vector_field : str
        The columns of ids (int64 or string) and vectors (fixed-size lists of float32).
    label_field : str or None
        The column of labels (int64 or string); None if there is none.
    metric : {"euclidean", "cosine"}, optional
        How vectors are compared; by default as the index has it, or euclidean without one.
    exact : bool
        Whether every point is compared even if there is an index.
    nprobe : int
        How many of the index's lists a search looks through; more where these hold too few points.
    ef : int
        For HNSW, how many points a search keeps in sight in each list; as many as are asked for if
        that is more.
    refine_factor : int, optional
        For indexes that hold vectors in fewer bits (PQ, SQ, RQ): how many times as many candidates
        are compared by their vectors.

    Examples
    --------
    >>> engine = LanceEngine.create(dimension=2, uri="galleries")  # doctest: +SKIP
    >>> engine.add(np.eye(2), ids=np.array([7, 8]), labels=np.array([0, 1]))  # doctest: +SKIP
    >>> engine.search(np.array([[0.0, 2.0]]), k=1).ids  # doctest: +SKIP
    array([[8]])
    """

    name = "LanceDB"

    def __init__(
        self,
        uri: "str | DBConnection | None" = None,
        *,
        table: str = "gallery",
        id_field: str = "id",
        label_field: str | None = "label",
        vector_field: str = "embedding",
        metric: Metric | None = None,
        exact: bool = False,
        nprobe: int = 20,
        ef: int = 128,
        refine_factor: int | None = None,
    ) -> None:
        super().__init__()
        for name, value in (("nprobe", nprobe), ("ef", ef), ("refine_factor", refine_factor)):
            if value is not None and value < 1:
                raise InvalidInputError(f"{name} must be at least 1. Got {value} instead.")
        self._id_field, self._label_field, self._vector_field = id_field, label_field, vector_field
        self._name, self._asked_metric, self._asks_all = table, metric, exact
        self._nprobe, self._ef, self._refine_factor = nprobe, ef, refine_factor
        with self.asking():
            self._table = _connect(uri).open_table(table)
            self._schema = self._table.schema
        self._look_up()

    @classmethod
    def create(
        cls,
        dimension: int,
        uri: "str | DBConnection | None" = None,
        *,
        table: str = "gallery",
        ids: Kind = "integer",
        labels: Kind | None = "integer",
        id_field: str = "id",
        label_field: str = "label",
        vector_field: str = "embedding",
        metric: Metric = "euclidean",
        exact: bool = False,
        nprobe: int = 20,
        ef: int = 128,
        refine_factor: int | None = None,
    ) -> "Self":
        """Make a table and open it.

        Parameters
        ----------
        dimension : int
            Length of a vector.
        ids, labels : {"integer", "text"}
            Kinds of ids and labels; ``labels=None`` for a table without.
        uri, table, id_field, label_field, vector_field, metric, exact, nprobe, ef, refine_factor
            As for the constructor.
        """
        arrow = _arrow()
        types = {"integer": arrow.int64(), "text": arrow.string()}
        fields = [arrow.field(id_field, types[ids], nullable=False)]
        if labels is not None:
            fields.append(arrow.field(label_field, types[labels]))
        fields.append(arrow.field(vector_field, arrow.list_(arrow.float32(), dimension)))
        # The metric is noted, as only an index has one in LanceDB.
        noted = arrow.schema(fields, metadata={"nearsure.metric": metric})
        with translating(lambda error: _meaning(error, table)):
            connection = _connect(uri)
            connection.create_table(table, schema=noted)
        return cls(
            connection,
            table=table,
            id_field=id_field,
            label_field=None if labels is None else label_field,
            vector_field=vector_field,
            metric=metric,
            exact=exact,
            nprobe=nprobe,
            ef=ef,
            refine_factor=refine_factor,
        )

    def _look_up(self) -> None:
        kinds: dict[str, Kind] = {
            "int64": "integer",
            "string": "text",
            "large_string": "text",
        }
        columns = {field.name: field.type for field in self._schema}
        vector = columns.get(self._vector_field)
        names = [self._id_field] + ([] if self._label_field is None else [self._label_field])
        wrong = [name for name in names if str(columns.get(name)) not in kinds]
        if vector is None or str(getattr(vector, "value_type", "")) != "float" or wrong:
            has = ", ".join(f"{name} ({kind})" for name, kind in columns.items())
            raise GalleryMismatchError(
                f"The table {self._name!r} must have {names} of int64 or string, and "
                f"{self._vector_field!r} of fixed-size lists of float32. It has {has}. Say which "
                "column is which with id_field, label_field and vector_field."
            )
        self.dimension = vector.list_size
        self._index = self._index_there()
        self.metric = self._metric()
        self.capabilities = Capabilities(
            exact=self._index is None or self._asks_all,
            holds_labels=self._label_field is not None,
            ids=kinds[str(columns[self._id_field])],
            labels=None if self._label_field is None else kinds[str(columns[self._label_field])],
        )

    def _index_there(self) -> tuple[str, str | None] | None:
        """The type and the distance type of the index on the vectors."""
        with self.asking():
            for index in self._table.list_indices():
                if index.columns == [self._vector_field]:
                    about = self._table.index_stats(index.name)
                    # None if somebody has dropped the index since it was listed.
                    if about is not None:
                        return about.index_type, about.distance_type
        return None

    def _metric(self) -> Metric:
        by_type: dict[str | None, Metric] = {"l2": "euclidean", "cosine": "cosine"}
        noted = (self._schema.metadata or {}).get(b"nearsure.metric")
        if self._index is not None:
            there = by_type.get(self._index[1])
        else:
            there = cast("Metric | None", noted.decode() if noted else None)
        asked = self._asked_metric
        if (self._index is not None and there is None) or (asked and there and asked != there):
            raise GalleryMismatchError(
                f"metric must be that of the table {self._name!r}, {there or self._index!r}; "
                f"allowed are euclidean (l2) and cosine. Got {asked!r} instead."
            )
        return there or asked or "euclidean"

    def create_index(
        self,
        index: Literal["ivf", "hnsw"] = "hnsw",
        *,
        nlist: int | None = None,
        M: int = 20,
        ef_construction: int = 300,
    ) -> None:
        """Make an index of the points that are there, in the place of an earlier one.

        Do this before the fit, whose confidence is to be that of the index.

        Parameters
        ----------
        index : {"ivf", "hnsw"}
            Lists of whole vectors (LanceDB's IVF_FLAT), or graphs of them (IVF_HNSW_FLAT).
        nlist : int, optional
            Number of lists; by default LanceDB's choice for lists, and one graph.
        M, ef_construction : int
            For HNSW: links of a point, and how many points are kept in sight when it is linked.
        """
        kinds = require("lancedb.index", extra="lance", purpose="A gallery in LanceDB")
        distance_type = DISTANCE_TYPES[self.metric]
        if index == "ivf":
            config = kinds.IvfFlat(distance_type=distance_type, num_partitions=nlist)
        else:
            config = kinds.HnswFlat(
                distance_type=distance_type,
                num_partitions=nlist or 1,
                m=M,
                ef_construction=ef_construction,
            )
        with self._lock, self.asking():
            self._table.create_index(self._vector_field, config=config)
        self._look_up()

    def finish_index(self) -> None:
        """Take points that were added since into the index, and put small files together."""
        with self._lock, self.asking():
            self._table.optimize()

    def fingerprint(self) -> Fingerprint:
        """All that decides which neighbours are found."""
        common = {"engine": "lance", "metric": self.metric, "dimension": self.dimension}
        if self._index is None or self._asks_all:
            return {**common, "index": "exact"}
        return {
            **common,
            "index": self._index[0],
            "nprobe": self._nprobe,
            "ef": self._ef if "HNSW" in self._index[0] else None,
            "refine_factor": self._refine_factor,
        }

    def count(self) -> int:
        """How many points there are."""
        return int(self._table.count_rows())

    @property
    def effort(self) -> Effort | None:
        """``ef`` of a graph, else ``nprobe``; None where every point is compared."""
        if self._index is None or self._asks_all:
            return None
        name, value = ("ef", self._ef) if "HNSW" in self._index[0] else ("nprobe", self._nprobe)
        return Effort(name, value, max(LARGEST_EFFORT, value))

    def nearest(self, queries: AnyArray, limit: int) -> Hits:
        """The nearest points of some queries, with their vectors."""
        return self._nearest(queries, limit, nprobe=self._nprobe, ef=self._ef)

    def nearest_with_effort(self, queries: AnyArray, limit: int, effort: int) -> Hits:
        """The same with another ``ef`` or ``nprobe``."""
        own = checked_effort(effort, self.effort)
        return self._nearest(queries, limit, **{"nprobe": self._nprobe, "ef": self._ef, **own})

    def _nearest(self, queries: AnyArray, limit: int, *, nprobe: int, ef: int) -> Hits:
        # The interface of tables does not say that a search for vectors is one.
        search = cast(
            "LanceVectorQueryBuilder",
            self._table.search(list(queries), self._vector_field, query_type="vector"),
        )
        search = (
            search.distance_type(DISTANCE_TYPES[self.metric])
            .select([*self._names(), self._vector_field, "_distance"])
            .limit(limit)
        )
        if self.capabilities.exact:
            search = search.bypass_vector_index()
        else:
            # A maximum of 0 is none: all lists, until there are enough points.
            search = search.minimum_nprobes(nprobe).maximum_nprobes(0)
            search = search.ef(max(ef, limit))
            if self._refine_factor is not None:
                search = search.refine_factor(self._refine_factor)
        found = search.to_arrow()
        points = self._points(found)
        if "query_index" in found.column_names:
            rows = found["query_index"].to_numpy().astype(np.int64)
        else:
            rows = np.zeros(len(points.ids), np.int64)
        return Hits(rows, points.ids, points.labels, points.vectors)

    def put(self, vectors: AnyArray, ids: AnyArray, labels: AnyArray | None) -> None:
        """Write points, in the place of those with the same ids."""
        arrow = _arrow()
        flat = arrow.array(vectors.ravel())
        columns = {self._vector_field: arrow.FixedSizeListArray.from_arrays(flat, self.dimension)}
        rows = self._rows(ids, labels, columns)
        merge = self._table.merge_insert(self._id_field)
        merge.when_matched_update_all().when_not_matched_insert_all().execute(rows)

    def put_labels(self, ids: AnyArray, labels: AnyArray) -> None:
        """Give points other labels; their other columns stay."""
        rows = self._rows(ids, labels, {})
        self._table.merge_insert(self._id_field).when_matched_update_all().execute(rows)

    def delete(self, ids: AnyArray) -> None:
        """Remove points."""
        self._table.delete(self._among(ids))

    def get(self, ids: AnyArray) -> Stored:
        """Those points that are there."""
        return self._points(self._read(ids, [*self._names(), self._vector_field]))

    def get_ids(self, ids: AnyArray) -> list[Any]:
        """Those ids that are there."""
        return cast("list[Any]", self._read(ids, [self._id_field])[self._id_field].to_pylist())

    def scan(self) -> Iterator[Stored]:
        """All ids and labels, ids ascending; all are read first."""
        with self.asking():
            rows = self._table.search().select(self._names()).to_arrow()
        yield from in_order(self._points(rows))

    def __repr__(self) -> str:
        return f"<LanceEngine on {self._name!r}>"

    def translate(self, error: Exception) -> NearsureError:
        """What an error of the client means."""
        return _meaning(error, self._name)

    def _names(self) -> list[str]:
        return [self._id_field] + ([] if self._label_field is None else [self._label_field])

    def _among(self, ids: AnyArray) -> str:
        """The expression that is true of these ids."""
        written = [
            str(own) if isinstance(own, int) else "'" + own.replace("'", "''") + "'"
            for own in ids.tolist()
        ]
        return f"`{self._id_field}` IN ({', '.join(written)})"

    def _read(self, ids: AnyArray, columns: list[str]) -> Any:  # noqa: ANN401
        parts = [
            self._table.search()
            .where(self._among(some))
            .select(columns)
            .limit(len(some))
            .to_arrow()
            for some in np.split(ids, range(MOST_IDS, len(ids), MOST_IDS))
        ]
        return _arrow().concat_tables(parts)

    def _rows(self, ids: AnyArray, labels: AnyArray | None, others: dict[str, Any]) -> Any:  # noqa: ANN401
        arrow = _arrow()
        columns: dict[str, Any] = {self._id_field: arrow.array(ids.tolist())}
        if labels is not None:
            columns[str(self._label_field)] = arrow.array(labels.tolist())
        return arrow.table(columns | others)

    def _points(self, rows: Any) -> Stored:  # noqa: ANN401
        kinds, labels, vectors = self.capabilities, None, None
        if kinds.labels is not None:
            labels = array_of_kind(rows[self._label_field].to_pylist(), kinds.labels)
        if self._vector_field in rows.column_names:
            flat = rows[self._vector_field].combine_chunks().flatten()
            vectors = flat.to_numpy(zero_copy_only=False).reshape(-1, self.dimension)
        return Stored(array_of_kind(rows[self._id_field].to_pylist(), kinds.ids), labels, vectors)


def _arrow() -> Any:  # noqa: ANN401
    return require("pyarrow", extra="lance", purpose="A gallery in LanceDB")


def _connect(uri: "str | DBConnection | None") -> "DBConnection":
    if uri is not None and not isinstance(uri, str):
        return uri
    lancedb = require("lancedb", extra="lance", purpose="A gallery in LanceDB")
    # Every read looks for the newest version, whoever wrote it.
    return cast(
        "DBConnection",
        lancedb.connect(
            uri_or_variable(uri, URI_VARIABLE), read_consistency_interval=timedelta(seconds=0)
        ),
    )


def _meaning(error: Exception, table: str) -> NearsureError:
    """An error of the client as one of nearsure."""
    text = str(error)
    if "was not found" in text and "Table" in text:
        return GalleryNotFoundError(
            f"LanceDB has no table {table!r} there. LanceEngine.create makes one."
        )
    if "already exists" in text:
        return InvalidInputError(
            f"table must be a new name. Got {table!r}, which already exists. "
            "Open it with LanceEngine(...), or drop it first."
        )
    if "ermission" in text:
        return EngineAccessError(f"LanceDB may not read or write there: {text[:300]}")
    if isinstance(error, OSError) or "Not found" in text or "onflict" in text:
        return EngineUnavailableError(f"LanceDB cannot reach its files. Try again. {text[:300]}")
    return EngineError(f"LanceDB could not do it: {type(error).__name__}: {text[:300]}")
