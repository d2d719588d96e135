"""Vectors, labels and search results from files and streams, and records written back."""

from nearsure.embedding_files.hits import HitSet, load_hits
from nearsure.embedding_files.records import RecordWriter, open_records
from nearsure.embedding_files.rows import EmbeddingChunk, EmbeddingSet
from nearsure.embedding_files.stream import EmbeddingStream, load_embeddings, open_embeddings

__all__ = [
    "EmbeddingChunk",
    "EmbeddingSet",
    "EmbeddingStream",
    "HitSet",
    "RecordWriter",
    "load_embeddings",
    "load_hits",
    "open_embeddings",
    "open_records",
]
