"""White-box L-infinity attacks on an embedding: FGSM, BIM and PGD as one loop.

Images are in [0, 1], and whatever scaling the network wants is a part of the network, so that
epsilon means the same for every model.

References
----------
Goodfellow, Shlens, Szegedy: Explaining and Harnessing Adversarial Examples. ICLR 2015 (FGSM).
Kurakin, Goodfellow, Bengio: Adversarial Examples in the Physical World. 2016 (BIM).
Madry et al.: Towards Deep Learning Models Resistant to Adversarial Attacks. ICLR 2018 (PGD).
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import isfinite

import torch
from torch import Tensor, nn

from nearsure.errors import InvalidInputError, NearsureError, ZeroGradientError


@dataclass(frozen=True)
class Attack:
    """How far an attack may go, and in which steps; `fgsm`, `bim` and `pgd` make the known ones.

    Parameters
    ----------
    name : str
        What it is called in tables.
    epsilon : float
        No pixel changes by more; images are in [0, 1].
    step : float
        Length of a step along the sign of the gradient.
    n_steps : int
        Number of steps.
    random_start : bool
        Start anywhere in the ball of radius epsilon, not at the image.
    """

    name: str
    epsilon: float
    step: float
    n_steps: int
    random_start: bool

    def __post_init__(self) -> None:
        for name in ("epsilon", "step"):
            value = getattr(self, name)
            if not isfinite(value) or value < 0:
                raise InvalidInputError(
                    f"The '{name}' parameter of an attack must be a finite number, 0 or more, on "
                    f"images in [0, 1]. Got {value} instead."
                )
        if self.n_steps < 1:
            raise InvalidInputError(
                f"The 'n_steps' parameter of an attack must be at least 1. Got {self.n_steps} "
                "instead."
            )


def fgsm(epsilon: float) -> Attack:
    """One step of length epsilon along the sign of the gradient."""
    return Attack("fgsm", epsilon, epsilon, 1, random_start=False)


def bim(epsilon: float, *, step: float = 0.02, n_steps: int = 10) -> Attack:
    """Steps from the image, kept in the ball; the paper's ten of 0.02, by default, end at 0.2."""
    return Attack("bim", epsilon, step, n_steps, random_start=False)


def pgd(epsilon: float, *, step: float = 0.01, n_steps: int = 40) -> Attack:
    """Steps from a random place in the ball, kept in it; the paper's step and number by default."""
    return Attack("pgd", epsilon, step, n_steps, random_start=True)


@dataclass(frozen=True, eq=False)
class Attacked:
    """What an attack made.

    Parameters
    ----------
    images : tensor of shape (n, channels, height, width)
        Changed images in [0, 1].
    distance : tensor of shape (n,)
        The largest change of any pixel of each image, which may be less than epsilon.
    had_gradient : bool tensor of shape (n,)
        False where the gradient was zero at every step: that image was not attacked, and what
        the model says of it is no evidence of robustness.
    """

    images: Tensor
    distance: Tensor
    had_gradient: Tensor


def perturb(
    model: Callable[[Tensor], Tensor],
    images: Tensor,
    loss: Callable[[Tensor], Tensor],
    attack: Attack,
    generator: torch.Generator,
    *,
    gradient_required: bool = True,
) -> Attacked:
    """Move images, inside the attack's ball and [0, 1], so that the loss of their embeddings rises.

    Parameters
    ----------
    model : callable, such as a nn.Module
        Images in [0, 1] to embeddings. A module is in eval mode while it is attacked, and every
        part of it is put back afterwards.
    images : tensor of shape (n, channels, height, width)
        Images in [0, 1]; they are not changed.
    loss : callable
        Embeddings to one loss for each image, shape (n,), or to one number for all.
    attack : Attack
        Which.
    generator : torch.Generator
        Of the random start.
    gradient_required : bool
        Raise if no image has a gradient. Training, where a batch may have no loss, does without.

    Returns
    -------
    Attacked

    Raises
    ------
    ZeroGradientError
        If the gradient is zero for every image at every step.
    NearsureError
        If the model or the loss gives a number that is not finite.
    """
    start = images.detach()
    _check_images(start)
    moved = start.clone()
    if attack.random_start:
        noise = torch.empty_like(start).uniform_(-1, 1, generator=generator)
        moved = (start + attack.epsilon * noise).clamp(0, 1)
    had_gradient = torch.zeros(len(images), dtype=torch.bool, device=images.device)
    with _in_eval_mode(model):
        for _ in range(attack.n_steps):
            gradient = _gradient(model, moved, loss)
            had_gradient |= gradient.flatten(1).any(dim=1)
            change = moved + attack.step * gradient.sign() - start
            moved = (start + change.clamp(-attack.epsilon, attack.epsilon)).clamp(0, 1)
    if gradient_required and not had_gradient.any():
        raise ZeroGradientError(
            f"The gradient of the loss is zero for all {len(images)} images at every step of "
            f"{attack.name}: nothing was attacked. Is each query its own anchor (use a random "
            "start), does the loss ignore the embedding, or is it saturated?"
        )
    distance = (moved - start).abs().flatten(1).amax(dim=1)
    return Attacked(moved, distance, had_gradient)


def _gradient(
    model: Callable[[Tensor], Tensor], images: Tensor, loss: Callable[[Tensor], Tensor]
) -> Tensor:
    # The caller may be in no_grad or inference mode; an attack is nothing without gradients.
    with torch.inference_mode(mode=False), torch.enable_grad():
        images = images.clone().requires_grad_()
        embeddings = model(images)
        _check_finite("model", embeddings)
        losses = loss(embeddings)
        _check_finite("loss", losses)
        if not losses.requires_grad:
            return torch.zeros_like(images)
        (gradient,) = torch.autograd.grad(losses.sum(), images, allow_unused=True)
        if gradient is None:
            return torch.zeros_like(images)
        _check_finite("gradient of the loss", gradient)
        return gradient.detach()


@contextmanager
def _in_eval_mode(model: Callable[[Tensor], Tensor]) -> Iterator[None]:
    """Batch normalisation and dropout as in use; afterwards each part is as it was."""
    parts = list(model.modules()) if isinstance(model, nn.Module) else []
    modes = [part.training for part in parts]
    if isinstance(model, nn.Module):
        model.eval()
    try:
        yield
    finally:
        for part, mode in zip(parts, modes, strict=True):
            part.training = mode


def _check_images(images: Tensor) -> None:
    if images.ndim != 4 or not images.numel() or not images.is_floating_point():  # noqa: PLR2004
        raise InvalidInputError(
            "Images must be a tensor of floats of the shape (n, channels, height, width). "
            f"Got {images.dtype} of shape {tuple(images.shape)} instead."
        )
    low, high = float(images.min()), float(images.max())
    if not (low >= 0 and high <= 1):
        raise InvalidInputError(
            f"Images must be in [0, 1], as epsilon is measured there. Got values from {low:g} to "
            f"{high:g} instead: divide by 255, and leave other scaling to the model."
        )


def _check_finite(what: str, values: Tensor) -> None:
    if not torch.isfinite(values).all():
        raise NearsureError(
            f"The {what} under attack gave a number that is not finite. Check that the model gives "
            "finite embeddings for images in [0, 1], in eval mode."
        )
