"""Sums of weights that are known by their logarithms, row by row, without under- or overflow."""

import numpy as np

from nearsure.arrays import BoolArray, FloatArray
from nearsure.neighbors import Neighbors


def log_sum_and_shares(exponents: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Logarithm of the sum of exp over each row, and each entry's share of that sum.

    Parameters
    ----------
    exponents : array of shape (n, k)
        At least one of each row finite; minus infinity weighs nothing.

    Examples
    --------
    >>> log_sum_and_shares(np.array([[-1000.0, -1000.0, -np.inf]]))
    (array([-999.30685282]), array([[0.5, 0.5, 0. ]]))
    """
    largest = exponents.max(axis=1, keepdims=True)
    shares = np.exp(exponents - largest)
    total = shares.sum(axis=1, keepdims=True)
    shares /= total
    return (np.log(total) + largest)[:, 0], shares


def losses_and_pull(exponents: FloatArray, own: BoolArray) -> tuple[FloatArray, FloatArray]:
    """-log p(true class) of each row, and its derivative by every exponent.

    Parameters
    ----------
    exponents : array of shape (n, k)
        Logarithms of the weights; minus infinity on padding.
    own : array of shape (n, k)
        Which neighbours are of the row's own class; at least one in each row.

    Examples
    --------
    >>> losses, pull = losses_and_pull(np.log([[0.75, 0.25]]), np.array([[True, False]]))
    >>> losses.round(3), pull
    (array([0.288]), array([[-0.25,  0.25]]))
    """
    log_all, shares = log_sum_and_shares(exponents)
    log_own, own_shares = log_sum_and_shares(np.where(own, exponents, -np.inf))
    shares -= own_shares
    return log_all - log_own, shares


def weights_of_exponents(exponents: FloatArray, neighbors: Neighbors) -> FloatArray:
    """Weights of which the largest of each row is 1, from their logarithms; 0 on padding.

    Parameters
    ----------
    exponents : array of shape (n, k)
        Logarithms of the weights; anything but NaN on padding.
    neighbors : Neighbors
        Whose exponents they are.
    """
    if neighbors.is_full:
        return np.asarray(np.exp(exponents - exponents.max(axis=1, keepdims=True)))
    exponents = np.where(neighbors.valid, exponents, -np.inf)
    largest = np.where(neighbors.counts > 0, exponents.max(axis=1), 0.0)
    return np.asarray(np.exp(exponents - largest[:, None]))
