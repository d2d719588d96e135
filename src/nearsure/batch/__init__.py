"""Data sets and galleries in Parquet files, larger than a machine: scored and searched with Dask.

Needs the extra `batch`.
"""

from nearsure.batch.evaluate import Evaluation, evaluate_partitions
from nearsure.batch.score import Scored, score_partitions
from nearsure.batch.scorer import Scorer
from nearsure.batch.search import (
    OwnNeighbors,
    as_neighbors,
    leave_one_out_over_shards,
    search_shards,
)

__all__ = [
    "Evaluation",
    "OwnNeighbors",
    "Scored",
    "Scorer",
    "as_neighbors",
    "evaluate_partitions",
    "leave_one_out_over_shards",
    "score_partitions",
    "search_shards",
]
