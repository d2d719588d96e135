"""Ids, pages and vectors of requests."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, runtime_checkable
from uuid import uuid4

import numpy as np

from nearsure.arrays import AnyArray
from nearsure.engines.contract import Engine, Stored
from nearsure.errors import InvalidInputError
from nearsure.report.document import Label, plain_label
from nearsure.service.window import LONGEST_TEXT

SMALLEST_INTEGER, LARGEST_INTEGER = -(2**63), 2**63 - 1
# What ids are made of where none is given.
NUMBERS = range(LARGEST_INTEGER + 1)
# Digits of it; longer text is no id, and is not even read as a number.
MOST_DIGITS = 20
LARGEST_PAGE = 1000
# Beyond this the square of a distance may leave single precision, whatever the dimension.
LARGEST_NUMBER = 1e15


def show_names(names: AnyArray) -> list[Label]:
    """Ids or labels as answers have them, shape (n,): as text what a browser cannot count.

    Examples
    --------
    >>> show_names(np.array([7, 2**53]))
    [7, '9007199254740992']
    """
    # Most are text, and these are made for every neighbour of every answer.
    values = names.tolist()
    return values if names.dtype.kind == "U" else [plain_label(value) for value in values]


def parse_ids(texts: Sequence[str], engine: Engine) -> AnyArray:
    """Ids as the engine has them, shape (n,); an error if one cannot be one."""
    return _convert(texts, engine.capabilities.ids, "id")


def parse_labels(texts: Sequence[str], engine: Engine) -> AnyArray:
    """Labels as the engine has them, shape (n,); an error if one cannot be one."""
    return _convert(texts, engine.capabilities.labels or "text", "label")


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
    given = parse_ids([text for text in texts if text is not None], engine).tolist()
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


def _convert(texts: Sequence[str], kind: str, name: str) -> AnyArray:
    if kind == "text":
        return np.array(texts, str)
    return np.array([_parse_integer(text, name) for text in texts], np.int64)


def _parse_integer(text: str, name: str) -> int:
    digits = text.removeprefix("-")
    if digits.isascii() and digits.isdigit() and len(digits) < MOST_DIGITS:
        number = int(text)
        if SMALLEST_INTEGER <= number <= LARGEST_INTEGER:
            return number
    raise InvalidInputError(
        f"The {name} must be an integer of 64 bits, as those of this gallery are. "
        f"Got {text[:MOST_DIGITS]!r} instead."
    )


@runtime_checkable
class PagingEngine(Protocol):
    """An engine that finds a page itself, without a pass over all before it."""

    def page(self, after: Any, limit: int, label: Any) -> Stored:  # noqa: ANN401
        """Some ids and labels."""

    def count(self, label: Any) -> int:  # noqa: ANN401
        """How many points have a label, or all."""


def find_page(
    engine: Engine,
    labels_beside: Callable[[AnyArray], AnyArray],
    *,
    after: str | None,
    limit: int,
    label: str | None,
) -> dict[str, Any]:
    """Some items, as `ItemPage` has them.

    Parameters
    ----------
    engine : Engine
        Where they are.
    labels_beside : callable
        From ids to labels, for an engine that holds none.
    after : str or None
        Only those whose id comes later.
    limit : int
        At most so many.
    label : str or None
        Only those of this label; the total then is of these.
    """
    start = None if after is None else parse_ids([after], engine)[0]
    wanted = None if label is None else parse_labels([label], engine)[0]
    # One more than is shown, to see whether there are more.
    if isinstance(engine, PagingEngine):
        own = None if start is None else start.item()
        name = None if wanted is None else wanted.item()
        found, total = engine.page(own, limit + 1, name), engine.count(name)
    else:
        found, total = _scan_page(engine, labels_beside, start, limit + 1, wanted)
    ids, labels = show_names(found.ids), show_names(np.asarray(found.labels))
    texts = texts_in(engine, found.ids[:limit], LONGEST_TEXT)
    items = [
        {"id": own, "label": name, "vector": None, "text": texts.get(key)}
        for own, name, key in zip(ids[:limit], labels[:limit], found.ids.tolist(), strict=False)
    ]
    return {
        "items": items,
        "next": str(ids[limit - 1]) if len(ids) > limit else None,
        "total": total,
    }


def _scan_page(
    engine: Engine,
    labels_beside: Callable[[AnyArray], AnyArray],
    start: Any,  # noqa: ANN401
    limit: int,
    wanted: Any,  # noqa: ANN401
) -> tuple[Stored, int]:
    """The same in one pass over all."""
    ids, labels = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    n_left, total = limit, 0
    for part in engine.scan():
        own = part.ids
        names = labels_beside(own) if part.labels is None else part.labels
        if wanted is not None:
            own, names = own[names == wanted], names[names == wanted]
        total += len(own)
        first = 0 if start is None else int(np.searchsorted(own, start, side="right"))
        rest = slice(first, first + n_left)
        n_left -= len(own[rest])
        ids.append(own[rest])
        labels.append(names[rest])
    # Without the empty ones, whose kind would be mixed in.
    return Stored(np.concatenate(ids[1:] or ids), np.concatenate(labels[1:] or labels)), total


def texts_in(engine: Engine, ids: AnyArray, longest: int | None = None) -> dict[Any, str]:
    """The texts of items by id, cut to some letters, if the engine keeps any."""
    find: Callable[[AnyArray], dict[Any, str]] | None = getattr(engine, "texts", None)
    return {} if find is None else {own: text[:longest] for own, text in find(ids).items()}


def parse_vectors(rows: Sequence[Sequence[float]], dimension: int, metric: str) -> AnyArray:
    """Rows of numbers as single precision, shape (n, dimension); or an error that says which.

    Examples
    --------
    >>> parse_vectors([[1.0, 2.0]], 2, "euclidean")
    array([[1., 2.]], dtype=float32)
    """
    for place, row in enumerate(rows):
        if len(row) != dimension:
            raise InvalidInputError(
                f"A vector must have {dimension} numbers, as those of the gallery have. "
                f"Vector {place} has {len(row)}."
            )
    vectors = np.array(rows, np.float64)
    # The negation is also true of NaN.
    if not np.abs(vectors).max() <= LARGEST_NUMBER:
        is_within = (np.abs(vectors) <= LARGEST_NUMBER).all(axis=1)
        raise InvalidInputError(
            f"The numbers of a vector must lie within +-{LARGEST_NUMBER:g}. "
            f"Vector {int(np.argmin(is_within))} has others."
        )
    single = vectors.astype(np.float32)
    if metric == "cosine" and not single.any(axis=1).all():
        raise InvalidInputError(
            "A vector must not be zero where vectors are compared by cosine. "
            f"Vector {int(np.argmin(single.any(axis=1)))} is."
        )
    return single
