"""A labelled gallery, in memory or in an engine."""

from nearsure.gallery.counts import ClassCounts, IdTable, LabelCodes, counted_as
from nearsure.gallery.gallery import EngineGallery

__all__ = ["ClassCounts", "EngineGallery", "IdTable", "LabelCodes", "counted_as"]
