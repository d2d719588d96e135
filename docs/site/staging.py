"""The site is the repository's own pages: copied as they lie, so that links between them hold.

MkDocs calls `on_config` before it looks for pages. Two reference pages are written from the program
itself, and are therefore never out of date; each notebook becomes a page.
"""

import re
import shutil
from pathlib import Path
from typing import Any

from command_reference import command_reference
from nearsure.extras import read_toml
from notebook_pages import notebook_page
from rest_reference import rest_reference

ROOT = Path(__file__).resolve().parents[2]
PAGES = ROOT / "build" / "docs"
STAGED = (
    "AGENTS.md",
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "LICENSE",
    "SECURITY.md",
)
FOLDERS = ("docs", "results", "examples")
# The site has a first page of its own, docs/index.md, in the place of README.md.
FIRST = '<!doctype html><meta http-equiv="refresh" content="0; url=docs/index.html">\n'
ASSETS = ("site.css", "formulas.js", "search.js", "katex")
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
    urls = read_toml((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["urls"]
    config["repo_url"] = urls.get("Repository")
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
    (folder / "index.html").write_text(FIRST, encoding="utf-8")
    for name in ASSETS:
        asset = Path(__file__).with_name(name)
        copy = shutil.copytree if asset.is_dir() else shutil.copy2
        copy(asset, folder / name)
    for notebook in (folder / "docs" / "notebooks").glob("*.ipynb"):
        notebook.with_suffix(".md").write_text(notebook_page(notebook), encoding="utf-8")
    listed = folder / "docs" / "notebooks.md"
    listed.write_text(listed.read_text("utf-8").replace(".ipynb)", ".md)"), encoding="utf-8")
    reference = folder / "docs" / "reference"
    (reference / "commands.md").write_text(command_reference(), encoding="utf-8")
    (reference / "rest.md").write_text(rest_reference(), encoding="utf-8")
