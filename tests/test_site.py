"""The site: pages are copied, references are complete, and the search finds what they list."""

import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib import import_module
from pathlib import Path
from threading import Thread
from types import ModuleType

import pytest
import typer
from playwright.sync_api import sync_playwright

from nearsure.cli.app import app
from nearsure.service import ServiceSettings, create_app

ROOT = Path(__file__).resolve().parents[1]
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
# What the page's own search sends back to it; 3 is the kind of a message with results.
LISTEN = """window.answers = [];
const Original = Worker;
window.Worker = class extends Original {
  constructor(...given) {
    super(...given);
    this.addEventListener("message", ({ data }) => {
      if (data.type === 3) window.answers.push(data.data.items.flat().map((item) => item.location));
    });
  }
};"""
PYTHON = "docs/reference/python.html#nearsure."
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


class Quiet(SimpleHTTPRequestHandler):
    """Serves files without telling standard error."""

    def log_message(self, *_: object) -> None: ...


@contextmanager
def served(folder: Path) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder))) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture(scope="module")
def search(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], list[str]]]:
    """Types into the search of the built site, in a browser, and returns the places it lists."""
    if CHROMIUM is None:
        pytest.skip("no chromium on this machine")
    site = tmp_path_factory.mktemp("built")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(site)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)  # noqa: S603
    with served(site) as address, sync_playwright() as playwright:
        flags = ["--no-sandbox", "--disable-gpu"]
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=flags)
        page = browser.new_page()
        page.add_init_script(LISTEN)
        page.goto(f"{address}/docs/index.html")
        field = page.locator(".md-search__input")
        field.click()

        def ask(words: str) -> list[str]:
            # The empty query is answered at once the index has been read.
            page.wait_for_function("window.answers.length > 0")
            page.evaluate("window.answers = []")
            field.fill(words)
            field.press("End")
            page.wait_for_function("window.answers.length > 0")
            return list(page.evaluate("window.answers.at(-1)"))

        yield ask
        browser.close()


def test_search_finds_every_option(search: Callable[[str], list[str]]) -> None:
    group = typer.main.get_command(app)
    context = typer.Context(group)
    places: dict[str, set[str]] = {}
    for name in group.list_commands(context):  # type: ignore[attr-defined]
        for parameter in group.get_command(context, name).params:  # type: ignore[attr-defined]
            for option in [*parameter.opts, *parameter.secondary_opts]:
                if option.startswith("--") and option != "--help" and not parameter.hidden:
                    places.setdefault(option, set()).add(
                        f"docs/reference/commands.html#nearsure-{name}"
                    )
    assert {"--head", "--groups-from-folder", "--precision"} <= places.keys()
    missing = {option: where - set(search(option)) for option, where in places.items()}
    assert not {option: where for option, where in missing.items() if where}
    assert len(search("--groups-from-folder")) < len(search("folder"))


@pytest.mark.parametrize(
    ("words", "place"),
    [
        ("accept_threshold", "NEDClassifier.accept_threshold"),
        ("unknown_share", "NEDClassifier"),
        ("predict_set", "NEDClassifier.predict_set"),
        ("PairConfidence", "PairConfidence"),
    ],
)
def test_search_finds_names_of_python(
    search: Callable[[str], list[str]], words: str, place: str
) -> None:
    assert f"{PYTHON}{place}" in search(words)[:3]
