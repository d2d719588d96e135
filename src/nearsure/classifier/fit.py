"""`Fit`: a gallery with all that was fitted on it, and how it is fitted."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from nearsure.arrays import AnyArray, FloatArray, IntArray
from nearsure.bursts import N_LISTED, Bursts, find_bursts, group_near_copies
from nearsure.classifier.known import (
    UnknownDetector,
    fit_unknown_detector,
    rehearse_gallery,
    with_p_known,
)
from nearsure.classifier.parameters import settings_for
from nearsure.classifier.recalibration import Recalibration
from nearsure.classifier.results import WATCHED
from nearsure.classifier.rule import (
    FittedRule,
    SelfSearch,
    class_sizes,
    draw_ids,
    fit_rule,
    mean_and_error,
    own_losses,
    self_search_with_more,
)
from nearsure.engines.contract import Fingerprint
from nearsure.forms.prior import factors_of_prior, with_newcomers
from nearsure.gallery import Gallery
from nearsure.neighbors import Neighbors
from nearsure.posterior import Posterior
from nearsure.unknowns import Rehearsal, judge


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
    recalibration : Recalibration or None
        What labelled queries have taught; it survives a refit.
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
    recalibration: Recalibration | None = None
    labelled_search: tuple[int, Neighbors] | None = None
    warned_of: Fingerprint | None = None
    warned_stale: bool = False

    @property
    def class_sizes(self) -> IntArray:
        """Points of each class now."""
        return class_sizes(self.gallery, len(self.gallery.classes))

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

    def before_labels(self) -> "Fit":
        """The same as it was before labelled queries have changed the confidence."""
        if self.recalibration is None:
            return self
        rule = replace(self.rule, recalibrator=None)
        return replace(self, rule=rule, recalibration=None, labelled_search=None)

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
        verdicts = judge(p_known, within).names if self.known.recognizes else None
        return with_p_known(within, p_known), p_known, verdicts

    def watched_loss(self, own: SelfSearch) -> tuple[float, float]:
        """Mean leave-one-out loss of some points, and its standard error."""
        some = own.take(slice(None, None, -(-len(own.ids) // WATCHED)))
        return mean_and_error(own_losses(self.gallery_posterior(some.neighbors), some.codes))


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
    classes = gallery.classes
    sizes = class_sizes(gallery, len(classes))
    settings = settings_for(parameters, sizes, classes)
    own: SelfSearch | None = None
    ids = draw_ids(gallery, parameters["max_fit_samples"], parameters["random_state"])
    fit_again = partial(fit_gallery, gallery, parameters, metric)
    if settings.needs_own_pass:
        own, looked_at, more = self_search_with_more(gallery, ids, settings.k)
        if len(gallery.classes) > len(classes):
            # Others have added a class meanwhile.
            return fit_again(group_names, find_groups=find_groups, bursts=bursts)
    rule = fit_rule(
        settings.rule,
        own,
        temperature=settings.temperature,
        objective=parameters["objective"],
        calibration=settings.calibration,
        class_sizes=sizes,
        prior_factors=settings.prior_factors,
    )
    to_posterior = partial(
        rule.posterior, n_classes=len(classes), prior_factors=settings.prior_factors
    )
    if own is not None and bursts is None:
        bursts = find_bursts(
            own.neighbors,
            own.codes,
            ids,
            class_sizes=sizes,
            score=to_posterior,
            k=settings.k,
            some=looked_at,
            more=more,
        )
        if bursts.suspicious and find_groups:
            near = gallery.leave_one_out(None, N_LISTED)
            groups = group_near_copies(near, gallery.codes, gallery.ids, class_sizes=sizes)
            gallery.keep_groups(gallery.ids, groups)
            return fit_again(np.arange(groups.max() + 1), bursts=replace(bursts, grouped=True))
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
        fit.loss = fit.watched_loss(own)
    return fit, settings.k, ids
