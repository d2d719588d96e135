"""NED at other temperatures than the fitted one, for several k: what T costs and what it buys.

One parameter sets both which neighbours count and how sharp the posterior is. The T that explains
the data best need not be the one that is right most often; this shows how far apart they are.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from nearsure.arrays import FloatArray
from nearsure.comparison import TITLES, score_by
from nearsure.errors import InvalidInputError
from nearsure.lab.evaluation import fit_with_notes
from nearsure.lab.protocols import ProtocolName, ProtocolNeighbors
from nearsure.metrics import accuracy, expected_calibration_error
from nearsure.neighbors import Neighbors
from nearsure.rules import RuleName, rule_weights

DEFAULT_FACTORS = (0.25, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 2.8, 4.0, 5.6, 8.0)
Figures = tuple[float, float, float]
BASELINES: tuple[RuleName, ...] = ("knn", "dudani", "gou")


@dataclass(frozen=True)
class Sweep:
    """Accuracy and ECE of NED at multiples of the fitted T; `temperature_and_k_sweep` makes it.

    Parameters
    ----------
    protocol : {"all_against_others", "gallery_and_queries", "given_gallery"}
        Who was asked.
    ks : tuple of int
        Numbers of neighbours, m of them.
    factors : tuple of float
        Multiples of the fitted T, ascending, f of them.
    temperatures : tuple of float
        The fitted T of each k.
    accuracy, ece : tuple of m tuples of f floats
        NED's, for each k and factor; fractions.
    voters : tuple of m tuples of f floats
        How many neighbours share the vote, see `effective_voters`; mean over the queries.
    baseline_accuracy, baseline_ece, baseline_voters : mapping of rule name to tuple of m floats
        Those of kNN, Dudani and Gou, which know no T.
    """

    protocol: ProtocolName
    ks: tuple[int, ...]
    factors: tuple[float, ...]
    temperatures: tuple[float, ...]
    accuracy: tuple[tuple[float, ...], ...]
    ece: tuple[tuple[float, ...], ...]
    voters: tuple[tuple[float, ...], ...]
    baseline_accuracy: Mapping[RuleName, tuple[float, ...]]
    baseline_ece: Mapping[RuleName, tuple[float, ...]]
    baseline_voters: Mapping[RuleName, tuple[float, ...]]

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Self:
        """From what ``dataclasses.asdict`` gave, perhaps by way of JSON."""
        by_rule: dict[str, dict[RuleName, tuple[float, ...]]] = {
            name: {rule: tuple(values) for rule, values in fields[name].items()}
            for name in ("baseline_accuracy", "baseline_ece", "baseline_voters")
        }
        return cls(
            protocol=fields["protocol"],
            ks=tuple(fields["ks"]),
            factors=tuple(fields["factors"]),
            temperatures=tuple(fields["temperatures"]),
            accuracy=tuple(map(tuple, fields["accuracy"])),
            ece=tuple(map(tuple, fields["ece"])),
            voters=tuple(map(tuple, fields["voters"])),
            baseline_accuracy=by_rule["baseline_accuracy"],
            baseline_ece=by_rule["baseline_ece"],
            baseline_voters=by_rule["baseline_voters"],
        )

    def best_factor(self, k: int) -> float:
        """The multiple of T at which NED is right most often; the smallest of equals."""
        return self.factors[int(np.argmax(self.accuracy[self.ks.index(k)]))]

    def best_baseline(self, k: int) -> RuleName:
        """The baseline that is right most often."""
        place = self.ks.index(k)
        return max(BASELINES, key=lambda rule: self.baseline_accuracy[rule][place])

    def to_markdown(self) -> str:
        """Accuracy % / ECE % / voters: a row a k, a column a multiple of T."""
        titles = [f"{factor:g} T" for factor in self.factors]
        rows = [["k", "T", *titles, "best baseline"], ["---"] * (len(titles) + 3)]
        for place, k in enumerate(self.ks):
            rule = self.best_baseline(k)
            cells = [
                _cell(*figures)
                for figures in zip(
                    self.accuracy[place], self.ece[place], self.voters[place], strict=True
                )
            ]
            best = self.factors.index(self.best_factor(k))
            cells[best] = f"**{cells[best]}**"
            baseline = (self.baseline_accuracy, self.baseline_ece, self.baseline_voters)
            beside = _cell(*(figures[rule][place] for figures in baseline))
            rows.append(
                [str(k), f"{self.temperatures[place]:.4g}", *cells, f"{TITLES[rule]} {beside}"]
            )
        return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def temperature_and_k_sweep(
    found: ProtocolNeighbors,
    *,
    ks: Sequence[int],
    factors: Sequence[float] = DEFAULT_FACTORS,
) -> Sweep:
    """Score NED at multiples of the T that is fitted for each k.

    Parameters
    ----------
    found : ProtocolNeighbors
        What a protocol found.
    ks : sequence of int
        Numbers of neighbours, at most as many as were searched.
    factors : sequence of float
        Multiples of T, ascending, greater than 0.

    Returns
    -------
    Sweep
    """
    if not ks or not factors or min(factors) <= 0 or list(factors) != sorted(set(factors)):
        raise InvalidInputError(
            "A sweep must have at least one k, and factors that ascend from above 0. "
            f"Got {list(ks)} and {list(factors)} instead."
        )
    temperatures = [fit_with_notes(found.own.first(k), found.own_codes)[0].temperature for k in ks]
    cut = [found.queries.first(k) for k in ks]

    def figures(rule: RuleName, neighbors: Neighbors, temperature: float) -> Figures:
        posterior = score_by(rule, neighbors, temperature)
        correct = posterior.labels == found.query_codes
        weights = rule_weights(neighbors, rule, temperature if rule == "ned" else None)
        error = expected_calibration_error(posterior.confidence, correct)
        return accuracy(correct), error, float(effective_voters(weights).mean())

    ned = [
        [figures("ned", neighbors, temperature * factor) for factor in factors]
        for neighbors, temperature in zip(cut, temperatures, strict=True)
    ]
    others = {rule: [figures(rule, neighbors, 1.0) for neighbors in cut] for rule in BASELINES}
    return Sweep(
        protocol=found.protocol,
        ks=tuple(ks),
        factors=tuple(factors),
        temperatures=tuple(temperatures),
        accuracy=tuple(tuple(cell[0] for cell in row) for row in ned),
        ece=tuple(tuple(cell[1] for cell in row) for row in ned),
        voters=tuple(tuple(cell[2] for cell in row) for row in ned),
        baseline_accuracy={rule: tuple(cell[0] for cell in row) for rule, row in others.items()},
        baseline_ece={rule: tuple(cell[1] for cell in row) for rule, row in others.items()},
        baseline_voters={rule: tuple(cell[2] for cell in row) for rule, row in others.items()},
    )


def effective_voters(weights: ArrayLike) -> FloatArray:
    """How many equal votes say as much as these: (sum of w)^2 / sum of w^2, for each row.

    Parameters
    ----------
    weights : array-like of shape (n, k)
        Votes of the neighbours; at least one of each row above 0.

    Returns
    -------
    array of shape (n,)
        From 1, one neighbour decides, to k, all count the same.

    References
    ----------
    Kish, *Survey Sampling*, 1965.

    Examples
    --------
    >>> effective_voters([[1.0, 1.0, 1.0, 1.0], [1.0, 0.0, 0.0, 0.0], [2.0, 1.0, 1.0, 0.0]])
    array([4.        , 1.        , 2.66666667])
    """
    votes = np.asarray(weights, np.float64)
    effective: FloatArray = votes.sum(axis=1) ** 2 / (votes**2).sum(axis=1)
    return effective


def _cell(right: float, error: float, voters: float) -> str:
    return f"{100 * right:.2f} / {100 * error:.2f} / {voters:.1f}"
