"""How much may be asked of Milvus at once, and how to divide what is more."""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from nearsure.engines.milvus.failures import TooLargeError

# Limits of a server in its default configuration.
LARGEST_K = 16384
LARGEST_PORTION = 16384
LONGEST_TEXT = 65535
LARGEST_EF = 32768

# A server takes 16384 queries at once, but more of them are not faster, and an answer must come
# before the time is up.
MOST_QUERIES = 1000

# A message of a server may have 64 MB. Answers hold ids, labels and the overhead of both on top of
# what is counted here, and a smaller message is also given up sooner.
REQUEST_BYTES = 16 * 2**20
# A server divides what is larger than 5 MB into several messages in its log. What stays below is
# one message, there as a whole or not at all.
ATOMIC_BYTES = 4 * 2**20
# Ids are named in an expression, which the server parses.
MOST_IDS = 5000

Answer = TypeVar("Answer")


def portions(
    n: int, bytes_each: int, most: int, most_bytes: int = REQUEST_BYTES
) -> Iterator[slice]:
    """Slices of n entries, each within both limits and of at least one entry.

    Examples
    --------
    >>> list(portions(5, bytes_each=10, most=3, most_bytes=25))
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    step = max(1, min(most, most_bytes // bytes_each))
    for start in range(0, n, step):
        yield slice(start, min(start + step, n))


def asked_in_portions(
    parts: Iterable[slice], ask: Callable[[slice], Answer]
) -> Iterator[tuple[slice, Answer]]:
    """Answers to portions in their order; what is too large an answer is asked for in halves.

    How long texts are is known once they have come.
    """
    for part in parts:
        try:
            answer = ask(part)
        except TooLargeError:
            middle = (part.start + part.stop) // 2
            if middle == part.start:
                raise
            halves = (slice(part.start, middle), slice(middle, part.stop))
            yield from asked_in_portions(halves, ask)
        else:
            yield part, answer
