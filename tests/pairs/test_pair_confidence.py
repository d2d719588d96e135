"""What `PairConfidence` learns, against closed-form truth, invariances and naive computation."""

from pathlib import Path

import numpy as np
import pytest
from scipy.special import expit, logit
from sklearn.exceptions import NotFittedError

from nearsure import NEDClassifier, PairConfidence
from nearsure.arrays import AnyArray, FloatArray, IntArray
from nearsure.errors import InvalidInputError, ModelFileError
from nearsure.model_file import read_model, write_model
from nearsure.pairs import report_pairs
from nearsure.pairs.crowding import Cohort


def made_classes(
    seed: int, n_classes: int = 60, n_each: int = 8, spread: AnyArray | float = 0.5, dim: int = 4
) -> tuple[FloatArray, IntArray]:
    rng = np.random.default_rng(seed)
    codes = np.repeat(np.arange(n_classes), n_each)
    centres = 2.0 * rng.standard_normal((n_classes, dim))
    return centres[codes] + spread * rng.standard_normal((len(codes), dim)), codes


def all_pairs(vectors: FloatArray, codes: IntArray) -> tuple[FloatArray, FloatArray, AnyArray]:
    first, second = np.triu_indices(len(codes), 1)
    return vectors[first], vectors[second], codes[first] == codes[second]


@pytest.fixture(scope="module")
def fitted() -> PairConfidence:
    return PairConfidence().fit(*made_classes(0))


def test_the_probability_of_distances_is_the_true_one() -> None:
    """Distances of which the log-odds are known: gamma distributions of two scales."""
    rng = np.random.default_rng(0)
    same = rng.random(40_000) < 0.2
    # Densities d^2 exp(-d) and d^4 exp(-d / 2): log-odds linear in d and log d.
    d = np.where(same, rng.gamma(3.0, 1.0, len(same)), rng.gamma(5.0, 2.0, len(same)))
    pairs = PairConfidence(base_rate=0.2).fit_distances(d, same)
    at = np.linspace(0.5, 15.0, 30)
    log_ratio = (2.0 * np.log(at) - at - np.log(2.0)) - (
        4.0 * np.log(at) - at / 2.0 - np.log(24.0 * 2.0**5)
    )
    truth = expit(log_ratio + logit(0.2))
    assert np.abs(pairs.probability_of_distances(at) - truth).max() < 0.02
    report = pairs.report()
    assert report.calibration_error < 0.01


def test_log_odds_that_no_line_has_are_bent() -> None:
    """p(same) is a staircase of the distance, which no line of d and log d can follow."""
    rng = np.random.default_rng(0)
    d = rng.uniform(0.5, 8.5, 40_000)
    truth = np.array([0.9, 0.6, 0.55, 0.1])[np.digitize(d, [2.5, 4.5, 6.5])]
    same = rng.random(len(d)) < truth
    pairs = PairConfidence(base_rate=float(same.mean())).fit_distances(d, same)
    assert (np.diff(pairs.probability_of_distances(np.linspace(0.5, 8.5, 200))) < 0.0).all()
    bent = np.abs(pairs.probability_of_distances(d) - truth).mean()
    pairs.offset_, pairs.slopes_ = 0.0, np.ones_like(pairs.slopes_)
    line = np.abs(pairs.probability_of_distances(d) - truth).mean()
    assert bent < 0.06
    assert line > 0.08


def test_new_classes_are_answered_as_often_rightly_as_said(fitted: PairConfidence) -> None:
    first, second, same = all_pairs(*made_classes(1))
    report = fitted.report(first, second, same)
    assert report.calibration_error < 0.02
    assert report.auroc > 0.95


@pytest.mark.parametrize("n_classes", [2, 3, 6])
def test_few_classes_are_answered_as_often_rightly_as_said(n_classes: int) -> None:
    """Queries of the gallery's own classes, of which each is much of the gallery."""
    vectors, codes = made_classes(5, n_classes, n_each=80, spread=1.0)
    held_out = np.arange(len(codes)) % 2 == 1
    pairs = PairConfidence().fit(vectors[~held_out], codes[~held_out])
    report = pairs.report(*all_pairs(vectors[held_out], codes[held_out]))
    assert report.calibration_error < 0.06


def test_crowding_tells_what_the_distance_does_not() -> None:
    """Half of the space is ten times as dense: there the same distance means another class."""

    def two_densities(seed: int) -> tuple[FloatArray, IntArray]:
        dense, codes = made_classes(seed, 30)
        sparse, others = made_classes(seed + 100, 30)
        return np.vstack([dense, 100.0 + 10.0 * sparse]), np.concatenate([codes, 30 + others])

    gallery, queries = two_densities(0), two_densities(1)
    pairs = PairConfidence().fit(*gallery)
    first, second, same = all_pairs(*queries)
    near = ((first[:, 0] > 50) == (second[:, 0] > 50)) & (np.arange(len(same)) % 5 == 0)
    first, second, same = first[near], second[near], same[near]
    own_first, own_second, own_same = all_pairs(*gallery)
    own = ((own_first - own_second) ** 2).sum(axis=1)
    alone = PairConfidence().fit_distances(own, own_same)
    by_distance = alone.probability_of_distances(((first - second) ** 2).sum(axis=1))
    with_crowding = pairs.report(first, second, same)
    without = report_pairs(by_distance, same, base_rate=0.5)
    assert with_crowding.log_loss < 0.6 * without.log_loss
    assert with_crowding.auroc > without.auroc + 0.02


def test_gallery_points_are_measured_as_new_classes_would_be() -> None:
    """Naively: the distance to the tenth nearest class, own class left out."""
    vectors, codes = made_classes(0)
    cohort = Cohort.draw(vectors, codes, np.random.default_rng(0))
    found = cohort.sq_distances(vectors, own=codes)
    between = ((vectors[:, None] - cohort.vectors) ** 2).sum(axis=2)
    for row in range(0, len(codes), 37):
        by_class = [between[row, cohort.codes == other].min() for other in range(60)]
        others = np.sort(np.delete(by_class, codes[row]))
        assert found[row] == pytest.approx(others[9])
        whole = cohort.sq_distances(vectors[row : row + 1])
        assert whole[0] == pytest.approx(np.sort(by_class)[9])


def test_a_query_in_the_gallery_is_hardly_more_crowded() -> None:
    """Its own class takes one of ten places, however many points it has."""
    vectors, codes = made_classes(0)
    cohort = Cohort.draw(vectors, codes, np.random.default_rng(0))
    ratio = cohort.sq_distances(vectors) / cohort.sq_distances(vectors, own=codes)
    assert (ratio <= 1.0).all()
    assert np.median(ratio) > 0.85


def test_order_of_the_two_rotation_and_scale_do_not_matter(fitted: PairConfidence) -> None:
    vectors, codes = made_classes(0)
    A, B = made_classes(1)[0][:50], made_classes(2)[0][:50]
    p = fitted.probability(A, B)
    assert fitted.probability(B, A) == pytest.approx(p)
    turn, _ = np.linalg.qr(np.random.default_rng(3).standard_normal((4, 4)))
    turned = PairConfidence().fit(1000.0 * vectors @ turn + 5.0, codes)
    assert turned.probability(1000.0 * A @ turn + 5.0, 1000.0 * B @ turn + 5.0) == pytest.approx(
        p, abs=1e-4
    )
    named = PairConfidence().fit(vectors, np.array([f"name {code:03}" for code in codes]))
    assert named.probability(A, B) == pytest.approx(p)


def test_nearer_is_never_less_probable() -> None:
    """Even where the gallery says otherwise: weights are not negative."""
    rng = np.random.default_rng(0)
    same = np.arange(1000) % 2 == 0
    upside_down = np.where(same, rng.gamma(5.0, 2.0, 1000), rng.gamma(3.0, 1.0, 1000))
    p = PairConfidence().fit_distances(upside_down, same).probability_of_distances(np.arange(30.0))
    assert (np.diff(p) <= 0.0).all()


def test_the_base_rate_shifts_the_log_odds(fitted: PairConfidence) -> None:
    A, B = made_classes(1)[0][:50], made_classes(2)[0][:50]
    rare = PairConfidence(base_rate=0.01).fit(*made_classes(0))
    assert logit(fitted.probability(A, B)) + logit(0.01) == pytest.approx(
        logit(rare.probability(A, B))
    )
    changed = PairConfidence().fit(*made_classes(0))
    changed.base_rate = 0.01
    assert changed.probability(A, B) == pytest.approx(rare.probability(A, B))
    half, other = fitted.threshold(false_accept=0.01), rare.threshold(false_accept=0.01)
    assert logit(half.threshold) + logit(0.01) == pytest.approx(logit(other.threshold))
    assert half.true_accept == pytest.approx(other.true_accept)


def test_no_large_class_rules() -> None:
    """One class of 500 points, all far apart, beside 40 of 8: it counts as one of 41."""
    vectors, codes = made_classes(0, 40)
    rng = np.random.default_rng(1)
    wide = 3.0 * rng.standard_normal((500, 4))
    even = PairConfidence().fit(vectors, codes)
    uneven = PairConfidence().fit(
        np.vstack([vectors, wide]), np.concatenate([codes, np.full(500, 40)])
    )
    own = uneven._own
    of_wide = own.same & (own.classes[:, 0] == 40)  # type: ignore[index]
    assert own.weights[of_wide].sum() == pytest.approx(1 / 41)
    with_wide = own.classes[~own.same] == 40  # type: ignore[index]
    assert own.weights[~own.same][with_wide.any(axis=1)].sum() == pytest.approx(2 / 41)
    A, B, same = all_pairs(*made_classes(2, 40))
    assert uneven.report(A, B, same).log_loss < 1.3 * even.report(A, B, same).log_loss


def test_which_of_a_pair_comes_first_does_not_matter() -> None:
    rng = np.random.default_rng(0)
    classes = rng.integers(0, 6, (500, 2))
    same = classes[:, 0] == classes[:, 1]
    d = rng.gamma(np.where(same, 2.0, 6.0) + classes.min(axis=1))
    swapped = np.where((rng.random(500) < 0.3)[:, None], classes[:, ::-1], classes)
    one, other = (PairConfidence().fit_distances(d, same, classes=c) for c in (classes, swapped))
    at = np.linspace(0.1, 10.0, 20)
    np.testing.assert_allclose(
        one.probability_of_distances(at), other.probability_of_distances(at), rtol=1e-9
    )


def test_pairs_of_one_group_are_no_evidence() -> None:
    """Each point comes three times, nearly: as if they were new pairs, copies mislead."""
    vectors, codes = made_classes(0, n_each=4)
    copies = np.vstack([vectors + 0.001 * shift for shift in range(3)])
    groups = np.tile(np.arange(len(codes)), 3)
    grouped = PairConfidence().fit(copies, np.tile(codes, 3), groups=groups)
    alone = PairConfidence().fit(copies, np.tile(codes, 3))
    A, B, same = all_pairs(*made_classes(1))
    assert grouped.report(A, B, same).log_loss < alone.report(A, B, same).log_loss
    assert grouped.report(A, B, same).calibration_error < 0.02


def test_it_is_the_same_again_and_after_a_file(fitted: PairConfidence, tmp_path: Path) -> None:
    again = PairConfidence().fit(*made_classes(0))
    A, B = made_classes(1)[0][:50], made_classes(2)[0][:50]
    assert (again.probability(A, B) == fitted.probability(A, B)).all()
    fitted.save(tmp_path / "pairs")
    loaded = PairConfidence.load(tmp_path / "pairs")
    assert (loaded.probability(A, B) == fitted.probability(A, B)).all()
    assert loaded.threshold(false_accept=0.01) == fitted.threshold(false_accept=0.01)
    assert loaded.report().log_loss == fitted.report().log_loss
    assert loaded.get_params() == fitted.get_params()
    # Files from before the line was bent.
    manifest, tensors = read_model(tmp_path / "pairs")
    for name in ("offset", "knots", "slopes"):
        del manifest[name]
    write_model(tmp_path / "straight", manifest, tensors)
    straight = PairConfidence.load(tmp_path / "straight")
    one, other = straight.probability(A, B), fitted.probability(A, B)
    assert (one != other).any()
    assert (np.argsort(one) == np.argsort(other)).all()

    d, same = np.arange(1.0, 101.0), np.arange(100) < 30
    by_distance = PairConfidence(base_rate=0.1).fit_distances(d, same)
    by_distance.save(tmp_path / "distances")
    loaded = PairConfidence.load(tmp_path / "distances")
    assert (loaded.probability_of_distances(d) == by_distance.probability_of_distances(d)).all()


def test_files_of_others_and_altered_ones_are_refused(
    fitted: PairConfidence, tmp_path: Path
) -> None:
    vectors, codes = made_classes(0, 5)
    NEDClassifier(rule="knn", head=None).fit(vectors, codes).save(tmp_path / "classifier")
    with pytest.raises(ModelFileError):
        PairConfidence.load(tmp_path / "classifier")
    fitted.save(tmp_path / "pairs")
    with pytest.raises(ModelFileError):
        NEDClassifier.load(tmp_path / "pairs")
    manifest, tensors = read_model(tmp_path / "pairs")
    for changed_manifest, changed in (
        ({"scale": 0.0}, {}),
        ({"coefficients": [1.0, 1.0]}, {}),
        ({"slopes": manifest["slopes"][1:]}, {}),
        ({"slopes": [0.0, *manifest["slopes"][1:]]}, {}),
        ({"knots": manifest["knots"][::-1]}, {}),
        ({"base_rate": 2.0}, {}),
        ({"n_features": 3}, {}),
        ({}, {"same": np.ones(len(tensors["same"]), bool)}),
        ({}, {"weights": tensors["weights"][:-1]}),
        ({}, {"log_odds": np.full(len(tensors["log_odds"]), np.nan)}),
        ({}, {"codes": tensors["codes"][:0], "vectors": tensors["vectors"][:0]}),
        ({}, {"more": tensors["same"]}),
    ):
        write_model(tmp_path / "odd", manifest | changed_manifest, tensors | changed)
        with pytest.raises(ModelFileError):
            PairConfidence.load(tmp_path / "odd")


def test_cosine_is_euclidean_at_unit_length() -> None:
    vectors, codes = made_classes(0)
    lengths = np.random.default_rng(0).uniform(0.5, 5.0, (len(vectors), 1))
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    cosine = PairConfidence(metric="cosine").fit(lengths * vectors, codes)
    plain = PairConfidence().fit(unit, codes)
    p = cosine.probability(3.0 * vectors[:9], vectors[9:18])
    assert p == pytest.approx(plain.probability(unit[:9], unit[9:18]), abs=1e-6)


def test_edges_of_what_a_gallery_may_be() -> None:
    vectors, codes = made_classes(0, 2)
    two = PairConfidence().fit(vectors, codes)
    assert np.isfinite(two.probability(vectors[:3], vectors[3:6])).all()
    apart = PairConfidence().fit([[0.0], [0.0], [1e6], [1e6]], list("aabb"))
    assert (np.diff(apart.probability([[0.0], [0.0]], [[0.0], [1e6]])) < 0.0).all()
    with pytest.raises(InvalidInputError, match="two classes"):
        PairConfidence().fit(vectors, np.zeros(len(vectors), int))
    with pytest.raises(InvalidInputError, match="no same pair"):
        PairConfidence().fit(vectors, np.arange(len(vectors)))
    with pytest.raises(InvalidInputError, match="no same pair"):
        PairConfidence().fit(vectors, codes, groups=codes)
    with pytest.raises(InvalidInputError, match="base_rate"):
        PairConfidence(base_rate=0.0).fit(vectors, codes)
    with pytest.raises(InvalidInputError, match="metric"):
        PairConfidence(metric="dot").fit(vectors, codes)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="same number of rows"):
        two.probability(vectors[:2], vectors[:3])
    with pytest.raises(InvalidInputError, match="together"):
        two.report(vectors)
    with pytest.raises(NotFittedError):
        PairConfidence().threshold()


def test_vectors_and_distances_are_not_mixed_up(fitted: PairConfidence) -> None:
    with pytest.raises(InvalidInputError, match="fit_distances"):
        fitted.probability_of_distances([1.0])
    d, same = np.arange(1.0, 11.0), np.arange(10) < 5
    by_distance = PairConfidence().fit_distances(d, same)
    with pytest.raises(InvalidInputError, match="probability_of_distances"):
        by_distance.probability([[1.0]], [[2.0]])
    for odd in ([-1.0], [np.nan], [], [[1.0]], ["a"]):
        with pytest.raises(InvalidInputError, match="sq_distances"):
            by_distance.probability_of_distances(odd)
    with pytest.raises(InvalidInputError, match="both kinds"):
        PairConfidence().fit_distances(d, np.ones(10))
    with pytest.raises(InvalidInputError, match="agree"):
        PairConfidence().fit_distances(d, same, classes=np.zeros((10, 2), int))
    with pytest.raises(InvalidInputError, match="shape"):
        PairConfidence().fit_distances(d, same, classes=np.zeros(10, int))
