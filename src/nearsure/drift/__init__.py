"""Whether incoming queries still look like the gallery, and how often they are answered rightly.

Labels of the queries are not needed: the yardstick is the gallery's own leave-one-out pass.
"""

from nearsure.drift.certainty import certainty
from nearsure.drift.certainty_cut import CertaintyCut, fit_cut
from nearsure.drift.distribution_shift import DistributionShift, compare_samples
from nearsure.drift.estimated_accuracy import EstimatedAccuracy, estimate_accuracy
from nearsure.drift.evidence import Evidence, gather_evidence
from nearsure.drift.query_drift import QueryDrift, compare_queries

__all__ = [
    "CertaintyCut",
    "DistributionShift",
    "EstimatedAccuracy",
    "Evidence",
    "QueryDrift",
    "certainty",
    "compare_queries",
    "compare_samples",
    "estimate_accuracy",
    "fit_cut",
    "gather_evidence",
]
