"""Functions that workers open engines with, named as "worker_openers:function"."""

import os
import sys
import time
from pathlib import Path

import numpy as np

from nearsure.arrays import AnyArray
from nearsure.engines import Engine, Found

# A worker process has nothing but the folders of the process that started it.
sys.path.append(str(Path(__file__).parents[1] / "engines"))
from numpy_engine import NumpyEngine


class PatientEngine(NumpyEngine):
    """Takes its time, so that a process can be killed in the middle."""

    def search(self, queries: AnyArray, k: int) -> Found:
        time.sleep(float(os.environ.get("SECONDS_A_SEARCH", "0")))
        return super().search(queries, k)


def gallery() -> Engine:
    """An engine whose address is in the environment."""
    arrays = np.load(os.environ["TEST_GALLERY"])
    engine = PatientEngine(arrays["vectors"].shape[1])
    engine.add(arrays["vectors"], np.arange(len(arrays["vectors"])), arrays["labels"])
    return engine


def refused() -> Engine:
    raise ConnectionError("no route to postgresql://ann:s3cret@db/shop")


def dying() -> Engine:
    os._exit(1)
