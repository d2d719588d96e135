"""The fixtures of this folder; they live in a module of a name of its own, for the type checker."""

from batch_fixtures import engine_model, gallery_file, model, queries

__all__ = ["engine_model", "gallery_file", "model", "queries"]
