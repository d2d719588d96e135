"""The five rules against their formulas, against scikit-learn, and at the ends of float64."""

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import ArrayLike
from sklearn.neighbors import KNeighborsClassifier

from nearsure.arrays import FloatArray
from nearsure.errors import InvalidInputError
from nearsure.neighbors import Neighbors
from nearsure.posterior import score
from nearsure.rules import (
    RULE_NAMES,
    RULES_WITHOUT_PARAMETER,
    RuleName,
    check_rule,
    check_temperature,
    dudani_weights,
    gou_weights,
    knn_weights,
    nearest_weights,
    ned_weights,
    rule_weights,
)

T = 0.7
every_rule = pytest.mark.parametrize("rule", RULE_NAMES)
WeightsOfRow = Callable[[list[float], list[int]], list[float]]


def make(
    sq_distances: ArrayLike, labels: ArrayLike | None = None, counts: ArrayLike | None = None
) -> Neighbors:
    sq_distances = np.asarray(sq_distances, np.float64)
    labels = np.zeros(sq_distances.shape, int) if labels is None else np.asarray(labels)
    counts = None if counts is None else np.asarray(counts)
    return Neighbors(sq_distances, labels, counts=counts)


def temperature_of(rule: RuleName, temperature: float = T) -> float | None:
    return temperature if rule == "ned" else None


# Each rule once more, one row at a time, as its source writes it down.


def naive_1nn(sq_distances: list[float], labels: list[int]) -> list[float]:
    nearest = [i for i, d in enumerate(sq_distances) if d == min(sq_distances)]
    winner = min(nearest, key=lambda i: labels[i])
    return [float(i == winner) for i in range(len(sq_distances))]


def naive_knn(sq_distances: list[float], _: list[int]) -> list[float]:
    return [1.0 for _ in sq_distances]


def naive_dudani(sq_distances: list[float], _: list[int]) -> list[float]:
    d = [value**0.5 for value in sq_distances]
    if d[-1] == d[0]:
        return [1.0 for _ in d]
    return [(d[-1] - d_i) / (d[-1] - d[0]) for d_i in d]


def naive_gou(sq_distances: list[float], _: list[int]) -> list[float]:
    d = [value**0.5 for value in sq_distances]
    if d[-1] == d[0]:
        return [1.0 for _ in d]
    return [(d[-1] - d_i) / (d[-1] - d[0]) * (d[-1] + d[0]) / (d[-1] + d_i) for d_i in d]


def naive_ned(sq_distances: list[float], _: list[int]) -> list[float]:
    votes = [float(np.exp(-d / T)) for d in sq_distances]
    return [vote / votes[0] for vote in votes]  # the factor that all votes share


NAIVE: dict[RuleName, WeightsOfRow] = {
    "1nn": naive_1nn,
    "knn": naive_knn,
    "dudani": naive_dudani,
    "gou": naive_gou,
    "ned": naive_ned,
}


def naive_weights(neighbors: Neighbors, rule: RuleName) -> FloatArray:
    weights = np.zeros((neighbors.n_queries, neighbors.k))
    for row, valid in enumerate(neighbors.counts):
        if valid:
            weights[row, :valid] = NAIVE[rule](
                neighbors.sq_distances[row, :valid].tolist(), neighbors.labels[row, :valid].tolist()
            )
    return weights


@st.composite
def neighbors_with_ties(draw: st.DrawFn) -> Neighbors:
    """Few distances and few classes, so that ties and duplicates abound, and padding."""
    n, k = draw(st.integers(1, 5)), draw(st.integers(1, 7))
    distance = st.sampled_from([0.0, 0.25, 1.0, 1.5, 4.0]) | st.floats(0, 10)
    rows = st.lists(st.lists(distance, min_size=k, max_size=k).map(sorted), min_size=n, max_size=n)
    codes = st.lists(st.lists(st.integers(0, 3), min_size=k, max_size=k), min_size=n, max_size=n)
    counts = st.lists(st.integers(0, k), min_size=n, max_size=n)
    return make(draw(rows), draw(codes), draw(st.none() | counts))


@every_rule
@given(neighbors=neighbors_with_ties())
@settings(deadline=None, max_examples=80)
def test_weights_follow_the_formula(rule: RuleName, neighbors: Neighbors) -> None:
    weights = rule_weights(neighbors, rule, temperature_of(rule))
    np.testing.assert_allclose(weights, naive_weights(neighbors, rule), rtol=1e-12, atol=1e-14)
    assert weights.dtype == np.float64


@every_rule
@given(neighbors=neighbors_with_ties())
@settings(deadline=None, max_examples=30)
def test_weights_descend_from_exactly_one_and_are_zero_on_padding(
    rule: RuleName, neighbors: Neighbors
) -> None:
    weights = rule_weights(neighbors, rule, temperature_of(rule))
    assert (weights[~neighbors.valid] == 0).all()
    assert (weights.max(axis=1) == (neighbors.counts > 0)).all()
    if rule != "1nn":  # whose winner need not stand first among the equally near
        assert (np.diff(weights, axis=1) <= 0).all()


@every_rule
def test_neighbours_are_not_changed(rule: RuleName) -> None:
    neighbors = make([[0.1, 0.2, 0.4], [0.0, 0.0, 3.0]], counts=[3, 2])
    before = neighbors.sq_distances.copy()
    weights = rule_weights(neighbors, rule, temperature_of(rule))
    weights[:] = 5.0
    np.testing.assert_array_equal(neighbors.sq_distances, before)


# Numbers worked out by hand.


def test_nearest_takes_the_smallest_code_among_the_equally_near() -> None:
    neighbors = make([[1.0, 1.0, 1.0, 2.0]], [[5, 3, 3, 0]])
    np.testing.assert_array_equal(nearest_weights(neighbors), [[0, 1, 0, 0]])


def test_knn_counts_the_valid_neighbours() -> None:
    np.testing.assert_array_equal(
        knn_weights(make([[1.0, 2.0]] * 2, counts=[2, 1])), [[1, 1], [1, 0]]
    )


def test_dudani_and_gou_use_root_distances() -> None:
    neighbors = make([[1.0, 4.0, 16.0, 25.0]])  # d = 1, 2, 4, 5
    np.testing.assert_allclose(dudani_weights(neighbors), [[1, 3 / 4, 1 / 4, 0]])
    np.testing.assert_allclose(
        gou_weights(neighbors), [[1, 3 / 4 * 6 / 7, 1 / 4 * 6 / 9, 0]], rtol=1e-15
    )


@pytest.mark.parametrize("weights", [dudani_weights, gou_weights])
def test_dudani_and_gou_measure_against_the_last_valid_neighbour(
    weights: Callable[[Neighbors], FloatArray],
) -> None:
    padded = make([[1.0, 4.0, 9.0, 1e9], [2.0, 3.0, 0.0, 0.0]], counts=[3, 0])
    np.testing.assert_array_equal(weights(padded)[0, :3], weights(make([[1.0, 4.0, 9.0]]))[0])
    np.testing.assert_array_equal(weights(padded)[1], 0)


@pytest.mark.parametrize("distance", [0.0, 5e-324, 3.0, 1e300])
@pytest.mark.parametrize("rule", ["dudani", "gou"])
def test_equally_far_neighbours_all_have_weight_one(rule: RuleName, distance: float) -> None:
    equal = make([[distance] * 3, [distance, distance, 0.0]], counts=[3, 2])
    np.testing.assert_array_equal(rule_weights(equal, rule), [[1, 1, 1], [1, 1, 0]])


def test_ned_uses_squared_distances() -> None:
    np.testing.assert_allclose(
        ned_weights(make([[0.0, 4.0]]), temperature=2.0), [[1.0, np.exp(-2.0)]], rtol=1e-15
    )


# scikit-learn, whose weights function is given root distances.

SKLEARN_WEIGHTS: dict[RuleName, Callable[[FloatArray], FloatArray]] = {
    "knn": np.ones_like,
    "dudani": lambda d: (d[:, -1:] - d) / (d[:, -1:] - d[:, :1]),
    "gou": lambda d: (
        (d[:, -1:] - d) / (d[:, -1:] - d[:, :1]) * (d[:, -1:] + d[:, :1]) / (d[:, -1:] + d)
    ),
    "ned": lambda d: np.exp(-np.square(d) / T),
}


@pytest.mark.parametrize("rule", SKLEARN_WEIGHTS)
@pytest.mark.parametrize("k", [2, 15])
def test_probabilities_agree_with_scikit_learn(rule: RuleName, k: int) -> None:
    rng = np.random.default_rng(0)
    support, labels, queries = (
        rng.normal(size=(200, 3)),
        rng.integers(0, 5, 200),
        rng.normal(size=(60, 3)),
    )
    oracle = KNeighborsClassifier(k, weights=SKLEARN_WEIGHTS[rule]).fit(support, labels)
    distances, ids = oracle.kneighbors(queries)
    neighbors = Neighbors.from_l2(distances, labels[ids])
    ours = score(neighbors, rule=rule, temperature=temperature_of(rule), n_classes=5)
    np.testing.assert_allclose(
        ours.to_csr().toarray(), oracle.predict_proba(queries), rtol=1e-10, atol=1e-14
    )


def test_nearest_agrees_with_scikit_learn() -> None:
    rng = np.random.default_rng(1)
    support, labels, queries = (
        rng.normal(size=(200, 3)),
        rng.integers(0, 5, 200),
        rng.normal(size=(60, 3)),
    )
    oracle = KNeighborsClassifier(1).fit(support, labels)
    distances, ids = oracle.kneighbors(queries, n_neighbors=4)
    ours = score(Neighbors.from_l2(distances, labels[ids]), rule="1nn", n_classes=5)
    np.testing.assert_array_equal(ours.labels, oracle.predict(queries))
    np.testing.assert_array_equal(ours.confidence, 1.0)


# The ends of float64.

FINITE_DISTANCES = st.sampled_from([0.0, 5e-324, 1e-310, 1e-300, 1.0, 1e150, 1e300]) | st.floats(
    0, 1e300
)


def check_weights_and_posterior(neighbors: Neighbors, rule: RuleName, temperature: float) -> None:
    weights = rule_weights(neighbors, rule, temperature_of(rule, temperature))
    assert ((weights >= 0) & (weights <= 1)).all()
    assert (weights.max(axis=1) == 1).all()
    posterior = score(neighbors, rule=rule, temperature=temperature_of(rule, temperature))
    assert np.isfinite(posterior.probabilities).all()
    assert ((posterior.confidence > 0) & (posterior.confidence <= 1)).all()
    assert np.isfinite(posterior.entropy).all()


@every_rule
@given(
    rows=st.lists(st.lists(FINITE_DISTANCES, min_size=4, max_size=4).map(sorted), min_size=1),
    temperature=st.sampled_from([1e-300, 1e300]) | st.floats(1e-300, 1e300),
)
@settings(deadline=None, max_examples=80)
def test_no_finite_distance_and_no_temperature_breaks_a_weight(
    rule: RuleName, rows: list[list[float]], temperature: float
) -> None:
    check_weights_and_posterior(
        make(rows, np.tile([0, 1, 0, 2], (len(rows), 1))), rule, temperature
    )


@every_rule
@pytest.mark.parametrize("temperature", [5e-324, 1e-300, 1e-30, 1.0, 1e30, 1e300, 1.7e308])
@pytest.mark.parametrize(
    "row",
    [
        [0.0, 0.0, 0.0],
        [0.0, 5e-324, 1e-323],
        [0.0, 1e-300, 1e300],
        [1e300, 1e300, 1.7e308],
        [5e-324, 1.0, 1.7e308],
        [1.0, np.nextafter(1.0, 2.0), 2.0],
    ],
)
def test_extreme_rows_keep_finite_weights(
    rule: RuleName, temperature: float, row: list[float]
) -> None:
    check_weights_and_posterior(make([row], [[2, 0, 1]]), rule, temperature)


def test_ned_far_from_every_neighbour_is_still_a_softmax_of_differences() -> None:
    # exp(-800) is 0 in float64: without the common factor this would be 0 / 0.
    weights = ned_weights(make([[800.0, 801.0]]), temperature=1.0)
    np.testing.assert_allclose(weights, [[1.0, np.exp(-1.0)]], rtol=1e-12)


# Invariances and limits.


@pytest.mark.parametrize("scale", [2.0**-40, 4.0, 2.0**60])
def test_ned_with_distances_and_temperature_scaled_alike_is_the_same(scale: float) -> None:
    rng = np.random.default_rng(2)
    sq_distances = np.sort(rng.random((6, 9)), axis=1)
    np.testing.assert_array_equal(
        ned_weights(make(sq_distances * scale), T * scale), ned_weights(make(sq_distances), T)
    )


@pytest.mark.parametrize("scale", [4.0**-20, 4.0, 4.0**30])
@pytest.mark.parametrize("rule", ["1nn", "knn", "dudani", "gou"])
def test_the_other_rules_do_not_depend_on_the_scale(rule: RuleName, scale: float) -> None:
    rng = np.random.default_rng(3)
    sq_distances, labels = np.sort(rng.random((6, 9)), axis=1), rng.integers(0, 3, (6, 9))
    np.testing.assert_array_equal(
        rule_weights(make(sq_distances * scale, labels), rule),
        rule_weights(make(sq_distances, labels), rule),
    )


def test_ned_does_not_depend_on_a_common_offset_of_the_squared_distances() -> None:
    rng = np.random.default_rng(4)
    sq_distances = np.sort(rng.random((6, 9)), axis=1)
    np.testing.assert_allclose(
        ned_weights(make(sq_distances + 100.0), T), ned_weights(make(sq_distances), T), rtol=1e-12
    )


def test_ned_is_1nn_when_cold_and_knn_when_hot() -> None:
    rng = np.random.default_rng(5)
    neighbors = make(np.sort(rng.random((6, 9)), axis=1))
    np.testing.assert_array_equal(ned_weights(neighbors, 1e-12), nearest_weights(neighbors))
    np.testing.assert_allclose(ned_weights(neighbors, 1e12), knn_weights(neighbors), rtol=1e-11)


def test_ned_weights_grow_with_the_temperature() -> None:
    neighbors = make([[0.0, 0.5, 2.0]])
    weights = np.vstack([ned_weights(neighbors, t) for t in (0.1, 0.5, 1.0, 10.0)])
    assert (np.diff(weights[:, 1:], axis=0) > 0).all()


# Names and temperatures.


def test_rule_weights_is_the_function_of_that_name() -> None:
    neighbors = make([[0.3, 0.3, 2.0]], [[1, 0, 0]])
    for name, weights in RULES_WITHOUT_PARAMETER.items():
        np.testing.assert_array_equal(
            rule_weights(neighbors, cast("RuleName", name)), weights(neighbors)
        )
    np.testing.assert_array_equal(rule_weights(neighbors, "ned", T), ned_weights(neighbors, T))
    assert {*RULES_WITHOUT_PARAMETER, "ned"} == set(RULE_NAMES)


@pytest.mark.parametrize("rule", ["NED", "", "wknn", None])
def test_an_unknown_rule_is_refused_with_the_names_of_the_known(rule: Any) -> None:  # noqa: ANN401
    for refused in (check_rule, lambda rule: rule_weights(make([[0.0]]), rule)):
        with pytest.raises(InvalidInputError, match="'1nn', 'knn', 'dudani', 'gou', 'ned'"):
            refused(rule)


@pytest.mark.parametrize(
    "temperature", [0, 0.0, -1.0, np.nan, np.inf, -np.inf, None, "1", [1.0], np.array([1.0]), 1j]
)
def test_a_temperature_that_is_no_finite_number_above_zero_is_refused(
    temperature: Any,  # noqa: ANN401
) -> None:
    for refused in (check_temperature, lambda t: ned_weights(make([[0.0]]), t)):
        with pytest.raises(InvalidInputError, match="temperature must be a finite number > 0"):
            refused(temperature)


@pytest.mark.parametrize("number", [int, np.float16, np.float32, np.int8, np.uint8, np.uint64])
def test_the_type_of_the_temperature_does_not_matter(number: type[Any]) -> None:
    neighbors = make([[0.0, 1.0, 4.0]])
    np.testing.assert_array_equal(ned_weights(neighbors, number(2)), ned_weights(neighbors, 2.0))


def test_ned_without_a_temperature_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="'ned' needs it"):
        rule_weights(make([[0.0]]), "ned")


@pytest.mark.parametrize("rule", RULES_WITHOUT_PARAMETER)
def test_a_temperature_that_the_rule_would_ignore_is_refused(rule: RuleName) -> None:
    with pytest.raises(InvalidInputError, match="temperature must be None"):
        rule_weights(make([[0.0]]), rule, 1.0)
