"""The classifier beside the paper's rules, on the same neighbours."""

from dataclasses import dataclass

import numpy as np

from nearsure.arrays import BoolArray, FloatArray
from nearsure.comparison import RuleResult, compare_rules, score_by, title_of
from nearsure.metrics import risk_coverage_curve
from nearsure.posterior import Posterior
from nearsure.report.answered import Answered
from nearsure.report.document import CurvePoint, Method
from nearsure.report.plain import estimate_of, plain_number, share_of
from nearsure.rules import RULE_NAMES, RuleName

OWN_NAME = "nearsure"
CURVE_POINTS = 100


@dataclass(frozen=True, eq=False)
class ComparedMethods:
    """All methods, and what was measured of the classifier itself."""

    methods: tuple[Method, ...]
    own: RuleResult


def compared_methods(
    answered: Answered,
    *,
    title: str,
    temperature: float | None,
    seed: int,
    n_resamples: int,
) -> ComparedMethods:
    """Score the neighbours by every rule.

    Parameters
    ----------
    answered : Answered
        The queries.
    title : str
        What the classifier is called in the table.
    temperature : float or None
        T of NED; without one, NED is left out.
    seed, n_resamples : int
        Of the bootstrap.
    """
    neighbors, own = answered.prediction.neighbors, answered.prediction.posterior
    rules: tuple[RuleName, ...] = tuple(
        rule for rule in RULE_NAMES if rule != "ned" or temperature is not None
    )
    any_temperature = 1.0 if temperature is None else temperature
    posteriors: dict[str, Posterior] = {
        rule: score_by(rule, neighbors, any_temperature) for rule in rules
    }
    posteriors[OWN_NAME] = own
    comparison = compare_rules(
        neighbors,
        answered.codes,
        temperature=any_temperature,
        seed=seed,
        rules=rules,
        others={OWN_NAME: own},
        n_resamples=n_resamples,
    )
    methods = tuple(
        _method(
            result,
            title if result.rule == OWN_NAME else title_of(result.rule),
            posteriors[result.rule],
            answered,
        )
        for result in comparison.results
    )
    return ComparedMethods(methods, comparison.results[-1])


def _method(result: RuleResult, title: str, posterior: Posterior, answered: Answered) -> Method:
    correct = posterior.labels == answered.codes
    return Method(
        name=result.rule,
        title=title,
        accuracy=share_of(int(correct.sum()), len(correct)),
        ece=estimate_of(result.ece),
        brier=estimate_of(result.brier),
        ece_floor=plain_number(result.ece_floor),
        risk_coverage=thinned_curve(posterior.confidence, correct),
    )


def thinned_curve(confidence: FloatArray, correct: BoolArray) -> tuple[CurvePoint, ...]:
    """Points of the risk-coverage curve, the first that reach each percent of coverage."""
    curve = risk_coverage_curve(confidence, correct)
    wanted = np.arange(1, CURVE_POINTS + 1) / CURVE_POINTS
    places = np.unique(np.searchsorted(curve.coverage, wanted - 1e-12))
    return tuple(
        CurvePoint(float(curve.coverage[place]), float(curve.risk[place])) for place in places
    )
