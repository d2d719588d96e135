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
from nearsure.metrics import bootstrap_interval, brier_score, expected_calibration_error
from nearsure.report import Estimate, gallery_report, query_report


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
    interval = bootstrap_interval(
        expected_calibration_error, confidence, correct, seed=0, n_resamples=FEW
    )
    assert (ece.estimate.low, ece.estimate.high) == (interval.low, interval.high)
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


def test_intervals_hold_their_number_where_nothing_is_biased() -> None:
    for key in ("accuracy", "mean_confidence", "brier", "nll"):
        estimate = metric(usual()[3], key).estimate
        assert estimate.low is not None
        assert estimate.value is not None
        assert estimate.high is not None
        assert estimate.low < estimate.value < estimate.high


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
