"""From logits to the classes that are listed: against dense formulas."""

import numpy as np
import pytest
from head_data import log_shares

from nearsure.arrays import FloatArray, IntArray
from nearsure.heads import linear
from nearsure.heads.linear import LinearHead
from nearsure.neighbors import PADDING_LABEL, ClassScores, join_scores

N_CLASSES = 50
RNG = np.random.default_rng(0)
INTERCEPTS = RNG.normal(size=N_CLASSES)
INTERCEPTS[[4, 30]] = -np.inf
HEAD = LinearHead(RNG.normal(size=(N_CLASSES, 6)), INTERCEPTS, RNG.normal(size=6))
QUERIES = RNG.normal(size=(40, 6))
LABELS = RNG.integers(0, N_CLASSES + 3, size=(40, 9))
LABELS[5, 2:] = PADDING_LABEL
LABELS[6] = PADDING_LABEL
LABELS[7] = 4


def as_matrix(scores: ClassScores, n_classes: int = N_CLASSES) -> FloatArray:
    """log p of the listed classes, NaN elsewhere."""
    dense = np.full((len(scores.codes), n_classes), np.nan)
    for row, (codes, logs) in enumerate(zip(scores.codes, scores.log_shares, strict=True)):
        listed = codes != PADDING_LABEL
        assert len(np.unique(codes[listed])) == listed.sum()
        assert np.isneginf(logs[~listed]).all()
        dense[row, codes[listed]] = logs[listed]
    return dense


@pytest.mark.parametrize("block", [1, 100, 10**6])
def test_the_most_probable_classes_are_listed(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear, "BLOCK_ENTRIES", block)
    scores, dense = HEAD.score(QUERIES), log_shares(HEAD, QUERIES)
    assert scores.codes.shape == (40, linear.MOST_LISTED)
    assert scores.unheard.tolist() == [4, 30]
    found = as_matrix(scores)
    listed = ~np.isnan(found)
    np.testing.assert_allclose(found[listed], dense[listed], atol=1e-9)
    for row in range(40):
        best = np.argsort(-dense[row])[: linear.MOST_LISTED]
        assert scores.codes[row].tolist() == best.tolist()
        left = 1.0 - np.exp(dense[row, best]).sum()
        usual = np.log(left / (N_CLASSES - linear.MOST_LISTED))
        assert scores.rest[row] == pytest.approx(min(usual, dense[row, best].min()), abs=1e-6)
    expected = np.logaddexp.reduce(HEAD.logits(QUERIES), axis=1)
    np.testing.assert_allclose(scores.level, expected, atol=1e-9)


@pytest.mark.parametrize("block", [1, 200, 10**6])
def test_neighbours_classes_alone(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if there were no other classes."""
    monkeypatch.setattr(linear, "GATHERED_ENTRIES", block)
    scores, logits = HEAD.score(QUERIES, LABELS), HEAD.logits(QUERIES)
    found = as_matrix(scores)
    for row in range(40):
        near = np.setdiff1d(LABELS[row], [PADDING_LABEL, 4, 30, 50, 51, 52])
        assert np.flatnonzero(~np.isnan(found[row])).tolist() == near.tolist()
        if not near.size:
            assert scores.level[row] == scores.rest[row] == 0.0
            continue
        level = np.logaddexp.reduce(logits[row, near])
        # Weights are gathered in single precision.
        np.testing.assert_allclose(found[row, near], logits[row, near] - level, atol=1e-5)
        assert scores.level[row] == pytest.approx(level, abs=1e-5)
        assert scores.rest[row] == found[row, near].min()


@pytest.mark.parametrize("n_features", [6, 385, 9000])
@pytest.mark.parametrize("labels", [None, LABELS])
def test_a_query_alone_is_what_it_is_among_others(labels: IntArray | None, n_features: int) -> None:
    rng = np.random.default_rng(1)
    weights, centre = rng.normal(size=(N_CLASSES, n_features)), rng.normal(size=n_features)
    head = LinearHead(weights / n_features**0.5, INTERCEPTS, centre)
    queries = rng.normal(size=(40, n_features))
    together = head.score(queries, labels)
    for row in range(40):
        alone = head.score(queries[row : row + 1], None if labels is None else labels[row, None])
        width = alone.codes.shape[1]
        np.testing.assert_array_equal(alone.codes[0], together.codes[row, :width])
        assert (together.codes[row, width:] == PADDING_LABEL).all()
        np.testing.assert_array_equal(alone.log_shares[0], together.log_shares[row, :width])
        np.testing.assert_array_equal(alone.rest[0], together.rest[row])
        np.testing.assert_array_equal(alone.level[0], together.level[row])


def test_as_if_a_class_did_not_exist() -> None:
    small = LinearHead(HEAD.weights[:8], HEAD.intercepts[:8], HEAD.centre)
    gone = np.arange(40) % 8
    found = small.score(QUERIES).without(gone)
    dense = as_matrix(found, 8)
    for row in range(40):
        others = np.setdiff1d(np.arange(8), [gone[row], 4])
        logits = small.logits(QUERIES[row : row + 1])[0, others]
        level = np.logaddexp.reduce(logits)
        assert np.isnan(dense[row, gone[row]])
        np.testing.assert_allclose(dense[row, others], logits - level, atol=1e-8)
        assert found.level[row] == pytest.approx(level, abs=1e-8)


def test_without_the_one_class_that_there_is() -> None:
    scores = LinearHead(np.ones((1, 6)), np.zeros(1), np.zeros(6)).score(QUERIES[:2])
    found = scores.without(np.array([0, 5]))
    assert found.codes.tolist() == [[PADDING_LABEL], [0]]
    assert np.isfinite(found.level).all()


def test_scores_are_taken_and_joined() -> None:
    wide, narrow = HEAD.score(QUERIES[:30]), HEAD.score(QUERIES[30:], LABELS[30:])
    rows = np.random.default_rng(1).permutation(40)
    joined = join_scores([(rows[:30], wide), (rows[30:], narrow)], 40)
    assert (joined.n_known, joined.unheard.tolist()) == (N_CLASSES, [4, 30])
    again = joined.take(rows[:30])
    for name in ("codes", "log_shares", "rest", "level"):
        np.testing.assert_array_equal(getattr(again, name), getattr(wide, name), err_msg=name)
    last = joined.take(np.isin(np.arange(40), rows[30:]))
    np.testing.assert_array_equal(as_matrix(last), as_matrix(narrow.take(np.argsort(rows[30:]))))
    # Later ones stay, whole.
    over = join_scores([(slice(0, 30), wide), (slice(0, 10), narrow)], 30)
    np.testing.assert_array_equal(as_matrix(over.take(slice(0, 10))), as_matrix(narrow))
    np.testing.assert_array_equal(over.level, np.append(narrow.level, wide.level[10:]))


def test_a_class_is_unheard_of_only_if_no_part_has_heard_of_it() -> None:
    one = ClassScores(np.zeros((1, 1), int), np.zeros((1, 1)), np.zeros(1), np.zeros(1), 5)
    parts = [(np.array([0]), one), (np.array([1]), one)]
    assert not join_scores(parts, 2).unheard.size
