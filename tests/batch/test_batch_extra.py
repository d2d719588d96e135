"""The extra is needed where it is used, not where the package is imported."""

import subprocess
import sys
from pathlib import Path

import pytest

from nearsure.batch import score_partitions
from nearsure.errors import MissingExtraError


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
