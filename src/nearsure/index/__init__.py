"""Where the support vectors live and how their nearest neighbours are found."""

from nearsure.index.exact import ExactIndex, unit_vectors

__all__ = ["ExactIndex", "unit_vectors"]
