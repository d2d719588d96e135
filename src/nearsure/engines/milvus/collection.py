"""A collection of Milvus: fields, index, limits, expressions and settings."""

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, get_args

import numpy as np

from nearsure.arrays import AnyArray
from nearsure.engines.contract import Effort, Fingerprint, Kind, Metric
from nearsure.engines.milvus.client import Connection, TooLargeError
from nearsure.errors import EngineUnavailableError, GalleryMismatchError, InvalidInputError
from nearsure.neighbors import ROUNDING

IndexName = Literal["flat", "hnsw", "ivf"]
MetricName = Literal["euclidean", "cosine", "inner_product"]

METRIC_TYPES: dict[str, str] = {"euclidean": "L2", "cosine": "COSINE", "inner_product": "IP"}
INDEX_TYPES: dict[str, str] = {"flat": "FLAT", "hnsw": "HNSW", "ivf": "IVF_FLAT"}
EXACT_INDEX_TYPES = ("FLAT", "BRUTE_FORCE")
LOOKING_SECONDS = 0.05


@dataclass(frozen=True)
class Layout:
    """What decides how a collection is asked and what its answers mean.

    Parameters
    ----------
    id_field, label_field, vector_field : str
        Names of its fields; that of labels is None if it holds none.
    dimension : int
        Length of a vector.
    ids, labels : {"integer", "text"} or None
        Kinds of the primary key and of the label.
    longest_id, longest_label : int or None
        Most bytes of a text.
    n_shards : int
        Into how many logs a write is divided.
    index_type, metric_type : str
        As Milvus has them, such as ``"HNSW"`` and ``"L2"``.
    built_with : mapping
        Parameters that the index was built with, as far as the server returns them.
    """

    id_field: str
    label_field: str | None
    vector_field: str
    dimension: int
    ids: Kind
    labels: Kind | None
    longest_id: int | None
    longest_label: int | None
    n_shards: int
    index_type: str
    metric_type: str
    built_with: Mapping[str, int]

    @property
    def is_exact(self) -> bool:
        """Whether every vector is looked at."""
        return self.index_type in EXACT_INDEX_TYPES

    @property
    def meaning(self) -> Metric:
        """Whether vectors are compared as they are, or at unit length."""
        return "euclidean" if self.metric_type == "L2" else "cosine"

    @property
    def row_bytes(self) -> int:
        """Bytes of a row whose texts have a common length."""
        return 4 * self.dimension + 64


def look_up(
    connection: Connection,
    collection: str,
    id_field: str,
    label_field: str | None,
    vector_field: str,
) -> Layout:
    """The layout of a collection that is there; an error if nearsure cannot use it."""
    described = connection.ask("describe_collection", collection)
    by_name = {field["name"]: field for field in described["fields"]}
    types = connection.pymilvus.DataType

    def field(name: str, what: str, kinds: Mapping[Any, Any]) -> dict[str, Any]:
        found: dict[str, Any] | None = by_name.get(name)
        if found is None or found["type"] not in kinds:
            has = ", ".join(
                f"{own} ({types(own_field['type']).name})" for own, own_field in by_name.items()
            )
            allowed = " or ".join(kind.name for kind in kinds)
            raise GalleryMismatchError(
                f"The collection {collection!r} must have {what} {name!r} of type {allowed}. "
                f"It has {has}. Say which field is which with id_field, label_field and "
                "vector_field."
            )
        return found

    names: dict[Any, Kind] = {types.INT64: "integer", types.VARCHAR: "text"}
    own_id = field(id_field, "a primary key", names)
    label = None if label_field is None else field(label_field, "a label field", names)
    vector = field(vector_field, "a vector field", {types.FLOAT_VECTOR: None})
    if not own_id.get("is_primary") or described.get("auto_id"):
        raise GalleryMismatchError(
            f"{id_field!r} must be the primary key of the collection {collection!r}, with ids "
            "that are given, not made by the server. It is not."
        )
    index = _index_on(connection, collection, vector_field)
    return Layout(
        id_field,
        label_field,
        vector_field,
        dimension=int(vector["params"]["dim"]),
        ids=names[own_id["type"]],
        labels=None if label is None else names[label["type"]],
        longest_id=_longest(own_id),
        longest_label=None if label is None else _longest(label),
        n_shards=int(described.get("num_shards") or 1),
        index_type=str(index["index_type"]).upper(),
        metric_type=str(index["metric_type"]).upper(),
        built_with=_built_with(index),
    )


def _longest(field: Mapping[str, Any]) -> int | None:
    longest = field["params"].get("max_length")
    return None if longest is None else int(longest)


def _built_with(index: Mapping[str, Any]) -> dict[str, int]:
    """Parameters of an index, which stand beside one another or in a JSON text, as given."""
    together = index.get("params") or {}
    given = {**index, **(json.loads(together) if isinstance(together, str) else together)}
    return {name: int(given[name]) for name in ("M", "efConstruction", "nlist") if name in given}


def _indexes(connection: Connection, collection: str) -> list[dict[str, Any]]:
    names = connection.ask("list_indexes", collection)
    described = [connection.ask("describe_index", collection, name) for name in names]
    return [index for index in described if index]


def _index_on(connection: Connection, collection: str, vector_field: str) -> dict[str, Any]:
    for index in _indexes(connection, collection):
        if index.get("field_name") == vector_field:
            if str(index.get("metric_type")).upper() not in METRIC_TYPES.values():
                raise GalleryMismatchError(
                    f"The index of {collection!r} must have the metric type L2, IP or COSINE. "
                    f"Got {index.get('metric_type')} instead."
                )
            return index
    raise GalleryMismatchError(
        f"The collection {collection!r} must have an index on {vector_field!r}, which says how "
        "vectors are compared. It has none: make one, or make the collection with "
        "MilvusEngine.create."
    )


def make(connection: Connection, collection: str, layout: Layout) -> None:
    """Make a collection with its index, and wait until that is built."""
    types, client = connection.pymilvus.DataType, connection.pymilvus.MilvusClient

    def of_kind(kind: Kind, longest: int | None) -> dict[str, Any]:
        if kind == "integer":
            return {"datatype": types.INT64}
        return {"datatype": types.VARCHAR, "max_length": longest}

    schema = client.create_schema(auto_id=False, enable_dynamic_field=False)
    schema.add_field(layout.id_field, is_primary=True, **of_kind(layout.ids, layout.longest_id))
    if layout.labels is not None:
        schema.add_field(layout.label_field, **of_kind(layout.labels, layout.longest_label))
    schema.add_field(layout.vector_field, types.FLOAT_VECTOR, dim=layout.dimension)
    indexes = client.prepare_index_params()
    indexes.add_index(
        layout.vector_field,
        index_type=layout.index_type,
        metric_type=layout.metric_type,
        # As one parameter, for servers take both forms and milvus-lite this one alone.
        params={"params": dict(layout.built_with)},
    )
    connection.ask("create_collection", collection, schema=schema, consistency_level="Strong")
    # pymilvus would look every half second, and without end.
    connection.ask("create_index", collection, indexes, sync=False)
    wait_for_index(connection, collection)


def wait_for_index(connection: Connection, collection: str) -> None:
    """Wait until the indexes cover all that the server has closed off (its sealed segments)."""
    give_up = time.monotonic() + connection.timeout
    while True:
        indexes = _indexes(connection, collection)
        if all(
            index["state"] == "Finished" and not index.get("pending_index_rows")
            for index in indexes
        ):
            return
        if time.monotonic() > give_up:
            n_pending = max(index.get("pending_index_rows", 0) for index in indexes)
            raise EngineUnavailableError(
                f"The index of {collection!r} was not built after {connection.timeout:g} s; "
                f"{n_pending} rows are left. What was written is there and is found, but slower. "
                "Wait with finish_index(), longer with timeout=, or see what the server lacks."
            )
        time.sleep(LOOKING_SECONDS)


def bring_into_memory(connection: Connection, collection: str) -> None:
    """Load a collection and wait until it can be searched."""
    state = connection.ask("get_load_state", collection)["state"]
    if getattr(state, "name", None) == "Loaded":
        return
    try:
        connection.ask("load_collection", collection)
    except EngineUnavailableError as error:
        raise EngineUnavailableError(
            f"The collection {collection!r} was not in memory after {connection.timeout:g} s. Wait "
            f"longer with timeout=, or see what the server lacks. {error}"
        ) from None


# Limits of a server in its default configuration.
LARGEST_K = 16384
LARGEST_PORTION = 16384
LONGEST_TEXT = 65535
LARGEST_EF = 32768

# A server takes 16384 queries at once, but more of them are not faster, and an answer must come
# before the time is up.
MOST_QUERIES = 1000

# A message of a server may have 64 MB. Answers hold ids, labels and the overhead of both on top of
# what is counted here, and a smaller message is also given up sooner.
REQUEST_BYTES = 16 * 2**20
# A server divides what is larger than 5 MB into several messages in its log. What stays below is
# one message, there as a whole or not at all.
ATOMIC_BYTES = 4 * 2**20
# Ids are named in an expression, which the server parses.
MOST_IDS = 5000

Answer = TypeVar("Answer")


def portions(
    n: int, bytes_each: int, most: int, most_bytes: int = REQUEST_BYTES
) -> Iterator[slice]:
    """Slices of n entries, each within both limits and of at least one entry.

    Examples
    --------
    >>> list(portions(5, bytes_each=10, most=3, most_bytes=25))
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    step = max(1, min(most, most_bytes // bytes_each))
    for start in range(0, n, step):
        yield slice(start, min(start + step, n))


def ask_in_portions(
    parts: Iterable[slice], ask: Callable[[slice], Answer]
) -> Iterator[tuple[slice, Answer]]:
    """Answers to portions in their order; what is too large an answer is asked for in halves.

    How long texts are is known once they have come.
    """
    for part in parts:
        try:
            answer = ask(part)
        except TooLargeError:
            middle = (part.start + part.stop) // 2
            if middle == part.start:
                raise
            halves = (slice(part.start, middle), slice(middle, part.stop))
            yield from ask_in_portions(halves, ask)
        else:
            yield part, answer


# The server reads a minus sign and a number, and 2^63 is none.
SMALLEST_ID = np.iinfo(np.int64).min + 1


def literal(value: Any) -> str:  # noqa: ANN401
    """An integer or a text as an expression has it.

    Examples
    --------
    >>> literal("ann"), literal(-3)
    ('"ann"', '-3')
    """
    return json.dumps(value, ensure_ascii=False)


def one_of(field: str, ids: AnyArray) -> str:
    """The expression that is true of these ids.

    Examples
    --------
    >>> one_of("id", np.array([3, 5]))
    'id in [3, 5]'
    """
    return f"{field} in [{', '.join(map(literal, ids.tolist()))}]"


def between(field: str, above: Any, up_to: Any) -> str:  # noqa: ANN401
    """The expression that is true of ids above one and up to another; None is no bound.

    Examples
    --------
    >>> between("id", 3, None)
    'id > 3'
    """
    bounds = []
    if above is not None:
        bounds.append(f"{field} > {literal(above)}")
    if up_to is not None:
        bounds.append(f"{field} <= {literal(up_to)}")
    return " and ".join(bounds)


def check_expressible(values: AnyArray, name: str, longest: int | None) -> None:
    """An error for integers that Milvus cannot name, and texts that are too long for it."""
    if values.dtype.kind != "U":
        if values.size and values.min() < SMALLEST_ID:
            raise InvalidInputError(
                f"{name} must be at least {SMALLEST_ID} in Milvus. Got {values.min()} instead."
            )
        return
    for value in values.tolist():
        if longest is not None and len(value.encode()) > longest:
            raise InvalidInputError(
                f"{name} must have at most {longest} bytes in this collection. Got one of "
                f"{len(value.encode())}: {value[:20]!r}... Make a collection with a larger "
                "text_length."
            )


USUAL_NPROBE = 16

Consistency = Literal["Strong", "Session", "Bounded", "Eventually"]


@dataclass(frozen=True)
class Settings:
    """See `MilvusEngine`."""

    metric: str | None
    index: str | None
    ef: int
    nprobe: int | None
    refine: bool
    consistency: str

    def __post_init__(self) -> None:
        for name, value, allowed in (
            ("metric", self.metric, (None, *METRIC_TYPES)),
            ("index", self.index, (None, *INDEX_TYPES)),
            ("consistency", self.consistency, get_args(Consistency)),
        ):
            if value not in allowed:
                raise InvalidInputError(
                    f"{name} must be one of {', '.join(map(repr, allowed))}. Got {value!r} instead."
                )
        if not 1 <= self.ef <= LARGEST_EF:
            raise InvalidInputError(f"ef must lie in [1, {LARGEST_EF}]. Got {self.ef} instead.")
        if self.nprobe is not None and self.nprobe < 1:
            raise InvalidInputError(f"nprobe must be at least 1. Got {self.nprobe} instead.")

    def check_against(self, layout: Layout, collection: str) -> None:
        """An error if the collection is not what was asked for."""
        for name, asked, is_type, types in (
            ("metric", self.metric, layout.metric_type, METRIC_TYPES),
            ("index", self.index, layout.index_type, INDEX_TYPES),
        ):
            if asked is not None and types[asked] != is_type:
                raise GalleryMismatchError(
                    f"{name} must be that of the collection {collection!r}, whose index has the "
                    f"type {is_type}. Got {asked!r} ({types[asked]}) instead. Leave it out to take "
                    "the collection as it is."
                )
        n_lists = layout.built_with.get("nlist")
        if n_lists is not None and self.nprobe is not None and self.nprobe > n_lists:
            raise InvalidInputError(
                f"nprobe must be at most {n_lists}, the lists of the index. Got {self.nprobe} "
                "instead."
            )

    def search_params(
        self, layout: Layout, n_candidates: int, nprobe: int | None = None
    ) -> dict[str, Any]:
        """What a search is sent with. An `ef` below the candidates would be an error in Milvus."""
        params = {}
        if layout.index_type.startswith("HNSW"):
            params["ef"] = max(self.ef, n_candidates)
        elif layout.index_type.startswith("IVF"):
            params["nprobe"] = nprobe or self._lists_looked_through(layout)
        return {"metric_type": layout.metric_type, "params": params}

    def effort(self, layout: Layout) -> Effort | None:
        """How much of the index is searched, and at most; None if all of it is."""
        if layout.index_type.startswith("HNSW"):
            return Effort("ef", self.ef, LARGEST_EF)
        if layout.index_type.startswith("IVF"):
            n_probes = self._lists_looked_through(layout)
            return Effort("nprobe", n_probes, layout.built_with.get("nlist", n_probes))
        return None

    def lists_left(self, layout: Layout) -> int | None:
        """How many lists there are, if a search does not look through them all."""
        n_lists = layout.built_with.get("nlist")
        if not layout.index_type.startswith("IVF") or n_lists is None:
            return None
        return n_lists if self._lists_looked_through(layout) < n_lists else None

    def fingerprint(self, layout: Layout) -> Fingerprint:
        """All that decides which neighbours are found."""
        graph, lists = (layout.index_type.startswith(name) for name in ("HNSW", "IVF"))
        return {
            "engine": "milvus",
            "index": layout.index_type,
            "metric": layout.metric_type,
            "dimension": layout.dimension,
            **{name: layout.built_with.get(name) for name in ("M", "efConstruction", "nlist")},
            "ef": self.ef if graph else None,
            "nprobe": self._lists_looked_through(layout) if lists else None,
            "refine": self.refine,
            "consistency": self.consistency,
        }

    def _lists_looked_through(self, layout: Layout) -> int:
        if self.nprobe is not None:
            return self.nprobe
        return min(USUAL_NPROBE, layout.built_with.get("nlist", USUAL_NPROBE))


def check_unit(vectors: AnyArray, name: str) -> None:
    """An error for vectors of another length than 1, beyond rounding."""
    lengths: Any = np.linalg.norm(vectors.astype(np.float64), axis=1)
    if (np.abs(lengths - 1.0) > ROUNDING).any():
        worst = lengths[np.abs(lengths - 1.0).argmax()]
        raise GalleryMismatchError(
            f"Vectors of {name} must have unit length, as its metric is the inner product: it says "
            f"nothing about distances of others. Got one of length {worst:.6g}. Normalise them, or "
            "use the metric 'euclidean' or 'cosine'."
        )
