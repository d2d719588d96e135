"""What points of the gallery would be taken for, and what each neighbour contributes."""

import numpy as np
import pytest

from nearsure import NEDClassifier, Neighbors
from nearsure.arrays import AnyArray
from nearsure.classifier.parameters import RuleChoice
from nearsure.errors import InvalidInputError
from nearsure.posterior import aggregate, neighbor_shares

# Queries here are drawn otherwise than the gallery.
pytestmark = pytest.mark.filterwarnings("ignore::nearsure.errors.QueriesDifferWarning")

RNG = np.random.default_rng(0)
CENTRES = RNG.normal(size=(6, 5)) * 2
LABELS = np.array(list("abcdef"))[np.arange(120) % 6]
POINTS = CENTRES[np.arange(120) % 6] + RNG.normal(size=(120, 5))


@pytest.mark.parametrize("rule", ["adaptive", "sharpened", "ned", "gou", "knn", "1nn"])
def test_shares_of_a_class_sum_to_its_probability_before_calibration(rule: RuleChoice) -> None:
    classifier = NEDClassifier(rule=rule, calibration="none", n_neighbors=15).fit(POINTS, LABELS)
    prediction = classifier.predict_with_confidence(RNG.normal(size=(30, 5)))
    shares = classifier.vote_shares(prediction.neighbors)
    assert (shares >= 0).all()
    np.testing.assert_allclose(shares.sum(axis=1), 1)
    dense = prediction.posterior.to_csr().toarray()
    for row in range(30):
        for code in range(6):
            mine = prediction.neighbors.labels[row] == code
            assert shares[row, mine].sum() == pytest.approx(dense[row, code], abs=1e-12)


def test_nearer_neighbours_of_a_class_have_larger_shares() -> None:
    classifier = NEDClassifier().fit(POINTS, LABELS)
    neighbors = classifier.kneighbors(POINTS[:10] + 0.1)
    shares = classifier.vote_shares(neighbors)
    for row in range(10):
        for code in np.unique(neighbors.labels[row]):
            assert (np.diff(shares[row, neighbors.labels[row] == code]) <= 0).all()


def test_padding_has_no_share() -> None:
    found = Neighbors([[0.0, 1.0, np.inf], [0.0, 2.0, 3.0]], [[1, 0, -1], [1, 1, 0]], counts=[2, 3])
    weights = np.array([[0.6, 0.4, 0.0], [0.5, 0.3, 0.2]])
    shares = neighbor_shares(found, weights, aggregate(found, weights, sharpness=2.0))
    np.testing.assert_allclose(shares[0], [0.36 / 0.52, 0.16 / 0.52, 0])
    # Classes weigh 0.8 and 0.2; squared, 0.64 and 0.04.
    np.testing.assert_allclose(shares[1] * 0.68, [0.64 * 5 / 8, 0.64 * 3 / 8, 0.04])


@pytest.mark.parametrize("engine", ["exact", "hnsw"])
def test_a_point_is_judged_as_if_it_were_not_there(engine: str) -> None:
    classifier = NEDClassifier(rule="ned", n_neighbors=20, engine=engine).fit(POINTS, LABELS)
    asked = np.array([7, 3, 99])
    own = classifier.predict_own(asked)
    for row, point in enumerate(asked):
        others = np.arange(120) != point
        alone = NEDClassifier(
            rule="ned", n_neighbors=20, temperature=float(classifier.temperature_ or 0)
        ).fit(POINTS[others], LABELS[others])
        expected = alone.predict_with_confidence(POINTS[[point]])
        assert own.labels[row] == expected.labels[0]
        assert own.confidence[row] == pytest.approx(expected.confidence[0])
        assert own.neighbors.ids is not None
        assert point not in own.neighbors.ids[row]


def test_all_points_of_the_fit_by_default() -> None:
    classifier = NEDClassifier(max_fit_samples=50).fit(POINTS, LABELS)
    ids = classifier.own_ids()
    assert len(ids) == 50
    every = classifier.predict_own()
    some = classifier.predict_own(ids)
    np.testing.assert_array_equal(every.labels, some.labels)
    np.testing.assert_allclose(every.confidence, some.confidence)


def test_a_gallery_of_one_point_cannot_be_asked_about_itself() -> None:
    classifier = NEDClassifier(temperature=1.0).fit(POINTS[:2], LABELS[:2])
    classifier.remove([0], allow_empty_class=True)
    with pytest.raises(InvalidInputError, match="one point"):
        classifier.predict_own([1])


def test_what_changes_during_a_pass_makes_it_an_old_one(monkeypatch: pytest.MonkeyPatch) -> None:
    classifier = NEDClassifier().fit(POINTS, LABELS)
    classifier.relabel([0], ["b"])
    search = classifier._fit.gallery.leave_one_out

    def disturbed(ids: AnyArray | None, k: int) -> Neighbors:
        found = search(ids, k)
        monkeypatch.undo()
        classifier.relabel(np.arange(9), np.repeat("a", 9))
        return found

    monkeypatch.setattr(classifier._fit.gallery, "leave_one_out", disturbed)
    classifier.predict_own()
    fresh = NEDClassifier.from_bytes(classifier.to_bytes())
    now, expected = classifier.predict_own(), fresh.predict_own()
    np.testing.assert_array_equal(now.neighbors.labels, expected.neighbors.labels)


def test_a_rehearsal_belongs_to_its_pass() -> None:
    classifier = NEDClassifier(unknown_share=0.2).fit(POINTS, LABELS)
    old = classifier.rehearsed_scores()
    kept = classifier._fit.rehearsal
    classifier.remove([0, 1, 2])
    classifier.rehearsed_scores()
    # As if another thread had stored its own a moment later.
    classifier._fit.rehearsal = kept
    again = NEDClassifier.from_bytes(classifier.to_bytes())
    for mine, expected in zip(classifier.rehearsed_scores(), again.rehearsed_scores(), strict=True):
        np.testing.assert_array_equal(mine, expected)
    assert len(old[0]) != len(classifier.rehearsed_scores()[0])
