"""Post-hoc calibration: a map from a rule's confidence to the share of answers that are right.

A calibrator is fitted once, on the confidence in the top label and whether that label was right,
for any rule. In nearest-neighbour search these come without a held-out set: every support point
is left out and scored by its neighbours (`nearsure.loo`). Afterwards the calibrator is only
applied. It never changes the label, so accuracy stays the rule's.

===============  ======================  =====================================================
name             class                   the map
===============  ======================  =====================================================
``"none"``       `Unchanged`             none
``"isotonic"``   `Isotonic`              the nearest ascending curve
``"platt"``      `Platt`                 a line on the logit
``"shrunk"``     `ShrunkPlatt`           the same, shrunk towards no change
``"beta"``       `Beta`                  a log p - b log(1 - p) + c on the logit, ascending
``"histogram"``  `Histogram`             the share that is right, in bins of equally many rows
``"bbq"``        `BayesianBinning`       the mean of many such histograms, by their evidence
===============  ======================  =====================================================

`with_confidence` puts a calibrated confidence back into a posterior. `PosteriorTemperature` is the
one that calibrates the whole posterior instead: every probability to one power.

Examples
--------
>>> import numpy as np
>>> confidence = np.array([0.6, 0.7, 0.8, 0.9])
>>> calibrator = CALIBRATORS["isotonic"].fit(confidence, [False, True, False, True])
>>> calibrator([0.6, 0.75, 1.0])
array([0. , 0.5, 1. ])
>>> calibrator_from_dict(calibrator.to_dict()) == calibrator
True
"""

import reprlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from dataclasses import fields as fields_of
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq
from scipy.special import betaln, expit, logit, softmax
from sklearn.isotonic import IsotonicRegression

from nearsure.arrays import BoolArray, FloatArray, IntArray
from nearsure.errors import InvalidInputError
from nearsure.logistic import fit_bounded_logistic, fit_logistic
from nearsure.metrics.calibration_error import find_bin_starts, find_runs
from nearsure.posterior import Posterior, as_confidence, with_confidence
from nearsure.schema import from_document, to_document
from nearsure.validation import check_labels, check_positive_integer, check_scored

if TYPE_CHECKING:
    from typing import Self

__all__ = [
    "CALIBRATORS",
    "BayesianBinning",
    "Beta",
    "Calibrator",
    "Histogram",
    "Isotonic",
    "Platt",
    "PosteriorTemperature",
    "ShrunkPlatt",
    "Unchanged",
    "calibrator_from_dict",
    "with_confidence",
]


def place_edges(ordered: FloatArray, starts: IntArray) -> FloatArray:
    """The inner edges of bins, halfway between the confidences on either side of each.

    Halfway, because a confidence that comes later with a last bit rounded otherwise is then still
    in its bin.
    """
    below, above = ordered[starts[1:] - 1], ordered[starts[1:]]
    halfway = (below + above) / 2.0
    # Between two neighbouring floats there is none.
    return np.where(halfway > below, halfway, above)


# Confidences of exactly 0 and 1 have no logit; they count as this far away from it.
LOGIT_MARGIN = 1e-6


def clip_inside(confidence: FloatArray) -> FloatArray:
    """Confidences moved away from 0 and 1, where logarithms end."""
    return np.clip(confidence, LOGIT_MARGIN, 1.0 - LOGIT_MARGIN)


def _logit(confidence: FloatArray) -> FloatArray:
    return np.asarray(logit(clip_inside(confidence)), np.float64)


def choose_targets(x: FloatArray, correct: BoolArray) -> FloatArray:
    """Targets of a regression on x, of shape (n,): 1 for right rows, 0 for wrong ones; both occur.

    If some threshold separates right from wrong the slope would be infinite: then Platt's targets,
    (n_right + 1) / (n_right + 2) and 1 / (n_wrong + 2), keep it finite.
    """
    targets = correct.astype(np.float64)
    right, wrong = x[correct], x[~correct]
    if wrong.max() <= right.min() or right.max() <= wrong.min():
        targets[correct] = (len(right) + 1) / (len(right) + 2)
        targets[~correct] = 1 / (len(wrong) + 2)
    return targets


LARGEST = sys.float_info.max


@dataclass(frozen=True)
class PlainNumbers:
    """A fitted map whose fields are numbers, tuples of numbers or None."""

    name: ClassVar[str]

    def to_dict(self) -> dict[str, Any]:
        """Its name and numbers, for JSON."""
        return {"name": self.name, **to_document(self)}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> "Self":
        """The inverse of `to_dict`.

        Parameters
        ----------
        fields : mapping
            What `to_dict` gave.
        """
        own = [field.name for field in fields_of(cls)]
        if fields.get("name") != cls.name or set(fields) != {"name", *own}:
            raise InvalidInputError(
                f"A {cls.__name__} is made of a 'name' {cls.name!r} and of {own}. Got "
                f"{fields.get('name')!r} and {sorted(set(fields) - {'name'})} instead: pass what "
                "its to_dict gave."
            )
        return from_document(cls, {name: fields[name] for name in own})


def check_finite(owner: str, **numbers: float) -> None:
    """Raise unless all of a map's numbers are finite."""
    for name, number in numbers.items():
        if not _is_number(number) or not abs(number) <= LARGEST:
            raise InvalidInputError(
                f"The '{name}' of {owner} must be a finite number. Got {number!r} instead: "
                f"make it with {owner}.fit."
            )


def check_fractions(owner: str, name: str, numbers: Sequence[float]) -> None:
    """Raise unless all of a map's numbers are in [0, 1]."""
    if not isinstance(numbers, list | tuple) or not all(
        _is_number(number) and 0 <= number <= 1 for number in numbers
    ):
        raise InvalidInputError(
            f"The '{name}' of {owner} must hold numbers in [0, 1]. Got {reprlib.repr(numbers)} "
            f"instead: make it with {owner}.fit."
        )


def _is_number(number: object) -> bool:
    return isinstance(number, int | float) and not isinstance(number, bool)


class Calibrator(Protocol):
    """A few plain numbers that map a confidence to a calibrated one."""

    name: ClassVar[str]

    @classmethod
    def fit(cls, confidence: ArrayLike, correct: ArrayLike) -> "Self":
        """Learn the map.

        Parameters
        ----------
        confidence : array-like of shape (n,)
            A rule's confidence in each of its labels, in [0, 1].
        correct : array-like of shape (n,)
            Whether the label is right: boolean, or 0 and 1.
        """
        ...

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> "Self":
        """The inverse of `to_dict`."""
        ...

    def to_dict(self) -> dict[str, Any]:
        """Its name and numbers, for JSON."""
        ...

    def __call__(self, confidence: ArrayLike) -> FloatArray:
        """Calibrated confidences of the same shape, in [0, 1]."""
        ...


@dataclass(frozen=True)
class Unchanged(PlainNumbers):
    """The rule's own confidence.

    Examples
    --------
    >>> Unchanged()([0.2, 0.9])
    array([0.2, 0.9])
    """

    name: ClassVar[str] = "none"

    @classmethod
    def fit(cls, confidence: ArrayLike, correct: ArrayLike) -> "Self":
        """Fit nothing; the arguments are checked as in `Calibrator.fit`."""
        check_scored(confidence, correct)
        return cls()

    def __call__(self, confidence: ArrayLike) -> FloatArray:
        """The same confidences."""
        return as_confidence(confidence).copy()


@dataclass(frozen=True)
class Steps(PlainNumbers):
    """One answer for each bin of confidences.

    Parameters
    ----------
    edges : tuple of float
        The inner edges, ascending; a confidence on an edge belongs to the bin above it.
    calibrated : tuple of float
        The answers, one more than there are edges.
    """

    edges: tuple[float, ...]
    calibrated: tuple[float, ...]

    def __post_init__(self) -> None:
        owner = type(self).__name__
        check_fractions(owner, "edges", self.edges)
        check_fractions(owner, "calibrated", self.calibrated)
        if len(self.calibrated) != len(self.edges) + 1 or (np.diff(self.edges) <= 0).any():
            raise InvalidInputError(
                f"{owner} must have ascending edges and one answer more than edges. Got "
                f"{len(self.edges)} edges and {len(self.calibrated)} answers, or edges that do not "
                f"ascend, instead: make it with {owner}.fit."
            )

    def __call__(self, confidence: ArrayLike) -> FloatArray:
        """Calibrated confidences of the same shape."""
        places = np.searchsorted(self.edges, as_confidence(confidence), side="right")
        return np.array(self.calibrated, np.float64)[places]


# The paper's C: numbers of bins from the cube root of n over C, to C times it.
RANGE_FACTOR = 10.0
# The paper's N' = 2 B: the prior counts as two rows for each bin.
PRIOR_ROWS = 2.0
# Histograms of less weight change no answer in any digit that is shown, only the size of the map.
NEGLIGIBLE_WEIGHT = 1e-12


@dataclass(frozen=True)
class BayesianBinning(Steps):
    """The mean of histograms of many sizes, weighted by their evidence; `fit` makes it.

    It need not ascend. The prior keeps it away from 0 and 1.

    References
    ----------
    Naeini, Cooper, Hauskrecht: Obtaining Well Calibrated Probabilities Using Bayesian Binning.
    AAAI 2015.

    Examples
    --------
    >>> BayesianBinning.fit([0.7, 0.7, 0.7], [True, True, False])([0.7])  # (2 + 1) / (3 + 2)
    array([0.6])
    """

    name: ClassVar[str] = "bbq"

    @classmethod
    def fit(cls, confidence: ArrayLike, correct: ArrayLike) -> "Self":
        r"""Weigh the histograms of equally many rows by their marginal likelihood.

        There is one for each number of bins from :math:`n^{1/3} / 10` to :math:`10\, n^{1/3}`, all
        equally likely beforehand; those that ties make the same count once. If all confidences are
        equal there is one bin, and the answer is (n_right + 1) / (n + 2). Rows alike right or wrong
        give answers near 1 or 0, but not at them.

        Parameters
        ----------
        confidence, correct
            As of `Isotonic.fit`.

        Notes
        -----
        The share that is right in bin b has the prior :math:`\mathrm{Beta}(2 p_b, 2 - 2 p_b)`,
        with the bin's middle :math:`p_b`. With :math:`m_b` of :math:`n_b` rows right, the evidence
        is :math:`\prod_b \mathrm{B}(m_b + 2 p_b, n_b - m_b + 2 - 2 p_b) / \mathrm{B}(2 p_b,
        2 - 2 p_b)` and the answer of the bin :math:`(m_b + 2 p_b) / (n_b + 2)`.
        """
        confidence, correct = check_scored(confidence, correct)
        order = np.argsort(confidence, kind="stable")
        ordered, right = confidence[order], correct[order].astype(np.int64)
        histograms = [_weigh_histogram(ordered, right, starts) for starts in _binnings(ordered)]
        weights = softmax(np.array([log_evidence for _, _, log_evidence in histograms]))
        kept = np.flatnonzero(weights > NEGLIGIBLE_WEIGHT)
        edges = np.unique(np.concatenate([histograms[i][0] for i in kept]))
        lowest = np.concatenate([[0.0], edges])
        answers = np.zeros(len(lowest))
        for i in kept:
            own_edges, own_answers, _ = histograms[i]
            answers += weights[i] * own_answers[np.searchsorted(own_edges, lowest, side="right")]
        calibrated = np.clip(answers / weights[kept].sum(), 0.0, 1.0)
        return cls(tuple(edges.tolist()), tuple(calibrated.tolist()))


def _weigh_histogram(
    ordered: FloatArray, right: IntArray, starts: IntArray
) -> tuple[FloatArray, FloatArray, float]:
    """Edges, answers and log-evidence of the histogram of sorted rows whose bins begin there."""
    edges = place_edges(ordered, starts)
    n_right = np.add.reduceat(right, starts)
    n_rows = np.diff(starts, append=len(ordered))
    bounds = np.concatenate([[0.0], edges, [1.0]])
    middle = clip_inside((bounds[:-1] + bounds[1:]) / 2.0)
    for_right, for_wrong = PRIOR_ROWS * middle, PRIOR_ROWS * (1.0 - middle)
    log_evidence = betaln(n_right + for_right, n_rows - n_right + for_wrong)
    log_evidence -= betaln(for_right, for_wrong)
    return edges, (n_right + for_right) / (n_rows + PRIOR_ROWS), float(log_evidence.sum())


def _binnings(ordered: FloatArray) -> list[IntArray]:
    """The distinct binnings of the paper's numbers of bins, each as the first rows of its bins."""
    n = len(ordered)
    fewest = max(1, int(np.cbrt(n) / RANGE_FACTOR))
    most = min(n, int(np.ceil(np.cbrt(n) * RANGE_FACTOR)))
    runs = find_runs(ordered)
    binnings = (find_bin_starts(runs, n, n_bins) for n_bins in range(fewest, most + 1))
    return list({starts.tobytes(): starts for starts in binnings}.values())


# Logits that differ by less differ by the rounding of sums or of float32, and hold no line.
SMALLEST_SPREAD = 1e-6


@dataclass(frozen=True)
class Platt(PlainNumbers):
    """Logistic regression on the confidence's logit, without a penalty; `fit` makes it.

    On the logit, and not on the confidence itself, the family holds the identity (slope 1,
    intercept 0): what is calibrated already can be left alone. Confidences of exactly 0 and 1 have
    no logit and count as 1e-6 and 1 - 1e-6.

    Parameters
    ----------
    slope, intercept : float
        The calibrated logit is ``slope * logit + intercept``. A slope below 0, of a rule that is
        more often wrong the surer it is, is left as it is.
    constant : float or None
        The answer to every confidence, where the data do not determine a line.

    References
    ----------
    Platt: Probabilistic Outputs for Support Vector Machines. Advances in Large Margin
    Classifiers, 1999.

    Examples
    --------
    >>> Platt.fit(np.ones(4), np.array([True, True, True, False]))(np.array([0.3, 1.0]))
    array([0.75, 0.75])
    """

    name: ClassVar[str] = "platt"
    slope: float
    intercept: float
    constant: float | None = None

    def __post_init__(self) -> None:
        check_finite("Platt", slope=self.slope, intercept=self.intercept)
        if self.constant is not None:
            check_fractions("Platt", "constant", [self.constant])

    @classmethod
    def fit(cls, confidence: ArrayLike, correct: ArrayLike) -> "Self":
        """The line of greatest likelihood.

        There is none if all confidences are equal (but for rounding) or all rows alike right or
        wrong: then the answer is the share that is right. If some threshold parts right from wrong
        the slope would be infinite: then Platt's own targets, (n_right + 1) / (n_right + 2) and
        1 / (n_wrong + 2) in place of 1 and 0, keep it finite.

        Parameters
        ----------
        confidence, correct
            As of `Isotonic.fit`.
        """
        confidence, correct = check_scored(confidence, correct)
        x = _logit(confidence)
        if correct.all() or not correct.any() or x.max() - x.min() < SMALLEST_SPREAD:
            return cls(0.0, 0.0, float(correct.mean()))
        design = np.stack([x, np.ones_like(x)], axis=1)
        slope, intercept = fit_logistic(design, choose_targets(x, correct)).tolist()
        return cls(slope, intercept)

    def __call__(self, confidence: ArrayLike) -> FloatArray:
        """Calibrated confidences of the same shape."""
        asked = as_confidence(confidence)
        if self.constant is not None:
            return np.full(asked.shape, self.constant)
        return np.asarray(expit(self.slope * _logit(asked) + self.intercept), np.float64)


# Which of the two columns are kept, the fewest first.
SUBSETS: tuple[list[int], ...] = ([], [0], [1], [0, 1])
# A mean loss that falls less than this along a column that is left out falls by rounding.
SLOPE_TOLERANCE = 1e-9
# Below this, 1 - r^2 of the two columns is rounding: they are one column.
SAME_COLUMN = 1e-10


@dataclass(frozen=True)
class Beta(PlainNumbers):
    """Logistic regression on log p and -log(1 - p), ascending; `fit` makes it.

    It is the true map if the confidences of right and of wrong labels each have a beta
    distribution. The family holds the identity (a = b = 1, c = 0) and, with a = b, Platt's line.
    Confidences of exactly 0 and 1 count as 1e-6 and 1 - 1e-6.

    Parameters
    ----------
    a, b : float
        At least 0. The calibrated logit is ``a * log(p) - b * log(1 - p) + c``.
    c : float
        The intercept.
    constant : float or None
        The answer to every confidence, where the data do not determine a curve.

    References
    ----------
    Kull, Silva Filho, Flach: Beta Calibration: A Well-founded and Easily Implemented Improvement
    on Logistic Calibration for Binary Classifiers. AISTATS 2017.

    Examples
    --------
    >>> Beta(2.0, 2.0, 0.0)([0.5, 0.75])
    array([0.5, 0.9])
    """

    name: ClassVar[str] = "beta"
    a: float
    b: float
    c: float
    constant: float | None = None

    def __post_init__(self) -> None:
        check_finite("Beta", a=self.a, b=self.b, c=self.c)
        if self.a < 0 or self.b < 0:
            raise InvalidInputError(
                "The 'a' and 'b' of Beta must be at least 0, or a larger confidence would become a "
                f"smaller one. Got {self.a} and {self.b} instead: make it with Beta.fit."
            )
        if self.constant is not None:
            check_fractions("Beta", "constant", [self.constant])

    @classmethod
    def fit(cls, confidence: ArrayLike, correct: ArrayLike) -> "Self":
        """The ascending curve of greatest likelihood.

        A column that would get a negative coefficient is dropped, as in the paper. If both would,
        if all confidences are equal, or all rows alike right or wrong, the answer is the share that
        is right. Two distinct confidences determine no more than a line: then a = b. If some
        threshold parts wrong from right, the targets are those of `Platt.fit`.

        Parameters
        ----------
        confidence, correct
            As of `Isotonic.fit`.
        """
        confidence, correct = check_scored(confidence, correct)
        line = Platt.fit(confidence, correct)
        if line.constant is not None:
            return cls(0.0, 0.0, 0.0, line.constant)
        columns = _columns(confidence)
        mean, scale = columns.mean(axis=0), columns.std(axis=0)
        scaled = (columns - mean) / scale
        if 1.0 - np.mean(scaled[:, 0] * scaled[:, 1]) ** 2 < SAME_COLUMN:
            a, b, c = line.slope, line.slope, line.intercept
        else:
            slopes, level = _fit_ascending(scaled, choose_targets(columns[:, 0], correct))
            a, b = (slopes / scale).tolist()
            c = level - float(slopes @ (mean / scale))
        return cls(a, b, c) if max(a, b) > 0 else cls(0.0, 0.0, 0.0, float(correct.mean()))

    def __call__(self, confidence: ArrayLike) -> FloatArray:
        """Calibrated confidences of the same shape."""
        asked = as_confidence(confidence)
        if self.constant is not None:
            return np.full(asked.shape, self.constant)
        logits = _columns(asked) @ np.array([self.a, self.b]) + self.c
        return np.asarray(expit(logits), np.float64)


def _columns(confidence: FloatArray) -> FloatArray:
    p = clip_inside(confidence)
    return np.stack([np.log(p), -np.log1p(-p)], axis=-1)


def _fit_ascending(scaled: FloatArray, targets: FloatArray) -> tuple[FloatArray, float]:
    """Slopes >= 0 of the two columns, and the level: the fewest that leave nothing to gain.

    The loss is convex, so that they are the best as soon as the slopes of the columns used are not
    negative and the loss does not fall along those left out. Both columns come last: by then both
    slopes are known to be positive, and finite.
    """
    slopes, level = np.zeros(2), 0.0
    for used in SUBSETS:
        design = np.column_stack([scaled[:, used], np.ones(len(scaled))])
        *found, level = fit_logistic(design, targets).tolist()
        slopes = np.zeros(2)
        slopes[used] = np.maximum(found, 0.0)
        falls = scaled.T @ (expit(design @ [*found, level]) - targets) / len(targets)
        left_out = [column for column in (0, 1) if column not in used]
        if min(found, default=0.0) >= 0 and (falls[left_out] >= -SLOPE_TOLERANCE).all():
            break
    return slopes, level


N_BINS = 10


@dataclass(frozen=True)
class Histogram(Steps):
    """The share that is right in each bin of equally many rows; `fit` makes it.

    It need not ascend, and it ties what was ranked within a bin.

    References
    ----------
    Zadrozny, Elkan: Obtaining Calibrated Probability Estimates from Decision Trees and Naive
    Bayesian Classifiers. ICML 2001.

    Examples
    --------
    >>> calibrator = Histogram.fit([0.2, 0.4, 0.6, 0.8], [False, True, True, True], n_bins=2)
    >>> calibrator.edges, calibrator([0.3, 0.9])
    ((0.5,), array([0.5, 1. ]))
    """

    name: ClassVar[str] = "histogram"

    @classmethod
    def fit(cls, confidence: ArrayLike, correct: ArrayLike, *, n_bins: int = N_BINS) -> "Self":
        """Count in bins.

        No bin is empty and no equal confidences are parted: with ties, or fewer rows than n_bins,
        there are fewer bins. With one bin, as where all confidences are equal, the answer is the
        share that is right. A bin whose rows are all right answers 1, and all wrong 0, however
        few they are.

        Parameters
        ----------
        confidence, correct
            As of `Isotonic.fit`.
        n_bins : int, default=10
            Number of bins.
        """
        confidence, correct = check_scored(confidence, correct)
        n_bins = check_positive_integer("n_bins", n_bins)
        order = np.argsort(confidence, kind="stable")
        ordered = confidence[order]
        starts = find_bin_starts(find_runs(ordered), len(ordered), n_bins)
        n_right = np.add.reduceat(correct[order], starts, dtype=np.int64)
        shares = n_right / np.diff(starts, append=len(ordered))
        return cls(tuple(place_edges(ordered, starts).tolist()), tuple(shares.tolist()))


@dataclass(frozen=True)
class Isotonic(PlainNumbers):
    """An ascending line through knots, level beyond the first and the last; `fit` makes it.

    Parameters
    ----------
    confidence, calibrated : tuple of float
        The knots, both ascending.

    References
    ----------
    Zadrozny, Elkan: Transforming Classifier Scores into Accurate Multiclass Probability Estimates.
    KDD 2002.

    Examples
    --------
    >>> calibrator = Isotonic.fit([0.2, 0.4, 0.6, 0.8], [False, True, False, True])
    >>> calibrator([0.1, 0.5, 0.7, 1.0])
    array([0.  , 0.5 , 0.75, 1.  ])
    """

    name: ClassVar[str] = "isotonic"
    confidence: tuple[float, ...]
    calibrated: tuple[float, ...]

    def __post_init__(self) -> None:
        check_fractions("Isotonic", "confidence", self.confidence)
        check_fractions("Isotonic", "calibrated", self.calibrated)
        n_knots = len(self.confidence)
        if (
            not n_knots
            or n_knots != len(self.calibrated)
            or (np.diff(self.confidence) <= 0).any()
            or (np.diff(self.calibrated) < 0).any()
        ):
            raise InvalidInputError(
                "The knots of Isotonic must be ascending, one 'calibrated' for each 'confidence'. "
                f"Got {n_knots} and {len(self.calibrated)} or descending ones instead: make it "
                "with Isotonic.fit."
            )

    @classmethod
    def fit(cls, confidence: ArrayLike, correct: ArrayLike) -> "Self":
        """The ascending function nearest to being right, in squares.

        Where all confidences are equal, or all rows alike right or wrong, it is the share that is
        right. It reaches 0 below the first row that is right, and 1 above the last that is wrong.

        Parameters
        ----------
        confidence : array-like of shape (n,)
            A rule's confidence in each of its labels, in [0, 1].
        correct : array-like of shape (n,)
            Whether the label is right: boolean, or 0 and 1.
        """
        confidence, correct = check_scored(confidence, correct)
        model = IsotonicRegression(y_min=0.0, y_max=1.0, out_of_bounds="clip")
        model.fit(confidence, correct.astype(np.float64))
        return cls(tuple(model.X_thresholds_.tolist()), tuple(model.y_thresholds_.tolist()))

    def __call__(self, confidence: ArrayLike) -> FloatArray:
        """Calibrated confidences of the same shape."""
        asked = as_confidence(confidence)
        # Interpolation may round to a last bit above 1.
        return np.clip(np.interp(asked, self.confidence, self.calibrated), 0.0, 1.0)


# At the one end all classes of a row are as good as equal; at the other only the top one is left.
SMALLEST_EXPONENT, LARGEST_EXPONENT = 1e-3, 1e3
EXPONENT_TOLERANCE = 1e-9
# One standard error of a likelihood: what a parameter may cost before the data reject it.
ONE_STANDARD_ERROR_OF_LIKELIHOOD = 0.5


@dataclass(frozen=True)
class PosteriorTemperature(PlainNumbers):
    """p(c) to the power `exponent`, and normalized again; `fit` makes it.

    Above 1 the confidence rises, below 1 it falls. It takes the posterior of any rule and changes
    neither labels nor ranking. Classes that have probability 0, or none, stay so. What a row leaves
    unassigned (it sums to less than 1) stays unassigned.

    Parameters
    ----------
    exponent : float
        Above 0; 1 / temperature.

    References
    ----------
    Guo, Pleiss, Sun, Weinberger: On Calibration of Modern Neural Networks. ICML 2017.

    Examples
    --------
    >>> posterior = Posterior(np.array([0, 2]), np.array([1, 0]), np.array([0.75, 0.25]), 2)
    >>> PosteriorTemperature(2.0)(posterior).probabilities
    array([0.9, 0.1])
    """

    name: ClassVar[str] = "posterior_temperature"
    exponent: float

    def __post_init__(self) -> None:
        check_finite("PosteriorTemperature", exponent=self.exponent)
        if self.exponent <= 0:
            raise InvalidInputError(
                "The 'exponent' of PosteriorTemperature must be above 0. "
                f"Got {self.exponent} instead: make it with PosteriorTemperature.fit."
            )

    @classmethod
    def fit(cls, posterior: Posterior, labels: ArrayLike) -> "Self":
        """The exponent of greatest likelihood of the true classes.

        Points whose class has probability 0 have it at every exponent. They are left out, as in
        `fit_temperature`, and the confidence is too high where they are many.

        The loss is convex. If it falls all the way (every true class is the top one: to infinity;
        the top ones are right no more often than the others: to 0), the answer is the exponent
        nearest to 1 that is not half a unit of log-likelihood worse than the limit, 1e3 or 1e-3.
        It is 1 where the exponent does not matter, as with one class in every row.

        Parameters
        ----------
        posterior : Posterior
            Probabilities of n points, each left out of its own neighbours.
        labels : array-like of shape (n,)
            Their true class codes.
        """
        codes = check_labels(labels, n_rows=len(posterior))
        hit = posterior.probability_of(codes) > 0
        if not hit.any():
            raise InvalidInputError(
                "No point's class has a probability above 0, so these posteriors say nothing about "
                "the exponent. Search more neighbours, or check that labels and posterior belong "
                "together."
            )
        loss = _Loss(posterior.take(hit), codes[hit])
        if loss.slope(LARGEST_EXPONENT) <= 0:
            return cls(_nearest_to_one(loss, LARGEST_EXPONENT))
        if loss.slope(SMALLEST_EXPONENT) >= 0:
            return cls(_nearest_to_one(loss, SMALLEST_EXPONENT))
        best = brentq(
            loss.slope, SMALLEST_EXPONENT, LARGEST_EXPONENT, xtol=EXPONENT_TOLERANCE, maxiter=500
        )
        return cls(float(best))

    @property
    def temperature(self) -> float:
        """What the logarithms of the probabilities are divided by."""
        return 1.0 / self.exponent

    def __call__(self, posterior: Posterior) -> Posterior:
        """The posterior of the same classes in the same order."""
        rows, n = posterior.rows, len(posterior)
        before = posterior.probabilities
        totals = np.bincount(rows, before, minlength=n)
        # Relative to the top class, whose power is then 1, no row underflows to nothing.
        relative = np.divide(
            before, posterior.confidence[rows], out=np.zeros_like(before), where=before > 0
        )
        powers = relative**self.exponent
        sums = np.bincount(rows, powers, minlength=n)
        after = np.divide(powers, sums[rows], out=np.zeros_like(powers), where=before > 0)
        return replace(posterior, probabilities=np.minimum(after * totals[rows], 1.0))


class _Loss:
    """-log p(true class), summed over points, as a function of the exponent."""

    def __init__(self, posterior: Posterior, codes: IntArray) -> None:
        positive = posterior.probabilities > 0
        self._rows = posterior.rows[positive]
        self._n = len(posterior)
        true = np.log(posterior.probability_of(codes))
        # Log of each class's probability over that of the true class.
        self._excess: FloatArray = np.log(posterior.probabilities[positive]) - true[self._rows]
        self._largest = np.zeros(self._n)
        np.maximum.at(self._largest, self._rows, self._excess)

    def __call__(self, exponent: float) -> float:
        """The sum of log(sum of powers relative to the true class)."""
        return float((exponent * self._largest + np.log(self._sums(exponent)[1])).sum())

    def slope(self, exponent: float) -> float:
        powers, sums = self._sums(exponent)
        return float(((powers * self._excess) / sums[self._rows]).sum())

    def _sums(self, exponent: float) -> tuple[FloatArray, FloatArray]:
        powers: FloatArray = np.exp(exponent * (self._excess - self._largest[self._rows]))
        sums = np.bincount(self._rows, powers, minlength=self._n)
        return powers, np.asarray(sums, np.float64)


def _nearest_to_one(loss: _Loss, limit: float) -> float:
    """The exponent between 1 and a limit that is nearest to 1 and not rejected against it."""
    allowed = loss(limit) + ONE_STANDARD_ERROR_OF_LIKELIHOOD
    if loss(1.0) <= allowed:
        return 1.0
    return float(brentq(lambda exponent: loss(exponent) - allowed, 1.0, limit))


STEEPEST = 1e300
# The prior of slope and intercept is normal about 1 and 0, with this standard deviation.
PRIOR_SPREAD = 1.0
# Above 0, so that no two answers change their order.
LOWEST_SLOPE = 0.01


@dataclass(frozen=True)
class ShrunkPlatt(PlainNumbers):
    """A line on the confidence's logit, shrunk towards the identity; `fit` makes it.

    With a handful of points, or points that are all right, ordinary Platt scaling would become
    certain; this one stays near the rule's confidence. With hundreds of points the two agree.

    Parameters
    ----------
    slope, intercept : float
        The calibrated logit is ``slope * logit + intercept``; the slope is above 0.

    Examples
    --------
    >>> ShrunkPlatt.fit([0.9, 0.9, 0.8], [True, True, True])([0.5, 0.9]).round(2)
    array([0.55, 0.96])
    """

    name: ClassVar[str] = "shrunk"
    slope: float
    intercept: float

    def __post_init__(self) -> None:
        check_finite("ShrunkPlatt", slope=self.slope, intercept=self.intercept)
        # A logit is at most 745, and its product must be a number.
        if not 0 < self.slope <= STEEPEST:
            raise InvalidInputError(
                f"The slope must be above 0 and at most {STEEPEST:g}. Got {self.slope} instead."
            )

    @classmethod
    def fit(
        cls, confidence: ArrayLike, correct: ArrayLike, *, weights: FloatArray | None = None
    ) -> "Self":
        """The most probable line.

        Parameters
        ----------
        confidence, correct
            As of `Isotonic.fit`.
        weights : array of shape (n,), optional
            How much each point counts, in points; by default 1.
        """
        confidence, correct = check_scored(confidence, correct)
        x = _logit(confidence)
        counts = np.ones(len(x)) if weights is None else weights
        if counts.shape != x.shape or not (counts >= 0).all():
            raise InvalidInputError(
                f"weights must be one number >= 0 for each of the {len(x)} points. "
                f"Got an array of shape {counts.shape} instead."
            )
        intercept, (slope,) = fit_bounded_logistic(
            x[:, None],
            correct,
            counts,
            lowest=LOWEST_SLOPE,
            usual=1.0,
            pull=1.0 / PRIOR_SPREAD**2,
            pull_intercept=True,
            divisor=len(x),
            tolerance=1e-12,
        )
        return cls(float(slope), intercept)

    def __call__(self, confidence: ArrayLike) -> FloatArray:
        """Calibrated confidences of the same shape."""
        logits = self.slope * _logit(as_confidence(confidence)) + self.intercept
        return np.asarray(expit(logits), np.float64)


CalibratorName = Literal["none", "isotonic", "platt", "shrunk", "beta", "histogram", "bbq"]
CALIBRATORS: dict[str, type[Calibrator]] = {
    kind.name: kind
    for kind in (Unchanged, Isotonic, Platt, ShrunkPlatt, Beta, Histogram, BayesianBinning)
}


def calibrator_from_dict(fields: Mapping[str, Any]) -> Calibrator:
    """The calibrator of any kind whose `to_dict` gave these fields.

    Parameters
    ----------
    fields : mapping
        Its name and numbers.

    Examples
    --------
    >>> calibrator_from_dict({"name": "platt", "slope": 1.0, "intercept": 0.0, "constant": None})
    Platt(slope=1.0, intercept=0.0, constant=None)
    """
    name = fields.get("name")
    if not (isinstance(name, str) and name in CALIBRATORS):
        raise InvalidInputError(
            f"The 'name' of a calibrator must be one of {sorted(CALIBRATORS)}. Got {name!r} "
            "instead: pass what its to_dict gave."
        )
    return CALIBRATORS[name].from_dict(fields)
