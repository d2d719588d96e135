"""Values of columns as JSON and CSV can write them."""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from nearsure.arrays import AnyArray

# What makes a cell a formula in a spreadsheet.
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")

Columns: TypeAlias = Mapping[str, Sequence[Any] | AnyArray]


def plain_column(column: Sequence[Any] | AnyArray) -> list[Any]:
    """A column as Python's own numbers, texts, lists and None; what is not finite is None.

    Examples
    --------
    >>> plain_column(np.array([0.5, np.nan])), plain_column([np.int64(3), (1, 2)])
    ([0.5, None], [3, [1, 2]])
    """
    if isinstance(column, np.ndarray) and column.dtype.kind in "biuU":
        return list(column.tolist())
    if isinstance(column, np.ndarray) and column.dtype.kind == "f" and np.isfinite(column).all():
        return list(column.tolist())
    return [plain_value(value) for value in column]


def plain_value(value: Any) -> Any:  # noqa: ANN401
    """A value as Python's own."""
    if isinstance(value, np.ndarray):
        value = value.tolist()
    elif isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {str(key): plain_value(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain_value(entry) for entry in value]
    return value


def json_text(value: Any) -> str:  # noqa: ANN401
    """A plain value as JSON on one line."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def guarded_text(value: Any) -> Any:  # noqa: ANN401
    """A cell as `cell_text` makes it, with ' before a text that a spreadsheet would compute.

    Examples
    --------
    >>> guarded_text("=1+1"), guarded_text("a=b"), guarded_text(-1)
    ("'=1+1", 'a=b', -1)
    """
    cell = cell_text(value)
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(FORMULA_STARTS) else cell


def cell_text(value: Any) -> Any:  # noqa: ANN401
    """A plain value as a cell of a CSV file: nothing for None, JSON for what has parts."""
    if isinstance(value, bool | list | dict):
        return json_text(value)
    return value
