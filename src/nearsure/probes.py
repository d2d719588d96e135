"""Linear probes: what class means, LDA or logistic regression would answer from the vectors alone.

They use no neighbours. They are rivals to compare with: where a probe does better than all rules,
the classes lie so that a plane between them says more than the nearest points.

==============  ====================================================================================
name            log p(c | z), but for a constant
==============  ====================================================================================
``"means"``     the squared distance to the mean of class c, over -2 times the mean variance within
                the classes, the same for all classes and directions
``"lda"``       Gaussian classes of one covariance, shrunk by Ledoit and Wolf, with their own shares
``"logistic"``  multinomial logistic regression with an L2 penalty
==============  ====================================================================================

`fit_probe` also gives the scores of the points that it was fitted on, each by a probe that was
fitted without it, so that a temperature can be fitted on them.
"""

import warnings
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

from nearsure.arrays import AnyArray, FloatArray, IntArray
from nearsure.calibration import PosteriorTemperature
from nearsure.heads.folds import assign_folds
from nearsure.heads.linear import LinearHead
from nearsure.minimization import limit_scipy_threads
from nearsure.posterior import Posterior

ProbeName = Literal["means", "lda", "logistic"]
PROBE_NAMES: tuple[ProbeName, ...] = get_args(ProbeName)
# C of scikit-learn for features of mean square 1, ascending: the larger, the weaker the penalty.
STRENGTHS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
MAX_ITERATIONS, TOLERANCE = 200, 1e-4
# A temperature can raise this again, and cannot raise 0.
LEAST_PROBABILITY = 1e-300


@dataclass(frozen=True, eq=False)
class FittedProbe:
    """A probe, and what it says of the points that it was fitted on; `fit_probe` makes it.

    Parameters
    ----------
    probe : LinearHead
        Fitted on all points.
    own : Posterior
        Each point by a probe that was fitted on the other folds. A class that these lack has
        probability 0.
    strength : float or None
        The chosen C of logistic regression.
    """

    probe: LinearHead
    own: Posterior
    strength: float | None = None

    def posterior(self, vectors: AnyArray) -> Posterior:
        """Of n vectors."""
        return dense_posterior(self.probe.log_probabilities(vectors))


def dense_posterior(log_probabilities: FloatArray) -> Posterior:
    """A posterior with an entry for every class, from logarithms of shape (n, n_classes).

    Examples
    --------
    >>> dense_posterior(np.log([[0.25, 0.75]])).codes
    array([1, 0])
    """
    n, n_classes = log_probabilities.shape
    codes = np.argsort(-log_probabilities, axis=1, kind="stable")
    ranked = np.take_along_axis(log_probabilities, codes, axis=1)
    probabilities = np.where(np.isneginf(ranked), 0.0, np.exp(ranked).clip(LEAST_PROBABILITY, 1.0))
    indptr = n_classes * np.arange(n + 1)
    return Posterior(indptr, codes.ravel(), probabilities.ravel(), n_classes)


def fit_probe(
    name: ProbeName,
    vectors: AnyArray,
    codes: IntArray,
    *,
    n_classes: int,
    seed: int,
    groups: IntArray | None = None,
) -> FittedProbe:
    """Fit a probe on labelled points, and score each point by one that has not seen it.

    The penalty of logistic regression is the one of greatest likelihood of these scores after the
    best temperature: a strong penalty gives the better ranking and too low a confidence, which the
    temperature corrects. Penalties are tried from the strongest on until the likelihood falls.

    Parameters
    ----------
    name : {"means", "lda", "logistic"}
        Which.
    vectors : array of shape (n, d)
        Two points or more, in two folds.
    codes : array of shape (n,)
        Class codes; a class without a point has probability 0.
    n_classes : int
        Number of classes.
    seed : int
        Of the folds.
    groups : array of shape (n,), optional
        Points of one group are left out together.
    """
    folds = assign_folds(codes, groups, seed=seed)
    centre = vectors.mean(axis=0, dtype=np.float64)
    points = vectors - centre
    own = np.empty((len(codes), n_classes))
    if name != "logistic":
        fit = _fit_means if name == "means" else _fit_lda
        for fold in np.unique(folds):
            left = folds == fold
            own[left] = fit(points[~left], codes[~left], n_classes).log_probabilities(points[left])
        whole, strength = fit(points, codes, n_classes), None
    else:
        own, strength = _choose_strength(points, codes, folds, n_classes)
        whole = _Logistic(points, codes, n_classes).fit(strength)
    probe = replace(whole, centre=centre + whole.centre)
    return FittedProbe(probe, dense_posterior(own), strength)


def _fit_means(points: FloatArray, codes: IntArray, n_classes: int) -> LinearHead:
    sizes = np.bincount(codes, minlength=n_classes)
    by_class = np.zeros((n_classes, points.shape[1]))
    np.add.at(by_class, codes, points)
    means = by_class / np.maximum(sizes, 1)[:, None]
    freedom = max(1, len(codes) - int((sizes > 0).sum()))
    variance = ((points - means[codes]) ** 2).sum() / (freedom * points.shape[1])
    # Points that all lie on their means: only which one is nearest matters.
    variance = max(variance, np.finfo(np.float64).eps * float((points**2).mean())) or 1.0
    offsets = np.where(sizes > 0, -(means**2).sum(axis=1) / (2 * variance), -np.inf)
    return LinearHead(means / variance, offsets, np.zeros(points.shape[1]))


def _fit_lda(points: FloatArray, codes: IntArray, n_classes: int) -> LinearHead:
    means = _fit_means(points, codes, n_classes)
    if len(np.unique(codes)) in {1, len(codes)}:
        return means
    with warnings.catch_warnings():
        # A class of one point has no covariance, and adds none to the mean one.
        warnings.filterwarnings("ignore", "Only one sample available")
        model = LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto").fit(points, codes)
    # Without any variance within the classes the means are what is left.
    return _every_class(model, points.shape[1], n_classes) if model.coef_.any() else means


class _Logistic:
    """Logistic regression of one training set, fitted again and again from where it was."""

    def __init__(self, points: FloatArray, codes: IntArray, n_classes: int) -> None:
        self._centre = points.mean(axis=0)
        moved = points - self._centre
        self._scale = float(np.sqrt((moved**2).mean())) or 1.0
        # In single precision it takes half the time; scaled and centred it loses nothing.
        self._points, self._codes = (moved / self._scale).astype(np.float32), codes
        self._n_classes = n_classes
        self._model = LogisticRegression(max_iter=MAX_ITERATIONS, tol=TOLERANCE, warm_start=True)

    def fit(self, strength: float) -> LinearHead:
        d = self._points.shape[1]
        if (self._codes == self._codes[0]).all():
            offsets = np.full(self._n_classes, -np.inf)
            offsets[self._codes[0]] = 0.0
            return LinearHead(np.zeros((self._n_classes, d)), offsets, self._centre)
        with warnings.catch_warnings(), limit_scipy_threads():
            # A few steps more or less change no figure that is printed.
            warnings.simplefilter("ignore", ConvergenceWarning)
            self._model.set_params(C=strength).fit(self._points, self._codes)
        probe = _every_class(self._model, d, self._n_classes)
        return LinearHead(probe.weights / self._scale, probe.intercepts, self._centre)


def _choose_strength(
    points: FloatArray, codes: IntArray, folds: IntArray, n_classes: int
) -> tuple[FloatArray, float]:
    """Log-probabilities out of fold at the best strength, and that strength; see `fit_probe`."""
    parts = [
        (left, _Logistic(points[~left], codes[~left], n_classes))
        for left in (folds == fold for fold in np.unique(folds))
    ]
    best: tuple[FloatArray, float] = np.empty(0), 0.0
    least = np.inf
    for strength in STRENGTHS:
        own = np.empty((len(codes), n_classes))
        for left, model in parts:
            own[left] = model.fit(strength).log_probabilities(points[left])
        loss = _tempered_loss(dense_posterior(own), codes)
        if loss > least:
            break
        best, least = (own, strength), loss
    return best


def _tempered_loss(own: Posterior, codes: IntArray) -> float:
    """-log p(true class) after the best temperature, summed; of classes that were seen."""
    seen = own.probability_of(codes) > 0
    if not seen.any():
        return 0.0
    tempered = PosteriorTemperature.fit(own, codes)(own)
    truth = tempered.probability_of(codes)[seen]
    return -float(np.log(np.maximum(truth, LEAST_PROBABILITY)).sum())


def _every_class(
    model: LinearDiscriminantAnalysis | LogisticRegression, d: int, n_classes: int
) -> LinearHead:
    """A model of scikit-learn, which knows the classes that it saw, as one of all classes."""
    weights, offsets = np.zeros((n_classes, d)), np.full(n_classes, -np.inf)
    offsets[model.classes_] = 0.0
    # Of two classes it has the log-odds of the second.
    seen = model.classes_ if len(model.coef_) > 1 else model.classes_[1:]
    weights[seen], offsets[seen] = model.coef_, model.intercept_
    return LinearHead(weights, offsets, np.zeros(d))
