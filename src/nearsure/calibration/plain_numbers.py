"""Fitted maps as dictionaries of plain numbers, so that JSON holds them and nothing is pickled."""

import reprlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from dataclasses import fields as fields_of
from typing import Any, ClassVar, Self

from nearsure.errors import InvalidInputError

LARGEST = sys.float_info.max


@dataclass(frozen=True)
class PlainNumbers:
    """A fitted map whose fields are numbers, tuples of numbers or None."""

    name: ClassVar[str]

    def to_dict(self) -> dict[str, Any]:
        """Its name and numbers, for JSON."""
        numbers = {
            key: list(value) if isinstance(value, tuple) else value
            for key, value in asdict(self).items()
        }
        return {"name": self.name, **numbers}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Self:
        """The inverse of `to_dict`.

        Parameters
        ----------
        fields : mapping
            What `to_dict` gave.
        """
        own = [field.name for field in fields_of(cls)]
        if fields.get("name") != cls.name or set(fields) != {"name", *own}:
            raise InvalidInputError(
                f"A {cls.__name__} is made of a 'name' {cls.name!r} and of {own}. Got "
                f"{fields.get('name')!r} and {sorted(set(fields) - {'name'})} instead: pass what "
                "its to_dict gave."
            )
        return cls(
            **{
                key: tuple(value) if isinstance(value, list) else value
                for key, value in fields.items()
                if key != "name"
            }
        )


def check_finite(owner: str, **numbers: float) -> None:
    """Raise unless all of a map's numbers are finite."""
    for name, number in numbers.items():
        if not _is_number(number) or not abs(number) <= LARGEST:
            raise InvalidInputError(
                f"The '{name}' of {owner} must be a finite number. Got {number!r} instead: "
                f"make it with {owner}.fit."
            )


def check_fractions(owner: str, name: str, numbers: Sequence[float]) -> None:
    """Raise unless all of a map's numbers are in [0, 1]."""
    if not isinstance(numbers, list | tuple) or not all(
        _is_number(number) and 0 <= number <= 1 for number in numbers
    ):
        raise InvalidInputError(
            f"The '{name}' of {owner} must hold numbers in [0, 1]. Got {reprlib.repr(numbers)} "
            f"instead: make it with {owner}.fit."
        )


def _is_number(number: object) -> bool:
    return isinstance(number, int | float) and not isinstance(number, bool)
