"""Values of JSON lines: vectors, and names that are integers or texts."""

import json
from collections.abc import Generator
from typing import Any, TypeAlias

import numpy as np

from nearsure.arrays import AnyArray, FloatArray
from nearsure.embedding_files.broken_files import in_one_sentence
from nearsure.embedding_files.checked_columns import check_text
from nearsure.embedding_files.sources import Source
from nearsure.errors import EmbeddingsFileError

_NUMBERS = {int, float}
_SMALLEST, _LARGEST = -(2**63), 2**63 - 1
_LONGEST_SHOWN = 60

# Where an object stands, for messages, and the object.
PlacedObject: TypeAlias = tuple[str, dict[str, Any]]


def json_objects(source: Source) -> Generator[PlacedObject, None, None]:
    """The objects of a file of JSON lines; blank lines are passed over."""
    with in_one_sentence(source), source.lines() as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            place = f"Line {number} of {source}"
            value = parsed_json(place, line)
            if not isinstance(value, dict):
                raise EmbeddingsFileError(
                    f'{place} must be a JSON object such as {{"vector": [0.1, 0.7]}}. '
                    f"Got {shown(value)} instead."
                )
            yield place, value


def parsed_json(place: str, text: str) -> Any:  # noqa: ANN401
    """What a text of JSON stands for."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise EmbeddingsFileError(
            f"{place} is not JSON: {error}. It may be cut off, or the file of another format."
        ) from error


def json_vector(place: str, value: Any) -> FloatArray:  # noqa: ANN401
    """A list of numbers as a vector; that they are finite is checked later."""
    if not isinstance(value, list) or not value or not set(map(type, value)) <= _NUMBERS:
        wrong = value
        if isinstance(value, list):
            wrong = next((entry for entry in value if type(entry) not in _NUMBERS), value)
        raise EmbeddingsFileError(
            f"{place} must have a list of numbers as its vector. Got {shown(wrong)}"
            f"{' among them' if wrong is not value else ' instead'}."
        )
    try:
        return np.array(value, np.float64)
    except OverflowError:
        raise EmbeddingsFileError(
            f"{place} has a value beyond the range of float32 in its vector."
        ) from None


def kind_of_name(place: str, role: str, value: Any) -> type[int | str]:  # noqa: ANN401
    """Whether a label or an id is an integer or a text; anything else is refused."""
    if value is None or value == "":
        raise EmbeddingsFileError(f"{place} has no {role}: give one in every row, or in none.")
    if type(value) is str:
        check_text(place, role, value)
    if type(value) is int and not _SMALLEST <= value <= _LARGEST:
        raise EmbeddingsFileError(
            f"{place} has the {role} {shown(value)}, which does not fit in 64 bits: write all of "
            "them as texts."
        )
    if type(value) not in (int, str):
        raise EmbeddingsFileError(
            f"{place} must have an integer or a text as its {role}. Got {shown(value)} instead."
        )
    return type(value)


class NameColumn:
    """Labels or ids as they come; the first one says of which type all must be."""

    def __init__(self, role: str) -> None:
        self._role = role
        self._kind: tuple[str, type[int | str]] | None = None

    def checked(self, place: str, value: Any) -> int | str:  # noqa: ANN401
        """A value, if it is of the type of those before."""
        kind = kind_of_name(place, self._role, value)
        if self._kind is None:
            self._kind = (place, kind)
        first_place, first_kind = self._kind
        if kind is not first_kind:
            raise EmbeddingsFileError(
                f"{place} has the {self._role} {shown(value)}, and {first_place[0].lower()}"
                f"{first_place[1:]} {_ARTICLES[first_kind]}: write all as integers or all as texts."
            )
        result: int | str = value
        return result


_ARTICLES = {int: "an integer", str: "a text"}


def name_array(values: list[int | str]) -> AnyArray:
    """Checked names of one type as an array."""
    is_text = bool(values) and isinstance(values[0], str)
    return np.array(values, str if is_text else np.int64)


def shown(value: Any) -> str:  # noqa: ANN401
    """A value as JSON, cut to what fits in a message."""
    text = json.dumps(value, default=repr)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."
