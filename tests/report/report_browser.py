"""Reports opened in a real browser, as a file from disk and on a page of the service."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from playwright.sync_api import Browser, Page, Route, sync_playwright

from nearsure.report import Report, report_html, report_json
from nearsure.report.render import page_assets
from nearsure.service.middleware import CONTENT_SECURITY_POLICY

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
QUIET = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)
ORIGIN = "http://nearsure.test"
LIVE_PAGE = """<!doctype html><html lang="en"><head><title>live</title>
<link rel="stylesheet" href="/assets/report.css">
<script src="/assets/chart.umd.js" defer></script><script src="/assets/report.js" defer></script>
<script src="/assets/boot.js" defer></script></head><body><h1>Live</h1><div id="place"></div></body>
</html>"""
LIVE_BOOT = """window.calls = [];
window.refusal = null;
const record = (name) => async (...given) => {
  window.calls.push([name, ...given]);
  if (window.refusal !== null) throw new Error(window.refusal);
};
fetch("/v1/report").then((answer) => answer.json()).then((report) => {
  window.takeDown = window.nearsureReport.render(document.getElementById("place"), report, {
    live: true, threshold: 0.5,
    onRelabel: record("relabel"), onRemove: record("remove"), onThreshold: record("threshold"),
  });
});"""
WATCH = """window.violations = [];
document.addEventListener("securitypolicyviolation", (event) =>
  window.violations.push(event.violatedDirective + " " + event.blockedURI));"""


@contextmanager
def opened_browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(QUIET))
        try:
            yield browser
        finally:
            browser.close()


@dataclass
class Opened:
    """A page with a report on it, and whatever it complained about."""

    page: Page
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def check_peace(self) -> None:
        """No error, no breach of the policy, no script of a label's, nothing from elsewhere."""
        assert self.complaints == []
        assert self.page.evaluate("window.violations") == []
        assert self.page.evaluate("window.harmed === undefined")
        assert not [url for url in self.requests if "example.invalid" in url]


def _live_answer(route: Route, report: Report) -> None:
    path = route.request.url.removeprefix(ORIGIN)
    scripts = {f"/assets/{name}": text for name, text in page_assets().items()}
    texts = {**scripts, "/assets/boot.js": LIVE_BOOT, "/": LIVE_PAGE}
    if path == "/v1/report":
        route.fulfill(content_type="application/json", body=report_json(report))
    elif path in texts:
        kinds = {".js": "text/javascript", ".css": "text/css"}
        route.fulfill(
            content_type=kinds.get(Path(path).suffix, "text/html"),
            body=texts[path],
            headers={"Content-Security-Policy": CONTENT_SECURITY_POLICY},
        )
    else:
        route.fulfill(status=204)


@contextmanager
def opened_report(
    browser: Browser,
    report: Report,
    folder: Path,
    *,
    live: bool = False,
    scheme: Literal["light", "dark"] = "light",
) -> Iterator[Opened]:
    context = browser.new_context(
        viewport={"width": 1200, "height": 900}, color_scheme=scheme, reduced_motion="reduce"
    )
    context.add_init_script(WATCH)
    opened = Opened(context.new_page())
    page = opened.page
    page.set_default_timeout(20_000)
    page.on(
        "console",
        lambda said: (
            opened.complaints.append(said.text) if said.type in {"error", "warning"} else None
        ),
    )
    page.on("pageerror", lambda error: opened.complaints.append(str(error)))
    page.on("request", lambda request: opened.requests.append(request.url))
    try:
        if live:
            page.route("**/*", lambda route: _live_answer(route, report))
            page.goto(ORIGIN + "/")
        else:
            file = folder / "report.html"
            file.write_text(report_html(report), encoding="utf-8")
            page.goto(file.as_uri())
        page.wait_for_selector(".report-foot")
        yield opened
        opened.check_peace()
    finally:
        context.close()
