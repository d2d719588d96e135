"""The site is the repository's own pages: copied as they lie, so that links between them hold.

MkDocs calls `on_config` before it looks for pages. Two reference pages are written from the program
itself, and are therefore never out of date.
"""

import re
import shutil
from pathlib import Path
from typing import Any

from command_reference import command_reference
from rest_reference import rest_reference

ROOT = Path(__file__).resolve().parents[2]
PAGES = ROOT / "build" / "docs"
STAGED = ("README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE")
FOLDERS = ("docs", "results", "examples")
STYLE = "docs/site/site.css"
# Sources that pages link to.
SOURCES = ("src/nearsure/engines/contract.py",)
# What only the tests read.
HIDDEN = re.compile(
    r"^<!--(?:-? invisible-code-block: .*?^--+| not run: [^>]+ --)>\n+", re.MULTILINE | re.DOTALL
)


def on_config(config: Any, **_: Any) -> Any:  # noqa: ANN401 - MkDocs's own type
    """Fill the folder that the site is built from, and send MkDocs there."""
    stage(PAGES)
    config["docs_dir"] = str(PAGES)
    return config


def stage(folder: Path) -> None:
    """Copy the pages and write the references."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name in (*STAGED, *SOURCES):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, folder / name)
    for name in FOLDERS:
        ignored = shutil.ignore_patterns("site", "__pycache__", "*.json", "*.safetensors")
        shutil.copytree(ROOT / name, folder / name, ignore=ignored)
    for page in folder.rglob("*.md"):
        page.write_text(HIDDEN.sub("", page.read_text(encoding="utf-8")), encoding="utf-8")
    shutil.copy2(ROOT / STYLE, folder / Path(STYLE).name)
    reference = folder / "docs" / "reference"
    (reference / "commands.md").write_text(command_reference(), encoding="utf-8")
    (reference / "rest.md").write_text(rest_reference(), encoding="utf-8")
