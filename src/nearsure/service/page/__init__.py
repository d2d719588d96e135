"""The page at `/`: a person asks, sees what supports the answer, and corrects the gallery.

Plain ES modules and one style sheet, without a build step; everything is served from /assets/.
The page also loads chart.umd.js, report.css and report.js of `nearsure.report.assets`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.resources import files

from fastapi import APIRouter, Request, Response

from nearsure.report.render import page_assets
from nearsure.service.errors import ProblemError
from nearsure.service.routes import problems

__all__ = ["PAGE", "SCRIPTS", "STYLES"]


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


KINDS = {"html": "text/html", "js": "text/javascript", "css": "text/css"}
# Kept by browsers, but asked about each time: a new version is seen at once.
CACHING = "no-cache"


@dataclass(frozen=True)
class PageFile:
    """A file that is served, with the tag that changes when it does."""

    content: bytes
    media_type: str
    tag: str


def page_routes() -> APIRouter:
    """GET / and /assets/{name}."""
    router = APIRouter(include_in_schema=False)

    @router.get("/")
    async def get_page(request: Request) -> Response:
        return _answer(request, page_files()[PAGE])

    # All of the path: a name with slashes is simply none of the table.
    @router.get("/assets/{name:path}", responses=problems(404))
    async def get_asset(request: Request, name: str) -> Response:
        file = page_files().get(name)
        if file is None or name == PAGE:
            raise ProblemError(404, "not_found", "There is nothing at this address.")
        return _answer(request, file)

    return router


@cache
def page_files() -> Mapping[str, PageFile]:
    """The table, read once."""
    own = files("nearsure.service.page")
    texts = {name: own.joinpath(name).read_text("utf-8") for name in (PAGE, *SCRIPTS, *STYLES)}
    return {name: _file(name, text) for name, text in {**page_assets(), **texts}.items()}


def _file(name: str, text: str) -> PageFile:
    content = text.encode()
    kind = KINDS[name.rpartition(".")[2]]
    return PageFile(content, kind, f'"{sha256(content).hexdigest()[:32]}"')


def _answer(request: Request, file: PageFile) -> Response:
    headers = {"etag": file.tag, "cache-control": CACHING}
    if file.tag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    return Response(file.content, headers=headers, media_type=file.media_type)
