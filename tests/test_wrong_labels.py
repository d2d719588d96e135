"""The number of wrong labels: histograms with a known flat part, and the floor of the ranking."""

import numpy as np
import pytest

from nearsure.arrays import FloatArray
from nearsure.wrong_labels import (
    CONFUSABLE_UP_TO,
    LARGEST_FLOOR,
    RANDOM_UP_TO,
    LabelSupport,
    WrongLabels,
    _count_places,
    _fit_flat_part,
    estimate_wrong_labels,
)


def with_gap(gap: FloatArray) -> LabelSupport:
    return LabelSupport((1 + gap) / 2, (1 - gap) / 2)


def test_places_are_shares_of_made_up_labels_with_less() -> None:
    rng = np.random.default_rng(0)
    values, made_up = rng.random(300), rng.random(999)
    places = np.array([(made_up < value).sum() for value in values]) / 1000
    expected = [np.sum((places >= low) & (places < low + 0.04)) for low in np.arange(20) * 0.04]
    counts = _count_places(values, made_up, 0.8, rng)
    # A place is known up to the one made-up label beside it.
    assert np.abs(counts - expected).sum() <= 6
    tied = _count_places(np.zeros(4000), np.zeros(500), 0.8, rng)
    np.testing.assert_allclose(tied, 4000 * 0.04, atol=60)


@pytest.mark.parametrize("up_to", [RANDOM_UP_TO, CONFUSABLE_UP_TO])
@pytest.mark.parametrize("power", [1.0, 3.0, 10.0])
def test_flat_part_of_expected_counts_is_found_again(power: float, up_to: float) -> None:
    edges, rng = np.linspace(0, 1, 21), np.random.default_rng(0)
    # So many that the power is certain.
    growing = 40_000 * np.diff(edges ** (power + 1))
    known = np.linspace(2000, 0, 20)
    for n_wrong in (5000.0, 50_000.0):
        counts = n_wrong * up_to / 20 + growing
        assert _fit_flat_part(counts[None], up_to, rng)[0] == pytest.approx(n_wrong, rel=0.1)
        with_others = _fit_flat_part((counts + known)[None], up_to, rng, known[None])
        assert with_others[0] == pytest.approx(n_wrong, rel=0.1)
    # Of right labels alone nearly nothing is flat.
    assert _fit_flat_part(growing[None], up_to, rng)[0] < 0.01 * 40_000


@pytest.mark.parametrize(("n_random", "n_confusable"), [(300, 0), (0, 300), (150, 150)])
def test_both_kinds_are_told_apart(n_random: int, n_confusable: int) -> None:
    """Random labels have no support to speak of, confused ones have up to half of it."""
    rng = np.random.default_rng(1)

    def draw_random(n: int) -> FloatArray:
        return -1 + 0.1 * rng.random(n)

    def draw_confused(n: int) -> FloatArray:
        return -1 + rng.random(n)

    right = 1 - rng.random(3000) ** 3
    gaps = np.concatenate([right, draw_random(n_random), draw_confused(n_confusable)])
    found = estimate_wrong_labels(
        with_gap(gaps), with_gap(draw_random(10_000)), with_gap(draw_confused(10_000))
    )
    # A tenth of the confused labels are like random ones.
    assert found.n_random == pytest.approx(n_random + 0.1 * n_confusable, abs=60)
    assert found.n == pytest.approx(n_random + n_confusable, abs=60)
    assert found.low <= found.n <= found.high
    assert 30 < found.high - found.low < 200


def test_the_range_narrows_with_the_number() -> None:
    rng = np.random.default_rng(2)
    made_up = with_gap(-rng.random(5000))
    widths = []
    for n in (50, 5000):
        found = estimate_wrong_labels(with_gap(-rng.random(n)), made_up, made_up)
        assert found.low <= n <= found.high
        widths.append((found.high - found.low) / n)
    assert widths[0] > 4 * widths[1]


def test_the_floor_grows_with_the_share_of_confused_labels() -> None:
    floors = [WrongLabels(100 - n, n, 0, 0).floor for n in (0, 10, 50, 90, 100)]
    assert floors[0] == 0
    assert floors == sorted(floors)
    assert floors[2] == pytest.approx(1e-4)
    assert floors[-1] == LARGEST_FLOOR
    assert WrongLabels(0, 0, 0, 0).floor == 0


def test_a_large_floor_ranks_by_the_gap() -> None:
    rng = np.random.default_rng(3)
    support = LabelSupport(0.5 * rng.random(200), rng.random(200))
    plain, floored = support.trust(), support.trust(LARGEST_FLOOR)
    np.testing.assert_allclose(plain, support.own / (support.own + support.rival))
    order = np.argsort(floored)
    assert np.corrcoef(floored, support.gap)[0, 1] > 0.999
    assert (np.diff(support.gap[order]) > -0.05).all()
    np.testing.assert_array_equal(plain < 0.5, floored < 0.5)


def test_words_are_whole_labels() -> None:
    found = WrongLabels(1200.2, 33.9, 900.7, 1500.2)
    assert (found.n, found.between) == (1234, (900, 1501))
    assert str(found) == "about 1,234, between 900 and 1,501"
