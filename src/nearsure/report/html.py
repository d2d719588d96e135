"""The document as one HTML file that needs no network and no other file."""

import base64
import hashlib
import html
import re

from nearsure.report.as_json import report_json
from nearsure.report.document import Report
from nearsure.report.page_assets import TEMPLATE, asset_text, page_assets

MARKER = re.compile(r"\$(policy|title|styles|scripts|data)\b")
INLINE = re.compile(r"<(script|style)>(.*?)</\1>", re.DOTALL)


def report_html(report: Report) -> str:
    """A page that draws the report from the JSON that it holds.

    Its content security policy lets no other script and style run than its own, by their digests,
    and nothing load but pictures that are part of the page.
    """
    assets = page_assets()
    template = asset_text(TEMPLATE)
    parts = {
        "title": html.escape(report.about.title.encode(errors="replace").decode()),
        "styles": assets["report.css"],
        "scripts": assets["chart.umd.js"] + "\n" + assets["report.js"],
        "data": _inert(report_json(report)),
    }
    parts["policy"] = _policy(template, parts)
    return _filled(template, parts)


def _filled(template: str, parts: dict[str, str]) -> str:
    """All markers at once, so that none is looked for in what was filled in."""
    return MARKER.sub(lambda found: parts[found[1]], template)


def _inert(json_text: str) -> str:
    """JSON that cannot end the element that holds it; within strings, the same characters."""
    return json_text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _policy(template: str, parts: dict[str, str]) -> str:
    digests: dict[str, list[str]] = {"script": [], "style": []}
    for element, content in INLINE.findall(template):
        digest = hashlib.sha256(_filled(content, parts).encode()).digest()
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
