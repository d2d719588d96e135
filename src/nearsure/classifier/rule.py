"""`FittedRule`: from neighbours to a calibrated posterior, and how it is fitted."""

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import check_random_state
from sklearn.utils.random import sample_without_replacement

from nearsure.arrays import AnyArray, BoolArray, FloatArray, IntArray
from nearsure.bursts import N_LISTED, N_LOOKED_AT
from nearsure.calibration import (
    CALIBRATORS,
    Calibrator,
    ShrunkPlatt,
    Unchanged,
    calibrator_from_dict,
)
from nearsure.classifier.parameters import CalibrationChoice, check_among, chosen_calibration
from nearsure.classifier.recalibration import fit_line
from nearsure.classifier.results import Support
from nearsure.errors import InvalidInputError
from nearsure.forms import FreeParameters, SharpenedFit, SharpenedNED, fit_sharpened
from nearsure.forms.sharpened import SHARPENED_NAMES, query_scales
from nearsure.gallery import Gallery
from nearsure.heads.joint import HEAD_ALONE, HeadFit, choose_head, join_head
from nearsure.loo import factors_of_sizes, has_small_classes, in_places, thin_alike
from nearsure.neighbors import ClassScores, Neighbors
from nearsure.posterior import Posterior, aggregate, neighbor_shares, with_confidence
from nearsure.rules import RULE_NAMES, RuleName, rule_weights
from nearsure.schema import (
    OBJECT,
    POSITIVE,
    check_fields,
    integer,
    list_of,
    nullable,
    one_of,
    reading,
    unreadable,
)
from nearsure.temperature import ObjectiveName, TemperatureFit, fit_temperature
from nearsure.validation import integer_codes

if TYPE_CHECKING:
    from typing import Self


# A point counts no less probable than this, or one mislabelled point would outweigh all others.
LEAST_PROBABILITY = 1e-3
# Of the points whose near-copies are looked for, and of what classes lose in a small gallery.
LOOK_SEED = THIN_SEED = 0
# A small gallery is rehearsed up to so many times, with up to so many points in all.
MOST_DRAWS, MOST_DRAWN = 8, 4000


@dataclass(frozen=True, eq=False)
class SelfSearch:
    """Support points with their leave-one-out neighbours.

    Parameters
    ----------
    ids : array of shape (n,)
        Of the points, ascending.
    neighbors : Neighbors
        Of each among the others.
    codes : array of shape (n,)
        Their classes.
    factors : array of shape (n,)
        What leaving them out took from their classes; see `nearsure.loo`.
    mark : int
        ``n_changes`` of the support set at the time.
    left : array of shape (n,) or None
        Members that their classes have without them; None if the fit is not to correct for it.
    """

    ids: AnyArray
    neighbors: Neighbors
    codes: IntArray
    factors: FloatArray
    mark: int
    left: IntArray | None = None

    def without_factors(self) -> "SelfSearch":
        """The same points, taken as they are."""
        return replace(self, factors=np.ones(len(self.factors)))

    def take(self, rows: IntArray) -> "SelfSearch":
        """The same of some of the points."""
        return SelfSearch(
            self.ids[rows],
            self.neighbors.take(rows),
            self.codes[rows],
            self.factors[rows],
            self.mark,
            None if self.left is None else self.left[rows],
        )


def self_search(gallery: Gallery, ids: AnyArray, k: int) -> SelfSearch:
    """Search some points of a gallery without themselves, or their groups."""
    # Before the searches: what is changed while they run makes the pass an old one.
    mark = gallery.n_changes
    codes = gallery.codes_of(ids)
    left = gallery.members_left(ids, codes)
    factors = factors_of_sizes(gallery.class_counts[codes], left)
    return SelfSearch(ids, gallery.leave_one_out(ids, k), codes, factors, mark, left)


def self_search_with_more(
    gallery: Gallery, ids: AnyArray, k: int
) -> tuple[SelfSearch, IntArray, Neighbors]:
    """The same, and for some of the points more neighbours, which show near-copies.

    Returns
    -------
    SelfSearch
        To the last bit that of `self_search`.
    rows : array of shape (n,)
        Which of the points have more.
    more : Neighbors
        Theirs; k outside of memory, where an engine that is asked for more may find other ones.
    """
    mark = gallery.n_changes
    codes = gallery.codes_of(ids)
    left = gallery.members_left(ids, codes)
    factors = factors_of_sizes(gallery.class_counts[codes], left)
    n_rows = max(1, N_LOOKED_AT * N_LISTED // max(k, N_LISTED))
    rows = draw_places(len(ids), n_rows, np.random.default_rng(LOOK_SEED))
    if k >= N_LISTED or not gallery.in_memory:
        found = gallery.leave_one_out(ids, k)
        return SelfSearch(ids, found, codes, factors, mark, left), rows, found.take(rows)
    more = gallery.leave_one_out(ids[rows], N_LISTED)
    found = more.first(min(k, more.k))
    if len(rows) < len(ids):
        others = np.setdiff1d(np.arange(len(ids)), rows)
        rest = gallery.leave_one_out(ids[others], k)
        found = in_places([(rows, found), (others, rest)], len(ids))
    return SelfSearch(ids, found, codes, factors, mark, left), rows, more


def rehearse_small(own: SelfSearch, class_sizes: IntArray) -> tuple[SelfSearch, int]:
    """Own points of a small gallery as queries, several times, and how many times.

    Parameters
    ----------
    own : SelfSearch
        With `left`.
    class_sizes : array of shape (n_classes,)
        Members of each class of the gallery.
    """
    n = len(own.codes)
    n_draws = max(1, min(MOST_DRAWS, MOST_DRAWN // n))
    rows = np.tile(np.arange(n), n_draws)
    thinned = thin_alike(
        own.neighbors.take(rows),
        own.codes[rows],
        class_sizes,
        np.asarray(own.left)[rows],
        np.random.default_rng(THIN_SEED),
    )
    return SelfSearch(
        own.ids[rows], thinned, own.codes[rows], np.ones(len(rows)), own.mark
    ), n_draws


def own_losses(posterior: Posterior, codes: IntArray) -> FloatArray:
    """-log p(own label) of points by leave-one-out, shape (n,)."""
    return -np.log(np.maximum(posterior.probability_of(codes), LEAST_PROBABILITY))


def mean_and_error(losses: FloatArray) -> tuple[float, float]:
    """Mean and its standard error."""
    spread = float(losses.std(ddof=1)) if len(losses) > 1 else 0.0
    return float(losses.mean()), spread / float(np.sqrt(len(losses)))


JUST_ABOVE = 1e-9
_STORED = {
    "name": one_of(*RULE_NAMES, *SHARPENED_NAMES),
    "temperature": nullable(POSITIVE),
    "form": nullable(OBJECT),
    "temperature_fit": nullable(OBJECT),
    "sharpened_fit": nullable(OBJECT),
    "calibrator": OBJECT,
    "class_sizes": nullable(list_of(integer(0, 2**53))),
}


@dataclass(frozen=True, eq=False)
class FittedRule:
    """All that was learned from a gallery about how sure to be; `fit_rule` makes it.

    Parameters
    ----------
    name : str
        The rule.
    temperature : float or None
        T, for NED and its sharpened forms.
    form : SharpenedNED or None
        The parameters of a sharpened form.
    temperature_fit : TemperatureFit or None
        How NED's T was fitted; None if it was given, or if the rule has none.
    sharpened_fit : SharpenedFit or None
        How the form was fitted.
    calibrator : Calibrator
        What is done to the confidence afterwards.
    class_sizes : array of shape (n_classes,) or None
        Members of each class at the fit.
    recalibrator : ShrunkPlatt or None
        What labelled queries did to the confidence after that; see `recalibration`.
    head : HeadFit or None
        The head beside the neighbours; None if no head was tried.
    """

    name: str
    temperature: float | None = None
    form: SharpenedNED | None = None
    temperature_fit: TemperatureFit | None = None
    sharpened_fit: SharpenedFit | None = None
    calibrator: Calibrator = field(default_factory=Unchanged)
    class_sizes: IntArray | None = None
    recalibrator: ShrunkPlatt | None = None
    head: HeadFit | None = None

    def posterior(
        self,
        neighbors: Neighbors,
        *,
        n_classes: int | None = None,
        class_sizes: IntArray | None = None,
        prior_factors: FloatArray | None = None,
        own: SelfSearch | None = None,
    ) -> Posterior:
        """Calibrated probabilities of queries, or of the support points of an own pass.

        Parameters
        ----------
        neighbors : Neighbors
            Of queries; those of `own`, if that is given.
        n_classes : int, optional
            Classes of the gallery; by default one more than the largest code among the neighbours.
        class_sizes : array of shape (n_classes,), optional
            Members of each class now; by default as at the fit.
        prior_factors : array of shape (n_classes,), optional
            See `nearsure.forms.prior`.
        own : SelfSearch, optional
            That these are points of the gallery.
        """
        posterior = self.uncalibrated_posterior(
            neighbors,
            n_classes=n_classes,
            class_sizes=class_sizes,
            prior_factors=prior_factors,
            own=own,
        )
        if isinstance(self.calibrator, Unchanged) and self.recalibrator is None:
            return posterior
        # The best of n classes has more than 1 / n, whatever a calibrator says.
        sizes = self.class_sizes if class_sizes is None else class_sizes
        n_possible = posterior.n_classes if sizes is None else int((sizes > 0).sum())
        least = min(1.0, (1.0 + JUST_ABOVE) / max(1, n_possible))
        confidence = np.maximum(self.calibrator(posterior.confidence), least)
        if self.recalibrator is not None:
            confidence = np.maximum(self.recalibrator(confidence), least)
        return with_confidence(posterior, np.where(np.diff(posterior.indptr) > 0, confidence, 0.0))

    def uncalibrated_posterior(
        self,
        neighbors: Neighbors,
        *,
        n_classes: int | None = None,
        class_sizes: IntArray | None = None,
        prior_factors: FloatArray | None = None,
        own: SelfSearch | None = None,
        near: Posterior | None = None,
    ) -> Posterior:
        """The same before calibration; `near` is what neighbours alone say, if it is known."""
        if self.form is not None:
            sizes = self.class_sizes if class_sizes is None else class_sizes
            joint = None if self.head is None else self.head.joint
            if near is None or joint is None:
                near = self.form.posterior(
                    neighbors,
                    n_classes=n_classes,
                    class_sizes=sizes,
                    class_factors=prior_factors if joint is None else None,
                    own_codes=None if own is None else own.codes,
                    own_factors=None if own is None else own.factors,
                )
            if joint is None:
                return near
            if neighbors.class_scores is None:
                raise InvalidInputError(
                    "neighbors must have class_scores, as those that the classifier finds have: "
                    "the answer rests on what classes as a whole look like, too. Got none."
                )
            return join_head(
                near,
                neighbors.class_scores,
                joint,
                factors=prior_factors,
                possible=None if sizes is None else sizes > 0,
            )
        weights = rule_weights(neighbors, cast("RuleName", self.name), self.temperature)
        return aggregate(neighbors, weights, n_classes=n_classes, class_factors=prior_factors)

    def vote_shares(
        self,
        neighbors: Neighbors,
        *,
        class_sizes: IntArray | None = None,
        prior_factors: FloatArray | None = None,
    ) -> FloatArray:
        """What each neighbour contributes to what the neighbours say, before calibration.

        A class's probability is divided among its neighbours in proportion to their weights. A
        head takes no part in it.

        Returns
        -------
        array of shape (n, k)
            In [0, 1], rows sum to 1; 0 behind ``neighbors.counts``.
        """
        near = replace(self, head=None).uncalibrated_posterior(
            neighbors, class_sizes=class_sizes, prior_factors=prior_factors
        )
        return self._share_out(neighbors, near)

    def _share_out(self, neighbors: Neighbors, near: Posterior) -> FloatArray:
        if self.form is None:
            weights = rule_weights(neighbors, cast("RuleName", self.name), self.temperature)
        else:
            weights = self.form.weights(neighbors)
        return neighbor_shares(neighbors, weights, near)

    def support(
        self,
        neighbors: Neighbors,
        codes: IntArray,
        *,
        class_sizes: IntArray | None = None,
        prior_factors: FloatArray | None = None,
    ) -> Support:
        """How probable answers are by neighbours alone and head alone, and each neighbour's share.

        Parameters
        ----------
        neighbors : Neighbors
            Of the queries.
        codes : array of shape (n,)
            The answers; -1 for none.
        class_sizes, prior_factors
            As of `posterior`.
        """
        near = replace(self, head=None).uncalibrated_posterior(
            neighbors, class_sizes=class_sizes, prior_factors=prior_factors
        )
        shares = self._share_out(neighbors, near)
        scores = neighbors.class_scores
        if self.head is None or self.head.joint is None or scores is None:
            return Support(near.probability_of(codes), None, shares)
        sizes = self.class_sizes if class_sizes is None else class_sizes
        by_head = join_head(
            near,
            scores,
            HEAD_ALONE,
            factors=prior_factors,
            possible=None if sizes is None else sizes > 0,
        ).probability_of(codes)
        is_known = (codes < scores.n_known) & ~np.isin(codes, scores.unheard)
        alone = np.where(is_known, by_head, np.nan)
        return Support(near.probability_of(codes), alone, shares)

    def to_dict(self) -> dict[str, Any]:
        """In JSON's types."""
        stored = {
            "name": self.name,
            "temperature": self.temperature,
            "form": self.form and self.form.to_dict(),
            "temperature_fit": self.temperature_fit and self.temperature_fit.to_dict(),
            "sharpened_fit": self.sharpened_fit and self.sharpened_fit.to_dict(),
            "calibrator": self.calibrator.to_dict(),
            "class_sizes": None if self.class_sizes is None else self.class_sizes.tolist(),
        }
        if self.recalibrator is not None:
            stored["recalibrator"] = self.recalibrator.to_dict()
        if self.head is not None:
            stored["head"] = self.head.to_dict()
        return stored

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> "Self":
        """The inverse of `to_dict`; `ModelFileError` for anything else."""
        # Only rules that were recalibrated, or were tried with a head, have these.
        line = {name: OBJECT for name in ("recalibrator", "head") if name in fields}
        check_fields("The rule", fields, _STORED | line)
        name, form, fit, sharpened, sizes = (
            fields[key]
            for key in ("name", "form", "temperature_fit", "sharpened_fit", "class_sizes")
        )
        has_form = name in SHARPENED_NAMES
        has_temperature = has_form or name == "ned"
        parts = (
            (fields["temperature"], "temperature", has_temperature),
            (form, "form", has_form),
            (sharpened, "sharpened_fit", has_form),
        )
        for part, key, is_due in parts:
            if (part is not None) != is_due:
                problem = "must not be null" if is_due else "must be null"
                raise unreadable("The rule", f"{key!r} {problem} for rule {name!r}")
        with reading("The calibrator"):
            calibrator = calibrator_from_dict(fields["calibrator"])
            has_line = "recalibrator" in line
            recalibrator = ShrunkPlatt.from_dict(fields["recalibrator"]) if has_line else None
        head = HeadFit.from_dict(fields["head"]) if "head" in line else None
        if head is not None and ((head.joint is None) != (head.name is None) or form is None):
            raise unreadable("The rule", "its head must have weights and a form")
        return cls(
            name=name,
            temperature=fields["temperature"],
            form=None if form is None else SharpenedNED.from_dict(form),
            temperature_fit=None if fit is None else TemperatureFit.from_dict(fit),
            sharpened_fit=None if sharpened is None else SharpenedFit.from_dict(sharpened),
            calibrator=calibrator,
            class_sizes=None if sizes is None else np.array(sizes, np.int64),
            recalibrator=recalibrator,
            head=head,
        )


def fit_rule(
    name: str,
    own: SelfSearch | None,
    *,
    temperature: float | None,
    objective: ObjectiveName,
    calibration: str,
    class_sizes: IntArray,
    prior_factors: FloatArray | None,
) -> FittedRule:
    """Fit a rule's parameters and its calibrator on the gallery's own points.

    Parameters
    ----------
    name : str
        The rule.
    own : SelfSearch or None
        The points; None where nothing has to be fitted.
    temperature : float or None
        T of NED, if it is given.
    objective : {"nll", "brier", "top_label"}
        What T of NED minimises.
    calibration : str
        Name of a calibrator.
    class_sizes : array of shape (n_classes,)
        Members of each class of the gallery.
    prior_factors : array of shape (n_classes,), optional
        Of another prior than the gallery's frequencies: a point of a class that is rarer in the
        gallery than among the queries counts more when the calibrator is fitted.
    """
    rule = FittedRule(name, temperature, class_sizes=class_sizes)
    if name in SHARPENED_NAMES and own is not None:
        played = fit_form(name, own, class_sizes)
        return played.finish(calibration, prior_factors)
    if name == "ned" and temperature is None and own is not None:
        found = fit_temperature(own.neighbors, own.codes, objective=objective)
        rule = replace(rule, temperature=found.temperature, temperature_fit=found)
    if own is None:
        return rule
    return Played(rule, own, rule).finish(calibration, prior_factors)


@dataclass(frozen=True, eq=False)
class Played:
    """Own points as queries, and the rule that was fitted on them, before it is calibrated.

    Parameters
    ----------
    rule : FittedRule
        For these points.
    points : SelfSearch
        The points.
    for_queries : FittedRule
        The same rule for queries, whose distances are not shortened; see `nearsure.loo`.
    n_draws : int
        How often each own point is among them.
    is_small : bool
        Whether the gallery is one of small classes.
    near : Posterior or None
        Of the points, by their neighbours alone, if it is known.
    """

    rule: FittedRule
    points: SelfSearch
    for_queries: FittedRule
    n_draws: int = 1
    is_small: bool = False
    near: Posterior | None = None

    def beside(
        self, scores: dict[str, ClassScores], left_out: dict[str, str], *, forced: bool
    ) -> "Played":
        """With the head that helps most beside the neighbours; see `choose_head`.

        Parameters
        ----------
        scores : dict of str to ClassScores
            Of the points of the own pass.
        left_out, forced
            As of `choose_head`.
        """
        points = self.points
        n_classes = len(np.asarray(self.rule.class_sizes))
        near = self.rule.uncalibrated_posterior(points.neighbors, n_classes=n_classes, own=points)
        drawn = scores
        if self.n_draws > 1:
            # Each draw has all own points in their order.
            rows = np.arange(len(points.codes)) % (len(points.codes) // self.n_draws)
            drawn = {name: each.take(rows) for name, each in scores.items()}
        head = choose_head(
            near, drawn, points.codes, left_out=left_out, forced=forced, n_draws=self.n_draws
        )
        if head.name is not None:
            points = replace(points, neighbors=points.neighbors.with_scores(drawn[head.name]))
        return replace(
            self,
            rule=replace(self.rule, head=head),
            for_queries=replace(self.for_queries, head=head),
            points=points,
            near=near,
        )

    def finish(self, calibration: str, prior_factors: FloatArray | None) -> FittedRule:
        """The rule with its calibrator."""
        if calibration == "none" or len(np.asarray(self.rule.class_sizes)) == 1:
            return self.for_queries
        points, near = self.points, self.near
        if self.is_small and calibration != "shrunk":
            first = np.arange(len(points.codes) // self.n_draws)
            points, near = points.take(first), None if near is None else near.take(first)
        confidence, correct, codes = _own_answers(self.rule, points, prior_factors, near)
        weights = None if prior_factors is None else prior_factors[codes]
        calibrator: Calibrator
        if calibration != "shrunk":
            calibrator = CALIBRATORS[calibration].fit(confidence, correct)
        elif self.is_small:
            # The confidence changes only as far as the points speak for it.
            each = np.ones(len(codes)) if weights is None else weights
            calibrator, _ = fit_line(confidence, correct, each / self.n_draws)
        else:
            calibrator = ShrunkPlatt.fit(confidence, correct, weights=weights)
        return replace(self.for_queries, calibrator=calibrator)


def fit_form(name: FreeParameters, own: SelfSearch, class_sizes: IntArray) -> Played:
    """Fit a sharpened form on the gallery's own points.

    Parameters
    ----------
    name : {"sharpened", "adaptive"}
        The form.
    own : SelfSearch
        The points.
    class_sizes : array of shape (n_classes,)
        Members of each class of the gallery.
    """
    is_small = own.left is not None and has_small_classes(own.codes, class_sizes)
    fit = fit_sharpened(
        own.neighbors,
        own.codes,
        free=name,
        own_factors=own.factors,
        class_sizes=class_sizes,
        with_errors=not is_small,
    )
    if is_small:
        return _fit_small(fit, own, class_sizes)
    if fit.temperature_fit.status != "interior":
        # Nothing was sharpened, and the factors would only break ties by the true label.
        own = own.without_factors()
    rule = _with_form(fit, class_sizes)
    return Played(rule, own, rule)


def _with_form(fit: SharpenedFit, class_sizes: IntArray) -> FittedRule:
    return FittedRule(
        fit.free,
        temperature=fit.form.temperature,
        form=fit.form,
        temperature_fit=fit.temperature_fit,
        sharpened_fit=fit,
        class_sizes=class_sizes,
    )


def _fit_small(alone: SharpenedFit, own: SelfSearch, class_sizes: IntArray) -> Played:
    """Fit a sharpened form on a gallery of small classes; see `nearsure.loo`.

    `alone` is the fit on points whose class alone is poorer: pairs leave one member, which does not
    tell T from gamma, and T stays where it was.
    """
    played, n_draws = rehearse_small(own, class_sizes)
    fit = fit_sharpened(
        played.neighbors,
        played.codes,
        free=alone.free,
        class_sizes=class_sizes,
        n_draws=n_draws,
        near=alone.form,
    )
    # Distances of queries are not shortened.
    typical = float(np.median(query_scales(own.neighbors))) or 1.0
    asked = replace(fit, form=replace(fit.form, typical_distance=typical))
    return Played(
        _with_form(fit, class_sizes),
        played,
        _with_form(asked, class_sizes),
        n_draws,
        is_small=True,
    )


def _own_answers(
    rule: FittedRule,
    own: SelfSearch,
    prior_factors: FloatArray | None,
    near: Posterior | None = None,
) -> tuple[FloatArray, BoolArray, IntArray]:
    """Confidence of own points before calibration, whether it is right, and their classes."""
    n_classes = len(np.asarray(rule.class_sizes))
    claimed = rule.uncalibrated_posterior(
        own.neighbors, n_classes=n_classes, prior_factors=prior_factors, own=own, near=near
    )
    asked = np.diff(claimed.indptr) > 0
    correct = (claimed.labels == own.codes)[asked]
    return claimed.confidence[asked], correct, own.codes[asked]


def fit_confidence(
    own: Neighbors,
    labels: ArrayLike,
    *,
    rule: FreeParameters | RuleName = "adaptive",
    calibration: CalibrationChoice = "auto",
    class_counts: ArrayLike | None = None,
) -> FittedRule:
    """Learn from a gallery's own neighbours how sure to be; any engine may have found them.

    It sees distances and no vectors. So it has no head, which the default of `NEDClassifier` has
    where one helps, and gives what that gives with ``head=None``.

    Parameters
    ----------
    own : Neighbors
        Neighbours of support points among the support set, without the points themselves: see
        `leave_one_out`. All points, or a random sample of them.
    labels : array of shape (n,)
        Integer class codes of the points.
    rule, calibration : str
        As of `NEDClassifier`.
    class_counts : array of shape (n_classes,), optional
        Members of each class in the gallery; by default they are counted in `labels`, which is
        right if `own` is of all points.

    Returns
    -------
    FittedRule
        ``posterior(neighbors)`` of what the engine found for queries, with as many neighbours.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> found = Neighbors(np.sort(rng.random((300, 9))), rng.integers(0, 3, (300, 9)))
    >>> labels = found.labels[np.arange(300), rng.integers(0, 4, 300)]
    >>> confidence = fit_confidence(found, labels).posterior(found).confidence
    >>> bool(((confidence > 1 / 3) & (confidence < 1)).all())
    True
    """
    codes = integer_codes(labels, len(own))
    check_among("rule", rule, (*RULE_NAMES, *SHARPENED_NAMES))
    n_classes = int(max(codes.max(), own.labels.max())) + 1
    counts = np.bincount(codes, minlength=n_classes)
    if class_counts is not None:
        counts = integer_codes(class_counts)
        if len(counts) < n_classes or (counts < np.bincount(codes, minlength=len(counts))).any():
            raise InvalidInputError(
                f"class_counts must count the members of all {n_classes} classes, at least as many "
                "as there are points of each."
            )
    left = counts[codes] - 1
    factors = factors_of_sizes(counts[codes], left)
    return fit_rule(
        rule,
        SelfSearch(np.arange(len(codes)), own, codes, factors, 0, left),
        temperature=None,
        objective="nll",
        calibration=chosen_calibration(calibration, rule, "support"),
        class_sizes=counts,
        prior_factors=None,
    )


def class_sizes(gallery: Gallery, n_classes: int) -> IntArray:
    """Members of each class, shape (n_classes,)."""
    # Others may add a class to an engine at any moment: it counts once its name is known.
    counts = gallery.class_counts[:n_classes]
    if len(counts) == n_classes:
        return counts
    sizes = np.zeros(n_classes, np.int64)
    sizes[: len(counts)] = counts
    return sizes


# Up to here a sample is drawn by a permutation of all points, beyond it in its own memory.
LARGEST_PERMUTATION = 10_000_000


def draw_places(
    n_points: int, n_drawn: int, generator: np.random.RandomState | np.random.Generator
) -> IntArray:
    """Places of some points among all, ascending, each once; all if there are no more.

    Examples
    --------
    >>> draw_places(3, 5, np.random.default_rng(0))
    array([0, 1, 2])
    """
    if n_points > LARGEST_PERMUTATION:
        seed = int(generator.permutation(2**16)[0])
        drawn = sample_without_replacement(n_points, n_drawn, random_state=seed)
    else:
        # For a RandomState this is what `choice` without replacement draws.
        drawn = generator.permutation(n_points)[:n_drawn]
    return np.sort(drawn).astype(np.int64)


def draw_ids(
    gallery: Gallery, n_most: int | None, random_state: int | np.random.RandomState | None
) -> AnyArray:
    """Ids of at most so many points of a gallery, ascending; None takes all."""
    n_points = len(gallery)
    if n_most is None or n_points <= n_most:
        return gallery.ids_at(np.arange(n_points))
    return gallery.ids_at(draw_places(n_points, n_most, check_random_state(random_state)))
