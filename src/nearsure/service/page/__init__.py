"""The page at `/`: a person asks, sees what supports the answer, and corrects the gallery.

Plain ES modules and one style sheet, without a build step; everything is served from /assets/.
The page also loads chart.umd.js, report.css and report.js of `nearsure.report.assets`.
"""

from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from importlib.resources import files

from fastapi import APIRouter, Request, Response

from nearsure.report.render import page_assets
from nearsure.service.errors import ProblemError

PAGE = "index.html"
KINDS = {"html": "text/html", "js": "text/javascript", "css": "text/css"}

router = APIRouter(include_in_schema=False)


@router.get("/")
async def get_page(request: Request) -> Response:
    """The page itself."""
    return _answer(request, PAGE)


# All of the path: a name with slashes is simply none of the table.
@router.get("/assets/{name:path}")
async def get_asset(request: Request, name: str) -> Response:
    """A script or a style sheet."""
    if name == PAGE or name not in page_files():
        raise ProblemError(404, "not_found", "There is nothing at this address.")
    return _answer(request, name)


@cache
def page_files() -> Mapping[str, tuple[bytes, str]]:
    """All files that are served, by name: content, and a tag that changes when it does."""
    own = [file for file in files(__name__).iterdir() if file.name.rpartition(".")[2] in KINDS]
    texts = page_assets() | {file.name: file.read_text("utf-8") for file in own}
    contents = {name: text.encode() for name, text in texts.items()}
    return {
        name: (content, f'"{sha256(content).hexdigest()[:32]}"')
        for name, content in contents.items()
    }


def _answer(request: Request, name: str) -> Response:
    content, tag = page_files()[name]
    # Kept by browsers, but asked about each time: a new version is seen at once.
    headers = {"etag": tag, "cache-control": "no-cache"}
    if tag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    return Response(content, headers=headers, media_type=KINDS[name.rpartition(".")[2]])
