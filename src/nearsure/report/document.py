"""The document of a report: the HTML page and `--json` both hold exactly this.

Every share and probability is a fraction in [0, 1]; distances are squared Euclidean. Where a number
cannot be computed it is None, never NaN, which JSON does not have.
"""

from dataclasses import asdict, dataclass, field
from math import isfinite
from typing import Any, Literal

import numpy as np

from nearsure.arrays import IntArray
from nearsure.decisions.thresholds import lower_bound, upper_bound
from nearsure.metrics import Interval

SCHEMA_VERSION = 2

Label = str | int
Verdict = Literal["kept", "within chance", "not kept", "untested", "not promised"]


@dataclass(frozen=True)
class Estimate:
    """A number with its 95% interval; both ends are None where there is none."""

    value: float | None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class About:
    """What was evaluated.

    Parameters
    ----------
    queries : {"held-out", "leave-one-out"}
        Labelled queries that the gallery does not hold, or the gallery's own points, each searched
        without itself.
    notes : tuple of str
        What the reader should know before trusting the numbers, in sentences.
    """

    title: str
    queries: Literal["held-out", "leave-one-out"]
    n_queries: int
    n_gallery: int
    n_classes: int
    dimension: int
    k: int
    rule: str
    calibration: str
    metric: str
    engine: str
    unknown_share: float | None
    nearsure_version: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Metric:
    """One headline number.

    Parameters
    ----------
    key : str
        "accuracy", "ece", "brier", ...
    percent : bool
        Whether people read it in percent.
    meaning : str
        One sentence for people who do not know its name.
    floor : float or None
        What a perfectly calibrated forecaster would show by chance; of "ece" alone.
    """

    key: str
    title: str
    estimate: Estimate
    lower_is_better: bool
    percent: bool
    meaning: str
    floor: float | None = None


@dataclass(frozen=True)
class ReliabilityBin:
    """Queries whose confidence lies in [low, high): what was claimed, and what came true.

    The last bin holds 1, too. Bins without queries are left out.
    """

    low: float
    high: float
    count: int
    confidence: float
    accuracy: Estimate


@dataclass(frozen=True)
class HistogramBin:
    """How many answers of a confidence in [low, high), the last up to 1, were right and wrong."""

    low: float
    high: float
    right: int
    wrong: int


@dataclass(frozen=True)
class OperatingPoint:
    """What happens if answers of at least this confidence are accepted.

    The interval is of each point alone (Clopper and Pearson); a threshold that was chosen by
    looking at many of them needs `Promise`. Of a gallery's own points where unknown queries are
    expected, some imitate these; at threshold 0 all answers are accepted.
    """

    threshold: float
    accepted: int
    coverage: float
    precision: Estimate


@dataclass(frozen=True)
class Promise:
    """The laxest threshold that keeps a target with 95% certainty; None if none does."""

    precision: float
    threshold: float | None
    coverage: float | None
    sentence: str


@dataclass(frozen=True)
class PromiseCheck:
    """A promise of the fit, held against the labels of queries that it has not seen.

    Parameters
    ----------
    precision : float
        What the fit promises of accepted answers.
    threshold : float or None
        From which confidence on; None if the fit promises nothing of the kind.
    accepted : int
        Queries that reach it.
    measured : Estimate
        Share of these that is right.
    verdict : {"kept", "within chance", "not kept", "untested", "not promised"}
        "within chance" is below the promise, but its interval holds it; "untested" is without
        accepted queries.
    sentence : str
        The same for people.
    """

    precision: float
    threshold: float | None
    accepted: int
    measured: Estimate
    verdict: Verdict
    sentence: str


@dataclass(frozen=True)
class CurvePoint:
    """One point of a line."""

    x: float
    y: float


@dataclass(frozen=True)
class Method:
    """One rule on the same neighbours, or a linear probe on the same vectors.

    Parameters
    ----------
    name : str
        "1nn", "knn", "dudani", "gou", "ned"; "means", "logistic"; or "nearsure" for the classifier
        itself.
    accuracy, ece, brier : Estimate
        The headline numbers.
    ece_floor : float
        See `Metric.floor`.
    debiased_ece : Estimate or None
        The calibration error less an estimate of what chance adds to it, with the interval.
    risk_coverage : tuple of CurvePoint
        Share accepted (x) against the share of them that is wrong (y), at most 100 points.
    """

    name: str
    title: str
    accuracy: Estimate
    ece: Estimate
    brier: Estimate
    ece_floor: float | None
    risk_coverage: tuple[CurvePoint, ...]
    debiased_ece: Estimate | None = None


@dataclass(frozen=True)
class Confused:
    """A class that queries of another were taken for."""

    label: Label
    count: int


@dataclass(frozen=True)
class Example:
    """A query of a class, or of a cell of the confusion matrix."""

    id: Label
    confidence: float
    picture: str | None = None
    text: str | None = None


@dataclass(frozen=True)
class ClassRow:
    """One true class of the queries; classes that the gallery lacks have n_gallery 0.

    `examples` are the surest of its right answers.
    """

    label: Label
    n_gallery: int
    n_queries: int
    accuracy: Estimate
    mean_confidence: float
    confused_with: tuple[Confused, ...]
    examples: tuple[Example, ...] = ()


@dataclass(frozen=True)
class ConfusionCell:
    """Queries of one class that were taken for another: how many, and the surest of them.

    `truth` and `answer` are places in the labels of the matrix.
    """

    truth: int
    answer: int
    count: int
    examples: tuple[Example, ...] = ()


@dataclass(frozen=True)
class Confusion:
    """A confusion matrix of those classes alone that are confused, the most confused first.

    Parameters
    ----------
    labels : tuple of Label
        Rows, the true classes, and columns, the answers.
    cells : tuple of ConfusionCell
        All that are not empty.
    n_confused : int
        Classes that have been confused at all; more than there are labels if some are left out.
    n_wrong, n_shown : int
        Wrong answers in all, and those in the matrix.
    """

    labels: tuple[Label, ...]
    cells: tuple[ConfusionCell, ...]
    n_confused: int
    n_wrong: int
    n_shown: int


@dataclass(frozen=True)
class GalleryMap:
    """The gallery in two dimensions, by its principal components.

    Parameters
    ----------
    n_points : int
        Size of the gallery; more than there are ids if a sample is shown.
    explained : tuple of float
        Share of the variance along x and y.
    labels : tuple of Label
        The classes that occur.
    ids : tuple of Label
        Of the points.
    codes : tuple of int
        Their classes, as places in `labels`.
    x, y : tuple of float
        Their places.
    queries : tuple of CurvePoint
        Places of the mistakes that are listed, in their order.
    """

    n_points: int
    explained: tuple[float, float]
    labels: tuple[Label, ...]
    ids: tuple[Label, ...]
    codes: tuple[int, ...]
    x: tuple[float, ...]
    y: tuple[float, ...]
    queries: tuple[CurvePoint, ...] = ()


@dataclass(frozen=True)
class SupportingNeighbor:
    """A neighbour and its share of the vote, in [0, 1]; pictures are data: addresses.

    Here as elsewhere, `text` is what the vector was made of, where the gallery keeps it.
    """

    id: Label
    label: Label
    sq_distance: float
    share: float
    picture: str | None = None
    text: str | None = None


@dataclass(frozen=True)
class Mistake:
    """A query that was answered wrongly, and what supported the answer.

    Parameters
    ----------
    p_neighbors, p_head : float or None
        Probability of the answer by the neighbours alone, and by the class as a whole alone; None
        without a head.
    """

    id: Label
    label: Label
    truth: Label
    confidence: float
    neighbors: tuple[SupportingNeighbor, ...]
    picture: str | None = None
    p_neighbors: float | None = None
    p_head: float | None = None
    text: str | None = None


@dataclass(frozen=True)
class Suspect:
    """A gallery point whose neighbours do not support its label, the least supported first.

    Parameters
    ----------
    suggested : Label or None
        The class with more support.
    trust : float
        Below 0.5 the other class has more support.
    """

    id: Label
    label: Label
    suggested: Label | None
    p_own: float
    p_suggested: float
    trust: float
    picture: str | None = None
    text: str | None = None


@dataclass(frozen=True)
class DuplicatePair:
    """Nearly identical points with different labels."""

    first_id: Label
    second_id: Label
    first_label: Label
    second_label: Label
    sq_distance: float


@dataclass(frozen=True)
class ConfusablePair:
    """Two classes that claim points of each other; confusion is in [0, 1]."""

    first: Label
    second: Label
    confusion: float


@dataclass(frozen=True)
class SmallClass:
    """A class with too few members to be trusted."""

    label: Label
    n_members: int
    n_missed: int
    accuracy: float | None


@dataclass(frozen=True)
class Audit:
    """What an audit of the gallery found; lists are cut, the counts are of all.

    Parameters
    ----------
    n_wrong, n_wrong_low, n_wrong_high : int
        Estimated number of wrong labels, and its range.
    n_suspects : int
        Suspects that are worth a look: as many as labels may be wrong, less `n_confirmed`.
    n_confirmed : int
        Suspects that are not listed, as a person has confirmed their labels.
    """

    n_points: int
    n_wrong: int
    n_wrong_low: int
    n_wrong_high: int
    n_suspects: int
    n_duplicates: int
    n_small: int
    suspects: tuple[Suspect, ...]
    duplicates: tuple[DuplicatePair, ...]
    confusable: tuple[ConfusablePair, ...]
    small: tuple[SmallClass, ...]
    n_confirmed: int = 0


@dataclass(frozen=True)
class Fit:
    """How T was found.

    Parameters
    ----------
    temperature : float or None
        T of the rule in use.
    ned_temperature, standard_error, status, curve
        NED's own T, how well the data determine it, where the minimum lies, and the loss (y)
        against T (x, ascending; to be drawn on a logarithmic axis).
    parameters : dict
        Whatever else was fitted, by name: "gamma", "beta".
    head : {"means", "logistic"} or None
        What says, beside the neighbours, what a class as a whole looks like.
    head_choice : str or None
        Why, in a sentence; None where no head was tried.
    """

    temperature: float | None
    ned_temperature: float | None
    standard_error: float | None
    status: str | None
    objective: str
    n_points: int
    n_missed: int
    miss_fraction: float
    curve: tuple[CurvePoint, ...]
    parameters: dict[str, float] = field(default_factory=dict)
    head: str | None = None
    head_choice: str | None = None


@dataclass(frozen=True)
class Report:
    """All of it.

    `checks` begins with the promise that is shown first; they are of held-out queries alone.
    """

    about: About
    metrics: tuple[Metric, ...]
    reliability: tuple[ReliabilityBin, ...]
    histogram: tuple[HistogramBin, ...]
    operating_points: tuple[OperatingPoint, ...]
    promises: tuple[Promise, ...]
    methods: tuple[Method, ...]
    classes: tuple[ClassRow, ...]
    mistakes: tuple[Mistake, ...]
    audit: Audit | None
    fit: Fit | None
    checks: tuple[PromiseCheck, ...] = ()
    confusion: Confusion | None = None
    map: GalleryMap | None = None
    schema_version: int = SCHEMA_VERSION

    def to_dict(self) -> dict[str, Any]:
        """Dicts, lists, strings, numbers and None, as JSON has them."""
        return asdict(self)


# Beyond it, JavaScript's numbers are no longer every integer.
LARGEST_INTEGER = 2**53 - 1
# Of each side; together they make the 95% of the document.
ONE_SIDED = 0.975


def plain_label(value: object) -> Label:
    """A label or an id as JSON has it.

    Integers stay integers as far as a browser can count, whole floats become integers, and all else
    is text: a truth value, too, which would otherwise look like 0 or 1.

    Examples
    --------
    >>> plain_label(np.int64(3)), plain_label(np.str_("wren")), plain_label(np.True_)
    (3, 'wren', 'True')
    >>> plain_label(2**60), plain_label(4.0)
    ('1152921504606846976', 4)
    """
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= LARGEST_INTEGER:
        return value
    return str(value)


def plain_number(value: float | None) -> float | None:
    """A finite float, or None."""
    return None if value is None or not isfinite(value) else float(value)


def estimate_of(interval: Interval) -> Estimate:
    """A bootstrapped number, which its interval always holds.

    All resamples of a single row, or of rows that are all alike, are the same. An interval without
    width then carries no information, and is left out. A basic interval is one for the truth, and
    lies beside an estimate that is strongly biased: it is drawn out to the estimate.

    Examples
    --------
    >>> estimate_of(Interval(0.05, 0.01, 0.04, 0.95))
    Estimate(value=0.05, low=0.01, high=0.05)
    """
    value, low, high = map(plain_number, (interval.estimate, interval.low, interval.high))
    if value is None or low is None or high is None or not low < high:
        return Estimate(value)
    return Estimate(value, min(low, value), max(high, value))


def share_of(successes: int, trials: int) -> Estimate:
    """A share with its exact 95% interval (Clopper and Pearson); all None without trials.

    Examples
    --------
    >>> share = share_of(9, 10)
    >>> share.value, round(share.low, 3), round(share.high, 3)
    (0.9, 0.555, 0.997)
    """
    return shares_of(np.array([successes]), np.array([trials]))[0]


def shares_of(successes: IntArray, trials: IntArray) -> list[Estimate]:
    """Several of them at once."""
    lows = lower_bound(successes, trials, certainty=ONE_SIDED)
    highs = upper_bound(successes, trials, certainty=ONE_SIDED)
    return [
        Estimate(int(right) / int(tried), float(low), float(high)) if tried else Estimate(None)
        for right, tried, low, high in zip(successes, trials, lows, highs, strict=True)
    ]
