"""Confidences whose true chance of being right is known."""

import numpy as np
from scipy.special import expit, logit

from nearsure.arrays import BoolArray, FloatArray

GRID = np.linspace(0, 1, 41)


def scored(n: int = 400, seed: int = 0) -> tuple[FloatArray, BoolArray]:
    """Confidences that claim too much: right with the square of what they say."""
    rng = np.random.default_rng(seed)
    confidence = rng.beta(4, 2, size=n)
    return confidence, rng.random(n) < confidence**2


def votes(n: int = 400, k: int = 7, seed: int = 0) -> tuple[FloatArray, BoolArray]:
    """The same of shares of k votes: many ties, and confidences of exactly 1."""
    rng = np.random.default_rng(seed)
    confidence = rng.integers(1, k + 1, size=n) / k
    return confidence, rng.random(n) < confidence**2


def halved_logits(n: int, seed: int) -> tuple[FloatArray, BoolArray]:
    """Confidences that claim far too much: every calibrator's family holds, or nears, the cure."""
    rng = np.random.default_rng(seed)
    confidence = rng.beta(4, 1.5, size=n)
    return confidence, rng.random(n) < expit(0.5 * logit(confidence) - 0.3)
