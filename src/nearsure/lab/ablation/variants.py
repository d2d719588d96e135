"""The variants of the ablation: bases, steps, and their fits on one gallery."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Literal, NoReturn

import numpy as np

from nearsure.arrays import AnyArray, FloatArray, IntArray
from nearsure.calibration import CALIBRATORS, Calibrator, PosteriorTemperature
from nearsure.classifier import NEDClassifier
from nearsure.classifier.rule import JUST_ABOVE, FittedRule, SelfSearch, fit_rule
from nearsure.errors import InvalidInputError, QueriesDifferWarning
from nearsure.forms.class_covariance import class_covariance_weights, fit_class_covariance
from nearsure.forms.class_variance import class_variance_weights, fit_class_variance
from nearsure.forms.missed_mass import MissedByConfidence, MissedMass, leave_room
from nearsure.lab import default_rule
from nearsure.lab.evaluation import collect_fit_warnings
from nearsure.lab.robust.methods import RAW, Method
from nearsure.loo import own_class_factors
from nearsure.neighbors import Neighbors
from nearsure.posterior import Posterior, aggregate, with_confidence
from nearsure.probes import ProbeName, fit_probe

if TYPE_CHECKING:
    from typing import Self

CALIBRATOR_STEPS = ("isotonic", "platt", "shrunk", "beta", "histogram", "bbq")
TEMPERATURE = "temperature"
MISSED_SHARE = "missed share"
MISSED_BY_CONFIDENCE = "missed by confidence"

UNCORRECTED = ", uncorrected"
CLASS_VARIANCE = "class variance"
DIAGONAL = "class covariance, diagonal"
FULL = "class covariance, full"
CLASSIFIER = default_rule.DEFAULT
PROBES: dict[str, ProbeName] = {
    "class means": "means",
    "LDA": "lda",
    "logistic regression": "logistic",
}
# Of their folds.
PROBE_SEED = 0


def _forms(name: str) -> tuple[Method, ...]:
    steps = (RAW, "shrunk", "platt", "isotonic", "beta")
    return (Method(f"{name}{UNCORRECTED}"), *(Method(name, step) for step in steps))


BASELINE_RULES = ("1nn", "knn", "dudani", "gou")
RAW_BASELINES = tuple(map(Method, BASELINE_RULES))
# Without 1NN: its confidence is always 1, and calibrated it is the base rate, the same number for
# every query. The ECE of that is about 0 and means nothing.
CALIBRATED_BASELINES = tuple(
    Method(rule, step) for rule in BASELINE_RULES[1:] for step in (*CALIBRATOR_STEPS, TEMPERATURE)
)
NED = Method("ned")
# What NEDClassifier makes of the neighbours, and NEDClassifier as it comes.
NEIGHBORS_ALONE = Method("adaptive", "shrunk")
DEFAULT = Method(CLASSIFIER)
TEMPERED_PROBES = tuple(Method(probe, TEMPERATURE) for probe in PROBES)
# They have no k, and are measured once for all.
PROBE_VARIANTS = (*map(Method, PROBES), *TEMPERED_PROBES)
VARIANTS = (
    *RAW_BASELINES,
    *CALIBRATED_BASELINES,
    NED,
    *(Method("ned", step) for step in (*CALIBRATOR_STEPS, TEMPERATURE)),
    Method("ned", MISSED_SHARE),
    Method("ned", MISSED_BY_CONFIDENCE),
    *_forms("sharpened"),
    *_forms("adaptive"),
    Method(CLASS_VARIANCE),
    Method(DIAGONAL),
)
# Minutes where the others take seconds; measured on fewer splits.
SLOW_VARIANTS = (Method(FULL),)
# What the default is put together from, one part at a time.
LADDER = (
    NED,
    Method(f"sharpened{UNCORRECTED}"),
    Method(f"adaptive{UNCORRECTED}"),
    Method("adaptive"),
    NEIGHBORS_ALONE,
    DEFAULT,
)
# Measured under every condition; the last four not where every point asks all the others, as a
# probe would have seen what it is asked.
MAIN_VARIANTS = (
    *RAW_BASELINES,
    NED,
    Method("gou", "isotonic"),
    Method("gou", "platt"),
    Method("ned", "platt"),
    Method("sharpened"),
    Method("sharpened", "shrunk"),
    Method("adaptive"),
    NEIGHBORS_ALONE,
    *TEMPERED_PROBES,
    DEFAULT,
)


@dataclass(frozen=True, eq=False)
class Searched:
    """Vectors and what was found near them.

    Parameters
    ----------
    neighbors : Neighbors
        Of n vectors, with ids that are rows of the gallery.
    vectors : array of shape (n, d)
        What was searched for.
    """

    neighbors: Neighbors
    vectors: AnyArray


@dataclass(frozen=True, eq=False)
class Gallery:
    """All that a variant may be fitted on.

    Parameters
    ----------
    own : Searched
        The gallery's vectors, with the neighbours of each among the others.
    codes : array of shape (n_gallery,)
        Class codes 0, 1, ..., each of them present.
    """

    own: Searched
    codes: IntArray

    @property
    def n_classes(self) -> int:
        """How many classes there are."""
        return int(self.codes.max()) + 1


def _no_own_scores() -> NoReturn:
    raise InvalidInputError(
        "A class's variance or covariance has seen the gallery's points, and their scores under it "
        "would be too good to calibrate by. Use these bases with the step 'raw'."
    )


@dataclass(frozen=True, eq=False)
class FittedBase:
    """A base that is ready to score.

    Parameters
    ----------
    posterior : callable
        Searched queries to their posterior.
    own : callable
        Gives the posterior of the gallery's points, each without itself, as calibrators see it.
    calibrate : callable or None
        Fits a calibrator by name as the classifier does; None if `own` is all that it takes.
    """

    posterior: Callable[[Searched], Posterior]
    own: Callable[[], Posterior] = _no_own_scores
    calibrate: Callable[[str], Calibrator] | None = None


def fit_base(name: str, gallery: Gallery) -> FittedBase:
    """Fit a base on a gallery.

    Parameters
    ----------
    name : str
        The base of a variant.
    gallery : Gallery
        All that it may see.
    """
    neighbors, support, n_classes = gallery.own.neighbors, gallery.own.vectors, gallery.n_classes
    if name == CLASS_VARIANCE:
        variances = fit_class_variance(neighbors, gallery.codes, n_classes=n_classes)

        def weigh(found: Searched) -> FloatArray:
            return class_variance_weights(found.neighbors, variances)
    elif name in {DIAGONAL, FULL}:
        kind: Literal["full", "diagonal"] = "full" if name == FULL else "diagonal"
        form = fit_class_covariance(
            neighbors, gallery.codes, support, n_classes=n_classes, kind=kind
        )

        def weigh(found: Searched) -> FloatArray:
            return class_covariance_weights(found.neighbors, found.vectors, support, form)
    elif name in PROBES:
        fitted = fit_probe(
            PROBES[name], support, gallery.codes, n_classes=n_classes, seed=PROBE_SEED
        )
        return FittedBase(lambda queries: fitted.posterior(queries.vectors), lambda: fitted.own)
    elif name == CLASSIFIER:
        classifier = NEDClassifier(n_neighbors=neighbors.k).fit(support, gallery.codes)

        def ask(queries: Searched) -> Posterior:
            with warnings.catch_warnings():
                # Corrupted queries do differ, and are measured to see what comes of it.
                warnings.simplefilter("ignore", QueriesDifferWarning)
                return classifier.predict_posterior(queries.vectors)

        return FittedBase(ask)
    else:
        return _fit_rule_base(name, gallery)
    return FittedBase(
        lambda queries: aggregate(queries.neighbors, weigh(queries), n_classes=n_classes)
    )


def _fit_rule_base(name: str, gallery: Gallery) -> FittedBase:
    codes, n_classes, rows = gallery.codes, gallery.n_classes, np.arange(len(gallery.codes))
    corrected = not name.endswith(UNCORRECTED)
    factors = own_class_factors(codes, rows) if corrected else np.ones(len(codes))
    left = np.bincount(codes)[codes] - 1 if corrected else None
    own = SelfSearch(rows, gallery.own.neighbors, codes, factors, 0, left)

    def fit(calibration: str) -> FittedRule:
        return fit_rule(
            name.removesuffix(UNCORRECTED),
            own,
            temperature=None,
            objective="nll",
            calibration=calibration,
            class_sizes=np.bincount(codes),
            prior_factors=None,
        )

    fitted = fit("none")
    return FittedBase(
        lambda queries: fitted.uncalibrated_posterior(queries.neighbors, n_classes=n_classes),
        lambda: fitted.uncalibrated_posterior(own.neighbors, n_classes=n_classes, own=own),
        lambda calibration: fit(calibration).calibrator,
    )


Step = Callable[[Posterior], Posterior]


def fit_step(
    name: str,
    own: Callable[[], Posterior],
    gallery: Gallery,
    calibrate: Callable[[str], Calibrator] | None = None,
) -> Step:
    """Fit a step.

    Parameters
    ----------
    name : str
        The step of a variant.
    own : callable
        Gives the posterior of the gallery's points, each without itself; not called for "raw".
    gallery : Gallery
        The points.
    calibrate : callable, optional
        As of `FittedBase`.
    """
    if name == RAW:
        return lambda posterior: posterior
    if name in {MISSED_SHARE, MISSED_BY_CONFIDENCE}:
        return _missed(own(), gallery, by_confidence=name == MISSED_BY_CONFIDENCE)
    claimed = own()
    if name == TEMPERATURE:
        return PosteriorTemperature.fit(claimed, gallery.codes)
    calibrator: Calibrator
    if calibrate is None:
        calibrator = CALIBRATORS[name].fit(claimed.confidence, claimed.labels == gallery.codes)
    else:
        calibrator = calibrate(name)

    def calibrated(posterior: Posterior) -> Posterior:
        # As in the classifier: the best of n classes has more than 1 / n.
        least = min(1.0, (1.0 + JUST_ABOVE) / posterior.n_classes)
        return with_confidence(posterior, np.maximum(calibrator(posterior.confidence), least))

    return calibrated


def _missed(own: Posterior, gallery: Gallery, *, by_confidence: bool) -> Step:
    counts = np.bincount(gallery.codes, minlength=gallery.n_classes)
    share = MissedMass.fit(gallery.own.neighbors, gallery.codes, counts).share
    if not by_confidence:
        return lambda posterior: leave_room(posterior, share)
    found = (gallery.own.neighbors.labels == gallery.codes[:, None]).any(axis=1)
    missed = MissedByConfidence.fit(own.confidence, ~found, share)
    return lambda posterior: leave_room(posterior, missed(posterior.confidence))


@dataclass(frozen=True, eq=False)
class Competition:
    """Fitted variants; `fit` makes it.

    Parameters
    ----------
    bases : dict of str to FittedBase
        By name.
    steps : dict of Method to Step
        What follows the base of each variant.
    notes : tuple of str
        What the fits warned of, each once.
    """

    bases: dict[str, FittedBase]
    steps: dict[Method, Step]
    notes: tuple[str, ...]

    @classmethod
    def fit(cls, gallery: Gallery, variants: Sequence[Method]) -> "Self":
        """Fit variants on a gallery; a base that many share is fitted once."""
        names = dict.fromkeys(variant.base for variant in variants)
        with collect_fit_warnings() as notes:
            bases = {name: fit_base(name, gallery) for name in names}
            steps: dict[Method, Step] = {}
            for name, base in bases.items():
                scores = cache(base.own)
                for variant in variants:
                    if variant.base == name:
                        steps[variant] = fit_step(variant.step, scores, gallery, base.calibrate)
        return cls(bases, steps, tuple(dict.fromkeys(notes)))

    def posteriors(self, queries: Searched) -> Iterator[tuple[Method, Posterior]]:
        """Each variant's answer, those of one base together."""
        for name, base in self.bases.items():
            claimed = base.posterior(queries)
            for variant, step in self.steps.items():
                if variant.base == name:
                    yield variant, step(claimed)
