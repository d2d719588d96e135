"""What an engine may be opened with."""

import math

from nearsure.engines.postgres.settings import LARGEST_EF_SEARCH, LARGEST_PROBES
from nearsure.errors import InvalidInputError

# PostgreSQL counts milliseconds in 32 bits.
_LARGEST_SECONDS = (2**31 - 1) // 1000


def check_options(index: str, ef_search: int, probes: int) -> None:
    """An error if one of these cannot be."""
    if index not in ("exact", "hnsw", "ivfflat"):
        raise InvalidInputError(
            f"The 'index' parameter must be exact, hnsw or ivfflat. Got {index!r} instead."
        )
    for name, value, largest in (
        ("ef_search", ef_search, LARGEST_EF_SEARCH),
        ("probes", probes, LARGEST_PROBES),
    ):
        if not 1 <= value <= largest:
            raise InvalidInputError(
                f"The {name!r} parameter must be from 1 to {largest}. Got {value} instead."
            )


def check_limits(pool_size: int, timeout: float, statement_timeout: float | None) -> None:
    """An error if one of these cannot be."""
    if pool_size < 1:
        raise InvalidInputError(
            f"The 'pool_size' parameter must be at least 1. Got {pool_size!r} instead."
        )
    for name, value in (("timeout", timeout), ("statement_timeout", statement_timeout)):
        if value is not None and not (math.isfinite(value) and 0 < value <= _LARGEST_SECONDS):
            raise InvalidInputError(
                f"The {name!r} parameter must be seconds above 0 and up to {_LARGEST_SECONDS}. "
                f"Got {value!r} instead."
            )
