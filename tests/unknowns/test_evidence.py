"""Evidence against plain loops, and what must not change it."""

from functools import partial

import numpy as np
import pytest

from nearsure import Neighbors, score
from nearsure.arrays import AnyArray, FloatArray, IntArray
from nearsure.errors import InvalidInputError
from nearsure.heads.linear import LinearHead
from nearsure.index import ExactIndex
from nearsure.loo import search_leaving_one_out
from nearsure.unknowns import (
    Evidence,
    GalleryDensity,
    KnownModel,
    Rehearsal,
    collect_evidence,
    rehearse,
    search_leaving_class_out,
)

T, K, N_CLASSES = 1.0, 12, 6
TO_POSTERIOR = partial(score, temperature=T)


def gallery(seed: int = 0, size: int = 20) -> tuple[AnyArray, IntArray]:
    """Classes about random centres, each denser than the last."""
    rng = np.random.default_rng(seed)
    codes = np.repeat(np.arange(N_CLASSES), size)
    centres, spreads = rng.normal(0, 3, (N_CLASSES, 3)), np.geomspace(0.3, 1.2, N_CLASSES)
    return centres[codes] + spreads[codes, None] * rng.normal(size=(len(codes), 3)), codes


def rehearsed(vectors: AnyArray, codes: IntArray) -> Rehearsal:
    index, rows = ExactIndex(vectors), np.arange(len(codes))
    return rehearse(
        search_leaving_one_out(index, vectors, rows, codes, k=K),
        search_leaving_class_out(index, vectors, rows, codes, k=K),
        rows,
        codes,
        temperature=T,
        to_posterior=TO_POSTERIOR,
    )


def neighbors_of(queries: AnyArray, vectors: AnyArray, codes: IntArray) -> Neighbors:
    sq_distances, ids = ExactIndex(vectors).search(queries, K)
    return Neighbors(sq_distances, codes[ids], ids)


def test_against_plain_loops() -> None:
    vectors, codes = gallery()
    density = rehearsed(vectors, codes).density
    queries = np.random.default_rng(1).normal(0, 3, (25, 3))
    found = neighbors_of(queries, vectors, codes)
    evidence = collect_evidence(found, TO_POSTERIOR(found), density)
    for row, query in enumerate(queries):
        nearest = sorted(range(len(codes)), key=lambda i: ((query - vectors[i]) ** 2).sum())[:K]
        kernel = {i: np.exp(-((query - vectors[i]) ** 2).sum() / (3 * T)) for i in nearest}
        masses = {
            c: sum(kernel[i] for i in nearest if codes[i] == c) for c in {codes[i] for i in nearest}
        }
        strongest = max(masses, key=lambda c: masses[c])
        usual = (
            sum(kernel[i] * density.member_log_masses[i] for i in nearest if codes[i] == strongest)
            / masses[strongest]
        )
        assert evidence.log_mass[row] == pytest.approx(np.log(masses[strongest]))
        assert evidence.relative_log_mass[row] == pytest.approx(np.log(masses[strongest]) - usual)
    assert (evidence.confidence == TO_POSTERIOR(found).confidence).all()


def test_the_largest_logit_is_evidence_if_asked_for() -> None:
    vectors, codes = gallery()
    density = rehearsed(vectors, codes).density
    queries = np.random.default_rng(1).normal(0, 3, (25, 3))
    head = LinearHead(np.random.default_rng(2).normal(size=(6, 3)), np.arange(6.0), np.ones(3))
    found = neighbors_of(queries, vectors, codes).with_scores(head.score(queries))
    plain, more = (
        collect_evidence(found, TO_POSTERIOR(found), density, with_logits=with_logits)
        for with_logits in (False, True)
    )
    assert plain.largest_logit is None
    assert more.matrix[:, :3] == pytest.approx(plain.matrix)
    largest = [max(w @ (z - 1.0) + c for c, w in enumerate(head.weights)) for z in queries]
    assert more.largest_logit == pytest.approx(np.array(largest))
    assert more.take(np.array([3])).matrix == pytest.approx(more.matrix[[3]])
    # Of classes that came later the head knows nothing.
    some = LinearHead(head.weights[:3], head.intercepts[:3], head.centre)
    posterior = TO_POSTERIOR(found)
    later = collect_evidence(
        found.with_scores(some.score(queries)), posterior, density, with_logits=True
    )
    assert later.largest_logit is not None
    assert 0 < (posterior.labels > 2).sum() < len(queries)
    np.testing.assert_array_equal(np.isnan(later.largest_logit), posterior.labels > 2)


def test_mass_at_members_makes_up_for_the_member_left_out() -> None:
    """Twins at every corner of a class: what one sees of three is 4 / 3 of it among four."""
    vectors = np.array([[0.0], [0.0], [0.0], [0.0], [50.0], [50.0]])
    codes = np.array([0, 0, 0, 0, 1, 1])
    rehearsal = rehearsed(vectors, codes)
    assert rehearsal.density.member_log_masses == pytest.approx(np.log([4, 4, 4, 4, 2, 2]))
    assert rehearsal.known.log_mass == pytest.approx(np.log([4, 4, 4, 4, 2, 2]))
    sq_distances, ids = ExactIndex(vectors).search(np.array([[0.0], [50.0]]), 6)
    twin = Neighbors(sq_distances, codes[ids], ids)
    evidence = collect_evidence(twin, TO_POSTERIOR(twin), rehearsal.density)
    assert evidence.relative_log_mass == pytest.approx([0, 0], abs=1e-6)


def test_support_points_take_no_part_in_the_mass_about_their_neighbours() -> None:
    """Against plain loops, with classes larger (20) than what the neighbours hold (12)."""
    vectors, codes = gallery()
    known = rehearsed(vectors, codes).known
    sq_distances = ((vectors[:, None] - vectors) ** 2).sum(axis=2)
    lists = [[j for j in np.argsort(row) if j != i][:K] for i, row in enumerate(sq_distances)]
    kernel = np.exp(-sq_distances / (3 * T))
    for i in range(0, len(codes), 3):
        masses = [sum(kernel[i, j] for j in lists[i] if codes[j] == c) for c in range(N_CLASSES)]
        if int(np.argmax(masses)) != codes[i]:
            continue
        fellows = [j for j in lists[i] if codes[j] == codes[i]]
        usual = 0.0
        for j in fellows:
            counted = [m for m in lists[j] if codes[m] == codes[j]]
            others = [m for m in counted if m != i]
            n_left = 20 - 1 - (i in counted)
            mass = sum(kernel[j, m] for m in others) or kernel[j, lists[j][-1]]
            usual += kernel[i, j] * np.log(20 / n_left * mass)
        own_mass = np.log(20 / 19 * max(masses))
        assert known.relative_log_mass[i] == pytest.approx(own_mass - usual / max(masses))


def test_rehearsed_known_points_look_like_known_queries() -> None:
    """Small classes, where one point more or less matters most.

    Points that stayed in the mass about their neighbours would be lower by 0.2.
    """
    rng, n_classes = np.random.default_rng(0), 240
    centres = rng.normal(0, 3, (n_classes, 8))
    codes, query_codes = (np.repeat(np.arange(n_classes), size) for size in (12, 40))
    vectors, queries = (centres[c] + rng.normal(size=(len(c), 8)) for c in (codes, query_codes))
    rehearsal = rehearsed(vectors, codes)
    found = neighbors_of(queries, vectors, codes)
    real = collect_evidence(found, TO_POSTERIOR(found), rehearsal.density).relative_log_mass
    played = rehearsal.known.relative_log_mass
    # Queries of a class share its members, so classes are what varies independently.
    differences = [
        played[codes == code].mean() - real[query_codes == code].mean() for code in range(n_classes)
    ]
    standard_error = np.std(differences, ddof=1) / np.sqrt(n_classes)
    assert standard_error < 0.03
    assert abs(np.mean(differences)) < 2.5 * standard_error


def test_of_two_members_one_has_nobody_left_when_the_other_asks() -> None:
    """It then takes the mean of the gallery, as a class of one does."""
    vectors = np.array([[0.0], [1.0], [50.0], [51.0], [52.0]])
    rehearsal = rehearsed(vectors, np.array([0, 0, 1, 1, 1]))
    mean = rehearsal.density.member_log_masses.mean()
    expected = np.log(2 * np.exp(-1 / (3 * T))) - mean
    assert rehearsal.known.relative_log_mass[:2] == pytest.approx([expected, expected])


def test_a_density_without_reaches_cannot_leave_points_out() -> None:
    density = GalleryDensity(3.0, np.array([2, 1]), np.zeros(3))
    found = Neighbors([[1.0]], [[0]], [[1]])
    with pytest.raises(InvalidInputError, match="reaches"):
        collect_evidence(found, TO_POSTERIOR(found), density, own_codes=[0])


def test_a_posterior_that_makes_up_for_the_point_left_out_is_used() -> None:
    vectors, codes = gallery()
    index, rows = ExactIndex(vectors), np.arange(len(codes))
    own = search_leaving_one_out(index, vectors, rows, codes, k=K)
    sharper = score(own, temperature=T / 4)
    rehearsal = rehearse(
        own,
        search_leaving_class_out(index, vectors, rows, codes, k=K),
        rows,
        codes,
        temperature=T,
        to_posterior=TO_POSTERIOR,
        own_posterior=sharper,
    )
    assert (rehearsal.known.confidence == sharper.confidence).all()
    assert (rehearsal.unknown.confidence == rehearsed(vectors, codes).unknown.confidence).all()


def test_classes_of_one_play_no_known_query() -> None:
    vectors, codes = gallery()
    lonely = np.append(codes, N_CLASSES)
    rehearsal = rehearsed(np.concatenate([vectors, [[40.0, 40.0, 40.0]]]), lonely)
    assert len(rehearsal.known) == len(codes)
    assert len(rehearsal.unknown) == len(lonely)
    assert rehearsal.density.member_log_masses[-1] == pytest.approx(
        rehearsal.density.member_log_masses[:-1].mean()
    )


def test_points_that_were_not_searched_take_the_mean_of_their_class() -> None:
    vectors, codes = gallery()
    rows = np.arange(0, len(codes), 2)
    own = search_leaving_one_out(ExactIndex(vectors), vectors[rows], rows, codes, k=K)
    half = GalleryDensity.measure(own, rows, codes, temperature=T).member_log_masses
    full = rehearsed(vectors, codes).density.member_log_masses
    assert half[rows] == pytest.approx(full[rows])
    for code in range(N_CLASSES):
        searched = rows[codes[rows] == code]
        assert half[searched[0] + 1] == pytest.approx(full[searched].mean())


def test_scaling_space_and_temperature_changes_nothing() -> None:
    vectors, codes = gallery()
    plain = rehearsed(vectors, codes)
    index, rows = ExactIndex(5 * vectors), np.arange(len(codes))
    scaled = rehearse(
        search_leaving_one_out(index, 5 * vectors, rows, codes, k=K),
        search_leaving_class_out(index, 5 * vectors, rows, codes, k=K),
        rows,
        codes,
        temperature=25 * T,
        to_posterior=partial(score, temperature=25 * T),
    )
    assert scaled.known.matrix == pytest.approx(plain.known.matrix)
    assert scaled.unknown.matrix == pytest.approx(plain.unknown.matrix)


def test_walking_away_from_everything_ends_at_p_known_zero() -> None:
    """Confidence ends at 1 on the same way: it is relative."""
    vectors, codes = gallery()
    rehearsal = rehearsed(vectors, codes)
    model = KnownModel.fit(rehearsal.known, rehearsal.unknown)
    outward = vectors[0] / np.linalg.norm(vectors[0])
    way = vectors[0] + np.array([0, 10, 20, 50, 100, 1e4, 1e8])[:, None] * outward
    found = neighbors_of(way, vectors, codes)
    posterior = TO_POSTERIOR(found)
    p_known = model.p_known(collect_evidence(found, posterior, rehearsal.density), 0.1)
    assert p_known[0] > 0.5
    assert (np.diff(p_known) <= 0).all()
    assert (p_known[2:] < 1e-3).all()
    assert posterior.confidence[-1] == 1


def test_a_query_without_neighbours_is_unknown() -> None:
    vectors, codes = gallery()
    rehearsal = rehearsed(vectors, codes)
    model = KnownModel.fit(rehearsal.known, rehearsal.unknown)
    nothing = Neighbors([[1.0, 2.0]], [[0, 1]], [[0, 25]], counts=[0])
    evidence = collect_evidence(nothing, TO_POSTERIOR(nothing), rehearsal.density)
    assert model.p_known(evidence, 0.1) == 0


def test_the_names_of_classes_do_not_matter() -> None:
    vectors, codes = gallery()
    renamed = rehearsed(vectors, np.array([4, 2, 0, 5, 1, 3])[codes])
    assert renamed.unknown.matrix == pytest.approx(rehearsed(vectors, codes).unknown.matrix)


def test_one_class_cannot_imitate_unknowns() -> None:
    vectors = np.arange(4.0)[:, None]
    with pytest.raises(InvalidInputError, match="unknown queries cannot be imitated"):
        search_leaving_class_out(
            ExactIndex(vectors), vectors, np.arange(4), np.zeros(4, np.int64), k=2
        )


def test_classes_of_one_alone_cannot_imitate_known_queries() -> None:
    with pytest.raises(InvalidInputError, match="known queries cannot be imitated"):
        rehearsed(np.arange(4.0)[:, None], np.arange(4))


def test_own_class_among_the_class_left_out_is_refused() -> None:
    vectors, codes = gallery()
    rows = np.arange(len(codes))
    own = search_leaving_one_out(ExactIndex(vectors), vectors, rows, codes, k=K)
    with pytest.raises(InvalidInputError, match="no neighbour of a point's own class"):
        rehearse(own, own, rows, codes, temperature=T, to_posterior=TO_POSTERIOR)


def test_one_neighbour_of_its_own_class_is_refused() -> None:
    vectors, codes = gallery()
    rows = np.arange(len(codes))
    own = search_leaving_one_out(ExactIndex(vectors), vectors, rows, codes, k=K)
    others = search_leaving_class_out(ExactIndex(vectors), vectors, rows, codes, k=K)
    labels = others.labels.copy()
    labels[7, 3] = codes[7]
    one_of_many = Neighbors(others.sq_distances, labels, others.ids)
    with pytest.raises(InvalidInputError, match="Got one for 1 points"):
        rehearse(own, one_of_many, rows, codes, temperature=T, to_posterior=TO_POSTERIOR)


def test_ids_are_needed_and_must_be_of_the_gallery() -> None:
    density = GalleryDensity(3.0, np.array([1, 1]), np.zeros(2))
    without = Neighbors([[1.0]], [[0]])
    with pytest.raises(InvalidInputError, match="ids"):
        collect_evidence(without, TO_POSTERIOR(without), density)
    foreign = Neighbors([[1.0]], [[0]], [[7]])
    with pytest.raises(InvalidInputError, match="Got 7"):
        collect_evidence(foreign, TO_POSTERIOR(foreign), density)


@pytest.mark.parametrize("bad", [np.array([np.nan, 0.0]), np.array([np.inf, 0.0]), np.zeros(3)])
def test_evidence_is_numbers_of_one_length(bad: FloatArray) -> None:
    with pytest.raises(InvalidInputError):
        Evidence(bad, np.zeros(2), np.zeros(2))
    with pytest.raises(InvalidInputError):
        Evidence(np.zeros(2), bad, np.zeros(2))
