"""From confidence to action: thresholds, sets, audits, drift, unknowns."""

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from nearsure.arrays import BoolArray, FloatArray, IntArray
from nearsure.audit import GalleryAudit, audit
from nearsure.classifier.class_sizes import class_sizes
from nearsure.classifier.fitted_gallery import FittedGallery
from nearsure.classifier.known_judge import has_company, rehearse_gallery
from nearsure.classifier.own_pass import OwnPass
from nearsure.decisions import (
    AcceptThreshold,
    ConformalFit,
    PredictionSets,
    ScoreName,
    choose_threshold,
    fit_conformal,
    prediction_sets,
)
from nearsure.drift import QueryDrift, compare_queries
from nearsure.errors import InvalidInputError
from nearsure.neighbors import Neighbors
from nearsure.temperature import fit_temperature
from nearsure.unknowns import Rehearsal, ShareEstimate, estimate_unknown_share, fit_shift

# Of the points that take part in choosing a threshold or a set.
DRAW_SEED = 0


class DecisionMethods(FittedGallery):
    """accept_threshold, predict_set; audit, compare_queries; adapt_to_queries."""

    def accept_threshold(
        self,
        *,
        precision: float | None = None,
        error: float | None = None,
        false_accept_rate: float | None = None,
        certainty: float = 0.95,
    ) -> AcceptThreshold:
        """The confidence from which answers may be accepted without a second look.

        It is chosen on the gallery's own points, each leaving itself out, with a bound for their
        finite number; see `nearsure.decisions`. A point that leaves itself out has a fellow less
        than a query has, which makes the choice a careful one where classes are small. With
        another `prior` than the gallery's, points of each class take part in that proportion.

        Where unknown queries are expected, points that leave their class out take part in their
        stead, in the share that is expected: the promise then holds as far as real unknowns are
        like these. For a promise that does not rest on the gallery, pass the confidence of
        held-out queries to `nearsure.decisions.choose_threshold`.

        Parameters
        ----------
        precision : float, optional
            At least this share of the accepted answers shall be right, in (0, 1).
        error : float, optional
            At most this share of the accepted answers may be wrong.
        false_accept_rate : float, optional
            At most this share of wrong answers and of unknown queries may be accepted. Exactly one
            of the three must be given.
        certainty : float, default 0.95
            How sure the promise shall be, in (0, 1).

        Returns
        -------
        AcceptThreshold
            ``accepts(prediction.confidence)`` says which answers to act on; printed, it is a
            sentence. If the target cannot be promised, it says so and accepts nothing.
        """
        confidence, correct = self.rehearsed_scores()
        return choose_threshold(
            confidence,
            correct,
            precision=precision,
            error=error,
            false_accept_rate=false_accept_rate,
            certainty=certainty,
        )

    def conformal_fit(self, alpha: float, score: ScoreName = "aps") -> ConformalFit:
        """The score up to which classes belong to the sets of `predict_set`."""
        own = self._own_pass()
        some = self._drawn_by_prior(own.codes)
        posterior = self._posterior(own.neighbors).take(some)
        return fit_conformal(posterior, own.codes[some], alpha=alpha, score=score)

    def predict_set(
        self, Q: ArrayLike, alpha: float = 0.1, score: ScoreName = "aps"
    ) -> PredictionSets:
        """Sets of classes that hold the true one of at least 1 - alpha of the known queries.

        They are calibrated on the gallery's own points, each leaving itself out. The coverage is
        near 1 - alpha, as one point more hardly changes a vote, but not guaranteed in the worst
        case; with held-out points and `nearsure.decisions.fit_conformal` it is.

        Parameters
        ----------
        Q : array of shape (n, n_features)
            Queries.
        alpha : float, default 0.1
            Share of the queries whose set may miss the true class, in (0, 1).
        score : {"aps", "lac"}, default "aps"
            "aps" makes sets as long as the query is hard; "lac" the smallest sets on average.

        Returns
        -------
        PredictionSets
            Ragged; ``classes_[sets[i]]`` are the labels of query i, ``to_csr()`` the sparse form.
        """
        fit = self.conformal_fit(alpha, score)
        return prediction_sets(self._posterior(self.kneighbors(Q)), fit)

    def audit(self, **options: float) -> GalleryAudit:
        """What the gallery's own points say against it: labels, duplicates, classes.

        All points are searched, each leaving itself out.

        Parameters
        ----------
        **options
            Of `nearsure.audit.audit`: thresholds of what is reported.
        """
        check_is_fitted(self, "classes_")
        ids, codes = self._support.ids, self._support.codes
        if len(ids) == 1:
            raise InvalidInputError("A gallery of one point has nothing to be compared with.")
        own = self._support.leave_one_out(None, self.n_neighbors_)
        temperature = self._ned_temperature(own)
        return audit(own, codes, temperature=temperature, ids=ids, **options)  # type: ignore[arg-type]

    def compare_queries(self, Q: ArrayLike, *, seed: int = 0) -> QueryDrift:
        """Whether unlabelled queries look like the gallery's points, and what to expect of them.

        Parameters
        ----------
        Q : array of shape (n, n_features)
            Queries, some dozens or more.
        seed : int
            Of the intervals.

        Returns
        -------
        QueryDrift
            Shifts of confidence and distance with an alarm, and the estimated accuracy.
        """
        own, found = self._own_pass(), self.kneighbors(Q)
        k = min(own.neighbors.k, found.k)
        neighbors, found = own.neighbors.first(k), found.first(k)
        return compare_queries(
            neighbors,
            self._posterior(neighbors, own),
            own.codes,
            found,
            self._posterior(found),
            seed=seed,
        )

    def adapt_to_queries(
        self, Q: ArrayLike, unknown_share: float | None = None, *, seed: int = 0
    ) -> ShareEstimate | None:
        """Fit p(known) to unlabelled queries, which may be farther away than the gallery rehearsed.

        Parameters
        ----------
        Q : array of shape (n, n_features)
            Queries as they come, known and unknown, some hundreds or more.
        unknown_share : float, optional
            Share of unknowns among them, in [0, 1). None estimates it, too.
        seed : int
            Of the estimate's interval.

        Returns
        -------
        ShareEstimate or None
            The estimate, which is used from now on; None if the share was given.
        """
        neighbors = self.kneighbors(Q)
        if self._known is None:
            raise InvalidInputError(
                "p(known) was not fitted. Give unknown_share (0.1, say; this method replaces it) "
                "and fit again."
            )
        self._adapted = True
        evidence = self._known.evidence(neighbors, self._posterior(neighbors))
        model = self._known.model.with_shift(novelty=0.0, drift=0.0)
        if unknown_share is not None:
            self._known = self._known.with_model(
                fit_shift(model, evidence, unknown_share), float(unknown_share)
            )
            return None
        estimate = estimate_unknown_share(model, evidence, seed=seed)
        shifted = model.with_shift(novelty=estimate.novelty, drift=estimate.drift)
        self._known = self._known.with_model(shifted, estimate.share)
        return estimate

    def _ned_temperature(self, own: Neighbors) -> float:
        """T of NED, whatever the rule is."""
        fit = self._rule.temperature_fit
        if fit is not None:
            return fit.temperature
        if self._rule.temperature is not None:
            return self._rule.temperature
        return fit_temperature(own, self._support.codes).temperature

    def rehearsed_scores(self) -> tuple[FloatArray, BoolArray]:
        """Confidence of the gallery's own points, and whether it was deserved.

        What `accept_threshold` is chosen on: each point leaves itself out; where unknown queries
        are expected, points that leave their class out play them, in the share that is expected;
        with another prior, points of each class take part in that proportion.

        Returns
        -------
        confidence, correct : array of shape (n,)
            Of as many points as take part.
        """
        # Without the factors of `nearsure.forms.left_out`, which know the true class: a promise
        # must hold, and a point that has a fellow less than a query errs on the safe side.
        own = self._own_pass()
        posterior = self._posterior(own.neighbors)
        confidence, correct = posterior.confidence, posterior.labels == own.codes
        some = self._drawn_by_prior(own.codes)
        if self._known is None:
            return confidence[some], correct[some]
        rehearsal = self._rehearsal_of(own)
        model, share = self._known.model, self._known.unknown_share
        p_known = np.zeros(len(own.codes))
        # A point whose class is gone with it plays no known query; nobody is sure of it.
        p_known[has_company(own)] = model.p_known(rehearsal.known, share)
        confidence = confidence * p_known
        unknown = rehearsal.unknown
        strangers = unknown.confidence * model.p_known(unknown, share)
        n_known, n_unknown = _in_proportion(len(some), len(strangers), share)
        rng = np.random.default_rng(DRAW_SEED)
        drawn = rng.permutation(some)[:n_known]
        others = rng.permutation(len(strangers))[:n_unknown]
        return (
            np.concatenate([confidence[drawn], strangers[others]]),
            np.concatenate([correct[drawn], np.zeros(len(others), np.bool_)]),
        )

    def _rehearsal_of(self, own: OwnPass) -> Rehearsal:
        """The points of an own pass as known and as unknown queries, kept beside it."""
        # Others may ask at the same time: what is kept is looked at once, and replaced as one.
        kept = self._rehearsal
        if kept is not None and kept[0] is own:
            return kept[1]
        sizes = class_sizes(self._support, len(self.classes_))
        rehearsal = rehearse_gallery(self._support, own, self._rule, self._posterior, sizes)
        self._rehearsal = own, rehearsal
        return rehearsal

    def _drawn_by_prior(self, codes: IntArray) -> IntArray:
        """Which points stand for queries: all, or a draw in the proportions of another prior.

        Points are taken with a chance, each once at most, so that they stay independent draws.
        """
        factors = self._prior_factors()
        if factors is None:
            return np.arange(len(codes))
        chances = factors[codes]
        rng = np.random.default_rng(DRAW_SEED)
        return np.flatnonzero(rng.random(len(codes)) < chances / chances.max())


def _in_proportion(n_known: int, n_unknown: int, unknown_share: float) -> tuple[int, int]:
    """How many points of either kind make up the share: as many as there are."""
    wanted = round(n_known * unknown_share / (1.0 - unknown_share))
    if wanted <= n_unknown:
        return n_known, wanted
    return max(1, round(n_unknown * (1.0 - unknown_share) / unknown_share)), n_unknown
