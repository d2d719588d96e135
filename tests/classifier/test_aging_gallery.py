"""A fit that grows old with its gallery: refit, staleness, and files that keep its age."""

import copy
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_galleries import assert_same_answers, drawn

from nearsure import NEDClassifier
from nearsure.errors import (
    InvalidInputError,
    StaleFitWarning,
)

Z, Y = drawn()
MORE, MORE_Y = drawn(12, seed=1)
Q = drawn(80, seed=2)[0]


@pytest.fixture(scope="module")
def untouched() -> NEDClassifier:
    return NEDClassifier().fit(Z, Y)


@pytest.fixture
def living(untouched: NEDClassifier) -> NEDClassifier:
    """One's own to change; a copy costs less than a fit."""
    return copy.deepcopy(untouched)


class TestRefit:
    def test_it_is_a_fresh_fit_after_additions(self, living: NEDClassifier) -> None:
        living.add(MORE, MORE_Y)
        again = living.refit()
        fresh = NEDClassifier().fit(np.concatenate([Z, MORE]), np.concatenate([Y, MORE_Y]))
        assert again is living
        assert living.rule_.to_dict() == fresh.rule_.to_dict()
        assert_same_answers(living, fresh, Q)
        np.testing.assert_array_equal(living.fit_indices_, np.arange(162))
        assert living.staleness().share_changed == 0.0
        assert living.staleness().drift == 0.0

    @pytest.mark.parametrize("unknown_share", [None, 0.2])
    def test_it_is_a_fresh_fit_up_to_rounding_after_removals(
        self, unknown_share: float | None
    ) -> None:
        """Removals change the order of points, and so that of sums."""
        living = NEDClassifier(unknown_share=unknown_share).fit(Z, Y)
        gone = np.arange(0, 10)
        living.remove(gone)
        living.refit()
        fresh = NEDClassifier(unknown_share=unknown_share).fit(Z[10:], Y[10:])
        np.testing.assert_allclose(living.predict_proba(Q), fresh.predict_proba(Q), atol=1e-5)
        assert living.temperature_ == pytest.approx(fresh.temperature_, rel=1e-4)

    def test_parameters_that_were_set_take_effect(self, living: NEDClassifier) -> None:
        living.set_params(rule="ned", n_neighbors=20, calibration="platt", metric="cosine").refit()
        fresh = NEDClassifier(rule="ned", n_neighbors=20, calibration="platt").fit(Z, Y)
        assert_same_answers(living, fresh, Q)

    def test_a_refit_that_fails_leaves_the_old_fit(self, living: NEDClassifier) -> None:
        before = copy.deepcopy(living)
        for parameters in ({"n_neighbors": 151}, {"prior": [0.5, 0.5]}, {"prior": {0: 1.0}}):
            with pytest.raises(InvalidInputError):
                living.set_params(**parameters).refit()
            living.set_params(n_neighbors="auto", prior="support")
            assert_same_answers(living, before, Q)

    @pytest.mark.parametrize(
        "parameters",
        [
            {"rule": "bogus"},
            {"rule": "knn", "temperature": 3.0},
            {"temperature": -1.0},
            {"objective": "brier", "rule": "adaptive"},
            {"max_fit_samples": 2.5},
        ],
    )
    def test_parameters_that_a_fit_refuses_are_refused(
        self, parameters: dict[str, Any], living: NEDClassifier
    ) -> None:
        before = copy.deepcopy(living)
        with pytest.raises(InvalidInputError):
            NEDClassifier(**parameters).fit(Z, Y)
        with pytest.raises(InvalidInputError):
            living.set_params(**parameters).refit()
        assert_same_answers(living, before, Q)

    def test_a_fit_of_another_dimension_that_fails_leaves_the_old_one(
        self, living: NEDClassifier
    ) -> None:
        with pytest.raises(InvalidInputError, match="one group for each"):
            living.fit(np.ones((150, 7)), Y, groups=[1])
        living.predict(Q)


class TestStaleness:
    def test_an_unchanged_gallery_is_fresh(self, living: NEDClassifier) -> None:
        staleness = living.staleness()
        assert (staleness.share_changed, staleness.drift) == (0.0, 0.0)
        assert not staleness.is_stale
        posterior = living.leave_one_out_posterior()
        losses = -np.log(np.maximum(posterior.probability_of(living.encode(Y)), 1e-3))
        assert staleness.loss_now == pytest.approx(losses.mean(), rel=1e-12)
        assert staleness.standard_error == pytest.approx(
            np.sqrt(2 / 150) * losses.std(ddof=1), rel=1e-12
        )
        assert str(staleness).endswith("fresh enough.")

    def test_each_changed_point_counts_once(self, living: NEDClassifier) -> None:
        new = living.add(MORE[:5], MORE_Y[:5])
        living.relabel(new[:2], (MORE_Y[:2] + 1) % 3)
        living.relabel([7], [Y[7]])  # no change
        assert living.staleness().share_changed == pytest.approx(5 / 155)
        living.remove(new[:3])
        living.remove([0])
        assert living.staleness().share_changed == pytest.approx(6 / 151)

    def test_wrong_labels_raise_the_loss(self) -> None:
        points, labels = drawn(600)
        living, some = NEDClassifier().fit(points, labels), np.arange(0, 600, 12)
        living.relabel(some, (labels[some] + 1) % 3)
        staleness = living.staleness()
        assert staleness.share_changed < 0.1
        assert staleness.drift > 3 * staleness.standard_error
        assert staleness.is_stale
        assert "refit()" in str(staleness)

    def test_points_of_the_same_kind_do_not(self, living: NEDClassifier) -> None:
        living.add(MORE, MORE_Y)
        assert not living.staleness().is_stale

    def test_a_gallery_larger_than_what_is_watched(self) -> None:
        living = NEDClassifier(max_fit_samples=1500).fit(*drawn(2500, seed=8))
        staleness = living.staleness()
        assert not staleness.is_stale
        assert abs(staleness.drift) < 4 * staleness.standard_error

    def test_the_warning_comes_once_and_again_after_a_refit(self, living: NEDClassifier) -> None:
        living.add(MORE, MORE_Y)
        with pytest.warns(
            StaleFitWarning, match=r"10\.[0-9]% of the gallery changed.*refit"
        ) as got:
            living.remove(np.arange(5))
        assert [warning.filename for warning in got] == [__file__]
        living.remove(np.arange(5, 10))
        living.add(Z[:3], Y[:3])
        living.relabel([20], [(Y[20] + 1) % 3])
        living.refit()
        with pytest.warns(StaleFitWarning):
            living.remove(np.arange(20, 50))

    @pytest.mark.parametrize(
        "parameters", [{"rule": "knn"}, {"temperature": 1.0}, {"rule": "gou", "n_neighbors": 5}]
    )
    def test_what_was_not_fitted_cannot_be_stale(self, parameters: dict[str, Any]) -> None:
        living = NEDClassifier(**parameters).fit(Z, Y)
        living.remove(np.arange(60))
        with pytest.raises(InvalidInputError, match="nothing can be stale"):
            living.staleness()


class TestFiles:
    def test_ids_and_age_come_back(self, living: NEDClassifier, tmp_path: Path) -> None:
        new = living.add(MORE, MORE_Y + 1)  # a new class, 3
        living.remove(new[-2:])
        living.save(tmp_path / "model")
        loaded = NEDClassifier.load(tmp_path / "model")
        assert loaded.classes_.tolist() == [0, 1, 2, 3]
        assert_same_answers(loaded, living, Q)
        np.testing.assert_array_equal(loaded.support_ids_, living.support_ids_)
        np.testing.assert_array_equal(loaded.kneighbors(Q).ids, living.kneighbors(Q).ids)
        assert loaded.staleness() == living.staleness()
        own, expected = loaded.leave_one_out_posterior(), living.leave_one_out_posterior()
        np.testing.assert_array_equal(own.probabilities, expected.probabilities)
        assert loaded.add(MORE[:1], MORE_Y[:1]).tolist() == [162]
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            loaded.remove(np.arange(10))
        assert [warning.category for warning in heard] == [StaleFitWarning]

    def test_groups_come_back(self, tmp_path: Path) -> None:
        names = np.array([f"burst {i // 2}" for i in range(150)])
        living = NEDClassifier().fit(Z, Y, groups=names)
        living.save(tmp_path / "model")
        loaded = NEDClassifier.load(tmp_path / "model")
        for classifier in (living, loaded):
            classifier.add(MORE[:2], MORE_Y[:2], groups=["burst 4", "new"])
        assert loaded._fit.gallery.in_memory
        assert living._fit.gallery.in_memory
        np.testing.assert_array_equal(loaded._fit.gallery.groups, living._fit.gallery.groups)
        assert_same_answers(loaded.refit(), living.refit(), Q)

    def test_a_point_that_came_and_went_counts_once_across_a_file(
        self, living: NEDClassifier, tmp_path: Path
    ) -> None:
        new = living.add(MORE[:10], MORE_Y[:10])
        living.save(tmp_path / "model")
        loaded = NEDClassifier.load(tmp_path / "model")
        living.remove(new)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", StaleFitWarning)
            loaded.remove(new)
        assert loaded.staleness().share_changed == living.staleness().share_changed

    def test_a_changed_gallery_can_be_copied(self, living: NEDClassifier) -> None:
        living.add(MORE, MORE_Y)
        living.remove([0])
        twin = copy.deepcopy(living)
        assert_same_answers(twin, living, Q)
        twin.remove([1])
        assert 1 in living.support_ids_
        before = living.predict_proba(Q)
        twin.relabel([2], [(Y[2] + 1) % 3])
        np.testing.assert_array_equal(living.predict_proba(Q), before)
