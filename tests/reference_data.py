"""Embeddings and figures that are not part of the project; tests that use them skip without."""

import json
import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nearsure import Neighbors
from nearsure.arrays import AnyArray, IntArray
from nearsure.index import ExactIndex
from nearsure.loo import search_leaving_one_out

FOLDER = Path(
    os.environ.get("NEARSURE_DATA", Path(__file__).parents[1] / ".." / "shared" / "data")
).resolve()


@dataclass(frozen=True, eq=False)
class Gallery:
    """A gallery with its leave-one-out neighbours, and queries with theirs."""

    vectors: AnyArray
    codes: IntArray
    own_neighbors: Neighbors
    query_codes: IntArray
    query_neighbors: Neighbors
    reference: dict[str, Any]


def load(name: str) -> AnyArray:
    path = FOLDER / name
    if not path.exists():
        pytest.skip(f"{name} is not at hand: set NEARSURE_DATA to the folder that holds it")
    file: AnyArray = np.load(path)
    return file


@cache
def cub200() -> Gallery:
    """Every bird a query against all the others."""
    file = load("cub200_unseen_embeddings.npz")
    codes = np.unique(file["labels"], return_inverse=True)[1]
    vectors = file["embeddings"]
    own = search_leaving_one_out(ExactIndex(vectors), vectors, np.arange(len(codes)), codes, k=100)
    reference = _reference("cub200_unseen, every point a query against all others")
    return Gallery(vectors, codes, own, codes, own, reference)


@cache
def clinc150() -> Gallery:
    """Test sentences as queries against the training sentences."""
    file = load("clinc150_minilm.npz")
    classes, codes = np.unique(file["train_y"], return_inverse=True)
    vectors = file["train_x"].astype(np.float32)
    index = ExactIndex(vectors)
    own = search_leaving_one_out(index, vectors, np.arange(len(codes)), codes, k=50)
    sq_distances, ids = index.search(file["test_x"].astype(np.float32), 50)
    return Gallery(
        vectors,
        codes,
        own,
        np.searchsorted(classes, file["test_y"]),
        Neighbors(sq_distances, codes[ids], ids),
        _reference("clinc150, train = gallery, test = queries"),
    )


def _reference(name: str) -> dict[str, Any]:
    figures: dict[str, Any] = json.loads((FOLDER / "reference.json").read_text())[name]
    return figures
