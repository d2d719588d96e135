"""Runs on a small tree: unit vectors, the same from two caches, others for another seed."""

from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from tiny_images import settings, write_tree

from nearsure.arrays import AnyArray
from nearsure.errors import InvalidInputError, NearsureError
from nearsure.lab import embedding as embedding_run
from nearsure.lab.config import RunSettings
from nearsure.lab.datasets.images import ImageSplit
from nearsure.lab.embedding import EmbeddingRun, class_means
from nearsure.lab.images import prepare_images
from nearsure.lab.network import make_embedder
from nearsure.lab.training import train

SMALL = {"model": {"backbone": "small-cnn", "embedding_size": 8}}
HEAD = {"model": {"trained": "head", "embedding_size": 8}}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tree(tmp_path_factory.mktemp("images") / "tree")


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """For what takes EfficientNet."""
    return tmp_path_factory.mktemp("cache")


def split_of(run: RunSettings, cache: Path) -> ImageSplit:
    return prepare_images(run.dataset, seed=run.seed, cache=cache)


def embedded(run: RunSettings, cache: Path) -> AnyArray:
    return EmbeddingRun(run, split_of(run, cache), cache).embeddings("queries")


def assert_unit(vectors: NDArray[np.float32], shape: tuple[int, int]) -> None:
    assert vectors.shape == shape
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-5)
    assert len(np.unique(vectors, axis=0)) == len(vectors)


def test_nothing_trained_gives_the_features_on_the_sphere(root: Path, cache: Path) -> None:
    run = settings(root, model={"trained": "nothing"})
    state = torch.get_rng_state()
    embedding = EmbeddingRun(run, split_of(run, cache), cache)
    vectors, features = embedding.embeddings("queries"), embedding.features("queries")
    assert_unit(vectors, (12, 1280))
    lengths = np.linalg.norm(features, axis=1, keepdims=True)
    np.testing.assert_allclose(vectors, features / lengths, rtol=1e-5, atol=1e-7)
    assert embedding.trained.history == []
    assert torch.equal(torch.get_rng_state(), state)


def test_a_head_learns_on_cached_features(
    root: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = settings(root, **HEAD)
    embedding = EmbeddingRun(run, split_of(run, cache), cache)
    assert_unit(embedding.embeddings("queries"), (12, 8))
    assert len(embedding.trained.history) == 6  # four passes over 12 images, eight at a time
    # All that needs the backbone is there now: other heads only learn.
    monkeypatch.setattr("nearsure.lab.embedding.forward_in_batches", None)
    others = [embedded(settings(root, **HEAD, seed=seed), cache) for seed in (1, 2)]
    proxies = settings(root, **HEAD, training={"proxies_from_class_means": False})
    others += [embedding.embeddings("queries"), embedded(proxies, cache)]
    assert len({vectors.tobytes() for vectors in others}) == 4


def test_frozen_blocks_stay_and_the_others_learn(root: Path, cache: Path) -> None:
    run = settings(root, model={"frozen_blocks": 3}, training={"epochs": 1})
    trained = EmbeddingRun(run, split_of(run, cache), cache).trained.embedder.state_dict()
    before = make_embedder(run).state_dict()
    changed = {key for key, tensor in before.items() if not torch.equal(tensor, trained[key])}
    frozen = ("_conv_stem.", "_bn0.", "_blocks.0.", "_blocks.1.", "_blocks.2.")
    names = {key.removeprefix("backbone.network.") for key in changed}
    assert not [name for name in names if name.startswith(frozen)]
    assert any(name.startswith("_blocks.3.") for name in names)


def test_training_sees_views_of_its_own_size(root: Path, cache: Path) -> None:
    run = settings(root, training={"crop_size": 24})
    embedding = EmbeddingRun(run, split_of(run, cache), cache)
    views, _ = embedding.batches(np.unique(embedding.split.train.labels, return_inverse=True)[1])(0)
    assert views.shape[2:] == (24, 24)
    assert run.dataset.image_size != 24


def test_the_whole_efficientnet_learns(root: Path, cache: Path) -> None:
    run = settings(root, training={"epochs": 1})
    embedding = EmbeddingRun(run, split_of(run, cache), cache)
    vectors = embedding.embeddings("queries")
    assert_unit(vectors, (12, 1280))
    assert len(embedding.trained.history) == 2
    # Images of one class lie closer than those of others, mostly: it was not torn down.
    sq_distances = 2 - 2 * vectors @ vectors.T + 9 * np.eye(12)
    assert (sq_distances.argmin(axis=1) // 3 == np.arange(12) // 3).mean() > 0.5


def test_the_same_twice_and_another_for_another_seed_or_loss(root: Path, tmp_path: Path) -> None:
    first = embedded(settings(root, **SMALL), tmp_path / "1")
    assert_unit(first, (12, 8))
    np.testing.assert_array_equal(first, embedded(settings(root, **SMALL), tmp_path / "2"))
    np.testing.assert_array_equal(first, embedded(settings(root, **SMALL), tmp_path / "1"))
    for changes in ({"seed": 1}, {"training": {"loss": "triplet"}}, {"training": {"flip": False}}):
        other = embedded(settings(root, **SMALL, **changes), tmp_path / "1")
        assert not np.array_equal(first, other)


def test_a_cached_run_is_not_computed_again(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = settings(root, **SMALL)
    first = EmbeddingRun(run, split_of(run, tmp_path), tmp_path)
    vectors, history = first.embeddings("queries"), first.trained.history
    monkeypatch.setattr("nearsure.lab.embedding.forward_in_batches", None)
    monkeypatch.setattr("nearsure.lab.embedding.random_view", None)
    again = EmbeddingRun(run, split_of(run, tmp_path), tmp_path)
    np.testing.assert_array_equal(again.embeddings("queries"), vectors)
    assert again.trained.history == history


def test_where_the_images_lie_does_not_matter(tmp_path: Path) -> None:
    keys = set()
    for place in ("here", "there"):
        run = settings(write_tree(tmp_path / place), **SMALL)
        split = split_of(run, tmp_path / "cache")
        keys.add(EmbeddingRun(run, split, tmp_path / "cache").training_stage.key)
    assert len(keys) == 1


def test_weights_of_other_training_code_are_not_taken(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = settings(root, **SMALL)
    embedding = EmbeddingRun(run, split_of(run, tmp_path), tmp_path)
    before = embedding.training_stage.key
    monkeypatch.setattr("nearsure.lab.embedding.VERSION", -1)
    assert embedding.training_stage.key != before


def test_too_many_classes_a_batch_are_refused(root: Path, tmp_path: Path) -> None:
    run = settings(root, **SMALL, training={"classes_per_batch": 5})
    with pytest.raises(InvalidInputError, match="exceed the 4 classes of the train part"):
        embedded(run, tmp_path)


def test_a_gallery_is_embedded_as_queries_are(root: Path, tmp_path: Path) -> None:
    run = settings(root, **SMALL)
    split = split_of(run, tmp_path)
    with_gallery = ImageSplit("x", split.train, split.queries.take([0, 3, 6, 9]), split.queries)
    embedding = EmbeddingRun(run, with_gallery, tmp_path)
    np.testing.assert_allclose(
        embedding.embeddings("queries"), embedding.embeddings("gallery")[::3], atol=1e-5
    )
    with pytest.raises(KeyError, match="gallery"):
        EmbeddingRun(run, split, tmp_path).embeddings("gallery")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_class_means_are_means_of_the_same_type(dtype: torch.dtype) -> None:
    vectors, codes = np.arange(10.0).reshape(5, 2), np.array([1, 0, 1, 2, 0])
    means = class_means(torch.from_numpy(vectors).to(dtype), codes)
    assert means.dtype == dtype
    expected = [vectors[codes == code].mean(axis=0) for code in range(3)]
    np.testing.assert_allclose(means.numpy(), expected)


def test_a_training_that_another_version_began_is_not_continued(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = settings(root, **SMALL)
    split = split_of(run, tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(embedding_run, "versions", lambda: {"torch": "1.0"})
        patch.setattr(embedding_run, "train", partial(train, stop_after=2))
        assert len(EmbeddingRun(run, split, tmp_path).trained.history) == 2
    with pytest.raises(NearsureError, match=r"was begun with .*'torch': '1.0'"):
        EmbeddingRun(run, split, tmp_path).embeddings("queries")
    # Once it has ended, its numbers stay those of the version that made them.
    monkeypatch.setattr(embedding_run, "versions", lambda: {"torch": "1.0"})
    EmbeddingRun(run, split, tmp_path).embeddings("queries")
    monkeypatch.undo()
    done = EmbeddingRun(run, split, tmp_path)
    assert len(done.trained.history) > 2
    assert done.made_with == {"torch": "1.0"}
