"""A second model: the first, trained on with attacked images in place of clean ones."""

import copy
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
import torch
from torch import Tensor, nn

from nearsure.arrays import AnyArray
from nearsure.lab.cache import CachedStep
from nearsure.lab.config import TrainingSettings
from nearsure.lab.embedding import (
    EmbeddingRun,
    Trained,
    embed_images,
    embeddings_step,
    refuse_other_versions,
)
from nearsure.lab.report import versions
from nearsure.lab.robust.settings import AdversarialTraining
from nearsure.lab.training import n_steps, train
from nearsure.robustness.attacks import Attack, perturb

# Of the streams of random numbers that start from a run's seed; see `lab.training`.
ATTACK_STREAM = 2


@dataclass(frozen=True)
class AdversarialRun:
    """Training on attacked images; nothing is computed before it is asked for, nor twice.

    Parameters
    ----------
    clean : EmbeddingRun
        The run whose trained network and proxies it starts from; the whole network is trained.
    settings : AdversarialTraining
        How.
    """

    clean: EmbeddingRun
    settings: AdversarialTraining

    @property
    def training_stage(self) -> CachedStep:
        """Where the trained weights are."""
        inputs = {"clean": self.clean.training_stage.key, "training": self.settings.model_dump()}
        return CachedStep(self.clean.cache, "adversarial-training", inputs)

    @cached_property
    def trained(self) -> Trained:
        """The embedder after adversarial training, in eval mode, with its loss."""
        start = copy.deepcopy(self.clean.trained)
        modules: dict[str, nn.Module] = {"embedder": start.embedder, "loss": start.loss}
        labels = self.clean.split.train.labels
        stage, steps = self.training_stage, n_steps(self._schedule, len(labels))
        refuse_other_versions(stage, stage.document("versions", versions), steps)
        history = train(
            start.embedder,
            modules,
            self.clean.batches(np.unique(labels, return_inverse=True)[1]),
            self._schedule,
            steps=steps,
            folder=stage.folder,
            disturb=partial(self.attack_batch, start, steps),
        )
        return start._replace(history=history)

    def embeddings(self, part: str) -> AnyArray:
        """Unit vectors of the images of "queries" or "gallery", shape (n, d), float32."""
        images, embedder = self.clean.split.parts[part], self.trained.embedder
        stage = embeddings_step(self.clean.cache, self.training_stage.key)
        size = self.clean.settings.dataset.image_size
        return embed_images(stage, part, images, embedder, size=size)

    @property
    def _schedule(self) -> TrainingSettings:
        given = self.settings.model_dump(include={"epochs", "learning_rate", "proxy_learning_rate"})
        return self.clean.settings.training.model_copy(update=given)

    @property
    def attacked_share(self) -> float:
        """Share of every class that is attacked: whole images, and a pair at least."""
        # Losses without proxies compare the attacked images themselves.
        per_class = self.clean.settings.training.images_per_class
        return max(2, round(self.settings.attacked_share * per_class)) / per_class

    def attack_at(self, step: int, steps: int) -> Attack:
        """The attack at a step of the training; epsilon rises in the first part of its steps."""
        rising = self.settings.ramp * steps
        share = min(1.0, (step + 1) / rising) if rising else 1.0
        return Attack(
            "pgd",
            share * self.settings.epsilon,
            share * self.settings.step,
            self.settings.n_steps,
            random_start=True,
        )

    def attack_batch(
        self, model: Trained, steps: int, images: Tensor, codes: Tensor, step: int
    ) -> Tensor:
        """A batch with some images under attack; a function of model, seed and step alone.

        Parameters
        ----------
        model : Trained
            The model as it stands at this step, and the loss that it is trained with.
        steps : int
            Length of the run.
        images, codes : tensor of shape (n, ...)
            The batch; images of a class stand together, and the first of them are attacked.
        step : int
            Which step.
        """
        per_class = self.clean.settings.training.images_per_class
        chosen = torch.arange(len(images)) % per_class < round(self.attacked_share * per_class)
        own = codes[chosen]
        attacked = perturb(
            model.embedder,
            images[chosen],
            lambda embeddings: model.loss(embeddings, own),
            self.attack_at(step, steps),
            seeded_generator(self.clean.settings.seed, ATTACK_STREAM, step),
            # Triplets of a batch may all be settled: there is nothing to attack, nor to learn.
            gradient_required=False,
        )
        batch = images.clone()
        batch[chosen] = attacked.images
        return batch


def seeded_generator(*entropy: int) -> torch.Generator:
    """A generator for torch whose stream is a function of all the numbers."""
    state = np.random.SeedSequence(entropy).generate_state(1, np.uint64)
    return torch.Generator().manual_seed(int(state[0]))
