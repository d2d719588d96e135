"""Corrupted queries: each image has its own damage, and nothing is computed twice."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from small_runs import SIZE, images
from torch import Tensor

from nearsure.arrays import AnyArray, IntArray
from nearsure.lab.cache import CachedStep
from nearsure.lab.datasets.images import Pixels
from nearsure.lab.network import on_sphere, to_tensor
from nearsure.lab.robust import damaged as corrupted
from nearsure.lab.robust.damaged import DamagedQueries, central_views
from nearsure.robustness import corrupt, corruption_rng

ALL = images(0, 2)
ROWS = np.array([3, 0, 11, 7, 5])
KINDS = [("gaussian_noise", 3), ("fog", 1), ("elastic_transform", 5)]


class CountingEmbedder:
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


def queries(
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
    views = central_views(ALL, ROWS, SIZE)
    assert views.dtype == np.uint8
    for view, row in zip(views, ROWS, strict=True):
        np.testing.assert_array_equal(view, ALL.read(int(row)))
    assert central_views(ALL, ROWS, 24).shape == (5, 24, 24, 3)


@pytest.mark.parametrize(("name", "severity"), KINDS)
def test_every_image_is_corrupted_by_its_own_stream(
    tmp_path: Path, name: str, severity: int
) -> None:
    found = queries(tmp_path, ROWS, CountingEmbedder()).corrupted(name, severity)
    np.testing.assert_array_equal(found, expected(ROWS, name, severity))
    assert not np.array_equal(found, expected(ROWS, name, severity, seed=6))


def test_clean_ones_are_clean(tmp_path: Path) -> None:
    found = queries(tmp_path, ROWS, CountingEmbedder()).clean()
    views = list(central_views(ALL, ROWS, SIZE))
    np.testing.assert_array_equal(found, embedded(views))


def test_neither_order_nor_batch_matters(tmp_path: Path) -> None:
    name, severity = KINDS[0]
    whole = queries(tmp_path, np.arange(12), CountingEmbedder()).corrupted(name, severity)
    for rows in (ROWS, ROWS[::-1].copy(), np.array([7])):
        embed = CountingEmbedder()
        found = queries(tmp_path, rows, embed, batch=2).corrupted(name, severity)
        np.testing.assert_array_equal(found, whole[rows])
        assert sum(embed.batches) == len(rows)
        assert max(embed.batches) <= 2


def test_what_was_computed_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    embed = CountingEmbedder()
    first = queries(tmp_path, ROWS, embed)
    found = [first.clean(), *(first.corrupted(*kind) for kind in KINDS)]
    assert embed.batches == [5] * 4
    monkeypatch.setattr(corrupted, "corrupt", None)
    again = queries(tmp_path, ROWS, embed)
    for ours, theirs in zip(
        [again.clean(), *(again.corrupted(*kind) for kind in KINDS)], found, strict=True
    ):
        np.testing.assert_array_equal(ours, theirs)
    assert embed.batches == [5] * 4


def test_an_interrupted_corruption_is_made_anew_and_finished_ones_are_kept(
    tmp_path: Path,
) -> None:
    dying = queries(tmp_path, ROWS, CountingEmbedder(dies_at=4), batch=2)
    dying.corrupted(*KINDS[0])
    with pytest.raises(KeyboardInterrupt):
        dying.corrupted(*KINDS[1])
    embed = CountingEmbedder()
    again = queries(tmp_path, ROWS, embed, batch=2)
    for kind in KINDS[:2]:
        np.testing.assert_array_equal(again.corrupted(*kind), expected(ROWS, *kind))
    assert embed.batches == [2, 2, 1]
