"""All that the ablation measured, as one document; tables and figures are made of it alone."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

from nearsure.errors import InvalidInputError
from nearsure.lab.ablation.corrupted_result import CorruptedResult
from nearsure.lab.ablation.measured import Measured, mean_of
from nearsure.lab.ablation.trial_result import TrialResult
from nearsure.lab.ablation.trials import Condition
from nearsure.lab.ablation.variants import Variant


@dataclass(frozen=True)
class Group:
    """Trials of one data set under one condition at one k, which differ in the seed alone.

    Parameters
    ----------
    trials : tuple of TrialResult
        By seed. Slow variants may be in some only.
    """

    trials: tuple[TrialResult, ...]

    @property
    def first(self) -> TrialResult:
        """For what all have in common."""
        return self.trials[0]

    @property
    def variants(self) -> list[Variant]:
        """Who was measured at least once, in the order of the trials."""
        names = dict.fromkeys(row.variant for trial in self.trials for row in trial.rows)
        return [Variant.from_name(name) for name in names]

    def rows(self, variant: Variant) -> dict[int, Measured]:
        """What was measured of a variant, by seed."""
        found = {
            trial.seed: row
            for trial in self.trials
            for row in trial.rows
            if row.variant == variant.name
        }
        if not found:
            raise InvalidInputError(
                f"There is nothing about {variant.name!r} in {self.first.dataset}, "
                f"{self.first.condition}, k = {self.first.k}. "
                f"Measured were {[variant.name for variant in self.variants]}."
            )
        return found

    def mean(self, variant: Variant) -> Measured:
        """Mean over the seeds."""
        return mean_of(list(self.rows(variant).values()))

    def best(self, variants: Sequence[Variant], measure: str, *, most: bool = False) -> Variant:
        """The variant whose mean is least, or greatest; the earlier one of equals."""
        sign = -1.0 if most else 1.0
        return min(variants, key=lambda variant: sign * float(getattr(self.mean(variant), measure)))


@dataclass(frozen=True)
class AblationResults:
    """Everything that was measured.

    Parameters
    ----------
    trials : tuple of TrialResult
        In the order of the plan.
    corrupted : tuple of CorruptedResult
        One for each data set with corrupted queries.
    skipped : tuple of str
        What is missing, and why.
    """

    trials: tuple[TrialResult, ...]
    corrupted: tuple[CorruptedResult, ...] = ()
    skipped: tuple[str, ...] = ()

    @property
    def datasets(self) -> list[str]:
        """Names of the data sets of the trials."""
        return list(dict.fromkeys(trial.dataset for trial in self.trials))

    def group(self, dataset: str, condition: Condition, k: int) -> Group | None:
        """The trials of one kind; None if there are none."""
        asked = (dataset, condition, k)
        found = [t for t in self.trials if (t.dataset, t.condition, t.k) == asked]
        return Group(tuple(found)) if found else None

    def groups(self, condition: Condition) -> Iterator[Group]:
        """All groups of one condition, by data set, then by k."""
        kinds = dict.fromkeys((t.dataset, t.k) for t in self.trials if t.condition == condition)
        order = {name: place for place, name in enumerate(self.datasets)}
        for dataset, k in sorted(kinds, key=lambda kind: (order[kind[0]], kind[1])):
            group = self.group(dataset, condition, k)
            if group is not None:
                yield group

    def to_dict(self) -> dict[str, Any]:
        """In JSON's types."""
        return {
            "trials": [trial.to_dict() for trial in self.trials],
            "corrupted": [result.to_dict() for result in self.corrupted],
            "skipped": list(self.skipped),
        }

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> Self:
        """The inverse of `to_dict`; what else a document holds is left alone."""
        return cls(
            tuple(map(TrialResult.from_dict, fields["trials"])),
            tuple(map(CorruptedResult.from_dict, fields["corrupted"])),
            tuple(fields["skipped"]),
        )
