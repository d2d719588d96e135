"""Galleries in Milvus: a file (milvus-lite), a server or a cluster. Extra: ``milvus``."""

from nearsure.engines.milvus.engine import MilvusEngine

__all__ = ["MilvusEngine"]
