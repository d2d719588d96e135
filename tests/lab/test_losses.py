"""The four losses against loops that follow their definitions, in float64."""

import itertools
import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from nearsure.arrays import FloatArray, IntArray
from nearsure.lab.config import LOSSES, LossName, TrainingSettings
from nearsure.lab.losses import make_loss, start_proxies

N_CLASSES, SIZE = 5, 6
CODES = np.array([0, 0, 0, 2, 2, 4, 4, 4])
PAIRED = np.array([0, 0, 3, 3, 1, 1, 4, 4])


def embeddings() -> FloatArray:
    rng = np.random.default_rng(1)
    vectors: FloatArray = (
        2 * rng.standard_normal((8, SIZE)) + rng.standard_normal((N_CLASSES, SIZE))[CODES]
    )
    return vectors


def loss_of(name: LossName) -> nn.Module:
    loss = make_loss(TrainingSettings(loss=name), n_classes=N_CLASSES, embedding_size=SIZE, seed=0)
    return loss.double()


def proxies_of(loss: nn.Module) -> FloatArray:
    """One a row."""
    (proxies,) = loss.parameters()
    values: FloatArray = proxies.detach().numpy()
    return values if values.shape == (N_CLASSES, SIZE) else values.T


def value(loss: nn.Module, vectors: FloatArray, codes: IntArray = CODES) -> float:
    result: Tensor = loss(torch.from_numpy(vectors), torch.from_numpy(codes))
    return result.item()


def unit(vector: FloatArray) -> FloatArray:
    return np.asarray(vector / math.sqrt(vector @ vector))


def test_normalized_softmax_is_cross_entropy_of_cosines() -> None:
    loss, vectors = loss_of("normalized-softmax"), embeddings()
    losses = []
    for vector, code in zip(vectors, CODES, strict=True):
        logits = [unit(vector) @ unit(proxy) / 0.05 for proxy in proxies_of(loss)]
        most = max(logits)
        total = sum(math.exp(logit - most) for logit in logits)
        losses.append(math.log(total) + most - logits[code])
    assert value(loss, vectors) == pytest.approx(np.mean(losses), rel=1e-9)


def test_proxy_nca_is_cross_entropy_of_squared_distances() -> None:
    loss, vectors = loss_of("proxy-nca"), embeddings()
    losses = []
    for vector, code in zip(vectors, CODES, strict=True):
        gaps = [unit(vector) - unit(proxy) for proxy in proxies_of(loss)]
        weights = [math.exp(-(gap @ gap) / 0.33) for gap in gaps]
        losses.append(-math.log(weights[code] / sum(weights)))
    assert value(loss, vectors) == pytest.approx(np.mean(losses), rel=1e-6)


def test_triplet_is_the_mean_of_the_semi_hard_ones() -> None:
    vectors = embeddings()

    def sq_distance(i: int, j: int) -> float:
        gap = unit(vectors[i]) - unit(vectors[j])
        return float(gap @ gap)

    losses, n_triplets = [], 0
    for anchor, positive, negative in itertools.product(range(8), repeat=3):
        same = CODES[anchor] == CODES[positive] and anchor != positive
        if same and CODES[anchor] != CODES[negative]:
            n_triplets += 1
            gain = sq_distance(anchor, negative) - sq_distance(anchor, positive)
            if 0 < gain <= 0.2:
                losses.append(0.2 - gain)
    assert 3 < len(losses) < n_triplets / 2
    assert value(loss_of("triplet"), vectors) == pytest.approx(np.mean(losses), rel=1e-9)


def test_easy_positives_give_one_triplet_an_image() -> None:
    vectors = embeddings()
    units = np.array([unit(vector) for vector in vectors])
    sq_distances = ((units[:, None] - units[None]) ** 2).sum(axis=2)
    losses = []
    for anchor, row in enumerate(sq_distances):
        same = CODES[anchor] == CODES
        positive = np.delete(row, anchor)[np.delete(same, anchor)].min()
        beyond = row[~same & (row > positive)]
        if len(beyond) and beyond.min() < positive + 0.2:
            losses.append(positive + 0.2 - beyond.min())
    assert 0 < len(losses) < len(vectors)
    settings = TrainingSettings(loss="triplet", easy_positives=True)
    loss = make_loss(settings, n_classes=N_CLASSES, embedding_size=SIZE, seed=0)
    assert value(loss, vectors) == pytest.approx(np.mean(losses), rel=1e-6)


def test_triplet_is_zero_and_has_a_slope_where_no_triplet_is_semi_hard() -> None:
    vectors = torch.eye(4, SIZE).repeat_interleave(2, dim=0).requires_grad_()
    loss: Tensor = loss_of("triplet")(vectors, torch.arange(8) // 2)
    loss.backward()  # type: ignore[no-untyped-call]
    assert loss.item() == 0
    assert vectors.grad is not None
    assert not vectors.grad.any()


@pytest.mark.parametrize("temperature", [0.05, 0.1])
def test_n_pairs_is_cross_entropy_of_cosines_among_pairs(temperature: float) -> None:
    vectors = np.array([unit(vector) for vector in embeddings()])
    anchors, positives = vectors[0::2], vectors[1::2]
    order = np.argsort(PAIRED[0::2])
    losses = []
    for i in order:
        logits = [anchors[i] @ positives[j] / temperature for j in order]
        most = max(logits)
        total = sum(math.exp(logit - most) for logit in logits)
        losses.append(math.log(total) + most - anchors[i] @ positives[i] / temperature)
    settings = TrainingSettings(loss="n-pairs", n_pairs_temperature=temperature)
    loss = make_loss(settings, n_classes=N_CLASSES, embedding_size=SIZE, seed=0)
    assert value(loss, embeddings(), PAIRED) == pytest.approx(np.mean(losses), rel=1e-9)


@pytest.mark.parametrize("name", LOSSES)
def test_length_does_not_matter(name: LossName) -> None:
    loss, codes = loss_of(name), PAIRED if name == "n-pairs" else CODES
    longer = value(loss, 3 * embeddings(), codes)
    assert longer == pytest.approx(value(loss, embeddings(), codes), rel=1e-6)


@pytest.mark.parametrize("name", LOSSES)
def test_proxies_are_parameters_that_start_where_they_are_put(name: LossName) -> None:
    loss = make_loss(TrainingSettings(loss=name), n_classes=N_CLASSES, embedding_size=SIZE, seed=0)
    means = torch.from_numpy(np.random.default_rng(2).standard_normal((N_CLASSES, SIZE)))
    start_proxies(loss, means.float())
    if name in {"triplet", "n-pairs"}:
        assert not list(loss.parameters())
    else:
        np.testing.assert_array_equal(proxies_of(loss), means.float().numpy())
        assert all(proxies.requires_grad for proxies in loss.parameters())


@pytest.mark.parametrize("name", ["normalized-softmax", "proxy-nca"])
def test_the_seed_alone_decides_the_proxies(name: LossName) -> None:
    def start(seed: int) -> FloatArray:
        return proxies_of(
            make_loss(TrainingSettings(loss=name), n_classes=5, embedding_size=6, seed=seed)
        )

    before = torch.get_rng_state()
    np.testing.assert_array_equal(start(3), start(3))
    assert not np.array_equal(start(3), start(4))
    assert torch.equal(torch.get_rng_state(), before)
