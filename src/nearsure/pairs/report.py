"""How well probabilities of pairs do: error trade-off, calibration and scores."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.metrics import roc_auc_score, roc_curve

from nearsure.arrays import BoolArray, FloatArray
from nearsure.errors import InvalidInputError
from nearsure.metrics import Bins
from nearsure.metrics.calibration_error import assign_bins
from nearsure.validation import check_open_fraction, check_same_length, check_scored

N_BINS = 15
# The logarithm of a probability of 0 is not a number that can be averaged.
SMALLEST = 1e-12
FALSE_ACCEPTS = (0.1, 0.01, 0.001)


@dataclass(frozen=True, eq=False)
class PairReport:
    """Numbers about pairs of which it is known whether they are the same.

    Attributes
    ----------
    base_rate : float
        Share of same pairs that scores and bins are for, whatever share the measured ones had.
    n_same, n_different : int
        Pairs of either kind.
    log_loss, brier, calibration_error : float
        At the base rate: mean negative log-likelihood, squared error, and ECE of 15 equal bins.
    auroc : float
        Chance that a same pair is more probable than a different one.
    equal_error_rate : float
        Where as many different pairs are accepted as same ones are refused.
    thresholds, false_accept, true_accept : array of shape (m,)
        The curve of both errors (ROC; as misses against false accepts, DET), strictest first.
    bins : Bins
        Reliability: how probable, and how often the same, at the base rate.
    """

    base_rate: float
    n_same: int
    n_different: int
    log_loss: float
    brier: float
    calibration_error: float
    auroc: float
    equal_error_rate: float
    thresholds: FloatArray
    false_accept: FloatArray
    true_accept: FloatArray
    bins: Bins

    def true_accept_at(self, false_accept: float) -> float:
        """Largest share of same pairs accepted with at most this share of different ones."""
        return float(self.true_accept[self.false_accept <= false_accept].max(initial=0.0))

    def to_dict(self) -> dict[str, Any]:
        """Scores, and the true accepts at some false accepts, for JSON."""
        names = ("base_rate", "n_same", "n_different", "log_loss", "brier", "calibration_error")
        scores = {name: getattr(self, name) for name in (*names, "auroc", "equal_error_rate")}
        accepts = {f"{share:g}": self.true_accept_at(share) for share in FALSE_ACCEPTS}
        return scores | {"true_accept_at_false_accept": accepts}

    def __str__(self) -> str:
        accepts = ", ".join(
            f"{self.true_accept_at(share):.1%} at {share:g}" for share in FALSE_ACCEPTS
        )
        return (
            f"{self.n_same:,} same and {self.n_different:,} different pairs, base rate "
            f"{self.base_rate:g}: log loss {self.log_loss:.4f}, Brier {self.brier:.4f}, ECE "
            f"{self.calibration_error:.4f}, AUROC {self.auroc:.4f}, equal error rate "
            f"{self.equal_error_rate:.2%}; same pairs accepted by share of different ones: "
            f"{accepts}."
        )


def report_pairs(
    probabilities: ArrayLike,
    same: ArrayLike,
    *,
    base_rate: float,
    weights: FloatArray | None = None,
) -> PairReport:
    """Measure probabilities of pairs of which it is known whether they are the same.

    Parameters
    ----------
    probabilities : array-like of shape (n,)
        How probable each pair is the same, at the base rate.
    same : array-like of shape (n,)
        Whether it is: boolean, or 0 and 1; of both kinds.
    base_rate : float
        Share of same pairs among those to come. Same pairs together count this much, different
        ones the rest.
    weights : array of shape (n,), optional
        How much each counts among those of its kind; by default all alike.

    Examples
    --------
    >>> report = report_pairs([0.9, 0.8, 0.3, 0.1], [1, 1, 0, 0], base_rate=0.5)
    >>> report.auroc, round(report.brier, 4), report.true_accept_at(0.01)
    (1.0, 0.0375, 1.0)
    """
    p, is_same = check_scored(probabilities, same)
    check_open_fraction("base_rate", base_rate)
    if is_same.all() or not is_same.any():
        raise InvalidInputError(
            "The 'same' parameter must hold pairs of both kinds, same and different. Got "
            f"{len(is_same)} of one kind."
        )
    own = np.ones(len(p)) if weights is None else weights
    check_same_length(probabilities=len(p), weights=len(own))
    shares = _shares(own, is_same, base_rate)
    # Points on a line matter, too: the most that a share of false accepts allows may be one.
    false_accept, true_accept, thresholds = roc_curve(
        is_same, p, sample_weight=own, drop_intermediate=False
    )
    inside = np.clip(p, SMALLEST, 1.0 - SMALLEST)
    bins, error = _reliability(p, is_same, shares)
    return PairReport(
        base_rate=base_rate,
        n_same=int(is_same.sum()),
        n_different=int((~is_same).sum()),
        log_loss=float(-shares @ np.log(np.where(is_same, inside, 1.0 - inside))),
        brier=float(shares @ (p - is_same) ** 2),
        calibration_error=error,
        auroc=float(roc_auc_score(is_same, p, sample_weight=own)),
        equal_error_rate=_equal_error_rate(false_accept, true_accept),
        thresholds=thresholds,
        false_accept=false_accept,
        true_accept=true_accept,
        bins=bins,
    )


def _shares(weights: FloatArray, same: BoolArray, base_rate: float) -> FloatArray:
    """Weights whose sum is 1, and over same pairs the base rate."""
    totals = np.where(same, weights[same].sum(), weights[~same].sum())
    return np.asarray(np.where(same, base_rate, 1.0 - base_rate) * weights / totals)


def _reliability(p: FloatArray, same: BoolArray, shares: FloatArray) -> tuple[Bins, float]:
    edges, own = assign_bins(p, n_bins=N_BINS, binning="width")
    counts = np.bincount(own, minlength=N_BINS).astype(np.int64)
    mass, told, true = (
        np.bincount(own, sums, minlength=N_BINS) for sums in (shares, shares * p, shares * same)
    )
    with np.errstate(invalid="ignore"):
        bins = Bins(edges, counts, told / mass, true / mass)
    return bins, float(np.abs(told - true).sum())


def _equal_error_rate(false_accept: FloatArray, true_accept: FloatArray) -> float:
    """Where the line between two points of the curve crosses that of equal errors."""
    gap = false_accept - (1.0 - true_accept)
    after = int((gap >= 0.0).argmax())
    if after == 0:
        return float(false_accept[0])
    low, high = gap[after - 1], gap[after]
    share = -low / (high - low)
    return float(false_accept[after - 1] + share * (false_accept[after] - false_accept[after - 1]))
