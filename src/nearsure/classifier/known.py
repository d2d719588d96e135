"""p(known) of queries in a gallery that may have changed since it was measured."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from nearsure.arrays import AnyArray, BoolArray, FloatArray, IntArray
from nearsure.classifier.rule import FittedRule, SelfSearch
from nearsure.decisions import UnknownClasses
from nearsure.errors import InvalidInputError, UnknownsNotRecognizedWarning
from nearsure.gallery import Gallery
from nearsure.labels import restored_classes, stored_classes
from nearsure.loo import check_several_classes
from nearsure.neighbors import Neighbors
from nearsure.posterior import Posterior
from nearsure.schema import BOOLEAN, OBJECT, POSITIVE, TEXT, array, check_fields, number, unreadable
from nearsure.temperature import fit_temperature
from nearsure.unknowns import (
    Evidence,
    GalleryDensity,
    KnownModel,
    Rehearsal,
    collect_evidence,
    measure_recognition,
    rehearse,
)

if TYPE_CHECKING:
    from typing import Self

_STORED = {
    "model": OBJECT,
    "unknown_share": number("a number in [0, 1)", 0.0, 1.0 - 2.0**-53),
    "kernel_width": POSITIVE,
    "ids_dtype": TEXT,
    "recognizes": BOOLEAN,
}


@dataclass(frozen=True, eq=False)
class UnknownDetector:
    """The model of p(known), and how dense the gallery is about each of its points.

    Parameters
    ----------
    model : KnownModel
        Learned from the gallery's rehearsal.
    unknown_share : float
        Share of unknowns among the queries.
    kernel_width : float
        Of the masses.
    ids : array of shape (n_measured,)
        Points that were measured, ascending.
    log_masses : array of shape (n_measured + n_classes + 1,)
        Theirs, then the mean of each class, then that of all: a point that came later has its
        class's, and one of a class that came later has that of all.
    recognizes : bool
        Whether rehearsed unknowns are told from known points clearly better than by chance. If not,
        there are no verdicts: they would say of every query that it is of the gallery.
    """

    model: KnownModel
    unknown_share: float
    kernel_width: float
    ids: AnyArray
    log_masses: FloatArray
    recognizes: bool = True

    def evidence(self, neighbors: Neighbors, posterior: Posterior) -> Evidence:
        """Of queries, from their neighbours and p(c | known)."""
        by_slot = _by_slot(neighbors, self.ids, len(self.log_masses) - len(self.ids) - 1)
        density = GalleryDensity(self.kernel_width, np.ones(1, np.int64), self.log_masses)
        return collect_evidence(by_slot, posterior, density, with_logits=self.model.has_logits)

    def p_known(self, neighbors: Neighbors, posterior: Posterior) -> FloatArray:
        """Probability that each query is of a class of the gallery, shape (n,)."""
        return self.model.p_known(self.evidence(neighbors, posterior), self.unknown_share)

    def with_model(self, model: KnownModel, unknown_share: float) -> "Self":
        """The same gallery with another model."""
        return replace(self, model=model, unknown_share=unknown_share)

    def to_state(self) -> tuple[dict[str, Any], dict[str, AnyArray]]:
        """Numbers for JSON, and arrays."""
        numbers = {
            "model": self.model.to_dict(),
            "unknown_share": self.unknown_share,
            "kernel_width": self.kernel_width,
            "ids_dtype": self.ids.dtype.str,
            "recognizes": self.recognizes,
        }
        arrays = {"known_ids": stored_classes(self.ids), "known_log_masses": self.log_masses}
        return numbers, arrays

    @classmethod
    def from_state(
        cls,
        numbers: dict[str, Any],
        arrays: dict[str, AnyArray],
        *,
        fit_ids: AnyArray,
        n_classes: int,
    ) -> "Self":
        """The inverse of `to_state`, for a fit on these points; `ModelFileError` otherwise."""
        owner = "What the model knows of unknowns"
        # Files of earlier versions do not say.
        numbers = {"recognizes": True, **numbers}
        check_fields(owner, numbers, _STORED)
        ids = restored_classes(arrays["known_ids"], numbers["ids_dtype"])
        masses = {"known_log_masses": arrays["known_log_masses"]}
        check_fields(owner, masses, {"known_log_masses": array("float64", None)})
        n_measured = len(ids)
        if not n_measured or ids.dtype.kind != fit_ids.dtype.kind:
            raise unreadable(owner, "its ids must be those of points of the fit")
        if not 1 < len(arrays["known_log_masses"]) - n_measured <= n_classes + 1:
            raise unreadable(owner, "it must have a mass for each point, each class, and all")
        return cls(
            KnownModel.from_dict(numbers["model"]),
            numbers["unknown_share"],
            numbers["kernel_width"],
            ids,
            arrays["known_log_masses"],
            numbers["recognizes"],
        )


def rehearse_gallery(
    gallery: Gallery,
    own: SelfSearch,
    rule: FittedRule,
    to_posterior: Callable[..., Posterior],
    class_sizes: IntArray,
) -> Rehearsal:
    """Take points of the gallery for known and for unknown queries.

    Only these points are measured; a stand-in of each class, behind them, has the mean of those of
    its class that were.

    Parameters
    ----------
    gallery : Gallery
        The gallery.
    own : SelfSearch
        The points.
    rule : FittedRule
        Whose temperature the evidence is measured with; one without any has NED's.
    to_posterior : callable
        From neighbours, and from an own pass, to p(c | known).
    class_sizes : array of shape (n_classes,)
        Members of each class.
    """
    check_several_classes(np.flatnonzero(class_sizes))
    return rehearse_points(
        own,
        gallery.leave_class_out(own.ids, own.neighbors.k),
        rule,
        to_posterior,
        class_sizes,
        # Logits of points whose class the head has seen are not those of unknown queries.
        with_logits=gallery.head is not None and bool(gallery.head.class_folds),
    )


def rehearse_points(
    own: SelfSearch,
    strangers: Neighbors,
    rule: FittedRule,
    to_posterior: Callable[..., Posterior],
    class_sizes: IntArray,
    *,
    with_logits: bool = False,
) -> Rehearsal:
    """The same of points that were searched already: `strangers` without their classes."""
    fit = rule.temperature_fit
    temperature = fit.temperature if fit else rule.temperature
    if temperature is None:
        temperature = fit_temperature(own.neighbors, own.codes).temperature
    stand_ins = np.arange(len(class_sizes))
    # A point that finds nothing but its class, as far as an engine lists, is no unknown query.
    seeing = np.flatnonzero(strangers.counts)
    if not seeing.size:
        raise InvalidInputError(
            "No point sees another class among as many neighbours as the engine is asked for, so "
            "that unknown queries cannot be imitated. Fit without unknown_share."
        )
    return rehearse(
        _by_slot(own.neighbors, own.ids, len(class_sizes) - 1),
        _by_slot(strangers.take(seeing), own.ids, len(class_sizes) - 1),
        np.arange(len(own.ids)),
        np.concatenate([own.codes, stand_ins]),
        temperature=temperature,
        to_posterior=to_posterior,
        own_posterior=to_posterior(own.neighbors, own=own),
        in_company=has_company(own),
        class_sizes=class_sizes,
        left_out_rows=seeing,
        with_logits=with_logits,
    )


def has_company(own: SelfSearch) -> BoolArray:
    """Which points have a fellow of their class left when they, or their groups, are out."""
    return np.asarray(own.factors > 1.0, np.bool_)


def fit_unknown_detector(
    own: SelfSearch, rehearsal: Rehearsal, unknown_share: float, class_sizes: IntArray
) -> UnknownDetector:
    """Learn p(known) from a gallery's rehearsal."""
    density = rehearsal.density
    measured, stand_ins = np.split(density.member_log_masses, [len(own.ids)])
    model = KnownModel.fit(rehearsal.known, rehearsal.unknown, rehearsal.far)
    recognition = measure_recognition(
        model.log_odds(rehearsal.known),
        model.log_odds(rehearsal.unknown),
        own.codes[rehearsal.unknown_rows],
    )
    if unknown_share and not recognition.works:
        warnings.warn(
            "This gallery cannot recognise queries of unknown classes. When its "
            f"{recognition.n_classes:,} classes were left out in turn, their points looked less "
            f"known than points whose class was there in {recognition.auroc:.0%} of all pairs. "
            f"Chance gives 50%, and no more than {recognition.low:.0%} is certain. So no verdicts "
            "are given, and p(known) is hardly more than the share of known queries. More "
            "classes, or other vectors, may change that.",
            UnknownsNotRecognizedWarning,
            stacklevel=2,
        )
    return UnknownDetector(
        model,
        unknown_share,
        density.kernel_width,
        own.ids,
        np.concatenate(
            [measured, np.where(class_sizes > 0, stand_ins, density.mean), [density.mean]]
        ),
        recognizes=recognition.works,
    )


def with_p_known(posterior: Posterior, p_known: FloatArray) -> Posterior:
    """p(known) p(c | known)."""
    return replace(posterior, probabilities=posterior.probabilities * p_known[posterior.rows])


def _by_slot(neighbors: Neighbors, ids: AnyArray, last_class: int) -> Neighbors:
    """The same neighbours, known by their place in `ids`, or behind it by their class."""
    found = np.asarray(neighbors.ids)
    places = np.minimum(np.searchsorted(ids, found), len(ids) - 1)
    stand_ins = len(ids) + np.clip(neighbors.labels, 0, last_class)
    slots = np.where(ids[places] == found, places, stand_ins)
    return Neighbors(
        neighbors.sq_distances, neighbors.labels, slots, neighbors.counts, neighbors.class_scores
    )


def rehearse_answers(
    detector: UnknownDetector,
    own: SelfSearch,
    rehearsal: Rehearsal,
    confidence: FloatArray,
) -> tuple[FloatArray, UnknownClasses]:
    """Confidence of points as known queries, and of those whose class was left out.

    Parameters
    ----------
    detector : UnknownDetector
        p(known), and the share.
    own, rehearsal : SelfSearch, Rehearsal
        Points as known queries, and as unknown ones.
    confidence : array of shape (n,)
        p(c | known) of each point's answer.
    """
    model, share = detector.model, detector.unknown_share
    p_known = np.zeros(len(own.codes))
    # A point whose class is left out with it is no known query: nothing is sure of it.
    p_known[has_company(own)] = model.p_known(rehearsal.known, share)
    unknown = rehearsal.unknown
    unknowns = UnknownClasses(
        unknown.confidence * model.p_known(unknown, share),
        own.codes[rehearsal.unknown_rows],
        share,
    )
    return confidence * p_known, unknowns


def mix_in_unknowns(
    confidence: FloatArray, correct: BoolArray, unknowns: UnknownClasses, *, seed: int
) -> tuple[FloatArray, BoolArray]:
    """Confidence and correctness of known queries, with unknown ones drawn in their share."""
    strangers = unknowns.confidence
    n_known, n_unknown = count_in_proportion(len(confidence), len(strangers), unknowns.share)
    rng = np.random.default_rng(seed)
    drawn = rng.permutation(len(confidence))[:n_known]
    others = rng.permutation(len(strangers))[:n_unknown]
    return (
        np.concatenate([confidence[drawn], strangers[others]]),
        np.concatenate([correct[drawn], np.zeros(len(others), np.bool_)]),
    )


def count_in_proportion(n_known: int, n_unknown: int, unknown_share: float) -> tuple[int, int]:
    """How many points of either kind make up the share: as many as there are."""
    wanted = round(n_known * unknown_share / (1.0 - unknown_share))
    if wanted <= n_unknown:
        return n_known, wanted
    return max(1, round(n_unknown * (1.0 - unknown_share) / unknown_share)), n_unknown
