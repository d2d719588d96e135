"""A small experiment whose truth is known to be uncertain, for the tests of what follows it."""

import os
from functools import cache, partial
from pathlib import Path

import numpy as np
import pytest

from nearsure.embedding_files import load_embeddings
from nearsure.lab.default_rule import nearsure_posteriors
from nearsure.lab.evaluation import Evaluation, evaluate
from nearsure.lab.protocols import (
    ProtocolNeighbors,
    ProtocolPoints,
    all_against_others,
    encode_labels,
)


@cache
def points() -> ProtocolPoints:
    rng = np.random.default_rng(0)
    codes = np.repeat(np.arange(8), 30)
    vectors = rng.standard_normal((8, 5))[codes] + 0.8 * rng.standard_normal((240, 5))
    return ProtocolPoints(vectors.astype(np.float32), codes)


@cache
def found() -> ProtocolNeighbors:
    return all_against_others(points().vectors, points().codes, k=40)


@cache
def evaluation() -> Evaluation:
    others = partial(nearsure_posteriors, points())
    return evaluate(found(), k=20, seed=0, n_resamples=50, others=others)


@cache
def cub200() -> ProtocolNeighbors:
    """Birds of unseen species, which are not part of the project."""
    here = Path(__file__).parents[2] / ".." / "shared" / "data"
    path = Path(os.environ.get("NEARSURE_DATA", here)) / "cub200_unseen_embeddings.npz"
    if not path.exists():
        pytest.skip(f"{path.name} is not at hand: set NEARSURE_DATA to the folder that holds it")
    birds = load_embeddings(path)
    return all_against_others(birds.vectors, encode_labels(birds.labels)[0], k=50)
