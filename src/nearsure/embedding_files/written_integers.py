"""Texts of a column as integers if all are written as such, else as they stand."""

from collections.abc import Sequence

import numpy as np

from nearsure.arrays import AnyArray

_SMALLEST, _LARGEST = -(2**63), 2**63 - 1


def is_written_integer(entry: str) -> bool:
    """Whether a text is how an integer of 64 bits is written, so that nothing of it is lost.

    Examples
    --------
    >>> [is_written_integer(entry) for entry in ("7", "-12", "007", "7.0", " 7", "1e3")]
    [True, True, False, False, False, False]
    """
    try:
        integer = int(entry)
    except ValueError:
        return False
    # int also takes spaces, underscores, leading zeros and the digits of other scripts.
    return str(integer) == entry and _SMALLEST <= integer <= _LARGEST


def written_names(entries: Sequence[str], *, are_integers: bool) -> AnyArray:
    """Entries as integers or as texts, as was found for the whole column."""
    return (
        np.array([int(entry) for entry in entries], np.int64)
        if are_integers
        else (np.array(entries, str))
    )
