"""A report from the gallery alone."""

import numpy as np
import pytest
from reported import FEW, NAMES, drawn, fitted, metric

from nearsure import NEDClassifier
from nearsure.report import audit_of, gallery_report


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
    assert "one fellow less" in report.about.notes[0]


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
        assert mistake.id not in [vouching.id for vouching in mistake.neighbors]
        assert mistake.confidence == posterior.confidence[own.index(mistake.id)]


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
