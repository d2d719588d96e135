"""How far real queries are from rehearsed ones, by queries that nobody has labelled."""

import numpy as np

from nearsure.arrays import FloatArray
from nearsure.errors import InvalidInputError
from nearsure.unknowns.evidence import Evidence
from nearsure.unknowns.known_model import KnownModel, check_unknown_share
from nearsure.unknowns.shifted_densities import (
    DRIFTS,
    NOVELTIES,
    log_known_change,
    log_unknown_change,
)

# What is believed before any query is seen; chosen on CLINC150's validation part and CUB-200. It
# settles the matter where queries cannot: if known and unknown overlap, few near unknowns, many
# far ones and drift all look alike. Unknowns are either like a class left out or far beyond one,
# hence the long tail (half a Cauchy distribution); drift is small (half a normal distribution).
NOVELTY_SCALE = 0.2
DRIFT_SPREAD = 0.05
LARGEST_SHARE = 0.999
BISECTIONS = 20
# Beyond these log-odds a query is of one kind for sure, and exp stays finite at any novelty.
CERTAIN = 30.0


class QueryMixture:
    """Queries as a mixture of known and unknown, for every novelty and drift at once.

    Log-odds are taken to one decimal: that is below what is known of them, and makes the likelihood
    a sum over a hundred values or so, however many queries there are.

    Parameters
    ----------
    model : KnownModel
        Its own novelty and drift are ignored.
    evidence : Evidence
        Of n unlabelled queries.
    shifted : bool
        Whether queries may differ from the rehearsal; if not, novelty and drift are 0.
    """

    def __init__(self, model: KnownModel, evidence: Evidence, *, shifted: bool = True) -> None:
        if not len(evidence):
            raise InvalidInputError("evidence must be of at least one query. Got none.")
        rehearsed = model.with_shift(novelty=0.0, drift=0.0).log_odds(evidence)
        # Normalised on rehearsed evidence, densities mean nothing beyond its end: a few queries out
        # there would outweigh all others, and call for the largest novelty.
        lowest = max(-CERTAIN, model.farthest)
        values, counts = np.unique(rehearsed.clip(lowest, CERTAIN).round(1), return_counts=True)
        self.counts: FloatArray = counts.astype(np.float64)
        novelty, drift = (
            grid.ravel() for grid in np.meshgrid(range(len(NOVELTIES)), range(len(DRIFTS)))
        )
        if not shifted:
            novelty, drift = novelty[:1], drift[:1]
        self.novelties, self.drifts = NOVELTIES[novelty], DRIFTS[drift]
        # Densities over that of rehearsed known evidence, shape (n_shifts, n_values).
        of_known, of_unknown = (
            np.array(normalizers)
            for normalizers in (model.drift_normalizers, model.novelty_normalizers)
        )
        known = [np.exp(log_known_change(values, a, of_known)) for a in DRIFTS]
        unknown = [np.exp(log_unknown_change(values, b, of_unknown) - values) for b in NOVELTIES]
        self._known: FloatArray = np.array(known)[drift]
        self._unknown: FloatArray = np.array(unknown)[novelty]

    def log_posteriors(self, shares: FloatArray, counts: FloatArray) -> FloatArray:
        """Log-likelihood and log-prior of each shift with its share, shape (n_shifts,)."""
        mixture = self._known + shares[:, None] * (self._unknown - self._known)
        log_prior = -np.log1p((self.novelties / NOVELTY_SCALE) ** 2)
        log_prior -= 0.5 * (self.drifts / DRIFT_SPREAD) ** 2
        return np.asarray(np.log(mixture) @ counts + log_prior)

    def likeliest_shares(self, counts: FloatArray) -> FloatArray:
        """The share of unknowns that explains the queries best, for each shift.

        The likelihood is concave in the share, so its slope has one root: the fixed point of the
        EM algorithm of Saerens et al., without its slow approach.
        """
        low = np.zeros(len(self.novelties))
        high = np.full(len(self.novelties), LARGEST_SHARE)
        for _ in range(BISECTIONS):
            middle = (low + high) / 2
            mixture = self._known + middle[:, None] * (self._unknown - self._known)
            rises = ((self._unknown - self._known) / mixture) @ counts > 0
            low, high = np.where(rises, middle, low), np.where(rises, high, middle)
        return low

    def most_probable(self, shares: FloatArray, counts: FloatArray) -> int:
        """Which shift, with its share, explains the queries best."""
        return int(self.log_posteriors(shares, counts).argmax())


def fit_shift(model: KnownModel, evidence: Evidence, unknown_share: float) -> KnownModel:
    """Fit the model to unlabelled queries, of which the share of unknowns is given.

    Parameters
    ----------
    model : KnownModel
        From the gallery.
    evidence : Evidence
        Of n unlabelled queries, some hundreds or more.
    unknown_share : float
        Share of unknowns among them, in [0, 1). `estimate_unknown_share` finds it, too.

    Returns
    -------
    KnownModel
        With the most probable novelty and drift.

    Examples
    --------
    Evidence of unknowns is normal about -2 in the rehearsal, but in truth about means from -2 to
    -4, which is a novelty of 0.5.

    >>> rng = np.random.default_rng(0)
    >>> def drawn(*samples):
    ...     values = np.concatenate([rng.normal(mean, 1.0, n) for mean, n in samples])
    ...     return Evidence(values, np.zeros(len(values)), np.ones(len(values)))
    >>> model = KnownModel.fit(drawn((0.0, 20_000)), drawn((-2.0, 20_000)))
    >>> unknowns = [(mean, 100) for mean in np.linspace(-2.0, -4.0, 10)]
    >>> fitted = fit_shift(model, drawn((0.0, 4000), *unknowns), unknown_share=0.2)
    >>> round(fitted.novelty, 1), fitted.drift
    (0.6, 0.0)
    """
    check_unknown_share(unknown_share)
    mixture = QueryMixture(model, evidence)
    shares = np.full(len(mixture.novelties), float(unknown_share))
    best = mixture.most_probable(shares, mixture.counts)
    return model.with_shift(novelty=mixture.novelties[best], drift=mixture.drifts[best])
