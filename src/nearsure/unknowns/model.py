"""p(known | evidence), learned from the gallery alone, and the verdicts it gives."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, logsumexp

from nearsure import schema
from nearsure.arrays import FloatArray
from nearsure.errors import InvalidInputError
from nearsure.logistic import fit_bounded_logistic
from nearsure.posterior import Posterior
from nearsure.unknowns.evidence import Evidence

if TYPE_CHECKING:
    from typing import Self


def line_pieces(values: FloatArray, knots: FloatArray) -> FloatArray:
    """How far each value reaches into each stretch between knots, 0 at the first knot.

    Weighted by slopes and summed up, the columns are a line that bends at the knots.

    Parameters
    ----------
    values : array of shape (n,)
        Where to evaluate it.
    knots : array of shape (m,)
        Ascending.

    Returns
    -------
    array of shape (n, m + 1)

    Examples
    --------
    >>> line_pieces(np.array([-2.0, 0.5, 3.0]), np.array([0.0, 1.0]))
    array([[-2. ,  0. ,  0. ],
           [ 0. ,  0.5,  0. ],
           [ 0. ,  1. ,  2. ]])
    """
    below = np.minimum(values - knots[0], 0.0)
    lows, highs = knots, np.append(knots[1:], np.inf)
    above = np.clip(values[:, None], lows, highs) - lows
    return np.column_stack([below, above])


# Of which the most probable is sought: the mean novelty of unknowns, and drift.
NOVELTIES: FloatArray = np.linspace(0.0, 4.0, 21)
DRIFTS: FloatArray = np.linspace(0.0, 0.3, 13)
# Of single unknowns, up to twice the largest mean, and close enough for a line in between.
SINGLE_NOVELTIES: FloatArray = np.linspace(0.0, 8.0, 161)
N_SPREAD = 12
# Evenly from 0 to twice the mean. With one novelty for all, the farthest would set it, the near
# ones would be taken for known, and the share of unknowns found too small.
SPREAD: FloatArray = np.arange(1.0, 2 * N_SPREAD, 2.0) / N_SPREAD


def log_known_change(log_odds: FloatArray, drift: float, normalizers: FloatArray) -> FloatArray:
    """Log of drifted over rehearsed density of known evidence, r^-a normalised.

    Parameters
    ----------
    log_odds : array of shape (n,)
        log r, rehearsed.
    drift : float
        a.
    normalizers : array of shape (n_drifts,)
        From `log_mean_powers` of rehearsed known evidence and ``DRIFTS``.
    """
    return -drift * log_odds - np.interp(drift, DRIFTS, normalizers)


def log_unknown_change(log_odds: FloatArray, novelty: float, normalizers: FloatArray) -> FloatArray:
    """Log of real over rehearsed density of unknown evidence.

    Unknowns are not all equally far: the change is the mean of r^-b, each normalised, over b that
    lie evenly between 0 and twice the novelty.

    Parameters
    ----------
    log_odds : array of shape (n,)
        log r, rehearsed.
    novelty : float
        Mean of b.
    normalizers : array of shape (n_single_novelties,)
        From `log_mean_powers` of rehearsed unknown evidence and ``SINGLE_NOVELTIES``.

    Examples
    --------
    >>> log_odds = np.array([-3.0, -2.0, 1.0])
    >>> normalizers = log_mean_powers(log_odds, SINGLE_NOVELTIES)
    >>> change = np.exp(log_unknown_change(log_odds, 0.5, normalizers))
    >>> change.round(1), f"{change.mean():.2f}"  # the far counts more, the whole as before
    (array([1.7, 1. , 0.3]), '1.00')
    """
    single = novelty * SPREAD
    log_normalizers = np.interp(single, SINGLE_NOVELTIES, normalizers)
    changes = -single[:, None] * log_odds - log_normalizers[:, None]
    return np.asarray(logsumexp(changes, axis=0) - np.log(N_SPREAD), np.float64)


def log_mean_powers(log_odds: FloatArray, exponents: FloatArray) -> FloatArray:
    """Log of the mean of r^-b for each b among the exponents, shape (n_exponents,)."""
    powers = logsumexp(-exponents[:, None] * log_odds, axis=1)
    return np.asarray(powers - np.log(len(log_odds)), np.float64)


# Columns of the evidence that come from the neighbours; the largest logit may follow.
N_NEAR = 3
N_KNOTS = 6
# Of far unknowns, beside 1 of those that are like a class left out. They come on top of these, so
# that odds among near ones stay as they are.
LOG_FAR_WEIGHT = np.log(0.2)
# Log-odds never fall where the evidence rises, and a query far from everything ends at p = 0.
LOWEST_SLOPE = 0.05
# Log-odds and standardised evidence are never so large, and no product of two overflows.
_MODERATE = schema.number("a number in [-1e100, 1e100]", -1e100, 1e100)


@dataclass(frozen=True)
class OddsLine(schema.Document):
    """Log-odds of two samples of evidence: a line in a weighted sum that never falls.

    Parameters
    ----------
    weights : tuple of float
        Of the columns of standardised evidence, none negative.
    knots, slopes : tuple of float
        Where the line bends, and its slope below, between and above the knots.
    offset : float
        Log-odds at the first knot.
    """

    _owner: ClassVar = "The model of p(known)"
    _table: ClassVar = {
        "weights": schema.list_of(_MODERATE),
        "knots": schema.list_of(_MODERATE),
        "slopes": schema.list_of(_MODERATE),
        "offset": _MODERATE,
    }
    weights: tuple[float, ...]
    knots: tuple[float, ...]
    slopes: tuple[float, ...]
    offset: float

    @classmethod
    def fit(cls, known: FloatArray, unknown: FloatArray) -> "Self":
        """Fit it to standardised evidence, shapes (n_known, m) and (n_unknown, m)."""
        rows = np.concatenate([known, unknown])
        is_known = np.arange(len(rows)) < len(known)
        # Both kinds count the same in total; the prior counts as much as a single row.
        shares = np.where(is_known, 0.5 / len(known), 0.5 / len(unknown))
        pull = 1 / len(rows)
        _, weights = fit_bounded_logistic(rows, is_known, shares, lowest=0.0, usual=0.0, pull=pull)
        weights = np.where(rows.any(axis=0), weights, 0.0)
        scores = rows @ weights
        knots = np.unique(np.quantile(scores, np.linspace(0, 1, N_KNOTS + 2)[1:-1]))
        pieces = line_pieces(scores, knots)
        offset, slopes = fit_bounded_logistic(
            pieces, is_known, shares, lowest=LOWEST_SLOPE, usual=1.0, pull=pull
        )
        return cls(_plain(weights), _plain(knots), _plain(slopes), offset)

    def log_odds(self, standardized: FloatArray) -> FloatArray:
        """Of rows of shape (n, m)."""
        # Not products of matrices, whose last bit depends on how many rows come together.
        scores = np.einsum("nm,m->n", standardized, np.array(self.weights))
        pieces = line_pieces(scores, np.array(self.knots))
        return np.asarray(self.offset + np.einsum("nm,m->n", pieces, np.array(self.slopes)))


@dataclass(frozen=True)
class KnownModel(schema.Document):
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
    finds both on unlabelled queries.

    Far from everything that was rehearsed this line is a guess, and a slow one where known and
    unknown overlap. So unknowns have a second, small part that lies far away, with a line of its
    own: odds of unknown against known are the sum of both. Where the first is right, the second
    hardly counts.

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
    far : OddsLine, optional
        Known against far unknowns.

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

    _owner: ClassVar = "The model of p(known)"
    _table: ClassVar = {
        "means": schema.list_of(_MODERATE),
        "scales": schema.list_of(schema.number("a number in [1e-100, 1e100]", 1e-100, 1e100)),
        "weights": schema.list_of(_MODERATE),
        "knots": schema.list_of(_MODERATE),
        "slopes": schema.list_of(_MODERATE),
        "offset": _MODERATE,
        "novelty_normalizers": schema.list_of(_MODERATE, len(SINGLE_NOVELTIES)),
        "drift_normalizers": schema.list_of(_MODERATE, len(DRIFTS)),
        "farthest": _MODERATE,
        "novelty": schema.number("a number in [0, 4]", 0.0, NOVELTIES[-1]),
        "drift": schema.number("a number in [0, 0.3]", 0.0, DRIFTS[-1]),
        "far": schema.nullable(schema.OBJECT),
    }
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
    far: OddsLine | None = None

    @classmethod
    def fit(cls, known: Evidence, unknown: Evidence, far: Evidence | None = None) -> "Self":
        """Fit the odds to evidence of known and of imitated unknown queries.

        Parameters
        ----------
        known, unknown : Evidence
            See `rehearse`. Their numbers need not have the proportion of real queries.
        far : Evidence, optional
            Of unknown queries that lie far away.
        """
        known, unknown = known.take(known.seen), unknown.take(unknown.seen)
        if not len(known) or not len(unknown):
            raise InvalidInputError(
                "Evidence of both known and unknown queries with neighbours is needed. "
                f"Got {len(known)} and {len(unknown)} queries instead."
            )
        means, spread = np.nanmean(known.matrix, axis=0), np.nanstd(known.matrix, axis=0)
        # A column that never varies gets no weight; the test allows for the rounding of its mean.
        varies = spread > 1e-12 * (1 + np.abs(means))
        scales = np.where(varies, spread, 1.0)

        def standardize(evidence: Evidence) -> FloatArray:
            return np.where(varies, _standardize(evidence, means, scales), 0.0)

        near = OddsLine.fit(standardize(known), standardize(unknown))
        model = cls(
            means=_plain(means),
            scales=_plain(scales),
            weights=near.weights,
            knots=near.knots,
            slopes=near.slopes,
            offset=near.offset,
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
            far=None
            if far is None
            else OddsLine.fit(
                without_logits(standardize(known)), without_logits(standardize(far.take(far.seen)))
            ),
        )

    @property
    def has_logits(self) -> bool:
        """Whether the largest logit is part of the evidence."""
        return len(self.means) > N_NEAR

    def with_shift(self, *, novelty: float, drift: float) -> "Self":
        """The same model for queries that differ from the rehearsal by so much."""
        for name, value, grid in (("novelty", novelty, NOVELTIES), ("drift", drift, DRIFTS)):
            if not 0 <= value <= grid[-1]:
                raise InvalidInputError(
                    f"{name} must lie in [0, {grid[-1]:g}]. Got {value} instead."
                )
        return replace(self, novelty=float(novelty), drift=float(drift))

    def rehearsed_log_odds(self, evidence: Evidence) -> FloatArray:
        """Log r: the log-odds without novelty, drift and far unknowns."""
        seen = evidence.seen
        near = OddsLine(self.weights, self.knots, self.slopes, self.offset)
        log_odds = np.full(len(evidence), -np.inf)
        log_odds[seen] = near.log_odds(self._standardized(evidence.take(seen)))
        return log_odds

    def log_odds(self, evidence: Evidence) -> FloatArray:
        """Log-density of known less that of unknown evidence; -inf without any neighbour."""
        seen = evidence.seen
        log_odds = self.rehearsed_log_odds(evidence)
        rehearsed = log_odds[seen]
        known = log_known_change(rehearsed, self.drift, np.array(self.drift_normalizers))
        log_odds[seen] = (
            rehearsed
            + known
            - log_unknown_change(rehearsed, self.novelty, np.array(self.novelty_normalizers))
        )
        if self.far is not None:
            far = known + self.far.log_odds(self._standardized(evidence.take(seen)))
            log_odds[seen] = -np.logaddexp(-log_odds[seen], LOG_FAR_WEIGHT - far)
        return log_odds

    def _standardized(self, evidence: Evidence) -> FloatArray:
        return _standardize(evidence, np.array(self.means), np.array(self.scales))

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
        return np.asarray(expit(self.log_odds(evidence) + prior_log_odds), np.float64)

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> "Self":
        """The inverse of `to_dict`; `ModelFileError` for anything else."""
        # Files of earlier versions know of no far unknowns.
        model = super().from_dict({"far": None, **fields})
        far = None if model.far is None else OddsLine.from_dict(fields["far"])
        for line in (model, far or model):
            if len(line.slopes) != len(line.knots) + 1 or not line.knots:
                raise schema.unreadable(cls._owner, "'slopes' must be one more than 'knots'")
            sizes = {len(model.means), len(model.scales), len(line.weights)}
            if sizes not in ({N_NEAR}, {N_NEAR + 1}):
                raise schema.unreadable(
                    cls._owner, "'means', 'scales' and 'weights' must be 3 each, or 4"
                )
        return replace(model, far=far)


def _standardize(evidence: Evidence, means: FloatArray, scales: FloatArray) -> FloatArray:
    """Evidence in units of what known queries have; what has no say is usual."""
    standardized = (evidence.matrix - means) / scales
    return np.where(np.isnan(standardized), 0.0, standardized)


def without_logits(standardized: FloatArray) -> FloatArray:
    """Evidence of the neighbours alone, the rest of it 0.

    A step away from all neighbours changes the logits by anything: they grow along the weights of
    some class without end. So far unknowns are told by distances, whatever a head says.
    """
    return np.where(np.arange(standardized.shape[1]) < N_NEAR, standardized, 0.0)


def check_unknown_share(unknown_share: float) -> None:
    """Raise an error unless the share is in [0, 1)."""
    if not 0 <= unknown_share < 1:
        raise InvalidInputError(
            "unknown_share must lie in [0, 1): a fraction of the queries, not percent. "
            f"Got {unknown_share} instead."
        )


def _plain(values: FloatArray) -> tuple[float, ...]:
    return tuple(values.tolist())


VerdictName: TypeAlias = Literal["known", "ambiguous", "unknown"]
VERDICT_NAMES: tuple[VerdictName, ...] = get_args(VerdictName)


@dataclass(frozen=True, eq=False)
class Verdicts:
    """Verdicts on n queries.

    Parameters
    ----------
    names : array of shape (n,) of str
        "known": take the winning class. "ambiguous": of the gallery, but no class has enough of
        the probability. "unknown": of no class of the gallery.
    confidence : array of shape (n,)
        p(known) p(c | known) of the winning class c: the probability that naming it is right.
    p_known : array of shape (n,)
        Probability that the query is of the gallery at all.
    """

    names: NDArray[np.str_]
    confidence: FloatArray
    p_known: FloatArray

    def __len__(self) -> int:
        return len(self.names)

    def counts(self) -> dict[VerdictName, int]:
        """How many queries have each verdict."""
        return {name: int((self.names == name).sum()) for name in VERDICT_NAMES}


def judge(
    p_known: ArrayLike,
    posterior: Posterior,
    *,
    least_p_known: float = 0.5,
    least_class_probability: float = 0.5,
) -> Verdicts:
    """Separate unknown queries from known but undecided ones.

    Both have a low confidence, but not the same remedy: an unknown query needs a new class, an
    ambiguous one a second look at the classes it lies between.

    Parameters
    ----------
    p_known : array of shape (n,)
        From `KnownModel.p_known`.
    posterior : Posterior
        p(c | known) of the same queries, by any rule.
    least_p_known : float
        Below it a query is "unknown". At 0.5 an error either way costs the same; the cost of
        taking an unknown for known, over the sum of both costs, is the threshold for others.
    least_class_probability : float
        A query that is not unknown is "ambiguous" if p(c | known) of its best class is below it.
        At 0.5 it is ambiguous unless one class outweighs all others together.

    Returns
    -------
    Verdicts

    Examples
    --------
    >>> from nearsure import Neighbors, score
    >>> found = Neighbors([[0.1, 0.9, 1.0], [0.5, 0.5, 0.6], [9.0, 9.5, 9.9]], [[0, 1, 2]] * 3)
    >>> verdicts = judge([0.99, 0.9, 0.02], score(found, temperature=0.2))
    >>> verdicts.names.tolist(), verdicts.confidence.round(2)
    (['known', 'ambiguous', 'unknown'], array([0.96, 0.35, 0.02]))
    """
    chances = np.asarray(p_known, np.float64)
    if chances.shape != (len(posterior),):
        raise InvalidInputError(
            f"p_known must be one probability for each of the {len(posterior)} queries. "
            f"Got an array of shape {chances.shape} instead."
        )
    if not ((chances >= 0) & (chances <= 1)).all():
        raise InvalidInputError("p_known must lie in [0, 1]. Got other values.")
    for name, value in (
        ("least_p_known", least_p_known),
        ("least_class_probability", least_class_probability),
    ):
        if not 0 <= value <= 1:
            raise InvalidInputError(f"{name} must lie in [0, 1]. Got {value} instead.")
    class_probability = posterior.confidence
    names = np.where(class_probability < least_class_probability, "ambiguous", "known")
    names = np.where(chances < least_p_known, "unknown", names)
    return Verdicts(names, chances * class_probability, chances)
