"""The rules side by side on the same neighbours, as the paper's tables have them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import cast

import numpy as np
from numpy.typing import ArrayLike

from nearsure.metrics import (
    Interval,
    accuracy,
    bootstrap_interval,
    calibration_floor,
    expected_calibration_error,
    row_brier_scores,
)
from nearsure.neighbors import Neighbors
from nearsure.posterior import Posterior, score
from nearsure.rules import RULE_NAMES, RuleName

TITLES: dict[RuleName, str] = {
    "1nn": "1NN",
    "knn": "kNN",
    "dudani": "WkNN (Dudani)",
    "gou": "WkNN (Gou)",
    "ned": "NED",
}
BOLD = "\033[1m", "\033[0m"


@dataclass(frozen=True)
class RuleResult:
    """How one rule did.

    Parameters
    ----------
    rule : str
        Which: the name of a rule, or what another posterior was called.
    accuracy, ece, brier : Interval
        With bootstrap intervals; fractions. The Brier score is over all classes.
    ece_floor : float
        Expected ECE of a perfectly calibrated forecaster with the same confidences.
    """

    rule: str
    accuracy: Interval
    ece: Interval
    ece_floor: float
    brier: Interval


@dataclass(frozen=True)
class RuleComparison:
    """How several rules did on the same queries; `compare_rules` makes it.

    Parameters
    ----------
    results : sequence of RuleResult
        In the order of the table.
    """

    results: Sequence[RuleResult]

    def to_text(self, *, bold: tuple[str, str] = BOLD) -> str:
        """Table for a terminal, in percent, the best of each column bold."""
        rows = self._rows(bold)
        widths = [max(map(_width, column)) for column in zip(*rows, strict=True)]
        lines = [
            "  ".join(
                cell + " " * (width - _width(cell)) for cell, width in zip(row, widths, strict=True)
            ).rstrip()
            for row in rows
        ]
        lines.insert(1, "  ".join("-" * width for width in widths))
        return "\n".join(lines)

    def to_markdown(self) -> str:
        """The same table in Markdown."""
        header, *rows = self._rows(("**", "**"))
        lines = [header, ["---"] * len(header), *rows]
        return "\n".join("| " + " | ".join(line) + " |" for line in lines)

    def _rows(self, bold: tuple[str, str]) -> list[list[str]]:
        columns = {
            "rule": [title_of(result.rule) for result in self.results],
            "accuracy %": [_percent(result.accuracy) for result in self.results],
            "ECE %": [_percent(result.ece) for result in self.results],
            "ECE floor %": [f"{100 * result.ece_floor:.2f}" for result in self.results],
            "Brier": [_plain(result.brier) for result in self.results],
        }
        for name, field in (("accuracy %", "accuracy"), ("ECE %", "ece"), ("Brier", "brier")):
            for i in self._best(field):
                columns[name][i] = bold[0] + columns[name][i] + bold[1]
        return [list(columns), *(list(row) for row in zip(*columns.values(), strict=True))]

    def _best(self, field: str) -> list[int]:
        """Rows that hold the best value of a column as it is printed."""
        values = [round(getattr(result, field).estimate, 4) for result in self.results]
        best = max(values) if field == "accuracy" else min(values)
        return [i for i, value in enumerate(values) if value == best]


def title_of(rule: str) -> str:
    """What a rule is called in tables; another name stands for itself."""
    return cast("dict[str, str]", TITLES).get(rule, rule)


def score_by(rule: RuleName, neighbors: Neighbors, temperature: float) -> Posterior:
    """The posterior of a rule; NED alone takes the temperature."""
    return score(neighbors, rule=rule, temperature=temperature if rule == "ned" else None)


def compare_rules(
    neighbors: Neighbors,
    labels: ArrayLike,
    *,
    temperature: float,
    seed: int,
    rules: Sequence[RuleName] = RULE_NAMES,
    others: Mapping[str, Posterior] = MappingProxyType({}),
    n_resamples: int = 1000,
) -> RuleComparison:
    """Score the same neighbours by several rules.

    Parameters
    ----------
    neighbors : Neighbors
        Neighbours of the queries.
    labels : array of shape (n,)
        True class codes of the queries; ``NEDClassifier.encode`` makes them. A class that the
        support set never saw is always wrong.
    temperature : float
        T of NED.
    seed : int
        Seed of the bootstrap and of the floor's simulation.
    rules : sequence of rule names
        Which, in which order.
    others : mapping of str to Posterior
        What else was made of the same queries, by the name that it has in the table.
    n_resamples : int
        Resamples of each interval and simulations of each floor.

    Examples
    --------
    >>> neighbors = Neighbors([[0.0, 1.0, 2.0], [0.0, 3.0, 4.0]], [[0, 0, 1], [1, 1, 0]])
    >>> comparison = compare_rules(neighbors, [0, 1], temperature=1.0, seed=0, rules=["ned"])
    >>> comparison.results[0].accuracy.estimate
    1.0
    """
    truth = np.asarray(labels)
    results = []
    posteriors: dict[str, Posterior] = {
        rule: score_by(rule, neighbors, temperature) for rule in rules
    }
    posteriors |= others
    for rule, posterior in posteriors.items():
        confidence, correct = posterior.confidence, posterior.labels == truth
        ece = bootstrap_interval(
            expected_calibration_error, confidence, correct, seed=seed, n_resamples=n_resamples
        )
        squares = row_brier_scores(posterior, truth)
        results.append(
            RuleResult(
                rule=rule,
                accuracy=bootstrap_interval(accuracy, correct, seed=seed, n_resamples=n_resamples),
                ece=ece,
                ece_floor=calibration_floor(confidence, seed=seed, n_simulations=n_resamples),
                brier=bootstrap_interval(
                    np.mean, squares, seed=seed, n_resamples=n_resamples, bounds=(0.0, 2.0)
                ),
            )
        )
    return RuleComparison(tuple(results))


def _width(cell: str) -> int:
    """Characters that a terminal shows."""
    return len(cell.replace(BOLD[0], "").replace(BOLD[1], ""))


def _percent(interval: Interval) -> str:
    low, high = 100 * interval.low, 100 * interval.high
    return f"{100 * interval.estimate:.2f} ({low:.2f} to {high:.2f})"


def _plain(interval: Interval) -> str:
    return f"{interval.estimate:.4f} ({interval.low:.4f} to {interval.high:.4f})"
