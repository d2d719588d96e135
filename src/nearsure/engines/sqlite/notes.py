"""Small things that are kept with a gallery under names."""

from collections.abc import Iterator, MutableMapping
from typing import Any

from nearsure.engines.sqlite.connection import GalleryFile
from nearsure.errors import InvalidInputError


class Notes(MutableMapping[str, bytes]):
    """Bytes under names, on the disk when an assignment returns, whole or not at all.

    Parameters
    ----------
    file : GalleryFile
        Where they are.
    """

    def __init__(self, file: GalleryFile) -> None:
        self._file = file

    def __getitem__(self, name: str) -> bytes:
        with self._file.reading() as connection:
            found = connection.execute(
                "SELECT content FROM notes WHERE name = ?", (_checked(name),)
            ).fetchone()
        if found is None:
            raise KeyError(name)
        return bytes(found[0])

    def __setitem__(self, name: str, content: bytes) -> None:
        self.update({name: content})

    def update(self, *given: Any, **named: bytes) -> None:  # noqa: ANN401
        """Write several notes, all or none; given as for a dict."""
        notes: dict[str, bytes] = dict(*given, **named)
        for name, content in notes.items():
            _checked(name)
            if not isinstance(content, bytes):
                raise InvalidInputError(
                    f"The content of a note must be bytes. Got {type(content).__name__} instead."
                )
        with self._file.writing() as connection:
            connection.executemany("REPLACE INTO notes VALUES (?, ?)", notes.items())

    def __delitem__(self, name: str) -> None:
        with self._file.writing() as connection:
            gone = connection.execute("DELETE FROM notes WHERE name = ?", (_checked(name),))
            if not gone.rowcount:
                raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        with self._file.reading() as connection:
            found = connection.execute("SELECT name FROM notes ORDER BY name").fetchall()
        return iter([name for (name,) in found])

    def __len__(self) -> int:
        with self._file.reading() as connection:
            return int(connection.execute("SELECT COUNT(*) FROM notes").fetchone()[0])


def _checked(name: str) -> str:
    if not isinstance(name, str):
        raise InvalidInputError(
            f"The name of a note must be text. Got {type(name).__name__} instead."
        )
    try:
        name.encode()
    except UnicodeEncodeError:
        raise InvalidInputError(
            "The name of a note must be valid Unicode. Got a lone surrogate."
        ) from None
    return name
