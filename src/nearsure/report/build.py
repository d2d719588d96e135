"""`query_report` and `gallery_report`."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from nearsure.arrays import BoolArray, FloatArray
from nearsure.classifier import NEDClassifier
from nearsure.errors import InvalidInputError
from nearsure.report import answers, remarks
from nearsure.report.answers import (
    Answered,
    check_truth,
    codes_in_gallery,
    expected_unknowns,
    gallery_size,
    has_another_prior,
    members_of_classes,
    nearly_found,
    one_each,
)
from nearsure.report.document import About, Audit, Promise, Report
from nearsure.report.sections import (
    audit_of,
    class_rows,
    compare_methods,
    confidence_histogram,
    confident_mistakes,
    fit_of,
    headline_metrics,
    held_out_promises,
    operating_points,
    rehearsed_promises,
    reliability_bins,
)
from nearsure.report.thumbnails import Picture, Pictures, Thumbnails, picture_under

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


def assemble_report(
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
        Confidence and correctness of the answers that thresholds are tested on.
    promises : tuple of Promise
        Which thresholds may be promised, by the same answers.
    notes : sequence of str or None
        What to know about these queries.
    """
    confidence, correct = answered.confidence, answered.correct
    rule, calibration = answers.rule_and_calibration(classifier)
    class_sizes = answers.members_of_classes(classifier)
    temperature = answers.ned_temperature(classifier)
    affordable = max(FEWEST_RESAMPLES, LARGEST_BOOTSTRAP // len(answered))
    n_resamples = min(settings.n_resamples, affordable)
    thumbnails = Thumbnails()
    compared = compare_methods(
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
    audit, on_audit = _audit_gallery(classifier, settings, thumbnails)
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
            n_gallery=answers.gallery_size(classifier),
            n_classes=int((class_sizes > 0).sum()),
            dimension=int(classifier.n_features_in_),
            k=int(answered.prediction.neighbors.k),
            rule=rule,
            calibration=calibration,
            metric=answers.metric_name(classifier),
            engine=answers.engine_name(classifier),
            unknown_share=answers.expected_unknowns(classifier),
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


def _audit_gallery(
    classifier: NEDClassifier, settings: ReportSettings, thumbnails: Thumbnails
) -> tuple[Audit | None, str | None]:
    """The audit, or why there is none."""
    if not settings.with_audit:
        return None, None
    n_points = answers.gallery_size(classifier)
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


def query_report(
    classifier: NEDClassifier,
    queries: ArrayLike,
    labels: ArrayLike,
    *,
    title: str,
    ids: ArrayLike | None = None,
    pictures: Sequence[Picture | None] | None = None,
    gallery_pictures: Pictures | None = None,
    seed: int = 0,
    n_resamples: int = 1000,
    n_mistakes: int = 20,
    n_suspects: int = 50,
    with_audit: bool = True,
) -> Report:
    """Report on answers to labelled queries that the gallery does not hold.

    Parameters
    ----------
    classifier : NEDClassifier
        Fitted.
    queries : array of shape (n, n_features)
        The queries.
    labels : array of shape (n,)
        Their true labels; classes that the gallery lacks are allowed, and count as wrong.
    title : str
        What the report is called.
    ids : array of shape (n,), optional
        What the queries are called; by default their row numbers.
    pictures : sequence of n paths or None, optional
        Images of the queries: paths, bytes of image files, or data: addresses. What cannot be read
        is a note.
    gallery_pictures : mapping of id to path, optional
        Images of points of the gallery.
    seed : int
        Of the bootstrap.
    n_resamples : int
        Resamples of each interval; fewer, and a note, where there are very many queries.
    n_mistakes, n_suspects : int
        Mistakes and suspect labels that are listed at most.
    with_audit : bool
        Whether the gallery is audited, too; more than 200,000 points never are.

    Returns
    -------
    Report

    Examples
    --------
    >>> gallery, names = [[0.0], [1.0], [9.0]], ["cat", "cat", "dog"]
    >>> classifier = NEDClassifier(temperature=1.0).fit(gallery, names)
    >>> report = query_report(classifier, [[0.5], [8.0]], ["cat", "emu"], title="Pets")
    >>> report.metrics[0].estimate.value, report.mistakes[0].label
    (0.5, 'dog')
    """
    prediction = classifier.predict_with_confidence(queries)
    n_queries, classes = len(prediction.labels), classifier.classes_
    truth = check_truth(labels, n_queries, classes)
    names = np.arange(n_queries) if ids is None else one_each("ids", ids, n_queries)
    if pictures is not None and len(pictures) != n_queries:
        raise InvalidInputError(
            f"The 'pictures' parameter must have one entry, which may be None, for each of the "
            f"{n_queries} queries. Got {len(pictures)} instead."
        )
    codes = codes_in_gallery(truth, classes, members_of_classes(classifier))
    answered = Answered(prediction, classes, names, truth, codes)
    return assemble_report(
        classifier,
        answered,
        ReportSettings(
            title=title,
            seed=seed,
            n_resamples=n_resamples,
            n_mistakes=n_mistakes,
            n_suspects=n_suspects,
            with_audit=with_audit,
            picture_of_row=lambda row: None if pictures is None else pictures[row],
            gallery_pictures=gallery_pictures,
        ),
        kind="held-out",
        scores=(answered.confidence, answered.correct),
        promises=held_out_promises(answered.confidence, answered.correct),
        notes=[
            remarks.on_own_points(nearly_found(prediction.neighbors, codes)),
            remarks.on_unknown_queries(answered, expected_unknowns(classifier)),
        ],
    )


def gallery_report(
    classifier: NEDClassifier,
    *,
    title: str,
    pictures: Pictures | None = None,
    seed: int = 0,
    n_resamples: int = 1000,
    n_mistakes: int = 20,
    n_suspects: int = 50,
) -> Report:
    """Report on a gallery without any other data: each point of the fit is left out in turn.

    Parameters
    ----------
    classifier : NEDClassifier
        Fitted, with two points or more.
    title : str
        What the report is called.
    pictures : mapping of id to path, optional
        Images of points of the gallery: paths, bytes of image files, or data: addresses. Only
        those that are shown are asked for.
    seed, n_resamples, n_mistakes, n_suspects : int
        See `query_report`.

    Returns
    -------
    Report
        Confidence in it is what a query would be given: it does not use the points' own labels.
        Promises are those of ``classifier.accept_threshold``, and thresholds are tested on the same
        points: where unknown queries are expected, they are rehearsed, too.
    """
    prediction = classifier.predict_own()
    ids = classifier.own_ids()
    truth, classes = classifier.support_labels(ids), classifier.classes_
    class_sizes = members_of_classes(classifier)
    codes = codes_in_gallery(truth, classes, class_sizes)
    return assemble_report(
        classifier,
        Answered(prediction, classes, ids, truth, codes),
        ReportSettings(
            title=title,
            seed=seed,
            n_resamples=n_resamples,
            n_mistakes=n_mistakes,
            n_suspects=n_suspects,
            picture_of_row=lambda row: picture_under(pictures, ids[row]),
            gallery_pictures=pictures,
        ),
        kind="leave-one-out",
        scores=classifier.rehearsed_scores(),
        promises=rehearsed_promises(classifier),
        notes=[
            remarks.on_leaving_out(len(ids), gallery_size(classifier)),
            remarks.on_lonely_points(int((class_sizes[codes] == 1).sum())),
            remarks.on_missing_unknowns(expected_unknowns(classifier)),
            remarks.on_another_prior() if has_another_prior(classifier) else None,
        ],
    )
