"""All variants fitted on one gallery, and asked about the same queries."""

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Self

from nearsure.errors import FitWarning
from nearsure.lab.ablation.bases import FittedBase, Gallery, Searched, fit_base
from nearsure.lab.ablation.steps import Step, fit_step
from nearsure.lab.ablation.variants import Variant
from nearsure.posterior import Posterior


@dataclass(frozen=True, eq=False)
class Competition:
    """Fitted variants; `fit` makes it.

    Parameters
    ----------
    bases : dict of str to FittedBase
        By name.
    steps : dict of Variant to Step
        What follows the base of each variant.
    notes : tuple of str
        What the fits warned of, each once.
    """

    bases: dict[str, FittedBase]
    steps: dict[Variant, Step]
    notes: tuple[str, ...]

    @classmethod
    def fit(cls, gallery: Gallery, variants: Sequence[Variant]) -> Self:
        """Fit variants on a gallery; a base that many share is fitted once."""
        names = dict.fromkeys(variant.base for variant in variants)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", FitWarning)
            bases = {name: fit_base(name, gallery) for name in names}
            steps: dict[Variant, Step] = {}
            for name, base in bases.items():
                scores = cache(base.own)
                for variant in variants:
                    if variant.base == name:
                        steps[variant] = fit_step(variant.step, scores, gallery)
        for warning in caught:
            if not issubclass(warning.category, FitWarning):
                warnings.warn_explicit(
                    warning.message, warning.category, warning.filename, warning.lineno
                )
        told = [str(w.message) for w in caught if issubclass(w.category, FitWarning)]
        return cls(bases, steps, tuple(dict.fromkeys(told)))

    def posteriors(self, queries: Searched) -> Iterator[tuple[Variant, Posterior]]:
        """Each variant's answer, those of one base together."""
        for name, base in self.bases.items():
            claimed = base.posterior(queries)
            for variant, step in self.steps.items():
                if variant.base == name:
                    yield variant, step(claimed)
