"""Attacks: closed form on linear models, inside ball and cube, and no trace left on the model."""

import math
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from small_networks import EMBEDDING_SIZE, Linear, pictures, seeded, small_network
from torch import Tensor, nn

from nearsure.errors import InvalidInputError, NearsureError, ZeroGradientError
from nearsure.robustness.attack_losses import (
    against_proxies,
    confidence_in_a_wrong_class,
    distance_to_anchors,
)
from nearsure.robustness.attacks import Attack, bim, fgsm, perturb, pgd

CODES = torch.tensor([0, 1, 2, 0, 1, 2])
ALL = [fgsm(0.1), bim(0.1), pgd(0.1), fgsm(0.3), bim(0.3), pgd(0.3), pgd(4 / 255, n_steps=3)]


def total(embeddings: Tensor) -> Tensor:
    return embeddings.sum(dim=1)


def proxy_loss(dtype: torch.dtype = torch.float64) -> Callable[[Tensor], Tensor]:
    proxies = torch.randn(3, EMBEDDING_SIZE, generator=seeded(2), dtype=torch.float64)
    return against_proxies(proxies.to(dtype), CODES, temperature=0.05)


def weights() -> Tensor:
    """Of a linear model; the gradient of one pixel is zero."""
    drawn = torch.randn(3, 8, 8, generator=seeded(5), dtype=torch.float64)
    drawn[0, 0, 0] = 0
    return drawn


def reach(attack: Attack) -> float:
    """The farthest that a pixel can get."""
    steps = attack.n_steps * attack.step
    return attack.epsilon if attack.random_start else min(attack.epsilon, steps)


def modes(model: nn.Module) -> list[bool]:
    return [part.training for part in model.modules()]


@pytest.mark.parametrize("epsilon", [0.1, 0.3])
@pytest.mark.parametrize("make", [fgsm, bim, pgd])
def test_on_a_linear_model_every_pixel_goes_along_the_sign_of_its_weight(
    make: Callable[[float], Attack], epsilon: float
) -> None:
    attack, images, w = make(epsilon), pictures(), weights()
    found = perturb(Linear(w), images, total, attack, seeded())
    expected = (images + reach(attack) * w.sign()).clamp(0, 1)
    moving = (w != 0).expand_as(images)
    # PGD's 40 steps of 0.01 cross the ball of 0.1 from anywhere, but not that of 0.3 twice over.
    crosses = not attack.random_start or attack.n_steps * attack.step >= 2 * epsilon
    if crosses:
        torch.testing.assert_close(found.images[moving], expected[moving], rtol=0, atol=1e-12)
    else:
        pushed = (found.images - expected)[moving] * w.sign().expand_as(images)[moving]
        assert (pushed <= 1e-12).all()
    if not attack.random_start:
        torch.testing.assert_close(found.images[~moving], images[~moving], rtol=0, atol=0)
    changes = (found.images - images).abs().flatten(1).amax(dim=1)
    torch.testing.assert_close(found.distance, changes)
    assert found.had_gradient.all()


def test_pgd_is_its_random_start_and_the_steps_from_there() -> None:
    images, w, epsilon = pictures(), weights(), 0.3
    noise = torch.empty_like(images).uniform_(-1, 1, generator=seeded(7))
    start = (images + epsilon * noise).clamp(0, 1)
    expected = start
    for _ in range(5):
        expected = (expected + 0.01 * w.sign()).clamp(images - epsilon, images + epsilon)
        expected = expected.clamp(0, 1)
    found = perturb(Linear(w), images, total, pgd(epsilon, n_steps=5), seeded(7))
    torch.testing.assert_close(found.images, expected, rtol=0, atol=1e-12)


def test_the_paper_s_bim_gets_no_farther_than_its_steps() -> None:
    attack = bim(0.3)
    assert (attack.step, attack.n_steps) == (0.02, 10)
    grey = torch.full((2, 3, 8, 8), 0.5, dtype=torch.float64)
    found = perturb(Linear(weights()), grey, total, attack, seeded())
    torch.testing.assert_close(found.distance, torch.full((2,), 0.2, dtype=torch.float64))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("attack", ALL, ids=str)
def test_images_stay_in_the_ball_and_the_cube(attack: Attack, dtype: torch.dtype) -> None:
    images = pictures(dtype)
    found = perturb(small_network(dtype), images, proxy_loss(dtype), attack, seeded())
    assert found.images.dtype == dtype
    assert ((found.images >= 0) & (found.images <= 1)).all()
    changes = (found.images.double() - images.double()).abs()
    assert changes.max() <= attack.epsilon + 4 * torch.finfo(dtype).eps
    assert (changes.flatten(1).amax(dim=1) > reach(attack) / 2).all()


# A single step of 0.3 may overshoot.
@pytest.mark.parametrize("attack", [one for one in ALL if one.step < 0.3], ids=str)
def test_the_loss_rises(attack: Attack) -> None:
    network, images, loss = small_network(), pictures(), proxy_loss()
    found = perturb(network, images, loss, attack, seeded())
    assert (loss(network(found.images)) > loss(network(images))).all()


def test_a_random_start_lies_anywhere_in_the_ball_and_the_cube() -> None:
    images = pictures()
    still = Attack("start", 0.1, 0.0, 1, random_start=True)
    found = perturb(small_network(), images, proxy_loss(), still, seeded())
    changes = found.images - images
    inside = (images > 0.1) & (images < 0.9)
    assert changes.abs().max() <= 0.1
    assert changes[inside].abs().max() > 0.099
    assert abs(float(changes[inside].mean())) < 0.01
    assert abs(float(changes[inside].std()) - 0.2 / math.sqrt(12)) < 0.005
    assert ((found.images >= 0) & (found.images <= 1)).all()


def test_the_generator_alone_decides_the_random_start() -> None:
    def attacked(seed: int) -> Tensor:
        attack = pgd(0.1, n_steps=2)
        return perturb(small_network(), pictures(), proxy_loss(), attack, seeded(seed)).images

    state = torch.get_rng_state()
    assert torch.equal(attacked(0), attacked(0))
    assert not torch.equal(attacked(0), attacked(1))
    assert torch.equal(torch.get_rng_state(), state)


def test_images_are_attacked_one_by_one_whatever_the_batch() -> None:
    network, images = small_network(), pictures()
    scale = torch.arange(6, dtype=torch.float64) + 1
    each = [perturb(network, image[None], total, bim(0.1), seeded()).images for image in images]
    for loss in (total, lambda z: total(z) * scale, lambda z: total(z).mean()):
        found = perturb(network, images, loss, bim(0.1), seeded())
        torch.testing.assert_close(found.images, torch.cat(each), rtol=0, atol=1e-12)


@pytest.mark.parametrize("attack", [fgsm(0.1), pgd(0.1, n_steps=3)], ids=str)
def test_the_model_leaves_an_attack_as_it_came(attack: Attack) -> None:
    network = small_network().train()
    network[1].eval()  # as a backbone that keeps its statistics
    before, state = modes(network), {k: v.clone() for k, v in network.state_dict().items()}
    images = pictures()
    given = images.clone()
    seen: list[bool] = []
    network.register_forward_hook(lambda module, *_: seen.extend(modes(module)))
    found = perturb(network, images, proxy_loss(), attack, seeded())
    assert seen
    assert not any(seen)
    assert modes(network) == before
    assert all(torch.equal(state[key], value) for key, value in network.state_dict().items())
    assert all(parameter.grad is None for parameter in network.parameters())
    assert all(parameter.requires_grad for parameter in network.parameters())
    assert torch.equal(images, given)
    assert found.images.data_ptr() != images.data_ptr()
    assert not found.images.requires_grad
    expected = perturb(small_network(), images, proxy_loss(), attack, seeded())
    assert torch.equal(found.images, expected.images)


def test_the_mode_is_given_back_after_an_error() -> None:
    network = small_network().train()
    network[3].eval()
    before = modes(network)

    def broken(_: Tensor) -> Tensor:
        raise RuntimeError("no loss")

    with pytest.raises(RuntimeError, match="no loss"):
        perturb(network, pictures(), broken, fgsm(0.1), seeded())
    assert modes(network) == before


def test_no_gradients_reach_a_loss_with_parameters_either() -> None:
    proxies = nn.Parameter(torch.randn(3, EMBEDDING_SIZE, dtype=torch.float64, generator=seeded()))
    loss = against_proxies(proxies, CODES, temperature=0.05)
    perturb(small_network(), pictures(), loss, pgd(0.1, n_steps=3), seeded())
    assert proxies.grad is None


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_an_attack_has_gradients_where_the_caller_wants_none(
    mode: Callable[[], torch.no_grad],
) -> None:
    attack = pgd(0.1, n_steps=3)
    expected = perturb(small_network(), pictures(), proxy_loss(), attack, seeded())
    network = small_network()
    with mode():
        found = perturb(network, pictures(), proxy_loss(), attack, seeded())
    assert torch.equal(found.images, expected.images)
    assert found.had_gradient.all()


def test_images_that_want_gradients_are_taken_as_they_are() -> None:
    images = pictures().requires_grad_()
    found = perturb(small_network(), images, proxy_loss(), fgsm(0.1), seeded())
    expected = perturb(small_network(), pictures(), proxy_loss(), fgsm(0.1), seeded())
    assert torch.equal(found.images, expected.images)
    assert images.grad is None


@pytest.mark.parametrize("attack", [fgsm(0.1), bim(0.1)], ids=str)
def test_a_query_that_is_its_own_anchor_cannot_be_attacked_from_where_it_is(
    attack: Attack,
) -> None:
    network, images = small_network(), pictures()
    own = distance_to_anchors(network(images).detach())
    with pytest.raises(ZeroGradientError, match=r"zero for all 6 images .* random start"):
        perturb(network, images, own, attack, seeded())
    found = perturb(network, images, own, attack, seeded(), gradient_required=False)
    assert torch.equal(found.images, images)
    assert not found.had_gradient.any()
    assert (found.distance == 0).all()


def test_a_random_start_takes_a_query_away_from_itself() -> None:
    network, images = small_network(), pictures()
    own = distance_to_anchors(network(images).detach())
    found = perturb(network, images, own, pgd(0.1), seeded())
    assert found.had_gradient.all()
    start = perturb(network, images, own, Attack("start", 0.1, 0, 1, random_start=True), seeded())
    assert (own(network(found.images)) > 2 * own(network(start.images))).all()


def test_images_without_a_gradient_are_named() -> None:
    network, images = small_network(), pictures()
    anchors = network(images).detach()
    anchors[[1, 4]] = anchors[[0, 0]]
    found = perturb(network, images, distance_to_anchors(anchors), bim(0.1), seeded())
    assert found.had_gradient.tolist() == [False, True, False, False, True, False]
    assert torch.equal(found.images[~found.had_gradient], images[~found.had_gradient])
    assert found.distance[found.had_gradient].min() > 0.05


@pytest.mark.parametrize("steps", [{0}, {4}, {9}])
def test_a_gradient_at_any_step_counts(steps: set[int]) -> None:
    calls: list[int] = []

    def now_and_then(embeddings: Tensor) -> Tensor:
        calls.append(len(calls))
        return total(embeddings) * (calls[-1] in steps)

    found = perturb(Linear(weights()), pictures(), now_and_then, bim(0.1), seeded())
    assert calls == list(range(10))
    assert found.had_gradient.all()
    torch.testing.assert_close(found.distance, torch.full((6,), 0.02, dtype=torch.float64))


@pytest.mark.parametrize("loss", [lambda _: torch.zeros(6), lambda z: z.detach().sum(dim=1)])
def test_a_loss_that_ignores_the_embedding_is_no_robustness(
    loss: Callable[[Tensor], Tensor],
) -> None:
    with pytest.raises(ZeroGradientError, match="ignore the embedding"):
        perturb(small_network(), pictures(), loss, pgd(0.1), seeded())


@pytest.mark.parametrize("value", [-0.1, math.nan, math.inf])
@pytest.mark.parametrize("name", ["epsilon", "step"])
def test_bad_sizes_are_refused(name: str, value: float) -> None:
    sizes = {"epsilon": 0.1, "step": 0.1, name: value}
    with pytest.raises(InvalidInputError, match=f"The '{name}' parameter .* Got {value} instead"):
        Attack("x", **sizes, n_steps=1, random_start=False)


def test_no_step_is_refused() -> None:
    with pytest.raises(InvalidInputError, match=r"'n_steps' .* at least 1\. Got 0 instead"):
        pgd(0.1, n_steps=0)


@pytest.mark.parametrize(
    ("images", "sentence"),
    [
        (pictures() * 255, r"Images must be in \[0, 1\].* to 255 instead: divide by 255"),
        (pictures() * 2 - 1, r"Images must be in \[0, 1\].* from -1 to 1 instead"),
        (pictures() * math.nan, r"Images must be in \[0, 1\].* from nan to nan"),
        (pictures()[0], r"shape \(n, channels, height, width\). Got .* of shape \(3, 8, 8\)"),
        (pictures()[:0], r"Got .* of shape \(0, 3, 8, 8\)"),
        (pictures()[:, :, :0], r"Got .* of shape \(6, 3, 0, 8\)"),
        ((pictures() * 255).to(torch.uint8), r"a tensor of floats .* Got torch.uint8"),
    ],
)
def test_bad_images_are_refused(images: Tensor, sentence: str) -> None:
    with pytest.raises(InvalidInputError, match=sentence):
        perturb(small_network(), images, proxy_loss(), fgsm(0.1), seeded())


def test_what_is_not_finite_is_said() -> None:
    network, images = small_network(), pictures()
    with pytest.raises(NearsureError, match="The model under attack gave a number that is not"):
        perturb(lambda x: network(x) * math.nan, images, total, fgsm(0.1), seeded())
    with pytest.raises(NearsureError, match="The loss under attack gave a number that is not"):
        perturb(network, images, lambda z: total(z) / 0, fgsm(0.1), seeded())
    with pytest.raises(NearsureError, match="The gradient of the loss under attack gave"):
        perturb(network, images, lambda z: (total(z) * 0).abs().sqrt(), fgsm(0.1), seeded())


def test_an_attack_of_no_size_changes_nothing() -> None:
    images = pictures()
    for attack in (fgsm(0.0), bim(0.0), pgd(0.0)):
        found = perturb(small_network(), images, proxy_loss(), attack, seeded())
        torch.testing.assert_close(found.images, images, rtol=0, atol=0)
        assert (found.distance == 0).all()


with warnings.catch_warnings():
    # Of an attack that blurs, which is not used here.
    warnings.filterwarnings("ignore", "Please import `gaussian_filter`", DeprecationWarning)
    from eagerpy.astensor import astensor
    from foolbox.attacks.basic_iterative_method import LinfBasicIterativeAttack
    from foolbox.attacks.fast_gradient_method import LinfFastGradientAttack
    from foolbox.attacks.projected_gradient_descent import LinfProjectedGradientDescentAttack
    from foolbox.criteria import Misclassification
    from foolbox.models.pytorch import PyTorchModel

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
