"""Minima of smooth losses: scipy's L-BFGS-B, with one thread for its own matrices."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from threading import Lock
from typing import Any

import scipy
from scipy.optimize import OptimizeResult
from scipy.optimize import minimize as scipy_minimize
from threadpoolctl import ThreadpoolController

from nearsure.arrays import FloatArray

_lock = Lock()
_depth = 0
_limit: Any = None


def minimize(
    loss: Callable[[FloatArray], tuple[float, FloatArray]],
    start: FloatArray | Sequence[float],
    *,
    bounds: Sequence[tuple[float | None, float | None]] | None = None,
    tolerance: float | None = None,
    options: dict[str, float] | None = None,
) -> "OptimizeResult[FloatArray]":
    """The bottom of the valley about a start.

    Parameters
    ----------
    loss : callable
        From parameters to the loss and its gradient.
    start : array of shape (n,)
        Where to begin.
    bounds : sequence of pairs, optional
        Smallest and largest value of each parameter; None is no bound.
    tolerance, options
        As of scipy's `minimize` with L-BFGS-B.

    Examples
    --------
    >>> import numpy as np
    >>> found = minimize(lambda x: (float(((x - 3) ** 2).sum()), 2 * (x - 3)), np.zeros(2))
    >>> found.x.round(6).tolist()
    [3.0, 3.0]
    """
    with limit_scipy_threads():
        found: OptimizeResult[FloatArray] = scipy_minimize(  # type: ignore[call-overload]
            loss,
            start,
            jac=True,
            method="L-BFGS-B",
            bounds=bounds,
            tol=tolerance,
            options=options,
        )
    return found


@contextmanager
def limit_scipy_threads() -> Iterator[None]:
    """One thread for scipy's BLAS, whose matrices have twenty rows here.

    OpenBLAS divides even these among its threads, and waits for all of them: a step that takes
    0.07 ms took 8 ms beside other work on two cores. The loss multiplies with numpy's BLAS, which
    keeps its threads.
    """
    global _depth, _limit  # noqa: PLW0603 - one for all threads of the process, as the BLAS is
    with _lock:
        if not _depth:
            _limit = _scipy_blas().limit(limits=1)
        _depth += 1
    try:
        yield
    finally:
        with _lock:
            _depth -= 1
            if not _depth:
                _limit.restore_original_limits()


@cache
def _scipy_blas() -> ThreadpoolController:
    """The BLAS that scipy brings along; nothing where it shares that of numpy."""
    pools = ThreadpoolController()
    folder = scipy.__path__[0]
    own = [pool["filepath"] for pool in pools.info() if pool["filepath"].startswith(folder)]
    return pools.select(filepath=own)
