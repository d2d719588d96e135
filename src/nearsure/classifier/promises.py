"""What promises and sets of a fit rest on: own points, labelled queries, queries as they come."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import ArrayLike

from nearsure.arrays import AnyArray, BoolArray, FloatArray, IntArray
from nearsure.bursts import N_LISTED, group_near_copies, leave_near_copies_out
from nearsure.calibration import ShrunkPlatt
from nearsure.classifier.fit import DRAW_SEED, Fit, draw_by_prior
from nearsure.classifier.known import UnknownDetector, rehearse_answers
from nearsure.classifier.recalibration import (
    FEWEST_LABELS,
    LIKE_GALLERY,
    UNLIKE_GALLERY,
    Recalibration,
    fit_line,
)
from nearsure.classifier.rule import SelfSearch, draw_places
from nearsure.decisions import (
    ConformalFit,
    RestsOn,
    ScoreName,
    UnknownClasses,
    fit_conformal,
)
from nearsure.decisions.conformal import ROUNDING
from nearsure.drift import FEWEST, QueryDrift, compare_queries
from nearsure.errors import InvalidInputError
from nearsure.forms.sharpened import query_scales
from nearsure.index import unit_vectors
from nearsure.labels import codes_of, labels_like
from nearsure.neighbors import Neighbors
from nearsure.posterior import Posterior
from nearsure.shift import (
    FARTHER,
    LEVEL,
    OTHER_SHARES,
    ClassShares,
    QueryCheck,
    check_queries,
    thin_queries,
)
from nearsure.unknowns import Rehearsal, ShareEstimate, estimate_unknown_share, fit_shift

# Own points that take the place of queries: as many as galleries had on which this was measured.
MOST_REHEARSED = 5000
# In an engine each is searched over a wire, some times.
MOST_ELSEWHERE = 2000
# Sets are searched so many times as deep where k misses too many classes, up to this many
# neighbours of all points together: 200 MB.
DEEPER = 4
DEEPEST_ENTRIES = 8_000_000


def describe_basis(fit: Fit) -> RestsOn:
    """Which points a promise rests on."""
    if fit.recalibration is not None:
        return "labelled queries"
    if fit.gallery.groups_beside is not None:
        return "groups left out together"
    if fit.bursts is not None and fit.bursts.suspicious:
        return "near-copies left out alone"
    return "points left out alone"


def score_own_points(
    fit: Fit, own: SelfSearch, rehearsal: Rehearsal | None
) -> tuple[FloatArray, BoolArray, UnknownClasses | None]:
    """Confidence of own points, whether they are right, and unknown queries if any are expected."""
    # Without the factors of `nearsure.loo`, which depend on the true class: a promise
    # must hold, and a point that has a fellow less than a query errs on the safe side.
    posterior = fit.posterior(own.neighbors)
    confidence, correct = posterior.confidence, posterior.labels == own.codes
    some, unknowns = fit.draw_stand_ins(own), None
    if fit.known is not None and rehearsal is not None:
        confidence, unknowns = rehearse_answers(fit.known, own, rehearsal, confidence)
        if not unknowns.share:
            unknowns = None
    return confidence[some], correct[some], unknowns


def check_against_own(fit: Fit, own: SelfSearch, found: Neighbors) -> QueryCheck:
    """Compare queries with own points in the proportions of the prior, some of many."""
    drawn = draw_by_prior(fit.prior_factors(), own.codes)
    most = MOST_REHEARSED if fit.gallery.in_memory else MOST_ELSEWHERE
    some = drawn[draw_places(len(drawn), most, np.random.default_rng(DRAW_SEED))]
    if len(some) < FEWEST:
        raise InvalidInputError(
            f"The gallery must have at least {FEWEST} points of the fit, in the proportions of the "
            f"prior, to be compared with queries. It has {len(some)}."
        )
    ids, k = own.ids[some], min(own.neighbors.k, found.k)

    def perturb(rows: IntArray, move: Callable[..., AnyArray], length: float) -> Neighbors:
        def moved(vectors: AnyArray) -> AnyArray:
            others = move(vectors, length, DRAW_SEED)
            return unit_vectors(others) if fit.metric == "cosine" else others

        return fit.gallery.leave_one_out(ids[rows], k, moved)

    codes, sizes, copies = own.codes[some], fit.class_sizes, None
    if describe_basis(fit) == "near-copies left out alone":
        copies = group_near_copies(own.neighbors.take(some), codes, ids, class_sizes=sizes)

    def deepen() -> Neighbors:
        more = fit.gallery.leave_one_out(ids, max(N_LISTED, own.neighbors.k))
        if copies is None:
            return more
        return leave_near_copies_out(more, codes, ids, class_sizes=sizes)

    # Where unknown queries are expected, no own points can stand for those that differ.
    check = check_queries(
        own.neighbors.take(some),
        codes,
        found,
        sizes,
        fit.posterior,
        deepen=None if fit.expects_unknowns else deepen,
        # Points of bursts stand for no query that is of none, wherever they are moved.
        perturb=None if fit.expects_unknowns or copies is not None else perturb,
        groups=fit.groups_of(ids),
        copies=copies,
        near=fit.near_posterior,
        seed=DRAW_SEED,
    )
    if not fit.expects_unknowns:
        return check
    mixture = fit.mix_traits(own, some)
    reasons = fit.compare_traits(mixture, fit.measure_queries(found.first(k)))
    return replace(check, reasons=reasons, readings=(), outside=bool(reasons))


def compare_with_own(fit: Fit, own: SelfSearch, found: Neighbors, *, seed: int) -> QueryDrift:
    """Whether queries have moved from own points, and what to expect of them."""
    k = min(own.neighbors.k, found.k)
    neighbors, found = own.neighbors.first(k), found.first(k)
    posterior, asked = fit.posterior(neighbors, own), fit.posterior(found)
    drift = compare_queries(neighbors, posterior, own.codes, found, asked, seed=seed)
    # Own points lack one member of their class, and so do queries here, or classes of two or
    # three would raise a false alarm. Neither side has factors that depend on the true class.
    thinned = thin_queries(found, asked, fit.class_sizes, seed=seed)
    fair = compare_queries(
        neighbors,
        fit.near_posterior(neighbors),
        own.codes,
        thinned,
        fit.near_posterior(thinned),
        alarm_level=2 * LEVEL,
        n_resamples=1,
    )
    check = check_against_own(fit, own, found)
    return replace(
        drift,
        confidence=fair.confidence,
        distance=fair.distance,
        accuracy_range=check.accuracy,
        share_shift=check.shares.distance,
    )


def adapt_prior(fit: Fit, own: SelfSearch, found: Neighbors) -> ClassShares:
    """Let queries' class shares be the prior of a fit, if queries have not moved elsewhere.

    Returns
    -------
    ClassShares
        Beside the prior as it was; all ratios are 1 if it stays.
    """
    check = check_against_own(fit, own, found)
    sizes = fit.class_sizes
    explained = [reading.name for reading in check.readings] == ["class shift"]
    if OTHER_SHARES not in check.reasons or (FARTHER in check.reasons and not explained):
        return ClassShares(np.ones(len(sizes)), 0.0)
    factors = fit.prior_factors()
    # A class without points may be given some.
    prior = np.maximum(sizes, 1) * check.shares.ratios * (1.0 if factors is None else factors)
    fit.prior = prior / prior.sum()
    fit.loss, fit.traits = fit.watch_loss(own), fit.measure_own(own)
    return check.shares


def adapt_to_unknowns(
    fit: Fit,
    known: UnknownDetector,
    neighbors: Neighbors,
    unknown_share: float | None,
    *,
    seed: int,
) -> ShareEstimate | None:
    """Fit p(known) of a fit to queries; the estimate of their share, unless it is given."""
    evidence = known.evidence(neighbors, fit.gallery_posterior(neighbors))
    model, estimate = known.model.with_shift(novelty=0.0, drift=0.0), None
    if unknown_share is None:
        estimate = estimate_unknown_share(model, evidence, seed=seed)
        shifted = model.with_shift(novelty=estimate.novelty, drift=estimate.drift)
        unknown_share = estimate.share
    else:
        shifted = fit_shift(model, evidence, unknown_share)
    fit.known, fit.adapted = known.with_model(shifted, float(unknown_share)), True
    # From now on it is for queries like these.
    fit.traits = fit.measure_queries(neighbors)
    return estimate


def check_labelled(fit: Fit, labels: ArrayLike, n_queries: int) -> AnyArray:
    """Labels of so many queries, enough of them of classes of the gallery; or an error."""
    classes = fit.gallery.classes
    truth = labels_like(labels, n_queries, classes)
    in_gallery = codes_of(truth, classes) < len(classes)
    if fit.known is None and not in_gallery.all():
        raise InvalidInputError(
            "The 'labels' parameter must hold classes of the gallery. Got "
            f"{np.unique(truth[~in_gallery]).tolist()[:5]} besides: correct them, or fit with "
            "unknown_share if such queries are to be expected."
        )
    if in_gallery.sum() < FEWEST_LABELS:
        raise InvalidInputError(
            f"The 'labels' parameter must hold at least {FEWEST_LABELS} labels of classes of "
            f"the gallery. Got {int(in_gallery.sum())} instead: label more queries."
        )
    return truth


def fit_to_labelled(
    fit: Fit,
    own: SelfSearch | None,
    queries: AnyArray,
    labels: AnyArray,
    *,
    neighbors: Neighbors,
    mark: int,
) -> tuple[Fit, Recalibration]:
    """The fit with its confidence moved by labelled queries, and what they have changed.

    Parameters
    ----------
    fit : Fit
        What earlier labels have taught it is forgotten.
    own : SelfSearch
        Own points, which the queries are compared with.
    queries, labels : array of shape (n, n_features) and (n,)
        As they were checked.
    neighbors : Neighbors
        Of the queries.
    mark : int
        ``n_changes`` of the gallery before they were searched.
    """
    before, truth = fit.gallery_posterior(neighbors), codes_of(labels, fit.gallery.classes)
    correct = before.labels == truth
    asked = np.flatnonzero((neighbors.counts > 0) & (truth < len(fit.gallery.classes)))
    like_gallery, rehearsed = expect_of_labels(fit, own, neighbors.take(asked))
    line, like_gallery = fit_line(
        before.confidence[asked], correct[asked], like_gallery=like_gallery, rehearsed=rehearsed
    )
    moved = replace(fit, rule=replace(fit.rule, recalibrator=line))
    recalibration = Recalibration(
        vectors=queries.copy(),
        labels=labels,
        n_right=int(correct.sum()),
        mean_before=float(before.confidence.mean()),
        mean_after=float(moved.posterior(neighbors).confidence.mean()),
        like_gallery=like_gallery,
    )
    moved.recalibration, moved.labelled_search = recalibration, (mark, neighbors)
    return moved, recalibration


def expect_of_labels(
    fit: Fit, own: SelfSearch | None, found: Neighbors
) -> tuple[float, list[ShrunkPlatt]]:
    """What own points say about queries before their labels are seen, as `fit_line` takes it."""
    plain = fit.before_labels()
    # So few tell nothing about a shift.
    if (
        own is None
        or min(len(found), len(draw_by_prior(plain.prior_factors(), own.codes))) < FEWEST
    ):
        return LIKE_GALLERY, []
    check = check_against_own(plain, own, found)
    if check.alike:
        return LIKE_GALLERY, []
    lines = [ShrunkPlatt.fit(each.confidence, each.correct) for each in check.readings]
    return UNLIKE_GALLERY, lines


def search_labelled(
    fit: Fit, labelled: Recalibration, search: Callable[[AnyArray], Neighbors]
) -> Neighbors:
    """Neighbours of the labelled queries in the gallery as it is now, kept until it changes."""
    kept, mark = fit.labelled_search, fit.gallery.n_changes
    if kept is None or kept[0] != mark:
        kept = mark, search(labelled.vectors)
        fit.labelled_search = kept
    return kept[1]


def score_labelled(
    fit: Fit, labelled: Recalibration, search: Callable[[AnyArray], Neighbors]
) -> tuple[FloatArray, BoolArray]:
    """Confidence of the labelled queries in the gallery as it is now, and who is right."""
    posterior = fit.calibrated(search_labelled(fit, labelled, search))[0]
    return posterior.confidence, posterior.labels == codes_of(labelled.labels, fit.gallery.classes)


def fit_sets(
    fit: Fit,
    own: SelfSearch,
    search_queries: Callable[[AnyArray], Neighbors],
    *,
    k: int,
    alpha: float,
    score: ScoreName,
) -> tuple[ConformalFit, Callable[[Neighbors], Posterior]]:
    """What sets are made by, and the posterior of queries that it holds for.

    They rest on labelled queries if there are enough of them for alpha, and on own points if not.
    The posterior is that of the gallery alone, in which labelled queries had no part: so they are
    held-out points, and the guarantee is that of split conformal prediction.

    Where so many points miss their class that nothing could be ruled out, they are searched deeper.
    """
    gallery, plain = fit.gallery, fit.before_labels()
    codes, found, rests_on = own.codes, own.neighbors, "points"
    some = draw_by_prior(plain.prior_factors(), codes)
    search: Callable[[int], Neighbors] = partial(gallery.leave_one_out, own.ids)
    if fit.recalibration is not None:
        truth = codes_of(fit.recalibration.labels, gallery.classes)
        known = np.flatnonzero(truth < len(gallery.classes))
        if alpha * (len(known) + 1) >= 1.0 - ROUNDING:
            found = search_labelled(fit, fit.recalibration, search_queries).take(known)
            codes, some = truth[known], np.arange(len(known))
            search = partial(gallery.search, fit.recalibration.vectors[known])
            rests_on = "labelled queries"
        else:
            rests_on = f"points of the gallery, as {len(known):,} labelled queries are too few"
    to_posterior: Callable[[Neighbors], Posterior] = plain.posterior
    conformal = fit_conformal(to_posterior(found).take(some), codes[some], alpha=alpha, score=score)
    limit = gallery.engine.capabilities.largest_k or len(gallery)
    most = min(len(gallery) - 1, limit - 1, DEEPEST_ENTRIES // len(codes))
    while conformal.everything and conformal.n_missed and k < most:
        k = min(DEEPER * k, most)
        found = search(k)
        deeper = plain
        if plain.rule.form is not None:
            # Among more neighbours usual distances are longer.
            typical = float(np.median(query_scales(found))) or 1.0
            form = replace(plain.rule.form, typical_distance=typical)
            deeper = replace(plain, rule=replace(plain.rule, form=form))
        to_posterior = deeper.posterior
        posterior = to_posterior(found)
        conformal = fit_conformal(posterior.take(some), codes[some], alpha=alpha, score=score)
        conformal = replace(conformal, n_neighbors=k)
    return replace(conformal, rests_on=rests_on), to_posterior
