"""The run that measures everything that is there."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tqdm import tqdm

from nearsure.errors import NearsureError
from nearsure.lab.ablation.corrupted_result import CorruptedResult, cached_corrupted
from nearsure.lab.ablation.plan import MAIN_K, n_planned, planned
from nearsure.lab.ablation.results import AblationResults
from nearsure.lab.ablation.sources import AbsentError, birds, corrupted, glyphs, sentences
from nearsure.lab.ablation.trial_result import cached_trial

if TYPE_CHECKING:
    from nearsure.lab.ablation.trials import Labelled

CORRUPTED_SETS = ("glyphs", "cub200", "cars196")


def run_ablation(
    *, data: Path | None, cache: Path, n_resamples: int, say: Callable[[str], None]
) -> AblationResults:
    """Measure all variants in all trials; what is finished is not measured again.

    Parameters
    ----------
    data : Path or None
        Folder of embeddings and images that are not part of the project.
    cache : Path
        Folder of stages, with what `nearsure reproduce` left there.
    n_resamples : int
        Of the bootstrap intervals.
    say : callable
        Told what is left out.
    """
    sets: dict[str, Labelled] = {}
    own_splits: dict[str, tuple[Labelled, Labelled]] = {}
    skipped: list[str] = []

    def skip(what: str, error: AbsentError) -> None:
        skipped.append(f"{what}: {error}")
        say(f"skipped: {skipped[-1]}")

    try:
        sets["glyphs"] = glyphs(cache)
    except AbsentError as error:
        skip("glyphs", error)
    try:
        sets["cub200"] = birds(_given(data))
    except AbsentError as error:
        skip("cub200", error)
    try:
        sets["clinc150"], *own_split = sentences(_given(data))
        own_splits["clinc150"] = (own_split[0], own_split[1])
    except AbsentError as error:
        skip("clinc150", error)
    if not sets:
        raise NearsureError(f"There is nothing to measure. {'; '.join(skipped)}.")
    trials = [
        cached_trial(cache, asked.trial, asked.variants, k=asked.k, n_resamples=n_resamples)
        for asked in tqdm(
            planned(sets, own_splits),
            total=n_planned(sets, own_splits),
            desc="trials",
            disable=None,
        )
    ]
    damaged: list[CorruptedResult] = []
    for dataset in CORRUPTED_SETS:
        track = partial(tqdm, desc=f"{dataset}, corrupted", disable=None)
        try:
            found = corrupted(dataset, data, cache)
        except AbsentError as error:
            skip(f"{dataset}, corrupted", error)
            continue
        damaged.append(cached_corrupted(cache, dataset, *found, k=MAIN_K, track=track))
    return AblationResults(tuple(trials), tuple(damaged), tuple(skipped))


def _given(data: Path | None) -> Path:
    if data is None:
        raise AbsentError("no data folder was given: use --data, or set NEARSURE_DATA")
    return data
