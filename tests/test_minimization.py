"""Minima, and the threads that are left as they were."""

import os
import subprocess
import sys

import numpy as np
import pytest
from scipy.optimize import minimize as scipy_minimize
from scipy.optimize import rosen, rosen_der

from nearsure.arrays import FloatArray
from nearsure.minimization import minimize


def rosenbrock(x: FloatArray) -> tuple[float, FloatArray]:
    return float(rosen(x)), np.asarray(rosen_der(x))


def test_it_is_scipys_minimum() -> None:
    bounds = [(-2.0, 0.5), (None, None), (0.0, None)]
    ours = minimize(rosenbrock, [-1.0, 2.0, 3.0], bounds=bounds, tolerance=1e-10)
    theirs = scipy_minimize(
        rosen, [-1.0, 2.0, 3.0], jac=rosen_der, method="L-BFGS-B", bounds=bounds, tol=1e-10
    )
    assert np.array_equal(ours.x, theirs.x)
    assert ours.x[0] == 0.5


THREADS = """
from threading import Barrier, Thread
import numpy as np
from nearsure.minimization import _scipy_blas, minimize

def threads():
    return [pool["num_threads"] for pool in _scipy_blas().info()]

seen = []
def loss(x):
    seen.append(threads())
    return float(x @ x), 2 * x

def fail(x):
    raise ValueError("no loss")

together = Barrier(2)
before = threads()
minimize(loss, np.ones(2))
try:
    minimize(fail, np.ones(2))
except ValueError:
    print("raised")
print(before, threads(), seen[0], len({tuple(each) for each in seen}))
first = [True, True]
def wait_once(place):
    def asked(x):
        if first[place]:
            first[place] = False
            together.wait(60)
        return loss(x)
    return asked
seen.clear()
workers = [Thread(target=minimize, args=(wait_once(i), np.ones(2))) for i in range(2)]
for worker in workers:
    worker.start()
for worker in workers:
    worker.join()
print(threads(), len({tuple(each) for each in seen}))

from sklearn.linear_model import LogisticRegression
from nearsure.probes import fit_probe
seen.clear()
fit = LogisticRegression.fit
def watched(self, *arguments):
    seen.append(threads())
    return fit(self, *arguments)
LogisticRegression.fit = watched
points = np.random.default_rng(0).normal(size=(40, 3))
fit_probe("logistic", points, np.repeat([0, 1], 20), n_classes=2, seed=0)
print(threads(), seen[0], len({tuple(each) for each in seen}))
"""


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="one processor has one thread")
def test_scipys_blas_has_one_thread_meanwhile_and_as_many_as_before_afterwards() -> None:
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", THREADS],
        env={**os.environ, "OMP_NUM_THREADS": "2", "OPENBLAS_NUM_THREADS": "2"},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    raised, alone, together, probe = done.stdout.splitlines()
    assert raised == "raised"
    if alone.startswith("[] "):
        pytest.skip("scipy shares the BLAS of numpy here")
    assert alone == "[2] [2] [1] 1"
    assert together == "[2] 1"
    assert probe == "[2] [1] 1"
