"""Small pictures of points, which go when their points go."""

import sqlite3

from nearsure.arrays import IntArray
from nearsure.errors import InvalidInputError


def put_pictures(connection: sqlite3.Connection, rows: IntArray, pictures: list[bytes]) -> None:
    """Keep the pictures of points, in the place of earlier ones."""
    for picture in pictures:
        if not isinstance(picture, bytes):
            raise InvalidInputError(
                f"A picture must be the bytes of an image file. Got {type(picture).__name__} "
                "instead."
            )
    connection.executemany(
        "REPLACE INTO pictures VALUES (?, ?)", zip(rows.tolist(), pictures, strict=True)
    )


def picture_of(connection: sqlite3.Connection, own_id: str | int) -> bytes | None:
    """The picture of a point; None if it has none."""
    found = connection.execute(
        "SELECT picture FROM pictures JOIN points USING (row) "
        "WHERE id = ? AND typeof(picture) = 'blob'",
        (own_id,),
    ).fetchone()
    return None if found is None else bytes(found[0])
