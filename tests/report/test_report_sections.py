"""Every number of a report, computed once more in plain loops."""

from collections import Counter
from itertools import pairwise
from math import exp, log

import numpy as np
import pytest
from report_examples import FEW, drawn, fitted, metric, usual
from scipy.stats import binomtest

from nearsure import NEDClassifier, comparison
from nearsure.comparison import score_probes
from nearsure.decisions import choose_threshold
from nearsure.metrics import (
    Interval,
    bootstrap_interval,
    brier_score,
    debiased_calibration_error,
)
from nearsure.report import Estimate, gallery_report, query_report, remarks
from nearsure.report.confusion import choose_confused
from nearsure.report.document import estimate_of, share_of
from nearsure.report.map import fit_plane, map_gallery
from nearsure.report.sections import check_promise


def scored() -> list[tuple[float, bool, str, str]]:
    classifier, queries, labels, _ = usual()
    prediction = classifier.predict_with_confidence(queries)
    return [
        (float(confidence), bool(answer == truth), str(answer), str(truth))
        for confidence, answer, truth in zip(
            prediction.confidence, prediction.labels, labels, strict=True
        )
    ]


def assert_exact(share: Estimate, right: int, tried: int) -> None:
    interval = binomtest(right, tried).proportion_ci(0.95, method="exact")
    assert share.value == pytest.approx(right / tried)
    assert share.low == pytest.approx(interval.low)
    assert share.high == pytest.approx(interval.high)


def test_queries_of_classes_that_the_gallery_lacks_count_as_wrong() -> None:
    report, rows = usual()[3], scored()
    assert {truth for *_, truth in rows} - {"wren", "owl", "kiwi"} == {"emu"}
    right = sum(correct for _, correct, *_ in rows)
    assert_exact(metric(report, "accuracy").estimate, right, len(rows))
    known = sum(truth != "emu" for *_, truth in rows)
    assert_exact(metric(report, "known_accuracy").estimate, right, known)
    (note,) = [note for note in report.about.notes if "gallery lacks" in note]
    assert f"{len(rows) - known} of 200 queries" in note
    assert "(emu)" in note


def test_calibration_error_is_that_of_the_bins_shown() -> None:
    report, rows = usual()[3], scored()
    total = 0.0
    for shown in report.reliability:
        inside = [
            (confidence, correct)
            for confidence, correct, *_ in rows
            if shown.low <= confidence < shown.high or confidence == shown.high == 1.0
        ]
        right = sum(correct for _, correct in inside)
        assert shown.count == len(inside) > 0
        assert shown.confidence == pytest.approx(np.mean([c for c, _ in inside]))
        assert_exact(shown.accuracy, right, len(inside))
        total += abs(sum(confidence for confidence, _ in inside) - right)
    assert sum(shown.count for shown in report.reliability) == len(rows)
    ece = metric(report, "ece")
    assert ece.estimate.value == pytest.approx(total / len(rows))
    confidence, correct = [row[0] for row in rows], [row[1] for row in rows]
    assert (ece.estimate.low, ece.estimate.high) == (None, None)
    interval = bootstrap_interval(
        debiased_calibration_error, confidence, correct, seed=0, n_resamples=FEW
    )
    debiased = metric(report, "debiased_ece").estimate
    assert debiased.value == interval.estimate
    assert debiased.low == min(interval.low, interval.estimate)
    assert debiased.high == max(interval.high, interval.estimate)
    assert report.methods[-1].debiased_ece == debiased
    assert ece.floor is not None
    assert 0 < ece.floor < 0.2


def test_mean_confidence_losses_and_ranking() -> None:
    classifier, queries, labels, report = usual()
    rows = scored()
    assert metric(report, "mean_confidence").estimate.value == pytest.approx(
        np.mean([confidence for confidence, *_ in rows])
    )
    posterior = classifier.predict_posterior(queries).to_csr().toarray()
    squares, losses = [], []
    for row, truth in zip(posterior, labels, strict=True):
        is_true = classifier.classes_ == truth
        squares.append(sum((row - is_true) ** 2) + (not is_true.any()))
        losses.append(-log(max(float(row[is_true].sum()), 0.001)))
    assert metric(report, "brier").estimate.value == pytest.approx(np.mean(squares))
    assert metric(report, "nll").estimate.value == pytest.approx(np.mean(losses))
    right = [confidence for confidence, correct, *_ in rows if correct]
    wrong = [confidence for confidence, correct, *_ in rows if not correct]
    above = sum((r > w) + (r == w) / 2 for r in right for w in wrong)
    assert metric(report, "error_auroc").estimate.value == pytest.approx(
        above / len(right) / len(wrong)
    )
    ranked = sorted(rows, reverse=True)  # no two are equally sure
    risks = [
        sum(not correct for _, correct, *_ in ranked[:n]) / n for n in range(1, len(ranked) + 1)
    ]
    assert metric(report, "aurc").estimate.value == pytest.approx(np.mean(risks))


def test_no_interval_excludes_its_number() -> None:
    report = usual()[3]
    estimates = {one.key: one.estimate for one in report.metrics} | {
        f"{method.name} {key}": getattr(method, key)
        for method in report.methods
        for key in ("accuracy", "ece", "brier", "debiased_ece")
    }
    for key, estimate in estimates.items():
        if estimate.low is not None:
            assert estimate.low <= estimate.value <= estimate.high, key
    for key in ("accuracy", "mean_confidence", "brier", "nll", "debiased_ece"):
        assert estimates[key].low is not None
    # A basic interval may: this one is drawn out to it.
    assert estimate_of(Interval(0.05, 0.01, 0.04, 0.95)) == Estimate(0.05, 0.01, 0.05)


def test_a_promise_is_held_against_the_labels() -> None:
    classifier, _, _, report = usual()
    rows = scored()
    for check in report.checks:
        chosen = classifier.accept_threshold(precision=check.precision)
        if not chosen.reached:
            assert (check.threshold, check.verdict) == (None, "not promised")
            assert check.sentence == str(chosen)
            continue
        accepted = [correct for confidence, correct, *_ in rows if confidence >= chosen.threshold]
        assert check.threshold == chosen.threshold
        assert check.accepted == len(accepted)
        assert_exact(check.measured, sum(accepted), len(accepted))
    assert sorted(check.precision for check in report.checks) == [0.9, 0.95, 0.99, 0.995]
    assert gallery_report(classifier, title="Own", n_resamples=FEW).checks == ()


@pytest.mark.parametrize(
    ("n_right", "n_wrong", "verdict", "said"),
    [
        (120, 0, "kept", "is kept: 100.0% of 120 accepted answers are right (97.0% to 100.0%)."),
        (99, 2, "within chance", "is kept, as far as 101 accepted answers can show: 98.0% are"),
        (60, 20, "not kept", "is not kept: 75.0% instead of 99% of 80 accepted answers are right"),
        (0, 0, "untested", "is not tested: no answer reaches its threshold."),
    ],
)
def test_what_is_said_of_a_promise(n_right: int, n_wrong: int, verdict: str, said: str) -> None:
    chosen = choose_threshold(np.full(400, 0.9), np.full(400, fill_value=True), precision=0.99)
    confidence = np.append(np.full(n_right + n_wrong, 0.9), 0.1)
    check = check_promise(chosen, confidence, np.arange(len(confidence)) < n_right)
    assert (check.verdict, check.accepted) == (verdict, n_right + n_wrong)
    assert check.sentence.startswith(f"The promise of 99% {said}")


def test_queries_that_differ_break_the_promise_and_the_report_says_so() -> None:
    classifier = fitted(600)
    queries, labels = drawn(400, seed=1)
    reports = [
        query_report(classifier, asked, labels, title="Birds", n_resamples=FEW, with_audit=False)
        for asked in (queries, queries + 2.0)
    ]
    kept, broken = (report.checks[0] for report in reports)
    assert kept.verdict in {"kept", "within chance"}
    assert "not like the gallery" not in kept.sentence
    assert broken.verdict == "not kept"
    assert f"instead of {100 * broken.precision:g}%" in broken.sentence
    assert (
        "The queries are not like the gallery: checked against them, the promise" in broken.sentence
    )


@pytest.mark.parametrize(
    ("right", "confidence", "said"),
    [
        (800, 0.9, ("is 90.0%, and 80.0% are right", "10.0 points too high", "off.")),
        (800, 0.79, ("is 79.0%, and 80.0% are right", "1.0 points too low", "Chance")),
        (800, 0.8002, None),
    ],
)
def test_confidence_that_is_not_the_accuracy_is_a_note(
    right: int, confidence: float, said: tuple[str, ...] | None
) -> None:
    note = remarks.on_gap(share_of(right, 1000), confidence)
    assert (note is None) == (said is None)
    for words in said or ():
        assert words in str(note)


def test_where_accuracy_and_mean_confidence_differ_the_last_section_is_not_empty() -> None:
    points, labels = drawn(300, seed=0)
    queries, truth = drawn(300, seed=1)
    report = query_report(
        NEDClassifier(calibration="none").fit(points, labels),
        queries,
        truth,
        title="Birds",
        n_resamples=FEW,
    )
    right, claimed = metric(report, "accuracy").estimate, metric(report, "mean_confidence").estimate
    assert f"{right.value:.1%}" != f"{claimed.value:.1%}"
    assert any("The mean confidence is" in note for note in report.about.notes)


def test_the_confusion_matrix_holds_what_was_confused_and_nothing_else() -> None:
    points, labels = drawn(200, seed=1, n_classes=4)
    classifier = NEDClassifier().fit(*drawn(120, seed=0))
    dot = "data:image/gif;base64,R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7"
    report = query_report(
        classifier, points, labels, title="Birds", n_resamples=FEW, pictures=[dot] * 200
    )
    answers = classifier.predict(points)
    counts = Counter(zip(labels.tolist(), answers.tolist(), strict=True))
    wrong = {pair: n for pair, n in counts.items() if pair[0] not in {pair[1], "emu"}}
    found = report.confusion
    assert found is not None
    assert set(found.labels) == {label for pair in wrong for label in pair}
    assert (found.n_confused, found.n_wrong) == (len(found.labels), sum(wrong.values()))
    for cell in found.cells:
        pair = str(found.labels[cell.truth]), str(found.labels[cell.answer])
        assert cell.count == counts[pair]
        confidences = [example.confidence for example in cell.examples]
        assert confidences == sorted(confidences, reverse=True)
        assert len(confidences) == (0 if pair[0] == pair[1] else min(8, cell.count))
        for example in cell.examples:
            assert (labels[int(example.id)], answers[int(example.id)]) == pair
            assert str(example.picture).startswith("data:image/jpeg")
    assert found.n_shown == sum(wrong.values())
    right = query_report(classifier, points[:1], answers[:1], title="Right", n_resamples=FEW)
    assert right.confusion is None


def test_of_many_confused_classes_whole_pairs_are_shown() -> None:
    rng = np.random.default_rng(0)
    truth, answers = rng.integers(0, 60, (2, 400))
    wrong = truth != answers
    chosen = choose_confused(truth[wrong], answers[wrong], most=20).tolist()
    assert len(chosen) == len(set(chosen)) <= 20
    pairs = Counter(
        frozenset(pair) for pair in zip(truth[wrong].tolist(), answers[wrong].tolist(), strict=True)
    )
    inside = {pair: n for pair, n in pairs.items() if pair <= set(chosen)}
    assert {code for pair in inside for code in pair} == set(chosen)
    assert max(pairs.values()) == max(inside.values())


def test_the_map_is_the_plane_of_the_largest_spread() -> None:
    vectors = np.random.default_rng(0).normal(size=(300, 5)) * [3.0, 1.0, 2.0, 0.5, 0.1]
    plane = fit_plane(vectors)
    values, directions = np.linalg.eigh(np.cov(vectors.T))
    np.testing.assert_allclose(plane.explained, values[:-3:-1] / values.sum(), atol=1e-6)
    places = plane.places(vectors)
    for place in range(2):
        direction = directions[:, -1 - place]
        along = (vectors - vectors.mean(axis=0)) @ direction
        assert abs(np.corrcoef(along, places[:, place])[0, 1]) == pytest.approx(1)
        assert plane.axes[place, np.abs(plane.axes[place]).argmax()] > 0
    assert np.abs(places).max() == pytest.approx(1)
    # Distances keep their proportions.
    assert np.linalg.norm(plane.axes[0]) == pytest.approx(np.linalg.norm(plane.axes[1]))
    for few in ([[1.0, 2.0]], [[1.0], [1.0]], [[1.0], [3.0]]):
        assert np.isfinite(fit_plane(few).places(few)).all()


def test_the_map_shows_the_gallery_and_the_mistakes(monkeypatch: pytest.MonkeyPatch) -> None:
    classifier, queries, _, report = usual()
    drawn_map = report.map
    assert drawn_map is not None
    vectors, codes, _ = classifier.own_points(classifier.support_ids_)
    assert drawn_map.n_points == len(drawn_map.ids) == 120
    assert [drawn_map.labels[code] for code in drawn_map.codes] == classifier.classes_[
        codes
    ].tolist()
    plane = fit_plane(vectors)
    np.testing.assert_allclose(
        np.column_stack([drawn_map.x, drawn_map.y]), plane.places(vectors), atol=1e-4
    )
    asked = plane.places([queries[int(mistake.id)] for mistake in report.mistakes])
    np.testing.assert_allclose([(one.x, one.y) for one in drawn_map.queries], asked, atol=1e-4)
    monkeypatch.setattr("nearsure.report.map.MOST_POINTS", 50)
    some = map_gallery(classifier, queries[:0], plane=plane, seed=3)
    assert (some.n_points, len(some.ids), len(set(some.ids))) == (120, 50, 50)
    assert some == map_gallery(classifier, queries[:0], plane=plane, seed=3)
    assert set(zip(some.ids, some.x, some.y, strict=True)) < set(
        zip(drawn_map.ids, drawn_map.x, drawn_map.y, strict=True)
    )


def test_histogram_counts_every_answer_once() -> None:
    report, rows = usual()[3], scored()
    assert [shown.low for shown in report.histogram] == pytest.approx(np.arange(20) / 20)
    assert all(first.high == second.low for first, second in pairwise(report.histogram))
    for shown in report.histogram:
        inside = [
            correct
            for confidence, correct, *_ in rows
            if shown.low <= confidence < shown.high or confidence == shown.high == 1.0
        ]
        assert (shown.right, shown.wrong) == (sum(inside), len(inside) - sum(inside))


def test_operating_points_say_what_each_threshold_accepts() -> None:
    report, rows = usual()[3], scored()
    thresholds = [point.threshold for point in report.operating_points]
    assert thresholds == sorted(set(thresholds))
    assert {0.0, 0.005, 0.87, 0.951, 0.9905, 1.0} <= set(thresholds)
    for place, point in enumerate(report.operating_points):
        accepted = [correct for confidence, correct, *_ in rows if confidence >= point.threshold]
        assert point.accepted == len(accepted)
        assert point.coverage == len(accepted) / len(rows)
        if not accepted:
            assert point.precision == Estimate(None)
        elif place % 10 == 0:  # the bounds of scipy take their time
            assert_exact(point.precision, sum(accepted), len(accepted))


def test_promises_are_those_of_choose_threshold_and_among_the_points() -> None:
    classifier = NEDClassifier().fit(*drawn(120, seed=0, spread=2.0))
    queries, labels = drawn(400, seed=1, spread=2.0)
    report = query_report(classifier, queries, labels, title="Apart", n_resamples=FEW)
    prediction = classifier.predict_with_confidence(queries)
    correct = prediction.labels == labels
    points = {point.threshold: point for point in report.operating_points}
    assert [promise.precision for promise in report.promises] == [0.9, 0.95, 0.99, 0.995]
    for promise in report.promises:
        chosen = choose_threshold(prediction.confidence, correct, precision=promise.precision)
        assert promise.sentence == str(chosen)
        if promise.threshold is None:
            assert not chosen.reached
            assert promise.coverage is None
        else:
            assert promise.threshold == chosen.threshold
            accepted = points[promise.threshold]
            assert accepted.coverage == promise.coverage == chosen.coverage
            assert accepted.precision.value == pytest.approx(chosen.precision)
    assert report.promises[0].threshold is not None
    assert report.promises[-1].threshold is None


def test_methods_are_scored_on_the_same_neighbours() -> None:
    classifier, queries, labels, report = usual()
    methods = {method.name: method for method in report.methods}
    rules, probes = ["1nn", "knn", "dudani", "gou", "ned"], ["means", "logistic"]
    assert list(methods) == [*rules, *probes, "nearsure"]
    neighbors = classifier.kneighbors(queries)
    fit = classifier.temperature_fit_
    assert fit is not None
    right = Counter[str]()
    for sq_distances, codes, truth in zip(
        neighbors.sq_distances, neighbors.labels, labels, strict=True
    ):
        right["1nn"] += bool(classifier.classes_[codes[0]] == truth)
        votes = np.zeros(3)
        for sq_distance, code in zip(sq_distances, codes, strict=True):
            votes[code] += exp(-(sq_distance - sq_distances[0]) / fit.temperature)
        right["ned"] += bool(classifier.classes_[votes.argmax()] == truth)
    for name, count in right.items():
        assert_exact(methods[name].accuracy, count, len(labels))
    own = methods["nearsure"]
    assert own.title == "nearsure (adaptive, shrunk)"
    assert own.accuracy == metric(report, "accuracy").estimate
    assert own.ece == metric(report, "ece").estimate
    assert own.brier == metric(report, "brier").estimate
    assert own.ece_floor == metric(report, "ece").floor


def test_probes_are_scored_on_the_same_queries() -> None:
    classifier, queries, labels, report = usual()
    gallery, names = drawn(120, seed=0)
    codes = classifier.encode(names)
    expected = score_probes(gallery, codes, queries, seed=0).posteriors
    for method in report.methods[-3:-1]:
        right = classifier.classes_[expected[method.name].labels] == labels
        assert_exact(method.accuracy, int(right.sum()), len(labels))
        assert method.brier.value == pytest.approx(
            brier_score(expected[method.name], classifier.encode(labels))
        )


@pytest.mark.filterwarnings("ignore::nearsure.errors.DegenerateTemperatureWarning")
def test_own_points_are_scored_by_probes_that_have_not_seen_them() -> None:
    rng = np.random.default_rng(0)
    codes = np.arange(80) % 2
    vectors = rng.normal(size=(80, 100))
    classifier = NEDClassifier(metric="cosine").fit(vectors, codes)
    methods = {m.name: m for m in gallery_report(classifier, title="x", n_resamples=FEW).methods}
    units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    for name, posterior in score_probes(units, codes, seed=0).posteriors.items():
        right = int((posterior.labels == codes).sum())
        assert right < 56
        assert_exact(methods[name].accuracy, right, 80)
    shown = query_report(classifier, 3 * vectors, codes, title="x", n_resamples=FEW)
    seen = {method.name: method for method in shown.methods}["logistic"]
    known = score_probes(units, codes, units, seed=0).posteriors["logistic"]
    right = int((known.labels == codes).sum())
    assert right > 70
    assert_exact(seen.accuracy, right, 80)


def test_groups_of_the_fit_are_left_out_of_probes_together() -> None:
    rng = np.random.default_rng(0)
    vectors, codes = np.repeat(rng.normal(size=(40, 100)), 2, axis=0), np.arange(80) // 2 % 2
    order = rng.permutation(80)
    groups = np.repeat(np.arange(40), 2)[order]
    classifier = NEDClassifier().fit(vectors[order], codes[order], groups=groups)
    methods = {m.name: m for m in gallery_report(classifier, title="x", n_resamples=FEW).methods}
    accuracy = methods["logistic"].accuracy.value
    assert accuracy is not None
    assert accuracy < 0.7


def test_a_probe_that_is_missing_is_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(comparison.LARGEST_PROBE, "logistic", 1.0)
    report = gallery_report(fitted(max_fit_samples=50), title="x", n_resamples=FEW)
    assert [method.name for method in report.methods][-2:] == ["means", "nearsure"]
    (note,) = [note for note in report.about.notes if "left out: 50 points" in note]
    assert note.startswith("Logistic regression, tempered")
    assert note.endswith("Probes were fitted on 50 of the 120 points, those of the fit.")
    single = gallery_report(
        NEDClassifier(temperature=1.0).fit([[0.0], [1.0]], ["a", "b"]), title="x", n_resamples=FEW
    )
    assert any(note.startswith("Probes were left out") for note in single.about.notes)


def test_risk_coverage_points_lie_on_the_curve() -> None:
    report, rows = usual()[3], scored()
    curve = report.methods[-1].risk_coverage
    ranked = sorted(rows, reverse=True)
    assert len(curve) == 100
    assert curve[-1].x == 1.0
    for point in curve:
        n = round(point.x * len(rows))
        assert n / len(rows) == pytest.approx(point.x)
        assert point.y == pytest.approx(sum(not correct for _, correct, *_ in ranked[:n]) / n)


def test_classes_are_listed_worst_first() -> None:
    classifier, _, labels, report = usual()
    rows = scored()
    assert Counter(row.label for row in report.classes) == Counter(set(labels.tolist()))
    accuracies = [row.accuracy.value or 0.0 for row in report.classes]
    assert accuracies == sorted(accuracies)
    assert report.classes[0].label == "emu"
    assert report.classes[0].n_gallery == 0
    gallery = Counter(classifier.support_labels(classifier.support_ids_).tolist())
    for shown in report.classes:
        own = [row for row in rows if row[3] == shown.label]
        assert shown.n_queries == len(own)
        assert shown.n_gallery == gallery[str(shown.label)]
        assert_exact(shown.accuracy, sum(row[1] for row in own), len(own))
        assert shown.mean_confidence == pytest.approx(np.mean([row[0] for row in own]))
        taken_for = Counter(row[2] for row in own if not row[1])
        assert {one.label: one.count for one in shown.confused_with} == taken_for
        counts = [one.count for one in shown.confused_with]
        assert counts == sorted(counts, reverse=True)


def test_mistakes_are_the_surest_wrong_answers_with_their_supporters() -> None:
    classifier, queries, labels, report = usual()
    wrong = sorted((row[0] for row in scored() if not row[1]), reverse=True)
    assert [mistake.confidence for mistake in report.mistakes] == pytest.approx(wrong[:20])
    neighbors = classifier.kneighbors(queries)
    shares = classifier.vote_shares(neighbors)
    assert neighbors.ids is not None
    for mistake in report.mistakes:
        row = int(mistake.id)
        assert mistake.truth == labels[row] != mistake.label
        assert mistake.label == classifier.predict(queries[row : row + 1])[0]
        assert len(mistake.neighbors) == 8
        for rank, supporter in enumerate(mistake.neighbors):
            assert supporter.id == neighbors.ids[row, rank]
            assert supporter.label == classifier.support_labels([supporter.id])[0]
            assert supporter.sq_distance == neighbors.sq_distances[row, rank]
            assert supporter.share == pytest.approx(shares[row, rank])


def test_fit_is_that_of_the_classifier() -> None:
    classifier, *_, report = usual()
    fit, found = report.fit, classifier.temperature_fit_
    sharpened = classifier.sharpened_fit_
    assert fit is not None
    assert found is not None
    assert sharpened is not None
    assert fit.temperature == classifier.temperature_
    assert fit.ned_temperature == found.temperature
    assert (fit.n_points, fit.n_missed) == (120, found.n_missed)
    assert [point.x for point in fit.curve] == sorted(found.curve_temperatures)
    assert min(point.y for point in fit.curve) == pytest.approx(found.loss)
    assert fit.parameters["gamma"] == sharpened.form.sharpness
    assert fit.parameters["beta"] == sharpened.form.adaptivity
