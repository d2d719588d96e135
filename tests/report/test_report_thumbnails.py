"""Pictures in a report: small, inside of it, and never in the way."""

import base64
import io
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from report_examples import FEW, drawn, fitted

from nearsure.report import gallery_report, query_report
from nearsure.report.thumbnails import LONGEST_SIDE, Thumbnails


def written(path: Path, size: tuple[int, int] = (400, 200), mode: str = "RGB") -> Path:
    Image.new(mode, size).save(path)
    return path


def opened(address: str | None) -> Image.Image:
    assert address is not None
    head, _, body = address.partition(",")
    assert head == "data:image/jpeg;base64"
    return Image.open(io.BytesIO(base64.b64decode(body)))


@pytest.mark.parametrize("mode", ["RGB", "L", "P", "RGBA", "LA", "1"])
def test_every_kind_of_image_becomes_a_small_jpeg(tmp_path: Path, mode: str) -> None:
    small = opened(Thumbnails().of(written(tmp_path / "image.png", mode=mode)))
    assert (small.format, small.mode) == ("JPEG", "RGB")
    assert small.size == (LONGEST_SIDE, LONGEST_SIDE // 2)


def test_small_images_are_not_blown_up_and_transparency_is_white(tmp_path: Path) -> None:
    image = Image.new("RGBA", (16, 8), (0, 0, 0, 0))
    image.save(tmp_path / "clear.png")
    small = opened(Thumbnails().of(tmp_path / "clear.png"))
    assert small.size == (16, 8)
    assert small.getpixel((3, 3)) == (255, 255, 255)


def test_photographs_are_turned_upright_and_lose_what_they_tell_of_their_place(
    tmp_path: Path,
) -> None:
    image = Image.new("RGB", (300, 100))
    details = image.getexif()
    details[0x0112] = 6  # lies on its side
    details[0x010E] = "at home"
    image.save(tmp_path / "photo.jpg", exif=details, comment=b"mine")
    small = opened(Thumbnails().of(tmp_path / "photo.jpg"))
    assert small.height == LONGEST_SIDE
    assert small.width == pytest.approx(LONGEST_SIDE / 3, abs=1)
    assert not dict(small.getexif())
    assert "comment" not in small.info


def test_bytes_and_data_addresses_are_pictures_too(tmp_path: Path) -> None:
    content = written(tmp_path / "image.png").read_bytes()
    address = "data:image/png;base64," + base64.b64encode(content).decode()
    thumbnails = Thumbnails()
    assert thumbnails.of(content) == thumbnails.of(address)
    assert opened(thumbnails.of(content)).size == (LONGEST_SIDE, LONGEST_SIDE // 2)
    assert thumbnails.note() is None


def test_what_cannot_be_read_is_a_note(tmp_path: Path) -> None:
    (tmp_path / "text.jpg").write_text("not an image")
    whole = written(tmp_path / "whole.png").read_bytes()
    (tmp_path / "half.png").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "folder.jpg").mkdir()
    thumbnails = Thumbnails()
    for name in ("text.jpg", "half.png", "folder.jpg", "missing.jpg"):
        assert thumbnails.of(tmp_path / name) is None
        assert thumbnails.of(tmp_path / name) is None
    for other in ("data:image/png;base64,%%%", "https://example.org/a.jpg", "nul\0.jpg", b"GIF89a"):
        assert thumbnails.of(other) is None
    assert thumbnails.of(None) is thumbnails.of("") is None
    note = thumbnails.note()
    assert note is not None
    assert note.startswith("8 pictures are not shown")
    assert "text.jpg, half.png, folder.jpg, ..." in note
    assert str(tmp_path) not in note


def test_huge_images_are_refused_before_they_fill_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path / "wide.png", size=(400, 200))
    monkeypatch.setattr("nearsure.report.thumbnails.LARGEST_AREA", 400 * 200 - 1)
    assert Thumbnails().of(path) is None


def test_without_pillow_there_is_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    thumbnails = Thumbnails()
    assert thumbnails.of("a.jpg") is None
    assert "not installed" in (thumbnails.note() or "")


def test_a_report_shows_queries_neighbours_and_suspects(tmp_path: Path) -> None:
    classifier = fitted(60)
    queries, labels = drawn(40, seed=1)
    path = str(written(tmp_path / "image.png"))
    report = query_report(
        classifier,
        queries,
        labels,
        title="Pictures",
        ids=[f"query {row}" for row in range(40)],
        pictures=[path if row % 2 else None for row in range(40)],
        gallery_pictures={
            **{str(row): path for row in range(0, 60, 2)},
            **{row: f"missing {row}.png" for row in range(1, 60, 2)},
        },
        n_resamples=FEW,
        n_mistakes=40,
    )
    assert report.mistakes
    assert report.audit is not None
    for mistake in report.mistakes:
        row = int(str(mistake.id).removeprefix("query "))
        assert (mistake.picture is not None) == bool(row % 2)
        for supporter in mistake.neighbors:
            assert (supporter.picture is not None) == (int(supporter.id) % 2 == 0)
    for suspect in report.audit.suspects:
        assert (suspect.picture is not None) == (int(suspect.id) % 2 == 0)
    shown = {supporter.id for mistake in report.mistakes for supporter in mistake.neighbors} | {
        suspect.id for suspect in report.audit.suspects
    }
    n_missing = sum(int(name) % 2 for name in shown)
    assert n_missing > 1
    assert any(f"{n_missing} pictures are not shown" in note for note in report.about.notes)


class Watched(Mapping[int, bytes]):
    """Pictures that somebody has to fetch."""

    def __init__(self) -> None:
        self.asked: set[object] = set()

    def __getitem__(self, key: int) -> bytes:
        self.asked.add(key)
        raise KeyError(key)

    def __len__(self) -> int:
        return 0

    def __iter__(self) -> Iterator[int]:
        return iter(())


def test_only_pictures_that_are_shown_are_asked_for() -> None:
    pictures = Watched()
    report = gallery_report(
        fitted(120), title="Own", pictures=pictures, n_resamples=FEW, n_mistakes=2, n_suspects=3
    )
    assert report.audit is not None
    shown = {mistake.id for mistake in report.mistakes}
    shown |= {supporter.id for mistake in report.mistakes for supporter in mistake.neighbors}
    shown |= {suspect.id for suspect in report.audit.suspects}
    assert report.confusion is not None
    for part in (*report.classes, *report.confusion.cells):
        shown |= {example.id for example in part.examples}
    assert {key for key in pictures.asked if not isinstance(key, str)} == shown
    assert np.max([len(mistake.neighbors) for mistake in report.mistakes]) == 8
