"""How often the true class is not found at all: counted, and foretold for queries."""

import json

import numpy as np
import pytest
from made_classes import MadeClasses, gaussian_classes

from nearsure.arrays import BoolArray, IntArray
from nearsure.errors import InvalidInputError
from nearsure.forms.missed_mass import MissedByConfidence, MissedMass, leave_room
from nearsure.metrics import expected_calibration_error
from nearsure.neighbors import Neighbors
from nearsure.posterior import score
from nearsure.temperature import fit_temperature

DIMENSION = 6


def many_small_classes(sizes: IntArray, *, seed: int, per_member: int = 2) -> MadeClasses:
    """Queries come as often as the support set holds their class."""
    return gaussian_classes(
        np.broadcast_to(np.eye(DIMENSION), (len(sizes), DIMENSION, DIMENSION)),
        sizes=sizes,
        n_queries=per_member * sizes,
        spread=1.6,
        seed=seed,
    )


def misses(neighbors: Neighbors, codes: IntArray) -> BoolArray:
    return np.asarray(~(neighbors.labels == codes[:, None]).any(axis=1))


def test_rates_of_one_class_size_by_hand() -> None:
    # Four points of two classes of three (plus one that nobody asked): hits 2, 1, 0, 0.
    neighbors = Neighbors([[1.0, 2.0]] * 4, [[0, 0], [0, 1], [1, 1], [0, 0]])
    missed = MissedMass.fit(neighbors, [0, 0, 0, 1], [3, 3])
    with_two = 2 / 4
    with_one = 2 / 4 + (1 / 4) / 2
    power = np.log(with_one / with_two) / np.log(3 / 2)
    with_three = with_two * (3 / 4) ** power
    assert missed.sizes == (0, 1, 2, 3)
    np.testing.assert_allclose(missed.rates, [1.0, with_one, with_two, with_three])
    assert missed.share == pytest.approx(with_three)
    np.testing.assert_allclose(missed.of_class_size([0, 3, 99]), [1.0, with_three, with_three])


def test_one_more_removed_is_counted_as_if_it_were_removed() -> None:
    """The rate with s - 2 is the mean over every member that could have been missing, too."""
    made = many_small_classes(np.full(30, 4), seed=0)
    k = 6
    own = made.own_neighbors(k)
    assert own.ids is not None
    lost = []
    for point, code in enumerate(made.codes):
        for other in np.flatnonzero(made.codes == code):
            if other != point:
                left = own.labels[point][own.ids[point] != other]
                lost.append(code not in left)
    missed = MissedMass.fit(own, made.codes, made.counts)
    assert missed.rates[missed.sizes.index(2)] == pytest.approx(np.mean(lost), abs=1e-12)


# Pairs leave one member to be found: one rate alone, of which the power law must make the other.
@pytest.mark.parametrize(("size", "tolerance"), [(2, 0.25), (4, 0.1), (7, 0.1)])
def test_queries_of_an_even_gallery_miss_as_often_as_foretold(size: int, tolerance: float) -> None:
    k = 10
    rates = []
    for seed in range(6):
        made = many_small_classes(np.full(120, size), seed=seed)
        own = made.own_neighbors(k)
        foretold = MissedMass.fit(own, made.codes, made.counts).share
        of_queries = misses(made.query_neighbors(k), made.query_codes).mean()
        rates.append((foretold, of_queries, misses(own, made.codes).mean()))
    foretold, of_queries, of_points = np.mean(rates, axis=0).tolist()
    assert foretold == pytest.approx(of_queries, rel=tolerance)
    # What points miss themselves is no forecast of what queries miss.
    assert abs(foretold - of_queries) < (of_points - of_queries) / 3


def test_queries_of_an_uneven_gallery_miss_as_often_as_foretold() -> None:
    totals = []
    for seed in range(6):
        sizes = np.random.default_rng(seed).integers(2, 13, 120)
        made = many_small_classes(sizes, seed=seed)
        missed = MissedMass.fit(made.own_neighbors(10), made.codes, made.counts)
        lost = misses(made.query_neighbors(10), made.query_codes)
        asked_sizes = sizes[made.query_codes]
        rates = missed.of_class_size(asked_sizes)
        assert missed.share == pytest.approx(rates.mean())
        assert (np.diff(missed.rates) <= 0).all()
        groups = (asked_sizes > 0, asked_sizes <= 4, asked_sizes >= 9)
        totals.append([(rates[some].mean(), lost[some].mean()) for some in groups])
    foretold, true = np.mean(totals, axis=0).T
    np.testing.assert_allclose(foretold, true, rtol=0.1)


def test_the_share_is_averaged_with_the_prior() -> None:
    sizes = np.random.default_rng(0).integers(2, 13, 40)
    made = many_small_classes(sizes, seed=1)
    own = made.own_neighbors(10)
    even = MissedMass.fit(own, made.codes, made.counts, prior=np.full(40, 3.0))
    assert even.share == pytest.approx(even.of_class_size(sizes).mean())
    assert even.share > MissedMass.fit(own, made.codes, made.counts).share


def test_nothing_missed_everything_missed_and_single_members() -> None:
    pairs = Neighbors([[1.0]] * 4, [[0], [0], [1], [1]])
    assert MissedMass.fit(pairs, [0, 0, 1, 1], [2, 2]).share == 0.0
    assert MissedMass.fit(pairs, [1, 1, 0, 0], [2, 2]).share == 1.0
    with_single = MissedMass.fit(
        Neighbors([[1.0]] * 5, [[0], [0], [1], [0], [0]]), [0, 0, 1, 1, 2], [2, 2, 1]
    )
    # A class of one member is missed as often as a pair of which one is left out.
    assert with_single.of_class_size([1])[0] == 0.25
    with pytest.raises(InvalidInputError, match="two or more members"):
        MissedMass.fit(Neighbors([[1.0], [1.0]], [[1], [0]]), [0, 1], [1, 1])


def test_room_is_left_and_the_ranking_kept() -> None:
    posterior = score(
        Neighbors([[0.0, 1.0, 4.0], [0.0, 0.0, 0.0]], [[2, 0, 0], [1, 1, 1]]), temperature=1.0
    )
    for share in (0.25, np.array([0.25, 1.0])):
        room = leave_room(posterior, share)
        np.testing.assert_array_equal(room.codes, posterior.codes)
        sums = np.bincount(room.rows, room.probabilities)
        np.testing.assert_allclose(sums, np.broadcast_to(1.0 - share, 2))
    again = leave_room(leave_room(posterior, 0.6), 0.25)
    np.testing.assert_allclose(again.probabilities, 0.75 * posterior.probabilities)


def test_a_query_without_neighbours_stays_without() -> None:
    nobody = score(Neighbors([[1.0], [1.0]], [[0], [0]], counts=[1, 0]), temperature=1.0)
    assert leave_room(nobody, 0.1).confidence.tolist() == [0.9, 0.0]


def test_by_confidence_finds_the_line_and_the_share() -> None:
    rng = np.random.default_rng(0)
    confidence = rng.uniform(0.05, 0.95, 20000)
    truth = MissedByConfidence(slope=-0.8, intercept=-1.0)
    missed = rng.random(20000) < truth(confidence)
    fitted = MissedByConfidence.fit(confidence, missed, missed.mean())
    assert fitted.slope == pytest.approx(-0.8, abs=0.05)
    assert fitted.intercept == pytest.approx(-1.0, abs=0.05)
    fewer = MissedByConfidence.fit(confidence, missed, 0.1)
    assert fewer.slope == fitted.slope
    assert fewer(confidence).mean() == pytest.approx(0.1, abs=1e-9)


def test_by_confidence_without_a_slope_is_the_share() -> None:
    confidence = np.linspace(0.1, 1.0, 10)
    for missed in (np.zeros(10, bool), np.ones(10, bool), confidence > 0.5):
        line = MissedByConfidence.fit(confidence, missed, 0.2)
        assert line.slope == 0.0
        np.testing.assert_allclose(line(confidence), 0.2)
    assert MissedByConfidence.fit(confidence, confidence < 0.5, 0.0)(confidence).max() < 1e-7


def test_by_confidence_is_better_calibrated_than_one_share_for_all() -> None:
    made = many_small_classes(np.full(150, 4), seed=0)
    own, asked = made.own_neighbors(10), made.query_neighbors(10)
    with pytest.warns(UserWarning, match="no neighbour of their own class"):
        temperature = fit_temperature(own, made.codes).temperature
    share = MissedMass.fit(own, made.codes, made.counts).share
    line = MissedByConfidence.fit(
        score(own, temperature=temperature).confidence, misses(own, made.codes), share
    )
    posterior = score(asked, temperature=temperature)
    lost = misses(asked, made.query_codes)
    shares = line(posterior.confidence)

    def log_loss(foretold: float | np.ndarray) -> float:
        return float(-np.log(np.where(lost, foretold, 1.0 - foretold)).mean())

    assert log_loss(shares) < log_loss(share)
    correct = posterior.labels == made.query_codes
    errors = [
        expected_calibration_error(leave_room(posterior, some).confidence, correct)
        for some in (0.0, share, shares)
    ]
    assert errors[2] == min(errors)


def test_rates_survive_json() -> None:
    missed = MissedMass((0, 1, 4), (1.0, 0.5, 0.125), 0.3)
    assert MissedMass.from_dict(json.loads(json.dumps(missed.to_dict()))) == missed


def test_errors_say_what_is_allowed() -> None:
    pairs = Neighbors([[1.0]] * 4, [[0], [0], [1], [1]])
    codes = np.array([0, 0, 1, 1])
    with pytest.raises(InvalidInputError, match="each of the 4 points"):
        MissedMass.fit(pairs, codes[:3], [2, 2])
    with pytest.raises(InvalidInputError, match="one count for each class"):
        MissedMass.fit(pairs, codes, [4])
    with pytest.raises(InvalidInputError, match="each of the 2 classes"):
        MissedMass.fit(pairs, codes, [2, 2], prior=[1.0, -1.0])
    with pytest.raises(InvalidInputError, match="sizes must ascend and rates must not"):
        MissedMass((0, 1), (0.5, 0.6), 0.5)
    with pytest.raises(InvalidInputError, match="equally many"):
        MissedMass((0, 1), (0.5,), 0.5)
    with pytest.raises(InvalidInputError, match=r"rates and share must lie in \[0, 1\]"):
        MissedMass((0,), (1.0,), 1.5)
    posterior = score(pairs, temperature=1.0)
    for share in (1.5, float("nan"), [0.5, 0.5]):
        with pytest.raises(InvalidInputError, match=r"share must be in \[0, 1\]"):
            leave_room(posterior, share)
