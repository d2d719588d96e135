"""pymilvus logs each failure with a traceback by itself, before it raises it.

What nearsure asks of it comes back as an error of nearsure, without secrets. So its records are
dropped while nearsure asks, in the thread that asks, and nowhere else.
"""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

LIBRARIES = ("pymilvus", "milvus_lite")
_here = threading.local()


class _NotAsking(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        failures: list[BaseException] | None = getattr(_here, "failures", None)
        if failures is None:
            return True
        if record.exc_info and record.exc_info[1] is not None:
            failures.append(record.exc_info[1])
        return False


_NOT_ASKING = _NotAsking()


def watch_loggers() -> None:
    """Make the loggers of the modules that are imported by now heed `quiet`."""
    for name, logger in list(logging.root.manager.loggerDict.items()):
        if isinstance(logger, logging.Logger) and name.partition(".")[0] in LIBRARIES:
            logger.addFilter(_NOT_ASKING)


@contextmanager
def quiet() -> Iterator[list[BaseException]]:
    """Drop the libraries' log records of this thread, and list the exceptions they held."""
    outer = getattr(_here, "failures", None)
    failures: list[BaseException] = []
    _here.failures = failures
    try:
        yield failures
    finally:
        _here.failures = outer
