"""A model with its clean galleries: what was fitted is fitted on clean embeddings alone."""

from pathlib import Path

import numpy as np
import pytest
import torch
from small_runs import N_UNSEEN, PER_CLASS, SIZE, adversarial_run, clean_run
from torch import nn

from nearsure.lab.embedding import EmbeddingRun
from nearsure.lab.evaluation import fit_with_notes
from nearsure.lab.network import on_sphere, to_tensor
from nearsure.lab.protocols import all_against_others, gallery_and_queries, given_gallery
from nearsure.lab.robust.damaged import central_views
from nearsure.lab.robust.model import RobustModel
from nearsure.robustness.attacks import fgsm, perturb

K, SEED = 5, 2
CODES = np.repeat(np.arange(N_UNSEEN), PER_CLASS)


def short_run(cache: Path, *, gallery: bool = False) -> EmbeddingRun:
    return clean_run(cache, gallery=gallery, training={"epochs": 4})


@pytest.fixture
def model(cache: Path) -> RobustModel:
    return RobustModel("small", short_run(cache), K, SEED)


def test_galleries_and_t_are_those_of_the_clean_protocols(model: RobustModel) -> None:
    vectors = model.run.embeddings("queries")
    expected = {
        "all_against_others": all_against_others(vectors, CODES, k=K),
        "gallery_and_queries": gallery_and_queries(vectors, CODES, k=K, seed=SEED),
    }
    assert list(model.supports) == list(model.frozen) == list(expected)
    for protocol, clean in expected.items():
        support, frozen = model.supports[protocol], model.frozen[protocol]  # type: ignore[index]
        np.testing.assert_array_equal(support.codes, clean.own_codes)
        np.testing.assert_array_equal(support.own_neighbors(K).ids, clean.own.ids)
        assert frozen.k == K
        fit, _ = fit_with_notes(clean.own, clean.own_codes)
        assert frozen.temperature_fit.temperature == fit.temperature
    assert model.strict is model.supports["gallery_and_queries"]
    assert model.key == model.run.training_stage.key


def test_a_gallery_of_its_own_is_the_only_protocol(tmp_path: Path) -> None:
    run = short_run(tmp_path, gallery=True)
    model = RobustModel("small", run, 50, SEED)
    queries, gallery = CODES[::3], CODES[np.arange(len(CODES)) % 3 > 0]
    n = len(gallery)
    clean = given_gallery(
        run.embeddings("gallery"), gallery, run.embeddings("queries"), queries, k=n - 1
    )
    assert list(model.supports) == ["given_gallery"]
    assert model.strict.protocol == "given_gallery"
    np.testing.assert_array_equal(model.strict.query_codes, queries)
    np.testing.assert_array_equal(model.strict.codes, gallery)
    found = model.strict.neighbors(run.embeddings("queries"), np.arange(len(queries)), n - 1)
    np.testing.assert_array_equal(found.labels, clean.queries.labels)
    # k is no more than a gallery point has others.
    assert model.frozen["given_gallery"].k == n - 1


def test_the_network_is_folded_and_embeds_as_before(model: RobustModel) -> None:
    assert not any(isinstance(part, nn.BatchNorm2d) for part in model.embedder.modules())
    assert any(isinstance(part, nn.BatchNorm2d) for part in model.run.trained.embedder.modules())
    queries = clean_run(model.cache).split.queries
    images = to_tensor(list(central_views(queries, np.arange(len(queries)), SIZE)))
    with torch.inference_mode():
        vectors = on_sphere(model.embedder(images))
    np.testing.assert_allclose(vectors.numpy(), model.run.embeddings("queries"), atol=1e-5)
    np.testing.assert_allclose(vectors.norm(dim=1).numpy(), 1, rtol=1e-5)


def test_it_can_be_attacked_though_it_was_first_used_in_inference_mode(cache: Path) -> None:
    model = RobustModel("small", short_run(cache), K, SEED)
    images = torch.rand(2, 3, SIZE, SIZE, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        model.embedder(images)
    found = perturb(model.embedder, images, lambda z: z[:, 0], fgsm(0.1), torch.Generator())
    assert found.had_gradient.all()


def test_the_adversarial_model_has_galleries_and_t_of_its_own(cache: Path) -> None:
    run = adversarial_run(cache, epochs=1.0)
    ours, theirs = RobustModel("a", run, K, SEED), RobustModel("c", run.clean, K, SEED)
    assert ours.cache == theirs.cache == cache
    assert ours.key != theirs.key
    assert not np.array_equal(ours.strict.vectors, theirs.strict.vectors)
    # The same images are asked about.
    np.testing.assert_array_equal(ours.strict.gallery_rows, theirs.strict.gallery_rows)
    np.testing.assert_array_equal(ours.strict.query_codes, theirs.strict.query_codes)
    clean = all_against_others(run.embeddings("queries"), CODES, k=K)
    fit, _ = fit_with_notes(clean.own, clean.own_codes)
    assert ours.frozen["all_against_others"].temperature_fit.temperature == fit.temperature


def test_class_means_are_of_the_strict_gallery(model: RobustModel) -> None:
    strict = model.strict
    expected = [strict.vectors[strict.codes == code].mean(axis=0) for code in range(N_UNSEEN)]
    np.testing.assert_allclose(model.class_means.numpy(), expected, atol=1e-6)
