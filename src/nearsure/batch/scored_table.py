"""Predictions as rows of a table."""

from typing import TYPE_CHECKING, Literal

import numpy as np

from nearsure.arrays import AnyArray, FloatArray, IntArray
from nearsure.batch.parquet_rows import arrow
from nearsure.classifier import Prediction
from nearsure.errors import InvalidInputError
from nearsure.posterior import Posterior

if TYPE_CHECKING:
    import pyarrow as pa

ROW, ID = "row", "id"
LABEL, CONFIDENCE, P_KNOWN, VERDICT = "label", "confidence", "p_known", "verdict"
RANKED_LABELS, RANKED_PROBABILITIES = "ranked_labels", "ranked_probabilities"

Ranked = int | Literal["all"] | None


def scored_table(
    prediction: Prediction,
    classes: AnyArray,
    *,
    names: tuple[str, "pa.Array"],
    ranked: Ranked,
) -> "pa.Table":
    """One row for each query.

    Parameters
    ----------
    prediction : Prediction
        Of n queries.
    classes : array of shape (n_classes,)
        The labels that class codes index.
    names : pair of str and pyarrow array of shape (n,)
        The first column: what the queries are called.
    ranked : int, "all" or None
        How many of each query's classes to list, best first, with their probabilities.
    """
    pa = arrow()
    columns = dict([names])
    columns[LABEL] = label_column(prediction.labels)
    columns[CONFIDENCE] = pa.array(prediction.confidence, pa.float64())
    if prediction.p_known is not None:
        columns[P_KNOWN] = pa.array(prediction.p_known, pa.float64())
    if prediction.verdicts is not None:
        columns[VERDICT] = pa.array(prediction.verdicts.tolist(), pa.string())
    if ranked is not None:
        offsets, codes, probabilities = _best(prediction.posterior, ranked)
        edges = pa.array(offsets, pa.int32())
        columns[RANKED_LABELS] = pa.ListArray.from_arrays(edges, label_column(classes[codes]))
        columns[RANKED_PROBABILITIES] = pa.ListArray.from_arrays(
            edges, pa.array(probabilities, pa.float64())
        )
    return pa.table(columns)


def label_column(labels: AnyArray) -> "pa.Array":
    """Labels as Parquet holds them: numbers as they are, everything else as text."""
    pa = arrow()
    if labels.dtype.kind in "biuf":
        return pa.array(labels)
    listed = labels.tolist()
    if not all(isinstance(label, str) for label in listed):
        raise InvalidInputError(
            "Labels must be numbers, or all of them text, to be written to Parquet. Got a mixture."
        )
    return pa.array(listed, pa.string())


def check_ranked(ranked: Ranked) -> None:
    """Raise an error unless this is a number of classes, "all" or None."""
    is_number = isinstance(ranked, int) and not isinstance(ranked, bool) and ranked >= 1
    if not (ranked is None or ranked == "all" or is_number):
        raise InvalidInputError(
            f"ranked must be 'all', None or an integer of at least 1. Got {ranked!r} instead."
        )


def _best(posterior: Posterior, ranked: int | str) -> tuple[IntArray, IntArray, FloatArray]:
    """Offsets, class codes and probabilities of the best classes of each query."""
    lengths = np.diff(posterior.indptr)
    if not isinstance(ranked, str):
        lengths = np.minimum(lengths, ranked)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    entries = np.repeat(posterior.indptr[:-1] - offsets[:-1], lengths) + np.arange(offsets[-1])
    return offsets, posterior.codes[entries], posterior.probabilities[entries]
