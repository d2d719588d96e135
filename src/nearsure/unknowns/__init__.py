"""Queries of classes that the gallery does not hold: p(known), from the gallery alone.

Support points imitate both kinds of query. Searched without itself, a point is a known query;
searched without its class, an unknown one. A model that separates the two gives p(known), and
p(known) p(c | known) is a confidence that also holds for queries that belong to no class.
"""

from nearsure.loo import search_leaving_class_out
from nearsure.unknowns.evidence import Evidence, GalleryDensity, collect_evidence
from nearsure.unknowns.model import VERDICT_NAMES, KnownModel, Verdicts, judge
from nearsure.unknowns.rehearsal import (
    Recognition,
    Rehearsal,
    measure_recognition,
    rehearse,
)
from nearsure.unknowns.shift import ShareEstimate, estimate_unknown_share, fit_shift

__all__ = [
    "VERDICT_NAMES",
    "Evidence",
    "GalleryDensity",
    "KnownModel",
    "Recognition",
    "Rehearsal",
    "ShareEstimate",
    "Verdicts",
    "collect_evidence",
    "estimate_unknown_share",
    "fit_shift",
    "judge",
    "measure_recognition",
    "rehearse",
    "search_leaving_class_out",
]
