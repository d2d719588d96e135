"""What was fitted, for people and for programs."""

from dataclasses import asdict, dataclass
from typing import Any

from nearsure.classifier import NEDClassifier
from nearsure.cli.showing import finite
from nearsure.errors import InvalidInputError
from nearsure.report.fit_part import fit_of
from nearsure.report.gallery_facts import engine_name, gallery_size, rule_and_calibration

PRECISION = 0.99


@dataclass(frozen=True)
class FitSummary:
    """What was fitted on which gallery.

    Parameters
    ----------
    temperature, standard_error : float or None
        T of the rule in use, and the standard error of NED's own T.
    parameters : dict
        Whatever else was fitted.
    n_fitted, n_missed : int
        Points that all was fitted on, and those without a neighbour of their own class.
    threshold, coverage : float or None
        From which confidence 99% of the accepted answers are right, and the share of queries that
        reaches it; None if that cannot be promised.
    promise : str
        The same in a sentence.
    """

    n_points: int
    n_classes: int
    dimension: int
    k: int
    rule: str
    calibration: str
    metric: str
    engine: str
    unknown_share: float | None
    temperature: float | None
    standard_error: float | None
    parameters: dict[str, float]
    n_fitted: int
    n_missed: int
    threshold: float | None
    coverage: float | None
    promise: str

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return asdict(self)

    def facts(self) -> dict[str, str]:
        """As people read it."""
        facts = {
            "gallery": f"{self.n_points:,} points, {self.n_classes:,} classes, "
            f"dimension {self.dimension:,}",
            "engine": f"{self.engine}, {self.metric}",
            "neighbours": f"{self.k}",
            "rule": f"{self.rule}, calibration {self.calibration}",
        }
        if self.temperature is not None:
            facts["T"] = f"{self.temperature:.6g}"
            facts |= {name: f"{value:.4g}" for name, value in self.parameters.items()}
            share = f" ({self.n_missed / self.n_fitted:.1%})" if self.n_fitted else ""
            facts["missed"] = (
                f"{self.n_missed:,} of {self.n_fitted:,} points{share} have no neighbour of their "
                "own class"
            )
        if self.unknown_share is not None:
            facts["unknown"] = f"{self.unknown_share:.1%} of the queries are expected to be"
        facts["99% right"] = self.promise
        return facts


def summary_of(classifier: NEDClassifier) -> FitSummary:
    """What a classifier has fitted; the threshold costs no other search."""
    rule, calibration = rule_and_calibration(classifier)
    fit = fit_of(classifier)
    threshold = coverage = None
    try:
        chosen = classifier.accept_threshold(precision=PRECISION)
        promise = str(chosen)
        if chosen.reached:
            threshold, coverage = finite(chosen.threshold), finite(chosen.coverage)
    except InvalidInputError as error:
        promise = str(error)
    return FitSummary(
        n_points=gallery_size(classifier),
        n_classes=len(classifier.classes_),
        dimension=int(classifier.n_features_in_),
        k=int(classifier.n_neighbors_),
        rule=rule,
        calibration=calibration,
        metric=classifier.metric,
        engine=engine_name(classifier),
        unknown_share=classifier.unknown_share,
        temperature=None if fit is None else fit.temperature,
        standard_error=None if fit is None else fit.standard_error,
        parameters={} if fit is None else fit.parameters,
        n_fitted=0 if fit is None else fit.n_points,
        n_missed=0 if fit is None else fit.n_missed,
        threshold=threshold,
        coverage=coverage,
        promise=promise,
    )
