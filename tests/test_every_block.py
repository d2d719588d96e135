"""Every block of code in README and docs is of a known kind, and is run or says why not."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted(
    page
    for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md"))
    if "adr" not in page.relative_to(ROOT).parts
)
RUN = {"python", "sh"}
SHOWN = {"text", "json", "toml", "http", "sql"}
FENCE = re.compile(r"^ *(?P<marks>`{3,}|~{3,}) *(?P<language>[^\n`]*)$")
# What conftest.py reads; kept in step with it by a test.
NOT_RUN = re.compile(r"<!-- not run: (?P<reason>[^>]+) -->")
SHORTEST_REASON = 10
# Written from the program when the site is built.
GENERATED = {"docs/reference/commands.md", "docs/reference/rest.md"} | {
    f"docs/notebooks/{path.stem}.md" for path in (ROOT / "docs" / "notebooks").glob("*.ipynb")
}


@dataclass(frozen=True)
class Block:
    line: int
    language: str
    above: str


def blocks_of(text: str) -> Iterator[Block]:
    """The fenced blocks of a page, each with the line that stands above it."""
    closing: str | None = None
    above = ""
    for number, line in enumerate(text.splitlines(), start=1):
        fence = FENCE.match(line)
        if closing is not None:
            if fence and fence["marks"].startswith(closing) and not fence["language"]:
                closing = None
        elif fence:
            closing = fence["marks"]
            yield Block(number, fence["language"], above)
        above = line
    assert closing is None, "a block that is never closed"


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_block_is_of_a_known_language(page: Path) -> None:
    unknown = [
        f"line {block.line}: {block.language!r}"
        for block in blocks_of(page.read_text(encoding="utf-8"))
        if block.language not in RUN | SHOWN
    ]
    assert not unknown


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_what_is_not_run_says_why(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    exempted = 0
    for block in blocks_of(text):
        reason = NOT_RUN.fullmatch(block.above)
        if reason:
            exempted += 1
            assert block.language in RUN, f"line {block.line}: is not run in any case"
            assert len(reason["reason"]) >= SHORTEST_REASON, (
                f"line {block.line}: {reason['reason']}"
            )
    # One that stands anywhere else exempts nothing, and is a mistake.
    assert text.count("not run:") == exempted


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_no_block_hides_in_a_list(page: Path) -> None:
    """Sybil and Markdown disagree on indented blocks; at the margin they do not."""
    text = page.read_text(encoding="utf-8")
    assert not re.search(r"^ +(?:`{3,}|~{3,})", text, re.MULTILINE)


def test_the_reader_of_blocks_sees_what_is_there() -> None:
    exempted = "<!-- not run: much too long -->"
    page = f"a\n{exempted}\n```sh\nls\n```\n\n````text\n```py\n```\n````\n```\n```\n"
    assert list(blocks_of(page)) == [
        Block(3, "sh", exempted),
        Block(7, "text", ""),
        Block(11, "", "````"),
    ]


def test_conftest_reads_the_same_reasons() -> None:
    assert NOT_RUN.pattern.replace("?P<reason>", "") in (ROOT / "conftest.py").read_text()


def test_the_site_names_exactly_the_pages_that_exist() -> None:
    _, _, nav = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")
    named = re.findall(r": (\S+\.md)$", nav, re.MULTILINE)
    assert len(named) == len(set(named))
    in_docs = {page for page in named if page.startswith("docs/")}
    existing = {name_of(page) for page in PAGES if page.name != "README.md"}
    assert in_docs == existing | GENERATED
    assert all((ROOT / page).is_file() for page in set(named) - in_docs)
