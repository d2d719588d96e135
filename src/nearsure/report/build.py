"""`query_report` and `gallery_report`."""

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from nearsure.arrays import AnyArray, BoolArray, FloatArray, IntArray
from nearsure.classifier import NEDClassifier
from nearsure.decisions import AcceptThreshold, choose_threshold
from nearsure.embedding_files.rows import plain_value
from nearsure.errors import InvalidInputError, QueriesDifferWarning
from nearsure.report import remarks
from nearsure.report.answers import (
    Answered,
    check_truth,
    codes_in_gallery,
    engine_name,
    nearly_found,
    ned_temperature,
    one_each,
    probes_of,
    texts_of,
)
from nearsure.report.confusion import Examples, confusion_of
from nearsure.report.document import About, PromiseCheck, Report
from nearsure.report.map import Plane, map_gallery
from nearsure.report.sections import (
    Confirmed,
    audit_of,
    check_promise,
    class_rows,
    compare_methods,
    confidence_histogram,
    confident_mistakes,
    fit_of,
    headline_metrics,
    operating_points,
    promise_of,
    reliability_bins,
    surest_mistakes,
)
from nearsure.report.thumbnails import Picture, Pictures, Thumbnails, picture_under

# Precisions that thresholds are chosen for.
TARGETS = (0.9, 0.95, 0.99, 0.995)
# The one whose check is shown first.
SHOWN_TARGET = 0.99
# Every point is searched for an audit.
LARGEST_AUDITED = 200_000
# Rows that the bootstrap may draw for each number: some seconds.
LARGEST_BOOTSTRAP = 5_000_000
FEWEST_RESAMPLES = 200


def _assemble(
    classifier: NEDClassifier,
    answered: Answered,
    queries: ArrayLike | None,
    *,
    kind: Literal["held-out", "leave-one-out"],
    scores: tuple[FloatArray, BoolArray],
    chosen: Iterable[AcceptThreshold],
    notes: Sequence[str | None],
    title: str,
    seed: int,
    n_resamples: int,
    n_mistakes: int,
    n_suspects: int,
    picture_of_row: Callable[[int], Picture | None],
    gallery_pictures: Pictures | None,
    vectors_of: Callable[[IntArray], AnyArray],
    checks: tuple[PromiseCheck, ...] = (),
    texts: Sequence[str | None] | None = None,
    with_audit: bool = True,
    confirmed: Confirmed | None = None,
    plane: Plane | None = None,
) -> Report:
    """Compute all that does not depend on where the queries came from.

    Parameters
    ----------
    classifier : NEDClassifier
        What answered.
    answered : Answered
        The queries.
    queries : array of shape (n, n_features) or None
        Their vectors; None if they are the classifier's own points.
    kind : {"held-out", "leave-one-out"}
        Where the queries came from.
    scores : pair of arrays of shape (m,)
        Confidence and correctness of the answers that thresholds are tested on.
    chosen : iterable of AcceptThreshold
        Which thresholds may be promised, by the same answers.
    notes : sequence of str or None
        On these queries.
    title, seed, n_resamples, n_mistakes, n_suspects, gallery_pictures, texts, with_audit
        As of `query_report`.
    picture_of_row, vectors_of : callable
        From the row of a query to its picture, and from rows to vectors.
    checks : tuple of PromiseCheck
        What these queries say of the promises of the fit.
    confirmed, plane
        As of `gallery_report`.
    """
    for name, value in (("n_mistakes", n_mistakes), ("n_suspects", n_suspects)):
        if value < 0:
            raise InvalidInputError(
                f"The '{name}' parameter must not be negative. Got {value} instead."
            )
    confidence, correct = answered.confidence, answered.correct
    # Parameters may be "auto", or changed since the fit.
    rule, calibration = classifier.rule_.name, classifier.rule_.calibrator.name
    class_sizes = classifier.class_counts_
    temperature = ned_temperature(classifier)
    n_drawn = min(n_resamples, max(FEWEST_RESAMPLES, LARGEST_BOOTSTRAP // len(answered)))
    thumbnails = Thumbnails()

    def texts_of_rows(rows: IntArray) -> list[str | None]:
        if texts is not None:
            return [texts[row] for row in rows]
        known = texts_of(classifier, answered.ids[rows])
        return [known.get(plain_value(name)) for name in answered.ids[rows]]

    promises = tuple(map(promise_of, chosen))
    probes = probes_of(classifier, queries, seed=seed)
    methods = compare_methods(
        answered,
        title=f"nearsure ({rule})"
        if calibration == "none"
        else f"nearsure ({rule}, {calibration})",
        temperature=temperature,
        probes=probes.posteriors,
        seed=seed,
        n_resamples=n_drawn,
    )
    mistakes = confident_mistakes(
        answered,
        classifier,
        n_mistakes=n_mistakes,
        thumbnails=thumbnails,
        picture_of_row=picture_of_row,
        texts_of_rows=texts_of_rows,
        gallery_pictures=gallery_pictures,
    )
    audit = on_audit = None
    if with_audit and classifier.n_support_ > LARGEST_AUDITED:
        on_audit = (
            f"The gallery was not audited: it has {classifier.n_support_:,} points, and every one "
            f"would have to be searched. Up to {LARGEST_AUDITED:,} are; classifier.audit() takes "
            "any number."
        )
    elif with_audit:
        try:
            audit = audit_of(
                classifier,
                n_suspects=n_suspects,
                thumbnails=thumbnails,
                pictures=gallery_pictures,
                confirmed=confirmed,
            )
        except InvalidInputError as error:
            on_audit = f"The gallery was not audited. {error}"
    metrics = headline_metrics(answered, methods[-1], seed=seed, n_resamples=n_drawn)
    show = partial(Examples, answered, thumbnails, picture_of_row, texts_of_rows)
    confusion, examples = confusion_of(answered, show()), show()
    every_note = (
        *notes,
        remarks.on_gap(metrics[0].estimate, float(confidence.mean())),
        remarks.on_near_copies(classifier.bursts_),
        remarks.on_missing_temperature(temperature),
        remarks.on_probes(probes, len(classifier.fit_indices_), classifier.n_support_),
        remarks.on_few_queries(len(answered)),
        remarks.on_fewer_resamples(n_resamples, n_drawn),
        remarks.on_long_tables(len(np.unique(answered.truth))),
        on_audit,
        thumbnails.note(),
    )
    return Report(
        about=About(
            title=title,
            queries=kind,
            n_queries=len(answered),
            n_gallery=classifier.n_support_,
            n_classes=int((class_sizes > 0).sum()),
            dimension=int(classifier.n_features_in_),
            k=int(answered.prediction.neighbors.k),
            rule=rule,
            calibration=calibration,
            metric=classifier.metric_,
            engine=engine_name(classifier),
            unknown_share=classifier.unknown_share_,
            nearsure_version=version("nearsure"),
            notes=tuple(note for note in every_note if note is not None),
        ),
        metrics=metrics,
        reliability=reliability_bins(confidence, correct),
        histogram=confidence_histogram(confidence, correct),
        operating_points=operating_points(*scores, promises),
        promises=promises,
        methods=methods,
        classes=class_rows(answered, class_sizes, examples),
        mistakes=mistakes,
        audit=audit,
        fit=fit_of(classifier),
        checks=checks,
        confusion=confusion,
        map=map_gallery(
            classifier,
            vectors_of(surest_mistakes(answered, n_mistakes)),
            plane=plane,
            seed=seed,
        ),
    )


def _check_promises(
    classifier: NEDClassifier, queries: ArrayLike, answered: Answered
) -> tuple[PromiseCheck, ...]:
    """What labelled queries say of the fit's promises; the one that is shown comes first.

    That is the promise of 99%, or else the strictest that the fit makes.
    """
    scores = answered.confidence, answered.correct
    try:
        chosen = [classifier.accept_threshold(precision=target) for target in TARGETS]
    except InvalidInputError:
        return ()
    reached = [place for place, one in enumerate(chosen) if one.reached]
    shown = TARGETS.index(SHOWN_TARGET)
    if shown not in reached:
        shown = max(reached, default=shown)
    checks = [check_promise(one, *scores) for one in chosen]
    first = checks.pop(shown)
    if answered.prediction.differences and first.threshold is not None:
        adjusted = classifier.accept_threshold(precision=first.precision, queries=queries)
        remark = {
            "holds": "holds nevertheless",
            "adjusted": f"is kept by a stricter threshold, {adjusted.threshold:.4g}",
            "withdrawn": "is withdrawn",
        }[adjusted.state]
        first = replace(
            first,
            sentence=f"{first.sentence} The queries are not like the gallery: checked against "
            f"them, the promise {remark}.",
        )
    return (first, *checks)


def query_report(
    classifier: NEDClassifier,
    queries: ArrayLike,
    labels: ArrayLike,
    *,
    title: str,
    ids: ArrayLike | None = None,
    pictures: Sequence[Picture | None] | None = None,
    gallery_pictures: Pictures | None = None,
    texts: Sequence[str | None] | None = None,
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
    texts : sequence of n str or None, optional
        What the queries were made of; a gallery in an .sqlite file has its own.
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
    with warnings.catch_warnings():
        # The report has it among its notes.
        warnings.simplefilter("ignore", QueriesDifferWarning)
        prediction = classifier.predict_with_confidence(queries)
    n_queries, classes = len(prediction.labels), classifier.classes_
    truth = check_truth(labels, n_queries, classes)
    names = np.arange(n_queries) if ids is None else one_each("ids", ids, n_queries)
    for name, given in (("pictures", pictures), ("texts", texts)):
        if given is not None and len(given) != n_queries:
            raise InvalidInputError(
                f"The {name!r} parameter must have one entry, which may be None, for each of the "
                f"{n_queries} queries. Got {len(given)} instead."
            )
    codes = codes_in_gallery(truth, classes, classifier.class_counts_)
    answered = Answered(prediction, classes, names, truth, codes)
    scores = answered.confidence, answered.correct
    return _assemble(
        classifier,
        answered,
        queries,
        kind="held-out",
        scores=scores,
        chosen=(choose_threshold(*scores, precision=target) for target in TARGETS),
        notes=[
            remarks.on_differences(
                prediction.differences, labelled=classifier.recalibrated_ is not None
            ),
            remarks.on_own_points(nearly_found(prediction.neighbors, codes)),
            remarks.on_unknown_queries(answered, classifier.unknown_share_),
        ],
        title=title,
        seed=seed,
        n_resamples=n_resamples,
        n_mistakes=n_mistakes,
        n_suspects=n_suspects,
        picture_of_row=lambda row: None if pictures is None else pictures[row],
        gallery_pictures=gallery_pictures,
        texts=[None] * n_queries if texts is None else texts,
        vectors_of=np.asarray(queries).__getitem__,
        checks=_check_promises(classifier, queries, answered),
        with_audit=with_audit,
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
    confirmed: Confirmed | None = None,
    plane: Plane | None = None,
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
    confirmed : callable, optional
        From ids, shape (n,), to whether a person has confirmed their labels: the audit does not
        list these.
    plane : Plane, optional
        Of an earlier map, so that points stay where they were.

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
    class_sizes = classifier.class_counts_
    codes = codes_in_gallery(truth, classes, class_sizes)
    return _assemble(
        classifier,
        Answered(prediction, classes, ids, truth, codes),
        None,
        kind="leave-one-out",
        scores=classifier.rehearsed_scores(),
        chosen=(classifier.accept_threshold(precision=target) for target in TARGETS),
        notes=[
            remarks.on_leaving_out(len(ids), classifier.n_support_),
            remarks.on_single_members(int((class_sizes[codes] == 1).sum())),
            remarks.on_missing_unknowns(classifier.unknown_share_),
            remarks.on_another_prior(classifier.prior_),
        ],
        title=title,
        seed=seed,
        n_resamples=n_resamples,
        n_mistakes=n_mistakes,
        n_suspects=n_suspects,
        picture_of_row=lambda row: picture_under(pictures, ids[row]),
        gallery_pictures=pictures,
        vectors_of=lambda rows: classifier.own_points(ids[rows])[0],
        confirmed=confirmed,
        plane=plane,
    )
