"""Vectors, labels and search results from files and streams, and records written back."""

from nearsure.embedding_files.embedding_chunk import EmbeddingChunk
from nearsure.embedding_files.embedding_set import EmbeddingSet
from nearsure.embedding_files.embedding_stream import EmbeddingStream, open_embeddings
from nearsure.embedding_files.hit_files import load_hits
from nearsure.embedding_files.hit_set import HitSet
from nearsure.embedding_files.loading import load_embeddings
from nearsure.embedding_files.record_writer import RecordWriter, open_records

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
