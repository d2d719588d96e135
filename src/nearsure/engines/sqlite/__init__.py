"""A gallery in one SQLite file, searched by faiss in this process."""

from nearsure.engines.sqlite.engine import SqliteEngine

__all__ = ["SqliteEngine"]
