"""What promises and sets of a fit rest on: own points, labelled queries, queries as they come."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import ArrayLike

from nearsure.arrays import AnyArray, IntArray
from nearsure.bursts import N_LISTED, draw_one_per_group
from nearsure.classifier.fit import DRAW_SEED, Fit, draw_by_prior
from nearsure.classifier.recalibration import FEWEST_LABELS, Recalibration, fit_line
from nearsure.classifier.rule import SelfSearch, draw_places
from nearsure.decisions import ConformalFit, RestsOn, ScoreName, fit_conformal
from nearsure.errors import InvalidInputError
from nearsure.forms.sharpened import query_scales
from nearsure.gallery.counts import values_beside
from nearsure.labels import codes_of, labels_like
from nearsure.neighbors import Neighbors
from nearsure.posterior import Posterior
from nearsure.shift import QueryCheck, check_queries

# Own points that take the place of queries: as many as galleries had on which this was measured.
MOST_REHEARSED = 5000
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


def draw_for_promise(fit: Fit, own: SelfSearch) -> IntArray:
    """Which own points stand for queries: one of each group, in the proportions of the prior."""
    some = np.arange(len(own.codes))
    groups = _groups_of(fit, own.ids)
    if groups is not None:
        some = draw_one_per_group(groups, seed=DRAW_SEED)
    return some[draw_by_prior(fit.prior_factors(), own.codes[some])]


def check_against_own(fit: Fit, own: SelfSearch, found: Neighbors) -> QueryCheck:
    """Compare queries with own points in the proportions of the prior, some of many."""
    drawn = draw_by_prior(fit.prior_factors(), own.codes)
    some = drawn[draw_places(len(drawn), MOST_REHEARSED, np.random.default_rng(DRAW_SEED))]
    deepen = None
    if fit.gallery.in_memory:
        deepen = partial(fit.gallery.leave_one_out, own.ids[some], max(N_LISTED, own.neighbors.k))
    return check_queries(
        own.neighbors.take(some),
        own.codes[some],
        found,
        fit.class_sizes,
        fit.posterior,
        deepen=deepen,
        groups=_groups_of(fit, own.ids[some]),
        seed=DRAW_SEED,
    )


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
    fit: Fit, queries: AnyArray, labels: AnyArray, neighbors: Neighbors, mark: int
) -> tuple[Fit, Recalibration]:
    """The fit with its confidence moved by labelled queries, and what they have changed.

    Parameters
    ----------
    fit : Fit
        What earlier labels have taught it is forgotten.
    queries, labels : array of shape (n, n_features) and (n,)
        As they were checked.
    neighbors : Neighbors
        Of the queries.
    mark : int
        ``n_changes`` of the gallery before they were searched.
    """
    before, truth = fit.gallery_posterior(neighbors), codes_of(labels, fit.gallery.classes)
    correct = before.labels == truth
    asked = (neighbors.counts > 0) & (truth < len(fit.gallery.classes))
    line, like_gallery = fit_line(before.confidence[asked], correct[asked])
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


def fit_sets(
    fit: Fit, own: SelfSearch, k: int, alpha: float, score: ScoreName
) -> tuple[ConformalFit, Callable[[Neighbors], Posterior]]:
    """What sets are made by, and the posterior of queries that it holds for.

    Where so many points miss their class that nothing could be ruled out, they are searched deeper.
    """
    some = draw_by_prior(fit.prior_factors(), own.codes)
    codes = own.codes[some]
    to_posterior: Callable[[Neighbors], Posterior] = fit.posterior
    posterior = fit.posterior(own.neighbors)
    conformal = fit_conformal(posterior.take(some), codes, alpha=alpha, score=score)
    gallery = fit.gallery
    limit = gallery.engine.capabilities.largest_k or len(gallery)
    most = min(len(gallery) - 1, limit - 1, DEEPEST_ENTRIES // len(own.ids))
    while conformal.everything and conformal.n_missed and k < most:
        k = min(DEEPER * k, most)
        found = gallery.leave_one_out(own.ids, k)
        deeper = fit
        if fit.rule.form is not None:
            # Among more neighbours usual distances are longer.
            typical = float(np.median(query_scales(found))) or 1.0
            form = replace(fit.rule.form, typical_distance=typical)
            deeper = replace(fit, rule=replace(fit.rule, form=form))
        to_posterior = deeper.posterior
        posterior = to_posterior(found)
        conformal = fit_conformal(posterior.take(some), codes, alpha=alpha, score=score)
        conformal = replace(conformal, n_neighbors=k)
    return conformal, to_posterior


def _groups_of(fit: Fit, ids: AnyArray) -> IntArray | None:
    beside = fit.gallery.groups_beside
    return None if beside is None else values_beside(beside, ids)
