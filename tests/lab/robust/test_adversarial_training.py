"""Adversarial training: who is attacked and how much, exact resumption, and that it helps."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_runs import ADVERSARIAL, SIZE, adversarial_run, clean_run
from torch import Tensor, nn

from nearsure.errors import NearsureError
from nearsure.lab import embedding, training
from nearsure.lab.embedding import EmbeddingRun, Trained
from nearsure.lab.network import to_tensor
from nearsure.lab.robust import adversarial_training
from nearsure.lab.robust.adversarial_training import (
    AdversarialRun,
    seeded_generator,
)
from nearsure.lab.robust.damaged import central_views
from nearsure.lab.training import CHECKPOINT, read_tensors, train
from nearsure.robustness.attacks import Attack, perturb, pgd

STEPS = 8  # of the short run
SHORT = {"epochs": 5}


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Holds the clean run, trained once."""
    folder = tmp_path_factory.mktemp("cache")
    assert len(clean_run(folder).trained.history) == 45
    return folder


def weights(trained: Trained) -> dict[str, Tensor]:
    parts: dict[str, nn.Module] = {"embedder": trained.embedder, "loss": trained.loss}
    return {
        f"{name}/{key}": tensor
        for name, part in parts.items()
        for key, tensor in part.state_dict().items()
    }


def assert_same(ours: Trained, theirs: Trained) -> None:
    assert ours.history == theirs.history
    expected = weights(theirs)
    assert weights(ours).keys() == expected.keys()
    for name, tensor in weights(ours).items():
        assert torch.equal(tensor, expected[name]), name


def forget(run: AdversarialRun) -> None:
    """Leave the stage as if it had never run; the clean one stays."""
    for path in run.training_stage.folder.iterdir():
        path.unlink()


def loss_under_attack(run: EmbeddingRun | AdversarialRun) -> tuple[float, float]:
    """Of the train images, clean and attacked by more steps than any training saw."""
    images = (run.clean if isinstance(run, AdversarialRun) else run).split.train
    inputs = to_tensor(list(central_views(images, np.arange(len(images)), SIZE)))
    codes = torch.from_numpy(np.unique(images.labels, return_inverse=True)[1])
    embedder, loss, _ = run.trained
    attack = pgd(0.05, step=0.01, n_steps=15)
    found = perturb(embedder, inputs, lambda z: loss(z, codes), attack, seeded_generator(1))
    with torch.no_grad():
        clean, attacked = (loss(embedder(x), codes) for x in (inputs, found.images))
    return float(clean), float(attacked)


def test_the_attacked_images_it_saw_harm_it_less(cache: Path) -> None:
    clean, adversarial = clean_run(cache), adversarial_run(cache)
    usual, under_attack = loss_under_attack(clean)
    usual_then, under_attack_then = loss_under_attack(adversarial)
    assert under_attack > 2
    assert under_attack_then < under_attack / 5
    assert max(usual, usual_then) < 0.1
    assert len(adversarial.trained.history) == 45
    assert not any(part.training for part in adversarial.trained.embedder.modules())


def test_the_clean_run_keeps_its_weights(cache: Path) -> None:
    run = adversarial_run(cache, **SHORT)
    before = {name: tensor.clone() for name, tensor in weights(run.clean.trained).items()}
    after = weights(run.trained)
    for name, tensor in weights(run.clean.trained).items():
        assert torch.equal(tensor, before[name]), name
    changed = [name for name in after if not torch.equal(after[name], before[name])]
    assert "embedder/head.weight" in changed
    assert "loss/W" in changed
    assert run.embeddings("queries").shape == (24, 8)
    assert not np.array_equal(run.embeddings("queries"), run.clean.embeddings("queries"))
    np.testing.assert_allclose(np.linalg.norm(run.embeddings("queries"), axis=1), 1, rtol=1e-5)


@pytest.mark.parametrize("stops", [(1,), (3, 4), (7,)])
def test_interrupted_and_taken_up_is_bit_for_bit_the_same(
    cache: Path, monkeypatch: pytest.MonkeyPatch, stops: tuple[int, ...]
) -> None:
    run = adversarial_run(cache, **SHORT)
    whole = run.trained
    assert len(whole.history) == STEPS
    forget(run)
    for stop in stops:
        with monkeypatch.context() as patch:
            patch.setattr(adversarial_training, "train", partial(train, stop_after=stop))
            assert adversarial_run(cache, **SHORT).trained.history == whole.history[:stop]
    assert_same(adversarial_run(cache, **SHORT).trained, whole)


def test_a_run_that_dies_is_taken_up_from_its_last_checkpoint(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = adversarial_run(cache, **SHORT)
    whole = run.trained
    forget(run)
    attacks = AdversarialRun.attack_batch

    def dies(self: AdversarialRun, *given: Any) -> Tensor:  # noqa: ANN401
        if given[-1] == 5:
            raise KeyboardInterrupt
        return attacks(self, *given)

    with monkeypatch.context() as patch:
        patch.setattr(training, "SECONDS_BETWEEN_CHECKPOINTS", -1)
        patch.setattr(AdversarialRun, "attack_batch", dies)
        with pytest.raises(KeyboardInterrupt):
            _ = adversarial_run(cache, **SHORT).trained
    assert read_tensors(run.training_stage.folder / CHECKPOINT)[1] == 5
    assert_same(adversarial_run(cache, **SHORT).trained, whole)


def test_a_finished_run_is_not_trained_again(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = adversarial_run(cache, **SHORT).trained
    vectors = adversarial_run(cache, **SHORT).embeddings("queries")
    monkeypatch.setattr(AdversarialRun, "attack_batch", pytest.fail)
    monkeypatch.setattr(embedding, "random_view", None)
    monkeypatch.setattr(embedding, "forward_in_batches", None)
    again = adversarial_run(cache, **SHORT)
    assert_same(again.trained, whole)
    np.testing.assert_array_equal(again.embeddings("queries"), vectors)


def test_what_changes_the_weights_changes_the_folder(cache: Path) -> None:
    runs = [
        adversarial_run(cache),
        *(adversarial_run(cache, **{name: value}) for name, value in CHANGES.items()),
        AdversarialRun(clean_run(cache, seed=1), ADVERSARIAL),
    ]
    assert len({run.training_stage.key for run in runs}) == len(CHANGES) + 2


CHANGES: dict[str, object] = {
    "epsilon": 0.2,
    "step": 0.01,
    "n_steps": 4,
    "ramp": 0.1,
    "attacked_share": 1.0,
    "epochs": 2.0,
    "learning_rate": 1e-3,
    "proxy_learning_rate": 1e-3,
}


def test_a_training_that_another_version_began_is_not_continued(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = adversarial_run(cache, **SHORT)
    _ = run.trained
    forget(run)
    with monkeypatch.context() as patch:
        patch.setattr(adversarial_training, "versions", lambda: {"torch": "1.0"})
        patch.setattr(embedding, "versions", lambda: {"torch": "1.0"})
        patch.setattr(adversarial_training, "train", partial(train, stop_after=2))
        _ = adversarial_run(cache, **SHORT).trained
    with pytest.raises(NearsureError, match=r"was begun with .*'torch': '1.0'"):
        _ = adversarial_run(cache, **SHORT).trained
    forget(run)


def attacked(
    run: EmbeddingRun, step: int = 9, model: Trained | None = None, **changes: object
) -> tuple[Tensor, Tensor]:
    """A batch before and after, at a step of ten."""
    images, codes = batch(run)
    given = images.clone()
    settings = ADVERSARIAL.model_copy(update=changes)
    found = AdversarialRun(run, settings).attack_batch(
        model or run.trained, 10, images, codes, step
    )
    assert torch.equal(images, given)
    return images, found


def batch(run: EmbeddingRun) -> tuple[Tensor, Tensor]:
    return run.batches(np.unique(run.split.train.labels, return_inverse=True)[1])(0)


@pytest.mark.parametrize("share", [0.5, 0.75, 1.0])
def test_only_the_chosen_share_of_every_class_is_attacked(cache: Path, share: float) -> None:
    run = clean_run(cache)
    images, found = attacked(run, attacked_share=share)
    codes = batch(run)[1]
    touched = (found != images).flatten(1).any(dim=1)
    for code in codes.unique().tolist():  # type: ignore[no-untyped-call]
        assert int(touched[codes == code].sum()) == round(4 * share)
    assert torch.equal(found[~touched], images[~touched])
    assert (found - images).abs().max() <= 0.1 + 1e-6
    assert ((found >= 0) & (found <= 1)).all()


def test_a_loss_of_pairs_has_pairs_to_attack(tmp_path: Path) -> None:
    two = clean_run(tmp_path, training={"images_per_class": 2, "epochs": 1})
    assert AdversarialRun(two, ADVERSARIAL).attacked_share == 1
    images, found = attacked(two)
    assert (found != images).flatten(1).any(dim=1).all()


def test_the_attack_raises_the_loss_of_the_model_in_use_and_leaves_no_trace(cache: Path) -> None:
    run = clean_run(cache)
    model = run.trained
    model.embedder.train()
    before = weights(model)
    state = {name: tensor.clone() for name, tensor in before.items()}
    images, found = attacked(run, attacked_share=1.0)
    assert model.embedder.training
    assert all(torch.equal(state[name], tensor) for name, tensor in before.items())
    model.embedder.eval()
    codes = batch(run)[1]
    with torch.no_grad():
        usual, under_attack = (model.loss(model.embedder(x), codes) for x in (images, found))
    assert under_attack > usual + 1


def test_seed_and_step_decide_the_attack(cache: Path) -> None:
    run = clean_run(cache)
    assert torch.equal(attacked(run, 3)[1], attacked(run, 3)[1])
    other = AdversarialRun(clean_run(cache, seed=1), ADVERSARIAL.model_copy(update={"ramp": 0.0}))
    # At a full epsilon from the start, so that nothing but the random start differs.
    found = [attacked(run, step, ramp=0.0)[1] for step in (3, 4)]
    found.append(other.attack_batch(run.trained, 10, *batch(run), 3))
    assert len({tuple(x.flatten().tolist()) for x in found}) == 3


def test_epsilon_and_step_rise_together_and_stay(cache: Path) -> None:
    def attack_at(step: int, steps: int, ramp: float) -> Attack:
        settings = ADVERSARIAL.model_copy(update={"ramp": ramp})
        return AdversarialRun(clean_run(cache), settings).attack_at(step, steps)

    attacks = [attack_at(step, 10, 0.5) for step in range(10)]
    shares = [0.2, 0.4, 0.6, 0.8, 1, 1, 1, 1, 1, 1]
    np.testing.assert_allclose([attack.epsilon for attack in attacks], np.multiply(0.1, shares))
    np.testing.assert_allclose([attack.step for attack in attacks], np.multiply(0.06, shares))
    assert all(attack.n_steps == 2 and attack.random_start for attack in attacks)
    assert attack_at(0, 10, 0.0).epsilon == 0.1
    assert attack_at(6, 7, 1.0).epsilon == pytest.approx(0.1)
    # A run of one step is not an attack of no size.
    assert attack_at(0, 1, 0.5).epsilon == 0.1


def test_streams_of_other_numbers_are_other_streams() -> None:
    drawn = {
        float(torch.rand(1, generator=seeded_generator(*entropy)))
        for entropy in [(0, 2, 0), (0, 2, 1), (1, 2, 0), (0, 1, 2)]
    }
    assert len(drawn) == 4
    ours, again = (torch.rand(5, generator=seeded_generator(3, 2, 7)) for _ in range(2))
    assert torch.equal(ours, again)


def test_a_batch_without_a_loss_is_no_error(cache: Path) -> None:
    """Triplets may all be settled: what is left is the random start."""

    class Settled(nn.Module):
        def forward(self, embeddings: Tensor, codes: Tensor) -> Tensor:
            return 0 * (embeddings.sum() + codes.sum())

    run = clean_run(cache)
    images, found = attacked(run, model=run.trained._replace(loss=Settled()))
    assert 0 < (found - images).abs().max() <= 0.1 + 1e-6
