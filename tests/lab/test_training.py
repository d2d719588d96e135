"""The training loop: batches, checkpoints, exact resumption."""

import math
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from nearsure.arrays import IntArray
from nearsure.errors import InvalidInputError, NearsureError
from nearsure.lab import training
from nearsure.lab.config import LOSSES, LossName, TrainingSettings
from nearsure.lab.losses import make_loss
from nearsure.lab.training import (
    CHECKPOINT,
    Batch,
    balanced_rows,
    n_steps,
    rate_factor,
    read_ahead,
    read_tensors,
    train,
    view_generator,
)

N_CLASSES, STEPS = 6, 30
CODES = np.repeat(np.arange(N_CLASSES), 10)


def points() -> Tensor:
    """Two coordinates tell the classes; six are louder and tell nothing."""
    rng = np.random.default_rng(0)
    angle = 2 * np.pi * CODES / N_CLASSES
    signal = np.stack([np.cos(angle), np.sin(angle)], axis=1) + 0.1 * rng.normal(size=(60, 2))
    return torch.from_numpy(np.hstack([signal, rng.normal(size=(60, 6))])).float()


def network() -> nn.Module:
    """With batch normalisation, whose statistics are a state too."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(8, 8, bias=False), nn.BatchNorm1d(8))


def batch(inputs: Tensor, step: int) -> Batch:
    rows = balanced_rows(CODES, classes_per_batch=6, images_per_class=4, seed=0, step=step)
    return inputs[rows], torch.from_numpy(CODES[rows])


def run(
    folder: Path,
    *,
    loss: LossName = "normalized-softmax",
    stop_after: int | None = None,
    dies_at: int | None = None,
    disturb: Callable[[Tensor, Tensor, int], Tensor] | None = None,
) -> tuple[list[float], dict[str, Tensor]]:
    modules = {
        "embedder": network(),
        "loss": make_loss(
            TrainingSettings(loss=loss), n_classes=N_CLASSES, embedding_size=8, seed=0
        ),
    }

    def make_batch(step: int) -> Batch:
        if step == dies_at:
            raise KeyboardInterrupt
        return batch(points(), step)

    settings = TrainingSettings(loss=loss, learning_rate=0.05, proxy_learning_rate=0.05)
    history = train(
        modules["embedder"],
        modules,
        make_batch,
        settings,
        steps=STEPS,
        folder=folder,
        stop_after=stop_after,
        disturb=disturb,
    )
    weights = {
        f"{name}/{key}": tensor
        for name, module in modules.items()
        for key, tensor in module.state_dict().items()
    }
    return history, weights


def nearest_is_right(embed: nn.Module) -> float:
    with torch.inference_mode():
        vectors = nn.functional.normalize(embed(points()), dim=1)
    sq_distances = torch.cdist(vectors, vectors).fill_diagonal_(math.inf)
    return float(np.mean(CODES[sq_distances.argmin(dim=1).numpy()] == CODES))


@pytest.mark.parametrize("loss", LOSSES)
def test_the_loss_falls_and_neighbours_become_right(tmp_path: Path, loss: LossName) -> None:
    history, weights = run(tmp_path, loss=loss)
    assert len(history) == STEPS
    assert np.mean(history[-5:]) < 0.7 * np.mean(history[:5])
    trained = network()
    trained.load_state_dict(
        {key.removeprefix("embedder/"): w for key, w in weights.items() if "embedder/" in key}
    )
    assert nearest_is_right(trained.eval()) > nearest_is_right(network().eval()) + 0.2


@pytest.mark.parametrize("loss", ["normalized-softmax", "triplet"])
@pytest.mark.parametrize("stops", [(1,), (7, 8, 20), (29,), (30,)])
def test_interrupted_and_taken_up_is_bit_for_bit_the_same(
    tmp_path: Path, loss: LossName, stops: tuple[int, ...]
) -> None:
    history, weights = run(tmp_path / "whole", loss=loss)
    for stop in stops:
        part, _ = run(tmp_path / "parts", loss=loss, stop_after=stop)
        assert part == history[:stop]
    again, taken_up = run(tmp_path / "parts", loss=loss)
    assert again == history
    assert taken_up.keys() == weights.keys()
    for name, weight in weights.items():
        assert torch.equal(weight, taken_up[name]), name


def test_a_run_that_dies_is_taken_up_from_its_last_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    history, weights = run(tmp_path / "whole")
    monkeypatch.setattr(training, "SECONDS_BETWEEN_CHECKPOINTS", -1)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "parts", dies_at=12)
    assert read_tensors(tmp_path / "parts" / CHECKPOINT)[1] == 12
    again, taken_up = run(tmp_path / "parts")
    assert again == history
    assert all(torch.equal(weight, taken_up[name]) for name, weight in weights.items())


def with_noise(inputs: Tensor, codes: Tensor, step: int) -> Tensor:
    """A function of the step alone, as a disturbance must be."""
    noise = torch.randn(inputs.shape, generator=torch.Generator().manual_seed(step))
    return inputs + 0.3 * noise * codes[:, None]


def test_it_learns_from_the_disturbed_inputs_in_place_of_its_own(tmp_path: Path) -> None:
    seen: list[int] = []

    def noted(inputs: Tensor, codes: Tensor, step: int) -> Tensor:
        seen.append(step)
        expected = batch(points(), step)
        assert torch.equal(inputs, expected[0])
        assert torch.equal(codes, expected[1])
        return with_noise(inputs, codes, step)

    history, weights = run(tmp_path / "disturbed", disturb=noted)
    assert seen == list(range(STEPS))
    # The same as batches that come disturbed.
    modules = {
        "embedder": network(),
        "loss": make_loss(
            TrainingSettings(loss="normalized-softmax"),
            n_classes=N_CLASSES,
            embedding_size=8,
            seed=0,
        ),
    }

    def disturbed_batch(step: int) -> Batch:
        inputs, codes = batch(points(), step)
        return with_noise(inputs, codes, step), codes

    settings = TrainingSettings(learning_rate=0.05, proxy_learning_rate=0.05)
    folder = tmp_path / "batches"
    expected = train(
        modules["embedder"], modules, disturbed_batch, settings, steps=STEPS, folder=folder
    )
    assert history == expected
    for name, tensor in modules["embedder"].state_dict().items():
        assert torch.equal(weights[f"embedder/{name}"], tensor), name


def test_a_disturbance_that_leaves_the_inputs_changes_nothing(tmp_path: Path) -> None:
    history, weights = run(tmp_path / "plain")
    again, same = run(tmp_path / "same", disturb=lambda inputs, _, __: inputs)
    assert again == history
    assert all(torch.equal(weight, same[name]) for name, weight in weights.items())


@pytest.mark.parametrize("stops", [(1,), (7, 8, 20)])
def test_a_disturbed_run_is_taken_up_bit_for_bit(tmp_path: Path, stops: tuple[int, ...]) -> None:
    history, weights = run(tmp_path / "whole", disturb=with_noise)
    assert history != run(tmp_path / "plain")[0]
    for stop in stops:
        part, _ = run(tmp_path / "parts", stop_after=stop, disturb=with_noise)
        assert part == history[:stop]
    again, taken_up = run(tmp_path / "parts", disturb=with_noise)
    assert again == history
    assert all(torch.equal(weight, taken_up[name]) for name, weight in weights.items())


def test_a_finished_run_is_not_trained_again(tmp_path: Path) -> None:
    history, _ = run(tmp_path)
    written = (tmp_path / CHECKPOINT).stat().st_mtime_ns
    assert run(tmp_path)[0] == history
    assert (tmp_path / CHECKPOINT).stat().st_mtime_ns == written


def test_modules_rest_and_determinism_is_given_back(tmp_path: Path) -> None:
    torch.use_deterministic_algorithms(mode=False)
    modules = {
        "embedder": network(),
        "loss": make_loss(TrainingSettings(loss="triplet"), n_classes=6, embedding_size=8, seed=0),
    }
    seen: list[bool] = []

    def embed(inputs: Tensor) -> Tensor:
        seen.append(torch.are_deterministic_algorithms_enabled() and modules["embedder"].training)
        result: Tensor = modules["embedder"](inputs)
        return result

    train(embed, modules, partial(batch, points()), TrainingSettings(), steps=2, folder=tmp_path)
    assert seen == [True, True]
    assert not modules["embedder"].training
    assert not torch.are_deterministic_algorithms_enabled()


def test_a_loss_that_is_no_number_is_an_error_and_not_a_checkpoint(tmp_path: Path) -> None:
    modules = {
        "embedder": network(),
        "loss": make_loss(TrainingSettings(loss="n-pairs"), n_classes=6, embedding_size=8, seed=0),
    }

    def nan_at_three(step: int) -> Batch:
        inputs, codes = batch(points(), step)
        return (inputs * math.nan if step == 3 else inputs), codes

    settings = TrainingSettings(loss="n-pairs")
    with pytest.raises(NearsureError, match=r"n-pairs came to a loss of nan at step 3\. Lower"):
        train(modules["embedder"], modules, nan_at_three, settings, steps=9, folder=tmp_path)
    assert not (tmp_path / CHECKPOINT).exists()


def test_a_damaged_checkpoint_is_named(tmp_path: Path) -> None:
    run(tmp_path, stop_after=2)
    path = tmp_path / CHECKPOINT
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(NearsureError, match="is not a checkpoint") as caught:
        run(tmp_path)
    assert str(path) in str(caught.value)


def test_the_rate_rises_in_a_line_and_falls_as_a_half_cosine() -> None:
    factors = np.array([rate_factor(step, 100, 0.2) for step in range(100)])
    np.testing.assert_allclose(factors[:20], np.arange(1, 21) / 20)
    np.testing.assert_allclose(factors[20:], (1 + np.cos(np.pi * np.arange(80) / 80)) / 2)
    assert factors[20] == 1
    assert 0 < factors[-1] < 0.001


def test_without_warmup_the_rate_starts_whole() -> None:
    factors = [rate_factor(step, 10, 0) for step in range(10)]
    assert factors[0] == 1
    assert factors == sorted(factors, reverse=True)
    assert rate_factor(0, 1, 0.5) == 1


def test_steps_are_as_many_images_as_the_epochs_have() -> None:
    settings = TrainingSettings(epochs=2.5, classes_per_batch=4, images_per_class=5)
    assert n_steps(settings, 80) == 10
    assert n_steps(settings, 81) == 11
    assert n_steps(settings, 1) == 1


UNEVEN_CODES = np.random.default_rng(0).permutation(np.repeat([3, 5, 6, 8, 9], [10, 7, 5, 2, 3]))


def rows_at(step: int, *, seed: int = 0, codes: IntArray = UNEVEN_CODES) -> IntArray:
    return balanced_rows(codes, classes_per_batch=3, images_per_class=4, seed=seed, step=step)


def test_every_batch_has_so_many_images_of_so_many_classes() -> None:
    for step in range(50):
        codes = UNEVEN_CODES[rows_at(step)].reshape(3, 4)
        assert (codes == codes[:, :1]).all()  # images of one class stand together
        assert len(set(codes[:, 0])) == 3


def test_no_image_is_twice_in_a_batch_unless_its_class_is_small() -> None:
    repeated = set()
    for step in range(50):
        for rows in rows_at(step).reshape(3, 4):
            if len(set(rows.tolist())) < 4:
                repeated.add(int(UNEVEN_CODES[rows[0]]))
    assert repeated == {8, 9}  # of two and three images


def test_seed_and_step_alone_determine_a_batch() -> None:
    backwards = [rows_at(step) for step in reversed(range(5))][::-1]
    for step in range(5):
        np.testing.assert_array_equal(rows_at(step), backwards[step])
    batches = {rows_at(step, seed=seed).tobytes() for step in range(20) for seed in range(3)}
    assert len(batches) == 60


def test_every_image_is_reached_and_classes_are_equally_frequent() -> None:
    seen = np.concatenate([rows_at(step) for step in range(500)])
    assert set(seen.tolist()) == set(range(len(UNEVEN_CODES)))
    shares = np.unique(UNEVEN_CODES[seen], return_counts=True)[1] / len(seen)
    # A class is in 3/5 of 500 batches: four standard deviations are 0.03 of a fifth each.
    np.testing.assert_allclose(shares, 1 / 5, atol=0.03)


def test_more_classes_than_there_are_is_an_error() -> None:
    with pytest.raises(InvalidInputError, match=r"exceed the 2 classes .* Got 3 instead"):
        rows_at(0, codes=np.array([0, 0, 1, 1]))


def test_views_have_randomness_of_their_own() -> None:
    def first(seed: int, step: int, position: int) -> float:
        return float(view_generator(seed, step, position).random())

    assert first(1, 2, 3) == first(1, 2, 3)
    places = [(s, t, p) for s in range(3) for t in range(3) for p in range(3)]
    assert len({first(*place) for place in places}) == 27


@pytest.mark.parametrize("steps", [range(7), range(3, 7), range(5, 5), range(1)])
def test_read_ahead_keeps_the_order(steps: range) -> None:
    assert list(read_ahead(lambda step: step**2, steps)) == [step**2 for step in steps]


def test_the_next_is_made_while_one_is_used() -> None:
    made = [threading.Event() for _ in range(3)]
    batches = read_ahead(lambda step: made[step].set(), range(3))
    next(batches)
    assert made[1].wait(timeout=60)
    assert not made[2].is_set()
    batches.close()  # type: ignore[attr-defined]


def test_an_exception_arrives_at_its_step() -> None:
    def make(step: int) -> int:
        if step == 2:
            raise OSError("broken image")
        return step

    batches = read_ahead(make, range(5))
    assert [next(batches), next(batches)] == [0, 1]
    with pytest.raises(OSError, match="broken image"):
        next(batches)


def test_nothing_is_made_after_the_consumer_stops() -> None:
    made: list[int] = []
    threads = threading.active_count()
    batches = read_ahead(made.append, range(1000))
    next(batches)
    batches.close()  # type: ignore[attr-defined]
    assert made == [0, 1]
    assert threading.active_count() == threads
