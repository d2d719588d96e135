"""What the default is meant to reach, and whether it does."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from math import isnan
from typing import Any

from nearsure.lab.ablation.results import AblationResults, Group
from nearsure.lab.ablation.seeds import difference
from nearsure.lab.ablation.trials import Condition
from nearsure.lab.ablation.variants import CALIBRATED_BASELINES, DEFAULT, RAW_BASELINES, Variant
from nearsure.metrics import Interval

# How far above its floor the ECE may be.
ALLOWED_EXCESS = 0.01
ACCURACY = "accuracy not below the best baseline's"
FLOOR = "ECE at most 1 point above its floor"
CALIBRATION = "ECE at most that of the best calibrated baseline"
BRIER = "Brier score below every baseline's, raw or calibrated"
CONDITIONS_WITH_GOALS: tuple[Condition, ...] = ("half", "given", "scarce")
GOALS = (ACCURACY, FLOOR, CALIBRATION, BRIER)


@dataclass(frozen=True)
class Goal:
    """One goal at one place.

    Parameters
    ----------
    dataset, condition, k
        Where.
    n_seeds : int
        Splits that the numbers are means over.
    goal : str
        One of `GOALS`.
    value, bound : float
        What the default has, and what it is held against.
    rival : str or None
        The variant whose number the bound is.
    met : bool
        By the numbers as they are, not as they are printed.
    lead : Interval or None
        The default's number less the rival's, paired by split, with its t-interval; the ends are
        NaN where there is one split.
    floors : tuple of two floats, optional
        Where ECEs are compared: the default's floor and the rival's. A calibrator of few distinct
        confidences fills fewer bins, and its floor is lower.
    """

    dataset: str
    condition: Condition
    k: int
    n_seeds: int
    goal: str
    value: float
    bound: float
    rival: str | None
    met: bool
    lead: Interval | None
    floors: tuple[float, float] | None = None

    def to_dict(self) -> dict[str, Any]:
        """In JSON's types; NaN becomes None."""
        lead = self.lead and {
            name: None if isnan(value) else value for name, value in asdict(self.lead).items()
        }
        return {**asdict(self), "lead": lead, "floors": self.floors and list(self.floors)}


def goals_of(group: Group) -> tuple[Goal, ...]:
    """The four goals for one group of trials, in the order of `GOALS`."""
    ours = group.mean(DEFAULT)
    right = group.best(RAW_BASELINES, "accuracy", most=True)
    calibrated = group.best(CALIBRATED_BASELINES, "ece")
    sharp = group.best((*RAW_BASELINES, *CALIBRATED_BASELINES), "brier")
    where = group.first
    place = (where.dataset, where.condition, where.k, len(group.rows(DEFAULT)))

    def against(name: str, rival: Variant, measure: str, *, met: bool) -> Goal:
        theirs = group.mean(rival)
        return Goal(
            *place,
            name,
            getattr(ours, measure),
            getattr(theirs, measure),
            rival.name,
            met,
            difference(group, DEFAULT, rival, measure),
            (ours.floor, theirs.floor) if measure == "ece" else None,
        )

    return (
        against(ACCURACY, right, "accuracy", met=ours.accuracy >= group.mean(right).accuracy),
        Goal(*place, FLOOR, ours.excess, ALLOWED_EXCESS, None, ours.excess <= ALLOWED_EXCESS, None),
        against(CALIBRATION, calibrated, "ece", met=ours.ece <= group.mean(calibrated).ece),
        against(BRIER, sharp, "brier", met=ours.brier < group.mean(sharp).brier),
    )


def all_goals(results: AblationResults) -> Iterator[Goal]:
    """The goals of every data set at every k.

    Not of every point against all others: there a calibrator is judged by the points that it was
    fitted on, and isotonic regression has an ECE of 0 by construction.
    """
    for condition in CONDITIONS_WITH_GOALS:
        for group in results.groups(condition):
            if DEFAULT in group.variants:
                yield from goals_of(group)
