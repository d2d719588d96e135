"""The confidence from which an answer may be accepted, with exact guarantees.

Precision
---------
A threshold is tested by the exact binomial p-value of "no more than the target are right among the
accepted". Thresholds are the m-th largest confidences. The ranks m are fixed before anything is
seen, by the number of points, the target and the certainty: those at which one more wrong answer
passes the test, since the ranks between them pass less easily. A threshold accepts all points of
its confidence, so ties need no rule of their own: ranks within a tie are one threshold.

The tests are a fixed sequence, as in Learn-then-Test: from a start to laxer thresholds, each at the
whole level of 1 - certainty, until one fails. All depends on the start. Too strict a one has few
points, of which a single wrong one is too many; too lax a one is no longer good enough. It is
looked for from the laxest threshold on: the first rank m whose next m / 4 points are wrong no more
often than the test allows among the m points above. Answers of more confidence are better, so the
test at m is then likely to pass.

Why this is valid: suppose that lowering the threshold never raises the true precision, which is
what a confidence is for. Given how many points lie in the smallest part of the confidences whose
precision is below the target, those points are right independently and with less than the target's
probability, and so are all below them. Let "bad" be the ranks from there on. For a bad one to be
certified, the test at the first bad rank has to pass, or at the start, if that is bad itself: at
the laxer of the two. Whether a rank is the start depends on points below it only, and these say
nothing about those above. So that test is an ordinary one, passed by mistake with a chance of no
more than 1 - certainty, and nothing has to be shared among starts. Where the precision does rise
here and there, the tests of this package measure no excess either.

Measured where the truth is known, on 18 made curves of the error, targets of 90 to 99% and 800 to
10,000 points: this accepts 0.43 of all points, as does the best start for each curve, which nobody
knows beforehand. Two fixed starts that share the level accept 0.41, one at the strictest rank 0.38.
A bound for all ranks at once, exact and stepping down, accepts 0.36 of up to 3000 points where the
two starts accept 0.38. The price: where the precision rises and falls in wide bands, points below
are no sign of those above, and less is accepted than from a strict start.

False accepts
-------------
The share of the wrong answers that are accepted can only grow as the threshold falls, so the points
that must not be accepted give a distribution-free bound from one of their order statistics (Wilks),
without any sequence and without the assumption.

References
----------
Angelopoulos, Bates, Candes, Jordan, Lei: Learn then Test. 2021.
Wilks: Determination of Sample Sizes for Setting Tolerance Limits. 1941.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import ceil, floor, inf, isinf, nan
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betainc, btdtria
from scipy.stats import beta

from nearsure.arrays import BoolArray, FloatArray, IntArray
from nearsure.decisions.unknown_classes import FEWEST_CLASSES, UnknownClasses
from nearsure.errors import InvalidInputError
from nearsure.table import html_paragraphs, make_frame
from nearsure.validation import check_confidence, check_open_fraction, check_scored

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]

# Exact bounds on a share that was measured on finitely many trials.
#
# References
# ----------
# Clopper, Pearson: The Use of Confidence or Fiducial Limits Illustrated in the Case of the
# Binomial. Biometrika 1934.


def lower_bound(successes: ArrayLike, trials: ArrayLike, *, certainty: float = 0.95) -> FloatArray:
    """Return the share that the true one exceeds, with the given certainty.

    Parameters
    ----------
    successes : array-like of int
        How many trials succeeded.
    trials : array-like of int, broadcast against `successes`
        How many there were. No trials give the bound 0.
    certainty : float, default=0.95
        At least this share of all draws of the trials have a bound below the true share.

    Returns
    -------
    ndarray
        One-sided Clopper-Pearson bounds, in [0, 1), of the shape of the arguments.

    Examples
    --------
    >>> lower_bound([299, 298], 299).round(4).tolist()
    [0.99, 0.9842]
    """
    succeeded, tried = _check_counts(successes, trials)
    level = 1.0 - check_open_fraction("certainty", certainty)
    # The beta distribution needs a positive first parameter; without a success the bound is 0.
    bound = beta.ppf(level, np.maximum(succeeded, 1), tried - succeeded + 1)
    return np.where(succeeded > 0, bound, 0.0)


def upper_bound(successes: ArrayLike, trials: ArrayLike, *, certainty: float = 0.95) -> FloatArray:
    """Return the share that the true one stays below, with the given certainty.

    Parameters
    ----------
    successes, trials : array-like of int
        As in :func:`lower_bound`. No trials give the bound 1.
    certainty : float, default=0.95
        At least this share of all draws of the trials have a bound above the true share.

    Returns
    -------
    ndarray
        One-sided Clopper-Pearson bounds, in (0, 1], of the shape of the arguments.

    Examples
    --------
    >>> upper_bound([0, 1], 299).round(4).tolist()
    [0.01, 0.0158]
    """
    succeeded, tried = _check_counts(successes, trials)
    return 1.0 - lower_bound(tried - succeeded, tried, certainty=certainty)


def at_least_p_value(successes: ArrayLike, trials: ArrayLike, *, share: float) -> FloatArray:
    """Return the chance of so many successes or more if the true share were only `share`.

    A small value is evidence of a true share of at least `share`: it is at most ``1 - certainty``
    exactly where ``lower_bound(successes, trials, certainty=certainty) >= share``.

    Parameters
    ----------
    successes, trials : array-like of int
        As in :func:`lower_bound`.
    share : float
        The share in question, in (0, 1).

    Returns
    -------
    ndarray
        Exact binomial tail probabilities, in [0, 1].

    Examples
    --------
    >>> at_least_p_value([2, 1, 0], 2, share=0.5).tolist()
    [0.25, 0.75, 1.0]
    """
    succeeded, tried = _check_counts(successes, trials)
    check_open_fraction("share", share)
    tail = betainc(np.maximum(succeeded, 1), tried - succeeded + 1, share)
    return np.where(succeeded > 0, tail, 1.0)


def _check_counts(successes: ArrayLike, trials: ArrayLike) -> tuple[IntArray, IntArray]:
    succeeded, tried = np.asarray(successes), np.asarray(trials)
    for name, counts in (("successes", succeeded), ("trials", tried)):
        if counts.dtype.kind not in "iu":
            raise InvalidInputError(
                f"The '{name}' parameter must hold integers. Got an array of type {counts.dtype} "
                f"instead: pass counts, not shares."
            )
    succeeded, tried = np.broadcast_arrays(succeeded.astype(np.int64), tried.astype(np.int64))
    if not ((succeeded >= 0) & (succeeded <= tried)).all():
        raise InvalidInputError(
            "The 'successes' parameter must lie between 0 and the number of trials. "
            f"Got successes from {succeeded.min()} to {succeeded.max()} and trials from "
            f"{tried.min()} to {tried.max()} instead."
        )
    return succeeded, tried


# At most so many ranks are tested: every one that allows another error, or, of many, some that are
# about 1% apart.
N_RANKS = 1000
# Points below a rank that tell whether the tests may start there, as a share of those above.
NEXT_POINTS = 0.25


def laxest_precise(
    confidence: FloatArray, correct: BoolArray, *, precision: float, certainty: float
) -> float:
    """Return the laxest certified threshold, or infinity if there is none.

    Parameters
    ----------
    confidence, correct : array of shape (n,)
        Checked points.
    precision : float
        Share of the accepted that shall be right, in (0, 1).
    certainty : float
        Share of all draws of the points whose threshold shall keep that, in (0, 1).
    """
    descending = np.argsort(-confidence, kind="stable")
    ranks, allowed = ranks_and_errors(len(confidence), precision, 1.0 - certainty)
    negated = -confidence[descending]
    thresholds = np.unique(negated[ranks - 1])
    accepted = np.searchsorted(negated, thresholds, side="right")
    wrong = np.cumsum(~correct[descending], dtype=np.int64)[accepted - 1]
    allowed = allowed[np.searchsorted(ranks, accepted, side="right") - 1]
    start = _find_start(accepted, wrong, allowed)
    p_values = at_least_p_value(accepted - wrong, accepted, share=precision)[start:]
    failed = np.append(p_values > 1.0 - certainty, True)
    n_passed = int(failed.argmax())
    return float(-thresholds[start + n_passed - 1]) if n_passed else inf


def ranks_and_errors(
    n_points: int, precision: float, error_level: float
) -> tuple[IntArray, IntArray]:
    """Return the ranks that are tested, ascending, and how many wrong answers each allows."""
    most = int((1.0 - precision) * n_points)
    errors = np.unique(np.geomspace(1, most + 1, N_RANKS).astype(np.int64)) - 1
    # The fewest points that certify the precision despite so many errors.
    ranks = errors + np.ceil(btdtria(error_level, errors + 1, precision)).astype(np.int64)
    errors, ranks = errors[ranks <= n_points], ranks[ranks <= n_points]
    if len(ranks) == 0:  # only all points together may suffice
        return np.array([n_points]), np.array([0])
    # None of the ranks to come allows another error: all are tested, until there is one.
    rest = np.arange(ranks[-1] + 1, n_points + 1)
    return np.append(ranks, rest), np.append(errors, np.full(len(rest), errors[-1]))


def _find_start(accepted: IntArray, wrong: IntArray, allowed: IntArray) -> int:
    """Return the place of the threshold at which the tests start.

    Parameters
    ----------
    accepted, wrong, allowed : array of shape (n,)
        Of each threshold, from the strictest on: how many points it accepts, how many of these are
        wrong, and how many may be.
    """
    beyond = np.searchsorted(accepted, (1.0 + NEXT_POINTS) * accepted)
    has_next = np.flatnonzero(beyond < len(accepted))
    beyond = beyond[has_next]
    n_next, wrong_next = accepted[beyond] - accepted[has_next], wrong[beyond] - wrong[has_next]
    promising = wrong_next * accepted[has_next] <= allowed[has_next] * n_next
    return int(has_next[promising].max(initial=0))


def laxest_rejecting(
    confidence: FloatArray, correct: BoolArray, *, false_accept_rate: float, certainty: float
) -> float:
    """Return the laxest threshold that keeps the wrong answers out, or infinity.

    Parameters
    ----------
    confidence, correct : array of shape (n,)
        Checked points.
    false_accept_rate : float
        Share of the wrong answers that may be accepted, in (0, 1).
    certainty : float
        Share of all draws of the points whose threshold shall keep that, in (0, 1).
    """
    wrong = np.sort(confidence[~correct])[::-1]
    bounds = upper_bound(np.arange(len(wrong) + 1), len(wrong), certainty=certainty)
    n_allowed = int(np.searchsorted(bounds, false_accept_rate, side="right")) - 1
    if n_allowed < 0:
        return inf
    # Strictly above the first wrong answer that is not allowed in: the bound of all wrong answers
    # is 1, so that there is always such a one.
    above = confidence[confidence > wrong[n_allowed]]
    return float(above.min(initial=inf))


PromiseState = Literal["holds", "adjusted", "withdrawn"]
RestsOn = Literal[
    "points given",
    "points left out alone",
    "near-copies left out alone",
    "groups left out together",
    "labelled queries",
]
TargetKind = Literal["precision", "error", "false_accept_rate"]

# The best target that could be promised instead is given in steps of a tenth of a percent.
PROMISE_STEPS = 1000


class Confident(Protocol):
    """Answers with their confidence, such as a `nearsure.Prediction`."""

    @property
    def confidence(self) -> FloatArray:
        """Of shape (n,), in [0, 1]."""


@dataclass(frozen=True)
class AcceptThreshold:
    """A threshold on the confidence and what it promises.

    Attributes
    ----------
    threshold : float
        Answers of at least this confidence may be accepted; infinity if `reached` is False.
    kind : {"precision", "error", "false_accept_rate"}
        What is promised.
    target : float
        How much of it, a fraction.
    certainty : float
        At least this share of all draws of the calibration points give a threshold that keeps the
        promise on new queries.
    n_points, n_wrong : int
        Calibration points, and those among them that should not be accepted.
    n_accepted, n_wrong_accepted : int
        How many of both the threshold accepts.
    promised : float
        The target if it was reached. If not, the best target that the same points would have
        reached, in steps of 0.001: 0 (precision) or 1 (the others) if they can promise nothing.
    state : {"holds", "adjusted", "withdrawn"}
        Of the promise, beside the queries that were given: they are like the points; they are not,
        and points that play them were taken; or nothing can be promised for them. It also holds
        where points under as much noise as the queries keep it.
    rests_on : str
        Points that were given; points of a gallery, left out alone or with their groups; points
        left out alone whose near-copies stay, so that the promise is for queries with copies; or
        queries that were labelled.
    reasons : tuple of str
        What tells the queries that were given from the gallery.
    unknown_share : float or None
        Up to which share of queries of unknown classes the promise holds; None if none is expected.
    n_unknown_classes : int
        Classes that were left out in turn to stand for unknown ones.
    """

    threshold: float
    kind: TargetKind
    target: float
    certainty: float
    n_points: int
    n_wrong: int
    n_accepted: int
    n_wrong_accepted: int
    promised: float
    state: PromiseState = "holds"
    rests_on: RestsOn = "points given"
    reasons: tuple[str, ...] = ()
    unknown_share: float | None = None
    n_unknown_classes: int = 0

    @property
    def reached(self) -> bool:
        """Whether the target can be promised."""
        return not isinf(self.threshold)

    @property
    def coverage(self) -> float:
        """Share of the calibration points that are accepted."""
        return self.n_accepted / self.n_points

    @property
    def precision(self) -> float:
        """Share of the accepted calibration points that are right; NaN if none is accepted."""
        return 1.0 - self.n_wrong_accepted / self.n_accepted if self.n_accepted else nan

    @property
    def false_accept_rate(self) -> float:
        """Share of the wrong calibration points that are accepted; NaN if none is wrong."""
        return self.n_wrong_accepted / self.n_wrong if self.n_wrong else nan

    def accepts(self, answers: "ArrayLike | Confident") -> BoolArray:
        """Return which answers may be accepted.

        They are judged by their confidence alone, which is what the promise was made for: p(known)
        is part of it where unknown queries are expected, and a verdict has no say.

        Parameters
        ----------
        answers : array-like of shape (n,), or a Prediction
            Confidence of each answer, in [0, 1], or what has it as ``confidence``.

        Returns
        -------
        ndarray of shape (n,), bool

        Raises
        ------
        InvalidInputError
            If unknown queries were expected for the promise, and were not for the prediction: its
            confidence is another, and too high.
        """
        if self.unknown_share is not None and getattr(answers, "p_known", self) is None:
            raise InvalidInputError(
                "The prediction must be of a classifier that expects unknown queries, as this "
                f"threshold does (up to {_percent(round(self.unknown_share, 3))}). Got one without "
                "p_known, which takes every query for known: predict with the classifier that made "
                "the threshold, or fit with unknown_share."
            )
        confidence: Any = getattr(answers, "confidence", answers)
        if np.size(confidence) == 0:
            return np.zeros(0, np.bool_)
        return check_confidence(confidence) >= self.threshold

    def to_frame(self) -> "pd.DataFrame":
        """One row as a data frame of pandas, so that several promises can be laid together."""
        measured = ("reached", "coverage", "precision", "false_accept_rate", "condition")
        row = {**vars(self), **{name: getattr(self, name) for name in measured}}
        return make_frame({name: [value] for name, value in row.items()})

    def _repr_html_(self) -> str:
        return html_paragraphs(str(self))

    def __str__(self) -> str:
        if not self.reached:
            return self._explanation()
        measured, base = {
            "precision": (self.precision, self.n_accepted),
            "error": (1.0 - self.precision, self.n_accepted),
            "false_accept_rate": (self.false_accept_rate, self.n_wrong),
        }[self.kind]
        return (
            f"Accept at confidence >= {self.threshold:.6g}: {self.coverage:.1%} of queries, "
            f"{_promise(self.kind, self.target)}, with {_percent(self.certainty)} certainty, "
            f"{self.condition} (measured {measured:.2%} of {base:,}{self._remark()})."
        )

    @property
    def condition(self) -> str:
        """For which queries the promise is made."""
        if self.rests_on == "labelled queries":
            return "for queries like those labelled"
        if self.state == "adjusted" or self.rests_on == "points given":
            return "for queries like those given"
        if self.unknown_share is not None:
            share = _percent(round(self.unknown_share, 3))
            return f"for queries like the gallery, up to {share} of them of unknown classes"
        return "for queries like the gallery"

    def _remark(self) -> str:
        if self.rests_on == "labelled queries":
            return f", from {self.n_points:,} labelled queries"
        said = ("groups left out together", "near-copies left out alone")
        remarks: list[str] = [self.rests_on] if self.rests_on in said else []
        if self.unknown_share is not None:
            remarks.append(f"{self.n_unknown_classes:,} classes left out in turn")
        if self.state == "adjusted":
            remarks.append(f"adjusted, as {' and '.join(self.reasons)}")
        return "".join(f"; {remark}" for remark in remarks)

    def _explanation(self) -> str:
        if self.state == "withdrawn":
            labelled = self.rests_on == "labelled queries"
            others = "no labelled query can" if labelled else "no points of the gallery can"
            return (
                f"The promise of {_promise(self.kind, self.target)} is withdrawn for queries like "
                f"those given: {' and '.join(self.reasons)}, and {others} stand for them. Nothing "
                "is accepted: label some of the queries."
            )
        if self.unknown_share is not None and self.n_unknown_classes < FEWEST_CLASSES:
            return (
                "Nothing can be promised where queries of unknown classes are expected: classes "
                f"left out in turn stand for them, and {self.n_unknown_classes} are too few. "
                f"There must be {FEWEST_CLASSES} or more: add classes, or label some "
                "queries."
            )
        worst = 0.0 if self.kind == "precision" else 1.0
        best = (
            "These points support no promise"
            if self.promised == worst
            else "The strictest promise that these points support is "
            f"{_promise(self.kind, self.promised)}, {self.condition}"
        )
        points, needed = "points", "calibration points"
        if self.rests_on == "labelled queries":
            points = needed = "labelled queries"
        if self.kind == "false_accept_rate":
            needed = f"{points} that should not be accepted"
        if self.unknown_share is not None:
            points = f"points of {self.n_unknown_classes:,} classes, left out in turn,"
            needed = "points or classes"
        return (
            f"No threshold on the confidence can promise {_promise(self.kind, self.target)}, with "
            f"{_percent(self.certainty)} certainty, from {self.n_points:,} {points} of which "
            f"{self.n_wrong:,} are wrong. {best}: add {needed}, or relax the target."
        )


def choose_threshold(
    confidence: ArrayLike,
    correct: ArrayLike,
    *,
    precision: float | None = None,
    error: float | None = None,
    false_accept_rate: float | None = None,
    certainty: float = 0.95,
    unknowns: UnknownClasses | None = None,
) -> AcceptThreshold:
    """Choose the lowest confidence at which answers can be accepted and a promise kept.

    Parameters
    ----------
    confidence : array-like of shape (n,)
        Confidence of each calibration point's answer, in [0, 1]. The points must be like the
        queries to come, and must not be those that the answers were fitted to: held-out points, or
        support points, each left out of its own neighbours.
    correct : array-like of shape (n,)
        Whether the answer is right: boolean, or 0 and 1. False for queries of unknown classes.
    precision : float, optional
        Promise that at least this share of the accepted answers is right, in (0, 1).
    error : float, optional
        The same the other way round: at most this share of the accepted answers is wrong.
    false_accept_rate : float, optional
        Promise that at most this share of the answers that should not be accepted is accepted.
        Exactly one of the three must be given.
    certainty : float, default=0.95
        How sure the promise shall be over the draw of the calibration points, in (0, 1).
    unknowns : UnknownClasses, optional
        Queries of unknown classes that come besides, in their share; the points are then those of
        known classes. See `nearsure.decisions.unknown_classes`.

    Returns
    -------
    AcceptThreshold
        With the largest coverage that the tests of `nearsure.decisions.thresholds` allow. If
        no threshold can promise the target, ``reached`` is False and nothing is accepted.

    Notes
    -----
    Points that are left out in turn are not quite independent of each other. How often the promise
    is then broken is measured in the tests: no more often than it may be.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> confidence = rng.random(4000) ** 0.2
    >>> correct = rng.random(4000) < confidence
    >>> chosen = choose_threshold(confidence, correct, precision=0.95)
    >>> print(chosen)  # doctest: +NORMALIZE_WHITESPACE
    Accept at confidence >= 0.92349: 32.6% of queries, at least 95% right, with 95% certainty, for
    queries like those given (measured 96.01% of 1,304).
    >>> chosen.accepts([0.9, 0.93])
    array([False,  True])
    """
    checked_confidence, checked_correct = check_scored(confidence, correct)
    kind, target = _the_target(precision, error, false_accept_rate)
    check_open_fraction("certainty", certainty)
    laxest = partial(_laxest, checked_confidence, checked_correct, unknowns, certainty, kind)
    threshold = laxest(target)
    accepted = checked_confidence >= threshold
    n_points = len(checked_confidence)
    n_unknown, n_unknown_accepted = unknowns.count(n_points, threshold) if unknowns else (0, 0)
    return AcceptThreshold(
        threshold=threshold,
        kind=kind,
        target=target,
        certainty=certainty,
        n_points=n_points + n_unknown,
        n_wrong=int((~checked_correct).sum()) + n_unknown,
        n_accepted=int(accepted.sum()) + n_unknown_accepted,
        n_wrong_accepted=int((accepted & ~checked_correct).sum()) + n_unknown_accepted,
        promised=target if accepted.any() else _best_promise(laxest, kind, target),
        unknown_share=unknowns.largest_share if unknowns else None,
        n_unknown_classes=unknowns.n_classes if unknowns else 0,
    )


def _laxest(  # noqa: PLR0917
    confidence: FloatArray,
    correct: BoolArray,
    unknowns: UnknownClasses | None,
    certainty: float,
    kind: TargetKind,
    target: float,
) -> float:
    if kind == "false_accept_rate":
        rejecting = unknowns.laxest_rejecting if unknowns else laxest_rejecting
        return rejecting(confidence, correct, false_accept_rate=target, certainty=certainty)
    precise = unknowns.laxest_precise if unknowns else laxest_precise
    precision = target if kind == "precision" else 1.0 - target
    return precise(confidence, correct, precision=precision, certainty=certainty)


def _best_promise(laxest: Callable[[float], float], kind: TargetKind, target: float) -> float:
    """Return the target nearest to the one given, in whole steps, that is reached.

    Found by bisection between it and the one that promises nothing.
    """
    if kind == "precision":
        unreached, promised = ceil(target * PROMISE_STEPS), 0
    else:
        unreached, promised = floor(target * PROMISE_STEPS), PROMISE_STEPS
    while abs(unreached - promised) > 1:
        middle = (unreached + promised) // 2
        if isinf(laxest(middle / PROMISE_STEPS)):
            unreached = middle
        else:
            promised = middle
    return promised / PROMISE_STEPS


def _the_target(
    precision: float | None, error: float | None, false_accept_rate: float | None
) -> tuple[TargetKind, float]:
    targets: dict[TargetKind, float | None] = {
        "precision": precision,
        "error": error,
        "false_accept_rate": false_accept_rate,
    }
    given = [(kind, target) for kind, target in targets.items() if target is not None]
    if len(given) != 1:
        came = " and ".join(kind for kind, _ in given) or "none"
        raise InvalidInputError(
            "Exactly one of the 'precision', 'error' and 'false_accept_rate' parameters must be "
            f"given. Got {came} instead."
        )
    kind, target = given[0]
    perfect = 1.0 if kind == "precision" else 0.0
    if target == perfect:
        raise InvalidInputError(
            f"The '{kind}' parameter must lie strictly between 0 and 1. Got {target!r} instead: "
            "finitely many points, even if all are right, cannot show that no error will ever "
            "happen. Ask for a share near it, such as "
            f"{abs(perfect - 0.001)}, and give enough points."
        )
    if target == 1.0 - perfect:
        raise InvalidInputError(
            f"The '{kind}' parameter must lie strictly between 0 and 1. Got {target!r} instead: "
            "every threshold keeps that, so there is nothing to promise."
        )
    return kind, check_open_fraction(kind, target)


def _promise(kind: TargetKind, share: float) -> str:
    return {
        "precision": f"at least {_percent(share)} right",
        "error": f"at most {_percent(share)} wrong",
        "false_accept_rate": f"at most {_percent(share)} of those that should not be accepted",
    }[kind]


def _percent(share: float) -> str:
    return f"{100 * share:.6g}%"
