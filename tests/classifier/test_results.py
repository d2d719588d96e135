"""Results in the hand: printed, indexed, as frames and HTML; thresholds that take predictions."""

import warnings
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits

from nearsure import NEDClassifier, Neighbors, Posterior, Prediction
from nearsure.classifier.results import Answer
from nearsure.decisions import AcceptThreshold, choose_threshold
from nearsure.errors import InvalidInputError

DIGITS, CODES = load_digits(return_X_y=True)
NAMES = np.array(["nil", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"])
GALLERY, LABELS = DIGITS[:600], NAMES[CODES[:600]]
QUERIES, TRUTH = DIGITS[600:900], NAMES[CODES[600:900]]
LONGEST_PRINT = 10


@pytest.fixture(scope="module")
def classifier() -> NEDClassifier:
    return NEDClassifier().fit(GALLERY, LABELS)


@pytest.fixture(scope="module")
def prediction(classifier: NEDClassifier) -> Prediction:
    return ask(classifier)


@pytest.fixture(scope="module")
def careful() -> NEDClassifier:
    return NEDClassifier(unknown_share=0.2).fit(GALLERY, LABELS)


def ask(classifier: NEDClassifier) -> Prediction:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Other writers.
        return classifier.predict_with_confidence(QUERIES)


def test_a_prediction_prints_as_a_summary_and_five_rows(prediction: Prediction) -> None:
    title, headings, *rows = str(prediction).splitlines()
    median = np.median(prediction.confidence)
    assert title.startswith(f"300 predictions, 10 classes, median confidence {median:.2f}")
    assert "label" in headings
    assert len(rows) + 2 <= LONGEST_PRINT
    for row, shown in enumerate(rows[:5]):
        label, confidence = shown.split()[:2]
        assert label == prediction.labels[row]
        assert float(confidence) == pytest.approx(prediction.confidence[row], abs=5e-4)
    assert rows[5].strip() == "... 295 more"
    assert repr(prediction) == str(prediction)


def test_a_prediction_prints_its_verdicts_and_how_queries_differ(careful: NEDClassifier) -> None:
    found = ask(careful)
    assert found.verdicts is not None
    text = str(found)
    assert f"{(found.verdicts == 'unknown').sum()} unknown" in text.splitlines()[0]
    assert found.differences
    assert found.differences[0] in text.splitlines()[-1]
    assert len(text.splitlines()) <= LONGEST_PRINT
    assert found.differences[0] in found._repr_html_()


def test_all_rows_are_read_from_columns_that_are_made_once(
    prediction: Prediction, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, columns = [], Prediction._columns

    def count_columns(self: Prediction) -> Any:  # noqa: ANN401
        made.append(1)
        return columns(self)

    expected = [prediction[row] for row in range(len(prediction))]
    monkeypatch.setattr(Prediction, "_columns", count_columns)
    assert list(prediction) == expected
    assert len(made) == 1


def test_one_row_is_an_answer(prediction: Prediction, careful: NEDClassifier) -> None:
    assert len(prediction) == 300
    answer = prediction[7]
    assert isinstance(answer, Answer)
    assert answer == prediction[np.int64(7)] == prediction[7 - 300]
    assert (type(answer.label), type(answer.confidence)) == (str, float)
    assert answer.label == prediction.labels[7]
    assert answer.confidence == prediction.confidence[7]
    assert (answer.p_known, answer.verdict) == (None, None)
    assert prediction.neighbors.ids is not None
    assert answer.nearest_id == prediction.neighbors.ids[7, 0]
    assert answer.sq_distance == ((GALLERY - QUERIES[7]) ** 2).sum(axis=1).min()
    known = ask(careful)
    assert known.p_known is not None
    assert known[7].p_known == known.p_known[7]
    with pytest.raises(IndexError):
        prediction[300]
    assert [one.label for one in prediction] == prediction.labels.tolist()


@pytest.mark.parametrize(
    "rows", [slice(10, 40, 3), np.arange(300) % 7 == 0, [5, 5, -1], np.array([3])]
)
def test_several_rows_are_a_prediction(prediction: Prediction, rows: Any) -> None:  # noqa: ANN401
    some = prediction[rows]
    assert isinstance(some, Prediction)
    assert some.labels.tolist() == prediction.labels[rows].tolist()
    np.testing.assert_array_equal(some.confidence, prediction.confidence[rows])
    np.testing.assert_array_equal(some.neighbors.labels, prediction.neighbors.labels[rows])
    # What belongs to a query moves with it.
    np.testing.assert_array_equal(some.posterior.confidence, some.confidence)
    assert some.differences == prediction.differences


@pytest.mark.parametrize("rows", [slice(0, 0), np.zeros(300, bool), []])
def test_no_rows_are_an_empty_prediction(prediction: Prediction, rows: Any) -> None:  # noqa: ANN401
    none = prediction[rows]
    assert len(none) == len(none.neighbors) == len(none.posterior) == 0
    assert str(none).splitlines()[0] == "0 predictions, 10 classes"
    assert len(none.to_frame()) == 0


def test_a_query_without_neighbours_has_no_nearest_id() -> None:
    neighbors = Neighbors([[1.0], [4.0]], [[0], [0]], ids=[[8], [9]], counts=[1, 0])
    posterior = Posterior(np.array([0, 1, 1]), np.array([0]), np.array([0.75]), 1)
    found = Prediction(np.array(["a", "a"]), np.array([0.75, 0.0]), neighbors, posterior)
    assert found[0] == Answer("a", 0.75, None, None, 8, 1.0)
    assert found[1] == Answer("a", 0.0, None, None, None, np.inf)


def test_frames_have_a_row_for_each_query(prediction: Prediction, careful: NEDClassifier) -> None:
    frame = prediction.to_frame()
    answer = vars(prediction[3])
    assert {name: answer[name] for name in frame.columns} == frame.iloc[3].to_dict()
    assert set(answer) - set(frame.columns) <= {"p_known", "verdict"}
    assert len(frame) == 300
    assert {"p_known", "verdict"} <= set(ask(careful).to_frame().columns)


def test_an_audit_prints_labels_in_ten_lines() -> None:
    flawed = LABELS.copy()
    flawed[:12] = np.roll(NAMES, 1)[CODES[:12]]
    audit = NEDClassifier().fit(GALLERY, flawed).audit()
    lines = str(audit).splitlines()
    assert len(lines) <= LONGEST_PRINT
    assert lines[0].endswith(f"possibly mislabelled: {audit.suspects.wrong}")
    frame = audit.to_frame()
    assert len(frame) == audit.suspects.n_doubted
    found = frame.set_index("id").loc[0]
    assert (found["label"], found["suggested"]) == (flawed[0], LABELS[0])
    assert found["trust"] < 0.5
    assert frame["id"].tolist() == audit.suspects[: len(frame)].ids.tolist()
    assert str(frame["id"][0]) in lines[2]
    assert flawed[0] in audit._repr_html_()
    for part, n in (
        ("duplicates", len(audit.duplicates)),
        ("confusable", len(audit.confusable)),
        ("small", len(audit.small)),
        ("copies", len(audit.copies or ())),
    ):
        assert len(audit.to_frame(part)) == n  # type: ignore[arg-type]
    pairs = audit.to_frame("confusable")
    assert pairs["label"][0] == audit.classes[audit.confusable.codes[0, 0]]  # type: ignore[index]
    with pytest.raises(InvalidInputError, match="part must be one of"):
        audit.to_frame("wrong")  # type: ignore[arg-type]


def test_a_drift_prints_in_ten_lines_and_is_one_row(classifier: NEDClassifier) -> None:
    drift = classifier.compare_queries(QUERIES + 8.0)
    assert str(drift).splitlines()[:5] == drift.to_text().splitlines()[:5]
    assert len(str(drift).splitlines()) <= LONGEST_PRINT < len(drift.to_text()) / 80
    frame = drift.to_frame()
    assert len(frame) == 1
    row = frame.iloc[0]
    assert bool(row["alarm"])
    assert row["distance_gap"] == drift.distance.gap
    assert row["accuracy"] == drift.accuracy.estimate
    assert (row["accuracy_low"], row["accuracy_high"]) == drift.accuracy_range
    assert "ALARM" in drift._repr_html_()


def test_a_threshold_is_one_row(classifier: NEDClassifier) -> None:
    accept = classifier.accept_threshold(precision=0.95)
    frame = accept.to_frame()
    assert frame.loc[0, ["threshold", "target", "state"]].tolist() == [
        accept.threshold,
        0.95,
        "holds",
    ]
    assert frame["coverage"][0] == accept.coverage
    assert "&gt;=" in accept._repr_html_()


def test_sets_hold_labels(classifier: NEDClassifier) -> None:
    sets = classifier.predict_set(QUERIES, alpha=0.01)
    assert sets.sizes.max() > 1
    matrix = sets.to_csr().toarray()
    for row, labels in enumerate(sets.to_list()):
        assert all(type(label) is str for label in labels)
        assert sorted(labels) == classifier.classes_[matrix[row]].tolist()
        assert labels == sets[row].tolist()
    held = [own in labels for own, labels in zip(TRUTH, sets.to_list(), strict=True)]
    assert sets.contains(TRUTH).tolist() == held
    assert not sets.contains(np.full(300, "emu")).any()
    some = sets[sets.sizes > 1]
    assert some.to_list() == [labels for labels in sets.to_list() if len(labels) > 1]
    assert sets.to_frame()["labels"].tolist() == sets.to_list()
    assert sets.to_frame()["size"].tolist() == sets.sizes.tolist()
    first = str(sets).splitlines()
    assert first[0] == f"300 sets, 10 classes, mean size {sets.sizes.mean():.3g}, largest " + str(
        sets.sizes.max()
    )
    assert len(first) <= LONGEST_PRINT
    assert "<table>" in sets._repr_html_()


def test_sets_of_labels_are_not_asked_for_codes(classifier: NEDClassifier) -> None:
    """As text no code equals a label, and every set would seem to miss."""
    sets = classifier.predict_set(QUERIES, alpha=0.01)
    with pytest.raises(InvalidInputError, match="y must be of the kind that was fitted"):
        sets.contains(classifier.encode(TRUTH))


def test_a_threshold_takes_predictions(
    classifier: NEDClassifier, prediction: Prediction, careful: NEDClassifier
) -> None:
    accept = classifier.accept_threshold(precision=0.95)
    by_confidence = accept.accepts(prediction.confidence)
    assert 0 < by_confidence.mean() < 1
    for answers in (prediction, prediction.to_frame(), prediction.posterior):
        np.testing.assert_array_equal(accept.accepts(answers), by_confidence)
    assert accept.accepts(prediction[:0]).shape == (0,)
    known = ask(careful)
    chosen = careful.accept_threshold(precision=0.8)
    assert chosen.unknown_share is not None
    np.testing.assert_array_equal(chosen.accepts(known), chosen.accepts(known.confidence))


def test_a_threshold_for_unknown_queries_refuses_those_taken_for_known(
    prediction: Prediction, careful: NEDClassifier
) -> None:
    with pytest.raises(InvalidInputError, match=r"without p_known.*fit with unknown_share"):
        careful.accept_threshold(precision=0.8).accepts(prediction)


@pytest.mark.parametrize("field", ["verdicts", "labels"])
def test_a_threshold_takes_no_words(careful: NEDClassifier, field: str) -> None:
    with pytest.raises(InvalidInputError, match=r"must hold numbers in \[0, 1\]"):
        careful.accept_threshold(precision=0.8).accepts(getattr(ask(careful), field))


def test_a_threshold_of_given_points_takes_any_prediction(careful: NEDClassifier) -> None:
    """Held-out points hold unknown queries as they come, and p(known) is in their confidence."""
    known = ask(careful)
    accept: AcceptThreshold = choose_threshold(
        known.confidence, known.labels == TRUTH, precision=0.9
    )
    assert accept.accepts(known).sum() == accept.n_accepted
