"""The parts of a report, put together."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Literal

import numpy as np

from nearsure.arrays import BoolArray, FloatArray
from nearsure.classifier import NEDClassifier
from nearsure.errors import InvalidInputError
from nearsure.report import gallery_facts, remarks
from nearsure.report.answered import Answered
from nearsure.report.audit_part import audit_of
from nearsure.report.classes import class_rows
from nearsure.report.document import About, Audit, Promise, Report
from nearsure.report.fit_part import fit_of
from nearsure.report.headline import headline_metrics
from nearsure.report.methods import compared_methods
from nearsure.report.mistakes import confident_mistakes
from nearsure.report.operating_points import operating_points
from nearsure.report.reliability import confidence_histogram, reliability_bins
from nearsure.report.thumbnails import Picture, Pictures, Thumbnails

# Every point is searched for an audit.
LARGEST_AUDITED = 200_000
# Rows that the bootstrap may draw for each number: some seconds.
LARGEST_BOOTSTRAP = 5_000_000
FEWEST_RESAMPLES = 200


@dataclass(frozen=True, eq=False)
class ReportSettings:
    """What the caller of a report may choose; see `nearsure.report.query_report`."""

    title: str
    seed: int
    n_resamples: int
    n_mistakes: int
    n_suspects: int
    with_audit: bool = True
    picture_of_row: Callable[[int], Picture | None] = lambda _: None
    gallery_pictures: Pictures | None = None

    def __post_init__(self) -> None:
        for name in ("n_mistakes", "n_suspects"):
            value = getattr(self, name)
            if value < 0:
                raise InvalidInputError(
                    f"The '{name}' parameter must not be negative. Got {value} instead."
                )


def assembled(
    classifier: NEDClassifier,
    answered: Answered,
    settings: ReportSettings,
    *,
    kind: Literal["held-out", "leave-one-out"],
    scores: tuple[FloatArray, BoolArray],
    promises: tuple[Promise, ...],
    notes: Sequence[str | None],
) -> Report:
    """Compute all that does not depend on where the queries came from.

    Parameters
    ----------
    classifier : NEDClassifier
        Who answered.
    answered : Answered
        The queries.
    settings : ReportSettings
        What the reader wants to see.
    kind : {"held-out", "leave-one-out"}
        Where the queries came from.
    scores : pair of arrays of shape (m,)
        Confidence, and whether it was deserved, of the answers that thresholds are judged by.
    promises : tuple of Promise
        Which thresholds may be promised, by the same answers.
    notes : sequence of str or None
        What to know about these queries.
    """
    confidence, correct = answered.confidence, answered.correct
    rule, calibration = gallery_facts.rule_and_calibration(classifier)
    class_sizes = gallery_facts.members_of_classes(classifier)
    temperature = gallery_facts.ned_temperature(classifier)
    affordable = max(FEWEST_RESAMPLES, LARGEST_BOOTSTRAP // len(answered))
    n_resamples = min(settings.n_resamples, affordable)
    thumbnails = Thumbnails()
    compared = compared_methods(
        answered,
        title=f"nearsure ({rule})"
        if calibration == "none"
        else f"nearsure ({rule}, {calibration})",
        temperature=temperature,
        seed=settings.seed,
        n_resamples=n_resamples,
    )
    mistakes = confident_mistakes(
        answered,
        classifier,
        n_mistakes=settings.n_mistakes,
        thumbnails=thumbnails,
        picture_of_row=settings.picture_of_row,
        gallery_pictures=settings.gallery_pictures,
    )
    audit, on_audit = _audited(classifier, settings, thumbnails)
    every_note = (
        *notes,
        remarks.on_missing_temperature(temperature),
        remarks.on_few_queries(len(answered)),
        remarks.on_fewer_resamples(settings.n_resamples, n_resamples),
        remarks.on_long_tables(len(np.unique(answered.truth))),
        on_audit,
        thumbnails.note(),
    )
    return Report(
        about=About(
            title=settings.title,
            queries=kind,
            n_queries=len(answered),
            n_gallery=gallery_facts.gallery_size(classifier),
            n_classes=int((class_sizes > 0).sum()),
            dimension=int(classifier.n_features_in_),
            k=int(answered.prediction.neighbors.k),
            rule=rule,
            calibration=calibration,
            metric=gallery_facts.metric_name(classifier),
            engine=gallery_facts.engine_name(classifier),
            unknown_share=gallery_facts.expected_unknowns(classifier),
            nearsure_version=version("nearsure"),
            notes=tuple(note for note in every_note if note is not None),
        ),
        metrics=headline_metrics(
            answered, compared.own, seed=settings.seed, n_resamples=n_resamples
        ),
        reliability=reliability_bins(confidence, correct),
        histogram=confidence_histogram(confidence, correct),
        operating_points=operating_points(*scores, promises),
        promises=promises,
        methods=compared.methods,
        classes=class_rows(answered, class_sizes),
        mistakes=mistakes,
        audit=audit,
        fit=fit_of(classifier),
    )


def _audited(
    classifier: NEDClassifier, settings: ReportSettings, thumbnails: Thumbnails
) -> tuple[Audit | None, str | None]:
    """The audit, or why there is none."""
    if not settings.with_audit:
        return None, None
    n_points = gallery_facts.gallery_size(classifier)
    if n_points > LARGEST_AUDITED:
        return None, (
            f"The gallery was not audited: it has {n_points:,} points, and every one would have "
            f"to be searched. Up to {LARGEST_AUDITED:,} are; classifier.audit() takes any number."
        )
    try:
        audit = audit_of(
            classifier,
            n_suspects=settings.n_suspects,
            thumbnails=thumbnails,
            pictures=settings.gallery_pictures,
        )
    except InvalidInputError as error:
        return None, f"The gallery was not audited. {error}"
    return audit, None
