"""The demonstration: a table and pictures, and where they are."""

from pathlib import Path

import matplotlib as mpl
import pytest
from matplotlib import image

from nearsure import demo


def test_prints_the_table_and_writes_the_pictures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mpl.use("Agg")
    demo.main(["--output", str(tmp_path / "pictures")])
    printed = capsys.readouterr().out
    for title in ("1NN", "kNN", "WkNN (Dudani)", "WkNN (Gou)", "NED"):
        assert title in printed
    for name in ("reliability.png", "neighbors.png", "trust.png"):
        path = tmp_path / "pictures" / name
        assert f"wrote {path}" in printed
        assert image.imread(path).std() > 0.05  # not a blank sheet
