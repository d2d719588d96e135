"""A labelled gallery, in memory or in an engine."""

from nearsure.gallery.counts import ClassCounts, LabelCodes, counted_as
from nearsure.gallery.gallery import Gallery

__all__ = ["ClassCounts", "Gallery", "LabelCodes", "counted_as"]
