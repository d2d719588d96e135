"""What is wrong with a gallery: suspects, duplicates, confusable and small classes."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import average_precision_score

from nearsure import NEDClassifier, Neighbors, fit_temperature, score
from nearsure.arrays import AnyArray, FloatArray, IntArray
from nearsure.audit import (
    GalleryAudit,
    SuspectLabels,
    _make_up_labels,
    audit,
    confusable_classes,
    count_votes,
    label_support,
    near_duplicates_across_classes,
    small_classes,
    support_points,
    suspect_labels,
)
from nearsure.errors import InvalidInputError
from nearsure.index import ExactIndex
from nearsure.loo import search_leaving_one_out
from nearsure.rules import ned_weights
from nearsure.wrong_labels import LabelSupport

# Small galleries with known faults.


def leave_one_out_neighbors(vectors: AnyArray, codes: IntArray, k: int) -> Neighbors:
    index = ExactIndex(vectors.astype(np.float32))
    rows = np.arange(len(codes))
    return search_leaving_one_out(index, vectors.astype(np.float32), rows, codes, k=k)


def blobs(
    *, n_classes: int, per_class: int, spread: float, seed: int, n_features: int = 8
) -> tuple[AnyArray, IntArray]:
    """Points about random centres that lie about 4 apart."""
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((n_classes, n_features))
    codes = np.repeat(np.arange(n_classes), per_class)
    return centres[codes] + spread * rng.standard_normal((len(codes), n_features)), codes


def padded(neighbors: Neighbors, counts: IntArray) -> Neighbors:
    return Neighbors(neighbors.sq_distances, neighbors.labels, neighbors.ids, counts)


# The audit as a whole: the four findings together, and in print.


@pytest.fixture(scope="module")
def gallery() -> tuple[Neighbors, list[int]]:
    vectors, codes = blobs(n_classes=5, per_class=12, spread=0.5, seed=0)
    vectors[3] = vectors[40]
    return leave_one_out_neighbors(vectors, codes, 8), codes.tolist()


def test_audit_holds_the_four_findings(gallery: tuple[Neighbors, list[int]]) -> None:
    neighbors, codes = gallery
    found = audit(
        neighbors,
        codes,
        temperature=1.0,
        second_hand=0.1,
        relative_threshold=0.5,
        min_members=20,
        max_miss_share=0.9,
    )
    suspects = suspect_labels(neighbors, codes, temperature=1.0, second_hand=0.1)
    np.testing.assert_array_equal(found.suspects.trust, suspects.trust)
    pairs = near_duplicates_across_classes(neighbors, codes, relative_threshold=0.5)
    assert found.duplicates.threshold == pairs.threshold
    np.testing.assert_array_equal(found.duplicates.ids, pairs.ids)
    confusable = confusable_classes(neighbors, codes, temperature=1.0)
    np.testing.assert_array_equal(found.confusable.confusion, confusable.confusion)
    small = small_classes(neighbors, codes, temperature=1.0, min_members=20, max_miss_share=0.9)
    np.testing.assert_array_equal(found.small.codes, small.codes)
    assert (found.n_points, found.n_classes, len(found.small)) == (60, 5, 5)


def named(gallery: tuple[Neighbors, list[int]], n_rows: int) -> tuple[GalleryAudit, list[str]]:
    neighbors, codes = gallery
    found = audit(neighbors, codes, temperature=1.0, min_members=20)
    names = ["owl", "wren", "rook", "kite", "dove"]
    return found, found.to_text(n_rows=n_rows, class_names=names).splitlines()


def test_text_names_the_classes_and_shows_so_many_rows(
    gallery: tuple[Neighbors, list[int]],
) -> None:
    found, lines = named(gallery, 2)
    assert lines[0] == "60 points in 5 classes"
    titles = [line for line in lines if not line.startswith(" ")]
    assert titles == [
        "60 points in 5 classes",
        f"possibly mislabelled: {found.suspects.wrong}",
        "nearly identical points labelled differently: 1 pairs",
        f"confusable pairs of classes: {len(found.confusable)}",
        "classes with few members, or often without neighbours of their own: 5",
        titles[-1],
    ]
    copies = found.copies
    assert copies is not None
    assert titles[-1].startswith(
        f"copies and near-copies within a class: {copies.n_points} points in {len(copies)} groups"
    )
    # Four headers, two rows a table, but there is only one pair; then near-copies, if any.
    n_last = min(2, len(copies))
    assert len(lines) == 6 + 4 + 2 + 1 + 2 + 2 + n_last + (n_last > 0)
    worst = lines[3].split()
    assert worst[0] == str(found.suspects.ids[0])
    assert float(worst[2]) == pytest.approx(100 * found.suspects.p_own[0], abs=0.05)
    assert "3   owl    40  kite   0" in "\n".join(lines)


def test_text_without_rows_is_the_counts(gallery: tuple[Neighbors, list[int]]) -> None:
    assert len(named(gallery, 0)[1]) == 6


def test_text_of_one_class() -> None:
    neighbors = Neighbors([[1.0], [1.0]], [[0], [0]], ids=[[1], [0]])
    text = audit(neighbors, [0, 0], temperature=1.0, min_members=1).to_text()
    assert text.splitlines() == [
        "2 points in 1 classes",
        "possibly mislabelled: about 0, between 0 and 0",
        "nearly identical points labelled differently: 0 pairs",
        "confusable pairs of classes: 0",
        "classes with few members, or often without neighbours of their own: 0",
        "copies and near-copies within a class: 0 points in 0 groups, 0 points with an exact copy",
    ]


def test_bad_print_options_are_refused(gallery: tuple[Neighbors, list[int]]) -> None:
    found = audit(*gallery, temperature=1.0)
    with pytest.raises(InvalidInputError, match="n_rows must not be negative"):
        found.to_text(n_rows=-1)
    with pytest.raises(InvalidInputError, match=r"must name all 5 class codes\. Got 1 names"):
        found.to_text(class_names=["owl"])


# Neighbours that are not those of the gallery are refused.


def pair(ids: Any = ((1,), (0,)), labels: Any = ((5,), (4,))) -> Neighbors:  # noqa: ANN401
    return Neighbors([[1.0], [1.0]], labels, ids)


@pytest.mark.parametrize("function", [audit, confusable_classes, small_classes, suspect_labels])
@pytest.mark.parametrize("codes", [[4], [4, 5, 6], [4.0, 5.0], ["a", "b"], [4, -1], [[4], [5]]])
def test_codes_must_be_class_codes_of_the_points(
    function: Callable[..., object],
    codes: Any,  # noqa: ANN401
) -> None:
    with pytest.raises(InvalidInputError, match="codes must be one integer class code >= 0"):
        function(pair(), codes, temperature=1.0)


def test_neighbours_must_have_ids() -> None:
    without = Neighbors([[1.0], [1.0]], [[5], [4]])
    for find in (audit, suspect_labels):
        with pytest.raises(InvalidInputError, match="neighbors must have ids"):
            find(without, [4, 5], temperature=1.0)
    with pytest.raises(InvalidInputError, match="neighbors must have ids"):
        near_duplicates_across_classes(without, [4, 5])


@pytest.mark.parametrize(
    ("neighbors", "ids", "message"),
    [
        (pair([[0], [1]], [[4], [5]]), None, "a point among its own neighbours. Got 2"),
        (pair([[1], [2]]), None, "points of this gallery alone.* Got 1 others, such as .*2"),
        (pair([[1], [-7]]), None, "points of this gallery alone"),
        (pair(labels=[[5], [3]]), None, "same labels as codes. Got 1 neighbours"),
        (pair(), [0], "one id for each of the 2 points"),
        (pair(), [3, 3], "must differ from point to point. Got 1 ids for 2 points"),
        (pair(), ["a", "b"], "of the kind of the neighbours' ids, int64"),
        (pair([["b"], ["a"]]), None, "without ids= they are row numbers"),
    ],
)
def test_neighbours_must_be_those_of_the_gallery(
    neighbors: Neighbors,
    ids: Any,  # noqa: ANN401
    message: str,
) -> None:
    with pytest.raises(InvalidInputError, match=message):
        support_points(neighbors, [4, 5], ids)


def test_rows_skip_the_padding() -> None:
    neighbors = Neighbors(
        [[1.0, 2.0], [1.0, 9.0], [2.0, 9.0]],
        [[7, 7], [7, 0], [7, 0]],
        ids=[[20, 10], [30, 99], [20, 99]],
        counts=[2, 1, 1],
    )
    points = support_points(neighbors, [7, 7, 7], [30, 20, 10])
    np.testing.assert_array_equal(points.rows, [0, 0, 1, 2])
    np.testing.assert_array_equal(points.others, [1, 2, 0, 1])


# Suspect labels: the trust recomputed in loops, and planted flips found.


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
    has_rival = found.trust < 1
    trust, p_suggested = found.trust[has_rival], found.p_suggested[has_rival]
    support = LabelSupport(trust / (1 - trust) * p_suggested, p_suggested)
    assert (np.diff(support.trust(found.wrong.floor)) >= -1e-12).all()


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
    weights = np.random.default_rng(0).random(len(points.others))
    votes = count_votes(points, weights).mutual.toarray()
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
    assert 25 <= suspects.n_doubted <= 40
    np.testing.assert_array_equal(suspects.suggested_codes[:25], codes[suspects.ids[:25]])


def test_a_label_does_not_support_itself() -> None:
    """Its neighbours have a point of class 1 about them, which is the suspect itself and no other.

    With that vote counted, second-hand opinion would make the suspect less suspect.
    """
    neighbors = Neighbors(
        [[1.0, 1.0]] * 3 + [[1.0, 1.0]] * 2,
        [[0, 0], [1, 0], [1, 0], [1, 1], [1, 1]],
        ids=[[1, 2], [0, 2], [0, 1], [4, 4], [3, 3]],
    )
    worst = suspect_labels(neighbors, [1, 0, 0, 1, 1], temperature=1.0, second_hand=0.9).first(1)
    assert (worst.ids[0], worst.trust[0]) == (0, 0.0)


def test_support_of_another_label_is_that_of_a_gallery_that_has_it() -> None:
    """Made-up labels are judged without being given to the points."""
    vectors, codes = blobs(n_classes=5, per_class=12, spread=1.0, seed=0)
    neighbors = leave_one_out_neighbors(vectors, codes, 6)
    ids, weights = np.asarray(neighbors.ids), np.exp(-neighbors.sq_distances).ravel()

    def support(given: IntArray, rows: IntArray, labels: IntArray) -> FloatArray:
        points = support_points(Neighbors(neighbors.sq_distances, given[ids], ids), given)
        return label_support(points, count_votes(points, weights), rows, labels)

    rows = np.random.default_rng(0).integers(0, len(codes), 20)
    labels = (codes[rows] + np.arange(20)) % 5
    for row, label, one in zip(rows, labels, support(codes, rows, labels), strict=True):
        given = codes.copy()
        given[row] = label
        expected = support(given, np.array([row]), np.array([label]))
        assert one == pytest.approx(expected[0], abs=1e-12)


def test_made_up_labels_are_drawn_from_what_the_point_resembles() -> None:
    neighbors = Neighbors([[1.0] * 4] * 2, [[7, 7, 2, 2], [2, 2, 2, 2]])
    posterior = score(Neighbors(neighbors.sq_distances, [[7, 7, 7, 2], [2] * 4]), rule="knn")
    rows = np.repeat([0, 1], 3000)
    codes = np.array([2, 4, 7, 9])
    at_random, confusable = _make_up_labels(posterior, codes, rows, np.random.default_rng(0))
    assert (confusable[:3000] == 2).all()
    np.testing.assert_array_equal(confusable[3000:], at_random[3000:])
    for best, drawn in ((7, at_random[:3000]), (2, at_random[3000:])):
        classes, counts = np.unique(drawn, return_counts=True)
        assert classes.tolist() == [code for code in codes if code != best]
        np.testing.assert_allclose(counts, 1000, atol=120)
    three = score(Neighbors([[1.0] * 6], [[4, 4, 4, 9, 9, 2]]), rule="knn")
    drawn = _make_up_labels(three, codes, np.zeros(3000, np.int64), np.random.default_rng(0))[1]
    assert np.mean(drawn == 9) == pytest.approx(2 / 3, abs=0.04)
    assert np.mean(drawn == 2) == pytest.approx(1 / 3, abs=0.04)


def flip(codes: IntArray, share: float, n_classes: int, seed: int, step: int = 0) -> IntArray:
    """Some labels made wrong: by a step to the next class, or at random."""
    rng = np.random.default_rng(seed)
    rows = rng.choice(len(codes), round(share * len(codes)), replace=False)
    steps = rng.integers(1, n_classes, len(rows)) if step == 0 else step
    wrong = codes.copy()
    wrong[rows] = (codes[rows] + steps) % n_classes
    return wrong


def on_a_ring(n_classes: int, per_class: int, seed: int) -> tuple[AnyArray, IntArray]:
    """Classes that each overlap with the one before and the one after."""
    rng = np.random.default_rng(seed)
    codes = np.repeat(np.arange(n_classes), per_class)
    turns = 2 * np.pi * (codes + rng.normal(0, 0.25, len(codes))) / n_classes
    return np.column_stack([np.cos(turns), np.sin(turns)]) * n_classes, codes


@pytest.mark.filterwarnings("ignore::nearsure.errors.ManyMissesWarning")
@pytest.mark.parametrize("step", [0, 1])
@pytest.mark.parametrize("share", [0.0, 0.05, 0.15])
def test_the_number_of_wrong_labels_is_estimated(share: float, step: int) -> None:
    vectors, codes = on_a_ring(20, 60, seed=1)
    wrong = flip(codes, share, 20, seed=2, step=step)
    neighbors = leave_one_out_neighbors(vectors, wrong, 30)
    found = suspect_labels(
        neighbors, wrong, temperature=fit_temperature(neighbors, wrong).temperature
    )
    n_wrong = int((wrong != codes).sum())
    assert 0.6 * n_wrong <= found.wrong.n <= 1.4 * n_wrong + 10
    assert n_wrong <= found.n_doubted <= 1.6 * n_wrong + 20
    if n_wrong and step == 0:
        assert found.wrong.n_random > 3 * found.wrong.n_confusable
    elif n_wrong:
        assert found.wrong.n_confusable > 3 * found.wrong.n_random


def test_confused_labels_are_ranked_by_how_sure_the_rival_is() -> None:
    vectors, codes = blobs(n_classes=10, per_class=40, spread=0.75, seed=3)
    neighbors = leave_one_out_neighbors(vectors, codes, 20)
    mass = confusable_classes(neighbors, codes, temperature=1.0).mass.toarray()
    np.fill_diagonal(mass, 0)
    wrong = np.where(flip(codes, 0.1, 10, seed=4) != codes, mass.argmax(axis=1)[codes], codes)
    neighbors = leave_one_out_neighbors(vectors, wrong, 20)
    found = suspect_labels(neighbors, wrong, temperature=1.0)
    is_wrong = (wrong != codes)[found.ids]
    ours = average_precision_score(is_wrong, -np.arange(len(found)))
    assert found.wrong.floor > 0.01
    assert ours > average_precision_score(is_wrong, -found.trust) + 0.02


def test_a_posterior_has_the_larger_part_in_the_support() -> None:
    vectors, codes = blobs(n_classes=3, per_class=40, spread=1.5, seed=5)
    given = flip(codes, 0.1, 3, seed=6)
    neighbors = leave_one_out_neighbors(vectors, given, 20)
    posterior = score(neighbors, temperature=0.3)
    found = suspect_labels(neighbors, given, temperature=2.0, posterior=posterior)
    points, rows = support_points(neighbors, given), np.arange(len(given))
    votes = count_votes(points, ned_weights(neighbors, 2.0)[neighbors.valid])
    near, both = (
        each.to_csr().toarray() for each in (score(neighbors, temperature=2.0), posterior)
    )
    others = np.where(np.arange(3) == given[:, None], -1.0, both)
    other = others.argmax(axis=1)
    own = 0.8 * both[rows, given] + 0.2 * label_support(points, votes, rows, given)
    rival = 0.8 * both[rows, other] + 0.2 * near[rows, other]
    np.testing.assert_allclose(by_row(found, len(given)), own / (own + rival))
    np.testing.assert_allclose(found.p_own, both[found.ids, given[found.ids]])
    sure = others.max(axis=1)[found.ids] > 0
    np.testing.assert_array_equal(found.suggested_codes[sure], other[found.ids][sure])


def test_labels_are_judged_by_neighbours_and_head_together() -> None:
    """Classes that differ in two of 40 directions: the means see more than the neighbours."""
    rng = np.random.default_rng(7)
    codes = np.arange(600) % 4
    vectors = rng.normal(size=(600, 40))
    vectors[:, :2] += 2.0 * np.array([[1, 0], [-1, 0], [0, 1], [0, -1]])[codes]
    given = flip(codes, 0.1, 4, seed=8)
    wrong = given != codes
    precision = {}
    for head in ("means", None):
        found = NEDClassifier(head=head).fit(vectors, given).audit().suspects
        ranks = np.argsort(found.ids)
        precision[head] = average_precision_score(wrong, -ranks)
        low, high = found.wrong.between
        assert low <= 1.5 * wrong.sum()
        assert high >= 0.7 * wrong.sum()
    assert precision["means"] > precision[None] + 0.05


def test_the_only_member_of_a_class_is_not_ranked() -> None:
    vectors, codes = blobs(n_classes=4, per_class=10, spread=0.3, seed=5)
    codes[0] = 9
    found = suspect_labels(leave_one_out_neighbors(vectors, codes, 8), codes, temperature=1.0)
    assert sorted(found.ids) == list(range(1, 40))
    alone = leave_one_out_neighbors(vectors[:3], np.arange(3), 2)
    nothing = suspect_labels(alone, np.arange(3), temperature=1.0)
    assert (len(nothing), nothing.wrong.n, nothing.n_doubted) == (0, 0, 0)


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
    """Rows 0 and 1 have no support; two more of each of their classes lie elsewhere."""
    neighbors = Neighbors(
        [[1.0, 2.0], *[[1.0, 1.0]] * 3, *[[1.0, 9.0]] * 4],
        [[1, 2], [2, 2], [1, 2], [1, 2], [0, 1], [0, 1], [1, 0], [1, 0]],
        ids=[[1, 2], [2, 3], [1, 3], [1, 2], [5, 6], [4, 6], [7, 4], [6, 4]],
    )
    codes = [0, 1, 2, 2, 0, 0, 1, 1]
    found = suspect_labels(neighbors, codes, temperature=1.0, second_hand=0.0)
    assert found.trust[:2].tolist() == [0.0, 0.0]
    assert found.ids[:2].tolist() == [1, 0]
    assert found.p_suggested[0] > found.p_suggested[1]


def test_bad_parameters_of_suspects_are_refused() -> None:
    neighbors = Neighbors([[1.0], [1.0]], [[0], [0]], ids=[[1], [0]])
    for second_hand in (-0.1, 1.0, np.nan):
        with pytest.raises(InvalidInputError, match=r"second_hand must lie in \[0, 1\)"):
            suspect_labels(neighbors, [0, 0], temperature=1.0, second_hand=second_hand)
    with pytest.raises(InvalidInputError, match="temperature must be a finite number > 0"):
        suspect_labels(neighbors, [0, 0], temperature=0.0)
    with pytest.raises(InvalidInputError, match="n must not be negative"):
        suspect_labels(neighbors, [0, 0], temperature=1.0).first(-1)


# Near duplicates across classes: every pair checked one by one.


@pytest.mark.parametrize("relative_threshold", [0.0, 0.01, 0.5, 2.0])
def test_pairs_are_those_of_a_search_through_all(relative_threshold: float) -> None:
    vectors, codes = blobs(n_classes=4, per_class=15, spread=1.5, seed=0)
    vectors[7] = vectors[50]
    vectors[20] = vectors[40] + 0.01
    vectors = vectors.astype(np.float32).astype(np.float64)
    neighbors = leave_one_out_neighbors(vectors, codes, len(codes) - 1)
    sq_distances = ((vectors[:, None] - vectors) ** 2).sum(axis=2)
    nearest = np.min(sq_distances + np.diag(np.full(len(codes), np.inf)), axis=1)
    threshold = relative_threshold * np.median(nearest)
    expected = sorted(
        (sq_distances[i, j], i, j)
        for i in range(len(codes))
        for j in range(i + 1, len(codes))
        if codes[i] != codes[j] and sq_distances[i, j] <= threshold
    )
    found = near_duplicates_across_classes(neighbors, codes, relative_threshold=relative_threshold)
    assert found.threshold == pytest.approx(threshold, rel=1e-6)
    assert found.ids.tolist() == [[i, j] for _, i, j in expected]
    np.testing.assert_allclose(found.sq_distances, [d for d, _, _ in expected], rtol=1e-6)
    np.testing.assert_array_equal(found.codes, codes[found.ids])
    assert len(found) >= 1


def test_planted_pairs_and_no_others() -> None:
    vectors, codes = blobs(n_classes=10, per_class=20, spread=0.3, seed=1)
    vectors[3] = vectors[100] + 0.001
    vectors[150] = vectors[60]
    vectors[5] = vectors[6]  # of one class: no contradiction
    found = near_duplicates_across_classes(leave_one_out_neighbors(vectors, codes, 10), codes)
    assert found.ids.tolist() == [[60, 150], [3, 100]]
    assert found.sq_distances[0] == 0


def test_a_pair_seen_from_one_side_only_is_found_once() -> None:
    neighbors = Neighbors([[1.0], [0.0], [4.0]], [[2], [0], [1]], ids=[[2], [0], [1]])
    found = near_duplicates_across_classes(neighbors, [0, 1, 2])
    assert found.ids.tolist() == [[0, 1]]


def test_two_roundings_of_one_distance_are_one_pair() -> None:
    neighbors = Neighbors([[2e-8], [1e-8], [1.0], [1.0], [1.0]], [[1], [0], [0], [2], [2]],
        ids=[[1], [0], [0], [4], [3]])  # fmt: skip
    found = near_duplicates_across_classes(neighbors, [0, 1, 2, 2, 2])
    assert found.ids.tolist() == [[0, 1]]
    assert found.sq_distances.tolist() == [1e-8]


def test_scale_does_not_matter() -> None:
    vectors, codes = blobs(n_classes=4, per_class=15, spread=1.5, seed=0)
    small = near_duplicates_across_classes(
        leave_one_out_neighbors(vectors, codes, 10), codes, relative_threshold=1.0
    )
    large = near_duplicates_across_classes(
        leave_one_out_neighbors(64 * vectors, codes, 10), codes, relative_threshold=1.0
    )
    assert len(small) > 3
    np.testing.assert_array_equal(small.ids, large.ids)


def test_own_ids_and_no_neighbours_at_all() -> None:
    neighbors = Neighbors([[0.0], [0.0]], [[1], [0]], ids=[["b"], ["a"]])
    found = near_duplicates_across_classes(neighbors, [0, 1], ids=["a", "b"])
    assert found.ids.tolist() == [["a", "b"]]
    rows = Neighbors([[0.0], [0.0]], [[1], [0]], ids=[[1], [0]])
    nobody = near_duplicates_across_classes(padded(rows, np.array([0, 0])), [0, 1])
    assert nobody.ids.shape == nobody.codes.shape == (0, 2)


@pytest.mark.parametrize("relative_threshold", [-1.0, np.inf, np.nan])
def test_threshold_must_be_finite(relative_threshold: float) -> None:
    neighbors = Neighbors([[0.0], [0.0]], [[1], [0]], ids=[[1], [0]])
    with pytest.raises(InvalidInputError, match="relative_threshold must be a finite number >= 0"):
        near_duplicates_across_classes(neighbors, [0, 1], relative_threshold=relative_threshold)


# Confusable and small classes against dense recomputation.


def test_mass_is_the_mean_posterior_of_each_class() -> None:
    vectors, codes = blobs(n_classes=6, per_class=10, spread=1.0, seed=0)
    codes = codes + (codes > 3)  # code 4 is nobody's
    counts = np.random.default_rng(1).integers(0, 8, len(codes))
    neighbors = padded(leave_one_out_neighbors(vectors, codes, 7), counts)
    found = confusable_classes(neighbors, codes, temperature=1.5)
    dense = score(neighbors, temperature=1.5, n_classes=7).to_csr().toarray()
    mass = np.zeros((7, 7))
    for code in np.unique(codes):
        mass[code] = dense[(codes == code) & (counts > 0)].mean(axis=0)
    np.testing.assert_allclose(found.mass.toarray(), mass, atol=1e-12)
    pairs = {
        (a, b): (mass[a, b] + mass[b, a]) / 2
        for a in range(7)
        for b in range(a + 1, 7)
        if mass[a, b] + mass[b, a] > 0
    }
    assert dict(zip(map(tuple, found.codes.tolist()), found.confusion, strict=True)) == (
        pytest.approx(pairs)
    )
    assert (np.diff(found.confusion) <= 0).all()


def test_planted_confusion_comes_first() -> None:
    vectors, codes = blobs(n_classes=12, per_class=20, spread=0.3, seed=2)
    vectors[codes == 9] += vectors[codes == 4].mean(axis=0) - vectors[codes == 9].mean(axis=0)
    neighbors = leave_one_out_neighbors(vectors, codes, 15)
    found = confusable_classes(neighbors, codes, temperature=0.5)
    assert found.codes[0].tolist() == [4, 9]
    assert found.confusion[0] > 0.3
    assert (found.confusion[1:] < 0.1).all()


def test_one_class_is_confused_with_none() -> None:
    neighbors = Neighbors([[1.0], [1.0]], [[0], [0]], ids=[[1], [0]])
    found = confusable_classes(neighbors, [0, 0], temperature=1.0)
    assert len(found) == 0
    assert found.codes.shape == (0, 2)
    assert found.mass.toarray().tolist() == [[1.0]]


def test_many_classes_stay_sparse() -> None:
    """Dense, 300,000 classes by as many would be 700 GB."""
    n = 300_000
    partner = np.arange(n) ^ 1
    neighbors = Neighbors(np.ones((n, 1)), partner[:, None], partner[:, None])
    found = confusable_classes(neighbors, np.arange(n), temperature=1.0)
    assert found.mass.nnz == n
    assert len(found) == n // 2


def test_small_classes_are_counted() -> None:
    vectors, codes = blobs(n_classes=6, per_class=12, spread=1.2, seed=0)
    kept = np.ones(len(codes), np.bool_)
    kept[[*range(1, 12), *range(15, 24)]] = False  # leaves 1 of class 0 and 3 of class 1
    vectors, codes = vectors[kept], codes[kept]
    neighbors = leave_one_out_neighbors(vectors, codes, 3)
    predicted = score(neighbors, temperature=1.0).labels
    expected = []
    for code in np.unique(codes):
        members = np.flatnonzero(codes == code)
        n_missed = sum(code not in neighbors.labels[i] for i in members)
        if len(members) < 4 or n_missed / len(members) > 0.3:
            right = np.mean(predicted[members] == code)
            expected.append((len(members), -n_missed / len(members), code, n_missed, right))
    expected.sort()
    found = small_classes(neighbors, codes, temperature=1.0, min_members=4, max_miss_share=0.3)
    assert 2 < len(found) < 6  # some by their size, some by their misses, not all
    assert found.codes.tolist() == [row[2] for row in expected]
    assert found.n_members.tolist() == [row[0] for row in expected]
    assert found.n_missed.tolist() == [row[3] for row in expected]
    np.testing.assert_allclose(found.accuracy, [row[4] for row in expected])


def test_bounds_of_small_are_exclusive() -> None:
    neighbors = Neighbors([[1.0]] * 4, [[0], [0], [1], [1]])
    codes = [0, 0, 1, 0]  # class 0: 3 members, 1 missed; class 1: 1 member, none missed
    options = {"temperature": 1.0}
    assert len(small_classes(neighbors, codes, min_members=1, max_miss_share=1 / 3, **options)) == 0
    by_size = small_classes(neighbors, codes, min_members=2, max_miss_share=1 / 3, **options)
    assert by_size.codes.tolist() == [1]
    by_misses = small_classes(neighbors, codes, min_members=1, max_miss_share=0.33, **options)
    assert by_misses.codes.tolist() == [0]


def test_a_point_without_neighbours_misses_its_class() -> None:
    neighbors = Neighbors([[1.0], [1.0]], [[0], [0]], counts=[1, 0])
    found = small_classes(neighbors, [0, 0], temperature=1.0, min_members=0, max_miss_share=0.4)
    assert (found.n_missed.tolist(), found.accuracy.tolist()) == ([1], [0.5])


def test_bad_parameters_of_small_classes_are_refused() -> None:
    neighbors = Neighbors([[1.0], [1.0]], [[0], [0]])
    with pytest.raises(InvalidInputError, match="min_members must not be negative"):
        small_classes(neighbors, [0, 0], temperature=1.0, min_members=-1)
    for share in (-0.1, 1.1, np.nan):
        with pytest.raises(InvalidInputError, match=r"max_miss_share must lie in \[0, 1\]"):
            small_classes(neighbors, [0, 0], temperature=1.0, max_miss_share=share)


def test_bursts_are_listed_with_the_largest_first() -> None:
    rng = np.random.default_rng(0)
    points, codes = rng.normal(size=(120, 16)), np.arange(120) % 3
    rows = np.concatenate([np.arange(120), [0] * 4, [1] * 2])
    copied = points[rows]
    copied[120:124] += 0.01 * rng.normal(size=(4, 16))
    found = NEDClassifier().fit(copied, codes[rows]).audit().copies
    assert found is not None
    assert [sorted(ids.tolist()) for ids in found.ids] == [[0, 120, 121, 122, 123], [1, 124, 125]]
    assert found.codes.tolist() == [0, 1]
    assert (found.n_points, found.n_exact) == (8, 3)
