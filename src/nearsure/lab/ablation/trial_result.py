"""All variants measured in one trial at one k, cached."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from nearsure.lab.ablation.competition import Competition
from nearsure.lab.ablation.measured import N_SIMULATIONS, Measured, measure
from nearsure.lab.ablation.trials import Condition, Trial
from nearsure.lab.ablation.variants import MAIN_VARIANTS, SLOW_VARIANTS, Variant
from nearsure.lab.stages import Stage

# Raised when a variant means something else, so that old numbers are not taken for new ones.
VERSION = 2
# Of the slow variants, which share no code with the others' fits.
SLOW_VERSION = 1
SINGLE: tuple[Condition, ...] = ("given", "all")


@dataclass(frozen=True)
class TrialResult:
    """What was measured in one trial.

    Parameters
    ----------
    dataset, condition, seed
        Which trial; see `Trial`.
    k : int
        Neighbours.
    n_gallery, n_queries, n_classes : int
        How large it is.
    rows : tuple of Measured
        One for each variant.
    notes : tuple of str
        What the fits warned of.
    """

    dataset: str
    condition: Condition
    seed: int
    k: int
    n_gallery: int
    n_queries: int
    n_classes: int
    rows: tuple[Measured, ...]
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """In JSON's types."""
        rows = [row.to_dict() for row in self.rows]
        return {**asdict(self), "rows": rows, "notes": list(self.notes)}

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> Self:
        """The inverse of `to_dict`."""
        rows = tuple(map(Measured.from_dict, fields["rows"]))
        return cls(**{**fields, "rows": rows, "notes": tuple(fields["notes"])})


def run_trial(
    trial: Trial, variants: Sequence[Variant], *, k: int, n_resamples: int
) -> TrialResult:
    """Fit all variants on the gallery and measure them on the queries.

    Parameters
    ----------
    trial : Trial
        Gallery and queries.
    variants : sequence of Variant
        Who competes.
    k : int
        Neighbours; fewer where the gallery has no more.
    n_resamples : int
        Of the intervals of the main variants, where the split is the only one.
    """
    k = min(k, len(trial.gallery.codes) - 1)
    gallery, queries = trial.searched(k)
    competition = Competition.fit(gallery, variants)
    codes = trial.asking.codes
    rows = [
        measure(
            variant,
            posterior,
            codes,
            seed=trial.seed,
            n_resamples=(
                n_resamples if trial.condition in SINGLE and variant in MAIN_VARIANTS else None
            ),
        )
        for variant, posterior in competition.posteriors(queries)
    ]
    return TrialResult(
        trial.dataset,
        trial.condition,
        trial.seed,
        k,
        len(trial.gallery.codes),
        len(codes),
        gallery.n_classes,
        tuple(rows),
        competition.notes,
    )


def cached_trial(
    cache: Path, trial: Trial, variants: Sequence[Variant], *, k: int, n_resamples: int
) -> TrialResult:
    """The same, kept in a folder of stages."""
    inputs = {
        "dataset": trial.dataset,
        "gallery": trial.gallery.key,
        "queries": trial.asking.key,
        "condition": trial.condition,
        "seed": trial.seed,
        "k": k,
        "variants": [variant.name for variant in variants],
        "n_simulations": N_SIMULATIONS,
        "n_resamples": n_resamples if trial.condition in SINGLE else None,
        "version": SLOW_VERSION if tuple(variants) == SLOW_VARIANTS else VERSION,
    }
    stage = Stage(cache, "ablation", inputs)
    found = stage.document(
        "result", lambda: run_trial(trial, variants, k=k, n_resamples=n_resamples).to_dict()
    )
    return TrialResult.from_dict(found)
