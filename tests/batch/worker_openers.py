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


class StoppingEngine(NumpyEngine):
    """Searches once more when two results are in the folder STOP_IN, and then no more.

    A process can be killed then, in the middle of its third partition.
    """

    n_late = 0

    def search(self, queries: AnyArray, k: int) -> Found:
        folder = os.environ.get("STOP_IN")
        if folder is not None and len(list(Path(folder).glob("*.parquet"))) == 2:
            self.n_late += 1
            if self.n_late > 1:
                time.sleep(600)
        return super().search(queries, k)


def gallery() -> Engine:
    """An engine whose address is in the environment."""
    arrays = np.load(os.environ["TEST_GALLERY"])
    engine = StoppingEngine(arrays["vectors"].shape[1])
    engine.add(arrays["vectors"], np.arange(len(arrays["vectors"])), arrays["labels"])
    return engine


def refused() -> Engine:
    raise ConnectionError("no route to postgresql://ann:s3cret@db/shop")


def dying() -> Engine:
    os._exit(1)
