"""Threads, processes and clusters give one answer, and say what went wrong."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest
from distributed import Client
from partitioned_data import bytes_of, drawn, write_points

from nearsure.batch import (
    evaluate_partitions,
    leave_one_out_over_shards,
    score_partitions,
    search_shards,
)
from nearsure.errors import MissingExtraError, NearsureError, PartitionsFailedError
from nearsure.index import ExactIndex


@pytest.fixture(scope="module")
def cluster(gallery_file: Path) -> Iterator[Any]:
    """Two worker processes, whose environment says where the gallery is."""
    with (
        pytest.MonkeyPatch.context() as patched,
        # A task whose worker dies is not tried again.
        dask.config.set({"distributed.scheduler.allowed-failures": 0}),
    ):
        patched.setenv("TEST_GALLERY", str(gallery_file))
        with connected(n_workers=2, threads_per_worker=1) as client:
            yield client


@contextmanager
def connected(**options: Any) -> Iterator[Any]:  # noqa: ANN401
    """A cluster of this machine, on ports that are free."""
    client = Client(dashboard_address=":0", silence_logs=50, **options)  # type: ignore[no-untyped-call]
    with client:
        yield client


def everything(folder: Path, model: Path, queries: Path, scheduler: Any) -> dict[str, Any]:  # noqa: ANN401
    """All that the package does, with one scheduler."""
    score_partitions(
        queries, folder, classifier=model, ranked="all", rows_per_partition=50, scheduler=scheduler
    )
    evaluation = evaluate_partitions(folder, truth_column="label", scheduler=scheduler)
    found = search_shards(queries, drawn(9, seed=3)[0], 5, id_column="id", scheduler=scheduler)
    own = leave_one_out_over_shards(
        queries, 5, label_column="label", max_samples=20, scheduler=scheduler
    )
    return {
        "files": bytes_of(folder),
        "likelihood": evaluation.negative_log_likelihood,
        "confidence": evaluation.confidence.tolist(),
        "sq_distances": found.sq_distances.tolist(),
        "ids": found.ids.tolist(),
        "own": own.neighbors.sq_distances.tolist(),
        "own_ids": own.ids.tolist(),
    }


def test_threads(model: Path, queries: Path, tmp_path: Path) -> None:
    expected = everything(tmp_path / "expected", model, queries, "synchronous")
    assert everything(tmp_path / "out", model, queries, "threads") == expected


def test_a_cluster(model: Path, queries: Path, tmp_path: Path, cluster: Any) -> None:  # noqa: ANN401
    expected = everything(tmp_path / "expected", model, queries, "synchronous")
    assert everything(tmp_path / "out", model, queries, cluster) == expected


def test_a_cluster_in_this_process(model: Path, queries: Path, tmp_path: Path) -> None:
    expected = everything(tmp_path / "expected", model, queries, "synchronous")
    with connected(processes=False, n_workers=1, threads_per_worker=2) as client:
        assert everything(tmp_path / "out", model, queries, client) == expected


def test_processes(engine_model: Path, queries: Path, tmp_path: Path) -> None:
    for scheduler in ("synchronous", "processes"):
        score_partitions(
            queries,
            tmp_path / scheduler,
            classifier=engine_model,
            open_engine="worker_openers:gallery",
            scheduler=scheduler,
        )
    assert bytes_of(tmp_path / "processes") == bytes_of(tmp_path / "synchronous")


def test_search_on_processes(tmp_path: Path) -> None:
    vectors = drawn(400, seed=0)[0]
    for number, part in enumerate(np.array_split(vectors, 7)):
        write_points(tmp_path / f"{number}.parquet", part)
    queries = drawn(50, seed=1)[0]
    sq_distances, ids = ExactIndex(vectors).search(queries, 20)
    # One process that answers for all shards; `test_processes` starts more.
    with dask.config.set(num_workers=1):
        found = search_shards(tmp_path, queries, 20, scheduler="processes")
    np.testing.assert_array_equal(found.ids, ids)
    np.testing.assert_array_equal(found.sq_distances, sq_distances)


def test_faults_on_a_cluster(
    engine_model: Path,
    queries: Path,
    tmp_path: Path,
    cluster: Any,  # noqa: ANN401
) -> None:
    """A bad partition among good ones, scored through an engine that the workers open."""
    points, _ = drawn(10, seed=0)
    points[3] = np.inf
    write_points(queries / "bad.parquet", points)
    with pytest.raises(PartitionsFailedError, match="Row 3 has NaN") as caught:
        score_partitions(
            queries,
            tmp_path / "out",
            classifier=engine_model,
            open_engine="worker_openers:gallery",
            scheduler=cluster,
        )
    assert list(caught.value.failed) == ["bad.parquet"]
    assert sorted(bytes_of(tmp_path / "out")) == ["a.parquet", "b.parquet", "deep/c.parquet"]
    with pytest.raises(PartitionsFailedError, match=r"bad\.parquet"):
        search_shards(queries, points[:2], 3, scheduler=cluster)


def test_a_worker_of_a_cluster_dies(
    engine_model: Path,
    queries: Path,
    tmp_path: Path,
    cluster: Any,  # noqa: ANN401
) -> None:
    with pytest.raises(PartitionsFailedError) as caught:
        score_partitions(
            queries / "a.parquet",
            tmp_path / "out",
            classifier=engine_model,
            open_engine="worker_openers:dying",
            scheduler=cluster,
        )
    assert list(caught.value.failed) == ["a.parquet"]
    assert "KilledWorker" in str(caught.value)
    assert bytes_of(tmp_path / "out") == {}


def test_a_process_dies(engine_model: Path, queries: Path, tmp_path: Path) -> None:
    with pytest.raises(NearsureError, match="A worker process died"):
        score_partitions(
            queries / "a.parquet",
            tmp_path / "out",
            classifier=engine_model,
            open_engine="worker_openers:dying",
            scheduler="processes",
        )
    assert bytes_of(tmp_path / "out") == {}


def test_nothing_heavy_is_imported_early() -> None:
    program = """
import sys, nearsure.classifier  # which may find some of them through scikit-learn
before = set(sys.modules)
import nearsure.batch

assert not {"dask", "distributed", "pyarrow", "tqdm"} & (set(sys.modules) - before)
"""
    subprocess.run([sys.executable, "-W", "error", "-c", program], check=True)  # noqa: S603


@pytest.mark.parametrize("missing", ["pyarrow.parquet", "dask.system", "tqdm"])
def test_what_is_missing_is_named(
    model: Path, queries: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    package = missing.partition(".")[0]
    with pytest.raises(MissingExtraError, match=rf"{package}.*pip install 'nearsure\[batch\]'"):
        score_partitions(queries, tmp_path / "out", classifier=model)


def test_no_progress_bar_but_on_a_terminal(
    model: Path, queries: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    score_partitions(queries, tmp_path / "out", classifier=model)
    assert capfd.readouterr() == ("", "")
