"""Ids in Milvus's expression language."""

import json
from typing import Any

import numpy as np

from nearsure.arrays import AnyArray
from nearsure.errors import InvalidInputError

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
    """Integers and texts that Milvus can hold and name; an error for others."""
    if values.dtype.kind != "U":
        if values.size and values.min() < SMALLEST_ID:
            raise InvalidInputError(
                f"{name} must be at least {SMALLEST_ID} in Milvus. Got {values.min()} instead."
            )
        return
    for value in values.tolist():
        if "\x00" in value or any("\ud800" <= letter <= "\udfff" for letter in value):
            raise InvalidInputError(
                f"{name} must be text without NUL and without halves of surrogate pairs in Milvus. "
                f"Got {value!r} instead."
            )
        if longest is not None and len(value.encode()) > longest:
            raise InvalidInputError(
                f"{name} must have at most {longest} bytes in this collection. Got one of "
                f"{len(value.encode())}: {value[:20]!r}... Make a collection with a larger "
                "text_length."
            )
