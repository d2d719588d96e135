"""What a collection of Milvus is like: its fields and its index, made or looked up."""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from nearsure.engines.milvus.connection import Connection
from nearsure.errors import EngineUnavailableError, GalleryMismatchError

Kind = Literal["integer", "text"]
IndexName = Literal["flat", "hnsw", "ivf"]
MetricName = Literal["euclidean", "cosine", "inner_product"]

METRIC_TYPES: dict[str, str] = {"euclidean": "L2", "cosine": "COSINE", "inner_product": "IP"}
INDEX_TYPES: dict[str, str] = {"flat": "FLAT", "hnsw": "HNSW", "ivf": "IVF_FLAT"}
EXACT_INDEX_TYPES = ("FLAT", "BRUTE_FORCE")
LOOKING_SECONDS = 0.05


@dataclass(frozen=True)
class Fields:
    """Names of a collection's fields; `label` is None if it holds no labels."""

    id: str
    label: str | None
    vector: str


@dataclass(frozen=True)
class Layout:
    """What decides how a collection is asked and what its answers mean.

    Parameters
    ----------
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
        Parameters that the index was built with, as far as the server tells.
    """

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
    def at_unit_length(self) -> bool:
        """Whether vectors are compared by their direction."""
        return self.metric_type in {"COSINE", "IP"}

    @property
    def row_bytes(self) -> int:
        """Bytes of a row whose texts have a common length."""
        return 4 * self.dimension + 64


@dataclass(frozen=True, eq=False)
class Collection:
    """A collection, and what is known of it."""

    connection: Connection
    name: str
    fields: Fields
    layout: Layout

    def ask(self, method: str, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401
        """Call a method of the client for this collection."""
        return self.connection.ask(method, self.name, *arguments, **options)


def look_up(connection: Connection, collection: str, fields: Fields) -> Layout:
    """The layout of a collection that is there; an error if nearsure cannot use it."""
    described = connection.ask("describe_collection", collection)
    by_name = {field["name"]: field for field in described["fields"]}
    types = _data_types()

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
    own_id = field(fields.id, "a primary key", names)
    label = None if fields.label is None else field(fields.label, "a label field", names)
    vector = field(fields.vector, "a vector field", {types.FLOAT_VECTOR: None})
    if not own_id.get("is_primary") or described.get("auto_id"):
        raise GalleryMismatchError(
            f"{fields.id!r} must be the primary key of the collection {collection!r}, with ids "
            "that are given, not made by the server. It is not."
        )
    index = _index_on(connection, collection, fields.vector)
    return Layout(
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


def _index_on(connection: Connection, collection: str, vector_field: str) -> dict[str, Any]:
    for name in connection.ask("list_indexes", collection):
        index: dict[str, Any] | None = connection.ask("describe_index", collection, name)
        if index and index.get("field_name") == vector_field:
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


def make(
    connection: Connection,
    collection: str,
    fields: Fields,
    *,
    dimension: int,
    ids: Kind,
    labels: Kind | None,
    text_length: int,
    metric: MetricName,
    index: IndexName,
    build: Mapping[str, int],
) -> None:
    """Make a collection with its index."""
    from pymilvus import MilvusClient  # noqa: PLC0415

    types = _data_types()

    def of_kind(kind: Kind) -> dict[str, Any]:
        if kind == "integer":
            return {"datatype": types.INT64}
        return {"datatype": types.VARCHAR, "max_length": text_length}

    schema = MilvusClient.create_schema(auto_id=False, enable_dynamic_field=False)
    schema.add_field(fields.id, is_primary=True, **of_kind(ids))
    if labels is not None and fields.label is not None:
        schema.add_field(fields.label, **of_kind(labels))
    schema.add_field(fields.vector, types.FLOAT_VECTOR, dim=dimension)
    indexes = MilvusClient.prepare_index_params()
    indexes.add_index(
        fields.vector,
        index_type=INDEX_TYPES[index],
        metric_type=METRIC_TYPES[metric],
        # As one parameter, for servers take both forms and milvus-lite this one alone.
        params={"params": dict(build)},
    )
    connection.ask("create_collection", collection, schema=schema, consistency_level="Strong")
    add_index(connection, collection, indexes)


def add_index(connection: Connection, collection: str, indexes: Any) -> None:  # noqa: ANN401
    """Make an index and wait until it is built."""
    # pymilvus would look every half second, and without end.
    connection.ask("create_index", collection, indexes, sync=False)
    wait_for_index(connection, collection)


def wait_for_index(connection: Connection, collection: str) -> None:
    """Wait until the indexes cover all that the server has closed off (its sealed segments)."""
    give_up = time.monotonic() + connection.timeout
    while True:
        indexes = [
            connection.ask("describe_index", collection, name)
            for name in connection.ask("list_indexes", collection)
        ]
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


def _data_types() -> Any:  # noqa: ANN401
    from pymilvus import DataType  # noqa: PLC0415

    return DataType
