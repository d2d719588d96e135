"""A labelled gallery whose vectors live in an engine."""

from nearsure.engine_gallery.census import counted_as
from nearsure.engine_gallery.class_counts import ClassCounts
from nearsure.engine_gallery.gallery import EngineGallery
from nearsure.engine_gallery.id_table import IdTable
from nearsure.engine_gallery.label_codes import LabelCodes

__all__ = ["ClassCounts", "EngineGallery", "IdTable", "LabelCodes", "counted_as"]
