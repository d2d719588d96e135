"""`nearsure reproduce sop` and `inshop` from the official layouts to tables, on drawn stand-ins."""

import json
from collections import Counter
from pathlib import Path

import pytest
from stand_ins import FEWEST, MOST, SETTINGS, write_inshop_like, write_sop_like

from nearsure.cli import main
from nearsure.lab.datasets.in_shop import load_in_shop
from nearsure.lab.datasets.products import load_products

N_CLASSES = 16
OPTIONS = ("--config", "tiny.toml", "-k", "5", "--resamples", "10", "--output", "out")
TINY = SETTINGS.replace("epochs = 6", "epochs = 2").replace("= 64", "= 8").replace("= 128", "= 8")


def reproduce(monkeypatch: pytest.MonkeyPatch, folder: Path, *words: str) -> dict[str, dict]:  # type: ignore[type-arg]
    """Run the command in a folder; gives the runs of its results."""
    (folder / "tiny.toml").write_text(TINY, encoding="utf-8")
    monkeypatch.chdir(folder)
    monkeypatch.setattr("sys.argv", ["nearsure", "reproduce", *words, *OPTIONS])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 0
    assert (folder / "out" / "README.md").is_file()
    runs: dict[str, dict] = json.loads((folder / "out" / "results.json").read_text())["runs"]  # type: ignore[type-arg]
    return runs


@pytest.mark.usefixtures("without_figures")
def test_products_of_few_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = write_sop_like(tmp_path / "Stanford_Online_Products", n_classes=N_CLASSES)
    split = load_products(root)
    sizes = Counter(split.queries.labels).values()
    assert (len(sizes), min(sizes) >= FEWEST, max(sizes) <= MOST) == (N_CLASSES, True, True)
    assert len(set(sizes)) > 3
    losses = ("normalized-softmax", "n-pairs", "proxy-nca")
    asked = [word for loss in losses for word in ("--loss", loss)]
    runs = reproduce(monkeypatch, tmp_path, "sop", "--root", str(root), *asked)
    assert tuple(runs) == losses
    for run in runs.values():
        assert run["training"]["steps"] > 0
        evaluations = run["evaluations"]
        assert set(evaluations) == {"all_against_others", "gallery_and_queries"}
        for evaluation in evaluations.values():
            assert evaluation["n_classes"] == N_CLASSES
            assert {found["rule"] for found in evaluation["comparison"]} >= {"1nn", "knn", "ned"}
        assert evaluations["all_against_others"]["n_queries"] == sum(sizes)


@pytest.mark.usefixtures("without_figures")
def test_items_with_queries_and_a_gallery(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = write_inshop_like(tmp_path / "In-shop", n_classes=N_CLASSES)
    split = load_in_shop(root)
    assert split.gallery is not None
    assert set(split.queries.labels) == set(split.gallery.labels)
    runs = reproduce(
        monkeypatch, tmp_path, "inshop", "--root", str(root), "--loss", "normalized-softmax"
    )
    (evaluation,) = runs["normalized-softmax"]["evaluations"].values()
    assert evaluation["protocol"] == "given_gallery"
    assert evaluation["n_gallery"] == len(split.gallery)
    assert evaluation["n_queries"] == len(split.queries)
    assert evaluation["n_unknown_queries"] == 0
