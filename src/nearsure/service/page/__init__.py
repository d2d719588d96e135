"""The page at `/`: a person asks, sees who vouches for the answer, and mends the gallery.

Plain ES modules and one style sheet, without a build step; everything is served from /assets/.
The page also loads chart.umd.js, report.css and report.js of `nearsure.report.assets`.
"""

PAGE = "index.html"
STYLES = ("page.css",)
SCRIPTS = (
    "page.js",
    "api.js",
    "session.js",
    "elements.js",
    "pictures.js",
    "vectors.js",
    "questions.js",
    "answer.js",
    "threshold.js",
    "gallery.js",
    "suspects.js",
    "changes.js",
    "live_report.js",
)

__all__ = ["PAGE", "SCRIPTS", "STYLES"]
