"""The sections of a report, a function for each."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from nearsure.arrays import AnyArray, BoolArray, FloatArray, IntArray
from nearsure.classifier import NEDClassifier
from nearsure.comparison import RuleResult, compare_rules, score_by, title_of
from nearsure.decisions import AcceptThreshold
from nearsure.embedding_files.rows import plain_value
from nearsure.metrics import (
    area_under_risk_coverage,
    bin_by_confidence,
    bootstrap_interval,
    debiased_calibration_error,
    error_detection_auroc,
    risk_coverage_curve,
    row_negative_log_likelihoods,
)
from nearsure.metrics.calibration_error import width_bins
from nearsure.posterior import Posterior
from nearsure.progress import tracked, watching
from nearsure.report.answers import Answered, texts_of
from nearsure.report.confusion import Examples
from nearsure.report.document import (
    Audit,
    ClassRow,
    ConfusablePair,
    Confused,
    CurvePoint,
    DuplicatePair,
    Estimate,
    Example,
    Fit,
    HistogramBin,
    Method,
    Metric,
    Mistake,
    OperatingPoint,
    Promise,
    PromiseCheck,
    ReliabilityBin,
    SmallClass,
    SupportingNeighbor,
    Suspect,
    Verdict,
    estimate_of,
    plain_label,
    plain_number,
    share_of,
    shares_of,
)
from nearsure.report.thumbnails import Picture, Pictures, Thumbnails, picture_under
from nearsure.rules import RULE_NAMES, RuleName

# Pairs of classes and small classes that are listed.
ROWS_SHOWN = 50
Confirmed: TypeAlias = Callable[[AnyArray], BoolArray]


def audit_of(
    classifier: NEDClassifier,
    *,
    n_suspects: int,
    thumbnails: Thumbnails | None = None,
    pictures: Pictures | None = None,
    confirmed: Confirmed | None = None,
) -> Audit:
    """Audit a gallery: every point is searched, left out of its own neighbours.

    Parameters
    ----------
    classifier : NEDClassifier
        Fitted, with two points or more.
    n_suspects : int
        Suspects and near-duplicates that are listed at most.
    thumbnails, pictures : Thumbnails, mapping of id to picture
        For pictures of the suspects.
    confirmed : callable, optional
        From ids, shape (n,), to whether a person has confirmed their labels, shape (n,): these are
        not listed.
    """
    found = classifier.audit()
    small_pictures = thumbnails or Thumbnails()
    classes = [plain_label(label) for label in classifier.classes_]
    doubted = found.suspects.first(found.suspects.n_doubted)
    if confirmed is not None and len(doubted):
        doubted = doubted[~confirmed(doubted.ids)]
    n_left = len(doubted)
    doubted = doubted.first(n_suspects)
    pairs, confusable, small = found.duplicates, found.confusable, found.small
    low, high = found.suspects.wrong.between
    texts = texts_of(classifier, doubted.ids)
    return Audit(
        n_points=found.n_points,
        n_wrong=found.suspects.wrong.n,
        n_wrong_low=low,
        n_wrong_high=high,
        n_suspects=n_left,
        n_confirmed=found.suspects.n_doubted - n_left,
        n_duplicates=len(pairs),
        n_small=len(small),
        suspects=tuple(
            Suspect(
                id=plain_label(doubted.ids[i]),
                label=classes[doubted.codes[i]],
                suggested=None
                if doubted.suggested_codes[i] < 0
                else classes[doubted.suggested_codes[i]],
                p_own=float(doubted.p_own[i]),
                p_suggested=float(doubted.p_suggested[i]),
                trust=float(doubted.trust[i]),
                picture=small_pictures.of(picture_under(pictures, doubted.ids[i])),
                text=texts.get(doubted.ids[i].item()),
            )
            for i in range(len(doubted))
        ),
        duplicates=tuple(
            DuplicatePair(
                first_id=plain_label(pairs.ids[i, 0]),
                second_id=plain_label(pairs.ids[i, 1]),
                first_label=classes[pairs.codes[i, 0]],
                second_label=classes[pairs.codes[i, 1]],
                sq_distance=float(pairs.sq_distances[i]),
            )
            for i in range(min(n_suspects, len(pairs)))
        ),
        confusable=tuple(
            ConfusablePair(classes[first], classes[second], float(confusable.confusion[i]))
            for i, (first, second) in enumerate(confusable.codes[:ROWS_SHOWN])
        ),
        small=tuple(
            SmallClass(
                label=classes[small.codes[i]],
                n_members=int(small.n_members[i]),
                n_missed=int(small.n_missed[i]),
                accuracy=plain_number(float(small.accuracy[i])),
            )
            for i in range(min(ROWS_SHOWN, len(small)))
        ),
    )


CONFUSED_SHOWN = 3
EXAMPLES_SHOWN = 4
# A row takes about 200 bytes.
LARGEST_TABLE = 5000


def class_rows(
    answered: Answered, class_sizes: IntArray, examples: Examples
) -> tuple[ClassRow, ...]:
    """Rows by accuracy, then by more queries, then by label; at most 5,000 of them.

    Parameters
    ----------
    answered : Answered
        The queries.
    class_sizes : array of shape (n_classes,)
        Points of each class in the gallery.
    examples : Examples
        Shows some of them.
    """
    labels, place = np.unique(answered.truth, return_inverse=True)
    n_queries = np.bincount(place)
    n_right = np.bincount(place[answered.correct], minlength=len(labels))
    mean_confidence = np.bincount(place, answered.confidence) / n_queries
    codes = np.empty(len(labels), np.int64)
    codes[place] = answered.codes
    in_gallery = np.append(class_sizes[: len(answered.classes)], 0)[codes]
    worst_first = np.lexsort((np.arange(len(labels)), -n_queries, n_right / n_queries))
    shown = worst_first[:LARGEST_TABLE]
    shares = shares_of(n_right[shown], n_queries[shown])
    by_class = np.argsort(place, kind="stable")
    starts = np.append(0, np.cumsum(n_queries))

    def show(rows: IntArray) -> tuple[Example, ...]:
        right = rows[answered.correct[rows]]
        surest = np.argsort(-answered.confidence[right], kind="stable")
        return examples.of(right[surest[:EXAMPLES_SHOWN]])

    return tuple(
        ClassRow(
            label=plain_label(labels[row]),
            n_gallery=int(in_gallery[row]),
            n_queries=int(n_queries[row]),
            accuracy=share,
            mean_confidence=float(mean_confidence[row]),
            confused_with=_count_confusions(answered, by_class[starts[row] : starts[row + 1]]),
            examples=show(by_class[starts[row] : starts[row + 1]]),
        )
        for row, share in zip(shown, shares, strict=True)
    )


def _count_confusions(answered: Answered, rows: IntArray) -> tuple[Confused, ...]:
    """What the queries of one class were mostly taken for."""
    wrong = answered.answers[rows][~answered.correct[rows]]
    codes, counts = np.unique(wrong, return_counts=True)
    most = np.lexsort((codes, -counts))[:CONFUSED_SHOWN]
    return tuple(Confused(answered.label_of(int(codes[i])), int(counts[i])) for i in most)


def fit_of(classifier: NEDClassifier) -> Fit | None:
    """The fit of a classifier; None for a rule without a temperature."""
    found, sharpened = classifier.temperature_fit_, classifier.sharpened_fit_
    head = classifier.head_fit_
    if classifier.temperature_ is None:
        return None
    parameters: dict[str, float] = {}
    if sharpened is not None:
        parameters = {
            "gamma": float(sharpened.form.sharpness),
            "beta": float(sharpened.form.adaptivity),
            "typical_sq_distance": float(sharpened.form.typical_distance),
        }
    temperature = float(classifier.temperature_)
    if found is None:  # T was given
        objective = classifier.objective
        return Fit(temperature, None, None, None, objective, 0, 0, 0.0, (), parameters)
    curve = zip(found.curve_temperatures.tolist(), found.curve_losses.tolist(), strict=True)
    return Fit(
        temperature=temperature,
        ned_temperature=float(found.temperature),
        standard_error=plain_number(found.standard_error),
        status=found.status,
        objective=found.objective,
        n_points=int(found.n_points),
        n_missed=int(found.n_missed),
        miss_fraction=float(found.miss_fraction),
        curve=tuple(CurvePoint(x, y) for x, y in curve if plain_number(y) is not None),
        parameters=parameters,
        head=None if head is None else head.name,
        head_choice=None if head is None else str(head),
    )


# A true class that is not among the neighbours has probability 0, whose logarithm is infinite.
LEAST_PROBABILITY = 0.001
LOWER_IS_BETTER = {"ece", "debiased_ece", "brier", "nll", "aurc", "known_refused"}
NOT_IN_PERCENT = {"brier", "nll"}
TITLES = {
    "accuracy": "Accuracy",
    "mean_confidence": "Mean confidence",
    "ece": "Calibration error (ECE)",
    "debiased_ece": "Debiased ECE",
    "brier": "Brier score",
    "nll": "Log loss",
    "aurc": "Area under risk-coverage",
    "error_auroc": "Error detection (AUROC)",
    "known_accuracy": "Accuracy on known classes",
    "unknown_caught": "Unknowns recognised",
    "known_refused": "Known queries called unknown",
    "unknown_auroc": "Unknown detection (AUROC)",
}
MEANINGS = {
    "accuracy": "Share of the answers that are right.",
    "mean_confidence": "The average confidence of the answers; it should equal the accuracy.",
    "ece": "How far confidence lies from accuracy, averaged over 15 bins. A perfectly "
    "calibrated method would show its floor by chance: the debiased error, with the interval, has "
    "an estimate of that taken off.",
    "debiased_ece": "The calibration error less an estimate of what chance adds to it; it may be "
    "below 0.",
    "brier": "Squared error of all class probabilities, from 0 to 2: accuracy and "
    "calibration in one.",
    "nll": "Mean of -log p(true class); a probability below "
    f"{LEAST_PROBABILITY} counts as {LEAST_PROBABILITY}.",
    "aurc": "Share of wrong answers among those accepted, averaged over all thresholds.",
    "error_auroc": "How often a right answer has more confidence than a wrong one; 50% is chance.",
    "known_accuracy": "Share of right answers among queries of classes that the gallery has.",
    "unknown_caught": "Share of the queries of other classes that are called unknown.",
    "known_refused": "Share of the queries of the gallery's classes that are called unknown.",
    "unknown_auroc": "How often a known query has a higher p(known) than an unknown one; 50% is "
    "chance.",
}


def headline_metrics(
    answered: Answered, own: Method, *, seed: int, n_resamples: int
) -> tuple[Metric, ...]:
    """Accuracy, calibration, ranking, and what fits where queries may be unknown.

    Parameters
    ----------
    answered : Answered
        The queries.
    own : Method
        What the comparison of methods has measured of the classifier.
    seed, n_resamples : int
        Of the bootstrap.
    """

    def resampled(
        metric: Callable[..., float], *data: ArrayLike, bounds: tuple[float, float] | None = None
    ) -> Estimate:
        return estimate_of(
            bootstrap_interval(metric, *data, seed=seed, n_resamples=n_resamples, bounds=bounds)
        )

    confidence, correct = answered.confidence, answered.correct
    losses = row_negative_log_likelihoods(
        answered.prediction.posterior, answered.codes, floor=LEAST_PROBABILITY
    )
    return (
        _metric("accuracy", share_of(int(correct.sum()), len(correct))),
        _metric("mean_confidence", resampled(np.mean, confidence, bounds=(0.0, 1.0))),
        _metric("ece", own.ece, floor=own.ece_floor),
        _metric("debiased_ece", own.debiased_ece or Estimate(None)),
        _metric("brier", own.brier),
        _metric("nll", resampled(np.mean, losses, bounds=(0.0, -np.log(LEAST_PROBABILITY)))),
        _metric("aurc", resampled(area_under_risk_coverage, confidence, correct)),
        _metric("error_auroc", resampled(error_detection_auroc, confidence, correct)),
        *_unknown_metrics(answered, resampled),
    )


def _metric(key: str, estimate: Estimate, floor: float | None = None) -> Metric:
    return Metric(
        key,
        TITLES[key],
        estimate,
        lower_is_better=key in LOWER_IS_BETTER,
        percent=key not in NOT_IN_PERCENT,
        meaning=MEANINGS[key],
        floor=floor,
    )


def _unknown_metrics(answered: Answered, resampled: Callable[..., Estimate]) -> Iterator[Metric]:
    """What fits where queries are, or are expected to be, of classes that the gallery lacks."""
    known, prediction = answered.known, answered.prediction
    n_known, n_unknown = int(known.sum()), int((~known).sum())
    if n_known and n_unknown:
        yield _metric("known_accuracy", share_of(int(answered.correct.sum()), n_known))
    if prediction.p_known is None or prediction.verdicts is None:
        return
    refused = prediction.verdicts == "unknown"
    if n_unknown:
        yield _metric("unknown_caught", share_of(int(refused[~known].sum()), n_unknown))
    if n_known:
        yield _metric("known_refused", share_of(int(refused[known].sum()), n_known))
    if n_known and n_unknown:
        p_known = prediction.p_known
        yield _metric("unknown_auroc", resampled(error_detection_auroc, p_known, known))


OWN_NAME = "nearsure"
CURVE_POINTS = 100


def compare_methods(
    answered: Answered,
    *,
    title: str,
    temperature: float | None,
    probes: Mapping[str, Posterior],
    seed: int,
    n_resamples: int,
) -> tuple[Method, ...]:
    """Score the neighbours by every rule: all methods, the classifier itself last.

    Parameters
    ----------
    answered : Answered
        The queries.
    title : str
        What the classifier is called in the table.
    temperature : float or None
        T of NED; without one, NED is left out.
    probes : mapping of str to Posterior
        What linear probes make of the same queries, by name.
    seed, n_resamples : int
        Of the bootstrap.
    """
    neighbors, own = answered.prediction.neighbors, answered.prediction.posterior
    rules: tuple[RuleName, ...] = tuple(
        rule for rule in RULE_NAMES if rule != "ned" or temperature is not None
    )
    any_temperature = 1.0 if temperature is None else temperature
    posteriors: dict[str, Posterior] = {
        rule: score_by(rule, neighbors, any_temperature) for rule in rules
    }
    others = {**probes, OWN_NAME: own}
    posteriors |= others
    comparison = compare_rules(
        neighbors,
        answered.codes,
        temperature=any_temperature,
        seed=seed,
        rules=rules,
        others=others,
        n_resamples=n_resamples,
    )
    debiased = partial(
        bootstrap_interval, debiased_calibration_error, seed=seed, n_resamples=n_resamples
    )

    def describe(result: RuleResult) -> Method:
        posterior = posteriors[result.rule]
        confidence, correct = posterior.confidence, posterior.labels == answered.codes
        with watching(None):
            debiased_ece = estimate_of(debiased(confidence, correct))
        return Method(
            name=result.rule,
            title=title if result.rule == OWN_NAME else title_of(result.rule),
            accuracy=share_of(int(correct.sum()), len(correct)),
            # Its interval is that of the debiased error.
            ece=Estimate(plain_number(result.ece.estimate)),
            brier=estimate_of(result.brier),
            ece_floor=plain_number(result.ece_floor),
            risk_coverage=thin_curve(confidence, correct),
            debiased_ece=debiased_ece,
        )

    results = comparison.results
    return tuple(map(describe, tracked("comparing rules", results, len(results))))


def thin_curve(confidence: FloatArray, correct: BoolArray) -> tuple[CurvePoint, ...]:
    """Points of the risk-coverage curve, the first that reach each percent of coverage."""
    curve = risk_coverage_curve(confidence, correct)
    wanted = np.arange(1, CURVE_POINTS + 1) / CURVE_POINTS
    places = np.unique(np.searchsorted(curve.coverage, wanted - 1e-12))
    return tuple(
        CurvePoint(float(curve.coverage[place]), float(curve.risk[place])) for place in places
    )


NEIGHBORS_SHOWN = 8


def surest_mistakes(answered: Answered, n_mistakes: int) -> IntArray:
    """Rows of wrong answers, the most confident first, at most so many."""
    wrong = np.flatnonzero(~answered.correct)
    return wrong[np.argsort(-answered.confidence[wrong], kind="stable")][:n_mistakes]


def confident_mistakes(
    answered: Answered,
    classifier: NEDClassifier,
    *,
    n_mistakes: int,
    thumbnails: Thumbnails,
    picture_of_row: Callable[[int], Picture | None],
    texts_of_rows: Callable[[IntArray], Sequence[str | None]],
    gallery_pictures: Pictures | None,
) -> tuple[Mistake, ...]:
    """Wrong answers, the most confident first, each with its nearest neighbours.

    Parameters
    ----------
    answered : Answered
        The queries.
    classifier : NEDClassifier
        Whose votes they were.
    n_mistakes : int
        At most so many.
    thumbnails : Thumbnails
        Makes the pictures.
    picture_of_row, texts_of_rows : callable
        From the row of a query to its picture, and from rows to texts.
    gallery_pictures : mapping of id to picture
        Of the neighbours.
    """
    first = surest_mistakes(answered, n_mistakes)
    if not first.size:
        return ()
    neighbors = answered.prediction.neighbors.take(first)
    shares = classifier.vote_shares(neighbors)
    support = classifier.support(answered.prediction)
    near = np.empty(0, int) if neighbors.ids is None else np.unique(neighbors.ids)
    known = texts_of(classifier, near)

    def describe(place: int, rank: int) -> SupportingNeighbor:
        # Neighbours without ids are known by their rank.
        name = rank if neighbors.ids is None else neighbors.ids[place, rank]
        return SupportingNeighbor(
            id=plain_label(name),
            label=answered.label_of(int(neighbors.labels[place, rank])),
            sq_distance=float(neighbors.sq_distances[place, rank]),
            share=float(shares[place, rank]),
            picture=thumbnails.of(picture_under(gallery_pictures, name)),
            text=known.get(plain_value(name)),
        )

    return tuple(
        Mistake(
            id=plain_label(answered.ids[row]),
            label=answered.label_of(int(answered.answers[row])),
            truth=plain_label(answered.truth[row]),
            confidence=float(answered.confidence[row]),
            neighbors=tuple(
                describe(place, rank)
                for rank in range(min(int(neighbors.counts[place]), NEIGHBORS_SHOWN))
            ),
            picture=thumbnails.of(picture_of_row(int(row))),
            p_neighbors=None if support.head is None else float(support.neighbors[row]),
            p_head=None if support.head is None else plain_number(float(support.head[row])),
            text=text,
        )
        for place, (row, text) in enumerate(zip(first, texts_of_rows(first), strict=True))
    )


# Steps of 0.005, then 0.001, then 0.0005: most confidences lie near 1, and so do most choices.
GRID = np.concatenate(
    [np.arange(190) / 200, np.arange(950, 990) / 1000, np.arange(1980, 2001) / 2000]
)


def operating_points(
    confidence: FloatArray, correct: BoolArray, promises: Sequence[Promise] = ()
) -> tuple[OperatingPoint, ...]:
    """One point for each threshold of a grid, and for those that were promised, ascending.

    Parameters
    ----------
    confidence, correct : array of shape (n,)
        Of the answers; those of at least the threshold are accepted.
    promises : sequence of Promise
        Whose thresholds are to be found among the points.
    """
    promised = [promise.threshold for promise in promises if promise.threshold is not None]
    thresholds = np.unique(np.concatenate([GRID, promised]))
    order = np.argsort(confidence, kind="stable")
    below = np.searchsorted(confidence[order], thresholds, side="left")
    right_above = np.append(np.cumsum(correct[order][::-1])[::-1], 0)
    accepted = len(confidence) - below
    shares = shares_of(right_above[below], accepted)
    return tuple(
        OperatingPoint(float(threshold), int(n), int(n) / len(confidence), share)
        for threshold, n, share in zip(thresholds, accepted, shares, strict=True)
    )


def promise_of(chosen: AcceptThreshold) -> Promise:
    """What a threshold promises, if one was found."""
    return Promise(
        precision=chosen.target,
        threshold=float(chosen.threshold) if chosen.reached else None,
        coverage=float(chosen.coverage) if chosen.reached else None,
        sentence=str(chosen),
    )


def check_promise(
    chosen: AcceptThreshold, confidence: FloatArray, correct: BoolArray
) -> PromiseCheck:
    """Hold a promise of the fit against answers that it has not seen.

    Parameters
    ----------
    chosen : AcceptThreshold
        What the fit promises; of the kind "precision".
    confidence, correct : array of shape (n,)
        Of the answers.

    Examples
    --------
    >>> from nearsure.decisions import choose_threshold
    >>> chosen = choose_threshold([0.9] * 400, [True] * 400, precision=0.99)
    >>> check_promise(chosen, np.full(80, 0.9), np.arange(80) < 60).sentence
    'The promise of 99% is not kept: 75.0% instead of 99% of 80 accepted answers are right \
(64.1% to 84.0%).'
    """
    if not chosen.reached:
        return PromiseCheck(chosen.target, None, 0, Estimate(None), "not promised", str(chosen))
    accepted = chosen.accepts(confidence)
    measured = share_of(int(correct[accepted].sum()), int(accepted.sum()))
    promise = f"The promise of {100 * chosen.target:g}%"
    if measured.value is None or measured.low is None or measured.high is None:
        verdict: Verdict = "untested"
        sentence = f"{promise} is not tested: no answer reaches its threshold."
    else:
        kept = measured.value >= chosen.target
        verdict = (
            "kept" if kept else "within chance" if measured.high >= chosen.target else "not kept"
        )
        n_accepted = f"{accepted.sum():,} accepted answer{'' if accepted.sum() == 1 else 's'}"
        interval = f"({measured.low:.1%} to {measured.high:.1%})"
        sentence = {
            "kept": f"{promise} is kept: {measured.value:.1%} of {n_accepted} are right "
            f"{interval}.",
            "within chance": f"{promise} is kept, as far as {n_accepted} can show: "
            f"{measured.value:.1%} are right {interval}.",
            "not kept": f"{promise} is not kept: {measured.value:.1%} instead of "
            f"{100 * chosen.target:g}% of {n_accepted} are right {interval}.",
        }[verdict]
    threshold = float(chosen.threshold)
    return PromiseCheck(chosen.target, threshold, int(accepted.sum()), measured, verdict, sentence)


# The bins of every calibration error in nearsure.
RELIABILITY_BINS = 15
HISTOGRAM_BINS = 20


def reliability_bins(confidence: FloatArray, correct: BoolArray) -> tuple[ReliabilityBin, ...]:
    """The bins that the ECE is made of, without empty ones.

    Parameters
    ----------
    confidence, correct : array of shape (n,)
        Of the answers.
    """
    bins = bin_by_confidence(confidence, correct, n_bins=RELIABILITY_BINS)
    right = np.rint(np.nan_to_num(bins.accuracy) * bins.counts).astype(np.int64)
    shares = shares_of(right, bins.counts)
    return tuple(
        ReliabilityBin(
            low=float(bins.edges[place]),
            high=float(bins.edges[place + 1]),
            count=int(bins.counts[place]),
            confidence=float(bins.mean_confidence[place]),
            accuracy=shares[place],
        )
        for place in np.flatnonzero(bins.counts)
    )


def confidence_histogram(confidence: FloatArray, correct: BoolArray) -> tuple[HistogramBin, ...]:
    """Right and wrong answers by confidence, empty bins included."""
    places = width_bins(confidence, HISTOGRAM_BINS)
    right = np.bincount(places[correct], minlength=HISTOGRAM_BINS)
    wrong = np.bincount(places[~correct], minlength=HISTOGRAM_BINS)
    edges = [place / HISTOGRAM_BINS for place in range(HISTOGRAM_BINS + 1)]
    bins = zip(edges[:-1], edges[1:], right.tolist(), wrong.tolist(), strict=True)
    return tuple(HistogramBin(*each) for each in bins)
