"""Vectors as the bytes that pgvector sends and receives, many at once.

A vector is its dimension and a spare field, two bytes each, and its numbers, all big-endian. numpy
lays out a whole batch in one step, where an object for each vector would cost more than the search.
"""

from dataclasses import dataclass
from functools import cache
from typing import Literal, TypeAlias

import numpy as np
from psycopg.abc import Buffer
from psycopg.adapt import Dumper
from psycopg.pq import Format

from nearsure.arrays import AnyArray
from nearsure.engines.postgres.pool import Connection
from nearsure.errors import GalleryMismatchError, InvalidInputError

VectorType: TypeAlias = Literal["vector", "halfvec"]
_NUMBERS: dict[VectorType, str] = {"vector": "f4", "halfvec": "f2"}


class EncodedVector(bytes):
    """The bytes of one vector."""

    __slots__ = ()


class EncodedArray(bytes):
    """The bytes of an array of vectors."""

    __slots__ = ()


@dataclass(frozen=True)
class VectorCodec:
    """One of pgvector's types, in a dimension.

    Parameters
    ----------
    type : {"vector", "halfvec"}
        Single or half precision.
    dimension : int
        Length of a vector.
    oid, array_oid : int
        What the database calls the type and arrays of it; differs between databases.
    """

    type: VectorType
    dimension: int
    oid: int
    array_oid: int

    @property
    def n_bytes(self) -> int:
        """What one vector takes."""
        return self._layout.itemsize

    def rounded(self, vectors: AnyArray) -> AnyArray:
        """Vectors in the type's precision; an error if some are beyond its range."""
        with np.errstate(over="ignore"):
            rounded = vectors.astype(_NUMBERS[self.type])
        if not np.isfinite(rounded).all():
            largest = np.finfo(rounded.dtype).max
            raise InvalidInputError(
                f"vectors must hold numbers up to {largest:.6g}, which the type {self.type} of the "
                f"column can. Got {np.abs(vectors).max():.6g} instead. Scale them."
            )
        return rounded

    def one_by_one(self, vectors: AnyArray) -> list[EncodedVector]:
        """Each vector as a value of its own."""
        laid_out = self._lay_out(vectors).tobytes()
        size = self.n_bytes
        return [EncodedVector(laid_out[i : i + size]) for i in range(0, len(laid_out), size)]

    def as_array(self, vectors: AnyArray) -> EncodedArray:
        """All vectors as one array of PostgreSQL."""
        elements = np.empty(len(vectors), [("length", ">i4"), ("vector", self._layout)])
        elements["length"] = self.n_bytes
        elements["vector"] = self._lay_out(vectors)
        # Dimensions, no nulls, type of the elements, how many, and the number of the first.
        header = np.array([1, 0, self.oid, len(vectors), 1], ">i4")
        return EncodedArray(header.tobytes() + elements.tobytes())

    def decode(self, data: bytes, n: int) -> AnyArray:
        """The n vectors whose bytes stand one behind the other, as float32 of shape (n, m)."""
        if len(data) != n * self.n_bytes:
            raise GalleryMismatchError(
                f"Vectors must have the dimension {self.dimension}. The table holds others, too: "
                f"declare the column as {self.type}({self.dimension})."
            )
        numbers: AnyArray = np.frombuffer(data, self._layout)["numbers"].astype(np.float32)
        return numbers

    def register(self, connection: Connection) -> None:
        """Let a connection send encoded vectors as what they are."""
        connection.adapters.register_dumper(EncodedVector, _dumper_of(self.oid))
        connection.adapters.register_dumper(EncodedArray, _dumper_of(self.array_oid))

    @property
    def _layout(self) -> np.dtype[np.void]:
        numbers = (">" + _NUMBERS[self.type], (self.dimension,))
        return np.dtype([("dimension", ">u2"), ("spare", ">u2"), ("numbers", *numbers)])

    def _lay_out(self, vectors: AnyArray) -> AnyArray:
        laid_out = np.zeros(len(vectors), self._layout)
        laid_out["dimension"] = self.dimension
        laid_out["numbers"] = self.rounded(vectors)
        return laid_out


@cache
def _dumper_of(type_oid: int) -> type[Dumper]:
    class BytesAsTheyAre(Dumper):
        format = Format.BINARY
        oid = type_oid

        def dump(self, obj: bytes) -> Buffer:
            return obj

    return BytesAsTheyAre
