"""Which shard a point belongs to: decided by its id alone, today and in ten years."""

from collections.abc import Callable
from hashlib import blake2b
from typing import TypeAlias

import numpy as np

from nearsure.arrays import AnyArray, IntArray

Placement: TypeAlias = Callable[[AnyArray, int], IntArray]


def shard_of(ids: AnyArray, n_shards: int) -> IntArray:
    """The shard of each id: a hash of it, modulo the number of shards.

    Integers are mixed by the last steps of SplitMix64 [1]_, text is hashed as UTF-8 by BLAKE2b
    with 8 bytes, read as a little-endian number. Ids of any pattern spread evenly.

    Parameters
    ----------
    ids : array of shape (n,)
        Int64 or strings.
    n_shards : int
        At least 1.

    Returns
    -------
    array of shape (n,)
        Numbers from 0 to ``n_shards - 1``.

    References
    ----------
    .. [1] G. L. Steele, D. Lea and C. H. Flood, "Fast splittable pseudorandom number generators",
       OOPSLA 2014.

    Examples
    --------
    >>> shard_of(np.array([0, 1, 2, 3, -1]), 3)
    array([0, 1, 1, 2, 0])
    >>> shard_of(np.array(["anna", "bert"]), 3)
    array([0, 1])
    """
    if ids.dtype.kind == "U":
        mixed = np.array([_text_hash(own) for own in ids.tolist()], np.uint64)
    else:
        mixed = ids.astype(np.int64).view(np.uint64)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed = mixed ^ (mixed >> np.uint64(31))
    return (mixed % np.uint64(n_shards)).astype(np.int64)


def _text_hash(text: str) -> int:
    digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little")
