"""How large the classes of a gallery are now, and what that makes of a prior."""

from typing import Literal

import numpy as np

from nearsure.arrays import FloatArray, IntArray
from nearsure.classifier.gallery import Gallery
from nearsure.forms.class_prior import prior_factors


def factors_of_prior(
    prior: Literal["support", "uniform"] | FloatArray, sizes: IntArray
) -> FloatArray | None:
    """What another prior than the gallery's frequencies multiplies each class by."""
    if isinstance(prior, str):
        return None if prior == "support" else prior_factors(prior, sizes)
    if prior.shape == sizes.shape:
        # A class that has lost its last point cannot be the answer, whatever its prior was.
        prior = np.where(sizes > 0, prior, 0.0)
    return prior_factors(prior, sizes)


def class_sizes(gallery: Gallery, n_classes: int) -> IntArray:
    """Members of each class, shape (n_classes,)."""
    # Others may add a class to an engine at any moment: it counts once its name is known.
    counts = gallery.class_counts[:n_classes]
    if len(counts) == n_classes:
        return counts
    sizes = np.zeros(n_classes, np.int64)
    sizes[: len(counts)] = counts
    return sizes


def with_newcomers(
    prior: Literal["support", "uniform"] | FloatArray, n_classes: int
) -> Literal["support", "uniform"] | FloatArray:
    """A prior that was given, with that of a usual class for those that others have added since."""
    if isinstance(prior, str) or len(prior) >= n_classes:
        return prior
    return np.append(prior, np.full(n_classes - len(prior), prior.mean()))
