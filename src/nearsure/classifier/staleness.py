"""Whether what was fitted on a gallery still fits the gallery that it has become."""

from dataclasses import dataclass

import numpy as np

from nearsure.arrays import FloatArray, IntArray
from nearsure.posterior import Posterior

# Beyond this share of changed points a fit is called stale, whatever the likelihood says.
LARGEST_SHARE_CHANGED = 0.1
# A drift of the likelihood beyond this many standard errors is no chance.
LARGEST_DRIFT = 3.0
# A point that nobody believes in costs this much and no more, or one mislabelled point would rule.
LEAST_PROBABILITY = 1e-3
# Points whose likelihood is watched: enough to see a drift of 0.1 nats, few enough to be cheap.
WATCHED = 1000


@dataclass(frozen=True)
class Staleness:
    """How far a gallery has moved from what was fitted on it.

    Parameters
    ----------
    share_changed : float
        Points added, removed or relabelled since the fit, each once, over the points of now.
    loss_at_fit, loss_now : float
        Mean -log p(own label) of points that leave themselves out, then and now, with the same
        fitted parameters. It rises if the gallery has become harder or labels have become worse.
    standard_error : float
        Of their difference.
    others_may_write : bool
        Whether points may have changed without being counted here, in an engine that is shared.
    """

    share_changed: float
    loss_at_fit: float
    loss_now: float
    standard_error: float
    others_may_write: bool = False

    @property
    def drift(self) -> float:
        """Loss of now less that of the fit."""
        return self.loss_now - self.loss_at_fit

    @property
    def is_stale(self) -> bool:
        """Whether `refit` is due: many points changed, or the likelihood drifted either way."""
        return self.share_changed > LARGEST_SHARE_CHANGED or (
            (self.share_changed > 0 or self.others_may_write)
            and abs(self.drift) > LARGEST_DRIFT * self.standard_error
        )

    def __str__(self) -> str:
        verdict = "stale: call refit()" if self.is_stale else "fresh enough"
        return (
            f"{self.share_changed:.1%} of the gallery changed since the fit; leave-one-out loss "
            f"{self.loss_at_fit:.3f} then, {self.loss_now:.3f} now "
            f"(+- {self.standard_error:.3f}): {verdict}."
        )


def own_losses(posterior: Posterior, codes: IntArray) -> FloatArray:
    """-log p(own label) of points that left themselves out, shape (n,)."""
    return -np.log(np.maximum(posterior.probability_of(codes), LEAST_PROBABILITY))


def mean_and_error(losses: FloatArray) -> tuple[float, float]:
    """Mean and its standard error."""
    spread = float(losses.std(ddof=1)) if len(losses) > 1 else 0.0
    return float(losses.mean()), spread / float(np.sqrt(len(losses)))
