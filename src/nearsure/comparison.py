"""The rules side by side on the same neighbours, as the paper's tables have them, and probes."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import isnan
from types import MappingProxyType
from typing import Literal, cast

import numpy as np
from numpy.typing import ArrayLike

from nearsure.arrays import AnyArray, IntArray
from nearsure.calibration import PosteriorTemperature
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
from nearsure.probes import ProbeName, fit_probe
from nearsure.progress import tracked, watching
from nearsure.rules import RULE_NAMES, RuleName
from nearsure.validation import check_labels

TITLES: dict[RuleName, str] = {
    "1nn": "1NN",
    "knn": "kNN",
    "dudani": "WkNN (Dudani)",
    "gou": "WkNN (Gou)",
    "ned": "NED",
}
PROBE_TITLES: dict[ProbeName, str] = {
    "means": "Class means, tempered",
    "logistic": "Logistic regression, tempered",
}
# Points x features x classes that a probe is fitted to: about ten seconds.
LARGEST_PROBE: dict[ProbeName, float] = {"means": 1e10, "logistic": 1e8}
# Points or queries x classes: some hundred megabytes.
LARGEST_SCORES = 5e6
BOLD = "\033[1m", "\033[0m"
Better = Literal["more", "less"]


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
        return write_rows(header, rows)

    def _rows(self, bold: tuple[str, str]) -> list[list[str]]:
        def emphasise(cells: list[str], better: Better) -> list[str]:
            marked = zip(cells, best_places(cells, better), strict=True)
            return [bold[0] + cell + bold[1] if best else cell for cell, best in marked]

        columns = {
            "rule": [title_of(result.rule) for result in self.results],
            "accuracy %": emphasise([percent(r.accuracy) for r in self.results], "more"),
            "ECE %": emphasise([percent(r.ece) for r in self.results], "less"),
            "ECE floor %": [f"{100 * result.ece_floor:.2f}" for result in self.results],
            "Brier": emphasise([percent(r.brier, scale=1, digits=4) for r in self.results], "less"),
        }
        return [list(columns), *(list(row) for row in zip(*columns.values(), strict=True))]


def write_rows(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table of rows."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def percent(interval: Interval, *, scale: float = 100, digits: int = 2) -> str:
    """An interval in percent, or on another scale.

    Examples
    --------
    >>> percent(Interval(0.75, 0.7, 0.8, 0.95))
    '75.00 (70.00 to 80.00)'
    """
    if isnan(interval.estimate):
        return "none"
    ends = (interval.estimate, interval.low, interval.high)
    estimate, low, high = (f"{scale * end:.{digits}f}" for end in ends)
    return estimate if isnan(interval.low) else f"{estimate} ({low} to {high})"


def best_places(cells: Sequence[str], better: Better) -> list[bool]:
    """Which cells begin with the best number as it is printed: equals share it, "none" is none.

    Examples
    --------
    >>> best_places(["none", "7.5 (7.0 to 8.0)", "7.5 (6.0 to 7.6)", "9"], "less")
    [False, True, True, False]
    """
    numbers = [float(cell.replace("none", "nan").split(" ")[0]) for cell in cells]
    choose = max if better == "more" else min
    best = choose((number for number in numbers if not isnan(number)), default=0.0)
    return [number == best for number in numbers]


def title_of(rule: str) -> str:
    """What a rule is called in tables; another name stands for itself."""
    return cast("dict[str, str]", TITLES | PROBE_TITLES).get(rule, rule)


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
    bootstrap = partial(bootstrap_interval, seed=seed, n_resamples=n_resamples)
    results = []
    by_rule = {rule: score_by(rule, neighbors, temperature) for rule in rules}
    posteriors = by_rule | dict(others)
    for rule, posterior in tracked("comparing rules", posteriors.items(), len(posteriors)):
        confidence, correct = posterior.confidence, posterior.labels == truth
        squares = row_brier_scores(posterior, truth)
        # Several short resamplings each, which would be told one by one.
        with watching(None):
            results.append(
                RuleResult(
                    rule=rule,
                    accuracy=bootstrap(accuracy, correct),
                    ece=bootstrap(expected_calibration_error, confidence, correct),
                    ece_floor=calibration_floor(confidence, seed=seed, n_simulations=n_resamples),
                    brier=bootstrap(np.mean, squares, bounds=(0.0, 2.0)),
                )
            )
    return RuleComparison(tuple(results))


@dataclass(frozen=True, eq=False)
class ProbeScores:
    """What linear probes make of queries; `score_probes` makes it.

    Parameters
    ----------
    posteriors : mapping of str to Posterior
        By the name of the probe, "means" or "logistic"; `others` of `compare_rules`.
    left_out : tuple of str
        Sentences on the probes that were left out.
    """

    posteriors: Mapping[str, Posterior]
    left_out: tuple[str, ...] = ()


def score_probes(
    vectors: AnyArray,
    labels: ArrayLike,
    queries: AnyArray | None = None,
    *,
    seed: int,
    n_classes: int | None = None,
    groups: IntArray | None = None,
) -> ProbeScores:
    """Score queries by class means and logistic regression, each with one temperature.

    They use vectors and no neighbours. Where one does better than `NEDClassifier` on queries of
    your own, a probe is what your classes ask for. The temperature is fitted out of fold. A probe
    that would take long is left out, and so are both where no class has two points, or groups.

    Parameters
    ----------
    vectors : array of shape (n, n_features)
        The gallery.
    labels : array of shape (n,)
        Its class codes.
    queries : array of shape (n_queries, n_features), optional
        Without them each point of the gallery is scored by a probe that was fitted without it.
    seed : int
        Of the folds.
    n_classes : int, optional
        Number of classes; by default one more than the largest code.
    groups : array of shape (n,), optional
        Points of one group are left out together.

    Examples
    --------
    >>> gallery = np.array([[0.0], [1.0], [1.5], [8.0], [9.0], [9.5]])
    >>> scores = score_probes(gallery, [0, 0, 0, 1, 1, 1], np.array([[2.0], [7.0]]), seed=0)
    >>> scores.posteriors["logistic"].labels
    array([0, 1])
    """
    codes = check_labels(labels, n_rows=len(vectors))
    sizes = np.bincount(codes, minlength=n_classes or 0)
    n, d = vectors.shape
    units = np.unique(np.column_stack([codes, np.arange(n) if groups is None else groups]), axis=0)
    if (sizes > 0).sum() == 1 or np.bincount(units[:, 0]).max() == 1:
        # Nothing can be scored out of fold.
        left_out = "Probes were left out: they need two classes, and one of two points or groups."
        return ProbeScores({}, (left_out,))
    posteriors: dict[str, Posterior] = {}
    too_large = []
    for name, largest in LARGEST_PROBE.items():
        n_scored = max(n, 0 if queries is None else len(queries))
        if n * d * len(sizes) > largest or n_scored * len(sizes) > LARGEST_SCORES:
            too_large.append(
                f"{title_of(name)}, was left out: {n_scored:,} points of {d:,} features and "
                f"{len(sizes):,} classes would take too long."
            )
            continue
        fitted = fit_probe(name, vectors, codes, n_classes=len(sizes), seed=seed, groups=groups)
        temper = PosteriorTemperature.fit(fitted.own, codes)
        posteriors[name] = temper(fitted.own if queries is None else fitted.posterior(queries))
    return ProbeScores(posteriors, tuple(too_large))


def _width(cell: str) -> int:
    """Characters that a terminal shows."""
    return len(cell.replace(BOLD[0], "").replace(BOLD[1], ""))
