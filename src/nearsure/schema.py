"""Tables of the fields that stored documents must have, and the check of a document.

Whatever comes from a file may have been altered, checksums included. A document that fits its table
holds the right types, sizes and ranges; everything else is a `ModelFileError`.
"""

import reprlib
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, get_origin, get_type_hints

import numpy as np

from nearsure.errors import InvalidInputError, ModelFileError

if TYPE_CHECKING:
    from typing import Self

T = TypeVar("T")

LARGEST = sys.float_info.max
SMALLEST = 5e-324  # of all numbers above 0
LARGEST_INTEGER = 2**63


@dataclass(frozen=True)
class Field:
    """One field of a document.

    Parameters
    ----------
    words : str
        What it must be, for the message.
    fits : callable
        Whether a value is that. It takes anything and raises nothing.
    """

    words: str
    fits: Callable[[Any], bool]


def number(words: str, low: float = -LARGEST, high: float = LARGEST) -> Field:
    """An integer or float within bounds, which leave out NaN and infinity."""
    # Python's own numbers, which compare with integers of any size; numpy's do not.
    lowest, highest = float(low), float(high)
    return Field(words, lambda value: type(value) in (int, float) and lowest <= value <= highest)


def integer(low: int, high: int = LARGEST_INTEGER) -> Field:
    """An integer within bounds; no boolean."""
    return Field(
        f"an integer in [{low}, {high}]", lambda value: type(value) is int and low <= value <= high
    )


def one_of(*names: str) -> Field:
    """One of some strings."""
    return Field(
        f"one of {', '.join(map(repr, names))}",
        lambda value: isinstance(value, str) and value in names,
    )


def nullable(field: Field) -> Field:
    """The field, or null."""
    return Field(f"null or {field.words}", lambda value: value is None or field.fits(value))


def either(*fields: Field) -> Field:
    """Any of some fields."""
    return Field(
        " or ".join(field.words for field in fields),
        lambda value: any(field.fits(value) for field in fields),
    )


def list_of(field: Field, n: int | None = None) -> Field:
    """A list of such values, of any length or of n."""
    length = "" if n is None else f"{n} entries, "
    return Field(
        f"a list of {length}each {field.words}",
        lambda value: (
            isinstance(value, list) and n in (None, len(value)) and all(map(field.fits, value))
        ),
    )


def array(dtypes: str, *shape: int | None, low: float = -LARGEST, high: float = LARGEST) -> Field:
    """An array of one of some dtypes, such as "float32 float64", whose entries are within bounds.

    None in the shape stands for any length.
    """

    def fits(value: Any) -> bool:  # noqa: ANN401
        return (
            isinstance(value, np.ndarray)
            and value.dtype.name in dtypes.split()
            and value.ndim == len(shape)
            and all(wanted in (None, own) for wanted, own in zip(shape, value.shape, strict=True))
            and (not value.size or (low <= value.min().item() and value.max().item() <= high))
        )

    sizes = ", ".join("any" if wanted is None else str(wanted) for wanted in shape)
    bounds = "finite" if high == LARGEST else f"in [{low:g}, {high:g}]"
    return Field(f"an array of {dtypes.replace(' ', ' or ')}, shape ({sizes}), {bounds}", fits)


NUMBER = number("a finite number")
POSITIVE = number("a finite number above 0", SMALLEST)
COUNT = integer(0)
# As generators of random numbers take it, of any length.
SEED = Field("an integer of at least 0", lambda value: type(value) is int and value >= 0)
TEXT = Field("a string", lambda value: isinstance(value, str))
BOOLEAN = Field("true or false", lambda value: isinstance(value, bool))
OBJECT = Field("an object", lambda value: isinstance(value, dict))
ARRAY = Field("an array", lambda value: isinstance(value, np.ndarray))
SCALAR = nullable(either(NUMBER, BOOLEAN, TEXT))
SCALARS = Field(
    "an object of plain values",
    lambda value: isinstance(value, dict) and all(map(SCALAR.fits, value.values())),
)


def check_fields(owner: str, fields: object, schema: Mapping[str, Field]) -> None:
    """Raise `ModelFileError` unless a document has exactly the fields of a table.

    Parameters
    ----------
    owner : str
        The document's name in messages.
    fields : object
        The document.
    schema : mapping
        The table.

    Examples
    --------
    >>> check_fields("A point", {"x": 1.0}, {"x": NUMBER})
    >>> check_fields("A point", {"x": "a"}, {"x": NUMBER})  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    nearsure.errors.ModelFileError: A point cannot be read: 'x' must be a finite number. Got 'a' ...
    """
    problem = misfit(fields, schema)
    if problem is not None:
        raise unreadable(owner, problem)


def misfit(fields: object, schema: Mapping[str, Field]) -> str | None:
    """What is wrong with a document, or None."""
    if not isinstance(fields, Mapping):
        return f"it must be an object. Got {_shown(fields)} instead"
    for odd in sorted(set(schema) ^ set(fields)):
        return f"{odd[:50]!r} is {'missing' if odd in schema else 'none of its fields'}"
    for name, field in schema.items():
        if not field.fits(fields[name]):
            return f"{name!r} must be {field.words}. Got {_shown(fields[name])} instead"
    return None


@contextmanager
def reading(owner: str) -> Iterator[None]:
    """Turn an InvalidInputError of a constructor into a `ModelFileError` about the document."""
    try:
        yield
    except InvalidInputError as error:
        raise unreadable(owner, str(error).removesuffix(".")) from error


def unreadable(owner: str, problem: str) -> ModelFileError:
    """The error about a document that does not fit."""
    return ModelFileError(
        f"{owner} cannot be read: {problem}. The file has been altered: save the model again."
    )


def to_document(record: Any) -> dict[str, Any]:  # noqa: ANN401
    """The fields of a dataclass as JSON has them.

    Arrays and tuples become lists, dataclasses objects, and NaN becomes null.

    Parameters
    ----------
    record : dataclass instance
        Its fields hold numbers, strings, None, arrays, tuples and such dataclasses.
    """
    return {field.name: _to_plain(getattr(record, field.name)) for field in fields(record)}


def from_document(kind: type[T], document: Mapping[str, Any]) -> T:
    """The inverse of `to_document`, by the types of the fields.

    Parameters
    ----------
    kind : type
        The dataclass. Dataclasses among its fields are built by their own `from_dict`.
    document : mapping
        What `to_document` gave, checked.
    """
    types = get_type_hints(kind)
    return kind(**{name: _from_plain(types[name], value) for name, value in document.items()})


class Document:
    """A dataclass that files hold as an object of JSON.

    Attributes
    ----------
    _owner : str
        Its name in messages.
    _table : mapping or None
        The fields it must have; None leaves the check to the constructor.
    """

    _owner: ClassVar[str] = ""
    _table: ClassVar[Mapping[str, Field] | None] = None

    def to_dict(self) -> dict[str, Any]:
        """The fields as numbers, strings and lists, for JSON."""
        return to_document(self)

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> "Self":
        """The inverse of `to_dict`; `ModelFileError` for what does not fit the table."""
        if cls._table is not None:
            check_fields(cls._owner, fields, cls._table)
        return from_document(cls, fields)


def _to_plain(value: Any) -> Any:  # noqa: ANN401
    if is_dataclass(value):
        return to_document(value)
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, tuple):
        return list(value)
    return None if isinstance(value, float) and np.isnan(value) else value


def is_array_type(kind: Any) -> bool:  # noqa: ANN401
    """Whether a field holds an array; from numpy 2.5 on, `NDArray` is an alias with a value."""
    origin = get_origin(kind)
    return np.ndarray in (origin, get_origin(getattr(origin, "__value__", None)))


def _from_plain(kind: Any, value: Any) -> Any:  # noqa: ANN401
    if hasattr(kind, "from_dict"):
        return kind.from_dict(value)
    if isinstance(value, list):
        return np.array(value, np.float64) if is_array_type(kind) else tuple(value)
    return np.nan if value is None and kind is float else value


def _shown(value: object) -> str:
    if isinstance(value, np.ndarray):
        return f"one of {value.dtype}, shape {value.shape}"
    return reprlib.repr(value)
