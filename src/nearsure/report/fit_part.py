"""How T was found."""

from nearsure.classifier import NEDClassifier
from nearsure.report.document import CurvePoint, Fit
from nearsure.report.plain import plain_number


def fit_of(classifier: NEDClassifier) -> Fit | None:
    """The fit of a classifier; None for a rule without a temperature."""
    found, sharpened = classifier.temperature_fit_, classifier.sharpened_fit_
    if classifier.temperature_ is None:
        return None
    parameters: dict[str, float] = {}
    if sharpened is not None:
        parameters = {
            "gamma": float(sharpened.form.sharpness),
            "beta": float(sharpened.form.adaptivity),
            "typical_sq_distance": float(sharpened.form.typical_distance),
        }
    if found is None:  # T was given
        return Fit(
            temperature=float(classifier.temperature_),
            ned_temperature=None,
            standard_error=None,
            status=None,
            objective=classifier.objective,
            n_points=0,
            n_missed=0,
            miss_fraction=0.0,
            curve=(),
            parameters=parameters,
        )
    curve = zip(found.curve_temperatures.tolist(), found.curve_losses.tolist(), strict=True)
    return Fit(
        temperature=float(classifier.temperature_),
        ned_temperature=float(found.temperature),
        standard_error=plain_number(found.standard_error),
        status=found.status,
        objective=found.objective,
        n_points=int(found.n_points),
        n_missed=int(found.n_missed),
        miss_fraction=float(found.miss_fraction),
        curve=tuple(CurvePoint(x, y) for x, y in curve if plain_number(y) is not None),
        parameters=parameters,
    )
