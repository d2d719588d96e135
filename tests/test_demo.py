"""The demonstration: a table and pictures, and where they are."""

import sys
from pathlib import Path

import matplotlib as mpl
import pytest
from matplotlib import image

from nearsure import demo


@pytest.mark.parametrize("share", ["0", "1", "-0.1"])
def test_a_gallery_of_all_or_nothing_is_refused(
    share: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        demo.main(["--gallery", share])
    assert "--gallery must lie between 0 and 1" in capsys.readouterr().err


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


def test_without_matplotlib_it_prints_the_table_and_what_to_install(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    demo.main(["--output", str(tmp_path / "pictures")])
    printed = capsys.readouterr().out
    assert "\nNED " in printed
    assert printed.endswith("pip install 'nearsure[plot]'\n")
    assert not (tmp_path / "pictures").exists()
