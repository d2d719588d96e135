"""The scripts and styles of a report, and the order in which a page needs them.

The report's own script is kept in several small files, which pages see as one: `report.js`.
"""

from functools import cache
from importlib.resources import files

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
    "report_classes.js",
    "report_mistakes.js",
    "report_audit.js",
    "report_fit.js",
    "report.js",
)
SCRIPTS = (CHART_LIBRARY, *REPORT_SCRIPTS)
STYLES = ("report.css",)
TEMPLATE = "template.html"


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
        "report.css": "\n".join(asset_text(name) for name in STYLES),
    }
