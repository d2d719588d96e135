"""Are these two the same? Probability, threshold and report for pairs of vectors."""

from nearsure.pairs.confidence import PairConfidence
from nearsure.pairs.report import PairReport, report_pairs
from nearsure.pairs.threshold import PairThreshold, choose_pair_threshold

__all__ = [
    "PairConfidence",
    "PairReport",
    "PairThreshold",
    "choose_pair_threshold",
    "report_pairs",
]
