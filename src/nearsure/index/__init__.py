"""Where the support vectors live and how their nearest neighbours are found."""

from nearsure.index.exact import ExactIndex
from nearsure.index.unit import unit_vectors

__all__ = ["ExactIndex", "unit_vectors"]
