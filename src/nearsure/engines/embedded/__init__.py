"""A gallery in this process, searched by faiss: exactly, through a graph, or through cells."""

from nearsure.engines.embedded.base import IndexSettings
from nearsure.engines.embedded.engine import FaissEngine
from nearsure.engines.embedded.exact import chosen_index

__all__ = ["FaissEngine", "IndexSettings", "chosen_index"]
