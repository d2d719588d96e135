"""Let the C library keep freed memory.

A training step frees and takes gigabytes again. glibc gives large blocks back to the kernel and
fetches them again zeroed, page by page: about a fifth of the time of a step on two cores.
"""

import ctypes
import sys

# From malloc.h.
M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_MAX = -1, -2, -4
KEEP_ALL = 2**31 - 1
TOP_PAD = 64 * 2**20


def keep_freed_memory() -> bool:
    """Ask for it, where the C library is glibc; says whether it was done."""
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    options = ((M_MMAP_MAX, 0), (M_TRIM_THRESHOLD, KEEP_ALL), (M_TOP_PAD, TOP_PAD))
    return all(mallopt(option, value) == 1 for option, value in options)
