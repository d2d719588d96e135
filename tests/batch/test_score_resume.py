"""A run that was cut off is finished by the next; only what has changed is scored anew."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from partitioned_data import bytes_of, drawn, write_points

from nearsure import NEDClassifier
from nearsure.batch import score as scoring
from nearsure.batch.score import Scored, score_partitions
from nearsure.errors import InvalidInputError, PartitionsFailedError

PROGRAM = """
import sys
from nearsure.batch import score_partitions

source, output, model = sys.argv[1:]
score_partitions(
    source, output, classifier=model, open_engine="worker_openers:gallery",
    scheduler="synchronous", batch_size=16,
)
"""


def test_killed_in_the_middle(engine_model: Path, tmp_path: Path) -> None:
    """A process that is killed leaves whole files alone; the next run gives what one run gives."""
    source, out = tmp_path / "in", tmp_path / "out"
    for number in range(6):
        write_points(source / f"{number}.parquet", drawn(48, seed=number)[0])
    environment = os.environ | {
        "SECONDS_A_SEARCH": "0.25",
        "PYTHONPATH": str(Path(__file__).parent),
    }
    program = [sys.executable, "-c", PROGRAM, str(source), str(out), str(engine_model)]
    with subprocess.Popen(program, env=environment) as process:  # noqa: S603
        try:
            until = time.monotonic() + 240
            while len(finished(out)) < 2 and process.poll() is None and time.monotonic() < until:
                time.sleep(0.01)
        finally:
            process.send_signal(signal.SIGKILL)
    done = finished(out)
    assert 2 <= len(done) < 6
    before = {path: path.stat().st_mtime_ns for path in done}
    resumed = resume(source, out, engine_model)
    assert (resumed.n_partitions, resumed.n_skipped) == (6, len(done))
    assert {path: path.stat().st_mtime_ns for path in done} == before
    resume(source, tmp_path / "at-once", engine_model)
    assert bytes_of(out) == bytes_of(tmp_path / "at-once")


def finished(out: Path) -> list[Path]:
    return sorted(out.glob("*.parquet"))


def resume(source: Path, out: Path, model: Path) -> Scored:
    return score_partitions(
        source,
        out,
        classifier=model,
        open_engine="worker_openers:gallery",
        scheduler="synchronous",
        batch_size=16,
    )


def n_scored(queries: Path, out: Path, model: Path, **options: object) -> int:
    """How many partitions a run found to do."""
    scored = score_partitions(queries, out, classifier=model, **options)  # type: ignore[arg-type]
    return scored.n_partitions - scored.n_skipped


def test_what_is_done_is_not_done_again(model: Path, queries: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert n_scored(queries, out, model) == 3
    before = bytes_of(out)
    assert n_scored(queries, out, model) == 0
    assert n_scored(queries, out, model, batch_size=5, scheduler="synchronous") == 0
    assert bytes_of(out) == before
    assert n_scored(queries, out, model, rescore=True) == 3
    assert bytes_of(out) == before


def test_another_model_means_scoring_anew(model: Path, queries: Path, tmp_path: Path) -> None:
    out, other = tmp_path / "out", tmp_path / "model"
    n_scored(queries, out, model)
    vectors, codes = drawn(200, seed=8)
    classifier = NEDClassifier(10).fit(vectors, codes)
    classifier.save(other)
    assert n_scored(queries, out, other) == 3
    table = pq.read_table(out / "a.parquet")
    assert table["label"].to_pylist() == (
        classifier.predict(drawn_queries(queries / "a.parquet")).tolist()
    )
    assert "p_known" not in table.column_names


def drawn_queries(path: Path) -> list[list[float]]:
    vectors: list[list[float]] = pq.read_table(path)["embedding"].to_pylist()
    return vectors


def test_other_settings_mean_scoring_anew(model: Path, queries: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    n_scored(queries, out, model)
    assert n_scored(queries, out, model, id_column="id") == 3
    assert n_scored(queries, out, model, id_column="id", ranked=2) == 3
    assert n_scored(queries, out, model, id_column="id", ranked=2) == 0


def test_a_changed_file_is_scored_anew(model: Path, queries: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    n_scored(queries, out, model)
    write_points(queries / "b.parquet", drawn(11, seed=4)[0])
    write_points(queries / "new.parquet", drawn(12, seed=5)[0])
    assert n_scored(queries, out, model) == 2
    assert pq.read_metadata(out / "b.parquet").num_rows == 11


def test_a_damaged_result_is_made_anew(model: Path, queries: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    n_scored(queries, out, model)
    before = bytes_of(out)
    (out / "a.parquet").write_bytes(before["a.parquet"][:-20])
    write_points(out / "b.parquet", drawn(5, seed=0)[0])
    assert n_scored(queries, out, model) == 2
    assert bytes_of(out) == before


def test_a_data_set_may_move(model: Path, queries: Path, tmp_path: Path) -> None:
    n_scored(queries, tmp_path / "out", model)
    moved = queries.rename(tmp_path / "elsewhere")
    assert n_scored(moved, tmp_path / "out", model) == 0


def test_results_of_other_files_are_not_mixed_in(
    model: Path, queries: Path, tmp_path: Path
) -> None:
    """A reader of the folder would count rows twice."""
    out = tmp_path / "out"
    n_scored(queries, out, model)
    with pytest.raises(InvalidInputError, match=r"holds a\.parquet and 1 more files that the"):
        n_scored(queries, out, model, rows_per_partition=50)
    (queries / "b.parquet").unlink()
    with pytest.raises(InvalidInputError, match=r"holds b\.parquet that the source"):
        n_scored(queries, out, model)


def test_an_interrupt_is_an_interrupt(
    model: Path, queries: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    score = scoring.score_partition

    def interrupted(job: dict[str, object]) -> int:
        if str(job["output"]).endswith("c.parquet"):
            raise KeyboardInterrupt
        return score(job)

    out = tmp_path / "out"
    with monkeypatch.context() as patched:
        patched.setattr(scoring, "score_partition", interrupted)
        with pytest.raises(KeyboardInterrupt):
            n_scored(queries, out, model, scheduler="synchronous")
    assert "scored.json" not in bytes_of(out)
    n_done = len(list(out.rglob("*.parquet")))
    assert n_scored(queries, out, model) == 3 - n_done


def test_a_model_that_is_exchanged_meanwhile(
    model: Path, queries: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent, real = iter(["0" * 64]), scoring.file_sha256
    monkeypatch.setattr(scoring, "file_sha256", lambda path: next(sent, "") or real(path))
    with pytest.raises(PartitionsFailedError, match="is not the model that scoring was started"):
        n_scored(queries, tmp_path / "out", model)
