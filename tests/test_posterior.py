"""Posteriors: aggregation, ranking, another confidence, dense matrices."""

import tracemalloc
from dataclasses import FrozenInstanceError
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import ArrayLike

from nearsure import posterior as posterior_module
from nearsure.arrays import FloatArray
from nearsure.errors import InvalidInputError
from nearsure.neighbors import Neighbors
from nearsure.posterior import Posterior, aggregate, score, to_dense, with_confidence
from nearsure.rules import RULE_NAMES, RuleName, rule_weights

# Class probabilities: what they sum up, how they are ranked, and what they cost.


every_rule = pytest.mark.parametrize("rule", RULE_NAMES)
EPS = float(np.finfo(np.float64).eps)


def make(sq_distances: ArrayLike, labels: ArrayLike, counts: ArrayLike | None = None) -> Neighbors:
    counts = None if counts is None else np.asarray(counts)
    return Neighbors(np.asarray(sq_distances), np.asarray(labels), counts=counts)


def random_neighbors(
    rng: np.random.Generator, n: int, k: int, n_classes: int, *, padded: bool = True
) -> Neighbors:
    return make(
        np.sort(rng.random((n, k)), axis=1),
        rng.integers(0, n_classes, (n, k)),
        rng.integers(0, k + 1, n) if padded else None,
    )


def scored(neighbors: Neighbors, rule: RuleName, n_classes: int | None = None) -> Posterior:
    return score(
        neighbors, rule=rule, temperature=0.2 if rule == "ned" else None, n_classes=n_classes
    )


def naive_dense(neighbors: Neighbors, weights: FloatArray, n_classes: int) -> FloatArray:
    dense = np.zeros((len(neighbors), n_classes))
    for row, valid in enumerate(neighbors.counts):
        for place in range(valid):
            dense[row, neighbors.labels[row, place]] += weights[row, place]
        if valid:
            dense[row] /= dense[row].sum()
    return dense


def assert_same(ours: Posterior, theirs: Posterior) -> None:
    np.testing.assert_array_equal(ours.indptr, theirs.indptr)
    np.testing.assert_array_equal(ours.codes, theirs.codes)
    np.testing.assert_array_equal(ours.probabilities, theirs.probabilities)
    assert ours.n_classes == theirs.n_classes


@st.composite
def neighbors_with_ties(draw: st.DrawFn) -> Neighbors:
    n, k = draw(st.integers(1, 4)), draw(st.integers(1, 8))
    rows = st.lists(st.sampled_from([0.0, 0.5, 1.0, 2.0]), min_size=k, max_size=k).map(sorted)
    codes = st.lists(st.integers(0, 4), min_size=k, max_size=k)
    counts = st.lists(st.integers(0, k), min_size=n, max_size=n)
    return make(
        draw(st.lists(rows, min_size=n, max_size=n)),
        draw(st.lists(codes, min_size=n, max_size=n)),
        draw(st.none() | counts),
    )


# The numbers.


@every_rule
@pytest.mark.parametrize("k", [1, 2, 20])
def test_probabilities_are_the_shares_of_the_votes(rule: RuleName, k: int) -> None:
    neighbors = random_neighbors(np.random.default_rng(0), 50, k, 6)
    weights = rule_weights(neighbors, rule, 0.2 if rule == "ned" else None)
    np.testing.assert_allclose(
        scored(neighbors, rule, 6).to_csr().toarray(),
        naive_dense(neighbors, weights, 6),
        rtol=1e-13,
        atol=0,
    )


@every_rule
@given(neighbors=neighbors_with_ties())
@settings(deadline=None, max_examples=50)
def test_each_query_has_its_classes_once_descending_and_summing_to_one(
    rule: RuleName, neighbors: Neighbors
) -> None:
    posterior = scored(neighbors, rule)
    assert len(posterior) == len(neighbors)
    for row, valid in enumerate(neighbors.counts):
        entries = slice(*posterior.indptr[row : row + 2])
        codes, probabilities = posterior.codes[entries], posterior.probabilities[entries]
        assert sorted(codes) == sorted(set(neighbors.labels[row, :valid].tolist()))
        assert (np.diff(probabilities) <= 0).all()
        assert (probabilities >= 0).all()
        assert abs(probabilities.sum() - (valid > 0)) <= 4 * EPS
        assert 0.0 <= posterior.confidence[row] <= 1.0


@given(
    neighbors=neighbors_with_ties(),
    weights=st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0]), min_size=32, max_size=32),
)
@settings(deadline=None, max_examples=150)
def test_ranking_is_by_vote_then_nearest_neighbour_then_code(
    neighbors: Neighbors, weights: list[float]
) -> None:
    votes = np.array(weights)[: neighbors.labels.size].reshape(neighbors.labels.shape)
    votes[:, 0] = 1.0  # as under every rule, some vote counts
    votes = np.where(neighbors.valid, votes, 0.0)  # quarters: sums of them are exact
    posterior = aggregate(neighbors, votes)
    for row, valid in enumerate(neighbors.counts):
        labels = neighbors.labels[row, :valid].tolist()

        def rank(code: int, row: int = row, labels: list[int] = labels) -> tuple[float, float, int]:
            places = [place for place, label in enumerate(labels) if label == code]
            nearest = min(neighbors.sq_distances[row, places])
            return -float(votes[row, places].sum()), float(nearest), code

        entries = slice(*posterior.indptr[row : row + 2])
        assert posterior.codes[entries].tolist() == sorted(set(labels), key=rank)


@pytest.mark.parametrize(
    ("row", "labels", "ranking"),
    [
        ([1.0, 2.0, 3.0], [9, 4, 4], [4, 9]),  # more votes
        ([1.0, 2.0, 3.0, 4.0], [9, 4, 4, 9], [9, 4]),  # as many votes, the nearer
        ([1.0, 1.0, 3.0, 4.0], [9, 4, 4, 9], [4, 9]),  # as near, the smaller code
        ([1.0, 1.0, 1.0], [9, 4, 6], [4, 6, 9]),  # all of them tied
        ([0.0, 0.0, 0.0, 0.0], [9, 4, 9, 6], [9, 4, 6]),  # votes come before the code
    ],
)
def test_ties_of_knn_are_broken_in_one_order(
    row: list[float], labels: list[int], ranking: list[int]
) -> None:
    posterior = score(make([row], [labels]), rule="knn")
    assert posterior.codes.tolist() == ranking
    assert posterior.labels.tolist() == ranking[:1]


@every_rule
def test_order_of_equally_distant_neighbours_does_not_matter(rule: RuleName) -> None:
    rng = np.random.default_rng(1)
    row = np.repeat([0.1, 0.7, 1.1], [3, 5, 2])
    labels = rng.integers(0, 4, 10)
    expected = scored(make([row], [labels]), rule, 4)
    for _ in range(50):
        shuffled = np.lexsort((rng.random(10), row))
        assert_same(scored(make([row], [labels[shuffled]]), rule, 4), expected)


@every_rule
@pytest.mark.parametrize("k", [1, 2, 3, 7, 49, 1000])
def test_a_lone_class_has_confidence_exactly_one(rule: RuleName, k: int) -> None:
    rng = np.random.default_rng(2)
    posterior = scored(make(np.sort(rng.random((20, k)), axis=1), np.full((20, k), 3)), rule)
    assert (posterior.confidence == 1.0).all()
    assert (posterior.margin == 1.0).all()
    assert (posterior.entropy == 0.0).all()
    assert posterior.n_classes == 4


# Invariances.


@every_rule
def test_relabelling_the_classes_relabels_the_answer(rule: RuleName) -> None:
    rng = np.random.default_rng(3)
    neighbors = random_neighbors(rng, 200, 30, 12)
    renamed = rng.permutation(12)
    labels = np.where(neighbors.valid, renamed[neighbors.labels], -1)
    ours = scored(make(neighbors.sq_distances, labels, neighbors.counts), rule, 12)
    theirs = scored(neighbors, rule, 12)
    np.testing.assert_allclose(
        ours.to_csr().toarray()[:, renamed], theirs.to_csr().toarray(), rtol=8 * EPS
    )
    found = theirs.labels >= 0  # no two neighbours are equally near, so no tie hangs on a code
    np.testing.assert_array_equal(ours.labels[found], renamed[theirs.labels[found]])
    np.testing.assert_array_equal(ours.labels[~found], -1)


@every_rule
def test_permuting_the_queries_permutes_the_answer(rule: RuleName) -> None:
    rng = np.random.default_rng(4)
    neighbors, rows = random_neighbors(rng, 100, 12, 5), rng.permutation(100)
    assert_same(scored(neighbors.take(rows), rule, 5), scored(neighbors, rule, 5).take(rows))


@every_rule
@pytest.mark.parametrize("padded", [True, False])
@pytest.mark.parametrize("block_entries", [1, 7, 12, 13, 24, 25, 1 << 40])
def test_blocks_do_not_show(
    monkeypatch: pytest.MonkeyPatch, block_entries: int, rule: RuleName, *, padded: bool
) -> None:
    neighbors = random_neighbors(np.random.default_rng(5), 31, 12, 5, padded=padded)
    expected = scored(neighbors, rule)
    monkeypatch.setattr(posterior_module, "BLOCK_ENTRIES", block_entries)
    assert_same(scored(neighbors, rule), expected)


# What can be asked of a posterior.


def three_queries() -> Posterior:
    """One query with two classes, one with none, one with three of which one has no vote."""
    neighbors = make(
        [[0.0, 1.0, 2.0, 3.0], [0.0] * 4, [0.0, 1.0, 2.0, 3.0]],
        [[4, 1, 1, 1], [0] * 4, [0, 2, 2, 5]],
        [4, 0, 4],
    )
    weights = np.array([[1, 1, 1, 1], [0, 0, 0, 0], [1, 0.5, 0.5, 0]])
    return aggregate(neighbors, weights, n_classes=7)


def test_labels_confidence_margin_and_entropy() -> None:
    posterior = three_queries()
    np.testing.assert_array_equal(posterior.labels, [1, -1, 0])
    np.testing.assert_array_equal(posterior.confidence, [0.75, 0.0, 0.5])
    np.testing.assert_array_equal(posterior.margin, [0.5, 0.0, 0.0])
    np.testing.assert_allclose(
        posterior.entropy,
        [-0.75 * np.log(0.75) - 0.25 * np.log(0.25), 0.0, np.log(2.0)],
        rtol=1e-15,
    )
    np.testing.assert_array_equal(posterior.rows, [0, 0, 2, 2, 2])


def test_top_pads_with_minus_one_and_zero() -> None:
    codes, probabilities = three_queries().top(4)
    np.testing.assert_array_equal(codes, [[1, 4, -1, -1], [-1] * 4, [0, 2, 5, -1]])
    np.testing.assert_array_equal(
        probabilities, [[0.75, 0.25, 0, 0], [0, 0, 0, 0], [0.5, 0.5, 0, 0]]
    )


@pytest.mark.parametrize("m", [1, 2, 3, 10])
def test_top_of_a_full_and_of_a_ragged_posterior_is_the_head_of_its_ranking(m: int) -> None:
    neighbors = random_neighbors(np.random.default_rng(6), 40, 9, 4)
    posterior = score(neighbors, rule="knn")
    codes, probabilities = posterior.top(m)
    assert codes.shape == probabilities.shape == (40, m)
    for row in range(40):
        entries = slice(*posterior.indptr[row : row + 2])
        kept = codes[row] != -1
        np.testing.assert_array_equal(codes[row, kept], posterior.codes[entries][:m])
        np.testing.assert_array_equal(
            probabilities[row, kept], posterior.probabilities[entries][:m]
        )
        np.testing.assert_array_equal(probabilities[row, ~kept], 0.0)


@pytest.mark.parametrize("m", [0, -1])
def test_top_of_none_is_refused(m: int) -> None:
    with pytest.raises(InvalidInputError, match="m must be at least 1"):
        three_queries().top(m)


@pytest.mark.parametrize(
    ("codes", "expected"),
    [
        ([4, 0, 2], [0.25, 0, 0.5]),
        ([1, 4, 5], [0.75, 0, 0]),
        ([-1, -1, -1], [0, 0, 0]),  # not the padding of a query without neighbours
        ([99, 99, 99], [0, 0, 0]),  # not a class of the support set
    ],
)
def test_probability_of_one_class_for_each_query(codes: list[int], expected: list[float]) -> None:
    np.testing.assert_array_equal(three_queries().probability_of(np.array(codes)), expected)


@every_rule
def test_probability_of_agrees_with_the_dense_matrix(rule: RuleName) -> None:
    rng = np.random.default_rng(7)
    posterior = scored(random_neighbors(rng, 60, 10, 5), rule, 5)
    codes = rng.integers(0, 5, 60)
    np.testing.assert_array_equal(
        posterior.probability_of(codes), posterior.to_csr().toarray()[np.arange(60), codes]
    )
    np.testing.assert_array_equal(posterior.probability_of(posterior.labels), posterior.confidence)


@pytest.mark.parametrize("codes", [[0, 1], [[0, 1, 2]], 0])
def test_probability_of_refuses_another_number_of_codes(codes: ArrayLike) -> None:
    with pytest.raises(InvalidInputError, match="one class code for each of the 3 queries"):
        three_queries().probability_of(np.asarray(codes))


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (np.array([2, 0, 2, 1]), [2, 0, 2, 1]),
        (np.array([True, False, True]), [0, 2]),
        (np.array([-1]), [2]),
        (np.array([1]), [1]),
        (np.array([], int), []),
        (np.array([False] * 3), []),
    ],
)
def test_take_picks_queries_by_index_or_mask(rows: Any, expected: list[int]) -> None:  # noqa: ANN401
    posterior = three_queries()
    taken = posterior.take(rows)
    assert len(taken) == len(expected)
    for ours, theirs in (
        (taken.labels, posterior.labels),
        (taken.confidence, posterior.confidence),
        (taken.margin, posterior.margin),
        (taken.entropy, posterior.entropy),
        (taken.top(3)[0], posterior.top(3)[0]),
        (taken.to_csr().toarray(), posterior.to_csr().toarray()),
    ):
        np.testing.assert_array_equal(ours, theirs[expected])


def test_csr_has_ascending_columns_and_all_classes() -> None:
    posterior = score(make([[0.0, 1.0, 2.0, 3.0]], [[6, 2, 5, 6]]), rule="knn", n_classes=8)
    np.testing.assert_array_equal(posterior.codes, [6, 2, 5])
    matrix = posterior.to_csr()
    assert matrix.shape == (1, 8)
    np.testing.assert_array_equal(matrix.indices, [2, 5, 6])
    np.testing.assert_array_equal(matrix.toarray(), [[0, 0, 0.25, 0, 0, 0.25, 0.5, 0]])
    assert three_queries().to_csr().shape == (3, 7)
    np.testing.assert_array_equal(three_queries().to_csr().sum(axis=1), [1, 0, 1])


def test_changing_the_csr_matrix_does_not_change_the_posterior() -> None:
    posterior = score(make([[0.0, 1.0]] * 3, [[0, 1], [1, 2], [2, 0]]), rule="1nn")
    matrix = posterior.to_csr()
    matrix.data[:] *= 7
    matrix.eliminate_zeros()
    np.testing.assert_array_equal(posterior.indptr, [0, 2, 4, 6])
    np.testing.assert_array_equal(posterior.labels, [0, 1, 2])
    np.testing.assert_array_equal(posterior.confidence, [1, 1, 1])


@every_rule
def test_queries_without_neighbours_have_no_label_and_no_confidence(rule: RuleName) -> None:
    posterior = scored(make([[1.0, 2.0]] * 2, [[3, 3]] * 2, [0, 0]), rule)
    np.testing.assert_array_equal(posterior.labels, [-1, -1])
    np.testing.assert_array_equal(posterior.confidence, [0.0, 0.0])
    np.testing.assert_array_equal(posterior.margin, [0.0, 0.0])
    np.testing.assert_array_equal(posterior.entropy, [0.0, 0.0])
    np.testing.assert_array_equal(posterior.probability_of(np.array([3, -1])), [0.0, 0.0])
    assert posterior.to_csr().shape == (2, 0)
    assert scored(make([[1.0]], [[3]], [0]), rule, 9).to_csr().shape == (1, 9)


def test_fields_cannot_be_replaced() -> None:
    with pytest.raises(FrozenInstanceError):
        three_queries().n_classes = 3  # type: ignore[misc]


# Size.


def test_many_classes_cost_memory_for_neighbours_not_for_classes() -> None:
    n, k, n_classes = 20_000, 50, 100_000
    rng = np.random.default_rng(8)
    neighbors = make(np.sort(rng.random((n, k)), axis=1), rng.integers(0, n_classes, (n, k)))
    tracemalloc.start()
    try:
        posterior = score(neighbors, temperature=0.1, n_classes=n_classes)
        codes = posterior.labels
        confidence, _, _ = posterior.confidence, posterior.margin, posterior.entropy
        matrix = posterior.to_csr()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 12 * n * k * 8  # a dozen arrays of the neighbours' size; dense would be 2000
    assert matrix.shape == (n, n_classes)
    some = slice(0, 200)
    np.testing.assert_allclose(matrix.sum(axis=1), 1.0, rtol=1e-14)
    weights = rule_weights(neighbors, "ned", 0.1)
    dense = naive_dense(neighbors.take(np.arange(200)), weights, n_classes)
    np.testing.assert_array_equal(codes[some], dense.argmax(axis=1))
    np.testing.assert_allclose(confidence[some], dense.max(axis=1), rtol=1e-13)


# Bad input.


@pytest.mark.parametrize("n_classes", [0, 2])
def test_a_code_beyond_the_number_of_classes_is_refused(n_classes: int) -> None:
    with pytest.raises(InvalidInputError, match=r"must lie in \[0, "):
        score(make([[0.0, 1.0]], [[0, 2]]), rule="knn", n_classes=n_classes)


@pytest.mark.parametrize(
    ("indptr", "codes", "probabilities"),
    [
        ([0, 2], [0], [1.0]),
        ([0, 1], [0], [1.0, 0.0]),
        ([0, 1], [0, 1], [1.0]),
        ([0, 1], [3], [1.0]),
        ([0, 1], [-1], [1.0]),
    ],
)
def test_a_posterior_whose_parts_do_not_fit_is_refused(
    indptr: list[int], codes: list[int], probabilities: list[float]
) -> None:
    with pytest.raises(InvalidInputError):
        Posterior(np.array(indptr), np.array(codes), np.array(probabilities), n_classes=3)


@pytest.mark.parametrize(
    "weights",
    [
        np.ones((2, 4)),
        np.ones((2, 2)),
        np.ones((3, 3)),
        np.ones(6),
        np.array([[1.0, 1.0, 1.0], [-1.0, 1.0, 1.0]]),
        np.array([[1.0, 1.0, 1.0], [np.nan, 1.0, 1.0]]),
        np.array([[1.0, 1.0, 1.0], [0.0, 0.0, 0.0]]),
    ],
    ids=["too wide", "too narrow", "too long", "flat", "negative", "NaN", "no vote"],
)
def test_weights_that_are_no_votes_are_refused(weights: FloatArray) -> None:
    with pytest.raises(InvalidInputError, match="weights"):
        aggregate(make([[0.0, 1.0, 2.0]] * 2, [[0, 1, 2]] * 2), weights)


# A posterior with another confidence: the same labels, the rest in the old proportions.


def row(*probabilities: float) -> Posterior:
    n = len(probabilities)
    return Posterior(np.array([0, n]), np.arange(n), np.array(probabilities, np.float64), max(n, 1))


def naive(probabilities: list[float], confidence: float) -> list[float]:
    """One row: what is left of 1, in the old proportions, no share above the top one's."""
    unassigned = 1 - sum(probabilities)
    rest = sum(probabilities[1:]) + (unassigned if unassigned > 1e-12 else 0)
    return [
        confidence,
        *(min((1 - confidence) * p / rest if p else 0, confidence) for p in probabilities[1:]),
    ]


@given(
    st.lists(
        st.tuples(
            st.lists(st.integers(0, 20), min_size=1, max_size=6).filter(any),
            st.floats(0, 1),
            st.sampled_from([1.0, 0.7]),
        ),
        min_size=1,
        max_size=5,
    )
)
def test_rows_are_those_of_the_definition(cases: list[tuple[list[int], float, float]]) -> None:
    shares = [
        [total * vote / sum(votes) for vote in sorted(votes, reverse=True)]
        for votes, _, total in cases
    ]
    posterior = Posterior(
        np.cumsum([0, *map(len, shares)]),
        np.concatenate([np.arange(len(share)) for share in shares]),
        np.concatenate(shares),
        6,
    )
    confidence = [asked for _, asked, _ in cases]
    changed = with_confidence(posterior, confidence)
    np.testing.assert_array_equal(changed.confidence, confidence)
    np.testing.assert_array_equal(changed.codes, posterior.codes)
    for i, (share, asked) in enumerate(zip(shares, confidence, strict=True)):
        probabilities = changed.probabilities[posterior.indptr[i] : posterior.indptr[i + 1]]
        np.testing.assert_allclose(probabilities, naive(share, asked), rtol=0, atol=1e-9)
        assert (np.diff(probabilities) <= 0).all()
        assert probabilities.sum() <= 1 + 1e-12


def test_a_row_sums_to_1_unless_a_class_would_rise_above_the_top_one() -> None:
    posterior = row(0.5, 0.3, 0.2)
    assert with_confidence(posterior, [0.6]).probabilities == pytest.approx([0.6, 0.24, 0.16])
    # Two thirds of 0.8 would go to the second class: 0.48, above 0.2. So would the third's 0.32.
    assert with_confidence(posterior, [0.2]).probabilities == pytest.approx([0.2, 0.2, 0.2])
    # Only the second is cut; the third keeps 0.4 of what is left.
    assert with_confidence(posterior, [0.35]).probabilities == pytest.approx([0.35, 0.35, 0.26])
    assert with_confidence(posterior, [0.0]).probabilities.tolist() == [0, 0, 0]
    assert with_confidence(posterior, [1.0]).probabilities.tolist() == [1, 0, 0]
    # Exactly where second and top meet, nothing is cut yet.
    assert with_confidence(posterior, [0.375]).probabilities == pytest.approx([0.375, 0.375, 0.25])


def test_a_lone_class_leaves_the_rest_unassigned() -> None:
    assert with_confidence(row(1.0), [0.7]).probabilities.tolist() == [0.7]
    assert with_confidence(row(1.0, 0.0), [0.7]).probabilities.tolist() == [0.7, 0.0]


def test_its_own_confidence_changes_nothing_and_changes_can_be_undone() -> None:
    for posterior in (row(0.5, 0.3, 0.2), row(0.7), row(0.4, 0.1), row(1.0)):
        same = with_confidence(posterior, posterior.confidence)
        np.testing.assert_allclose(same.probabilities, posterior.probabilities, rtol=1e-13)
        there = with_confidence(posterior, [0.8])
        back = with_confidence(there, posterior.confidence)
        np.testing.assert_allclose(back.probabilities, posterior.probabilities, rtol=1e-13)


def test_others_of_next_to_nothing_get_the_rest_in_their_proportions() -> None:
    for tiny in (1e-20, 1e-310):
        changed = with_confidence(row(1.0, 3 * tiny, tiny), [0.8])
        assert changed.probabilities == pytest.approx([0.8, 0.15, 0.05], rel=1e-9)


def test_a_query_without_neighbours_stays_without() -> None:
    neighbors = Neighbors([[1.0, 2.0], [0.0, 0.0]], [[3, 4], [0, 0]], counts=[2, 0])
    posterior = score(neighbors, rule="dudani")
    changed = with_confidence(posterior, [0.9, 0.9])
    assert changed.labels.tolist() == posterior.labels.tolist()
    assert changed.labels[1] == -1
    assert changed.confidence.tolist() == [0.9, 0.0]
    assert len(with_confidence(posterior.take(np.array([], int)), [])) == 0


def test_the_posterior_itself_is_not_changed() -> None:
    posterior = row(0.5, 0.3, 0.2)
    posterior.probabilities.flags.writeable = False
    with_confidence(posterior, [0.9])
    assert posterior.probabilities.tolist() == [0.5, 0.3, 0.2]


def test_bad_confidences_are_refused() -> None:
    for confidence in ([0.5, 0.5], [], 0.5, [[0.5]]):
        with pytest.raises(InvalidInputError, match="one number for each of the 1 queries"):
            with_confidence(row(0.5, 0.5), confidence)
    for outside in (np.nan, 1.1, -0.1):
        with pytest.raises(InvalidInputError, match=r"must hold numbers in \[0, 1\]"):
            with_confidence(row(0.5, 0.5), [outside])


# Dense rows of probabilities: the right sum, the right top, nothing invented.


def one_row(codes: list[int], probabilities: list[float], n_classes: int) -> Posterior:
    return Posterior(np.array([0, len(codes)]), np.array(codes), np.array(probabilities), n_classes)


def filled_row(
    codes: list[int], probabilities: list[float], n_classes: int, total: float = 1.0
) -> list[float]:
    posterior = one_row(codes, probabilities, n_classes)
    row: list[float] = to_dense(posterior, np.array([total]))[0].tolist()
    return row


def test_absent_classes_share_the_rest_evenly() -> None:
    np.testing.assert_allclose(
        filled_row([3, 0], [0.6, 0.2], 6), [0.2, 0.05, 0.05, 0.6, 0.05, 0.05]
    )
    np.testing.assert_allclose(filled_row([1], [0.3], 3, total=0.5), [0.1, 0.3, 0.1])


def test_what_absent_classes_cannot_take_goes_to_those_below_the_top() -> None:
    """The absent class ends just below 0.4; the 0.1 that is left goes where there is room."""
    row = filled_row([2, 1], [0.4, 0.1], 3)
    np.testing.assert_allclose(row, [0.4, 0.2, 0.4], atol=1e-9)
    assert row[2] > row[0]


def test_without_an_absent_class_the_others_take_the_rest() -> None:
    np.testing.assert_allclose(
        filled_row([0, 1, 2], [0.5, 0.2, 0.1], 3), [0.5, 0.285714, 0.214286], atol=1e-6
    )


def test_one_class_of_one() -> None:
    assert filled_row([0], [1.0], 1) == [1.0]
    assert filled_row([0], [0.25], 1, total=0.25) == [0.25]


@pytest.mark.parametrize("total", [1.0, 0.3])
def test_even_chances_stay_even(total: float) -> None:
    """The lowest top that there can be: every class has the same."""
    row = filled_row([2], [total / 4], 4, total)
    np.testing.assert_allclose(row, [total / 4] * 4, rtol=1e-9)


@settings(deadline=None, max_examples=60)
@given(seed=st.integers(0, 10**6), n_classes=st.integers(1, 6), k=st.integers(1, 9))
def test_a_row_that_lacks_nothing_is_left_alone(seed: int, n_classes: int, k: int) -> None:
    rng = np.random.default_rng(seed)
    neighbors = Neighbors(np.sort(rng.random((8, k)), axis=1), rng.integers(0, n_classes, (8, k)))
    posterior = score(neighbors, temperature=0.3, n_classes=n_classes)
    dense = posterior.to_csr().toarray()
    np.testing.assert_allclose(to_dense(posterior, np.ones(8)), dense, rtol=0, atol=1e-15)
    scaled = Posterior(posterior.indptr, posterior.codes, posterior.probabilities * 0.25, n_classes)
    np.testing.assert_allclose(to_dense(scaled, np.full(8, 0.25)), 0.25 * dense, rtol=0, atol=1e-15)


def random_rows(seed: int, n_classes: int) -> tuple[Posterior, FloatArray]:
    """Rows of any sum, whose top has at least its total / n_classes."""
    rng = np.random.default_rng(seed)
    codes, probabilities, lengths = [], [], []
    totals = np.where(rng.random(12) < 0.5, 1.0, rng.random(12))
    for total in totals.tolist():
        n_present = int(rng.integers(1, n_classes + 1))
        shares = np.sort(rng.dirichlet(np.full(n_present, 0.5)))[::-1] * rng.random() ** 0.5
        least = 1.0 / n_classes
        top = max(float(shares[0]), least * (1.0 + (rng.random() < 0.8) * 1e-9))
        others = np.minimum(shares[1:], top)
        if others.sum() > 0:
            others *= min(1.0, max(0.0, 1.0 - top) / others.sum())
        codes.append(rng.permutation(n_classes)[:n_present])
        probabilities.append(total * np.append(min(top, 1.0), others))
        lengths.append(n_present)
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    return (
        Posterior(indptr, np.concatenate(codes), np.concatenate(probabilities), n_classes),
        totals,
    )


@settings(deadline=None, max_examples=80)
@given(seed=st.integers(0, 10**6), n_classes=st.integers(1, 7))
def test_rows_sum_to_their_totals_and_no_class_rises_above_the_top(
    seed: int, n_classes: int
) -> None:
    posterior, totals = random_rows(seed, n_classes)
    dense = to_dense(posterior, totals)
    assert (dense >= 0).all()
    np.testing.assert_allclose(dense.sum(axis=1), totals, rtol=1e-9)
    np.testing.assert_array_equal(dense.max(axis=1), posterior.confidence)
    np.testing.assert_array_equal(
        dense[np.arange(len(totals)), posterior.labels], posterior.confidence
    )
    # Nobody loses anything.
    assert (dense >= posterior.to_csr().toarray()).all()


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 10**6),
    n_classes=st.integers(2, 7),
    rule=st.sampled_from(["ned", "knn"]),
    known=st.floats(0.0, 1.0),
)
def test_the_most_probable_class_is_the_label_after_any_calibration(
    seed: int, n_classes: int, rule: str, known: float
) -> None:
    """With votes that tie and confidences that a calibrator lowers to the least there can be."""
    rng = np.random.default_rng(seed)
    neighbors = Neighbors(
        np.sort(rng.random((10, 6)).round(1), axis=1), rng.integers(0, n_classes, (10, 6))
    )
    posterior = (
        score(neighbors, temperature=0.2, n_classes=n_classes)
        if rule == "ned"
        else score(neighbors, rule="knn", n_classes=n_classes)
    )
    lowered = np.maximum(posterior.confidence * rng.random(10), (1.0 + 1e-9) / n_classes)
    calibrated = with_confidence(posterior, np.minimum(lowered, 1.0))
    scaled = Posterior(
        calibrated.indptr, calibrated.codes, calibrated.probabilities * known, n_classes
    )
    dense = to_dense(scaled, np.full(10, known))
    np.testing.assert_allclose(dense.sum(axis=1), known, rtol=1e-8, atol=1e-300)
    if known > 1e-9:
        np.testing.assert_array_equal(dense.argmax(axis=1), posterior.labels)
