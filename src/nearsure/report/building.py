"""Reports on a classifier: from labelled queries, or from the gallery's own points."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from nearsure.classifier import NEDClassifier
from nearsure.errors import InvalidInputError
from nearsure.report import remarks
from nearsure.report.answered import Answered
from nearsure.report.assembling import ReportSettings, assembled
from nearsure.report.document import Report
from nearsure.report.gallery_facts import (
    expected_unknowns,
    gallery_size,
    has_another_prior,
    members_of_classes,
)
from nearsure.report.own_points import nearly_found
from nearsure.report.promises import held_out_promises, rehearsed_promises
from nearsure.report.thumbnails import Picture, Pictures, picture_under
from nearsure.report.truths import checked_truth, codes_in_gallery, one_each


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
    truth = checked_truth(labels, n_queries, classes)
    names = np.arange(n_queries) if ids is None else one_each("ids", ids, n_queries)
    if pictures is not None and len(pictures) != n_queries:
        raise InvalidInputError(
            f"The 'pictures' parameter must have one entry, which may be None, for each of the "
            f"{n_queries} queries. Got {len(pictures)} instead."
        )
    codes = codes_in_gallery(truth, classes, members_of_classes(classifier))
    answered = Answered(prediction, classes, names, truth, codes)
    return assembled(
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
    """Report on a gallery without any other data: each point of the fit leaves itself out.

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
        Confidence in it is what a query would be given: nothing knows the points' own labels.
        Promises are those of ``classifier.accept_threshold``, and thresholds are judged by the same
        points: where unknown queries are expected, they are rehearsed, too.
    """
    prediction = classifier.predict_own()
    ids = classifier.own_ids()
    truth, classes = classifier.support_labels(ids), classifier.classes_
    class_sizes = members_of_classes(classifier)
    codes = codes_in_gallery(truth, classes, class_sizes)
    return assembled(
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
