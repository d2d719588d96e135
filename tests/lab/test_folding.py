"""Networks without batch normalisation: the same outputs and gradients, the original untouched."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from nearsure.lab.config import BackboneName
from nearsure.lab.network import Embedder, fold_batch_norm, make_backbone

BACKBONES: tuple[BackboneName, ...] = ("small-cnn", "efficientnet-lite0")


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Threads that wait for each other would take most of the time of such small steps."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module", params=BACKBONES)
def embedder(request: pytest.FixtureRequest) -> Embedder:
    """In eval mode, with statistics that are not those of a network that never learnt."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        made = Embedder(make_backbone(request.param), 8, layer_norm=True)
        for part in made.modules():
            if isinstance(part, nn.BatchNorm2d) and request.param == "small-cnn":
                nn.init.normal_(part.running_mean, std=0.3)  # type: ignore[arg-type]
                nn.init.uniform_(part.running_var, 0.5, 2)  # type: ignore[arg-type]
                nn.init.uniform_(part.weight, 0.5, 2)
                nn.init.normal_(part.bias, std=0.3)
    return made.eval()


def images() -> Tensor:
    return torch.rand(3, 3, 32, 32, generator=torch.Generator().manual_seed(1))


def output_and_gradient(network: nn.Module, inputs: Tensor) -> tuple[Tensor, Tensor]:
    inputs = inputs.clone().requires_grad_()
    output = network(inputs)
    weights = torch.linspace(-1, 1, output.numel(), dtype=output.dtype).view_as(output)
    (gradient,) = torch.autograd.grad((weights * output).sum(), inputs)
    return output.detach(), gradient


def test_outputs_and_gradients_of_inputs_are_the_same(embedder: Embedder) -> None:
    # In float64, where nothing but a mistake could tell them apart.
    exact = Embedder(embedder.backbone, 8, layer_norm=True)
    exact.load_state_dict(embedder.state_dict())
    exact.double().eval()
    try:
        ours = output_and_gradient(fold_batch_norm(exact), images().double())
        theirs = output_and_gradient(exact, images().double())
    finally:
        exact.float()  # the backbone is shared
    for found, expected in zip(ours, theirs, strict=True):
        torch.testing.assert_close(
            found, expected, rtol=1e-9, atol=1e-9 * float(expected.abs().max())
        )


def test_in_float32_they_differ_by_rounding(embedder: Embedder) -> None:
    ours = output_and_gradient(fold_batch_norm(embedder), images())
    theirs = output_and_gradient(embedder, images())
    for found, expected in zip(ours, theirs, strict=True):
        assert (found - expected).norm() < 1e-4 * expected.norm()


def test_nothing_is_left_to_normalise_and_nothing_learns(embedder: Embedder) -> None:
    copy = fold_batch_norm(embedder)
    assert any(isinstance(part, nn.BatchNorm2d) for part in embedder.modules())
    assert not any(isinstance(part, nn.BatchNorm2d) for part in copy.modules())
    assert not any(parameter.requires_grad for parameter in copy.parameters())
    assert not any(part.training for part in copy.modules())


def test_the_original_stays_as_it_was(embedder: Embedder) -> None:
    embedder.train()
    modes = [part.training for part in embedder.modules()]
    state = {key: value.clone() for key, value in embedder.state_dict().items()}
    parameters = list(embedder.parameters())
    with torch.no_grad():
        for parameter in fold_batch_norm(embedder).parameters():
            parameter.zero_()
    assert [part.training for part in embedder.modules()] == modes
    assert all(a is b for a, b in zip(embedder.parameters(), parameters, strict=True))
    assert all(parameter.requires_grad for parameter in parameters)
    now = embedder.state_dict()
    assert now.keys() == state.keys()
    assert all(torch.equal(now[key], value) for key, value in state.items())
    embedder.eval()
