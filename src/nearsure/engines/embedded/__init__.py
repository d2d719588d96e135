"""A gallery in this process, searched by faiss: exactly, through a graph, or through cells."""

from nearsure.engines.embedded.base import IndexSettings, chosen_index
from nearsure.engines.embedded.engine import FaissEngine

__all__ = ["FaissEngine", "IndexSettings", "chosen_index"]
