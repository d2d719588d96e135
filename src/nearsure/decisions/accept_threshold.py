"""The confidence from which an answer may be acted on without a second look."""

from dataclasses import dataclass
from math import ceil, floor, isinf, nan
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from nearsure.arrays import BoolArray, FloatArray
from nearsure.decisions.threshold_search import laxest_precise, laxest_rejecting
from nearsure.errors import InvalidInputError
from nearsure.metrics.validation import check_confidence, check_open_fraction, check_scored

TargetKind = Literal["precision", "error", "false_accept_rate"]

# The best target that could be promised instead is given in steps of a tenth of a percent.
PROMISE_STEPS = 1000


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

    def accepts(self, confidence: ArrayLike) -> BoolArray:
        """Return which answers may be accepted, given their confidence of shape (n,)."""
        if np.size(confidence) == 0:
            return np.zeros(0, np.bool_)
        return check_confidence(confidence) >= self.threshold

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
            f"{_promise(self.kind, self.target)}, with {_percent(self.certainty)} certainty "
            f"(measured {measured:.2%} of {base:,})."
        )

    def _explanation(self) -> str:
        worst = 0.0 if self.kind == "precision" else 1.0
        best = (
            "These points can promise nothing"
            if self.promised == worst
            else f"The best that these points can promise is {_promise(self.kind, self.promised)}"
        )
        needed = (
            "points that should not be accepted"
            if self.kind == "false_accept_rate"
            else ("calibration points")
        )
        return (
            f"No threshold on the confidence can promise {_promise(self.kind, self.target)}, with "
            f"{_percent(self.certainty)} certainty, from {self.n_points:,} points of which "
            f"{self.n_wrong:,} are wrong. {best}: give more {needed}, or ask for less."
        )


def choose_threshold(
    confidence: ArrayLike,
    correct: ArrayLike,
    *,
    precision: float | None = None,
    error: float | None = None,
    false_accept_rate: float | None = None,
    certainty: float = 0.95,
) -> AcceptThreshold:
    """Choose the lowest confidence at which answers can be accepted and a promise kept.

    Parameters
    ----------
    confidence : array-like of shape (n,)
        Confidence of each calibration point's answer, in [0, 1]. The points must be like the
        queries to come, and must not be those that the answers were fitted to: held-out points, or
        support points that each left themselves out.
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

    Returns
    -------
    AcceptThreshold
        With the largest coverage that the tests of `nearsure.decisions.threshold_search` allow. If
        no threshold can promise the target, ``reached`` is False and nothing is accepted.

    Notes
    -----
    Points that left themselves out are not quite independent of each other. How often the promise
    is then broken is measured in the tests: no more often than it may be.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> confidence = rng.random(4000) ** 0.2
    >>> correct = rng.random(4000) < confidence
    >>> chosen = choose_threshold(confidence, correct, precision=0.95)
    >>> print(chosen)  # doctest: +NORMALIZE_WHITESPACE
    Accept at confidence >= 0.923552: 32.6% of queries, at least 95% right, with 95% certainty
    (measured 96.08% of 1,302).
    >>> chosen.accepts([0.9, 0.93])
    array([False,  True])
    """
    checked_confidence, checked_correct = check_scored(confidence, correct)
    kind, target = _the_target(precision, error, false_accept_rate)
    check_open_fraction("certainty", certainty)
    threshold = _laxest(checked_confidence, checked_correct, kind, target, certainty)
    accepted = checked_confidence >= threshold
    return AcceptThreshold(
        threshold=threshold,
        kind=kind,
        target=target,
        certainty=certainty,
        n_points=len(checked_confidence),
        n_wrong=int((~checked_correct).sum()),
        n_accepted=int(accepted.sum()),
        n_wrong_accepted=int((accepted & ~checked_correct).sum()),
        promised=target
        if accepted.any()
        else _best_promise(checked_confidence, checked_correct, kind, target, certainty),
    )


def _laxest(
    confidence: FloatArray, correct: BoolArray, kind: TargetKind, target: float, certainty: float
) -> float:
    if kind == "false_accept_rate":
        return laxest_rejecting(confidence, correct, false_accept_rate=target, certainty=certainty)
    precision = target if kind == "precision" else 1.0 - target
    return laxest_precise(confidence, correct, precision=precision, certainty=certainty)


def _best_promise(
    confidence: FloatArray, correct: BoolArray, kind: TargetKind, target: float, certainty: float
) -> float:
    """Return the target nearest to the one given, in whole steps, that is reached.

    Found by bisection between it and the one that promises nothing.
    """
    if kind == "precision":
        unreached, promised = ceil(target * PROMISE_STEPS), 0
    else:
        unreached, promised = floor(target * PROMISE_STEPS), PROMISE_STEPS
    while abs(unreached - promised) > 1:
        middle = (unreached + promised) // 2
        if isinf(_laxest(confidence, correct, kind, middle / PROMISE_STEPS, certainty)):
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
