"""A model with its clean galleries: who is searched, and fits on clean embeddings alone."""

from pathlib import Path

import numpy as np
import pytest
import torch
from small_runs import N_UNSEEN, PER_CLASS, SIZE, adversarial_run, clean_run
from torch import nn

from nearsure.arrays import FloatArray, IntArray
from nearsure.lab.embedding import EmbeddingRun
from nearsure.lab.evaluation import fit_with_notes
from nearsure.lab.network import on_sphere, to_tensor
from nearsure.lab.protocols import (
    all_against_others,
    gallery_and_queries,
    gallery_half,
    given_gallery,
)
from nearsure.lab.robust.damaged import central_views
from nearsure.lab.robust.model import (
    NOWHERE,
    FrozenSupport,
    RobustModel,
    damaged_rows,
    frozen_supports,
)
from nearsure.neighbors import Neighbors
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


FEW, N_POINTS, HALF_SEED = 6, 40, 3
POINT_CODES = np.repeat(np.arange(5), 8)


def vectors(seed: int = 0, n: int = N_POINTS) -> FloatArray:
    drawn = np.random.default_rng(seed).standard_normal((n, 4))
    unit: FloatArray = drawn / np.linalg.norm(drawn, axis=1, keepdims=True)
    return unit


def supports() -> dict[str, FrozenSupport]:
    found = frozen_supports(vectors(), POINT_CODES, None, seed=HALF_SEED)
    assert list(found) == ["all_against_others", "gallery_and_queries"]
    return {str(name): support for name, support in found.items()}


def nearest(
    queries: FloatArray, gallery: FloatArray, left_out: list[int | None], k: int = FEW
) -> tuple[FloatArray, IntArray]:
    """One query at a time, by sorting all distances."""
    distances, ids = [], []
    for query, own in zip(queries, left_out, strict=True):
        sq = [float(np.square(query - point).sum()) for point in gallery]
        order = sorted((i for i in range(len(gallery)) if i != own), key=lambda i: sq[i])[:k]
        ids.append(order)
        distances.append([sq[i] for i in order])
    return np.array(distances), np.array(ids)


def assert_found(found: Neighbors, expected: tuple[FloatArray, IntArray], codes: IntArray) -> None:
    np.testing.assert_allclose(found.sq_distances, expected[0], rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(found.ids, expected[1])
    np.testing.assert_array_equal(found.labels, codes[expected[1]])


@pytest.mark.parametrize("damage", [0.0, 1e-3, 0.3])
def test_a_damaged_query_never_finds_its_own_clean_image(damage: float) -> None:
    rows = np.array([7, 0, 39, 12, 7])
    damaged = vectors()[rows] + damage * vectors(1, len(rows))
    found = supports()["all_against_others"].neighbors(damaged, rows, FEW)
    assert not (np.asarray(found.ids) == rows[:, None]).any()
    assert_found(found, nearest(damaged, vectors(), rows.tolist()), POINT_CODES)


def test_a_twin_of_the_query_is_found_though_the_query_is_not() -> None:
    twins = vectors()
    twins[20] = twins[4]
    found = frozen_supports(twins, POINT_CODES, None, seed=HALF_SEED)[
        "all_against_others"
    ].neighbors(twins[[4, 20]], np.array([4, 20]), FEW)
    assert np.asarray(found.ids)[:, 0].tolist() == [20, 4]
    assert found.sq_distances[:, 0].tolist() == [0, 0]


def test_the_strict_gallery_is_half_of_every_class_and_holds_no_query() -> None:
    support = supports()["gallery_and_queries"]
    half = np.flatnonzero(gallery_half(POINT_CODES, seed=HALF_SEED))
    np.testing.assert_array_equal(support.vectors, vectors()[half])
    np.testing.assert_array_equal(support.codes, POINT_CODES[half])
    asked = np.flatnonzero(support.may_ask(np.arange(N_POINTS)))
    assert sorted([*half, *asked]) == list(range(N_POINTS))
    for row in asked:
        assert not (support.vectors == vectors()[row]).all(axis=1).any()
    damaged = vectors()[asked] + 0.1 * vectors(1, len(asked))
    found = support.neighbors(damaged, asked, FEW)
    expected = nearest(damaged, vectors()[half], [None] * len(asked))
    assert_found(found, expected, POINT_CODES[half])


def test_rows_of_the_strict_gallery_would_not_find_themselves_either() -> None:
    """Nobody asks about them, but if somebody did."""
    support = supports()["gallery_and_queries"]
    half = np.flatnonzero(gallery_half(POINT_CODES, seed=HALF_SEED))
    places = {int(row): place for place, row in enumerate(half)}
    rows = np.arange(N_POINTS)
    found = support.neighbors(vectors(), rows, FEW)
    expected = nearest(vectors(), vectors()[half], [places.get(row) for row in range(N_POINTS)])
    assert_found(found, expected, POINT_CODES[half])


def test_undamaged_they_are_the_protocols_of_the_clean_evaluation() -> None:
    found, rows = supports(), np.arange(N_POINTS)
    for support in found.values():
        asked = rows[support.may_ask(rows)]
        clean = (
            all_against_others(vectors(), POINT_CODES, k=FEW)
            if support.protocol == "all_against_others"
            else gallery_and_queries(vectors(), POINT_CODES, k=FEW, seed=HALF_SEED)
        )
        own, queries = support.own_neighbors(FEW), support.neighbors(vectors()[asked], asked, FEW)
        np.testing.assert_array_equal(own.ids, clean.own.ids)
        np.testing.assert_allclose(own.sq_distances, clean.own.sq_distances)
        np.testing.assert_array_equal(queries.labels, clean.queries.labels)
        np.testing.assert_allclose(queries.sq_distances, clean.queries.sq_distances)
        np.testing.assert_array_equal(support.query_codes[asked], clean.query_codes)


def test_a_given_gallery_is_searched_as_a_whole_and_may_lack_classes() -> None:
    gallery, gallery_codes = vectors(5, 15), np.repeat(np.arange(3), 5)
    unknown = np.minimum(POINT_CODES, 3)
    found = frozen_supports(vectors(), unknown, (gallery, gallery_codes), seed=HALF_SEED)
    (support,) = found.values()
    assert list(found) == ["given_gallery"]
    rows = np.array([39, 3, 17])
    assert support.may_ask(np.arange(N_POINTS)).all()
    assert (support.gallery_rows == NOWHERE).all()
    neighbors = support.neighbors(vectors()[rows], rows, 15)
    assert_found(neighbors, nearest(vectors()[rows], gallery, [None] * 3, k=15), gallery_codes)
    assert not (neighbors.labels == 3).any()
    assert len(np.unique(damaged_rows(support, 40, seed=0))) == N_POINTS


def test_fewer_damaged_rows_are_the_first_of_more() -> None:
    support = supports()["gallery_and_queries"]
    whole = damaged_rows(support, None, seed=1)
    assert sorted(whole) == list(range(N_POINTS))
    for n in (1, 7, 20, 21, N_POINTS):
        np.testing.assert_array_equal(damaged_rows(support, n, seed=1), whole[:n])
    assert not np.array_equal(whole, damaged_rows(support, None, seed=2))
    assert not np.array_equal(whole, np.sort(whole))


def test_rows_that_the_strict_protocol_asks_about_come_first() -> None:
    support = supports()["gallery_and_queries"]
    asked = support.may_ask(damaged_rows(support, None, seed=1))
    n_asked = int(asked.sum())
    assert n_asked == 20
    assert asked[:n_asked].all()
    # Chance, not the order of the classes, decides among them.
    first = damaged_rows(support, 10, seed=1)
    assert len(np.unique(POINT_CODES[first])) >= 3
