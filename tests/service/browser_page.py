"""Pages in a real browser: whatever they complain about fails the test."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, expect, sync_playwright

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)
TELL_VIOLATIONS = """
addEventListener("securitypolicyviolation", (event) => console.error(event.violatedDirective));
"""
# What Chromium itself notes: answers that tests provoke, and services that stop before their page.
PROVOKED = (
    "ERR_FAILED",
    "ERR_CONNECTION_REFUSED",
    *(f"status of {status}" for status in (401, 409, 429, 503)),
)
BARRIERS = Path(__file__).with_name("page_barriers.js").read_text("utf-8")
# Charts follow a new width only after a while.
SETTLED_WIDTH = """async (wanted) => {
  const end = performance.now() + 5000;
  const width = () => document.scrollingElement.scrollWidth;
  while (width() > wanted && performance.now() < end) await new Promise(requestAnimationFrame);
  return width();
}"""
# What reaches out of the window sideways; tables of the report may, as they scroll.
OUT_OF_SIGHT = """() => [...document.querySelectorAll(".ui :is(button, input)")]
  .filter((one) => one.checkVisibility())
  .filter((one) => one.getBoundingClientRect().right > innerWidth)
  .map((one) => one.outerHTML.slice(0, 90))"""
WIDE, NARROW = (1200, 900), (360, 740)
# A machine that builds other things at the same time is slow.
PATIENCE = 20_000
expect.set_options(timeout=PATIENCE)


@contextmanager
def opened_browser() -> Iterator[Browser]:
    found = os.environ.get("NEARSURE_CHROMIUM") or next(
        filter(None, map(shutil.which, BROWSERS)), None
    )
    if found is None:
        pytest.skip("no Chromium is installed; NEARSURE_CHROMIUM may name one")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=list(FLAGS))
        yield browser
        browser.close()


class WatchedPage:
    """A page with a store of its own, and what it complained about."""

    def __init__(self, browser: Browser) -> None:
        context = browser.new_context(reduced_motion="reduce")
        context.add_init_script(TELL_VIOLATIONS)
        context.set_default_timeout(PATIENCE)
        self.page = context.new_page()
        resize(self.page, WIDE)
        self.complaints: list[str] = []
        self.page.on("console", self._hear)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))

    def _hear(self, line: ConsoleMessage) -> None:
        provoked = any(sign in line.text for sign in PROVOKED)
        if line.type == "error" and not provoked and not line.location["url"].endswith("/picture"):
            self.complaints.append(line.text)

    def check_peace(self) -> None:
        complaints, self.complaints = self.complaints, []
        assert complaints == [], complaints


def resize(page: Page, size: tuple[int, int]) -> None:
    page.set_viewport_size({"width": size[0], "height": size[1]})


def expect_fit(page: Page) -> None:
    """That nothing is wider than the window, wide or narrow."""
    for size in (NARROW, WIDE):
        resize(page, size)
        width, outside = page.evaluate(SETTLED_WIDTH, size[0]), page.evaluate(OUT_OF_SIGHT)
        assert width <= size[0], (width, size)
        assert outside == [], (outside, size)
