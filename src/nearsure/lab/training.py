"""The training loop: AdamW, a warm-up and a half cosine, and a checkpoint that can be taken up."""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor, nn
from tqdm import tqdm

from nearsure.errors import NearsureError
from nearsure.lab.batches import read_ahead
from nearsure.lab.checkpoint import TrainingState
from nearsure.lab.config import TrainingSettings

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
