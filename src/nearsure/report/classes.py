"""One row for each true class of the queries, the worst first."""

import numpy as np

from nearsure.arrays import IntArray
from nearsure.report.answered import Answered
from nearsure.report.document import ClassRow, Confused
from nearsure.report.plain import plain_label, shares_of

CONFUSED_SHOWN = 3
# A row takes about 200 bytes.
LARGEST_TABLE = 5000


def class_rows(answered: Answered, class_sizes: IntArray) -> tuple[ClassRow, ...]:
    """Rows by accuracy, then by more queries, then by label; at most 5,000 of them.

    Parameters
    ----------
    answered : Answered
        The queries.
    class_sizes : array of shape (n_classes,)
        Points of each class in the gallery.
    """
    labels, place = np.unique(answered.truth, return_inverse=True)
    n_queries = np.bincount(place)
    n_right = np.bincount(place[answered.correct], minlength=len(labels))
    mean_confidence = np.bincount(place, answered.confidence) / n_queries
    codes = np.empty(len(labels), np.int64)
    codes[place] = answered.codes
    in_gallery = np.append(class_sizes[: len(answered.classes)], 0)[codes]
    worst_first = np.lexsort((np.arange(len(labels)), -n_queries, n_right / n_queries))
    shown = worst_first[:LARGEST_TABLE]
    shares = shares_of(n_right[shown], n_queries[shown])
    by_class = np.argsort(place, kind="stable")
    starts = np.append(0, np.cumsum(n_queries))
    return tuple(
        ClassRow(
            label=plain_label(labels[row]),
            n_gallery=int(in_gallery[row]),
            n_queries=int(n_queries[row]),
            accuracy=share,
            mean_confidence=float(mean_confidence[row]),
            confused_with=_confused(answered, by_class[starts[row] : starts[row + 1]]),
        )
        for row, share in zip(shown, shares, strict=True)
    )


def _confused(answered: Answered, rows: IntArray) -> tuple[Confused, ...]:
    """What the queries of one class were mostly taken for."""
    wrong = answered.answers[rows][~answered.correct[rows]]
    codes, counts = np.unique(wrong, return_counts=True)
    most = np.lexsort((codes, -counts))[:CONFUSED_SHOWN]
    return tuple(Confused(answered.label_of(int(codes[i])), int(counts[i])) for i in most)
