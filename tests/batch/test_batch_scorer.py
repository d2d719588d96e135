"""`Scorer` alone, in Ray's workers and in Spark's: always the answers of one process."""

import pickle
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from partitioned_data import DIMENSION, all_queries

from nearsure import NEDClassifier
from nearsure.batch import Scorer
from nearsure.errors import InvalidInputError, ModelFileError

FOLDER = Path(__file__).parent
# Ray's own processes have 30 or 60 seconds to register, and a busy machine may take longer.
RAY_PATIENCE = {
    "RAY_agent_register_timeout_ms": "600000",
    "RAY_gcs_server_port_wait_time_s": "600",
    "RAY_raylet_start_wait_time_s": "600",
    "RAY_worker_register_timeout_seconds": "600",
}


def expected_answers(classifier: NEDClassifier) -> dict[int, tuple[Any, ...]]:
    """Label, confidence and verdict of each query, by number, from one call in this process."""
    answer = classifier.predict_with_confidence(all_queries()[0])
    verdicts = answer.verdicts
    names = [None] * len(answer.labels) if verdicts is None else verdicts.tolist()
    rows = zip(answer.labels.tolist(), answer.confidence.tolist(), names, strict=True)
    return dict(enumerate(rows))


def by_number(rows: list[dict[str, Any]]) -> dict[int, tuple[Any, ...]]:
    """The same of scored rows, in whatever order they come."""
    found = {int(row["id"]): (row["label"], row["confidence"], row["verdict"]) for row in rows}
    assert len(found) == len(rows)
    return found


def test_a_batch_keeps_its_other_columns(model: Path) -> None:
    vectors, truth = all_queries()
    scorer = Scorer(model, ranked=2)
    answers = scorer({"truth": truth, "embedding": vectors, "id": np.arange(len(vectors))})
    names = ["truth", "id", "label", "confidence", "p_known", "verdict"]
    assert list(answers) == [*names, "ranked_labels", "ranked_probabilities"]
    expected = NEDClassifier.load(model).predict_with_confidence(vectors)
    assert (answers["truth"] == truth).all()
    assert (answers["label"] == expected.labels).all()
    assert (answers["confidence"] == expected.confidence).all()
    assert (answers["p_known"] == expected.p_known).all()
    assert [listed[0] for listed in answers["ranked_labels"]] == expected.labels.tolist()
    best = [listed[0] for listed in answers["ranked_probabilities"]]
    assert best == expected.confidence.tolist()


def test_vectors_as_lists_and_no_rows(model: Path) -> None:
    vectors, _ = all_queries()
    scorer = Scorer(model, vector_column="z")
    rows: Any = np.empty(5, object)
    rows[:] = [vector.tolist() for vector in vectors[:5]]
    whole = scorer({"z": vectors[:5]})
    assert (scorer({"z": rows})["confidence"] == whole["confidence"]).all()
    for nothing in (np.empty((0, DIMENSION)), np.empty(0, object)):
        none = scorer({"z": nothing})
        assert list(none) == list(whole)
        assert all(len(column) == 0 for column in none.values())


def test_what_is_wrong_with_a_batch(model: Path) -> None:
    scorer = Scorer(model)
    with pytest.raises(InvalidInputError, match=r"must have the column 'embedding'.* Got 'z'"):
        scorer({"z": np.ones((2, DIMENSION))})
    own: dict[str, Any] = {"label": [1, 2], "id": [3, 4], "confidence": [0.5, 0.5]}
    with pytest.raises(InvalidInputError, match="Got 'label', 'confidence': rename"):
        scorer({**own, "embedding": all_queries()[0][:2]})
    ragged: Any = np.empty(2, object)
    ragged[:] = [[1.0] * DIMENSION, [1.0]]
    gap: Any = np.empty(2, object)
    gap[:] = [[1.0] * DIMENSION, None]
    for column in (ragged, gap):
        with pytest.raises(InvalidInputError, match="vectors of one length, without gaps"):
            scorer({"embedding": column})


def test_what_is_sent_is_names_alone(model: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    copy.write_bytes(model.read_bytes())
    scorer = Scorer(copy, "worker_openers:gallery")
    assert all(value is None or isinstance(value, str) for value in vars(scorer).values())
    assert len(pickle.dumps(scorer)) < 1000
    copy.write_bytes(b"another")
    with pytest.raises(ModelFileError, match="is not the model that scoring was started with"):
        scorer({"embedding": all_queries()[0]})


@pytest.fixture
def workers_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Worker processes import this folder and the package under test."""
    source = Path(NEDClassifier.__module__.replace(".", "/"))
    package = Path(sys.modules[NEDClassifier.__module__].__file__ or "").parents[
        len(source.parts) - 1
    ]
    monkeypatch.setenv("PYTHONPATH", f"{FOLDER}:{package}")


@pytest.fixture
def ray(workers_path: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:  # noqa: ARG001
    for name, value in RAY_PATIENCE.items():
        monkeypatch.setenv(name, value)
    library = pytest.importorskip("ray", reason="Ray is not installed: pip install 'ray[data]'")
    pytest.importorskip("ray.data", reason="Ray Data is not installed: pip install 'ray[data]'")
    library.init(num_cpus=1, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
    yield library
    library.shutdown()


# Of Ray itself, about its own settings and files.
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_ray_gives_the_answers_of_one_process(ray: Any, model: Path) -> None:  # noqa: ANN401
    vectors, _ = all_queries()
    rows = [{"id": i, "embedding": vector} for i, vector in enumerate(vectors)]
    data = ray.data.from_items(rows, override_num_blocks=2)
    scored = data.map_batches(Scorer(model), batch_size=50).take_all()
    assert by_number(scored) == expected_answers(NEDClassifier.load(model))


@pytest.fixture
def spark(workers_path: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:  # noqa: ARG001
    sql = pytest.importorskip("pyspark.sql", reason="PySpark is not installed")
    if shutil.which("java") is None:
        pytest.skip("Spark needs Java, and there is no java on the path")
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    settings = {"spark.ui.enabled": "false", "spark.sql.execution.arrow.maxRecordsPerBatch": "50"}
    session = sql.SparkSession.builder.master("local[1]").config(map=settings).getOrCreate()
    yield session
    session.stop()


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_spark_gives_the_answers_of_one_process(spark: Any, model: Path) -> None:  # noqa: ANN401
    vectors, _ = all_queries()
    rows = [(i, vector.tolist()) for i, vector in enumerate(vectors.astype(np.float64))]
    data = spark.createDataFrame(rows, "id long, embedding array<double>").repartition(3)
    scorer = Scorer(model, ranked=2)
    schema = (
        "id long, label string, confidence double, p_known double, verdict string, "
        "ranked_labels array<string>, ranked_probabilities array<double>"
    )
    scored = [row.asDict() for row in data.mapInPandas(scorer.map_frames, schema).collect()]
    assert by_number(scored) == expected_answers(NEDClassifier.load(model))
    assert all(row["ranked_probabilities"][0] == row["confidence"] for row in scored)
