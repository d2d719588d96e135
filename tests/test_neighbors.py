"""What a Neighbors accepts, what it refuses, and what each engine's convention turns into."""

from collections.abc import Callable
from dataclasses import FrozenInstanceError
from typing import Any

import numpy as np
import pytest
from numpy.typing import ArrayLike, DTypeLike

from nearsure import NEDClassifier
from nearsure import neighbors as conventions
from nearsure.arrays import AnyArray, FloatArray, IntArray
from nearsure.errors import InvalidInputError
from nearsure.neighbors import Neighbors, assemble
from nearsure.posterior import score
from nearsure.rules import RULE_NAMES, RuleName

Constructor = Callable[..., Neighbors]

CONSTRUCTORS: dict[str, Constructor] = {
    "squared_l2": Neighbors.from_squared_l2,
    "l2": Neighbors.from_l2,
    "cosine_similarity": Neighbors.from_cosine_similarity,
    "cosine_distance": Neighbors.from_cosine_distance,
    "inner_product": Neighbors.from_inner_product,
    "negative_inner_product": Neighbors.from_negative_inner_product,
}
# What an engine of each convention computes from a query and a gallery of unit vectors.
ENGINES: dict[str, Callable[[FloatArray, FloatArray], FloatArray]] = {
    "squared_l2": lambda q, z: np.square(q[:, None] - z).sum(axis=2),
    "l2": lambda q, z: np.sqrt(np.square(q[:, None] - z).sum(axis=2)),
    "cosine_similarity": lambda q, z: q @ z.T,
    "cosine_distance": lambda q, z: 1 - q @ z.T,
    "inner_product": lambda q, z: q @ z.T,
    "negative_inner_product": lambda q, z: -(q @ z.T),
}
# Values of the same three distances (0, 1 and 2, squared) under each convention, farthest first.
FARTHEST_FIRST: dict[str, list[float]] = {
    "squared_l2": [2.0, 1.0, 0.0],
    "l2": [np.sqrt(2.0), 1.0, 0.0],
    "cosine_similarity": [0.0, 0.5, 1.0],
    "cosine_distance": [1.0, 0.5, 0.0],
    "inner_product": [0.0, 0.5, 1.0],
    "negative_inner_product": [0.0, -0.5, -1.0],
}
every_convention = pytest.mark.parametrize("convention", CONSTRUCTORS)


def make(
    sq_distances: ArrayLike,
    labels: ArrayLike,
    ids: ArrayLike | None = None,
    counts: ArrayLike | None = None,
) -> Neighbors:
    return Neighbors(
        np.asarray(sq_distances),
        np.asarray(labels),
        None if ids is None else np.asarray(ids),
        None if counts is None else np.asarray(counts),
    )


CONVENTIONS = {
    convention.__name__: convention
    for convention in (
        conventions.squared_l2,
        conventions.l2,
        conventions.cosine_similarity,
        conventions.cosine_distance,
        conventions.inner_product,
        conventions.negative_inner_product,
    )
}


def unit_vectors(rng: np.random.Generator, n: int) -> FloatArray:
    vectors = rng.normal(size=(n, 8))
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), np.float64)


def test_every_convention_has_a_constructor_and_an_engine_here() -> None:
    assert set(CONVENTIONS) == set(CONSTRUCTORS) == set(ENGINES)
    named = {name for name in vars(Neighbors) if name.startswith("from_")}
    assert named == {f"from_{name}" for name in CONVENTIONS}


# The constructor itself.


def test_what_was_given_is_held() -> None:
    neighbors = make([[0.0, 0.5], [1.0, 1.0]], [[3, 0], [1, 1]], ids=[[9, 8], [7, 6]])
    assert (neighbors.n_queries, len(neighbors), neighbors.k) == (2, 2, 2)
    np.testing.assert_array_equal(neighbors.sq_distances, [[0.0, 0.5], [1.0, 1.0]])
    np.testing.assert_array_equal(neighbors.labels, [[3, 0], [1, 1]])
    np.testing.assert_array_equal(neighbors.ids, [[9, 8], [7, 6]])
    np.testing.assert_array_equal(neighbors.counts, [2, 2])
    assert neighbors.is_full
    assert neighbors.valid.all()


@pytest.mark.parametrize("name", ["sq_distances", "labels", "ids", "counts"])
def test_fields_cannot_be_replaced(name: str) -> None:
    neighbors = make([[0.0]], [[0]])
    with pytest.raises(FrozenInstanceError):
        setattr(neighbors, name, np.zeros((1, 1)))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"sq_distances": [[2.0, 1.0]]}, "ascend"),
        ({"sq_distances": [[0.0, 1.0], [0.0, 1.0], [2.0, 1.0]], "labels": [[0, 0]] * 3}, "ascend"),
        ({"sq_distances": [[0.0, np.nan]]}, "finite"),
        ({"sq_distances": [[np.nan, 1.0]]}, "finite"),
        ({"sq_distances": [[0.0, np.inf]]}, "finite"),
        ({"sq_distances": [[-np.inf, 0.0]]}, "finite"),
        ({"sq_distances": [[0.0, np.nan]], "counts": [2]}, "finite"),
        ({"sq_distances": [[np.inf, np.nan]], "counts": [1]}, "finite"),
        ({"sq_distances": [[-1e-9, 1.0]]}, "negative"),
        ({"sq_distances": [[-1.0, 1.0]], "counts": [1]}, "negative"),
        ({"sq_distances": [0.0, 1.0]}, "shape"),
        ({"sq_distances": [[[0.0, 1.0]]]}, "shape"),
        ({"sq_distances": 0.0, "labels": 0}, "shape"),
        ({"sq_distances": np.zeros((0, 2)), "labels": np.zeros((0, 2), int)}, "at least one"),
        ({"sq_distances": np.zeros((1, 0)), "labels": np.zeros((1, 0), int)}, "at least one"),
        ({"labels": [[0, 1, 2]]}, "shape"),
        ({"labels": [[0, 1], [0, 1]]}, "shape"),
        ({"labels": [[0.0, 1.0]]}, "integer class codes"),
        ({"labels": [["a", "b"]]}, "integer class codes"),
        ({"labels": [[True, False]]}, "integer class codes"),
        ({"labels": np.array([[0, None]])}, "integer class codes"),
        ({"labels": [[0, -1]]}, ">= 0"),
        ({"labels": [[0, -2]], "counts": [2]}, ">= 0"),
        ({"labels": [[-3, 5]], "counts": [1]}, ">= 0"),
        ({"labels": np.array([[0, 2**63]], np.uint64)}, ">= 0"),
        ({"ids": [[0, 1, 2]]}, "ids must have the shape"),
        ({"ids": [[0], [1]]}, "ids must have the shape"),
        ({"counts": [3]}, r"counts must lie in \[0, 2\]"),
        ({"counts": [-1]}, r"counts must lie in \[0, 2\]"),
        ({"counts": [1.0]}, "counts must be one integer"),
        ({"counts": [True]}, "counts must be one integer"),
        ({"counts": [1, 1]}, "counts must be one integer"),
        ({"counts": 1}, "counts must be one integer"),
    ],
)
def test_broken_invariants_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        make(**{"sq_distances": [[0.0, 1.0]], "labels": [[0, 1]], **arguments})


@pytest.mark.parametrize("name", ["labels", "ids"])
def test_one_row_of_entries_for_several_queries_is_refused(name: str) -> None:
    arguments = {"sq_distances": np.zeros((2, 3)), "labels": np.zeros((2, 3), int)}
    with pytest.raises(InvalidInputError, match=f"{name} must have the shape"):
        make(**{**arguments, name: np.zeros(3, int)})


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.uint64, np.int64])
def test_any_integer_type_of_labels_and_counts_is_accepted(dtype: DTypeLike) -> None:
    neighbors = make([[0.0, 1.0]], np.array([[1, 2]], dtype), counts=np.array([1], dtype))
    assert neighbors.labels.dtype == neighbors.counts.dtype == np.int64
    np.testing.assert_array_equal(neighbors.labels, [[1, -1]])


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int32, np.uint8])
def test_any_number_type_of_distances_becomes_float64(dtype: DTypeLike) -> None:
    neighbors = make(np.array([[0, 2, 5]], dtype), [[0, 0, 1]])
    assert neighbors.sq_distances.dtype == np.float64
    np.testing.assert_array_equal(neighbors.sq_distances, [[0, 2, 5]])


@pytest.mark.parametrize("through", [make, Neighbors.from_squared_l2])
def test_read_only_and_non_contiguous_arrays_are_accepted_and_unchanged(
    through: Constructor,
) -> None:
    rng = np.random.default_rng(0)
    whole = np.sort(rng.random((6, 10)), axis=1)
    distances = whole[::2, ::-1][:, ::-2]
    labels = np.arange(60).reshape(10, 6).T[::2, ::2]
    ids = np.asfortranarray(rng.integers(0, 99, (3, 5)))
    counts = np.array([5, 0, 2, 0, 3])[::2]
    given: list[AnyArray] = [distances, labels, ids, counts]
    before = [array.copy() for array in given]
    for array in given:
        array.flags.writeable = False
    neighbors = through(distances, labels, ids=ids, counts=counts)
    for array, copy in zip(given, before, strict=True):
        np.testing.assert_array_equal(array, copy)
    np.testing.assert_array_equal(neighbors.sq_distances[1, :2], before[0][1, :2])
    np.testing.assert_array_equal(neighbors.labels[1], [*before[1][1, :2], -1, -1, -1])


# Padding.


def test_padding_is_held_as_infinity_and_minus_one() -> None:
    neighbors = make(
        [[0.0, 7.0, np.nan], [5.0, 1.0, -3.0]],
        [[4, -9, 2], [1, 2, 3]],
        ids=[[10, 11, 12], [13, 14, 15]],
        counts=[1, 0],
    )
    np.testing.assert_array_equal(neighbors.sq_distances, [[0, np.inf, np.inf], [np.inf] * 3])
    np.testing.assert_array_equal(neighbors.labels, [[4, -1, -1], [-1, -1, -1]])
    np.testing.assert_array_equal(neighbors.ids, [[10, -1, -1], [-1] * 3])
    np.testing.assert_array_equal(neighbors.valid, [[True, False, False], [False] * 3])
    assert not neighbors.is_full


def test_ids_that_cannot_be_minus_one_are_kept_behind_the_counts() -> None:
    ids = np.array([["a", "b"]])
    np.testing.assert_array_equal(
        make([[0.0, 1.0]], [[0, 1]], ids=ids, counts=[1]).ids,
        ids,
    )


@pytest.mark.parametrize("wild", [np.nan, np.inf, -np.inf, -1e300, 0.0, 1e308])
@pytest.mark.parametrize("rule", RULE_NAMES)
def test_padding_takes_no_part_in_any_score(rule: RuleName, wild: float) -> None:
    rng = np.random.default_rng(1)
    valid, padding = 4, 3
    sq_distances = np.sort(rng.random((5, valid)), axis=1)
    labels = rng.integers(0, 3, (5, valid))
    padded = make(
        np.hstack([sq_distances, np.full((5, padding), wild)]),
        np.hstack([labels, rng.integers(-5, 3, (5, padding))]),
        counts=np.full(5, valid),
    )
    temperature = 0.3 if rule == "ned" else None
    ours = score(padded, rule=rule, temperature=temperature, n_classes=3)
    theirs = score(make(sq_distances, labels), rule=rule, temperature=temperature, n_classes=3)
    np.testing.assert_array_equal(ours.indptr, theirs.indptr)
    np.testing.assert_array_equal(ours.codes, theirs.codes)
    np.testing.assert_array_equal(ours.probabilities, theirs.probabilities)


# first and take.


def test_first_is_the_same_search_with_a_smaller_k() -> None:
    neighbors = make(
        [[0.0, 1.0, 2.0], [3.0, 0.0, 0.0]],
        [[5, 6, 7], [8, 0, 0]],
        ids=[[1, 2, 3], [4, 0, 0]],
        counts=[3, 1],
    )
    cut = neighbors.first(2)
    np.testing.assert_array_equal(cut.sq_distances, [[0.0, 1.0], [3.0, np.inf]])
    np.testing.assert_array_equal(cut.labels, [[5, 6], [8, -1]])
    np.testing.assert_array_equal(cut.ids, [[1, 2], [4, -1]])
    np.testing.assert_array_equal(cut.counts, [2, 1])
    assert neighbors.first(1).is_full
    assert neighbors.first(1).ids is not None


@pytest.mark.parametrize("k", [0, -1, 4])
def test_first_refuses_more_than_was_searched_and_less_than_one(k: int) -> None:
    with pytest.raises(InvalidInputError, match=r"k must lie in \[1, 3\]"):
        make([[0.0, 1.0, 2.0]], [[0, 0, 0]]).first(k)


@pytest.mark.parametrize("ids", [None, [[1, 2], [3, 4], [5, 6]]])
@pytest.mark.parametrize(
    ("rows", "expected"),
    [([2, 0, 2], [2, 0, 2]), ([True, False, True], [0, 2]), ([-1], [2])],
)
def test_take_picks_queries_by_index_or_mask(
    rows: list[int], expected: list[int], ids: list[list[int]] | None
) -> None:
    neighbors = make([[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]], [[0, 1], [2, 3], [4, 5]], ids, [2, 2, 1])
    taken = neighbors.take(np.asarray(rows))
    np.testing.assert_array_equal(taken.sq_distances, neighbors.sq_distances[expected])
    np.testing.assert_array_equal(taken.labels, neighbors.labels[expected])
    np.testing.assert_array_equal(taken.counts, neighbors.counts[expected])
    if ids is None:
        assert taken.ids is None
    else:
        np.testing.assert_array_equal(taken.ids, np.asarray(neighbors.ids)[expected])


# The conventions of the engines.


@every_convention
def test_convention_gives_the_squared_distances_of_the_vectors(convention: str) -> None:
    rng = np.random.default_rng(2)
    queries, gallery = unit_vectors(rng, 20), unit_vectors(rng, 30)
    gallery[:5], gallery[5:10] = queries[:5], -queries[:5]  # the ends of the range
    labels, ids = rng.integers(0, 4, 30), rng.permutation(30) + 100
    values = ENGINES[convention](queries, gallery)
    neighbors = CONSTRUCTORS[convention](
        values, np.tile(labels, (20, 1)), ids=np.tile(ids, (20, 1))
    )
    true = np.square(queries[:, None] - gallery).sum(axis=2)
    order = np.argsort(neighbors_rank(convention, values), axis=1, kind="stable")
    np.testing.assert_allclose(
        neighbors.sq_distances, np.take_along_axis(true, order, axis=1), rtol=0, atol=1e-14
    )
    np.testing.assert_array_equal(neighbors.labels, labels[order])
    np.testing.assert_array_equal(neighbors.ids, ids[order])


def neighbors_rank(convention: str, values: FloatArray) -> FloatArray:
    """The engine's values, turned so that the nearest is the smallest."""
    return -values if convention in {"cosine_similarity", "inner_product"} else values


@every_convention
def test_rows_are_sorted_and_ties_keep_the_order_of_the_engine(convention: str) -> None:
    far, middle, near = FARTHEST_FIRST[convention]
    values = [far, near, middle, near, far] * 20
    ids = np.array([f"id {i}" for i in range(100)])
    neighbors = CONSTRUCTORS[convention]([values], [list(range(100))], ids=[ids])
    expected = [i for i in range(100) if i % 5 in {1, 3}]
    expected += [i for i in range(100) if i % 5 == 2]
    expected += [i for i in range(100) if i % 5 in {0, 4}]
    np.testing.assert_allclose(
        neighbors.sq_distances, [[0.0] * 40 + [1.0] * 20 + [2.0] * 40], atol=1e-15
    )
    np.testing.assert_array_equal(neighbors.labels, [expected])
    np.testing.assert_array_equal(neighbors.ids, [ids[expected]])


@every_convention
@pytest.mark.parametrize("wild", [np.nan, np.inf, -np.inf, -3.4e38, 3.4e38, 0.0])
@pytest.mark.parametrize("marked_by", ["ids", "labels", "counts"])
def test_padding_of_the_engine_is_left_out_whatever_it_holds(
    convention: str, wild: float, marked_by: str
) -> None:
    far, middle, _ = FARTHEST_FIRST[convention]
    arguments: dict[str, ArrayLike] = {"labels": [[7, 8, 9]], "ids": [[1, 2, 3]], "counts": [2]}
    if marked_by != "counts":  # the padding, here last, may stand anywhere
        del arguments["counts"]
        arguments[marked_by] = [[4, 5, -1]]
        arguments = {name: np.roll(entries, 1) for name, entries in arguments.items()}
    values = [[far, middle, wild]] if marked_by == "counts" else [[wild, far, middle]]
    neighbors = CONSTRUCTORS[convention](values, **arguments)
    np.testing.assert_allclose(neighbors.sq_distances, [[1.0, 2.0, np.inf]], rtol=1e-15)
    np.testing.assert_array_equal(neighbors.counts, [2])
    np.testing.assert_array_equal(
        neighbors.labels, [[5, 4, -1] if marked_by == "labels" else [8, 7, -1]]
    )
    np.testing.assert_array_equal(neighbors.ids, [[5, 4, -1] if marked_by == "ids" else [2, 1, -1]])


@every_convention
def test_a_row_of_nothing_but_padding_has_a_count_of_zero(convention: str) -> None:
    far, _, near = FARTHEST_FIRST[convention]
    neighbors = CONSTRUCTORS[convention]([[far, near]] * 2, [[0, 1]] * 2, ids=[[-1, -1], [5, 6]])
    np.testing.assert_array_equal(neighbors.counts, [0, 2])
    np.testing.assert_array_equal(neighbors.labels, [[-1, -1], [1, 0]])


@every_convention
def test_nan_outside_the_padding_is_refused(convention: str) -> None:
    with pytest.raises(InvalidInputError, match="NaN"):
        CONSTRUCTORS[convention](
            [[np.nan, FARTHEST_FIRST[convention][0]]], [[0, 1]], ids=[[0, 1]], counts=[2]
        )


@every_convention
@pytest.mark.parametrize("infinity", [np.inf, -np.inf])
def test_infinity_outside_the_padding_is_refused(convention: str, infinity: float) -> None:
    with pytest.raises(InvalidInputError, match=r"finite|negative|lie in"):
        CONSTRUCTORS[convention]([[infinity, FARTHEST_FIRST[convention][0]]], [[0, 1]])


@pytest.mark.parametrize(
    ("convention", "value"),
    [
        ("squared_l2", -0.5),
        ("l2", -0.5),
        ("cosine_similarity", 1.01),
        ("cosine_similarity", -1.01),
        ("cosine_distance", 2.01),
        ("cosine_distance", -0.01),
        ("inner_product", 1.01),
        ("inner_product", -30.0),
        ("negative_inner_product", -1.01),
        ("negative_inner_product", 30.0),
    ],
)
def test_a_value_that_is_not_of_the_convention_is_refused(convention: str, value: float) -> None:
    with pytest.raises(InvalidInputError, match=r"negative|lie in"):
        CONSTRUCTORS[convention]([[value, FARTHEST_FIRST[convention][1]]], [[0, 1]])


@pytest.mark.parametrize(
    ("convention", "value"),
    [
        ("squared_l2", -1e-7),
        ("cosine_similarity", 1 + 1e-7),
        ("cosine_distance", -1e-7),
        ("inner_product", 1 + 1e-7),
        ("negative_inner_product", -1 - 1e-7),
    ],
)
@pytest.mark.parametrize("others", [0, 1])
def test_rounding_beyond_the_end_of_the_range_becomes_zero(
    convention: str, value: float, others: int
) -> None:
    # Alone, too: an engine that answers with the one exact duplicate may round below zero.
    values = [[value, *FARTHEST_FIRST[convention][1 : 1 + others]]]
    neighbors = CONSTRUCTORS[convention](values, [list(range(1 + others))])
    assert neighbors.sq_distances[0, 0] == 0.0


def test_what_one_query_may_hold_does_not_depend_on_the_others() -> None:
    with pytest.raises(InvalidInputError, match="negative"):
        Neighbors.from_squared_l2([[-0.9], [1000.0]], [[0], [0]])


@every_convention
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_low_precision_engines_are_tolerated(convention: str, dtype: DTypeLike) -> None:
    rng = np.random.default_rng(3)
    vectors = unit_vectors(rng, 40).astype(dtype)
    values = ENGINES[convention](vectors, vectors)
    assert values.dtype == dtype
    neighbors = CONSTRUCTORS[convention](values, np.tile(np.arange(40), (40, 1)))
    true = np.sort(np.square(vectors[:, None].astype(float) - vectors).sum(axis=2), axis=1)
    rounding = 8 * np.finfo(vectors.dtype).eps
    np.testing.assert_allclose(neighbors.sq_distances, true, rtol=0, atol=rounding)


@every_convention
def test_integer_values_are_accepted(convention: str) -> None:
    neighbors = CONSTRUCTORS[convention](np.zeros((1, 2), np.int8), [[0, 1]])
    expected = 0.0 if convention in {"squared_l2", "l2", "cosine_distance"} else 2.0
    np.testing.assert_array_equal(neighbors.sq_distances, [[expected, expected]])


@every_convention
def test_values_are_not_changed_in_place(convention: str) -> None:
    values = np.array([FARTHEST_FIRST[convention]])
    before = values.copy()
    CONSTRUCTORS[convention](values, [[0, 1, 2]], ids=[[0, -1, 1]])
    np.testing.assert_array_equal(values, before)


def test_the_answer_to_a_single_query_may_be_one_dimensional() -> None:
    neighbors = Neighbors.from_l2([2.0, 1.0], [5, 6], ids=[8, 9])
    np.testing.assert_array_equal(neighbors.sq_distances, [[1.0, 4.0]])
    np.testing.assert_array_equal(neighbors.labels, [[6, 5]])
    np.testing.assert_array_equal(neighbors.ids, [[9, 8]])


@pytest.mark.parametrize(
    "arguments",
    [
        {"distances": np.zeros((2, 3, 1)), "labels": np.zeros((2, 3, 1), int)},
        {"distances": np.zeros((0, 3)), "labels": np.zeros((0, 3), int)},
        {"distances": np.zeros((0, 3)), "labels": np.zeros((0, 3), int), "counts": []},
        {
            "distances": np.zeros((0, 3)),
            "labels": np.zeros((0, 3), int),
            "counts": np.zeros(0, int),
        },
        {"distances": np.zeros((2, 0)), "labels": np.zeros((2, 0), int)},
        {"distances": np.zeros((2, 3)), "labels": np.zeros((3, 2), int)},
        {"distances": np.zeros((2, 3)), "labels": np.zeros(3, int)},
        {"distances": np.zeros((2, 3)), "labels": np.zeros((2, 3), int), "ids": np.zeros(3)},
        {"distances": np.zeros((2, 3)), "labels": np.zeros((2, 3))},
        {"distances": np.zeros((2, 3)), "labels": np.full((2, 3), -2)},
        {"distances": np.zeros((2, 3)), "labels": np.zeros((2, 3), int), "counts": [4, 1]},
        {"distances": np.zeros((2, 3)), "labels": np.zeros((2, 3), int), "counts": [1.0, 1.0]},
    ],
)
def test_constructors_refuse_wrong_shapes_and_types(arguments: dict[str, AnyArray]) -> None:
    with pytest.raises(InvalidInputError):
        Neighbors.from_l2(**arguments)


def test_float16_squares_do_not_overflow() -> None:
    neighbors = Neighbors.from_l2(np.array([[60000.0]], np.float16), [[0]])
    assert neighbors.sq_distances[0, 0] == float(np.float16(60000.0)) ** 2


def test_conventions_keep_shape_and_pass_nan() -> None:
    values: IntArray | FloatArray = np.array([[[0.5, np.nan]]])
    for convention in CONVENTIONS.values():
        sq_distances = convention(values)
        assert sq_distances.shape == values.shape
        assert np.isnan(sq_distances[0, 0, 1])


def test_assembled_neighbours_are_those_of_the_constructor() -> None:
    sq_distances, labels = np.array([[0.0, 1.0], [0.5, 0.5]]), np.array([[3, 1], [0, 2]])
    ids = np.array([[7, 8], [9, 7]])
    ours, checked = assemble(sq_distances, labels, ids), Neighbors(sq_distances, labels, ids)
    for name in ("sq_distances", "labels", "ids", "counts", "valid", "is_full", "k", "n_queries"):
        np.testing.assert_array_equal(getattr(ours, name), getattr(checked, name))
        assert np.asarray(getattr(ours, name)).dtype == np.asarray(getattr(checked, name)).dtype


@pytest.mark.parametrize("overflow", [np.inf, np.nan])
def test_distances_that_overflow_are_refused_in_assembled_neighbours_too(overflow: float) -> None:
    with pytest.raises(InvalidInputError, match="sq_distances must be finite"):
        assemble(np.array([[0.0, overflow]]), np.zeros((1, 2), np.int64), np.zeros((1, 2), int))


@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")
def test_queries_too_far_for_their_squares_are_refused_by_the_classifier() -> None:
    classifier = NEDClassifier().fit(np.random.default_rng(0).normal(size=(40, 3)), [0, 1] * 20)
    with pytest.raises(InvalidInputError, match="sq_distances must be finite"):
        classifier.predict_with_confidence(np.full((1, 3), 1e200))
