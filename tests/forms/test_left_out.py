"""What leaving oneself out takes from one's class, and that the factor gives it back."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearsure.arrays import FloatArray, IntArray
from nearsure.errors import InvalidInputError
from nearsure.loo import LARGEST_FACTOR, own_class_factors


def in_loops(codes: IntArray, points: IntArray, groups: IntArray | None) -> list[float]:
    factors = []
    for point in points.tolist():
        fellows = [i for i in range(len(codes)) if codes[i] == codes[point]]
        left = [i for i in fellows if i != point and (groups is None or groups[i] != groups[point])]
        factors.append(min(len(fellows) / len(left), LARGEST_FACTOR) if left else 1.0)
    return factors


@settings(deadline=None, max_examples=80)
@given(data=st.data())
def test_it_is_the_share_that_is_left(data: st.DataObject) -> None:
    n = data.draw(st.integers(1, 25))
    codes = np.array(data.draw(st.lists(st.integers(0, 4), min_size=n, max_size=n)))
    groups = np.array(data.draw(st.lists(st.integers(-2, 3), min_size=n, max_size=n)))
    points = np.array(data.draw(st.lists(st.integers(0, n - 1), min_size=1, max_size=9)))
    for own in (None, groups):
        factors = own_class_factors(codes, points, own)
        np.testing.assert_allclose(factors, in_loops(codes, points, own), rtol=1e-15)
        assert (factors >= 1).all()


def test_a_group_takes_its_members_of_the_own_class_alone() -> None:
    codes = np.array([0, 0, 0, 0, 1, 1, 1])
    groups = np.array([5, 5, 6, 7, 5, 5, 8])
    factors = own_class_factors(codes, np.arange(7), groups)
    np.testing.assert_allclose(factors, [3 / 2, 3 / 2, 4 / 3, 4 / 3, 3 / 2, 3 / 2, 3 / 2])


def test_nobody_left_is_nothing_to_correct() -> None:
    assert own_class_factors(np.array([0, 1, 1]), np.arange(3), np.array([0, 4, 4])).tolist() == [
        1.0,
        1.0,
        1.0,
    ]


def test_groups_of_other_points_are_refused() -> None:
    with pytest.raises(InvalidInputError, match=r"groups must be one for each of the 3 support"):
        own_class_factors(np.zeros(3, np.int64), np.arange(2), np.zeros(2, np.int64))


def sums_of_kernels(asked: FloatArray, members: FloatArray) -> FloatArray:
    """What each asked point finds of its class, shapes (n_classes, n, 3) and (n_classes, m, 3)."""
    sq_distances = np.square(asked[:, :, None] - members[:, None]).sum(axis=3)
    return np.asarray(np.exp(-sq_distances / 2.0))


@pytest.mark.parametrize(("size", "in_pairs"), [(3, False), (8, False), (8, True)])
def test_corrected_sums_are_what_a_query_finds_on_average(
    size: int,
    in_pairs: bool,  # noqa: FBT001
) -> None:
    """2000 Gaussian classes of few members; all within chance.

    The first two members may be a group, which leaves both out.
    """
    n_classes = 2000
    rng = np.random.default_rng(size)
    members, queries = rng.normal(size=(n_classes, size, 3)), rng.normal(size=(n_classes, 4, 3))
    codes = np.repeat(np.arange(n_classes), size)
    places = np.tile(np.arange(size), n_classes)
    groups = np.where(places < 2, 0, places) if in_pairs else places
    factors = own_class_factors(codes, np.arange(len(codes)), groups).reshape(n_classes, size)
    stays = groups[:size, None] != groups[:size]
    left_out = (sums_of_kernels(members, members) * stays).sum(axis=2)
    of_queries = sums_of_kernels(queries, members).sum(axis=2).mean(axis=1)

    def standard_errors_apart(own: FloatArray) -> float:
        by_class = own.mean(axis=1) - of_queries
        return float(by_class.mean() / (by_class.std(ddof=1) / np.sqrt(n_classes)))

    assert abs(standard_errors_apart(left_out * factors)) < 3.5
    assert standard_errors_apart(left_out) < -5  # without the factor it is seen to be too small
