"""p(known | evidence), learned from the gallery alone."""

from dataclasses import asdict, dataclass, replace
from typing import Any, Self

import numpy as np
from scipy.special import expit

from nearsure.arrays import FloatArray
from nearsure.errors import InvalidInputError
from nearsure.schema import check_fields, list_of, number, unreadable
from nearsure.unknowns.evidence import Evidence
from nearsure.unknowns.monotone_logistic import fit_bounded_logistic, line_pieces
from nearsure.unknowns.shifted_densities import (
    DRIFTS,
    NOVELTIES,
    SINGLE_NOVELTIES,
    log_known_change,
    log_mean_powers,
    log_unknown_change,
)

N_KNOTS = 6
# Log-odds never fall where the evidence rises, and a query far from everything ends at p = 0.
LOWEST_SLOPE = 0.05
# Log-odds and standardised evidence are never so large, and no product of two overflows.
_MODERATE = number("a number in [-1e100, 1e100]", -1e100, 1e100)
_STORED = {
    "means": list_of(_MODERATE, 3),
    "scales": list_of(number("a number in [1e-100, 1e100]", 1e-100, 1e100), 3),
    "weights": list_of(_MODERATE, 3),
    "knots": list_of(_MODERATE),
    "slopes": list_of(_MODERATE),
    "offset": _MODERATE,
    "novelty_normalizers": list_of(_MODERATE, len(SINGLE_NOVELTIES)),
    "drift_normalizers": list_of(_MODERATE, len(DRIFTS)),
    "farthest": _MODERATE,
    "novelty": number("a number in [0, 4]", 0.0, NOVELTIES[-1]),
    "drift": number("a number in [0, 0.3]", 0.0, DRIFTS[-1]),
}


@dataclass(frozen=True)
class KnownModel:
    """The odds of known against unknown, at equal shares of both, as a function of evidence.

    A logistic regression of two samples, known and imitated unknown, gives a score: the sum of
    standardised evidence with weights that are not negative. The log-odds are a line in the score
    that bends at quantiles of the samples and never falls.

    Real queries may differ from rehearsed ones. Real unknowns are often farther from the gallery
    than a class that was left out of it, each by a b of its own that lies anywhere between 0 and
    twice the `novelty`; known queries may be farther than the gallery's points are from each other,
    by `drift`, a. With r for the rehearsed odds, the density of unknown evidence is multiplied by
    r^-b, averaged over b, and that of known evidence by r^-a, and each is normalised again. The
    log-odds still never fall where r rises. At 0 and 0 the rehearsal is taken as it is; `fit_shift`
    finds both on queries that nobody has labelled.

    Parameters
    ----------
    means, scales, weights : tuple of float
        Of the columns of `Evidence.matrix`.
    knots, slopes : tuple of float
        Where the line bends, and its slope below, between and above the knots.
    offset : float
        Log-odds at the first knot.
    novelty_normalizers, drift_normalizers : tuple of float
        Log of the mean of r^-b over the rehearsed unknowns for each b in ``SINGLE_NOVELTIES``, and
        of r^-a over the rehearsed known for each a in ``DRIFTS``.
    farthest : float
        The lowest rehearsed log-odds of an unknown. Beyond it nothing is known of the density.
    novelty, drift : float
        Mean of b, in [0, 4], and a, in [0, 0.3].

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> def drawn(mean):
    ...     return Evidence(rng.normal(mean, 1.0, 500), np.zeros(500), np.ones(500))
    >>> model = KnownModel.fit(drawn(0.0), drawn(-4.0))
    >>> queries = Evidence(np.array([0.0, -2.0, -4.0]), np.zeros(3), np.ones(3))
    >>> model.p_known(queries, unknown_share=0.5).round(1)
    array([1. , 0.5, 0. ])
    """

    means: tuple[float, ...]
    scales: tuple[float, ...]
    weights: tuple[float, ...]
    knots: tuple[float, ...]
    slopes: tuple[float, ...]
    offset: float
    novelty_normalizers: tuple[float, ...]
    drift_normalizers: tuple[float, ...]
    farthest: float
    novelty: float = 0.0
    drift: float = 0.0

    @classmethod
    def fit(cls, known: Evidence, unknown: Evidence) -> Self:
        """Learn the odds from evidence of known and of imitated unknown queries.

        Parameters
        ----------
        known, unknown : Evidence
            See `rehearse`. Their numbers need not have the proportion of real queries.
        """
        known, unknown = known.take(known.seen), unknown.take(unknown.seen)
        if not len(known) or not len(unknown):
            raise InvalidInputError(
                "Evidence of both known and unknown queries with neighbours is needed. "
                f"Got {len(known)} and {len(unknown)} queries instead."
            )
        rows = np.concatenate([known.matrix, unknown.matrix])
        is_known = np.arange(len(rows)) < len(known)
        means, spread = known.matrix.mean(axis=0), known.matrix.std(axis=0)
        # A column that never varies gets no say; the test allows for the rounding of its mean.
        varies = spread > 1e-12 * (1 + np.abs(means))
        scales = np.where(varies, spread, 1.0)
        standardized = np.where(varies, (rows - means) / scales, 0.0)
        _, weights = fit_bounded_logistic(standardized, is_known, lowest=0.0, usual=0.0)
        weights = np.where(varies, weights, 0.0)
        scores = standardized @ weights
        knots = np.unique(np.quantile(scores, np.linspace(0, 1, N_KNOTS + 2)[1:-1]))
        offset, slopes = fit_bounded_logistic(
            line_pieces(scores, knots), is_known, lowest=LOWEST_SLOPE, usual=1.0
        )
        model = cls(
            means=_plain(means),
            scales=_plain(scales),
            weights=_plain(weights),
            knots=_plain(knots),
            slopes=_plain(slopes),
            offset=offset,
            novelty_normalizers=(0.0,) * len(SINGLE_NOVELTIES),
            drift_normalizers=(0.0,) * len(DRIFTS),
            farthest=0.0,
        )
        of_unknown = model.log_odds(unknown)
        return replace(
            model,
            farthest=float(of_unknown.min()),
            novelty_normalizers=_plain(log_mean_powers(of_unknown, SINGLE_NOVELTIES)),
            drift_normalizers=_plain(log_mean_powers(model.log_odds(known), DRIFTS)),
        )

    def with_shift(self, *, novelty: float, drift: float) -> Self:
        """The same model for queries that differ from the rehearsal by so much."""
        for name, value, grid in (("novelty", novelty, NOVELTIES), ("drift", drift, DRIFTS)):
            if not 0 <= value <= grid[-1]:
                raise InvalidInputError(
                    f"{name} must lie in [0, {grid[-1]:g}]. Got {value} instead."
                )
        return replace(self, novelty=float(novelty), drift=float(drift))

    def log_odds(self, evidence: Evidence) -> FloatArray:
        """Log-density of known less that of unknown evidence; -inf without any neighbour."""
        seen = evidence.seen
        standardized = (evidence.take(seen).matrix - self.means) / self.scales
        # Not products of matrices, whose last bit depends on how many rows come together.
        scores = np.einsum("nm,m->n", standardized, np.array(self.weights))
        pieces = line_pieces(scores, np.array(self.knots))
        rehearsed = self.offset + np.einsum("nm,m->n", pieces, np.array(self.slopes))
        log_odds = np.full(len(evidence), -np.inf)
        log_odds[seen] = (
            rehearsed
            + log_known_change(rehearsed, self.drift, np.array(self.drift_normalizers))
            - log_unknown_change(rehearsed, self.novelty, np.array(self.novelty_normalizers))
        )
        return log_odds

    def p_known(self, evidence: Evidence, unknown_share: float) -> FloatArray:
        """Probability that a query is of a class of the gallery.

        Parameters
        ----------
        evidence : Evidence
            Of n queries.
        unknown_share : float
            Share of unknown queries among all that come, in [0, 1). At 0 every query is known,
            whatever the evidence.

        Returns
        -------
        array of shape (n,)
        """
        check_unknown_share(unknown_share)
        if unknown_share == 0:
            return np.ones(len(evidence))
        prior_log_odds = np.log1p(-unknown_share) - np.log(unknown_share)
        p_known: FloatArray = expit(self.log_odds(evidence) + prior_log_odds)
        return p_known

    def to_dict(self) -> dict[str, Any]:
        """The model as numbers and lists, for JSON."""
        fields = asdict(self)
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in fields.items()
        }

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> Self:
        """The inverse of `to_dict`; `ModelFileError` for anything else."""
        check_fields("The model of p(known)", fields, _STORED)
        if len(fields["slopes"]) != len(fields["knots"]) + 1 or not fields["knots"]:
            raise unreadable("The model of p(known)", "'slopes' must be one more than 'knots'")
        plain: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in fields.items()
        }
        return cls(**plain)


def check_unknown_share(unknown_share: float) -> None:
    """Raise an error unless the share is in [0, 1)."""
    if not 0 <= unknown_share < 1:
        raise InvalidInputError(
            "unknown_share must lie in [0, 1): a fraction of the queries, not percent. "
            f"Got {unknown_share} instead."
        )


def _plain(values: FloatArray) -> tuple[float, ...]:
    return tuple(values.tolist())
