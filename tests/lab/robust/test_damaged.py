"""Corrupted and attacked queries: each its own damage, nothing computed twice, T of clean ones."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from small_runs import (
    FEW,
    N_RESAMPLES,
    SEED,
    SIZE,
    K,
    attacked_by,
    corrupted_by,
    images,
    small_model,
)
from torch import Tensor
from torch.nn import functional

from nearsure.arrays import AnyArray, IntArray
from nearsure.errors import NearsureError
from nearsure.lab.cache import CachedStep, to_plain
from nearsure.lab.datasets.images import Pixels
from nearsure.lab.network import Embedder, SmallCNN, on_sphere, to_tensor
from nearsure.lab.robust import damaged
from nearsure.lab.robust import damaged as corrupted
from nearsure.lab.robust.damaged import DamagedQueries, central_views
from nearsure.lab.robust.model import RobustModel
from nearsure.robustness import corrupt, corruption_rng
from nearsure.robustness.attack_losses import (
    EmbeddingLoss,
    against_proxies,
    distance_to_anchors,
)
from nearsure.robustness.attacks import bim, fgsm, perturb, pgd

pytestmark = pytest.mark.usefixtures("few_corruptions")

N, CHUNK = 7, 3
ROWS = np.arange(N)
CODES = torch.arange(N) % 3
PGD = pgd(0.1, n_steps=3)


class CountingEmbedder(Embedder):
    """Counts passes; dies at one of them, if asked to."""

    def __init__(self, dies_at: int | None = None) -> None:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            super().__init__(SmallCNN(), 5, layer_norm=True)
        self.passes, self.dies_at = 0, dies_at
        self.eval()

    def forward(self, images: Tensor) -> Tensor:
        if self.passes == self.dies_at:
            raise KeyboardInterrupt
        self.passes += 1
        return super().forward(images)


def views() -> Tensor:
    return to_tensor(list(central_views(images(0, 2), ROWS, SIZE)))


def queries(folder: Path, embedder: Embedder | None = None, seed: int = 4) -> DamagedQueries:
    stage = CachedStep(folder, "attacked", {"seed": seed})
    pixels = central_views(images(0, 2), ROWS, SIZE)
    return DamagedQueries(stage, embedder or CountingEmbedder(), pixels, ROWS, seed, CHUNK)


def loss_of(part: slice) -> EmbeddingLoss:
    proxies = torch.randn(3, 5, generator=torch.Generator().manual_seed(2))
    return against_proxies(proxies, CODES[part], temperature=0.05)


def own_anchors(part: slice) -> EmbeddingLoss:
    """The first two chunks are their own anchors, and so is none of the third."""
    own = CountingEmbedder()(views()).detach()
    own[6] = own[0]
    return distance_to_anchors(own[part])


def test_every_chunk_is_attacked_with_its_own_loss(tmp_path: Path) -> None:
    found = queries(tmp_path).attacked(bim(0.1), "proxies", loss_of)
    assert found["vectors"].dtype == np.float32
    assert found["distance"].dtype == np.float64
    embedder = CountingEmbedder()
    for part in (slice(0, 3), slice(3, 6), slice(6, 7)):
        expected = perturb(embedder, views()[part], loss_of(part), bim(0.1), torch.Generator())
        vectors = functional.normalize(embedder(expected.images).detach(), dim=1)
        np.testing.assert_array_equal(found["vectors"][part], vectors.numpy())
        np.testing.assert_array_equal(found["distance"][part], expected.distance.numpy())
    assert found["had_gradient"].all()


def test_clean_ones_are_clean(tmp_path: Path) -> None:
    expected = functional.normalize(CountingEmbedder()(views()).detach(), dim=1)
    np.testing.assert_allclose(queries(tmp_path).clean(), expected.numpy(), atol=1e-6)


def test_clean_ones_that_are_not_finite_are_refused_and_not_kept(tmp_path: Path) -> None:
    embedder = CountingEmbedder()
    with torch.no_grad():
        next(embedder.parameters()).fill_(torch.nan)
    with pytest.raises(NearsureError, match="not finite"):
        queries(tmp_path, embedder).clean()
    assert np.isfinite(queries(tmp_path).clean()).all()


def test_the_attack_takes_them_away_from_their_proxies(tmp_path: Path) -> None:
    made = queries(tmp_path)
    loss = loss_of(slice(None))
    for attack in (fgsm(0.05), bim(0.1), PGD):
        found = made.attacked(attack, "proxies", loss_of)
        rise = loss(torch.from_numpy(found["vectors"])) - loss(torch.from_numpy(made.clean()))
        assert rise.mean() > 0.1
        assert (found["distance"] <= attack.epsilon + 1e-6).all()
        assert (found["distance"] > attack.epsilon / 2).all()


def test_what_was_computed_is_read(tmp_path: Path) -> None:
    embedder = CountingEmbedder()
    made = queries(tmp_path, embedder)
    clean, found = made.clean(), made.attacked(PGD, "proxies", loss_of)
    passes = embedder.passes
    assert passes == 3 + 3 * (PGD.n_steps + 1)
    again = queries(tmp_path, embedder)
    then = again.attacked(PGD, "proxies", loss_of)
    np.testing.assert_array_equal(again.clean(), clean)
    np.testing.assert_array_equal(then["vectors"], found["vectors"])
    np.testing.assert_array_equal(then["distance"], found["distance"])
    np.testing.assert_array_equal(then["had_gradient"], found["had_gradient"])
    assert embedder.passes == passes


def test_other_attacks_and_losses_are_not_mistaken_for_it(tmp_path: Path) -> None:
    made = queries(tmp_path)
    found = [
        made.attacked(attack, name, loss)
        for attack, name, loss in [
            (PGD, "proxies", loss_of),
            (PGD, "anchors", own_anchors),
            (pgd(0.1, n_steps=4), "proxies", loss_of),
            (pgd(0.1, n_steps=3, step=0.02), "proxies", loss_of),
            (pgd(0.2, n_steps=3), "proxies", loss_of),
        ]
    ]
    assert len({result["vectors"].tobytes() for result in found}) == len(found)


def test_an_interrupted_attack_goes_on_with_the_chunk_that_it_lost(tmp_path: Path) -> None:
    whole = queries(tmp_path / "whole").attacked(PGD, "proxies", loss_of)
    # In the second step of the second chunk.
    with pytest.raises(KeyboardInterrupt):
        queries(tmp_path / "parts", CountingEmbedder(dies_at=5)).attacked(PGD, "proxies", loss_of)
    embedder = CountingEmbedder()
    found = queries(tmp_path / "parts", embedder).attacked(PGD, "proxies", loss_of)
    assert embedder.passes == 2 * (PGD.n_steps + 1)
    np.testing.assert_array_equal(found["vectors"], whole["vectors"])
    np.testing.assert_array_equal(found["distance"], whole["distance"])


def test_the_seed_decides_the_random_start(tmp_path: Path) -> None:
    def vectors(folder: str, seed: int) -> bytes:
        return (
            queries(tmp_path / folder, seed=seed).attacked(PGD, "x", loss_of)["vectors"].tobytes()
        )

    assert vectors("1", 0) == vectors("2", 0)
    assert vectors("1", 0) != vectors("1", 1)


def test_starts_are_the_same_for_other_losses_but_not_for_other_places(tmp_path: Path) -> None:
    """A step of no length leaves the start."""
    still = pgd(0.1, step=0.0, n_steps=1)
    made = queries(tmp_path)
    ours = made.attacked(still, "proxies", loss_of)
    theirs = made.attacked(still, "anchors", own_anchors)
    np.testing.assert_array_equal(ours["vectors"], theirs["vectors"])
    same_image = replace(made, stage=CachedStep(tmp_path, "same", {}), views=made.views[[0] * N])
    found = same_image.attacked(still, "proxies", loss_of)
    assert len(np.unique(found["vectors"], axis=0)) == N


def test_chunks_without_a_gradient_are_counted_and_not_refused(tmp_path: Path) -> None:
    found = queries(tmp_path).attacked(fgsm(0.1), "anchors", own_anchors)
    assert found["had_gradient"].tolist() == [0] * 6 + [1]
    assert found["distance"].tolist()[:6] == [0] * 6
    np.testing.assert_allclose(found["vectors"][:6], queries(tmp_path).clean()[:6], atol=1e-6)


def test_progress_is_told_a_chunk_at_a_time(tmp_path: Path) -> None:
    seen: list[range] = []

    def track(chunks: list[range]) -> Iterator[range]:
        for chunk in chunks:
            seen.append(chunk)
            yield chunk

    queries(tmp_path).attacked(fgsm(0.1), "proxies", loss_of, track=track)
    assert seen == [range(3), range(3, 6), range(6, 7)]


ALL = images(0, 2)
IMAGE_ROWS = np.array([3, 0, 11, 7, 5])
KINDS = [("gaussian_noise", 3), ("fog", 1), ("elastic_transform", 5)]


class PixelEmbedder:
    """The pixels are the embedding; counts the batches and the images that it saw."""

    def __init__(self, dies_at: int | None = None) -> None:
        self.batches: list[int] = []
        self.dies_at = dies_at

    def __call__(self, batch: Tensor) -> Tensor:
        assert torch.is_inference_mode_enabled()
        assert 0 <= batch.min() <= batch.max() <= 1
        if len(self.batches) == self.dies_at:
            raise KeyboardInterrupt
        self.batches.append(len(batch))
        return batch.flatten(1)


def corrupted_queries(
    folder: Path, rows: IntArray, embed: Callable[[Tensor], Tensor], batch: int = 64
) -> DamagedQueries:
    stage = CachedStep(folder, "corrupted", {"rows": rows.tolist(), "seed": 5})
    return DamagedQueries(stage, embed, central_views(ALL, rows, SIZE), rows, 5, batch)


def embedded(pictures: list[Pixels]) -> AnyArray:
    return on_sphere(to_tensor(pictures).flatten(1)).numpy()


def expected(rows: IntArray, name: str, severity: int, seed: int = 5) -> AnyArray:
    """One image at a time."""
    damaged = [
        corrupt(ALL.read(int(row)), name, severity, corruption_rng(seed, int(row), name, severity))
        for row in rows
    ]
    return embedded(damaged)


def test_views_are_those_of_the_rows() -> None:
    views = central_views(ALL, IMAGE_ROWS, SIZE)
    assert views.dtype == np.uint8
    for view, row in zip(views, IMAGE_ROWS, strict=True):
        np.testing.assert_array_equal(view, ALL.read(int(row)))
    assert central_views(ALL, IMAGE_ROWS, 24).shape == (5, 24, 24, 3)


@pytest.mark.parametrize(("name", "severity"), KINDS)
def test_every_image_is_corrupted_by_its_own_stream(
    tmp_path: Path, name: str, severity: int
) -> None:
    found = corrupted_queries(tmp_path, IMAGE_ROWS, PixelEmbedder()).corrupted(name, severity)
    np.testing.assert_array_equal(found, expected(IMAGE_ROWS, name, severity))
    assert not np.array_equal(found, expected(IMAGE_ROWS, name, severity, seed=6))


def test_clean_ones_beside_corrupted_ones_are_clean(tmp_path: Path) -> None:
    found = corrupted_queries(tmp_path, IMAGE_ROWS, PixelEmbedder()).clean()
    views = list(central_views(ALL, IMAGE_ROWS, SIZE))
    np.testing.assert_array_equal(found, embedded(views))


def test_neither_order_nor_batch_matters(tmp_path: Path) -> None:
    name, severity = KINDS[0]
    whole = corrupted_queries(tmp_path, np.arange(12), PixelEmbedder()).corrupted(name, severity)
    for rows in (IMAGE_ROWS, IMAGE_ROWS[::-1].copy(), np.array([7])):
        embed = PixelEmbedder()
        found = corrupted_queries(tmp_path, rows, embed, batch=2).corrupted(name, severity)
        np.testing.assert_array_equal(found, whole[rows])
        assert sum(embed.batches) == len(rows)
        assert max(embed.batches) <= 2


def test_what_was_corrupted_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    embed = PixelEmbedder()
    first = corrupted_queries(tmp_path, IMAGE_ROWS, embed)
    found = [first.clean(), *(first.corrupted(*kind) for kind in KINDS)]
    assert embed.batches == [5] * 4
    monkeypatch.setattr(corrupted, "corrupt", None)
    again = corrupted_queries(tmp_path, IMAGE_ROWS, embed)
    for ours, theirs in zip(
        [again.clean(), *(again.corrupted(*kind) for kind in KINDS)], found, strict=True
    ):
        np.testing.assert_array_equal(ours, theirs)
    assert embed.batches == [5] * 4


def test_an_interrupted_corruption_is_made_anew_and_finished_ones_are_kept(
    tmp_path: Path,
) -> None:
    dying = corrupted_queries(tmp_path, IMAGE_ROWS, PixelEmbedder(dies_at=4), batch=2)
    dying.corrupted(*KINDS[0])
    with pytest.raises(KeyboardInterrupt):
        dying.corrupted(*KINDS[1])
    embed = PixelEmbedder()
    again = corrupted_queries(tmp_path, IMAGE_ROWS, embed, batch=2)
    for kind in KINDS[:2]:
        np.testing.assert_array_equal(again.corrupted(*kind), expected(IMAGE_ROWS, *kind))
    assert embed.batches == [2, 2, 1]


def test_t_is_that_of_the_clean_gallery_whatever_the_damage(model: RobustModel) -> None:
    for evaluation in (*corrupted_by(model), *attacked_by(model)):
        frozen = model.frozen[evaluation.protocol]
        assert evaluation.temperature_fit.temperature == frozen.temperature_fit.temperature
        assert evaluation.model == "small"
        assert (evaluation.seed, evaluation.n_resamples, evaluation.k) == (SEED, N_RESAMPLES, K)


def test_nothing_is_corrupted_attacked_or_scored_twice(
    cache: Path, model: RobustModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = [*corrupted_by(model), *attacked_by(model)]
    for module, name in (
        (damaged, "corrupt"),
        (damaged, "perturb"),
        (damaged, "evaluate_variants"),
    ):
        monkeypatch.setattr(module, name, None)
    again = small_model(cache)
    found = [*corrupted_by(again), *attacked_by(again)]
    assert [to_plain(one) for one in found] == [to_plain(one) for one in first]


def test_other_queries_are_other_numbers(model: RobustModel) -> None:
    found = [corrupted_by(model)[0], corrupted_by(model, 9)[0]]
    found += [attacked_by(model)[0], attacked_by(replace(model, seed=5))[0]]
    for changes in ({"small_steps": 3}, {"attacked_queries": 5}):
        found += [attacked_by(model, FEW.model_copy(update=changes))[0]]
    found += [corrupted_by(replace(model, k=3))[0], *corrupted_by(replace(model, seed=5))]
    assert len({json.dumps(to_plain(one)) for one in found}) == len(found)


def test_a_cached_evaluation_of_another_version_is_named(model: RobustModel) -> None:
    corrupted_by(model, 7)
    folders = {path.parent for path in model.cache.glob("robust-evaluation-*/evaluation.json")}
    for folder in folders:
        text = (folder / "evaluation.json").read_text()
        (folder / "evaluation.json").write_text(text.replace('"k":', '"neighbours":'))
    with pytest.raises(NearsureError, match="was written by another version") as caught:
        corrupted_by(model, 7)
    assert any(str(folder) in str(caught.value) for folder in folders)
    for folder in folders:
        (folder / "evaluation.json").unlink()
