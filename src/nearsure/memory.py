"""How much memory a result may take."""

import os
import sys
from pathlib import Path

from nearsure.errors import DenseResultTooLargeError


def available_bytes() -> int:
    """Memory that can still be had without swapping, as far as the system tells."""
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():
        for line in meminfo.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    if hasattr(os, "sysconf"):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return sys.maxsize  # a system that does not tell: leave it to the allocation to fail


def check_dense_fits(n_queries: int, n_classes: int) -> None:
    """Raise an error if a float64 matrix of this shape would not fit in memory."""
    needed, available = 8 * n_queries * n_classes, available_bytes()
    if needed > available:
        raise DenseResultTooLargeError(
            f"Probabilities of {n_queries} queries over {n_classes} classes would take "
            f"{needed / 2**30:.1f} GiB as a dense array, and {available / 2**30:.1f} GiB are "
            "available. predict_posterior gives the same probabilities in sparse form."
        )
