"""Views: their size, and the part of the image they show, read off a picture of gradients."""

import numpy as np
import pytest

from nearsure.lab.datasets.images import Pixels
from nearsure.lab.images import central_view, random_view

STEP = 2  # grey levels a pixel
SIZE = 32


def gradients(height: int, width: int) -> Pixels:
    """Red grows to the right, green downwards; blue is 7 everywhere."""
    image = np.full((height, width, 3), 7, np.uint8)
    image[:, :, 0] = STEP * np.arange(width)
    image[:, :, 1] = STEP * np.arange(height)[:, None]
    return image


def extent(levels: Pixels) -> tuple[float, float]:
    """Where a crop begins and how far it reaches, in pixels, along a gradient; away from edges."""
    places = np.arange(4, SIZE - 4)
    slope, start = np.polyfit(places + 0.5, levels[4:-4] / STEP + 0.5, 1)
    return float(start), float(slope * SIZE)


def crop_of(view: Pixels) -> tuple[tuple[float, float], tuple[float, float]]:
    """Left and width, top and height."""
    return extent(view[SIZE // 2, :, 0]), extent(view[:, SIZE // 2, 1])


def test_the_central_view_is_the_largest_central_square() -> None:
    (left, width), (top, height) = crop_of(central_view(gradients(60, 100), SIZE))
    assert (left, width, top, height) == pytest.approx((20, 60, 0, 60), abs=0.5)
    (left, width), (top, height) = crop_of(central_view(gradients(101, 60), SIZE))
    assert (left, width, top, height) == pytest.approx((0, 60, 20.5, 60), abs=0.5)


def test_a_square_of_the_right_size_is_shown_as_it_is() -> None:
    image = gradients(SIZE, SIZE)
    np.testing.assert_array_equal(central_view(image, SIZE), image)
    whole = random_view(image, SIZE, np.random.default_rng(0), smallest_crop=1, flip=False)
    np.testing.assert_array_equal(whole, image)


@pytest.mark.parametrize("shape", [(100, 120), (120, 90), (110, 110)])
@pytest.mark.parametrize("smallest_crop", [0.2, 0.7])
def test_random_crops_cover_at_least_the_share(
    shape: tuple[int, int], smallest_crop: float
) -> None:
    image = gradients(*shape)
    shares, aspects = [], []
    for seed in range(60):
        view = random_view(
            image, SIZE, np.random.default_rng(seed), smallest_crop=smallest_crop, flip=False
        )
        assert view.shape == (SIZE, SIZE, 3)
        assert view.dtype == np.uint8
        assert (view[:, :, 2] == 7).all()
        (left, width), (top, height) = crop_of(view)
        assert min(left, top) > -0.5
        assert left + width < shape[1] + 0.5
        assert top + height < shape[0] + 0.5
        shares.append(width * height / (shape[0] * shape[1]))
        aspects.append(width / height)
    assert min(shares) > 0.98 * smallest_crop
    # Not always the same crop, and the whole range of shares is used.
    assert min(shares) < smallest_crop + 0.1
    assert max(shares) > 0.85
    assert min(aspects) > 0.98 * 3 / 4
    assert max(aspects) < 1.02 * 4 / 3
    assert max(aspects) - min(aspects) > 0.2


def test_an_elongated_image_shows_its_largest_square_where_no_crop_fits() -> None:
    image = gradients(40, 120)
    lefts = []
    for seed in range(20):
        view = random_view(image, SIZE, np.random.default_rng(seed), smallest_crop=0.9, flip=False)
        (left, width), (top, height) = crop_of(view)
        assert (width, top, height) == pytest.approx((40, 0, 40), abs=0.7)
        lefts.append(left)
    assert max(lefts) - min(lefts) > 40


def test_the_generator_alone_decides() -> None:
    image = gradients(80, 90)

    def view(seed: int) -> Pixels:
        return random_view(image, SIZE, np.random.default_rng(seed), smallest_crop=0.3, flip=True)

    np.testing.assert_array_equal(view(3), view(3))
    assert not np.array_equal(view(3), view(4))


@pytest.mark.parametrize("flip", [True, False])
def test_half_of_the_views_are_mirrored_or_none(*, flip: bool) -> None:
    image = gradients(50, 50)
    views = [
        random_view(image, SIZE, np.random.default_rng(seed), smallest_crop=0.5, flip=flip)
        for seed in range(400)
    ]
    mirrored = sum(int(view[0, 0, 0]) > int(view[0, -1, 0]) for view in views)
    # Five standard deviations of 400 tosses are 50.
    assert abs(mirrored - 200) < 50 if flip else mirrored == 0
    assert all(int(view[0, 0, 1]) < int(view[-1, 0, 1]) for view in views)


@pytest.mark.parametrize("shape", [(1, 1), (1, 50), (50, 1), (2, 3)])
def test_the_thinnest_images_work(shape: tuple[int, int]) -> None:
    image = np.full((*shape, 3), 9, np.uint8)
    views = [central_view(image, 16)]
    views += [
        random_view(image, 16, np.random.default_rng(seed), smallest_crop=0.4, flip=True)
        for seed in range(30)
    ]
    for view in views:
        np.testing.assert_array_equal(view, np.full((16, 16, 3), 9))
