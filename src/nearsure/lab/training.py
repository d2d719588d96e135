"""The training loop, its batches and its checkpoint."""

import ctypes
import math
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from tqdm import tqdm

from nearsure.arrays import IntArray
from nearsure.atomic import atomic_write
from nearsure.errors import InvalidInputError, NearsureError
from nearsure.lab.config import TrainingSettings

# Batches of a training run: each a pure function of the seed and the step.
#
# Nothing is remembered between steps, so a run that resumes at step 500 sees what it would have
# seen.


T = TypeVar("T")

# Raised when the same settings begin to give other weights, so that cached ones are not taken.
VERSION = 1
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


@dataclass(frozen=True)
class TrainingState:
    """All that changes while a run trains.

    Parameters
    ----------
    modules : dict of nn.Module
        Embedder and loss.
    optimizer : torch.optim.Optimizer
        With its moments.
    """

    modules: dict[str, nn.Module]
    optimizer: torch.optim.Optimizer

    def save(self, path: Path, *, step: int, history: list[float]) -> None:
        """Write the state after `step` steps and the losses so far."""
        tensors: dict[str, Tensor] = {"history": torch.tensor(history, dtype=torch.float64)}
        for name, module in self.modules.items():
            for key, tensor in module.state_dict().items():
                tensors[f"{name}/{key}"] = tensor
        for index, moments in self.optimizer.state_dict()["state"].items():
            for key, tensor in moments.items():
                tensors[f"optimizer/{index}/{key}"] = tensor
        # Weights in channels-last order are stored in plain order, which safetensors wants.
        plain = {key: tensor.detach().clone().contiguous() for key, tensor in tensors.items()}
        with atomic_write(path, keep_suffix=True) as draft:
            save_file(plain, draft, metadata={"step": str(step)})

    def load(self, path: Path) -> tuple[int, list[float]]:
        """Take up the state of a file; gives the step and the losses so far."""
        tensors, step = read_tensors(path)
        for name, module in self.modules.items():
            module.load_state_dict(below(tensors, name))
        moments: dict[int, dict[str, Tensor]] = {}
        for key, tensor in below(tensors, "optimizer").items():
            index, _, name = key.partition("/")
            moments.setdefault(int(index), {})[name] = tensor
        state = self.optimizer.state_dict()
        self.optimizer.load_state_dict({**state, "state": moments})
        return step, tensors["history"].tolist()


def read_tensors(path: Path) -> tuple[dict[str, Tensor], int]:
    """All tensors of a checkpoint, and its step."""
    try:
        with safe_open(path, framework="pt") as file:
            step = int((file.metadata() or {})["step"])
            return {key: file.get_tensor(key) for key in file.keys()}, step  # noqa: SIM118
    except (OSError, SafetensorError, KeyError) as error:
        raise NearsureError(
            f"{path} is not a checkpoint ({error}). Delete it and run again; training "
            "starts from the beginning."
        ) from error


def below(tensors: dict[str, Tensor], name: str) -> dict[str, Tensor]:
    """The tensors of one module, without its name."""
    return {
        key.removeprefix(f"{name}/"): tensor
        for key, tensor in tensors.items()
        if key.startswith(f"{name}/")
    }


Batch = tuple[Tensor, Tensor]

CHECKPOINT = "checkpoint.safetensors"
SECONDS_BETWEEN_CHECKPOINTS = 60.0


def n_steps(settings: TrainingSettings, n_images: int) -> int:
    """Steps of a run: as many images as `epochs` passes over the train part."""
    batch = settings.classes_per_batch * settings.images_per_class
    return max(1, math.ceil(settings.epochs * n_images / batch))


def rate_factor(step: int, steps: int, warmup: float) -> float:
    """Share of the learning rate at a step; the top lies between two steps.

    Examples
    --------
    >>> [round(rate_factor(step, 100, 0.1), 2) for step in (0, 9, 55, 99)]
    [0.1, 1.0, 0.5, 0.0]
    """
    rising = warmup * steps
    if step < rising:
        return (step + 1) / max(rising, 1)
    return (1 + math.cos(math.pi * (step - rising) / (steps - rising))) / 2


def train(
    embed: Callable[[Tensor], Tensor],
    modules: dict[str, nn.Module],
    make_batch: Callable[[int], Batch],
    settings: TrainingSettings,
    *,
    steps: int,
    folder: Path,
    stop_after: int | None = None,
    disturb: Callable[[Tensor, Tensor, int], Tensor] | None = None,
) -> list[float]:
    """Train, from where an earlier call stopped if there is a checkpoint.

    Parameters
    ----------
    embed : callable
        Inputs of a batch to embeddings.
    modules : dict of nn.Module
        "embedder" and "loss"; they are changed.
    make_batch : callable
        ``make_batch(step)`` gives inputs and class codes, and depends on nothing but the step.
    settings : TrainingSettings
        Learning rates and schedule.
    steps : int
        Length of the run.
    folder : Path
        Holds the checkpoint.
    stop_after : int, optional
        Leave after this step with a checkpoint, as if interrupted.
    disturb : callable, optional
        ``disturb(inputs, codes, step)`` gives the inputs to learn from in place of a batch's own:
        adversarial training.

    Returns
    -------
    list of float
        The loss at each step.

    Raises
    ------
    NearsureError
        If the loss is no longer a finite number.
    """
    optimizer = _optimizer(modules, settings)
    rates = [group["lr"] for group in optimizer.param_groups]
    state = TrainingState(modules, optimizer)
    path = folder / CHECKPOINT
    done, history = state.load(path) if path.exists() else (0, [])
    resumed = done
    last = steps if stop_after is None else min(stop_after, steps)
    loss_of = modules["loss"]
    for module in modules.values():
        module.train()
    saved = time.monotonic()
    bar = tqdm(total=steps, initial=done, desc=f"train {settings.loss}", unit="step", disable=None)
    with bar, _deterministic():
        for inputs, codes in read_ahead(make_batch, range(done, last)):
            for group, rate in zip(optimizer.param_groups, rates, strict=True):
                group["lr"] = rate * rate_factor(done, steps, settings.warmup)
            seen = inputs if disturb is None else disturb(inputs, codes, done)
            loss = loss_of(embed(seen), codes)
            history.append(loss.item())
            if not math.isfinite(history[-1]):
                raise NearsureError(
                    f"Training with {settings.loss} came to a loss of {history[-1]} at step {done}."
                    " Lower learning_rate or proxy_learning_rate."
                )
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            done += 1
            bar.update()
            bar.set_postfix(loss=f"{history[-1]:.3f}", refresh=False)
            if time.monotonic() - saved > SECONDS_BETWEEN_CHECKPOINTS:
                state.save(path, step=done, history=history)
                saved = time.monotonic()
    if done > resumed:
        state.save(path, step=done, history=history)
    for module in modules.values():
        module.eval()
    return history


def _optimizer(modules: dict[str, nn.Module], settings: TrainingSettings) -> torch.optim.Optimizer:
    """AdamW; proxies learn at a rate of their own and do not decay."""
    network = [p for p in modules["embedder"].parameters() if p.requires_grad]
    proxies = list(modules["loss"].parameters())
    groups = [
        {"params": network, "lr": settings.learning_rate, "weight_decay": settings.weight_decay},
        {"params": proxies, "lr": settings.proxy_learning_rate, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW([group for group in groups if group["params"]])


@contextmanager
def _deterministic() -> Iterator[None]:
    """Only operations whose result does not depend on chance."""
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(mode=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(mode=before)


# Let the C library keep freed memory.
#
# A training step frees and takes gigabytes again. glibc gives large blocks back to the kernel and
# fetches them again zeroed, page by page: about a fifth of the time of a step on two cores.


# From malloc.h.
M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_MAX = -1, -2, -4
KEEP_ALL = 2**31 - 1
TOP_PAD = 64 * 2**20


def tune_malloc() -> bool:
    """Ask for it, where the C library is glibc; says whether it was done."""
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    options = ((M_MMAP_MAX, 0), (M_TRIM_THRESHOLD, KEEP_ALL), (M_TOP_PAD, TOP_PAD))
    return all(mallopt(option, value) == 1 for option, value in options)
