"""The paper's Tables 2 and 3: corrupted and attacked queries, a clean gallery."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import torch
from tqdm import tqdm

from nearsure.arrays import AnyArray, IntArray
from nearsure.errors import ZeroGradientError
from nearsure.lab.cache import CachedStep, digest
from nearsure.lab.datasets.images import LabelledImages
from nearsure.lab.losses import SOFTMAX_TEMPERATURE
from nearsure.lab.robust.damaged import (
    AttackedEmbeddings,
    AttackedQueries,
    CorruptedQueries,
    central_views,
    score_damaged,
)
from nearsure.lab.robust.evaluation import RobustEvaluation
from nearsure.lab.robust.model import RobustModel, damaged_rows
from nearsure.lab.robust.settings import RobustSettings, Variant
from nearsure.robustness import CORRUPTIONS, SEVERITIES
from nearsure.robustness.attack_losses import (
    EmbeddingLoss,
    against_proxies,
    confidence_in_a_wrong_class,
)
from nearsure.robustness.attacks import Attack, bim, fgsm, pgd

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
    stage = corrupted_step(model.cache, model.key, rows, size=size, seed=seed)
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


def corrupted_step(
    cache: Path, training: str, rows: IntArray, *, size: int, seed: int
) -> CachedStep:
    """Where the embeddings of corrupted queries are; `training` is the key of the model."""
    inputs = {
        "training": training,
        "rows": digest(rows.tolist()),
        "size": size,
        "seed": seed,
        "corruptions": CORRUPTIONS_VERSION,
    }
    return CachedStep(cache, "corrupted", inputs)


# Raised when attacks give other images, also because of CHUNK or the softmax temperature, so that
# old results are not taken for new ones.
ATTACKS_VERSION = 1
ON_LABEL, ON_CONFIDENCE = "proxies", "confidence"


def plan_attacks(settings: RobustSettings) -> list[Attack]:
    """The paper's attacks, then those of the curves."""
    table = [make(epsilon) for make in (fgsm, bim, pgd) for epsilon in settings.epsilons]
    curves = [
        Attack(name, epsilon, epsilon / 4, settings.small_steps, random_start=True)
        for name in ("pgd", ON_CONFIDENCE)
        for epsilon in settings.small_epsilons
    ]
    return table + curves


def attack_experiment(
    model: RobustModel,
    images: LabelledImages,
    *,
    size: int,
    settings: RobustSettings,
    n_resamples: int,
    seed: int,
) -> list[RobustEvaluation]:
    """Attack queries in all planned ways and score them by every protocol.

    The attacks use the network, the strict protocol's gallery, its labels and T. Attacks on the
    label raise the normalized softmax loss against the class means of that gallery, as unseen
    classes have no proxies; attacks on the confidence raise NED's confidence in a wrong class.

    Parameters
    ----------
    model : RobustModel
        Trained, with its clean galleries.
    images : LabelledImages
        The query images.
    size : int
        Side of what the network sees.
    settings : RobustSettings
        Which attacks, on how many queries.
    n_resamples : int
        Of every interval.
    seed : int
        Of the choice of queries, random starts and intervals.
    """
    strict = model.strict
    rows = damaged_rows(strict, settings.attacked_queries, seed=seed)
    # No rule can be right about a class that the gallery lacks; there is nothing to attack.
    rows = rows[strict.may_ask(rows) & np.isin(strict.query_codes[rows], strict.codes)]
    frozen = model.frozen[strict.protocol]
    inputs = {
        "training": model.key,
        "rows": digest(rows.tolist()),
        "size": size,
        "seed": seed,
        "T": frozen.temperature_fit.temperature,
        "attacks": ATTACKS_VERSION,
    }
    stage = CachedStep(model.cache, "attacked", inputs)
    attacked = AttackedQueries(stage, model.embedder, central_views(images, rows, size), seed=seed)
    attacks = plan_attacks(settings)
    found = {attack: _attack_queries(attacked, attack, model, rows) for attack in attacks}

    def damaged() -> Iterator[tuple[Variant, AnyArray]]:
        for attack, result in found.items():
            variant = Variant.attack(
                attack.name,
                attack.epsilon,
                mean_distance=float(result.distance.mean()),
                max_distance=float(result.distance.max()),
                n_without_gradient=int((~result.had_gradient).sum()),
            )
            yield variant, result.vectors

    return score_damaged(
        model,
        stage,
        rows,
        attacked.clean(),
        damaged,
        plan=[str(attack) for attack in attacks],
        seed=seed,
        n_resamples=n_resamples,
    )


def _attack_queries(
    attacked: AttackedQueries, attack: Attack, model: RobustModel, rows: IntArray
) -> AttackedEmbeddings:
    support = model.strict

    def codes(part: slice) -> torch.Tensor:
        return torch.from_numpy(support.query_codes[rows[part]])

    def on_label(part: slice) -> EmbeddingLoss:
        return against_proxies(model.class_means, codes(part), temperature=SOFTMAX_TEMPERATURE)

    def on_confidence(part: slice) -> EmbeddingLoss:
        return confidence_in_a_wrong_class(
            torch.from_numpy(support.vectors),
            torch.from_numpy(support.codes),
            codes(part),
            temperature=model.frozen[support.protocol].temperature_fit.temperature,
        )

    description = f"{model.name}, {attack.name} {attack.epsilon:.3g}"
    is_on_confidence = attack.name == ON_CONFIDENCE
    found = attacked.under(
        attack,
        ON_CONFIDENCE if is_on_confidence else ON_LABEL,
        on_confidence if is_on_confidence else on_label,
        track=partial(tqdm, desc=description, disable=None),
    )
    if not found.had_gradient.any():
        raise ZeroGradientError(
            f"The gradient was zero for every query under {attack.name} with epsilon "
            f"{attack.epsilon:g}: nothing was attacked, and a table of it would look like "
            "robustness."
        )
    return found
