"""Queries of classes that the gallery does not hold: p(known), from the gallery alone.

Support points play both parts. Leaving itself out, a point is a known query; leaving its class
out, an unknown one. What tells the two apart becomes p(known), and p(known) p(c | known) is a
confidence that also holds for queries that belong to no class.
"""

from nearsure.loo import search_leaving_class_out
from nearsure.unknowns.evidence import Evidence, GalleryDensity, collect_evidence
from nearsure.unknowns.model import VERDICT_NAMES, KnownModel, Verdicts, judge
from nearsure.unknowns.rehearsal import Rehearsal, rehearse
from nearsure.unknowns.shift import ShareEstimate, estimate_unknown_share, fit_shift

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
