"""Images that a few bytes make huge or slow are refused before they are decoded."""

import io
import tracemalloc

import numpy as np
import pytest
from PIL import Image

from nearsure.encoders.image import LIMITS, ImageEncoder
from nearsure.errors import BrokenImageError
from nearsure.image_limits import MOST_SCANS, ImageLimits, count_scans
from nearsure.lab.datasets.images import decode_image
from nearsure.report.thumbnails import Thumbnails

SMALL = ImageLimits(largest_area=10_000, enough=50)


def saved(kind: str, size: tuple[int, int], mode: str = "RGB", **options: object) -> bytes:
    file = io.BytesIO()
    Image.new(mode, size).save(file, kind, **options)
    return file.getvalue()


def with_scans(n_scans: int) -> bytes:
    """A progressive JPEG whose last scan is repeated until it has so many."""
    whole = saved("JPEG", (64, 64), progressive=True)
    end = whole.rfind(b"\xff\xd9")
    more = n_scans - count_scans(whole)
    return whole[:end] + more * whole[whole.rfind(b"\xff\xda") : end] + whole[end:]


def test_the_encoder_refuses_a_file_that_would_fill_the_memory() -> None:
    bomb = saved("PNG", (9400, 9400), "P", transparency=0)
    assert len(bomb) < 20_000
    encoder = ImageEncoder()
    tracemalloc.start()
    with pytest.raises(BrokenImageError, match=r"Image 1 .* 9400 x 9400 pixels.* 25,000,000"):
        encoder.encode([bomb])
    assert tracemalloc.get_traced_memory()[1] < 10_000_000
    tracemalloc.stop()


@pytest.mark.parametrize("kind", ["PNG", "GIF", "TIFF", "WEBP", "BMP"])
def test_the_area_is_limited_for_every_kind_of_file(kind: str) -> None:
    assert decode_image(saved(kind, (100, 100)), name="x", limits=SMALL).shape == (100, 100, 3)
    with pytest.raises(BrokenImageError, match="it has 101 x 100 pixels"):
        decode_image(saved(kind, (101, 100)), name="x", limits=SMALL)
    assert decode_image(saved(kind, (101, 100)), name="x").shape == (100, 101, 3)


def test_a_jpeg_is_decoded_at_a_fraction_that_is_enough() -> None:
    def decoded(width: int, height: int) -> tuple[int, ...]:
        return decode_image(saved("JPEG", (width, height)), name="x", limits=SMALL).shape[:2]

    assert decoded(800, 400) == (50, 100)
    assert decoded(99, 99) == (99, 99)
    assert decoded(100, 100) == (50, 50)
    with pytest.raises(BrokenImageError, match="800 x 49 pixels"):
        decoded(800, 49)


def test_a_fraction_looks_like_the_whole_to_the_encoder() -> None:
    slope = np.linspace(0, 255, 1800)
    pixels = np.stack(np.broadcast_arrays(slope, slope[:, None], 128.0), axis=-1).astype(np.uint8)
    jpeg, png = io.BytesIO(), io.BytesIO()
    Image.fromarray(pixels).save(jpeg, "JPEG", quality=95)
    Image.open(jpeg).save(png, "PNG")
    assert decode_image(jpeg.getvalue(), name="x", limits=LIMITS).shape == (450, 450, 3)
    fraction, whole = ImageEncoder().encode([jpeg.getvalue(), png.getvalue()])
    assert fraction @ whole > 0.995


def test_what_is_laid_on_white_in_bands_takes_little_more_than_its_pixels() -> None:
    data = saved("PNG", (3000, 3000), "P", transparency=0)
    tracemalloc.start()
    pixels = decode_image(data, name="x")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (pixels == 255).all()
    assert peak < 2 * pixels.nbytes


def test_scans_are_limited() -> None:
    assert decode_image(with_scans(MOST_SCANS), name="x", limits=LIMITS).shape == (64, 64, 3)
    slow = with_scans(MOST_SCANS + 1)
    with pytest.raises(BrokenImageError, match="it has 33 scans"):
        decode_image(slow, name="x", limits=LIMITS)
    thumbnails = Thumbnails()
    assert thumbnails.of(slow) is None
    assert thumbnails.of(with_scans(MOST_SCANS)) is not None
    assert "1 picture is not shown" in (thumbnails.note() or "")


def test_programs_that_draw_are_not_asked() -> None:
    drawing = saved("EPS", (8, 8))
    with pytest.raises(BrokenImageError, match="not an image of a kind"):
        decode_image(drawing, name="x", limits=LIMITS)
    assert Thumbnails().of(drawing) is None
