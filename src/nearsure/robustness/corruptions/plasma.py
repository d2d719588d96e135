"""Clouds by the diamond-square algorithm, on a torus."""

import numpy as np

from nearsure.robustness.corruptions.grey_levels import Float32Array


def plasma(size: int, decay: float, rng: np.random.Generator) -> Float32Array:
    """A square of clouds from 0 to 1 that meets itself at opposite sides.

    Each round doubles the grid: new points are the mean of their four neighbours plus noise, whose
    amplitude falls by ``decay ** 2`` a round (the published clouds multiply it by itself).

    Parameters
    ----------
    size : int
        Side; a power of two, at least 2.
    decay : float
        Root of the factor from one round to the next.
    rng : numpy.random.Generator
        What the noise is drawn from.

    Returns
    -------
    array of shape (size, size), float32
    """
    noise = rng.random(size * size - 1, np.float32)
    noise -= 0.5
    corners = np.zeros((1, 1), np.float32)
    used, amplitude = 0, 1.0
    while len(corners) < size:
        side = len(corners)
        wobble = noise[used : used + 3 * side * side].reshape(3, side, side) * np.float32(amplitude)
        corners = _doubled(corners, wobble)
        used += 3 * side * side
        amplitude /= decay**2
    corners -= corners.min()
    corners /= corners.max()
    return corners


def _doubled(corners: Float32Array, wobble: Float32Array) -> Float32Array:
    side = len(corners)
    finer = np.empty((2 * side, 2 * side), np.float32)
    below, right = _next_row(corners), _next_column(corners)
    centres = (corners + below + right + _next_column(below)) / 4 + wobble[0]
    finer[::2, ::2] = corners
    finer[1::2, 1::2] = centres
    finer[::2, 1::2] = (corners + right + centres + _last_row(centres)) / 4 + wobble[1]
    finer[1::2, ::2] = (corners + below + centres + _last_column(centres)) / 4 + wobble[2]
    return finer


def _next_row(grid: Float32Array) -> Float32Array:
    return np.concatenate((grid[1:], grid[:1]))


def _next_column(grid: Float32Array) -> Float32Array:
    return np.concatenate((grid[:, 1:], grid[:, :1]), axis=1)


def _last_row(grid: Float32Array) -> Float32Array:
    return np.concatenate((grid[-1:], grid[:-1]))


def _last_column(grid: Float32Array) -> Float32Array:
    return np.concatenate((grid[:, -1:], grid[:, :-1]), axis=1)
