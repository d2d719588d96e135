"""Folders in memory, where there is room: on a disk, every change of a gallery is waited for."""

import os
import shutil

MEMORY = "/dev/shm"  # noqa: S108 - what is made in it has a name of its own
# Containers may have some megabytes of it.
ENOUGH = 2**30


def quick_place() -> str | None:
    """Where to make temporary folders; None for the usual place."""
    is_usable = os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > ENOUGH
    return MEMORY if is_usable else None
