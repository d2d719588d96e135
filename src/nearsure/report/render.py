"""A report as JSON and as one HTML page."""

import base64
import hashlib
import html
import json
import re
from functools import cache
from importlib.resources import files

from nearsure.embedding_files.rows import plain_value
from nearsure.report.document import Report


def report_json(report: Report) -> str:
    """One line of JSON in ASCII: the same that the HTML page holds.

    What is not finite becomes null, as JSON has neither NaN nor infinity.
    """
    return json.dumps(
        plain_value(report.to_dict()), allow_nan=False, separators=(",", ":"), ensure_ascii=True
    )


# The scripts and styles of a report, and the order in which a page needs them.
#
# The report's own script is kept in several small files, which pages see as one: `report.js`.


CHART_LIBRARY = "chart.umd.js"
REPORT_SCRIPTS = (
    "report_elements.js",
    "report_numbers.js",
    "report_theme.js",
    "report_charts.js",
    "report_drawings.js",
    "report_tables.js",
    "report_overview.js",
    "report_decision.js",
    "report_quality.js",
    "report_confusion.js",
    "report_classes.js",
    "report_map.js",
    "report_mistakes.js",
    "report_audit.js",
    "report_fit.js",
    "report.js",
)


def asset_text(name: str) -> str:
    """One file of the assets, as it is kept."""
    return files("nearsure.report").joinpath("assets", name).read_text(encoding="utf-8")


@cache
def page_assets() -> dict[str, str]:
    """What a page loads, by name, in this order: the library, the report's script, its style.

    Examples
    --------
    >>> list(page_assets())
    ['chart.umd.js', 'report.js', 'report.css']
    """
    return {
        CHART_LIBRARY: asset_text(CHART_LIBRARY),
        "report.js": "\n".join(asset_text(name) for name in REPORT_SCRIPTS),
        "report.css": asset_text("report.css"),
    }


MARKER = re.compile(r"\$(policy|title|styles|scripts|data)\b")
INLINE = re.compile(r"<(script|style)>(.*?)</\1>", re.DOTALL)


def report_html(report: Report) -> str:
    """A page that draws the report from the JSON that it holds.

    Its content security policy lets no other script and style run than its own, by their digests,
    and nothing load but pictures that are part of the page.
    """
    assets = page_assets()
    template = asset_text("template.html")
    parts = {
        "title": html.escape(report.about.title.encode(errors="replace").decode()),
        "styles": assets["report.css"],
        "scripts": assets["chart.umd.js"] + "\n" + assets["report.js"],
        "data": _inert(report_json(report)),
    }
    parts["policy"] = _policy(template, parts)
    return _fill(template, parts)


def _fill(template: str, parts: dict[str, str]) -> str:
    """All markers at once, so that none is looked for in what was filled in."""
    return MARKER.sub(lambda found: parts[found[1]], template)


def _inert(json_text: str) -> str:
    """JSON that cannot end the element that holds it; within strings, the same characters."""
    return json_text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _policy(template: str, parts: dict[str, str]) -> str:
    digests: dict[str, list[str]] = {"script": [], "style": []}
    for element, content in INLINE.findall(template):
        digest = hashlib.sha256(_fill(content, parts).encode()).digest()
        digests[element].append(f"'sha256-{base64.b64encode(digest).decode()}'")
    return "; ".join(
        [
            "default-src 'none'",
            f"script-src {' '.join(digests['script'])}",
            f"style-src {' '.join(digests['style'])}",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
        ]
    )
