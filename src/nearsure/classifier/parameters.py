"""What the parameters of the classifier may be, and what "auto" means."""

from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, Literal, cast, get_args

import numpy as np
from numpy.typing import ArrayLike

from nearsure.arrays import AnyArray, FloatArray, IntArray
from nearsure.calibration import CALIBRATORS, CalibratorName
from nearsure.engines.contract import Engine
from nearsure.engines.embedded.base import INDEXES
from nearsure.engines.registry import ENGINES
from nearsure.errors import InvalidInputError
from nearsure.forms.prior import factors_of_prior
from nearsure.forms.sharpened import SHARPENED_NAMES, FreeParameters
from nearsure.heads.joint import TITLES
from nearsure.labels import codes_of, labels_like
from nearsure.loo import check_several_classes
from nearsure.rules import RULE_NAMES, RuleName, check_temperature
from nearsure.schema import (
    NUMBER,
    POSITIVE,
    SCALAR,
    Field,
    check_fields,
    either,
    integer,
    list_of,
    misfit,
    nullable,
    number,
    one_of,
)
from nearsure.temperature import ObjectiveName, check_objective
from nearsure.unknowns.model import check_unknown_share

AUTO_NEIGHBORS = 50
RuleChoice = Literal["auto", FreeParameters, RuleName]
CalibrationChoice = Literal["auto", CalibratorName]
HeadChoice = Literal["auto", "means", "logistic"]
Prior = Literal["support", "uniform"] | ArrayLike | Mapping[Any, float]
_PAIR = Field(
    "a label and a number",
    lambda pair: (
        isinstance(pair, list) and len(pair) == 2 and SCALAR.fits(pair[0]) and NUMBER.fits(pair[1])  # noqa: PLR2004
    ),
)
_PAIRS = Field(
    "pairs of labels and numbers",
    lambda prior: (
        isinstance(prior, dict) and set(prior) == {"pairs"} and list_of(_PAIR).fits(prior["pairs"])
    ),
)
_STORED = {
    "n_neighbors": either(one_of("auto", "all"), integer(1)),
    "temperature": either(one_of("auto"), POSITIVE),
    "metric": one_of("euclidean", "cosine"),
    "rule": one_of("auto", *RULE_NAMES, *SHARPENED_NAMES),
    "objective": one_of(*get_args(ObjectiveName)),
    "calibration": one_of("auto", *CALIBRATORS),
    "prior": either(one_of("support", "uniform"), list_of(NUMBER), _PAIRS),
    "unknown_share": nullable(number("a number in [0, 1)", 0.0, 1.0 - 2.0**-53)),
    "head": nullable(one_of("auto", *TITLES)),
    "engine": one_of(*INDEXES, *ENGINES),
    "max_fit_samples": nullable(integer(1)),
    "max_effort": nullable(integer(0)),
    "random_state": nullable(integer(-(2**63))),
}


def check_parameters(parameters: Mapping[str, Any]) -> None:
    """Raise an error that says what is allowed if a parameter is not."""
    rule, temperature = parameters["rule"], parameters["temperature"]
    rules = ("auto", *RULE_NAMES, *SHARPENED_NAMES)
    check_among("rule", rule, rules)
    check_objective(parameters["objective"])
    check_among("metric", parameters["metric"], ("euclidean", "cosine"))
    if temperature != "auto":
        check_temperature(temperature)
        if rule not in {"auto", "ned"}:
            raise InvalidInputError(
                f"temperature must be 'auto' for rule {rule!r}, which fits its own or has none. "
                f"Got {temperature!r} instead."
            )
    if rule in SHARPENED_NAMES and parameters["objective"] != "nll":
        raise InvalidInputError(
            f"objective must be 'nll' for rule {rule!r}. Got {parameters['objective']!r} instead."
        )
    head = parameters["head"]
    if head is not None:
        check_among("head", head, ("auto", *TITLES))
        chosen = chosen_rule(rule, temperature, parameters["objective"])
        if head != "auto" and chosen not in SHARPENED_NAMES:
            raise InvalidInputError(
                f"head must be 'auto' or None for rule {chosen!r}, which answers by neighbours "
                f"alone. Got {head!r} instead."
            )
    check_engine(parameters["engine"])
    _check_integer_or_none("max_fit_samples", parameters["max_fit_samples"], least=1)
    _check_integer_or_none("max_effort", parameters["max_effort"], least=0)
    if parameters["unknown_share"] is not None:
        share = parameters["unknown_share"]
        if isinstance(share, bool) or not isinstance(share, Real):
            raise InvalidInputError(
                f"unknown_share must be None or a fraction in [0, 1). Got {share!r} instead."
            )
        check_unknown_share(float(share))


def check_engine(engine: object) -> None:
    """An error if it is neither a name nor an engine; an address is none, as it holds secrets."""
    names = (*INDEXES, *ENGINES)
    if isinstance(engine, Engine) or (isinstance(engine, str) and engine in names):
        return
    if isinstance(engine, str) and not engine.isidentifier():
        raise InvalidInputError(
            "engine must be a name or an engine. Got an address, which may hold a password, while "
            "parameters are printed and saved: pass engine=nearsure.open_engine(address)."
        )
    allowed = ", ".join(map(repr, names))
    raise InvalidInputError(
        f"engine must be one of {allowed}, or an engine. Got {engine!r} instead."
    )


def chosen_rule(rule: str, temperature: object, objective: ObjectiveName) -> str:
    """What "auto" stands for: NED, if something was said about its T; or else the best form."""
    if rule != "auto":
        return rule
    return "adaptive" if temperature == "auto" and objective == "nll" else "ned"


def chosen_calibration(calibration: str, rule: str, prior: object) -> str:
    """What "auto" stands for: a sharpened form is calibrated, the paper's rules are left alone."""
    check_among("calibration", calibration, ("auto", *CALIBRATORS))
    if calibration == "auto":
        return "shrunk" if rule in SHARPENED_NAMES else "none"
    if calibration not in {"none", "shrunk"} and not _is_support(prior):
        raise InvalidInputError(
            "calibration must be 'auto', 'shrunk' or 'none' with another prior than the gallery's "
            f"frequencies: no other calibrator can weigh its points. Got {calibration!r} instead."
        )
    return calibration


def _check_integer_or_none(name: str, value: object, *, least: int) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < least:
        raise InvalidInputError(f"{name} must be None or an integer >= {least}. Got {value!r}.")


def chosen_neighbors(n_neighbors: int | str, n_support: int) -> int:
    """The number that k stands for."""
    if isinstance(n_neighbors, str):
        if n_neighbors == "auto":
            return max(1, min(AUTO_NEIGHBORS, n_support - 1))
        if n_neighbors == "all":
            return n_support
    return check_number_of_neighbors(n_neighbors, n_support)


def check_number_of_neighbors(n_neighbors: object, n_support: int) -> int:
    """The number as it is, or an error if there cannot be so many."""
    k = n_neighbors if isinstance(n_neighbors, int | np.integer) else 0
    if isinstance(k, bool) or not 1 <= k <= n_support:
        raise InvalidInputError(
            f"n_neighbors must be 'auto', 'all' or an integer in [1, {n_support}], the number of "
            f"support points. Got {n_neighbors!r} instead."
        )
    return int(k)


def prior_of_classes(prior: Prior, classes: AnyArray) -> Literal["support", "uniform"] | FloatArray:
    """A prior by name as it is, or one probability for each class, in their order."""
    if isinstance(prior, str):
        check_among("prior", prior, ("support", "uniform"))
        return cast("Literal['support', 'uniform']", prior)
    if not isinstance(prior, Mapping):
        return _numbers(prior)
    names = classes.tolist()
    missing = [name for name in names if name not in prior]
    known = set(names)
    foreign = [name for name in prior if name not in known]
    if missing or foreign:
        problem = f"misses {missing[:5]}" if missing else f"names {foreign[:5]}, which it has not"
        raise InvalidInputError(
            f"prior must give a probability to each of the {len(names)} classes of the gallery. "
            f"It {problem}."
        )
    return _numbers([prior[name] for name in names])


def _numbers(prior: object) -> FloatArray:
    try:
        return np.asarray(prior, np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(
            f"prior must be 'support', 'uniform' or numbers. Got {prior!r} instead."
        ) from error


def storable(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters as JSON has them; numpy's numbers become Python's."""
    seed, prior = parameters["random_state"], parameters["prior"]
    if not (seed is None or isinstance(seed, Integral)):
        raise InvalidInputError(
            f"random_state must be an integer or None for a model to be saved. Got {seed!r}."
        )
    stored = dict(parameters)
    check_engine(stored["engine"])  # No address, which may hold a password, is saved.
    if not isinstance(stored["engine"], str):
        stored["engine"] = "auto"  # An engine is opened by who loads the model.
    if isinstance(prior, Mapping):
        # JSON has no keys but strings; pairs keep the labels what they are.
        stored["prior"] = {"pairs": [[_plain(key), float(value)] for key, value in prior.items()]}
    elif not isinstance(prior, str):
        stored["prior"] = np.asarray(prior, np.float64).tolist()
    plain = {name: _plain(value) for name, value in stored.items()}
    if (problem := misfit(plain, _STORED)) is not None:
        raise InvalidInputError(f"These parameters cannot be saved: {problem}.")
    return plain


def restored(stored: Mapping[str, Any]) -> dict[str, Any]:
    """The inverse of `storable`; `ModelFileError` for anything else."""
    # Earlier versions had no heads, and did not measure what engines find.
    stored = {"head": None, "max_effort": None, **stored}
    check_fields("The parameters", stored, _STORED)
    parameters = dict(stored)
    prior = parameters["prior"]
    if isinstance(prior, Mapping):
        parameters["prior"] = {key: value for key, value in prior["pairs"]}  # noqa: C416
    return parameters


def _plain(value: object) -> object:
    return value.item() if isinstance(value, np.generic) else value


def _is_support(prior: object) -> bool:
    return isinstance(prior, str) and prior == "support"


def check_among(name: str, value: object, allowed: tuple[str, ...]) -> None:
    """Raise an error that names what is allowed if a value is not."""
    if not (isinstance(value, str) and value in allowed):
        names = ", ".join(map(repr, allowed))
        raise InvalidInputError(f"{name} must be one of {names}. Got {value!r} instead.")


@dataclass(frozen=True, eq=False)
class FitSettings:
    """What is fitted, and how.

    Parameters
    ----------
    k : int
        Neighbours.
    rule, calibration : str
        By name, none of them "auto".
    temperature : float or None
        T of NED, if it was given.
    prior : "support", "uniform" or array of shape (n_classes,)
        Of the classes.
    prior_factors : array of shape (n_classes,) or None
        What it multiplies each class by.
    needs_own_pass : bool
        Whether the gallery has to be asked about itself.
    heads : tuple of str
        Heads to try beside the neighbours.
    """

    k: int
    rule: str
    calibration: str
    temperature: float | None
    prior: Literal["support", "uniform"] | FloatArray
    prior_factors: FloatArray | None
    needs_own_pass: bool
    heads: tuple[str, ...] = ()


def settings_for(parameters: Mapping[str, Any], sizes: IntArray, classes: AnyArray) -> FitSettings:
    """The settings for a gallery with classes of these sizes; an error if they cannot be met."""
    n_points = int(sizes.sum())
    rule = chosen_rule(parameters["rule"], parameters["temperature"], parameters["objective"])
    calibration = chosen_calibration(parameters["calibration"], rule, parameters["prior"])
    given = parameters["temperature"]
    temperature = None if given == "auto" else float(given)
    prior = prior_of_classes(parameters["prior"], classes)
    needs_own_pass = (
        rule in SHARPENED_NAMES
        or (rule == "ned" and temperature is None)
        or calibration != "none"
        or parameters["unknown_share"] is not None
    )
    k = chosen_neighbors(parameters["n_neighbors"], n_points)
    factors = None if _is_support(prior) else factors_of_prior(prior, sizes)
    if n_points == 1 and needs_own_pass:
        raise InvalidInputError(
            "Nothing can be fitted on n_samples = 1 support point. Give the temperature."
        )
    if parameters["unknown_share"] is not None:
        check_several_classes(np.flatnonzero(sizes))
    head = parameters["head"]
    heads: tuple[str, ...] = tuple(TITLES) if head == "auto" else (head,)
    if head is None or rule not in SHARPENED_NAMES:
        heads = ()
    return FitSettings(k, rule, calibration, temperature, prior, factors, needs_own_pass, heads)


def plain_vectors(X: ArrayLike) -> ArrayLike:
    """Tensors of torch, on any device, and bfloat16, which numpy lacks, as numpy's arrays."""
    if isinstance(X, list | tuple) and X and hasattr(X[0], "detach"):
        return [plain_vectors(row) for row in X]  # type: ignore[return-value]
    if hasattr(X, "detach"):
        tensor = X.detach().cpu()
        # Each number of bfloat16 is one of float32.
        narrow = tensor.is_floating_point() and tensor.itemsize < np.dtype(np.float32).itemsize
        return np.asarray(tensor.float() if narrow else tensor)
    if str(getattr(X, "dtype", None)) == "bfloat16":  # of ml_dtypes, in which jax has it
        return np.asarray(X).astype(np.float32)
    return X


def float_dtypes(X: ArrayLike) -> list[type[np.floating]]:
    """Half precision becomes single; single and double stay; everything else becomes double."""
    half = getattr(X, "dtype", None) == np.float16
    return [np.float32] if half else [np.float64, np.float32]


def labels_for(y: ArrayLike, n_points: int, classes: AnyArray, prior: object) -> AnyArray:
    """Labels of old and new classes; new ones only where no prior was given by class."""
    labels = labels_like(y, n_points, classes)
    if isinstance(prior, str):
        return labels
    new = labels[codes_of(labels, classes) == len(classes)]
    if new.size:
        raise InvalidInputError(
            f"prior was given for {len(classes)} classes and misses "
            f"{np.unique(new).tolist()[:5]}. Fit again with a prior for all of them."
        )
    return labels
