"""Posteriors made from dense matrices, so that tests can recompute metrics naively."""

import numpy as np

from nearsure.arrays import FloatArray
from nearsure.posterior import Posterior


def posterior_of(dense: FloatArray) -> Posterior:
    """Keep the positive entries of (n, n_classes), best first in each row."""
    indptr, codes, probabilities = [0], [], []
    for row in dense:
        ranked = [code for code in np.argsort(-row, kind="stable") if row[code] > 0]
        codes += ranked
        probabilities += [row[code] for code in ranked]
        indptr.append(len(codes))
    return Posterior(
        np.array(indptr, dtype=np.int64),
        np.array(codes, dtype=np.int64),
        np.array(probabilities, dtype=np.float64),
        n_classes=dense.shape[1],
    )


def random_dense(rng: np.random.Generator, *, n: int, n_classes: int, k: int) -> FloatArray:
    """Shares of k votes: multiples of 1/k, so with many zeros, ties and values on bin edges."""
    votes = rng.multinomial(k, rng.dirichlet(np.full(n_classes, 0.3), size=n))
    return np.asarray(votes / k, dtype=np.float64)
