"""The attacks of foolbox, given the same loss, make the same images."""

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from small_networks import EMBEDDING_SIZE, pictures, seeded, small_network
from torch import Tensor, nn

from nearsure.robustness.attack_losses import (
    against_proxies,
    confidence_in_a_wrong_class,
    distance_to_anchors,
)
from nearsure.robustness.attacks import Attack, bim, fgsm, perturb, pgd

with warnings.catch_warnings():
    # Of an attack that blurs, which is not used here.
    warnings.filterwarnings("ignore", "Please import `gaussian_filter`", DeprecationWarning)
    from eagerpy.astensor import astensor
    from foolbox.attacks.basic_iterative_method import LinfBasicIterativeAttack
    from foolbox.attacks.fast_gradient_method import LinfFastGradientAttack
    from foolbox.attacks.projected_gradient_descent import LinfProjectedGradientDescentAttack
    from foolbox.criteria import Misclassification
    from foolbox.models.pytorch import PyTorchModel

CODES = torch.tensor([0, 1, 2, 0, 1, 2])
Loss = Callable[[Tensor], Tensor]
CLASSES: dict[str, Any] = {
    "fgsm": LinfFastGradientAttack,
    "bim": LinfBasicIterativeAttack,
    "pgd": LinfProjectedGradientDescentAttack,
}


def vectors(seed: int, n: int) -> Tensor:
    drawn = torch.randn(n, EMBEDDING_SIZE, generator=seeded(seed), dtype=torch.float64)
    return nn.functional.normalize(drawn, dim=1)


LOSSES: dict[str, Loss] = {
    "proxies": against_proxies(vectors(2, 3), CODES, temperature=0.05),
    "anchors": distance_to_anchors(vectors(3, 6)),
    "confidence": confidence_in_a_wrong_class(
        vectors(4, 9), torch.arange(9) % 3, CODES, temperature=0.2
    ),
}


def by_foolbox(
    network: nn.Module, images: Tensor, loss: Loss, attack: Attack, *, our_start: bool = True
) -> Tensor:
    """The same attack; where it starts at random, from where ours starts with `seeded()`."""
    options: dict[str, Any] = {"random_start": attack.random_start}
    if attack.name != "fgsm":
        options |= {"rel_stepsize": None, "abs_stepsize": attack.step, "steps": attack.n_steps}
    theirs = CLASSES[attack.name](**options)
    theirs.get_loss_fn = lambda *_: lambda inputs: astensor(loss(network(inputs.raw)).sum())
    if our_start:
        noise = torch.empty_like(images).uniform_(-1, 1, generator=seeded())
        theirs.get_random_start = lambda x0, epsilon: x0 + astensor(epsilon * noise)
    model = PyTorchModel(network, bounds=(0, 1), device="cpu")
    attacked: Tensor = theirs.run(model, images, Misclassification(CODES), epsilon=attack.epsilon)
    return attacked.detach()


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("make", [fgsm, bim, pgd])
@pytest.mark.parametrize("epsilon", [8 / 255, 0.1, 0.3])
def test_the_same_images_as_foolbox(
    make: Callable[[float], Attack], epsilon: float, name: str
) -> None:
    # In float64, where no gradient is so near zero that rounding decides its sign.
    network, images, attack = small_network(), pictures(), make(epsilon)
    ours = perturb(network, images, LOSSES[name], attack, seeded())
    theirs = by_foolbox(network, images, LOSSES[name], attack)
    torch.testing.assert_close(ours.images, theirs, rtol=0, atol=1e-9)


def test_in_float32_one_step_is_the_same_too() -> None:
    network, images = small_network(torch.float32), pictures(torch.float32)
    loss = against_proxies(vectors(2, 3).float(), CODES, temperature=0.05)
    ours = perturb(network, images, loss, fgsm(0.1), seeded())
    theirs = by_foolbox(network, images, loss, fgsm(0.1))
    torch.testing.assert_close(ours.images, theirs, rtol=0, atol=1e-6)


def test_foolbox_s_own_random_starts_lead_as_far() -> None:
    network, images, loss = small_network(), pictures(), LOSSES["proxies"]
    attack, n_starts = pgd(0.1, step=0.02, n_steps=10), 20
    ours = [perturb(network, images, loss, attack, seeded(i)).images for i in range(n_starts)]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)  # foolbox knows no other generator
        theirs = [
            by_foolbox(network, images, loss, attack, our_start=False) for _ in range(n_starts)
        ]
    with torch.no_grad():
        clean = loss(network(images))
        reached = [torch.stack([loss(network(x)) for x in found]) for found in (ours, theirs)]
    error = ((reached[0].var(dim=0) + reached[1].var(dim=0)) / n_starts).sqrt()
    difference = reached[0].mean(dim=0) - reached[1].mean(dim=0)
    assert (difference.abs() <= 4 * error).all()
    assert (error < (reached[0].mean(dim=0) - clean) / 100).all()
