"""How pgvector compares vectors: the operator, what it returns, and the indexes that serve it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from nearsure import conventions
from nearsure.arrays import AnyArray, FloatArray
from nearsure.errors import GalleryMismatchError, InvalidInputError

MetricName: TypeAlias = Literal["euclidean", "cosine", "inner_product"]


@dataclass(frozen=True)
class Metric:
    """One way to compare vectors.

    Parameters
    ----------
    operator : str
        What PostgreSQL sorts by.
    opclass : str
        The operator class of an index, behind the name of the type and "_".
    sq_distances : callable
        From what the operator returns to squared Euclidean distances.
    meaning : {"euclidean", "cosine"}
        What it is to nearsure.
    needs_unit_length : bool
        Whether it ranks as it means only where stored vectors have unit length.
    """

    operator: str
    opclass: str
    sq_distances: Callable[[AnyArray], FloatArray]
    meaning: Literal["euclidean", "cosine"]
    needs_unit_length: bool = False


METRICS: Mapping[str, Metric] = {
    "euclidean": Metric("<->", "l2_ops", conventions.l2, "euclidean"),
    "cosine": Metric("<=>", "cosine_ops", conventions.cosine_distance, "cosine"),
    "inner_product": Metric(
        "<#>", "ip_ops", conventions.negative_inner_product, "cosine", needs_unit_length=True
    ),
}


def metric_of(name: str) -> Metric:
    """The metric of this name."""
    if name not in METRICS:
        raise InvalidInputError(
            f"The 'metric' parameter must be one of {', '.join(METRICS)}. Got {name!r} instead."
        )
    return METRICS[name]


def check_unit_length(off: float, table: str) -> None:
    """An error if lengths of vectors differ from 1 by more than rounding does."""
    if off > conventions.ROUNDING:
        raise GalleryMismatchError(
            f"Vectors of {table} must have unit length for metric 'inner_product'. Got lengths "
            f"that are off by {off:.3g}. Normalise them, or open the table with metric='cosine' "
            "or 'euclidean'."
        )
