"""`EmbeddingRun`: from images and settings to cached embeddings."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from nearsure.arrays import AnyArray, IntArray
from nearsure.errors import NearsureError
from nearsure.lab.cache import CachedStep, digest
from nearsure.lab.config import RunSettings
from nearsure.lab.datasets.images import ImageSplit, LabelledImages, Pixels
from nearsure.lab.images import central_view, progress, random_view
from nearsure.lab.losses import make_loss, start_proxies
from nearsure.lab.network import (
    Embedder,
    fold_batch_norm,
    make_embedder,
    on_sphere,
    to_tensor,
)
from nearsure.lab.report import versions
from nearsure.lab.training import (
    CHECKPOINT,
    VERSION,
    Batch,
    balanced_rows,
    n_steps,
    read_tensors,
    train,
    view_generator,
)

FEATURE_CHUNK = 1024
FORWARD_BATCH = 64
READERS = 2


class Trained(NamedTuple):
    """What training left: the embedder, the loss with its proxies, the loss at each step."""

    embedder: Embedder
    loss: nn.Module
    history: list[float]


@dataclass(frozen=True)
class EmbeddingRun:
    """A run on a split; nothing is computed before it is asked for, nor twice.

    Parameters
    ----------
    settings : RunSettings
        The run.
    split : ImageSplit
        Its images.
    cache : Path
        Folder of all stages.
    """

    settings: RunSettings
    split: ImageSplit
    cache: Path

    @cached_property
    def images_key(self) -> str:
        """Digest of which images there are, wherever they lie."""
        dataset = self.settings.dataset
        return digest(
            [
                dataset.name,
                dataset.image_size,
                self.settings.seed if dataset.name == "glyphs" else None,
                [[images.names, images.labels] for images in self.split.parts.values()],
            ]
        )

    @property
    def training_stage(self) -> CachedStep:
        """Where the trained weights are."""
        inputs = {
            "images": self.images_key,
            "model": self.settings.model.model_dump(),
            "training": self.settings.training.model_dump(),
            "seed": self.settings.seed,
            "version": VERSION,
        }
        return CachedStep(self.cache, "training", inputs)

    def embeddings(self, part: str) -> AnyArray:
        """Unit vectors of the images of "train", "queries" or "gallery", shape (n, d), float32."""
        images, embedder = self.split.parts[part], self.trained.embedder
        stage = embeddings_step(self.cache, self.training_stage.key)
        if self.settings.model.trained == "all":
            size = self.settings.dataset.image_size
            return embed_images(stage, part, images, fold_batch_norm(embedder), size=size)
        features = torch.from_numpy(self.features(part))

        def embed(rows: range) -> AnyArray:
            with torch.inference_mode():
                chunk = embedder.from_features(features[rows.start : rows.stop])
                return on_sphere(chunk).numpy()

        return cached_rows(stage, part, len(images), embed, f"embed {part}")

    def features(self, part: str) -> AnyArray:
        """Pooled features of the backbone before any training, shape (n, n_features)."""
        images = self.split.parts[part]
        inputs = {"images": self.images_key, "backbone": self.settings.model.backbone}
        stage = CachedStep(self.cache, "features", inputs)
        size = self.settings.dataset.image_size

        def forward(rows: range) -> AnyArray:
            return forward_in_batches(self._untrained_backbone, images, rows, size=size)

        return cached_rows(stage, part, len(images), forward, f"features of {part}")

    @cached_property
    def _untrained_backbone(self) -> nn.Module:
        return make_embedder(self.settings).backbone.eval()

    @property
    def made_with(self) -> dict[str, str]:
        """Versions of what made the weights, or the features where nothing is trained."""
        return self.training_stage.document("versions", versions)

    @cached_property
    def trained(self) -> Trained:
        """The embedder after training, in eval mode, with its loss."""
        settings, images = self.settings, self.split.train
        embedder = make_embedder(settings)
        if settings.model.trained == "nothing":
            return Trained(embedder.eval(), nn.Identity(), [])
        codes = np.unique(images.labels, return_inverse=True)[1]
        loss = make_loss(
            settings.training,
            n_classes=int(codes.max()) + 1,
            embedding_size=embedder.embedding_size,
            seed=settings.seed,
        )
        modules: dict[str, nn.Module] = {"embedder": embedder, "loss": loss}
        if settings.model.trained == "head":
            embedder.backbone.requires_grad_(requires_grad=False)
            modules["embedder"] = embedder.head
        if settings.training.proxies_from_class_means and settings.model.backbone != "small-cnn":
            with torch.no_grad():
                start = on_sphere(embedder.from_features(torch.from_numpy(self.features("train"))))
            start_proxies(loss, class_means(start, codes))
        stage, steps = self.training_stage, n_steps(settings.training, len(images))
        refuse_other_versions(stage, self.made_with, steps)
        history = train(
            embedder if settings.model.trained == "all" else embedder.from_features,
            modules,
            self.batches(codes),
            settings.training,
            steps=steps,
            folder=stage.folder,
        )
        return Trained(embedder.eval(), loss, history)

    def batches(self, codes: IntArray) -> Callable[[int], Batch]:
        """Batches of images, or of cached features where only a head learns."""
        settings, training = self.settings, self.settings.training
        if settings.model.trained == "head":
            features = torch.from_numpy(self.features("train"))

        def inputs(rows: IntArray, step: int) -> Tensor:
            if settings.model.trained == "head":
                return features[rows]
            views = [
                random_view(
                    self.split.train.read(row),
                    training.crop_size or settings.dataset.image_size,
                    view_generator(settings.seed, step, position),
                    smallest_crop=training.smallest_crop,
                    flip=training.flip,
                )
                for position, row in enumerate(rows.tolist())
            ]
            return to_tensor(views)

        def batch(step: int) -> Batch:
            rows = balanced_rows(
                codes,
                classes_per_batch=training.classes_per_batch,
                images_per_class=training.images_per_class,
                seed=settings.seed,
                step=step,
            )
            return inputs(rows, step), torch.from_numpy(codes[rows])

        return batch


def embeddings_step(cache: Path, training: str) -> CachedStep:
    """Where the embeddings of a trained network are; `training` is the key of its training."""
    return CachedStep(cache, "embeddings", {"training": training})


def embed_images(
    stage: CachedStep, part: str, images: LabelledImages, embedder: Embedder, *, size: int
) -> AnyArray:
    """Unit vectors of images, shape (n, d), computed and kept a chunk at a time."""

    def embed(rows: range) -> AnyArray:
        return forward_in_batches(lambda batch: on_sphere(embedder(batch)), images, rows, size=size)

    return cached_rows(stage, part, len(images), embed, f"embed {part}")


def cached_rows(
    stage: CachedStep, part: str, n: int, compute: Callable[[range], AnyArray], what: str
) -> AnyArray:
    """A row for each of n images, computed and kept a chunk at a time."""
    found = stage.rows(
        part, n, lambda rows: {"rows": compute(rows)}, chunk=FEATURE_CHUNK, track=progress(what)
    )
    return found["rows"]


def forward_in_batches(
    network: Callable[[Tensor], Tensor], images: LabelledImages, rows: range, *, size: int
) -> AnyArray:
    """Outputs of a network for the central views of some images."""

    def view(row: int) -> Pixels:
        return central_view(images.read(row), size)

    with ThreadPoolExecutor(READERS) as readers, torch.inference_mode():
        starts = range(rows.start, rows.stop, FORWARD_BATCH)
        batches = [range(i, min(i + FORWARD_BATCH, rows.stop)) for i in starts]
        outputs = [network(to_tensor(list(readers.map(view, batch)))) for batch in batches]
    return torch.cat(outputs).numpy()


def refuse_other_versions(stage: CachedStep, made_with: dict[str, str], steps: int) -> None:
    """Half of a training by one version and half by another would be neither's numbers."""
    path = stage.folder / CHECKPOINT
    if made_with != versions() and path.exists() and read_tensors(path)[1] < steps:
        raise NearsureError(
            f"{path.parent} was begun with {made_with}, and now there is {versions()}. "
            "Go on with the former, or delete the folder to start again."
        )


def class_means(embeddings: Tensor, codes: IntArray) -> Tensor:
    """Mean of the embeddings of each class, shape (n_classes, d); every code from 0 must occur.

    Examples
    --------
    >>> class_means(torch.tensor([[0.0], [2.0], [5.0]]), np.array([0, 0, 1])).tolist()
    [[1.0], [5.0]]
    """
    sums = embeddings.new_zeros(int(codes.max()) + 1, embeddings.shape[1])
    sums.index_add_(0, torch.from_numpy(codes), embeddings)
    return sums / torch.from_numpy(np.bincount(codes))[:, None]
