"""Where the support vectors live and how their nearest neighbours are found."""

from nearsure.index.exact import ExactIndex

__all__ = ["ExactIndex"]
