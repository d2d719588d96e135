"""Reports on a gallery itself, and on what is small, one-sided, large, or kept elsewhere."""

import json
from typing import Any

import numpy as np
import pytest
from numpy.typing import ArrayLike
from report_examples import FEW, NAMES, drawn, fitted, metric, usual

from nearsure import NEDClassifier
from nearsure.errors import InvalidInputError, NearCopiesWarning
from nearsure.report import (
    Estimate,
    Report,
    audit_of,
    build,
    gallery_report,
    query_report,
    report_json,
    sections,
)


def test_each_point_leaves_itself_out() -> None:
    points, labels = drawn(90, seed=0)
    classifier = NEDClassifier(n_neighbors=10, rule="1nn").fit(points, labels)
    report = gallery_report(classifier, title="Own", n_resamples=FEW)
    right = 0
    for row in range(90):
        sq_distances = ((points - points[row]) ** 2).sum(axis=1)
        sq_distances[row] = np.inf
        right += bool(labels[sq_distances.argmin()] == labels[row])
    assert report.about.queries == "leave-one-out"
    assert (report.about.n_queries, report.about.n_gallery) == (90, 90)
    assert metric(report, "accuracy").estimate.value == pytest.approx(right / 90)
    assert "one member fewer" in report.about.notes[0]


def test_confidence_does_not_know_the_true_class() -> None:
    """Confidence is what a classifier without the point, but fitted the same, would give it."""
    classifier = fitted(60)
    report = gallery_report(classifier, title="Own", n_resamples=FEW)
    posterior = classifier.leave_one_out_posterior()
    assert metric(report, "mean_confidence").estimate.value == pytest.approx(
        posterior.confidence.mean()
    )
    truth = classifier.encode(classifier.support_labels(classifier.own_ids()))
    assert metric(report, "accuracy").estimate.value == (posterior.labels == truth).mean()
    own = classifier.own_ids().tolist()
    for mistake in report.mistakes:
        assert mistake.id not in [supporter.id for supporter in mistake.neighbors]
        assert mistake.confidence == posterior.confidence[own.index(mistake.id)]


def test_mistakes_hold_what_neighbours_and_head_say_alone() -> None:
    queries, labels = drawn(200, seed=1)
    for head in ("means", None):
        classifier = fitted(head=head)
        support = classifier.support(classifier.predict_with_confidence(queries))
        report = query_report(classifier, queries, labels, title="Birds", n_resamples=FEW)
        assert report.mistakes
        assert report.fit is not None
        assert report.fit.head == head
        assert report.fit.head_choice == (head and str(classifier.head_fit_))
        for mistake in report.mistakes:
            said = mistake.p_neighbors, mistake.p_head
            row = int(mistake.id)
            if support.head is None:
                assert said == (None, None)
            else:
                assert said == (support.neighbors[row], support.head[row])


def test_promises_are_those_of_the_classifier() -> None:
    classifier = NEDClassifier(unknown_share=0.2).fit(*drawn(300, seed=0, spread=2.0))
    report = gallery_report(classifier, title="Own", n_resamples=FEW)
    for promise in report.promises:
        chosen = classifier.accept_threshold(precision=promise.precision)
        assert promise.sentence == str(chosen)
    assert report.about.unknown_share == 0.2
    assert any("20.0%" in note and "too low" in note for note in report.about.notes)
    refused = np.mean(np.asarray(classifier.predict_own().verdicts) == "unknown")
    assert metric(report, "known_refused").estimate.value == pytest.approx(refused)


def test_a_sample_of_a_large_gallery_is_said_to_be_one() -> None:
    report = gallery_report(fitted(120, max_fit_samples=50), title="Own", n_resamples=FEW)
    assert (report.about.n_queries, report.about.n_gallery) == (50, 120)
    assert "50 of the 120 points" in report.about.notes[0]
    assert report.audit is not None
    assert report.audit.n_points == 120


def test_queries_that_are_not_like_the_gallery_are_said() -> None:
    classifier = fitted(200)
    queries, labels = drawn(100, seed=3)
    report = query_report(classifier, queries, labels, title="Alike", n_resamples=FEW)
    assert not any("not like the gallery" in note for note in report.about.notes)
    report = query_report(classifier, 5.0 * queries, labels, title="Far", n_resamples=FEW)
    assert "not like the gallery" in report.about.notes[0]


@pytest.mark.filterwarnings("ignore::nearsure.errors.DegenerateTemperatureWarning")
def test_near_copies_are_said() -> None:
    points, labels = drawn(200, seed=0, spread=2.0)
    noise = 1e-4 * np.random.default_rng(0).normal(size=(600, points.shape[1]))
    copies, names = np.repeat(points, 3, axis=0) + noise, np.repeat(labels, 3)
    with pytest.warns(NearCopiesWarning):
        classifier = NEDClassifier().fit(copies, names)
    report = gallery_report(classifier, title="Copies", n_resamples=FEW)
    assert any("holds near-copies. Confidence and" in note for note in report.about.notes)
    classifier.fit(copies, names, groups="auto")
    report = gallery_report(classifier, title="Copies", n_resamples=FEW)
    assert any("They were left out together" in note for note in report.about.notes)


def test_another_prior_is_said() -> None:
    report = gallery_report(fitted(60, prior="uniform"), title="Own", n_resamples=FEW)
    assert any("other frequencies" in note for note in report.about.notes)


def test_points_alone_in_their_class_are_counted() -> None:
    points, labels = drawn(60, seed=0)
    labels[5] = "moa"
    classifier = NEDClassifier(temperature=1.0).fit(points, labels)
    report = gallery_report(classifier, title="Own", n_resamples=FEW)
    assert any(note.startswith("1 of these points") for note in report.about.notes)
    (row,) = [row for row in report.classes if row.label == "moa"]
    assert (row.n_gallery, row.n_queries, row.accuracy.value) == (1, 1, 0.0)


def test_audit_lists_what_the_classifier_finds() -> None:
    points, labels = drawn(120, seed=0, spread=3.0)
    labels = labels.copy()
    swapped = np.array([10, 20, 30])
    labels[swapped] = [NAMES[(list(NAMES).index(name) + 1) % 3] for name in labels[swapped]]
    points[40] = points[41] + 1e-6
    labels[40] = NAMES[(list(NAMES).index(labels[41]) + 1) % 3]
    classifier = NEDClassifier().fit(points, labels)
    found = classifier.audit()
    audit = audit_of(classifier, n_suspects=3)
    assert audit.n_points == 120
    assert audit.n_suspects == found.suspects.n_doubted >= 4
    assert len(audit.suspects) == 3
    for shown, place in zip(audit.suspects, range(3), strict=True):
        assert shown.id == found.suspects.ids[place]
        assert shown.label == labels[shown.id]
        assert shown.suggested == classifier.classes_[found.suspects.suggested_codes[place]]
        assert shown.trust == found.suspects.trust[place] < 0.5
    everything = audit_of(classifier, n_suspects=1000)
    assert len(everything.suspects) == everything.n_suspects
    assert {10, 20, 30} <= {suspect.id for suspect in everything.suspects}
    (pair,) = everything.duplicates
    assert {pair.first_id, pair.second_id} == {40, 41}
    assert (pair.first_label, pair.second_label) == (labels[40], labels[41])
    assert everything.n_duplicates == 1
    confusions = [pair.confusion for pair in everything.confusable]
    assert confusions == found.confusable.confusion.tolist()
    assert everything.small == ()


def on(
    classifier: NEDClassifier,
    queries: ArrayLike,
    labels: ArrayLike,
    **options: Any,  # noqa: ANN401
) -> Report:
    report = query_report(
        classifier, queries, labels, title="Edges", **{"n_resamples": FEW, **options}
    )
    json.loads(report_json(report))
    return report


def test_a_single_query() -> None:
    classifier = fitted(60)
    queries, labels = drawn(60, seed=0)
    report = on(classifier, queries[:1], labels[:1])
    assert metric(report, "accuracy").estimate.low == pytest.approx(0.025)
    assert metric(report, "error_auroc").estimate == Estimate(None)
    confidence = metric(report, "mean_confidence").estimate
    assert confidence.value is not None
    assert (confidence.low, confidence.high) == (None, None)
    assert report.mistakes == ()
    assert sum(shown.count for shown in report.reliability) == 1
    assert any(note.startswith("1 query is few") for note in report.about.notes)
    assert all(promise.threshold is None for promise in report.promises)


def test_all_right_and_all_wrong() -> None:
    classifier = fitted(60)
    queries, _ = drawn(30, seed=1)
    answers = classifier.predict(queries)
    right = on(classifier, queries, answers)
    assert metric(right, "accuracy").estimate.value == 1.0
    assert metric(right, "accuracy").estimate.low == pytest.approx(0.025 ** (1 / 30))
    assert right.mistakes == ()
    assert all(row.confused_with == () for row in right.classes)
    wrong = on(classifier, queries, np.where(answers == "owl", "wren", "owl"), n_mistakes=7)
    assert metric(wrong, "accuracy").estimate.value == 0.0
    assert metric(wrong, "accuracy").estimate.high == pytest.approx(1 - 0.025 ** (1 / 30))
    assert len(wrong.mistakes) == 7
    assert all(point.precision.value in {0.0, None} for point in wrong.operating_points)


def test_one_class() -> None:
    points, _ = drawn(20, seed=0)
    classifier = NEDClassifier(temperature=1.0, n_neighbors=3).fit(points, np.repeat("owl", 20))
    report = on(classifier, points + 0.1, np.repeat("owl", 20))
    assert report.about.n_classes == 1
    assert metric(report, "accuracy").estimate.value == 1.0
    assert report.audit is not None
    assert report.audit.confusable == ()
    assert report.fit is not None
    assert (report.fit.temperature, report.fit.ned_temperature) == (1.0, None)
    assert report.fit.curve == ()


def test_rules_without_a_temperature_have_no_fit_but_are_compared_with_ned() -> None:
    classifier = fitted(60, rule="knn")
    queries, labels = drawn(30, seed=1)
    report = on(classifier, queries, labels)
    assert report.fit is None
    assert report.about.calibration == "none"
    methods = {method.name: method for method in report.methods}
    assert methods["nearsure"].title == "nearsure (knn)"
    assert methods["nearsure"].accuracy == methods["knn"].accuracy
    assert methods["nearsure"].ece == methods["knn"].ece
    assert "ned" in methods


def test_a_gallery_of_lonely_points_is_compared_without_ned() -> None:
    classifier = NEDClassifier(rule="1nn").fit([[0.0], [1.0], [5.0]], ["owl", "wren", "emu"])
    report = on(classifier, [[0.1], [4.0]], ["owl", "owl"])
    assert "ned" not in {method.name for method in report.methods}
    assert any(note.startswith("NED is not among") for note in report.about.notes)
    assert report.audit is None
    assert any(note.startswith("The gallery was not audited.") for note in report.about.notes)
    assert [len(mistake.neighbors) for mistake in report.mistakes] == [2]


def test_only_neighbours_that_were_found_are_shown() -> None:
    points, labels = drawn(12, seed=0)
    classifier = NEDClassifier(n_neighbors="all", temperature=1.0).fit(points, labels)
    classifier.remove(np.arange(3, 9))
    queries, truth = drawn(40, seed=1)
    report = on(classifier, queries, truth)
    assert report.about.k == report.about.n_gallery == 6
    assert report.mistakes
    for mistake in report.mistakes:
        assert len(mistake.neighbors) == 6
        assert sum(supporter.share for supporter in mistake.neighbors) == pytest.approx(1.0)


def test_a_class_that_lost_its_last_point_is_one_that_the_gallery_lacks() -> None:
    points, labels = drawn(60, seed=0)
    classifier = NEDClassifier(temperature=1.0).fit(points, labels)
    classifier.remove(np.flatnonzero(labels == "kiwi"), allow_empty_class=True)
    report = on(classifier, points, labels)
    assert report.about.n_classes == 2
    assert report.classes[0].label == "kiwi"
    assert report.classes[0].n_gallery == 0
    assert any("gallery lacks (kiwi)" in note for note in report.about.notes)


def test_each_metric_says_whether_it_is_shown_in_percent() -> None:
    classifier = NEDClassifier(unknown_share=0.25).fit(*drawn(200, seed=0, spread=2.0))
    queries, labels = drawn(200, seed=1, n_classes=4, spread=2.0)
    in_percent = {one.key: one.percent for one in on(classifier, queries, labels).metrics}
    # A share of queries is; a Brier score (up to 2) and a log loss (without bound) are none.
    assert in_percent == {
        "accuracy": True,
        "mean_confidence": True,
        "ece": True,
        "debiased_ece": True,
        "brier": False,
        "nll": False,
        "aurc": True,
        "error_auroc": True,
        "known_accuracy": True,
        "unknown_caught": True,
        "known_refused": True,
        "unknown_auroc": True,
    }


def test_unknown_queries_where_they_are_expected() -> None:
    classifier = NEDClassifier(unknown_share=0.25).fit(*drawn(200, seed=0, spread=2.0))
    queries, labels = drawn(200, seed=1, n_classes=4, spread=2.0)
    report = on(classifier, queries, labels)
    prediction = classifier.predict_with_confidence(queries)
    assert prediction.p_known is not None
    assert prediction.verdicts is not None
    unknown = labels == "emu"
    called = prediction.verdicts == "unknown"
    caught, refused = metric(report, "unknown_caught"), metric(report, "known_refused")
    assert caught.estimate.value == pytest.approx(called[unknown].mean())
    assert refused.estimate.value == pytest.approx(called[~unknown].mean())
    higher = prediction.p_known[~unknown][:, None] > prediction.p_known[unknown]
    auroc = metric(report, "unknown_auroc").estimate
    assert auroc.value == pytest.approx(higher.mean())
    assert auroc.low is not None
    assert any("allow for 25.0% of such queries" in note for note in report.about.notes)
    only_known = on(classifier, queries[~unknown], labels[~unknown])
    assert not {"unknown_caught", "unknown_auroc"} & {one.key for one in only_known.metrics}
    assert any("all of these are of one" in note for note in only_known.about.notes)


@pytest.mark.parametrize(
    ("labels", "shown"),
    [
        (np.array([3, 7, 9]), {3, 7, 9}),
        (np.array([1.0, 2.0, 4.0]), {1, 2, 4}),
        (np.array(["a", "b<", "c\u2028"]), {"a", "b<", "c\u2028"}),
        (np.array([False, True, True]), {"False", "True"}),
        (np.array([2**60, 2**60 + 1, 0]), {str(2**60), str(2**60 + 1), 0}),
    ],
)
def test_labels_of_every_kind(labels: Any, shown: set[Any]) -> None:  # noqa: ANN401
    points, names = drawn(60, seed=0)
    codes = np.unique(names, return_inverse=True)[1]
    report = on(fitted(60).fit(points, labels[codes]), points, labels[codes][::-1])
    read = json.loads(report_json(report))
    assert {row["label"] for row in read["classes"]} == shown
    assert {mistake["truth"] for mistake in read["mistakes"]} <= shown
    assert {type(row["label"]) for row in read["classes"]} <= {int, str}


def test_galleries_in_engines() -> None:
    points, labels = drawn(120, seed=0)
    queries, truth = drawn(60, seed=1)
    near = on(NEDClassifier(n_neighbors=20).fit(points, labels), queries, truth)
    classifier = NEDClassifier(n_neighbors=20, engine="ivf").fit(points, labels)
    report = on(classifier, queries, truth)
    assert classifier.engine_ is not None
    assert report.about.engine == "faiss ivf"
    assert near.about.engine == "faiss exact"
    assert report.about.n_gallery == 120
    assert report.audit is not None
    assert report.audit.n_points == 120
    sizes = {row.label: row.n_gallery for row in report.classes}
    assert sizes == {row.label: row.n_gallery for row in near.classes}


def test_large_galleries_are_not_audited_and_long_tables_are_cut(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    classifier, queries, labels, whole = usual()
    monkeypatch.setattr(build, "LARGEST_AUDITED", 119)
    monkeypatch.setattr(build, "LARGEST_BOOTSTRAP", 200 * 15)
    monkeypatch.setattr(build, "FEWEST_RESAMPLES", 5)
    monkeypatch.setattr(sections, "LARGEST_TABLE", 2)
    report = on(classifier, queries, labels)
    assert report.audit is None
    assert any("120 points" in note and "not audited" in note for note in report.about.notes)
    assert any("15 instead of 40 resamples" in note for note in report.about.notes)
    assert report.classes == whole.classes[:2]


def test_an_audit_can_be_left_out() -> None:
    classifier, queries, labels, _ = usual()
    report = on(classifier, queries, labels, with_audit=False, n_mistakes=0)
    assert report.audit is None
    assert not any("audit" in note for note in report.about.notes)
    assert report.mistakes == ()


def test_a_thousand_classes_stay_a_small_document() -> None:
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(1200), 2)
    points = (rng.normal(size=(1200, 8))[labels] + 0.3 * rng.normal(size=(2400, 8))).astype("f4")
    classifier = NEDClassifier(temperature=0.2, n_neighbors=10).fit(points[::2], labels[::2])
    report = on(classifier, points[1::2], labels[1::2])
    assert len(report.classes) == 1200
    assert len(report_json(report)) < 1_000_000


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"labels": ["owl"] * 3}, "'labels' parameter must have one entry"),
        ({"labels": [1, 2]}, "the gallery's kind, text. Got numbers"),
        ({"ids": ["a"]}, "'ids' parameter must have one entry"),
        ({"pictures": ["a.jpg"]}, "'pictures' parameter must have one entry"),
        ({"n_mistakes": -1}, "'n_mistakes' parameter must not be negative. Got -1"),
        ({"n_suspects": -2}, "'n_suspects' parameter must not be negative. Got -2"),
    ],
)
def test_what_is_refused(options: dict[str, Any], said: str) -> None:
    classifier, queries, _, _ = usual()
    given: dict[str, Any] = {"labels": ["owl", "wren"], **options}
    with pytest.raises(InvalidInputError, match=said):
        query_report(classifier, queries[:2], title="No", n_resamples=FEW, **given)


def test_seeds_decide_alone() -> None:
    classifier, queries, labels, report = usual()
    assert on(classifier, queries, labels).metrics == report.metrics
    other = on(classifier, queries, labels, seed=1)
    assert metric(other, "brier").estimate.value == metric(report, "brier").estimate.value
    assert metric(other, "brier").estimate.low != metric(report, "brier").estimate.low
