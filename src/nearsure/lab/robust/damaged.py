"""Embeddings of corrupted and attacked queries, cached and scored."""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nearsure.arrays import AnyArray, BoolArray, FloatArray, IntArray
from nearsure.errors import InvalidInputError, NearsureError
from nearsure.lab.cache import CachedStep, digest
from nearsure.lab.datasets.images import LabelledImages, Pixels
from nearsure.lab.images import central_view
from nearsure.lab.network import Embedder, finite, on_sphere, to_tensor
from nearsure.lab.protocols import ProtocolName
from nearsure.lab.robust.adversarial_training import seeded_generator
from nearsure.lab.robust.evaluation import RobustEvaluation, evaluate_variants
from nearsure.lab.robust.model import RobustModel
from nearsure.lab.robust.settings import Variant
from nearsure.lab.training import read_ahead
from nearsure.neighbors import Neighbors
from nearsure.robustness import corrupt, corruption_rng
from nearsure.robustness.attack_losses import EmbeddingLoss
from nearsure.robustness.attacks import Attack, perturb

BATCH = 64


def central_views(images: LabelledImages, rows: IntArray, size: int) -> NDArray[np.uint8]:
    """What the network sees of some images, shape (n, size, size, 3)."""
    return np.stack([central_view(images.read(int(row)), size) for row in rows])


@dataclass(frozen=True, eq=False)
class CorruptedQueries:
    """Queries of one model under corruptions.

    Parameters
    ----------
    stage : CachedStep
        Holds the embeddings; its inputs say which model, images, rows and seed.
    embed : callable
        Batches of images in [0, 1] to unit vectors.
    views : array of shape (n, size, size, 3), uint8
        The clean queries.
    rows : array of shape (n,)
        Which query images they are; randomness belongs to the image, not to its place in a batch.
    seed : int
        Of the corruptions.
    """

    stage: CachedStep
    embed: Callable[[Tensor], Tensor]
    views: NDArray[np.uint8]
    rows: IntArray
    seed: int

    def clean(self) -> AnyArray:
        """Unit vectors of the queries as they are, shape (n, d)."""
        return self._embeddings("clean", lambda i: self.views[i])

    def corrupted(self, name: str, severity: int) -> AnyArray:
        """Unit vectors of the corrupted queries, shape (n, d)."""

        def damaged(i: int) -> Pixels:
            rng = corruption_rng(self.seed, int(self.rows[i]), name, severity)
            return corrupt(self.views[i], name, severity, rng)

        return self._embeddings(f"{name}-{severity}", damaged)

    def _embeddings(self, name: str, image_of: Callable[[int], Pixels]) -> AnyArray:
        def batch(number: int) -> Tensor:
            rows = range(number * BATCH, min((number + 1) * BATCH, len(self.views)))
            return to_tensor([image_of(i) for i in rows])

        def compute() -> dict[str, AnyArray]:
            batches = read_ahead(batch, range(-(-len(self.views) // BATCH)))
            with torch.inference_mode():
                rows = torch.cat([self.embed(images) for images in batches])
            return {"rows": finite(rows).numpy()}

        return self.stage.arrays(name, compute)["rows"]


CHUNK = 50


@dataclass(frozen=True, eq=False)
class AttackedEmbeddings:
    """Queries after an attack.

    Parameters
    ----------
    vectors : array of shape (n, d)
        Unit vectors of the changed images.
    distance : array of shape (n,)
        The largest change of any pixel, images being in [0, 1].
    had_gradient : bool array of shape (n,)
        Whether there was anything to follow.
    """

    vectors: AnyArray
    distance: FloatArray
    had_gradient: BoolArray


@dataclass(frozen=True, eq=False)
class AttackedQueries:
    """Queries of one model under attack.

    Parameters
    ----------
    stage : CachedStep
        Holds the results; its inputs say which model, images, rows, gallery and T.
    embedder : Embedder
        The model that is attacked, in eval mode.
    views : array of shape (n, size, size, 3), uint8
        The clean queries.
    seed : int
        Of random starts.
    """

    stage: CachedStep
    embedder: Embedder
    views: NDArray[np.uint8]
    seed: int

    def clean(self) -> AnyArray:
        """Unit vectors of the queries as they are, shape (n, d)."""

        def compute() -> dict[str, AnyArray]:
            with torch.inference_mode():
                starts = range(0, len(self.views), CHUNK)
                batches = [to_tensor(list(self.views[i : i + CHUNK])) for i in starts]
                rows = torch.cat([on_sphere(self.embedder(batch)) for batch in batches])
            return {"rows": finite(rows).numpy()}

        return self.stage.arrays("clean", compute)["rows"]

    def under(
        self,
        attack: Attack,
        loss_name: str,
        loss_of: Callable[[slice], EmbeddingLoss],
        *,
        track: Callable[[list[range]], Iterator[range]] = iter,
    ) -> AttackedEmbeddings:
        """Attack all queries.

        Parameters
        ----------
        attack : Attack
            Which.
        loss_name : str
            What the loss is called, for the cache.
        loss_of : callable
            Gives the loss of the queries in a slice.
        track : callable
            Wraps the list of chunks, to show progress.
        """
        n = len(self.views)
        chunks = [range(i, min(i + CHUNK, n)) for i in range(0, n, CHUNK)]
        name = f"{loss_name}-{attack.name}-{digest(asdict(attack))}"
        parts = [
            self.stage.arrays(
                f"{name}-{chunk.start:07d}",
                lambda chunk=chunk: self._attack(  # type: ignore[misc]
                    attack, loss_of(slice(chunk.start, chunk.stop)), chunk
                ),
            )
            for chunk in track(chunks)
        ]
        joined = {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
        return AttackedEmbeddings(
            joined["vectors"], joined["distance"], joined["had_gradient"].astype(np.bool_)
        )

    def _attack(self, attack: Attack, loss: EmbeddingLoss, chunk: range) -> dict[str, AnyArray]:
        images = to_tensor(list(self.views[chunk.start : chunk.stop]))
        # Starts differ between attacks, but not between models.
        entropy = (self.seed, int(digest(asdict(attack)), 16), chunk.start)
        found = perturb(
            self.embedder,
            images,
            loss,
            attack,
            seeded_generator(*entropy),
            # A chunk may be blind; the report counts such images, and refuses if all are.
            gradient_required=False,
        )
        with torch.inference_mode():
            vectors = finite(on_sphere(self.embedder(found.images)))
        return {
            "vectors": vectors.numpy(),
            "distance": found.distance.numpy().astype(np.float64),
            "had_gradient": found.had_gradient.numpy().astype(np.uint8),
        }


Damaged = Callable[[], Iterator[tuple[Variant, AnyArray]]]
# Raised when evaluations hold other numbers for the same embeddings.
EVALUATION_VERSION = 1


def score_damaged(
    model: RobustModel,
    stage: CachedStep,
    rows: IntArray,
    clean: AnyArray,
    damaged: Damaged,
    *,
    plan: list[str],
    seed: int,
    n_resamples: int,
) -> list[RobustEvaluation]:
    """Search the damaged queries in each clean gallery, and score them by all methods.

    Parameters
    ----------
    model : RobustModel
        With galleries, T and calibrators, which are not changed.
    stage : CachedStep
        What made the embeddings.
    rows : array of shape (n,)
        Which query images were damaged.
    clean : array of shape (n, d)
        Their unit vectors before.
    damaged : callable
        Gives variants with the unit vectors after, shape (n, d), one at a time.
    plan : list of str
        What `damaged` will give, for the cache.
    seed, n_resamples : int
        Of the intervals.
    """
    evaluations = []
    for protocol in model.supports:
        inputs = {
            "damaged": stage.key,
            "plan": plan,
            "protocol": protocol,
            "k": model.k,
            "gallery_seed": model.seed,
            "seed": seed,
            "n_resamples": n_resamples,
            "version": EVALUATION_VERSION,
        }
        cached = CachedStep(model.cache, "robust-evaluation", inputs)
        compute = partial(_evaluate, model, protocol, rows, clean, damaged, seed, n_resamples)
        document = cached.document("evaluation", compute)
        try:
            evaluations.append(RobustEvaluation.from_dict(document))
        except InvalidInputError as error:
            raise NearsureError(
                f"{cached.folder} was written by another version ({error}). Delete it and run "
                "again."
            ) from error
    return evaluations


def _evaluate(  # noqa: PLR0917
    model: RobustModel,
    protocol: ProtocolName,
    rows: IntArray,
    clean: AnyArray,
    damaged: Damaged,
    seed: int,
    n_resamples: int,
) -> dict[str, Any]:
    support, frozen = model.supports[protocol], model.frozen[protocol]
    asked = support.may_ask(rows)
    codes = support.query_codes[rows[asked]]

    def found(vectors: AnyArray) -> Neighbors:
        return support.neighbors(vectors[asked], rows[asked], frozen.k)

    return evaluate_variants(
        model.name,
        protocol,
        frozen,
        clean=(found(clean), codes),
        variants=((variant, found(vectors), codes) for variant, vectors in damaged()),
        seed=seed,
        n_resamples=n_resamples,
    ).to_dict()
