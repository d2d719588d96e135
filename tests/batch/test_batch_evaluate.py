"""The numbers of an evaluation are those of one process, not merely close to them."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from partitioned_data import DIMENSION, SIZES, all_queries, drawn, write_points

from nearsure import NEDClassifier, metrics
from nearsure.batch import evaluate_partitions, score_partitions
from nearsure.errors import InvalidInputError, PartitionsFailedError


@pytest.fixture
def scored(model: Path, queries: Path, tmp_path: Path) -> Path:
    nothing = np.empty((0, DIMENSION), np.float32)
    write_points(queries / "aa.parquet", nothing, label=pa.array([], pa.string()))
    score_partitions(
        queries, tmp_path / "out", classifier=model, ranked="all", rows_per_partition=50
    )
    return tmp_path / "out"


def test_numbers_of_one_process(model: Path, scored: Path) -> None:
    classifier = NEDClassifier.load(model)
    vectors, truth = all_queries()
    answer = classifier.predict_with_confidence(vectors)
    correct = answer.labels == truth
    found = evaluate_partitions(scored, truth_column="label")
    np.testing.assert_array_equal(found.confidence, answer.confidence)
    np.testing.assert_array_equal(found.correct, correct)
    codes = classifier.encode(truth)
    assert found.n_queries == sum(SIZES)
    assert 0.5 < found.accuracy < 1
    assert found.accuracy == metrics.accuracy(correct)
    for name in (
        "expected_calibration_error",
        "area_under_risk_coverage",
        "error_detection_auroc",
    ):
        assert getattr(found, name) == getattr(metrics, name)(answer.confidence, correct)
    assert found.brier_score == metrics.brier_score(answer.posterior, codes)
    assert found.negative_log_likelihood == metrics.negative_log_likelihood(answer.posterior, codes)


def test_likelihood_needs_all_classes(model: Path, queries: Path, tmp_path: Path) -> None:
    for ranked in (None, 3):
        score_partitions(queries, tmp_path / "out", classifier=model, ranked=ranked)
        found = evaluate_partitions(tmp_path / "out", truth_column="label")
        assert found.brier_score is None
        assert found.negative_log_likelihood is None


def test_integer_labels_and_unknown_truth(queries: Path, tmp_path: Path) -> None:
    vectors, codes = drawn(300, seed=0)
    classifier = NEDClassifier(20).fit(vectors, codes)
    classifier.save(tmp_path / "model")
    points, truth = drawn(50, seed=7)
    truth[::5] = 77
    write_points(tmp_path / "in/all.parquet", points, truth)
    score_partitions(tmp_path / "in", tmp_path / "out", classifier=tmp_path / "model", ranked="all")
    found = evaluate_partitions(tmp_path / "out", truth_column="label")
    posterior = classifier.predict_posterior(points)
    np.testing.assert_array_equal(found.correct, posterior.labels == truth)
    assert found.brier_score == metrics.brier_score(posterior, classifier.encode(truth))
    assert found.negative_log_likelihood == np.inf
    # Texts are never equal to integers: all answers would look wrong.
    score_partitions(queries, tmp_path / "names", classifier=tmp_path / "model")
    with pytest.raises(PartitionsFailedError, match="of the kind of the gallery's labels, int64"):
        evaluate_partitions(tmp_path / "names", truth_column="label")


def test_truth_that_came_later(queries: Path, model: Path, tmp_path: Path) -> None:
    """Files of truth alone, with other row groups; also the divided files find their rows."""
    score_partitions(queries, tmp_path / "out", classifier=model, rows_per_partition=50)
    expected = evaluate_partitions(tmp_path / "out", truth_column="label")
    _, labels = all_queries()
    edges = np.cumsum([0, *SIZES])
    for name, first, last in zip(("a", "b", "deep/c"), edges, edges[1:], strict=False):
        part = slice(first, last)
        write_points(
            tmp_path / "truth" / f"{name}.parquet",
            np.zeros((last - first, 1)),
            said=pa.array(labels[part].tolist()).dictionary_encode(),
            row_group_size=37,
        )
    found = evaluate_partitions(tmp_path / "out", truth_column="said", truth=tmp_path / "truth")
    np.testing.assert_array_equal(found.correct, expected.correct)
    write_points(tmp_path / "truth/a.parquet", np.zeros((3, 1)), said=pa.array(["cat"] * 3))
    with pytest.raises(PartitionsFailedError, match="must have the rows that were scored"):
        evaluate_partitions(tmp_path / "out", truth_column="said", truth=tmp_path / "truth")


def test_faults(scored: Path, queries: Path, tmp_path: Path) -> None:
    with pytest.raises(PartitionsFailedError, match="must have a column 'truth'"):
        evaluate_partitions(scored, truth_column="truth")
    with pytest.raises(InvalidInputError, match=r"It has no scored\.json"):
        evaluate_partitions(tmp_path / "nowhere", truth_column="label")
    write_points(queries / "a.parquet", *drawn(SIZES[0], seed=9))
    with pytest.raises(PartitionsFailedError, match="has changed since it was listed") as caught:
        evaluate_partitions(scored, truth_column="label")
    assert all(name.startswith("a.rows-") for name in caught.value.failed)
    (scored / "scored.json").write_text("{}")
    with pytest.raises(InvalidInputError, match=r"scored\.json cannot be read"):
        evaluate_partitions(scored, truth_column="label")


def test_nothing_to_evaluate(model: Path, tmp_path: Path) -> None:
    nothing = np.empty((0, DIMENSION), np.float32)
    write_points(tmp_path / "in/none.parquet", nothing, label=pa.array([], pa.string()))
    score_partitions(tmp_path / "in", tmp_path / "out", classifier=model)
    with pytest.raises(InvalidInputError, match="has no rows to evaluate"):
        evaluate_partitions(tmp_path / "out", truth_column="label")
