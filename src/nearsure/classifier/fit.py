"""`Fit`: a gallery with all that was fitted on it, and how it is fitted."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from nearsure.arrays import AnyArray, FloatArray, IntArray
from nearsure.audit import GalleryAudit, audit
from nearsure.bursts import (
    N_LISTED,
    Bursts,
    draw_one_per_group,
    find_bursts,
    group_near_copies,
)
from nearsure.classifier.head import fit_heads
from nearsure.classifier.known import (
    UnknownDetector,
    count_in_proportion,
    fit_unknown_detector,
    rehearse_gallery,
    with_p_known,
)
from nearsure.classifier.parameters import FitSettings, settings_for
from nearsure.classifier.recalibration import FEWEST_LABELS, Recalibration
from nearsure.classifier.results import WATCHED, Support
from nearsure.classifier.rule import (
    FittedRule,
    Played,
    SelfSearch,
    class_sizes,
    draw_ids,
    draw_places,
    fit_form,
    fit_rule,
    mean_and_error,
    own_losses,
    self_search,
    self_search_with_more,
)
from nearsure.drift import FEWEST
from nearsure.engines.contract import Fingerprint
from nearsure.forms.prior import factors_of_prior, with_newcomers
from nearsure.forms.sharpened import SHARPENED_NAMES
from nearsure.gallery import Gallery
from nearsure.gallery.counts import values_beside
from nearsure.gallery.recall import measure_recall
from nearsure.neighbors import Neighbors
from nearsure.posterior import Posterior
from nearsure.shift import (
    OTHER_SHARES,
    Traits,
    find_differences,
    measure_traits,
    thin_queries,
)
from nearsure.temperature import fit_temperature
from nearsure.unknowns import Rehearsal, judge

# How queries differ from the gallery; see `Prediction`.
Differences = tuple[str, ...] | None
# Queries of a batch that are compared with own points: enough to see what breaks a promise, few
# enough to cost next to nothing beside their search.
MOST_COMPARED = 500
# Share of its class that an own point lacks, in the mean: up to here it makes no difference.
LARGEST_LOSS = 0.02
# Of the points that stand for queries.
DRAW_SEED = 0


@dataclass(eq=False)
class Fit:
    """A gallery with all that was fitted on it.

    Parameters
    ----------
    gallery : Gallery
        The points.
    metric : {"euclidean", "cosine"}
        How they are compared.
    group_names : array of shape (n_groups,) or None
        What codes of groups stand for.
    fingerprint : Fingerprint
        Through what the neighbours were found.
    rule, prior : FittedRule, prior
        From neighbours to p(c | known).
    known : UnknownDetector or None
        p(known); None if every query is taken for known.
    all_neighbors : bool
        Whether k is as many points as there are.
    mark : int
        ``n_changes`` of the gallery at the fit.
    loss : pair of float or None
        Leave-one-out loss at the fit, and its standard error; None if nothing was fitted.
    adapted : bool
        Whether p(known) was fitted to queries; it then survives a refit.
    self_search, rehearsal : SelfSearch, pair of SelfSearch and Rehearsal, or None
        Leave-one-out neighbours, and points as known and unknown queries; kept until a change.
    bursts : Bursts or None
        What near-copies do to the own accuracy; None if nothing was fitted.
    traits : Traits or None
        Of some own points, as they would be asked for: what queries are compared with.
    recalibration : Recalibration or None
        What labelled queries have taught; it survives a refit.
    labelled_traits : pair of int and Traits, or None
        ``n_changes`` of the gallery, and what other queries were compared with then.
    labelled_search : pair of int and Neighbors, or None
        ``n_changes`` of the gallery, and the neighbours of these queries then.
    warned_of, warned_stale : Fingerprint or None, bool
        Of what was warned already.
    """

    gallery: Gallery
    metric: Literal["euclidean", "cosine"]
    group_names: AnyArray | None
    fingerprint: Fingerprint
    rule: FittedRule
    prior: Literal["support", "uniform"] | FloatArray
    known: UnknownDetector | None
    all_neighbors: bool
    mark: int = 0
    loss: tuple[float, float] | None = None
    adapted: bool = False
    self_search: SelfSearch | None = None
    rehearsal: tuple[SelfSearch, Rehearsal] | None = None
    bursts: Bursts | None = None
    traits: Traits | None = None
    recalibration: Recalibration | None = None
    labelled_traits: tuple[int, Traits] | None = None
    labelled_search: tuple[int, Neighbors] | None = None
    warned_of: Fingerprint | None = None
    warned_stale: bool = False

    @property
    def class_sizes(self) -> IntArray:
        """Points of each class now."""
        return class_sizes(self.gallery, len(self.gallery.classes))

    @property
    def expects_unknowns(self) -> bool:
        """Whether some queries are of no class of the gallery."""
        return self.known is not None and self.known.unknown_share > 0

    def prior_factors(self) -> FloatArray | None:
        """What another prior than the gallery's multiplies each class by."""
        if isinstance(self.prior, str) and self.prior == "support":
            return None
        sizes = self.class_sizes
        return factors_of_prior(with_newcomers(self.prior, len(sizes)), sizes)

    def posterior(self, neighbors: Neighbors, own: SelfSearch | None = None) -> Posterior:
        """p(c | known)."""
        sizes = self.class_sizes
        return self.rule.posterior(
            neighbors,
            n_classes=len(sizes),
            class_sizes=sizes,
            prior_factors=self.prior_factors(),
            own=own,
        )

    def vote_shares(self, neighbors: Neighbors) -> FloatArray:
        """What each neighbour contributes to what the neighbours say, before calibration."""
        return self.rule.vote_shares(
            neighbors, class_sizes=self.class_sizes, prior_factors=self.prior_factors()
        )

    def support(self, neighbors: Neighbors, codes: IntArray) -> Support:
        """How probable answers are by the neighbours alone, and by the head alone."""
        return self.rule.support(
            neighbors, codes, class_sizes=self.class_sizes, prior_factors=self.prior_factors()
        )

    def before_labels(self) -> "Fit":
        """The same as it was before labelled queries have changed the confidence."""
        if self.recalibration is None:
            return self
        rule = replace(self.rule, recalibrator=None)
        return replace(
            self, rule=rule, recalibration=None, labelled_traits=None, labelled_search=None
        )

    def gallery_posterior(self, neighbors: Neighbors, own: SelfSearch | None = None) -> Posterior:
        """p(c | known) before labelled queries have changed it: what p(known) was fitted with."""
        return self.before_labels().posterior(neighbors, own)

    def calibrated(
        self, neighbors: Neighbors
    ) -> tuple[Posterior, FloatArray | None, NDArray[np.str_] | None]:
        """p(c); p(known), if unknown queries are expected; verdicts, if they are recognised."""
        within = self.posterior(neighbors)
        if self.known is None:
            return within, None, None
        plain = within if self.recalibration is None else self.gallery_posterior(neighbors)
        p_known = self.known.p_known(neighbors, plain)
        recognizes = self.known.recognizes or not self.known.unknown_share
        verdicts = judge(p_known, within).names if recognizes else None
        return with_p_known(within, p_known), p_known, verdicts

    def adapt_like(self, before: "Fit") -> None:
        """Keep what the fit before has learned about queries."""
        self.adapted = before.adapted
        if before.adapted and before.known is not None and self.known is not None:
            shift = before.known.model
            model = self.known.model.with_shift(novelty=shift.novelty, drift=shift.drift)
            self.known = self.known.with_model(model, before.known.unknown_share)
            self.traits = before.traits

    def audit(self, k: int, options: Mapping[str, float]) -> GalleryAudit:
        """What looks wrong in the gallery, by the k neighbours of each point and by the head."""
        gallery, rule = self.gallery, self.rule
        ids, codes = gallery.ids, gallery.codes
        own = gallery.leave_one_out(None, k)
        # T of NED, whatever the rule is.
        found = rule.temperature_fit
        temperature = rule.temperature if found is None else found.temperature
        if temperature is None:
            temperature = fit_temperature(own, codes).temperature
        posterior, settings = None, cast("dict[str, Any]", options)
        if own.class_scores is not None:
            sizes = self.class_sizes
            posterior = rule.uncalibrated_posterior(own, n_classes=len(sizes), class_sizes=sizes)
        audited = audit(
            own, codes, temperature=temperature, ids=ids, posterior=posterior, **settings
        )
        return replace(audited, classes=gallery.classes)

    def watch_loss(self, own: SelfSearch) -> tuple[float, float]:
        """Mean leave-one-out loss of some points, and its standard error."""
        some = own.take(draw_places(len(own.ids), WATCHED, np.random.default_rng(DRAW_SEED)))
        return mean_and_error(own_losses(self.gallery_posterior(some.neighbors), some.codes))

    def measure_own(self, own: SelfSearch) -> Traits:
        """Traits of some points as they would be asked for: what queries are compared with."""
        rows = draw_places(len(own.ids), WATCHED, np.random.default_rng(DRAW_SEED))
        return self.mix_traits(own, rows[self.draw_stand_ins(own.take(rows))])

    def draw_stand_ins(self, own: SelfSearch) -> IntArray:
        """Which own points stand for queries: one of each group, in the proportions of the prior.

        Points of a group are no independent draws: they are right or wrong together.
        """
        some, groups = np.arange(len(own.codes)), self.groups_of(own.ids)
        if groups is not None:
            some = draw_one_per_group(groups, seed=DRAW_SEED)
        return some[draw_by_prior(self.prior_factors(), own.codes[some])]

    def groups_of(self, ids: AnyArray) -> IntArray | None:
        """Groups of points, by code; None if there are none."""
        beside = self.gallery.groups_beside
        return None if beside is None else values_beside(beside, ids)

    def mix_traits(self, own: SelfSearch, some: IntArray) -> Traits:
        """Traits of own points, and of points without their class in the share that is expected.

        Parameters
        ----------
        own : SelfSearch
            The points.
        some : array of int
            Those of them that take part.
        """
        if self.known is None or not self.known.unknown_share:
            return self._measure_as_they_are(own.neighbors.take(some))
        rng = np.random.default_rng(DRAW_SEED)
        n_known, n_unknown = count_in_proportion(len(some), len(some), self.known.unknown_share)
        known = own.neighbors.take(rng.permutation(some)[:n_known])
        unknown = self.gallery.leave_class_out(own.ids[rng.permutation(some)[:n_unknown]], known.k)
        return self._measure_as_they_are(known).join(self.measure_queries(unknown))

    def measure_queries(self, neighbors: Neighbors) -> Traits:
        """Traits of queries, of which each has lost a member of its class, as own points have.

        Where classes are large, that makes no difference, and nothing is scored again.
        """
        # What is drawn must not depend on the order of the queries.
        neighbors = neighbors.take(np.argsort(neighbors.sq_distances[:, 0], kind="stable"))
        posterior, sizes = self.near_posterior(neighbors), self.class_sizes
        if np.mean(1.0 / np.maximum(sizes[posterior.labels], 1)) > LARGEST_LOSS:
            neighbors = thin_queries(neighbors, posterior, sizes, seed=DRAW_SEED)
            posterior = self.near_posterior(neighbors)
        return measure_traits(neighbors, posterior)

    def find_differences(self, neighbors: Neighbors) -> Differences:
        """How queries differ from the gallery's own points, or from those labelled; cheap.

        Parameters
        ----------
        neighbors : Neighbors
            Of the queries, of which at most MOST_COMPARED are compared.

        Returns
        -------
        tuple of str, or None
            Empty if they are alike; None if they are too few to say, or the fit keeps nothing to
            compare them with.
        """
        if len(neighbors) < FEWEST:
            return None
        if len(neighbors) > MOST_COMPARED:
            order = np.argsort(neighbors.sq_distances[:, 0], kind="stable")
            places = np.linspace(0, len(neighbors) - 1, MOST_COMPARED).astype(np.int64)
            neighbors = neighbors.take(order[places])
        if self.recalibration is None:
            own, measure, fewest = self._find_own(neighbors.k), self.measure_queries, FEWEST
        else:
            own = self._measure_labelled(self.recalibration.vectors, neighbors.k)
            measure, fewest = self._measure_as_they_are, FEWEST_LABELS
        if own is None or len(own) < fewest:
            return None
        traits = measure(neighbors)
        if len(traits) < FEWEST:
            return None
        return self.compare_traits(own, traits)

    def compare_traits(self, own: Traits, queries: Traits) -> tuple[str, ...]:
        """How queries differ; other class shares do not count if some are of unknown classes."""
        reasons = find_differences(own, queries)
        if not self.expects_unknowns:
            return reasons
        # Unknown queries have favourite classes of their own.
        return tuple(reason for reason in reasons if reason != OTHER_SHARES)

    def _measure_as_they_are(self, neighbors: Neighbors) -> Traits:
        return measure_traits(neighbors, self.near_posterior(neighbors))

    def near_posterior(self, neighbors: Neighbors) -> Posterior:
        """By neighbours alone: heads of own points have seen fewer members than that of queries."""
        before = self.before_labels()
        return replace(before, rule=replace(before.rule, head=None)).posterior(neighbors)

    def _find_own(self, k: int) -> Traits | None:
        """What queries are compared with; in memory it is measured if the fit had no own pass."""
        if self.traits is None and self.gallery.in_memory and len(self.gallery) > FEWEST:
            rng = np.random.default_rng(DRAW_SEED)
            ids = self.gallery.ids_at(draw_places(len(self.gallery), WATCHED, rng))
            self.traits = self.measure_own(self_search(self.gallery, ids, k))
        return self.traits

    def _measure_labelled(self, vectors: AnyArray, k: int) -> Traits:
        mark, kept = self.gallery.n_changes, self.labelled_traits
        if kept is None or kept[0] != mark:
            kept = mark, self._measure_as_they_are(self.gallery.search(vectors, k))
            self.labelled_traits = kept
        return kept[1]


def fit_gallery(
    gallery: Gallery,
    parameters: Mapping[str, Any],
    metric: Literal["euclidean", "cosine"],
    group_names: AnyArray | None,
    *,
    find_groups: bool = False,
    bursts: Bursts | None = None,
) -> tuple[Fit, int, AnyArray]:
    """Fit everything on a gallery.

    Parameters
    ----------
    gallery : Gallery
        The points.
    parameters : mapping
        Those of `NEDClassifier`.
    metric, group_names
        As of `Fit`.
    find_groups : bool
        Whether near-copies are left out together if they carry the own accuracy.
    bursts : Bursts, optional
        What was found before they were.

    Returns
    -------
    fit : Fit
    k : int
        How many neighbours.
    ids : array of shape (n_fit,)
        Of the points that all was fitted on.
    """
    # A fit that fails leaves the gallery with the head that it had.
    gallery = gallery.without_head()
    classes = gallery.classes
    sizes = class_sizes(gallery, len(classes))
    settings = settings_for(parameters, sizes, classes)
    if bursts is None:  # or else it was measured before near-copies were found
        gallery.recall = measure_recall(gallery, settings.k, parameters["max_effort"])
    own: SelfSearch | None = None
    ids = draw_ids(gallery, parameters["max_fit_samples"], parameters["random_state"])
    fit_again = partial(fit_gallery, gallery, parameters, metric)
    if settings.needs_own_pass:
        own, looked_at, more = self_search_with_more(gallery, ids, settings.k)
        if len(gallery.classes) > len(classes):
            # Others have added a class meanwhile.
            return fit_again(group_names, find_groups=find_groups, bursts=bursts)
    played: Played | None = None
    if settings.rule in SHARPENED_NAMES and own is not None:
        played = fit_form(settings.rule, own, sizes)
        rule = played.for_queries
    else:
        rule = fit_rule(
            settings.rule,
            own,
            temperature=settings.temperature,
            objective=parameters["objective"],
            calibration=settings.calibration,
            class_sizes=sizes,
            prior_factors=settings.prior_factors,
        )
    score = partial(rule.posterior, n_classes=len(classes), prior_factors=settings.prior_factors)
    if own is not None and bursts is None:
        bursts = find_bursts(
            own.neighbors,
            own.codes,
            ids,
            class_sizes=sizes,
            score=score,
            k=settings.k,
            some=looked_at,
            more=more,
        )
        if bursts.suspicious and find_groups:
            near = gallery.leave_one_out(None, N_LISTED)
            groups = group_near_copies(near, gallery.codes, gallery.ids, class_sizes=sizes)
            gallery.keep_groups(gallery.ids, groups)
            return fit_again(np.arange(groups.max() + 1), bursts=replace(bursts, grouped=True))
    if played is not None and own is not None:
        has_copies = bursts is not None and bursts.suspicious
        rule, own = _fit_with_head(
            gallery, own, played, settings, parameters, has_copies=has_copies
        )
    to_posterior = partial(
        rule.posterior, n_classes=len(classes), prior_factors=settings.prior_factors
    )
    known: UnknownDetector | None = None
    rehearsal: Rehearsal | None = None
    share = parameters["unknown_share"]
    if share is not None and own is not None:
        rehearsal = rehearse_gallery(gallery, own, rule, to_posterior, sizes)
        known = fit_unknown_detector(own, rehearsal, float(share), sizes)
    n_neighbors = parameters["n_neighbors"]
    fit = Fit(
        gallery=gallery,
        metric=metric,
        group_names=group_names,
        fingerprint=gallery.fingerprint(),
        rule=rule,
        prior=settings.prior,
        known=known,
        all_neighbors=isinstance(n_neighbors, str) and n_neighbors == "all",
        mark=gallery.n_changes,
        self_search=own,
        rehearsal=None if own is None or rehearsal is None else (own, rehearsal),
        bursts=bursts,
    )
    if own is not None:
        fit.loss, fit.traits = fit.watch_loss(own), fit.measure_own(own)
    return fit, settings.k, ids


def _fit_with_head(
    gallery: Gallery,
    own: SelfSearch,
    played: Played,
    settings: FitSettings,
    parameters: Mapping[str, Any],
    *,
    has_copies: bool,
) -> tuple[FittedRule, SelfSearch]:
    """The rule with the head that the gallery takes from now on, and own points scored by it."""
    if settings.heads:
        choices = fit_heads(
            gallery,
            own.ids,
            own.neighbors,
            settings.heads,
            has_copies=has_copies,
            without_classes=parameters["unknown_share"] is not None,
        )
        forced = parameters["head"] != "auto"
        played = played.beside(choices.scores, choices.left_out, forced=forced)
    rule = played.finish(settings.calibration, settings.prior_factors)
    if rule.head is not None and rule.head.name is not None:
        gallery.head = choices.heads[rule.head.name]
        scores = choices.scores[rule.head.name]
        own = replace(own, neighbors=own.neighbors.with_scores(scores))
    return rule, own


def draw_by_prior(factors: FloatArray | None, codes: IntArray) -> IntArray:
    """Which points stand for queries: all, or a draw in the proportions of another prior.

    Points are taken with a chance, each once at most, so that they stay independent draws.
    """
    if factors is None:
        return np.arange(len(codes))
    chances = factors[codes]
    rng = np.random.default_rng(DRAW_SEED)
    return np.flatnonzero(rng.random(len(codes)) < chances / chances.max())
