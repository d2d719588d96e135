"""Classes whose truth is known, and naive forms of what heads say."""

import numpy as np

from nearsure.arrays import FloatArray, IntArray
from nearsure.heads.class_means import ClassMeans, Moments
from nearsure.heads.linear import LinearHead


def draw_normal(
    n: int, *, seed: int, n_classes: int = 4, dimension: int = 3
) -> tuple[FloatArray, IntArray, FloatArray]:
    """Points of normal classes of one covariance, their classes, and log p(c | z) by Bayes."""
    rng = np.random.default_rng(7)
    centres = 2.0 * rng.normal(size=(n_classes, dimension))
    spread = rng.normal(size=(dimension, dimension)) + np.eye(dimension)
    shares = np.arange(1, n_classes + 1) / np.arange(1, n_classes + 1).sum()
    drawn = np.random.default_rng(seed)
    codes = drawn.choice(n_classes, n, p=shares)
    points = centres[codes] + drawn.normal(size=(n, dimension)) @ spread
    differences = points[:, None] - centres
    inverse = np.linalg.inv(spread.T @ spread)
    logits = np.log(shares) - 0.5 * np.einsum("nci,ij,ncj->nc", differences, inverse, differences)
    return points, codes, log_softmax(logits)


def draw_rings(n: int, *, seed: int) -> tuple[FloatArray, IntArray]:
    """Points of two classes of one mean: a disc within a ring."""
    rng = np.random.default_rng(seed)
    codes = np.arange(n) % 2
    angles = rng.uniform(0.0, 2.0 * np.pi, n)
    radii = 1.0 + 2.0 * codes + 0.2 * rng.normal(size=n)
    return np.column_stack([radii * np.cos(angles), radii * np.sin(angles)]), codes


def log_softmax(logits: FloatArray) -> FloatArray:
    shifted = logits - logits.max(axis=1, keepdims=True)
    shares: FloatArray = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return shares


def moments_of(points: FloatArray, codes: IntArray, n_classes: int | None = None) -> Moments:
    """About a centre that is not their mean."""
    n = int(codes.max()) + 1 if n_classes is None else n_classes
    return Moments.empty(points[0] + 1.0, n).add(points, codes)


def log_shares(head: LinearHead | ClassMeans, points: FloatArray) -> FloatArray:
    """log p(c | z) of all classes."""
    linear = head.head() if isinstance(head, ClassMeans) else head
    return log_softmax(linear.logits(points))
