"""Data sets and galleries in Parquet files, larger than a machine: scored and searched with Dask.

Needs the extra `batch`.
"""

from nearsure.batch.evaluation import Evaluation, evaluate_partitions
from nearsure.batch.own_neighbors import OwnNeighbors, leave_one_out_over_shards
from nearsure.batch.scoring import Scored, score_partitions
from nearsure.batch.shards import as_neighbors, search_shards

__all__ = [
    "Evaluation",
    "OwnNeighbors",
    "Scored",
    "as_neighbors",
    "evaluate_partitions",
    "leave_one_out_over_shards",
    "score_partitions",
    "search_shards",
]
