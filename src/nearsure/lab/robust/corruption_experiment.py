"""The paper's Table 2: queries under 15 corruptions at 5 severities, the gallery clean."""

from collections.abc import Iterator

from tqdm import tqdm

from nearsure.arrays import AnyArray
from nearsure.lab.datasets.labelled_images import LabelledImages
from nearsure.lab.robust.corrupted import CorruptedQueries, central_views
from nearsure.lab.robust.frozen_support import damaged_rows
from nearsure.lab.robust.model import RobustModel
from nearsure.lab.robust.robust_evaluation import RobustEvaluation
from nearsure.lab.robust.scoring import score_damaged
from nearsure.lab.robust.variants import Variant
from nearsure.lab.stages import Stage, digest
from nearsure.robustness import CORRUPTIONS, SEVERITIES

# Raised when the corruptions give other pixels, so that old embeddings are not taken for new ones.
CORRUPTIONS_VERSION = 1


def corruption_experiment(
    model: RobustModel,
    images: LabelledImages,
    *,
    size: int,
    n_queries: int | None,
    n_resamples: int,
    seed: int,
) -> list[RobustEvaluation]:
    """Corrupt queries in all 75 ways and score them by every protocol.

    Parameters
    ----------
    model : RobustModel
        Trained, with its clean galleries.
    images : LabelledImages
        The query images.
    size : int
        Side of what the network sees; corruptions are of that picture.
    n_queries : int, optional
        How many to corrupt, at random; None for all.
    n_resamples : int
        Of every interval.
    seed : int
        Of the choice of queries, the corruptions and the intervals.
    """
    rows = damaged_rows(model.strict, n_queries, seed=seed)
    inputs = {
        "training": model.key,
        "rows": digest(rows.tolist()),
        "size": size,
        "seed": seed,
        "corruptions": CORRUPTIONS_VERSION,
    }
    stage = Stage(model.cache, "corrupted", inputs)
    corrupted = CorruptedQueries(
        stage, model.embed, central_views(images, rows, size), rows, seed=seed
    )
    kinds = [(name, severity) for name in CORRUPTIONS for severity in SEVERITIES]
    for name, severity in tqdm(kinds, desc=f"corrupt {len(rows)} queries", disable=None):
        corrupted.corrupted(name, severity)

    def damaged() -> Iterator[tuple[Variant, AnyArray]]:
        for name, severity in tqdm(kinds, desc="score corruptions", disable=None):
            yield Variant.corruption(name, severity), corrupted.corrupted(name, severity)

    return score_damaged(
        model,
        stage,
        rows,
        corrupted.clean(),
        damaged,
        plan=[f"{name}-{severity}" for name, severity in kinds],
        seed=seed,
        n_resamples=n_resamples,
    )
