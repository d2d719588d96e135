"""Which trials are run, in which order: what matters most comes first."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from nearsure.lab.ablation.trials import Labelled, Trial, all_trial, half_trial, scarce_trial
from nearsure.lab.ablation.variants import SLOW_VARIANTS, VARIANTS, Variant

KS = (20, 50, 100)
MAIN_K = 50
HALF_SEEDS = {"cub200": 8, "glyphs": 5, "clinc150": 5}
SCARCE_SETS = ("glyphs", "cub200")
SCARCE_SEEDS = 3
SLOW_SEEDS = 4


@dataclass(frozen=True, eq=False)
class Asked:
    """One entry of the plan.

    Parameters
    ----------
    trial : Trial
        Gallery and queries.
    k : int
        Neighbours.
    variants : tuple of Variant
        Who competes.
    """

    trial: Trial
    k: int
    variants: tuple[Variant, ...] = VARIANTS


def planned(
    sets: dict[str, Labelled], own_splits: dict[str, tuple[Labelled, Labelled]]
) -> Iterator[Asked]:
    """All trials of the data sets that are there.

    Parameters
    ----------
    sets : dict of str to Labelled
        All points of each data set.
    own_splits : dict of str to (gallery, queries)
        Of the data sets that have a split of their own.
    """
    for name, points in sets.items():
        for seed in range(HALF_SEEDS[name]):
            yield from _at_each_k(half_trial(name, points, seed))
    for name, (gallery, queries) in own_splits.items():
        yield from _at_each_k(Trial(name, "given", 0, gallery, queries))
    for name, points in sets.items():
        if name not in own_splits:
            yield from _at_each_k(all_trial(name, points))
    for name in _there(sets, SCARCE_SETS):
        for seed in range(SCARCE_SEEDS):
            yield Asked(scarce_trial(name, sets[name], seed), MAIN_K)
    for name, points in sets.items():
        for seed in range(SLOW_SEEDS):
            yield Asked(half_trial(name, points, seed), MAIN_K, SLOW_VARIANTS)


def n_planned(sets: dict[str, Labelled], own_splits: dict[str, tuple[Labelled, Labelled]]) -> int:
    """How many trials `planned` gives."""
    halves = sum(HALF_SEEDS[name] for name in sets)
    single = len(set(sets) | set(own_splits))
    scarce = SCARCE_SEEDS * len(_there(sets, SCARCE_SETS))
    return len(KS) * (halves + single) + scarce + SLOW_SEEDS * len(sets)


def _at_each_k(trial: Trial) -> Iterator[Asked]:
    return (Asked(trial, k) for k in KS)


def _there(sets: dict[str, Labelled], names: Sequence[str]) -> list[str]:
    return [name for name in names if name in sets]
