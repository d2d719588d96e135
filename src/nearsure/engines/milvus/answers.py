"""From what pymilvus lists to `Hits`."""

from typing import Any

import numpy as np

from nearsure import conventions
from nearsure.arrays import AnyArray, FloatArray
from nearsure.engines.hits import Hits
from nearsure.engines.milvus.directions import check_unit
from nearsure.engines.milvus.layout import Fields, Layout
from nearsure.errors import GalleryMismatchError, InvalidInputError
from nearsure.index import unit_vectors

CONVENTIONS = {
    "L2": conventions.squared_l2,
    "COSINE": conventions.cosine_similarity,
    "IP": conventions.inner_product,
}


def array_of(values: list[Any], kind: str) -> AnyArray:
    """Ids or labels as nearsure has them."""
    if None in values:
        raise GalleryMismatchError(
            "Labels of a gallery must not be NULL. Got a point without. Give every point a label, "
            "or open the collection with label_field=None and keep the labels in nearsure."
        )
    return np.array(values, np.int64 if kind == "integer" else str)


def hits_of(answer: Any, layout: Layout, fields: Fields, *, refine: bool) -> Hits:  # noqa: ANN401
    """What a search returned, for all its queries."""
    counts = [len(hits) for hits in answer]
    queries = np.repeat(np.arange(len(counts)), counts)
    ids = array_of([own for hits in answer for own in hits.ids], layout.ids)
    rows = [row for hits in answer for row in list.__iter__(hits)]
    labels = None
    if layout.labels is not None:
        labels = array_of([row["entity"][fields.label] for row in rows], layout.labels)
    vectors = sq_distances = None
    if refine:
        vectors = _hit_vectors(answer, rows, fields.vector, layout.dimension)
        if layout.metric_type == "IP":
            check_unit(vectors, "the collection")
        has_place = vectors.any(axis=1) if layout.at_unit_length else np.ones(len(ids), np.bool_)
        vectors = vectors[has_place]
        if layout.at_unit_length and len(vectors):
            vectors = unit_vectors(vectors.astype(np.float64))
    else:
        scores = np.array([score for hits in answer for score in hits.distances], np.float64)
        has_place = ~np.isnan(scores)
        sq_distances = _sq_distances(scores[has_place], layout.metric_type)
    # Zero vectors have no direction, and so no distance to a query under cosine.
    return Hits(
        queries[has_place],
        ids[has_place],
        None if labels is None else labels[has_place],
        vectors,
        sq_distances,
    )


def row_vectors(rows: Any, field: str, dimension: int) -> AnyArray:  # noqa: ANN401
    """The vectors of rows that a query returned, of shape (n, dimension)."""
    packed = _packed(getattr(rows, "_lazy_field_data", ()), field, len(rows) * dimension)
    if packed is None:
        packed = np.array([row[field] for row in rows], np.float32)
    return packed.reshape(len(rows), dimension)


def _hit_vectors(answer: Any, rows: list[Any], field: str, dimension: int) -> AnyArray:  # noqa: ANN401
    packed = None
    if len(answer):
        # One message for all queries, which each list of hits refers to.
        messages = getattr(answer[0], "lazy_field_data", ())
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


def _sq_distances(scores: FloatArray, metric_type: str) -> FloatArray:
    try:
        return CONVENTIONS[metric_type](scores)
    except InvalidInputError as error:
        raise GalleryMismatchError(f"What the collection holds does not fit: {error}") from None
