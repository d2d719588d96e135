"""Ids and labels: text in requests, text or integers in the engine."""

from collections.abc import Iterable, Sequence
from uuid import uuid4

import numpy as np

from nearsure.arrays import AnyArray
from nearsure.engines.contract import Engine
from nearsure.errors import InvalidInputError
from nearsure.report.document import Label
from nearsure.report.plain import plain_label

SMALLEST_INTEGER, LARGEST_INTEGER = -(2**63), 2**63 - 1
# What ids are made of where none is given.
NUMBERS = range(LARGEST_INTEGER + 1)
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


def new_ids(texts: Sequence[str | None], engine: Engine, free: range) -> AnyArray:
    """Ids of new items: those given, and new ones for the others, beyond these if there is room.

    Parameters
    ----------
    texts : sequence of str or None
        None where an id is to be made.
    engine : Engine
        Whose ids they are.
    free : range
        Integers that are no ids, as many as there are items or more, for an engine that counts.
    """
    if engine.capabilities.ids == "text":
        return np.array([uuid4().hex if text is None else text for text in texts])
    given = ids_of([text for text in texts if text is not None], engine).tolist()
    beyond = range(max([free.start, *(number + 1 for number in given)]), free.stop)
    room, taken = beyond if _length(beyond) >= texts.count(None) else free, set(given)
    made, own = (number for number in room if number not in taken), iter(given)
    return np.array([next(made) if text is None else next(own) for text in texts], np.int64)


def free_integers(ids: Iterable[AnyArray], n_wanted: int, within: range = NUMBERS) -> range:
    """Integers that are no ids, n_wanted or more of them in a row, for ids to be made of.

    Those beyond the largest id, as long as there are enough; otherwise the widest gap.

    Parameters
    ----------
    ids : iterable of arrays
        All ids, ascending. Those outside of `within` do not matter.
    n_wanted : int
        How many are needed.
    within : range
        Where to look.

    Examples
    --------
    >>> free_integers([np.array([3, 7])], 1, range(10))
    range(8, 10)
    >>> free_integers([np.array([3, 9])], 1, range(10))
    range(4, 9)
    """
    first, widest = within.start, range(0)
    for part in ids:
        own = part[(part >= first) & (part <= within.stop - 1)]
        if not len(own):
            continue
        starts = np.append(first, own[:-1] + 1)
        place = int(np.argmax(own - starts))
        widest = max(widest, range(int(starts[place]), int(own[place])), key=_length)
        first = int(own[-1]) + 1
    beyond = range(first, within.stop)
    return beyond if _length(beyond) >= n_wanted else max(widest, beyond, key=_length)


def _length(numbers: range) -> int:
    # len() ends at the largest integer, and there is one more of them.
    return max(0, numbers.stop - numbers.start)


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
