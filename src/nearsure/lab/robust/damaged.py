"""Embeddings of corrupted and attacked queries, cached and scored."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nearsure.arrays import AnyArray, IntArray
from nearsure.lab.cache import Arrays, CachedStep, digest
from nearsure.lab.datasets.images import LabelledImages, Pixels
from nearsure.lab.images import central_view
from nearsure.lab.network import finite, on_sphere, to_tensor
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


def central_views(images: LabelledImages, rows: IntArray, size: int) -> NDArray[np.uint8]:
    """What the network sees of some images, shape (n, size, size, 3)."""
    return np.stack([central_view(images.read(int(row)), size) for row in rows])


@dataclass(frozen=True, eq=False)
class DamagedQueries:
    """Queries of one model under corruptions or attacks.

    Parameters
    ----------
    stage : CachedStep
        Holds the embeddings; its inputs say which model, images, rows and seed, and for attacks
        which T.
    embedder : callable
        Batches of images in [0, 1] to embeddings, in eval mode.
    views : array of shape (n, size, size, 3), uint8
        The clean queries.
    rows : array of shape (n,)
        Which query images they are; a corruption's randomness belongs to the image, not to its
        place in a batch.
    seed : int
        Of corruptions and random starts.
    batch : int
        Queries that are embedded or attacked at a time.
    """

    stage: CachedStep
    embedder: Callable[[Tensor], Tensor]
    views: NDArray[np.uint8]
    rows: IntArray
    seed: int
    batch: int

    def clean(self) -> AnyArray:
        """Unit vectors of the queries as they are, shape (n, d)."""
        return self._embeddings("clean", lambda i: self.views[i])

    def corrupted(self, name: str, severity: int) -> AnyArray:
        """Unit vectors of the corrupted queries, shape (n, d)."""

        def damaged(i: int) -> Pixels:
            rng = corruption_rng(self.seed, int(self.rows[i]), name, severity)
            return corrupt(self.views[i], name, severity, rng)

        return self._embeddings(f"{name}-{severity}", damaged)

    def attacked(
        self,
        attack: Attack,
        loss_name: str,
        loss_of: Callable[[slice], EmbeddingLoss],
        *,
        track: Callable[[list[range]], Iterable[range]] = iter,
    ) -> Arrays:
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

        Returns
        -------
        mapping of str to array
            "vectors", shape (n, d): unit vectors of the changed images; "distance", shape (n,): the
            largest change of any pixel, images being in [0, 1]; "had_gradient", shape (n,): 0
            where there was nothing to follow.
        """
        return self.stage.rows(
            f"{loss_name}-{attack.name}-{digest(asdict(attack))}",
            len(self.views),
            partial(self._attack, attack, loss_of),
            chunk=self.batch,
            track=track,
        )

    def _embeddings(self, name: str, image_of: Callable[[int], Pixels]) -> AnyArray:
        def make_batch(number: int) -> Tensor:
            first = number * self.batch
            return to_tensor([image_of(i) for i in range(len(self.views))[first:][: self.batch]])

        def compute() -> dict[str, AnyArray]:
            batches = read_ahead(make_batch, range(-(-len(self.views) // self.batch)))
            with torch.inference_mode():
                rows = torch.cat([on_sphere(self.embedder(images)) for images in batches])
            return {"rows": finite(rows).numpy()}

        return self.stage.arrays(name, compute)["rows"]

    def _attack(
        self, attack: Attack, loss_of: Callable[[slice], EmbeddingLoss], chunk: range
    ) -> dict[str, AnyArray]:
        part = slice(chunk.start, chunk.stop)
        # Starts differ between attacks, but not between models.
        entropy = (self.seed, int(digest(asdict(attack)), 16), chunk.start)
        found = perturb(
            self.embedder,
            to_tensor(list(self.views[part])),
            loss_of(part),
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


# Raised when evaluations hold other numbers for the same embeddings.
EVALUATION_VERSION = 2


def score_damaged(
    model: RobustModel,
    queries: DamagedQueries,
    damaged: Callable[[], Iterator[tuple[Variant, AnyArray]]],
    *,
    plan: list[str],
    n_resamples: int,
) -> list[RobustEvaluation]:
    """Search the damaged queries in each clean gallery, and score them by all methods.

    Parameters
    ----------
    model : RobustModel
        With galleries, T and calibrators, which are not changed.
    queries : DamagedQueries
        What was damaged.
    damaged : callable
        Gives variants with the unit vectors after, shape (n, d), one at a time.
    plan : list of str
        What `damaged` will give, for the cache.
    n_resamples : int
        Of the intervals.
    """
    clean = queries.clean()

    def evaluate(protocol: ProtocolName) -> RobustEvaluation:
        support, frozen = model.supports[protocol], model.frozen[protocol]
        asked = support.may_ask(queries.rows)
        rows = queries.rows[asked]
        codes = support.query_codes[rows]

        def found(vectors: AnyArray) -> Neighbors:
            neighbors = support.neighbors(vectors[asked], rows, frozen.k)
            return frozen.classifier.add_class_scores(
                neighbors, vectors[asked], support.gallery_rows[rows]
            )

        return evaluate_variants(
            model.name,
            protocol,
            frozen,
            clean=(found(clean), codes),
            variants=((variant, found(vectors), codes) for variant, vectors in damaged()),
            seed=queries.seed,
            n_resamples=n_resamples,
        )

    inputs = {
        "damaged": queries.stage.key,
        "plan": plan,
        "k": model.k,
        "gallery_seed": model.seed,
        "seed": queries.seed,
        "n_resamples": n_resamples,
        "version": EVALUATION_VERSION,
    }
    return [
        CachedStep(model.cache, "robust-evaluation", {**inputs, "protocol": protocol}).result(
            RobustEvaluation, "evaluation", partial(evaluate, protocol)
        )
        for protocol in model.supports
    ]
