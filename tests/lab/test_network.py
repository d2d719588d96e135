"""The embedder, and batch normalisation folded away."""

from functools import cache

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from nearsure.errors import NearsureError
from nearsure.lab.config import (
    LOSSES,
    DatasetSettings,
    ModelSettings,
    RunSettings,
    TrainingSettings,
)
from nearsure.lab.network import (
    EfficientNetLite0,
    Embedder,
    SmallCNN,
    finite,
    fold_batch_norm,
    make_embedder,
    on_sphere,
    to_tensor,
)


class Flat(nn.Module):
    """The pixels themselves."""

    n_features = 12

    def forward(self, images: Tensor) -> Tensor:
        return images.flatten(1)


@cache
def efficientnet() -> EfficientNetLite0:
    return EfficientNetLite0()


def settings(seed: int = 0, **training: str) -> RunSettings:
    return RunSettings(
        dataset=DatasetSettings(name="glyphs", image_size=32),
        model=ModelSettings(backbone="small-cnn", embedding_size=16),
        training=TrainingSettings.model_validate(training),
        seed=seed,
    )


def images(n: int = 5, size: int = 2) -> Tensor:
    return torch.rand(n, 3, size, size, generator=torch.Generator().manual_seed(0))


def test_the_head_is_linear_without_bias_and_layer_normalised() -> None:
    embedder = Embedder(Flat(), 4, layer_norm=True)
    (weight,) = embedder.parameters()
    assert weight.shape == (4, 12)
    plain = images().flatten(1).double().numpy() @ weight.detach().double().numpy().T
    centred = plain - plain.mean(axis=1, keepdims=True)
    expected = centred / np.sqrt(plain.var(axis=1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(embedder(images()).detach().numpy(), expected, rtol=1e-3, atol=1e-5)
    without = Embedder(Flat(), 4, layer_norm=False)
    without.load_state_dict(embedder.state_dict())
    np.testing.assert_allclose(without(images()).detach().numpy(), plain, rtol=1e-4, atol=1e-6)


def test_without_a_size_the_features_are_the_embedding() -> None:
    embedder = Embedder(Flat(), None, layer_norm=False)
    assert embedder.embedding_size == 12
    assert not list(embedder.parameters())
    torch.testing.assert_close(embedder(images()), images().flatten(1))


def test_the_head_starts_with_rows_at_right_angles() -> None:
    (weight,) = Embedder(Flat(), 4, layer_norm=True).parameters()
    torch.testing.assert_close(weight @ weight.T, torch.eye(4), atol=1e-5, rtol=0)


def test_images_go_the_same_way_as_their_features() -> None:
    embedder = make_embedder(settings()).eval()
    pictures = images(3, 32)
    torch.testing.assert_close(
        embedder(pictures), embedder.from_features(embedder.backbone(pictures))
    )


def test_on_the_sphere_every_length_is_one_and_directions_stay() -> None:
    vectors = torch.tensor([[3.0, 4.0], [-0.001, 0.0], [1e6, -1e6]])
    unit = on_sphere(vectors)
    torch.testing.assert_close(unit.norm(dim=1), torch.ones(3))
    torch.testing.assert_close(unit[0], torch.tensor([0.6, 0.8]))
    assert unit.dtype == torch.float32


def test_pixels_become_channels_in_the_range_from_0_to_1() -> None:
    view = np.zeros((4, 4, 3), np.uint8)
    view[1, 2] = (255, 51, 0)
    batch = to_tensor([np.zeros((4, 4, 3), np.uint8), view[:, ::-1]])
    assert batch.shape == (2, 3, 4, 4)
    assert batch.dtype == torch.float32
    torch.testing.assert_close(batch[1, :, 1, 1], torch.tensor([1.0, 0.2, 0.0]))
    assert batch.sum().item() == pytest.approx(1.2)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize(("trained", "expected"), [("all", True), ("nothing", False)])
def test_all_that_is_trained_is_layer_normalised(
    loss: str, trained: str, *, expected: bool
) -> None:
    run = settings(loss=loss)
    # Not a run that settings allow, but quick to make.
    model = run.model.model_copy(update={"trained": trained})
    assert make_embedder(run.model_copy(update={"model": model})).layer_norm == expected


def test_the_seed_alone_decides_the_weights() -> None:
    before = torch.get_rng_state()
    first, again, other = (make_embedder(settings(seed)).state_dict() for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    for name, weight in first.items():
        assert torch.equal(weight, again[name])
    assert not torch.equal(first["head.weight"], other["head.weight"])
    torch.manual_seed(5)
    moved = make_embedder(settings(1)).state_dict()
    assert torch.equal(first["head.weight"], moved["head.weight"])
    torch.set_rng_state(before)


def test_the_small_network_takes_pictures_of_any_size_from_16_pixels() -> None:
    for size in (16, 32, 45):
        assert SmallCNN().eval()(images(2, size)).shape == (2, SmallCNN.n_features)


def test_efficientnet_scales_its_input_as_its_makers_did() -> None:
    seen = []

    def note(_: nn.Module, inputs: tuple[Tensor]) -> None:
        seen.append(inputs[0])

    network = efficientnet().eval()
    hook = network.network._conv_stem.register_forward_pre_hook(note)
    with torch.inference_mode():
        features = network(torch.stack([torch.zeros(3, 32, 32), torch.ones(3, 32, 32)]))
    hook.remove()
    assert features.shape == (2, 1280)
    assert set(seen[0][0].flatten().tolist()) == {-127 / 128}
    assert set(seen[0][1].flatten().tolist()) == {1.0}


def test_efficientnet_keeps_the_statistics_of_imagenet_while_it_trains() -> None:
    embedder = Embedder(efficientnet(), 8, layer_norm=True).train()
    norms = [module for module in embedder.modules() if isinstance(module, nn.BatchNorm2d)]
    assert len(norms) > 40
    assert not any(module.training for module in norms)
    assert embedder.training
    assert embedder.backbone.training
    before = [module.running_mean.clone() for module in norms if module.running_mean is not None]
    pictures = images(2, 32)
    trained = embedder(pictures).detach()
    after = [module.running_mean for module in norms if module.running_mean is not None]
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
    # Nothing else is random either: no dropout, no random depth.
    torch.testing.assert_close(trained, embedder.eval()(pictures).detach(), rtol=0, atol=0)


def test_efficientnet_makes_sense_of_images_from_0_to_1() -> None:
    """A picture and its slightly darker copy lie closer than two pictures."""
    pictures = images(2, 64)
    with torch.inference_mode():
        one, two, dark = on_sphere(efficientnet().eval()(torch.cat([pictures, 0.9 * pictures[:1]])))
    assert (one - dark).norm() < (one - two).norm()


def test_embeddings_that_are_no_numbers_are_refused() -> None:
    good = torch.ones(2, 3)
    assert finite(good) is good
    for bad in (torch.nan, torch.inf):
        with pytest.raises(NearsureError, match="not finite"):
            finite(torch.tensor([[1.0, bad]]))


BACKBONES = {"small-cnn": SmallCNN, "efficientnet-lite0": EfficientNetLite0}


@pytest.fixture(scope="module", params=BACKBONES)
def embedder(request: pytest.FixtureRequest) -> Embedder:
    """In eval mode, with statistics that are not those of a network that never learnt."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        made = Embedder(BACKBONES[request.param](), 8, layer_norm=True)
        for part in made.modules():
            if isinstance(part, nn.BatchNorm2d) and request.param == "small-cnn":
                nn.init.normal_(part.running_mean, std=0.3)  # type: ignore[arg-type]
                nn.init.uniform_(part.running_var, 0.5, 2)  # type: ignore[arg-type]
                nn.init.uniform_(part.weight, 0.5, 2)
                nn.init.normal_(part.bias, std=0.3)
    return made.eval()


def photographs() -> Tensor:
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
        ours = output_and_gradient(fold_batch_norm(exact), photographs().double())
        theirs = output_and_gradient(exact, photographs().double())
    finally:
        exact.float()  # the backbone is shared
    for found, expected in zip(ours, theirs, strict=True):
        torch.testing.assert_close(
            found, expected, rtol=1e-9, atol=1e-9 * float(expected.abs().max())
        )


def test_in_float32_they_differ_by_rounding(embedder: Embedder) -> None:
    ours = output_and_gradient(fold_batch_norm(embedder), photographs())
    theirs = output_and_gradient(embedder, photographs())
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
