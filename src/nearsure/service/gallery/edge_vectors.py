"""From the numbers of a request to vectors that any engine takes."""

from collections.abc import Sequence

import numpy as np

from nearsure.arrays import AnyArray
from nearsure.errors import InvalidInputError

# Beyond this the square of a distance may leave single precision, whatever the dimension.
LARGEST_NUMBER = 1e15


def vectors_of(rows: Sequence[Sequence[float]], dimension: int, metric: str) -> AnyArray:
    """Rows of numbers as single precision, shape (n, dimension); or an error that says which.

    Examples
    --------
    >>> vectors_of([[1.0, 2.0]], 2, "euclidean")
    array([[1., 2.]], dtype=float32)
    """
    for place, row in enumerate(rows):
        if len(row) != dimension:
            raise InvalidInputError(
                f"A vector must have {dimension} numbers, as those of the gallery have. "
                f"Vector {place} has {len(row)}."
            )
    vectors = np.array(rows, np.float64)
    largest = np.abs(vectors).max(axis=1)
    # The negation is also true of NaN.
    if not (largest <= LARGEST_NUMBER).all():
        raise InvalidInputError(
            f"The numbers of a vector must lie within +-{LARGEST_NUMBER:g}. "
            f"Vector {int(np.argmax(~(largest <= LARGEST_NUMBER)))} has others."
        )
    single = vectors.astype(np.float32)
    if metric == "cosine" and not single.any(axis=1).all():
        raise InvalidInputError(
            "A vector must not be zero where vectors are compared by cosine. "
            f"Vector {int(np.argmin(single.any(axis=1)))} is."
        )
    return single
