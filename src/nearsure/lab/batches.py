"""Batches of a training run: each a pure function of the seed and the step.

Nothing is remembered between steps, so a run that resumes at step 500 sees what it would have seen.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np

from nearsure.arrays import IntArray
from nearsure.errors import InvalidInputError

T = TypeVar("T")

# Streams of random numbers that must not meet.
CLASS_STREAM, VIEW_STREAM = 0, 1


def balanced_rows(
    codes: IntArray, *, classes_per_batch: int, images_per_class: int, seed: int, step: int
) -> IntArray:
    """Rows of a class-balanced batch.

    Parameters
    ----------
    codes : array of shape (n,)
        Class code of each image.
    classes_per_batch, images_per_class : int
        Every batch holds so many images of so many classes; a class with fewer gives some twice.
    seed, step : int
        Together they determine the batch.

    Returns
    -------
    array of shape (classes_per_batch * images_per_class,)
        Images of one class stand together.

    Examples
    --------
    >>> rows = balanced_rows(np.array([0, 0, 1, 1]), classes_per_batch=2, images_per_class=2,
    ...                      seed=0, step=0)
    >>> sorted(rows.tolist())
    [0, 1, 2, 3]
    """
    rng = np.random.default_rng([seed, CLASS_STREAM, step])
    order = np.argsort(codes, kind="stable")
    classes, starts, counts = np.unique(codes[order], return_index=True, return_counts=True)
    refuse_too_many_classes(classes_per_batch, len(classes))
    chosen = rng.choice(len(classes), classes_per_batch, replace=False)
    return np.concatenate(
        [
            order[starts[c] + rng.choice(counts[c], images_per_class, counts[c] < images_per_class)]
            for c in chosen
        ]
    )


def refuse_too_many_classes(classes_per_batch: int, n_classes: int) -> None:
    """Say so before anything is computed, if batches would need more classes than there are."""
    if classes_per_batch > n_classes:
        raise InvalidInputError(
            f"classes_per_batch must not exceed the {n_classes} classes of the train part. "
            f"Got {classes_per_batch} instead. Lower training.classes_per_batch; N-pairs, which "
            "takes pairs, has half of classes_per_batch * images_per_class."
        )


def view_generator(seed: int, step: int, position: int) -> np.random.Generator:
    """Randomness of one image of one batch."""
    return np.random.default_rng([seed, VIEW_STREAM, step, position])


def read_ahead(make: Callable[[int], T], steps: range) -> Iterator[T]:
    """``make(step)`` for each step, in order, the next one being made while one is used."""
    with ThreadPoolExecutor(max_workers=1) as worker:
        ahead = [worker.submit(make, step) for step in steps[:1]]
        for step in steps:
            current = ahead.pop()
            if step + 1 in steps:
                ahead.append(worker.submit(make, step + 1))
            yield current.result()
