"""Losses of attacks: signs of known losses, log-odds of our own posterior, finite differences."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from pytorch_metric_learning.losses import NormalizedSoftmaxLoss
from small_networks import seeded
from torch import Tensor, nn
from torch.nn import functional

from nearsure.errors import InvalidInputError
from nearsure.neighbors import Neighbors
from nearsure.posterior import score
from nearsure.robustness.attack_losses import (
    EmbeddingLoss,
    against_proxies,
    confidence_in_a_wrong_class,
    distance_to_anchors,
)

N, D, N_CLASSES, N_GALLERY = 7, 5, 4, 23
CODES = torch.tensor([0, 1, 2, 3, 0, 1, 2])
GALLERY_CODES = torch.arange(N_GALLERY) % N_CLASSES


def drawn(n: int, seed: int) -> Tensor:
    return torch.randn(n, D, generator=seeded(seed), dtype=torch.float64)


def gallery() -> Tensor:
    return functional.normalize(drawn(N_GALLERY, 9), dim=1)


def gradient(loss: Callable[[Tensor], Tensor], embeddings: Tensor) -> Tensor:
    embeddings = embeddings.detach().clone().requires_grad_()
    (found,) = torch.autograd.grad(loss(embeddings).sum(), embeddings)
    return found


LOSSES: dict[str, EmbeddingLoss] = {
    "proxies": against_proxies(drawn(N_CLASSES, 1), CODES, temperature=0.05),
    "anchors": distance_to_anchors(drawn(N, 2)),
    "confidence": confidence_in_a_wrong_class(gallery(), GALLERY_CODES, CODES, temperature=0.1),
}


@pytest.mark.parametrize("name", LOSSES)
def test_gradients_are_those_of_finite_differences(name: str) -> None:
    embeddings = drawn(N, 3).requires_grad_()
    assert torch.autograd.gradcheck(LOSSES[name], (embeddings,))


@pytest.mark.parametrize("name", LOSSES)
def test_one_loss_for_each_image_which_knows_no_length(name: str) -> None:
    embeddings = drawn(N, 3)
    losses = LOSSES[name](embeddings)
    assert losses.shape == (N,)
    torch.testing.assert_close(LOSSES[name](7 * embeddings), losses)


def cross_entropy(embeddings: Tensor, proxies: Tensor, temperature: float) -> Tensor:
    cosines = functional.normalize(embeddings, dim=1) @ functional.normalize(proxies, dim=1).T
    return functional.cross_entropy(cosines / temperature, CODES, reduction="none")


@pytest.mark.parametrize("temperature", [0.05, 0.3])
def test_against_proxies_has_the_sign_of_the_cross_entropy(temperature: float) -> None:
    proxies, embeddings = drawn(N_CLASSES, 1), drawn(N, 3)
    loss = against_proxies(proxies, CODES, temperature=temperature)
    ours = gradient(loss, embeddings)
    theirs = gradient(lambda z: cross_entropy(z, proxies, temperature), embeddings)
    assert torch.equal(ours.sign(), theirs.sign())
    # The log-odds x of being wrong have the cross-entropy log(1 + e^x).
    expected = functional.softplus(loss(embeddings))
    torch.testing.assert_close(cross_entropy(embeddings, proxies, temperature), expected)


def test_against_proxies_has_the_sign_of_the_loss_that_trains() -> None:
    trains = NormalizedSoftmaxLoss(N_CLASSES, D, temperature=0.05).double()
    embeddings = drawn(N, 3)
    ours = gradient(against_proxies(trains.W.T, CODES, temperature=0.05), embeddings)
    theirs = gradient(lambda z: trains(z, CODES), embeddings)
    assert torch.equal(ours.sign(), theirs.sign())


def test_against_proxies_goes_on_where_the_cross_entropy_is_flat() -> None:
    proxies = torch.eye(D)[:N_CLASSES]
    sure = proxies[CODES] + 0.01 * drawn(N, 4).float()
    flat = gradient(lambda z: cross_entropy(z, proxies, 0.005), sure)
    assert not flat.any()
    ours = gradient(against_proxies(proxies, CODES, temperature=0.005), sure)
    assert (ours != 0).all()

    # Towards the other proxies, by how near they are, and away from its own: for unit proxies and
    # an embedding of length l, the cosine to axis j has the gradient (e_j - cos_j * z / l) / l.
    for row, z in enumerate(sure.double()):
        length = z.norm()
        cosines = z[:N_CLASSES] / length
        pull = torch.softmax(cosines.scatter(0, CODES[row], -math.inf) / 0.005, dim=0)
        pull[CODES[row]] = -1
        axes = torch.eye(D, dtype=torch.float64)[:N_CLASSES]
        expected = pull @ (axes - cosines[:, None] * z / length) / (length * 0.005)
        torch.testing.assert_close(ours[row].double(), expected, rtol=1e-3, atol=1e-3)


def test_anchors_are_squared_distances_on_the_sphere() -> None:
    embeddings, anchors = drawn(N, 3).numpy(), drawn(N, 2).numpy()
    expected = [
        np.square(z / np.linalg.norm(z) - a / np.linalg.norm(a)).sum()
        for z, a in zip(embeddings, anchors, strict=True)
    ]
    found = distance_to_anchors(torch.from_numpy(anchors))(torch.from_numpy(embeddings))
    np.testing.assert_allclose(found.numpy(), expected)


def log_odds_by_nearsure(embeddings: Tensor, temperature: float) -> tuple[list[float], list[int]]:
    """Of the likeliest wrong class, with all gallery points as neighbours, and which it is."""
    unit = functional.normalize(embeddings, dim=1).numpy()
    sq_distances = np.square(unit[:, None] - gallery().numpy()).sum(axis=2)
    order = np.argsort(sq_distances, axis=1)
    neighbors = Neighbors(
        np.take_along_axis(sq_distances, order, axis=1), GALLERY_CODES.numpy()[order], order
    )
    posterior = score(neighbors, rule="ned", temperature=temperature)
    by_class = np.stack(
        [posterior.probability_of(np.full(N, code)) for code in range(N_CLASSES)], axis=1
    )
    wrong = by_class.copy()
    wrong[np.arange(N), CODES.numpy()] = -1
    best = wrong.argmax(axis=1)
    p = by_class[np.arange(N), best]
    others = by_class.sum(axis=1) - p
    return np.log(p / others).tolist(), best.tolist()


@pytest.mark.parametrize("temperature", [0.03, 0.1, 1.0, 10.0])
def test_confidence_is_the_log_odds_of_our_own_posterior(temperature: float) -> None:
    embeddings = drawn(N, 3)
    loss = confidence_in_a_wrong_class(gallery(), GALLERY_CODES, CODES, temperature=temperature)
    expected, wrong = log_odds_by_nearsure(embeddings, temperature)
    assert all(w != code for w, code in zip(wrong, CODES.tolist(), strict=True))
    np.testing.assert_allclose(loss(embeddings).numpy(), expected, rtol=1e-6)


@pytest.mark.parametrize("temperature", [1e-2, 1e-3, 1e-5])
def test_confidence_is_exact_where_weights_are_too_small_for_a_float(temperature: float) -> None:
    """A small T leaves the nearest of two classes: the difference of their squared distances."""
    embeddings = drawn(N, 3)
    sq_distances = torch.cdist(functional.normalize(embeddings, dim=1), gallery()).square()
    nearest = torch.stack(
        [sq_distances[:, code == GALLERY_CODES].amin(dim=1) for code in range(N_CLASSES)], dim=1
    )
    own = functional.one_hot(CODES, N_CLASSES).bool()
    wrong = nearest.masked_fill(own, math.inf).argmin(dim=1, keepdim=True)
    rest = nearest.scatter(1, wrong, math.inf).amin(dim=1)
    expected = (rest - nearest.gather(1, wrong)[:, 0]) / temperature
    loss = confidence_in_a_wrong_class(gallery(), GALLERY_CODES, CODES, temperature=temperature)
    found = loss(embeddings)
    # At most 23 points share a class's weight.
    assert ((found - expected).abs() <= math.log(N_GALLERY)).all()
    steep = gradient(loss, embeddings)
    assert torch.isfinite(steep).all()
    # Towards the wrong class, and not only away from the right one.
    step = 1e-6 * steep.sign()
    assert (loss(embeddings + step) > found).all()


def test_confidence_passes_over_classes_that_the_gallery_lacks() -> None:
    codes = 2 * GALLERY_CODES + 1  # 0, 2, 4 and 6 are nobody's
    sparse = confidence_in_a_wrong_class(gallery(), codes, 2 * CODES + 1, temperature=0.1)
    embeddings = drawn(N, 3)
    torch.testing.assert_close(sparse(embeddings), LOSSES["confidence"](embeddings))
    assert torch.isfinite(gradient(sparse, embeddings)).all()
    # For a query of a class that is not there, every class is wrong.
    stranger = confidence_in_a_wrong_class(gallery(), codes, 0 * CODES, temperature=0.1)
    assert (stranger(embeddings) >= LOSSES["confidence"](embeddings) - 1e-12).all()


@pytest.mark.parametrize("name", LOSSES)
def test_losses_may_be_made_in_inference_mode(name: str) -> None:
    def made() -> EmbeddingLoss:
        return {
            "proxies": lambda: against_proxies(
                drawn(N_CLASSES, 1), CODES.clone(), temperature=0.05
            ),
            "anchors": lambda: distance_to_anchors(drawn(N, 2)),
            "confidence": lambda: confidence_in_a_wrong_class(
                gallery(), GALLERY_CODES.clone(), CODES.clone(), temperature=0.1
            ),
        }[name]()

    with torch.inference_mode():
        loss = made()
    embeddings = drawn(N, 3)
    assert torch.equal(gradient(loss, embeddings), gradient(made(), embeddings))


def test_what_is_changed_afterwards_does_not_change_a_loss() -> None:
    proxies, codes, embeddings = drawn(N_CLASSES, 1), CODES.clone(), drawn(N, 3)
    loss = against_proxies(nn.Parameter(proxies), codes, temperature=0.05)
    before = loss(embeddings)
    proxies.zero_()
    codes.zero_()
    assert torch.equal(loss(embeddings), before)


@pytest.mark.parametrize("name", LOSSES)
def test_more_embeddings_than_classes_of_them_are_refused(name: str) -> None:
    with pytest.raises(InvalidInputError, match="There must be one"):
        LOSSES[name](drawn(N + 1, 3))


def test_one_code_is_not_taken_for_all() -> None:
    loss = against_proxies(drawn(N_CLASSES, 1), CODES[:1], temperature=0.05)
    with pytest.raises(InvalidInputError, match="Got 1 codes and 7 embeddings instead"):
        loss(drawn(N, 3))
