"""Embeddings of attacked queries, cached a few images at a time, as an attack takes minutes."""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from nearsure.arrays import AnyArray, BoolArray, FloatArray
from nearsure.lab.embedder import Embedder, finite, on_sphere, to_tensor
from nearsure.lab.robust.adversarial_training import seeded_generator
from nearsure.lab.stages import Stage, digest
from nearsure.robustness.attack_losses import EmbeddingLoss
from nearsure.robustness.attacks import Attack, perturb

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
    stage : Stage
        Holds the results; its inputs say which model, images, rows, gallery and T.
    embedder : Embedder
        The model that is attacked, in eval mode.
    views : array of shape (n, size, size, 3), uint8
        The clean queries.
    seed : int
        Of random starts.
    """

    stage: Stage
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
