"""The paper's Tables 2 and 3: corrupted and attacked queries, a clean gallery."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import torch
from tqdm import tqdm

from nearsure.arrays import AnyArray, IntArray
from nearsure.errors import ZeroGradientError
from nearsure.lab.cache import Arrays, CachedStep, digest
from nearsure.lab.losses import SOFTMAX_TEMPERATURE
from nearsure.lab.robust.damaged import (
    DamagedQueries,
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
CORRUPTIONS_VERSION = 2
CORRUPTED_BATCH = 64


def corruption_experiment(
    model: RobustModel, *, n_queries: int | None, n_resamples: int
) -> list[RobustEvaluation]:
    """Corrupt queries in all 75 ways and score them by every protocol.

    Parameters
    ----------
    model : RobustModel
        Trained, with its clean galleries; its seed is that of the choice of queries, of the
        corruptions and of the intervals, too. Corruptions are of the square that it sees.
    n_queries : int, optional
        How many to corrupt, at random; None for all.
    n_resamples : int
        Of every interval.
    """
    rows = damaged_rows(model.strict, n_queries, seed=model.seed)
    size = model.images.settings.dataset.image_size
    stage = corrupted_step(model.cache, model.key, rows, size=size, seed=model.seed)
    queries = _queries(model, stage, rows, CORRUPTED_BATCH)
    kinds = [(name, severity) for name in CORRUPTIONS for severity in SEVERITIES]
    for name, severity in tqdm(kinds, desc=f"corrupt {len(rows)} queries", disable=None):
        queries.corrupted(name, severity)

    def damaged() -> Iterator[tuple[Variant, AnyArray]]:
        for name, severity in tqdm(kinds, desc="score corruptions", disable=None):
            yield Variant("corruption", name, severity), queries.corrupted(name, severity)

    plan = [f"{name}-{severity}" for name, severity in kinds]
    return score_damaged(model, queries, damaged, plan=plan, n_resamples=n_resamples)


def _queries(model: RobustModel, stage: CachedStep, rows: IntArray, batch: int) -> DamagedQueries:
    images = model.images
    views = central_views(images.split.queries, rows, images.settings.dataset.image_size)
    return DamagedQueries(stage, model.embedder, views, rows, model.seed, batch)


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


# Raised when attacks give other images, also because of the batch or the softmax temperature, so
# that old results are not taken for new ones.
ATTACKS_VERSION = 1
ATTACKED_BATCH = 50
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
    model: RobustModel, settings: RobustSettings, *, n_resamples: int
) -> list[RobustEvaluation]:
    """Attack queries in all planned ways and score them by every protocol.

    The attacks use the network, the strict protocol's gallery, its labels and T. Attacks on the
    label raise the normalized softmax loss against the class means of that gallery, as unseen
    classes have no proxies; attacks on the confidence raise NED's confidence in a wrong class.

    Parameters
    ----------
    model : RobustModel
        Trained, with its clean galleries; its seed is that of the choice of queries, of random
        starts and of the intervals, too.
    settings : RobustSettings
        Which attacks, on how many queries.
    n_resamples : int
        Of every interval.
    """
    strict = model.strict
    rows = damaged_rows(strict, settings.attacked_queries, seed=model.seed)
    # No rule can be right about a class that the gallery lacks; there is nothing to attack.
    rows = rows[strict.may_ask(rows) & np.isin(strict.query_codes[rows], strict.codes)]
    inputs = {
        "training": model.key,
        "rows": digest(rows.tolist()),
        "size": model.images.settings.dataset.image_size,
        "seed": model.seed,
        "T": model.frozen[strict.protocol].temperature_fit.temperature,
        "attacks": ATTACKS_VERSION,
    }
    stage = CachedStep(model.cache, "attacked", inputs)
    queries = _queries(model, stage, rows, ATTACKED_BATCH)
    attacks = plan_attacks(settings)
    found = {attack: _attack_queries(queries, attack, model) for attack in attacks}

    def damaged() -> Iterator[tuple[Variant, AnyArray]]:
        for attack, result in found.items():
            variant = Variant(
                "attack",
                attack.name,
                epsilon=attack.epsilon,
                mean_distance=float(result["distance"].mean()),
                max_distance=float(result["distance"].max()),
                n_without_gradient=int((result["had_gradient"] == 0).sum()),
            )
            yield variant, result["vectors"]

    plan = [str(attack) for attack in attacks]
    return score_damaged(model, queries, damaged, plan=plan, n_resamples=n_resamples)


def _attack_queries(queries: DamagedQueries, attack: Attack, model: RobustModel) -> Arrays:
    support = model.strict
    codes = torch.from_numpy(support.query_codes[queries.rows])

    def on_label(part: slice) -> EmbeddingLoss:
        return against_proxies(model.class_means, codes[part], temperature=SOFTMAX_TEMPERATURE)

    def on_confidence(part: slice) -> EmbeddingLoss:
        return confidence_in_a_wrong_class(
            torch.from_numpy(support.vectors),
            torch.from_numpy(support.codes),
            codes[part],
            temperature=model.frozen[support.protocol].temperature_fit.temperature,
        )

    on_what = (
        (ON_CONFIDENCE, on_confidence) if attack.name == ON_CONFIDENCE else (ON_LABEL, on_label)
    )
    description = f"{model.name}, {attack.name} {attack.epsilon:.3g}"
    track = partial(tqdm, desc=description, disable=None)
    found = queries.attacked(attack, *on_what, track=track)
    if not found["had_gradient"].any():
        raise ZeroGradientError(
            f"The gradient was zero for every query under {attack.name} with epsilon "
            f"{attack.epsilon:g}: nothing was attacked, and a table of it would look like "
            "robustness."
        )
    return found
