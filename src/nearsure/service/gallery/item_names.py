"""Ids and labels: text in requests, text or integers in the engine."""

from collections.abc import Sequence
from uuid import uuid4

import numpy as np

from nearsure.arrays import AnyArray
from nearsure.engines.contract import Engine
from nearsure.errors import InvalidInputError
from nearsure.report.document import Label
from nearsure.report.plain import plain_label

SMALLEST_INTEGER, LARGEST_INTEGER = -(2**63), 2**63 - 1
# Digits of it; longer text is no id, and is not even read as a number.
MOST_DIGITS = 20


def names_shown(names: AnyArray) -> list[Label]:
    """Ids or labels as answers have them, shape (n,): as text what a browser cannot count.

    Examples
    --------
    >>> names_shown(np.array([7, 2**53]))
    [7, '9007199254740992']
    """
    # Most are text, and these are made for every neighbour of every answer.
    values = names.tolist()
    return values if names.dtype.kind == "U" else [plain_label(value) for value in values]


def ids_of(texts: Sequence[str], engine: Engine) -> AnyArray:
    """Ids as the engine has them, shape (n,); an error if one cannot be one."""
    return _converted(texts, engine.capabilities.ids, "id")


def labels_of(texts: Sequence[str], engine: Engine) -> AnyArray:
    """Labels as the engine has them, shape (n,); an error if one cannot be one."""
    return _converted(texts, engine.capabilities.labels or "text", "label")


def new_ids(texts: Sequence[str | None], engine: Engine, first_free: int) -> AnyArray:
    """Ids of new items: those given, and new ones for the others.

    Parameters
    ----------
    texts : sequence of str or None
        None where an id is to be made.
    engine : Engine
        Whose ids they are.
    first_free : int
        The first integer that is no id, for an engine that counts.
    """
    if engine.capabilities.ids == "text":
        return np.array([uuid4().hex if text is None else text for text in texts])
    given = iter(ids_of([text for text in texts if text is not None], engine).tolist())
    taken = [None if text is None else next(given) for text in texts]
    free = max([first_free, *(number + 1 for number in taken if number is not None)])
    ids = []
    for number in taken:
        ids.append(free if number is None else number)
        free += number is None
    if max(ids) > LARGEST_INTEGER:
        raise InvalidInputError(
            f"No id can be made beyond {LARGEST_INTEGER}, which is taken. Give each item an id."
        )
    return np.array(ids, np.int64)


def first_free_integer(engine: Engine) -> int:
    """The largest integer id + 1, found in one pass over all; 0 where ids are text."""
    if engine.capabilities.ids == "text":
        return 0
    return max((int(part.ids.max()) + 1 for part in engine.scan() if len(part.ids)), default=0)


def _converted(texts: Sequence[str], kind: str, name: str) -> AnyArray:
    if kind == "text":
        return np.array(texts, str)
    return np.array([_integer(text, name) for text in texts], np.int64)


def _integer(text: str, name: str) -> int:
    digits = text.removeprefix("-")
    if digits.isascii() and digits.isdigit() and len(digits) < MOST_DIGITS:
        number = int(text)
        if SMALLEST_INTEGER <= number <= LARGEST_INTEGER:
            return number
    raise InvalidInputError(
        f"The {name} must be an integer of 64 bits, as those of this gallery are. "
        f"Got {text[:MOST_DIGITS]!r} instead."
    )
