"""Queries of classes that the gallery does not hold: p(known), from the gallery alone.

Support points play both parts. Leaving itself out, a point is a known query; leaving its class
out, an unknown one. What tells the two apart becomes p(known), and p(known) p(c | known) is a
confidence that also holds for queries that belong to no class.
"""

from nearsure.unknowns.class_left_out import search_leaving_class_out
from nearsure.unknowns.evidence import Evidence, collect_evidence
from nearsure.unknowns.gallery_density import GalleryDensity
from nearsure.unknowns.known_model import KnownModel
from nearsure.unknowns.query_shift import fit_shift
from nearsure.unknowns.rehearsal import Rehearsal, rehearse
from nearsure.unknowns.unknown_share import ShareEstimate, estimate_unknown_share
from nearsure.unknowns.verdicts import VERDICT_NAMES, Verdicts, judge

__all__ = [
    "VERDICT_NAMES",
    "Evidence",
    "GalleryDensity",
    "KnownModel",
    "Rehearsal",
    "ShareEstimate",
    "Verdicts",
    "collect_evidence",
    "estimate_unknown_share",
    "fit_shift",
    "judge",
    "rehearse",
    "search_leaving_class_out",
]
