"""Both experiments on a small model: which queries, which damage, figures by hand."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from small_runs import (
    CODES,
    FEW,
    SEED,
    accuracy,
    attacked_by,
    corrupted_by,
    queries_of,
    right_by_1nn,
    small_model,
)
from torch import Tensor

from nearsure.errors import ZeroGradientError
from nearsure.lab.losses import SOFTMAX_TEMPERATURE
from nearsure.lab.network import on_sphere, to_tensor
from nearsure.lab.robust import experiments
from nearsure.lab.robust.experiments import plan_attacks
from nearsure.lab.robust.methods import METHODS, Method
from nearsure.lab.robust.model import RobustModel, damaged_rows
from nearsure.lab.robust.settings import PIXEL, RobustSettings
from nearsure.robustness import corrupt, corruption_rng
from nearsure.robustness.attack_losses import against_proxies, confidence_in_a_wrong_class
from nearsure.robustness.attacks import Attack, bim, fgsm, pgd

pytestmark = pytest.mark.usefixtures("few_corruptions")


def test_the_plan_is_the_paper_s_table_and_the_curves() -> None:
    found = plan_attacks(RobustSettings())
    small = [levels * PIXEL for levels in (0.1, 0.3, 1, 2, 4, 8)]
    steps = RobustSettings().small_steps
    assert found == [
        fgsm(0.1),
        fgsm(0.3),
        bim(0.1, step=0.02, n_steps=10),
        bim(0.3, step=0.02, n_steps=10),
        pgd(0.1, step=0.01, n_steps=40),
        pgd(0.3, step=0.01, n_steps=40),
        *(pgd(epsilon, step=epsilon / 4, n_steps=steps) for epsilon in small),
        *(Attack("confidence", e, e / 4, steps, random_start=True) for e in small),
    ]


def test_attacks_are_on_strict_queries_alone_and_do_harm(model: RobustModel) -> None:
    every, strict = attacked_by(model)
    assert every.n_queries == strict.n_queries == 12
    for evaluation in (every, strict):
        names = [(v.variant.name, v.variant.epsilon) for v in evaluation.variants]
        assert names == [
            *((name, 0.1) for name in ("fgsm", "bim", "pgd")),
            *((name, 0.02) for name in ("pgd", "confidence")),
        ]
        assert evaluation.corruptions == ()
        clean = evaluation.clean.of(Method("1nn")).accuracy.estimate
        assert accuracy(evaluation, 2) < clean - 0.3
        for found in evaluation.variants:
            variant = found.variant
            assert variant.n_without_gradient == 0
            assert variant.epsilon is not None
            assert variant.mean_distance is not None
            assert variant.max_distance is not None
            assert variant.mean_distance <= variant.max_distance <= variant.epsilon + 1e-6
            assert variant.mean_distance > 0.9 * variant.epsilon
            assert len(found.outcome.results) == len(METHODS)


def test_more_attacked_queries_than_the_strict_protocol_asks_are_all_of_them(
    model: RobustModel,
) -> None:
    settings = RobustSettings(**{**FEW.model_dump(), "attacked_queries": None})
    assert [found.n_queries for found in attacked_by(model, settings.for_queries(24))] == [12, 12]


def test_the_attacker_knows_the_strict_gallery_its_labels_and_t(
    model: RobustModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = replace(model, seed=7)
    rows = damaged_rows(model.strict, 12, seed=model.seed)
    seen: dict[str, list[tuple[Tensor, ...]]] = {"proxies": [], "confidence": []}

    def record(
        name: str, make: Callable[..., Callable[[Tensor], Tensor]]
    ) -> Callable[..., Callable[[Tensor], Tensor]]:
        def recorded(*given: Tensor, temperature: float) -> Callable[[Tensor], Tensor]:
            seen[name].append((*given, torch.tensor(temperature, dtype=torch.float64)))
            return make(*given, temperature=temperature)

        return recorded

    monkeypatch.setattr(experiments, "against_proxies", record("proxies", against_proxies))
    monkeypatch.setattr(
        experiments,
        "confidence_in_a_wrong_class",
        record("confidence", confidence_in_a_wrong_class),
    )
    monkeypatch.setattr(experiments, "ATTACKED_BATCH", 8)
    attacked_by(model)
    assert len(seen["proxies"]) == 2 * 4
    assert len(seen["confidence"]) == 2
    for found in seen["proxies"]:
        assert torch.equal(found[0], model.class_means)
        assert found[2] == SOFTMAX_TEMPERATURE
    strict = model.strict
    for found in seen["confidence"]:
        assert torch.equal(found[0], torch.from_numpy(strict.vectors))
        assert torch.equal(found[1], torch.from_numpy(strict.codes))
        assert found[3] == model.frozen[strict.protocol].temperature_fit.temperature
    for name in seen:
        codes = torch.cat([found[-2] for found in seen[name][:2]])
        np.testing.assert_array_equal(codes.numpy(), CODES[rows])


def test_an_attack_without_any_gradient_is_no_table(
    model: RobustModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    def blind(*_: Tensor, temperature: float) -> Callable[[Tensor], Tensor]:
        return lambda z: 0 * temperature * z.sum(dim=1)

    monkeypatch.setattr(experiments, "against_proxies", blind)
    with pytest.raises(ZeroGradientError, match=r"fgsm with epsilon 0.1.* look like robustness"):
        attacked_by(replace(model, seed=11))


def test_images_without_a_gradient_are_counted(
    model: RobustModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    def half_blind(*_: Tensor, temperature: float) -> Callable[[Tensor], Tensor]:
        return lambda z: temperature * (torch.arange(len(z)) % 4 == 0) * z[:, 0]

    monkeypatch.setattr(experiments, "against_proxies", half_blind)
    every, _ = attacked_by(replace(model, seed=12))
    counts = [found.variant.n_without_gradient for found in every.variants]
    assert counts == [9, 9, 9, 9, 0]


def test_attacked_queries_of_a_gallery_of_its_own(tmp_path: Path) -> None:
    model = small_model(tmp_path, epochs=4, gallery=True)
    (found,) = attacked_by(model, FEW.for_queries(8))
    assert found.protocol == "given_gallery"
    assert (found.n_queries, found.n_gallery) == (8, 16)


KINDS = (("fog", 2), ("fog", 5), ("contrast", 2), ("contrast", 5))


@pytest.mark.parametrize("n", [None, 9, 15])
def test_corrupted_queries_are_searched_among_the_clean_ones(
    model: RobustModel, n: int | None
) -> None:
    every, strict = corrupted_by(model, n)
    rows = damaged_rows(model.strict, n, seed=SEED)
    asked = rows[model.strict.may_ask(rows)]
    assert every.n_queries == len(rows) == (n or 24)
    assert strict.n_queries == len(asked) == min(n or 12, 12)
    assert (every.n_gallery, strict.n_gallery) == (24, 12)
    found = [(v.variant.name, v.variant.severity) for v in every.variants]
    assert tuple(found) == KINDS
    for place, (name, severity) in enumerate(KINDS):
        damaged = [
            corrupt(queries_of(model).read(int(row)), name, severity, rng)
            for row in rows
            for rng in [corruption_rng(SEED, int(row), name, severity)]
        ]
        with torch.inference_mode():
            vectors = on_sphere(model.embedder(to_tensor(damaged))).numpy()
        assert accuracy(every, place) == pytest.approx(
            right_by_1nn(model, vectors, rows, strict=False)
        )
        assert accuracy(strict, place) == pytest.approx(
            right_by_1nn(model, vectors[: len(asked)], asked, strict=True)
        )


def test_clean_figures_are_of_the_same_queries(model: RobustModel) -> None:
    every, strict = corrupted_by(model, 9)
    rows = damaged_rows(model.strict, 9, seed=SEED)
    vectors = model.run.embeddings("queries")[rows]
    for evaluation in (every, strict):
        clean = evaluation.clean.of(Method("1nn")).accuracy.estimate
        expected = right_by_1nn(model, vectors, rows, strict=evaluation is strict)
        assert clean == pytest.approx(expected)


def test_corrupted_queries_of_a_gallery_of_its_own(tmp_path: Path) -> None:
    (found,) = corrupted_by(small_model(tmp_path, epochs=4, gallery=True))
    assert found.protocol == "given_gallery"
    assert (found.n_queries, found.n_gallery) == (8, 16)
