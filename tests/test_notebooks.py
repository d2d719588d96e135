"""The notebooks run, and print what is stored in them."""

import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "notebooks"
# What an encoder computes differs between processors in a last digit.
ENCODED = ("intents", "photos")
LARGEST = 20_000  # bytes: no pictures are stored


def printed(notebook: nbformat.NotebookNode) -> list[str]:
    """What each cell of code wrote to standard output."""
    return [
        "".join(output.text for output in cell.outputs if output.get("name") == "stdout")
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.ipynb")), ids=lambda path: path.stem)
def test_prints_what_is_stored(path: Path, tmp_path: Path) -> None:
    stored = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    run = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    resources = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(run, timeout=300, kernel_name="python3", resources=resources).execute()
    expected, found = printed(stored), printed(run)
    if path.stem in ENCODED:
        expected, found = (
            [re.sub(r"\d+", "0", text) for text in texts] for texts in (expected, found)
        )
    assert found == expected
    assert all(expected)


def test_five_small_notebooks() -> None:
    paths = sorted(FOLDER.glob("*.ipynb"))
    names = [path.stem for path in paths]
    assert names == ["intents", "label_audit", "paper", "photos", "vector_database"]
    assert all(path.stat().st_size < LARGEST for path in paths)
