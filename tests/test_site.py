"""The site's folder of pages: everything is copied, and the references are complete."""

import re
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest
import typer

from nearsure.cli.app import app
from nearsure.service import ServiceSettings, create_app

ROOT = Path(__file__).resolve().parents[1]
LINK = re.compile(r"(?<!`)\[[^\]\n]*\]\((?P<target>[^)\s#]*)(?:#[^)\s]*)?\)")


@pytest.fixture(scope="module")
def staging() -> Iterator[ModuleType]:
    """The module that MkDocs calls, found as MkDocs finds it."""
    site = str(ROOT / "docs" / "site")
    sys.path.insert(0, site)
    yield import_module("staging")
    sys.path.remove(site)


@pytest.fixture(scope="module")
def pages(staging: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site") / "pages"
    staging.stage(folder)
    return folder


def test_every_command_and_option_is_in_the_reference(pages: Path) -> None:
    text = (pages / "docs/reference/commands.md").read_text()
    group = typer.main.get_command(app)
    context = typer.Context(group)
    parts = dict(
        re.findall(r"^## nearsure (\S+)\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    )
    assert list(parts) == group.list_commands(context)  # type: ignore[attr-defined]
    for name, part in parts.items():
        command = group.get_command(context, name)  # type: ignore[attr-defined]
        for parameter in command.params:
            if parameter.name == "help" or parameter.hidden:
                continue
            shown = [*parameter.opts, *parameter.secondary_opts]
            names = shown if shown[0].startswith("-") else [(parameter.metavar or shown[0]).upper()]
            assert f"| `{', '.join(names)}` |" in part


def test_every_command_shows_an_example(pages: Path) -> None:
    text = (pages / "docs/reference/commands.md").read_text()
    for part in re.split(r"^## nearsure ", text, flags=re.MULTILINE)[1:]:
        name = part.split()[0]
        assert re.search(rf"```text\n.*\bnearsure {name}\b", part)


def test_every_route_is_in_the_reference(pages: Path) -> None:
    text = (pages / "docs/reference/rest.md").read_text()
    headings = set(re.findall(r"^## (.*)$", text, re.MULTILINE))
    document = create_app(ServiceSettings(gallery="gallery.sqlite")).openapi()
    for path, operations in document["paths"].items():
        for method in operations:
            assert f"{method.upper()} {path}" in headings
    for name, schema in document["components"]["schemas"].items():
        assert f"### {name}\n" in text
        for field in schema.get("properties", {}):
            assert f"| `{field}` |" in text


def test_links_of_the_reference_lead_somewhere(pages: Path) -> None:
    text = (pages / "docs/reference/rest.md").read_text()
    anchors = {heading.lower() for heading in re.findall(r"^#+ (\w+)$", text, re.MULTILINE)}
    targets = set(re.findall(r"\]\(#([^)]+)\)", text))
    assert targets
    assert targets <= anchors


def test_every_relative_link_leads_to_a_file_of_the_site(pages: Path) -> None:
    broken = []
    for page in pages.rglob("*.md"):
        text = re.sub(r"^(```+).*?^\1", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
        for link in LINK.finditer(text):
            target = link["target"]
            if target and "://" not in target and not (page.parent / target).exists():
                broken.append(f"{page.relative_to(pages)}: {target}")
    assert not broken


def test_what_only_tests_read_is_left_out(pages: Path) -> None:
    for page in pages.rglob("*.md"):
        source = ROOT / page.relative_to(pages)
        if source.exists():
            text, original = page.read_text(), source.read_text()
            assert "invisible-code-block" not in text
            assert "<!-- not run" not in text
            # All that is read by people is still there.
            assert text.count("```") == original.count("```")
            headings = re.compile("^##+ .*", re.MULTILINE)
            assert headings.findall(text) == headings.findall(original)


def test_nothing_of_an_earlier_site_stays(staging: ModuleType, tmp_path: Path) -> None:
    stale = tmp_path / "pages" / "docs" / "gone.md"
    stale.parent.mkdir(parents=True)
    stale.write_text("# Gone\n")
    staging.stage(tmp_path / "pages")
    assert not stale.exists()
