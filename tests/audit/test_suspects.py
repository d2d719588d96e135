"""Suspect labels: the trust recomputed in loops, and planted flips found."""

import numpy as np
import pytest
from made_galleries import blobs, leave_one_out_neighbors, padded

from nearsure import Neighbors, fit_temperature, score
from nearsure.arrays import FloatArray, IntArray
from nearsure.audit import SuspectLabels, mutual_votes, support_points, suspect_labels
from nearsure.errors import InvalidInputError


def naive_trust(
    neighbors: Neighbors, codes: IntArray, temperature: float, second_hand: float
) -> FloatArray:
    """Straight from the definition, with a dense matrix of votes."""
    n = len(codes)
    given = np.zeros((n, n))
    ids = np.asarray(neighbors.ids)
    for i in range(n):
        count = neighbors.counts[i]
        weights = np.exp(-neighbors.sq_distances[i, :count] / temperature)
        given[i, ids[i, :count]] = weights / weights.sum()
    votes = given + given.T
    posterior = score(neighbors, temperature=temperature)
    trust = np.full(n, np.nan)
    for i in range(n):
        if neighbors.counts[i] == 0:
            continue
        belief = 0.0
        for j in range(n):
            if votes[i, j] == 0:
                continue
            others = [m for m in range(n) if m != i and votes[j, m] > 0]
            alike = sum(votes[j, m] for m in others if codes[m] == codes[i])
            agrees = float(codes[j] == codes[i])
            hearsay = alike / sum(votes[j, m] for m in others) if others else agrees
            belief += votes[i, j] * ((1 - second_hand) * agrees + second_hand * hearsay)
        belief /= votes[i].sum()
        of_others = [
            p
            for code, p in zip(
                posterior.codes[posterior.rows == i],
                posterior.probabilities[posterior.rows == i],
                strict=True,
            )
            if code != codes[i]
        ]
        trust[i] = belief / (belief + max(of_others, default=0.0))
    return trust


def by_row(suspects: SuspectLabels, n_points: int) -> FloatArray:
    trust = np.full(n_points, np.nan)
    trust[suspects.ids] = suspects.trust
    return trust


@pytest.mark.parametrize("second_hand", [0.0, 0.3, 0.9])
@pytest.mark.parametrize("k", [1, 3, 10])
def test_trust_is_its_definition(k: int, second_hand: float) -> None:
    vectors, codes = blobs(n_classes=5, per_class=12, spread=1.0, seed=0)
    neighbors = leave_one_out_neighbors(vectors, codes, k)
    found = suspect_labels(neighbors, codes, temperature=2.0, second_hand=second_hand)
    expected = naive_trust(neighbors, codes, 2.0, second_hand)
    np.testing.assert_allclose(by_row(found, len(codes)), expected, atol=1e-9)
    assert (np.diff(found.trust) >= 0).all()


def test_trust_with_padding_and_points_without_neighbours() -> None:
    vectors, codes = blobs(n_classes=4, per_class=6, spread=1.0, seed=1)
    counts = np.random.default_rng(2).integers(0, 6, len(codes))
    counts[:2] = 0, 5
    neighbors = padded(leave_one_out_neighbors(vectors, codes, 5), counts)
    found = suspect_labels(neighbors, codes, temperature=2.0)
    expected = naive_trust(neighbors, codes, 2.0, 0.3)
    np.testing.assert_allclose(by_row(found, len(codes)), expected, atol=1e-9)
    assert sorted(found.ids) == np.flatnonzero(counts > 0).tolist()


def test_each_point_hands_out_one_vote() -> None:
    vectors, codes = blobs(n_classes=4, per_class=6, spread=1.0, seed=1)
    neighbors = leave_one_out_neighbors(vectors, codes, 5)
    points = support_points(neighbors, codes)
    votes = mutual_votes(points, np.random.default_rng(0).random(len(points.asked))).toarray()
    np.testing.assert_allclose(votes, votes.T, rtol=1e-12)
    assert votes.sum() == pytest.approx(2 * len(codes))


def test_probabilities_are_those_of_leave_one_out() -> None:
    vectors, codes = blobs(n_classes=5, per_class=12, spread=0.6, seed=0)
    neighbors = leave_one_out_neighbors(vectors, codes, 8)
    found = suspect_labels(neighbors, codes, temperature=2.0)
    dense = score(neighbors, temperature=2.0, n_classes=5).to_csr().toarray()[found.ids]
    rows = np.arange(len(found))
    np.testing.assert_array_equal(found.codes, codes[found.ids])
    np.testing.assert_allclose(found.p_own, dense[rows, found.codes])
    dense[rows, found.codes] = 0
    np.testing.assert_allclose(found.p_suggested, dense.max(axis=1))
    alone = found.suggested_codes == -1
    assert 0 < alone.sum() < len(alone)
    assert (found.p_suggested[alone] == 0).all()
    assert (found.trust[alone] == 1).all()
    np.testing.assert_array_equal(found.suggested_codes[~alone], dense[~alone].argmax(axis=1))


def test_planted_flips_come_first_with_their_true_class() -> None:
    vectors, codes = blobs(n_classes=20, per_class=25, spread=0.3, seed=3)
    rng = np.random.default_rng(4)
    rows = rng.choice(len(codes), 25, replace=False)
    wrong = codes.copy()
    wrong[rows] = (codes[rows] + rng.integers(1, 20, 25)) % 20
    neighbors = leave_one_out_neighbors(vectors, wrong, 15)
    temperature = fit_temperature(neighbors, wrong).temperature
    suspects = suspect_labels(neighbors, wrong, temperature=temperature)
    assert sorted(suspects.first(25).ids) == sorted(rows)
    assert suspects.n_doubted == 25
    np.testing.assert_array_equal(suspects.suggested_codes[:25], codes[suspects.ids[:25]])


def test_a_label_does_not_vouch_for_itself() -> None:
    """Its neighbours have a point of class 1 about them, which is the suspect itself and no other.

    With that vote counted, second-hand opinion would make the suspect less suspect.
    """
    neighbors = Neighbors([[1.0, 1.0]] * 3, [[0, 0], [1, 0], [1, 0]], ids=[[1, 2], [0, 2], [0, 1]])
    worst = suspect_labels(neighbors, [1, 0, 0], temperature=1.0, second_hand=0.9).first(1)
    assert (worst.ids[0], worst.trust[0]) == (0, 0.0)


def test_second_hand_opinion_tells_a_near_class_from_a_far_one() -> None:
    """Classes 0 and 1 are neighbours, 2 is far. Two points of 0 are labelled 1 and 2."""
    line = np.concatenate([np.linspace(0, 1, 21), np.linspace(1.05, 2, 20), np.linspace(9, 10, 21)])
    codes = np.repeat([0, 1, 2], [21, 20, 21])
    codes[[16, 8]] = 1, 2
    neighbors = leave_one_out_neighbors(line[:, None], codes, 6)
    blind = by_row(suspect_labels(neighbors, codes, temperature=0.1, second_hand=0.0), 62)
    seeing = by_row(suspect_labels(neighbors, codes, temperature=0.1), 62)
    assert blind[16] == blind[8] == 0
    assert seeing[8] == 0 < seeing[16] < 0.5


def test_relabelling_and_reordering_change_nothing() -> None:
    vectors, codes = blobs(n_classes=5, per_class=12, spread=1.0, seed=0)
    neighbors = leave_one_out_neighbors(vectors, codes, 8)
    plain = by_row(suspect_labels(neighbors, codes, temperature=2.0), len(codes))
    order = np.random.default_rng(0).permutation(len(codes))
    names = np.array([30, 4, 11, 0, 7])[codes]
    shuffled = leave_one_out_neighbors(vectors[order], names[order], 8)
    found = suspect_labels(shuffled, names[order], temperature=2.0)
    np.testing.assert_allclose(by_row(found, len(codes)), plain[order], atol=1e-12)


def test_points_are_known_by_their_ids() -> None:
    vectors, codes = blobs(n_classes=5, per_class=12, spread=1.0, seed=0)
    rows = leave_one_out_neighbors(vectors, codes, 8)
    ids = np.random.default_rng(0).permutation([f"image-{i}" for i in range(len(codes))])
    named = Neighbors(rows.sq_distances, rows.labels, ids[np.asarray(rows.ids)])
    expected = suspect_labels(rows, codes, temperature=2.0)
    found = suspect_labels(named, codes, temperature=2.0, ids=ids)
    np.testing.assert_array_equal(found.ids, ids[expected.ids])
    np.testing.assert_array_equal(found.trust, expected.trust)


def test_equal_trust_is_ranked_by_the_surer_suggestion() -> None:
    neighbors = Neighbors(
        [[1.0, 2.0], [1.0, 1.0], [1.0, 1.0], [1.0, 1.0]],
        [[1, 2], [2, 2], [1, 2], [1, 2]],
        ids=[[1, 2], [2, 3], [1, 3], [1, 2]],
    )
    found = suspect_labels(neighbors, [0, 1, 2, 2], temperature=1.0, second_hand=0.0)
    assert found.trust[:2].tolist() == [0.0, 0.0]
    assert found.ids[:2].tolist() == [1, 0]
    assert found.p_suggested[0] > found.p_suggested[1]


def test_bad_parameters_are_refused() -> None:
    neighbors = Neighbors([[1.0], [1.0]], [[0], [0]], ids=[[1], [0]])
    for second_hand in (-0.1, 1.0, np.nan):
        with pytest.raises(InvalidInputError, match=r"second_hand must lie in \[0, 1\)"):
            suspect_labels(neighbors, [0, 0], temperature=1.0, second_hand=second_hand)
    with pytest.raises(InvalidInputError, match="temperature must be a finite number > 0"):
        suspect_labels(neighbors, [0, 0], temperature=0.0)
    with pytest.raises(InvalidInputError, match="n must not be negative"):
        suspect_labels(neighbors, [0, 0], temperature=1.0).first(-1)
