"""The pictures of docs/tutorials/images.md: ``python docs/site/screenshots.py``.

The tutorial's own commands make the gallery; what its page and its report look like is
photographed in Chromium (``NEARSURE_CHROMIUM`` may say where that is).
"""

import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, expect, sync_playwright

DOCS = Path(__file__).resolve().parents[1]
IMAGES = DOCS / "images"
TUTORIAL = DOCS / "tutorials" / "images.md"
BLOCK = re.compile(r"(<!-- not run[^\n]*\n)?```sh\n(.*?)```", re.DOTALL)
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run")
ADDRESS = "http://127.0.0.1:8765"
WIDTH, PHONE_WIDTH = 1200, 390
THUMBNAIL = 64
A_ROW = 16
# Milliseconds until pictures have come and charts are drawn.
SETTLED = 3000
expect.set_options(timeout=60_000)


def run_tutorial(folder: Path, *, since: str, until: str) -> None:
    """Run the tutorial's commands from the block with one word to that with another."""
    blocks = [block for not_run, block in BLOCK.findall(TUTORIAL.read_text("utf-8")) if not not_run]
    first, last = (next(i for i, block in enumerate(blocks) if w in block) for w in (since, until))
    for block in blocks[first:last]:
        run(folder, block)


def run(folder: Path, commands: str) -> None:
    """Run commands as a user would, with the environment activated."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    bash = ["bash", "-euo", "pipefail", "-c", commands]
    subprocess.run(bash, cwd=folder, env=os.environ | {"PATH": path}, check=True)  # noqa: S603


@contextmanager
def served(folder: Path) -> Iterator[None]:
    """The service of the tutorial."""
    options = ("gallery.sqlite", "--encoder", "image", "--precision", "0.95", "--port", "8765")
    command = [str(Path(sys.executable).with_name("nearsure")), "serve", *options]
    process = subprocess.Popen(command, cwd=folder)  # noqa: S603
    ready = f"{ADDRESS}/readyz"
    try:
        run(folder, f"curl --silent --retry 60 --retry-connrefused --retry-delay 1 {ready}")
        yield
    finally:
        process.terminate()
        process.wait(60)


def picture_of_photos(folder: Path) -> None:
    """All photos of the gallery, a row for each class."""
    files = sorted((folder / "photos").rglob("*.jpg"))
    classes = sorted({file.parent.name for file in files})
    size = (A_ROW * THUMBNAIL, len(classes) * THUMBNAIL)
    sheet = Image.new("RGB", size, "white")
    for row, name in enumerate(classes):
        for place, file in enumerate(sorted((folder / "photos" / name).iterdir())[:A_ROW]):
            with Image.open(file) as photo:
                small = photo.resize((THUMBNAIL, THUMBNAIL), Image.Resampling.LANCZOS)
            sheet.paste(small, (place * THUMBNAIL, row * THUMBNAIL))
    sheet.save(IMAGES / "tutorial-photos.jpg", quality=80)


def keep(page: Page, name: str, height: int, width: int = WIDTH) -> None:
    """Photograph what is in sight, with a palette so that the file is small."""
    page.set_viewport_size({"width": width, "height": height})
    page.wait_for_timeout(SETTLED)
    with Image.open(io.BytesIO(page.screenshot())) as picture:
        colors = picture.convert("RGB")
    palette = colors.quantize(256, method=Image.Quantize.MAXCOVERAGE, kmeans=2)
    colors.quantize(palette=palette).save(IMAGES / name, optimize=True)


def ask(page: Page, folder: Path) -> None:
    """Ask the page with a knight."""
    page.goto(f"{ADDRESS}/#ask")
    page.get_by_role("radio", name="Image").check()
    page.set_input_files("#image-file", folder / "new" / "knight" / "00.jpg")
    expect(page.locator("#neighbors li").first).to_be_visible()
    expect(page.locator("#promises button").first).to_be_visible()


def photograph(page: Page, folder: Path) -> None:
    """The page asked with a knight, its suspect labels, and the report."""
    ask(page, folder)
    keep(page, "page-ask.png", 1200)
    page.goto(f"{ADDRESS}/#gallery")
    expect(page.locator("#suspects li").first).to_be_visible()
    keep(page, "page-gallery.png", 800)
    page.goto((folder / "report.html").as_uri())
    for heading, name, height in (
        ("When may I act on a match?", "report.png", 1180),
        ("Most confident mistakes", "report-mistakes.png", 690),
    ):
        page.set_viewport_size({"width": WIDTH, "height": height})
        part = page.get_by_role("heading", name=heading)
        part.evaluate("heading => heading.closest('section').scrollIntoView()")
        keep(page, name, height)


def main() -> None:
    """Make them all."""
    found = os.environ.get("NEARSURE_CHROMIUM") or next(
        filter(None, map(shutil.which, BROWSERS)), None
    )
    if found is None:
        raise SystemExit("No Chromium is installed; NEARSURE_CHROMIUM may name one.")
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        folder = Path(name)
        run_tutorial(folder, since="draw.py", until="mv photos")
        picture_of_photos(folder)
        run_tutorial(folder, since="mv photos", until="nearsure serve")
        browser = playwright.chromium.launch(executable_path=found, args=list(FLAGS))
        with served(folder):
            page = browser.new_page(color_scheme="light", reduced_motion="reduce")
            photograph(page, folder)
            phone = browser.new_page(
                color_scheme="light", reduced_motion="reduce", device_scale_factor=2
            )
            ask(phone, folder)
            keep(phone, "page-ask-phone.png", 1000, PHONE_WIDTH)
        browser.close()


if __name__ == "__main__":
    main()
