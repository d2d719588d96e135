"""Columns of ids and labels: what they may hold, and how they are read and written."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal
from uuid import UUID

import numpy as np
from psycopg import sql

from nearsure.arrays import AnyArray
from nearsure.errors import InvalidInputError, UnusableGalleryError
from nearsure.index.stable_ids import a_few

_INTEGERS = {"int2": 16, "int4": 32, "int8": 64}
_TEXTS = ("text", "varchar", "uuid")
TYPES = (*_INTEGERS, *_TEXTS)


@dataclass(frozen=True)
class Column:
    """A column of ids or of labels.

    Parameters
    ----------
    name : str
        As the table has it.
    type : str
        One of `TYPES`.
    """

    name: str
    type: str

    @property
    def kind(self) -> Literal["integer", "text"]:
        """What it is to nearsure."""
        return "integer" if self.type in _INTEGERS else "text"

    @property
    def identifier(self) -> sql.Composable:
        """Its name in a statement."""
        return sql.Identifier(self.name)

    @property
    def sort_key(self) -> sql.Composable:
        """What sorts it as Python sorts: text by code points, whatever the server's language."""
        if self.type in ("text", "varchar"):
            return sql.SQL('{} COLLATE "C"').format(self.identifier)
        return self.identifier

    @property
    def plain(self) -> sql.Composable:
        """Its values as bigint or text."""
        cast = "bigint" if self.kind == "integer" else "text"
        return sql.SQL("{}::" + cast).format(self.identifier)

    @property
    def packed(self) -> sql.Composable:
        """Its values of many rows as one: a string of bytes, or an array of text."""
        form = "string_agg(int8send({}), '')" if self.kind == "integer" else "array_agg({})"
        return sql.SQL(form).format(self.plain)

    @property
    def array(self) -> sql.Composable:
        """The type that `outgoing` values have together."""
        if self.type == "uuid":
            return sql.SQL("uuid[]")
        return sql.SQL("bigint[]" if self.kind == "integer" else "text[]")

    def unpacked(self, parts: Sequence[Any]) -> tuple[AnyArray, AnyArray]:
        """The values of several packed ones behind each other, and how many each held."""
        if self.kind == "integer":
            data = [part or b"" for part in parts]
            values = np.frombuffer(b"".join(data), ">i8").astype(np.int64)
            return values, np.array([len(part) for part in data], np.int64) // 8
        lists = [part or [] for part in parts]
        flat = [value for part in lists for value in part]
        return self.incoming(flat), np.array([len(part) for part in lists], np.int64)

    def incoming(self, values: Sequence[Any]) -> AnyArray:
        """Values as they were read, as int64 or strings."""
        if any(value is None for value in values):
            raise UnusableGalleryError(self.has_nulls)
        return np.array(values, np.int64 if self.kind == "integer" else str)

    @property
    def has_nulls(self) -> str:
        """What to say where a value is missing."""
        return (
            f"Every point must have a value in the column {self.name!r}. Got some without. Fill "
            "them in, or give label_column=None to keep labels outside of the table."
        )

    def outgoing(self, values: AnyArray) -> list[Any]:
        """Values as psycopg sends them; an error if the column cannot hold them."""
        if self.kind == "integer":
            limit = 2 ** (_INTEGERS[self.type] - 1)
            beyond = values[(values < -limit) | (values > limit - 1)]
            if beyond.size:
                raise InvalidInputError(
                    f"Values of the column {self.name!r} must fit its type {self.type}. "
                    f"Got {a_few(beyond.tolist())} instead."
                )
            return list(values.tolist())
        texts: list[str] = values.tolist()
        bad = [text for text in texts if not is_storable(text)]
        if bad:
            raise InvalidInputError(
                f"Values of the column {self.name!r} must be Unicode without NUL characters. "
                f"Got {bad[0]!a} instead."
            )
        if self.type != "uuid":
            return texts
        bad = [text for text in texts if not is_uuid(text)]
        if bad:
            raise InvalidInputError(
                f"Values of the column {self.name!r} must be UUIDs in small letters. "
                f"Got {bad[0]!r} instead."
            )
        return [UUID(text) for text in texts]


def is_storable(text: str) -> bool:
    """Whether PostgreSQL can hold a text: no NUL, no half of a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return "\0" not in text


def is_uuid(text: str) -> bool:
    """Whether a text is a UUID as PostgreSQL writes it."""
    try:
        return str(UUID(text)) == text
    except ValueError:
        return False
