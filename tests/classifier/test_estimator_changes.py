"""A gallery that changes: answers as if it had always been so, refits, staleness, files."""

import copy
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pytest
from sklearn.exceptions import NotFittedError
from small_galleries import answers, assert_same_answers, drawn

from nearsure import NEDClassifier
from nearsure.arrays import AnyArray
from nearsure.classifier.parameters import RuleChoice
from nearsure.errors import (
    DegenerateTemperatureWarning,
    InvalidInputError,
    StaleFitWarning,
)

# Queries here are drawn otherwise than the gallery.
pytestmark = pytest.mark.filterwarnings("ignore::nearsure.errors.QueriesDifferWarning")

Metric: TypeAlias = Literal["euclidean", "cosine"]

Z, Y = drawn()
MORE, MORE_Y = drawn(12, seed=1)
Q = drawn(80, seed=2)[0]
NAMES = np.array(["ant", "bee", "cow", "dog"])


def with_parameters_of(
    living: NEDClassifier, points: AnyArray, labels: AnyArray, metric: Metric = "euclidean"
) -> NEDClassifier:
    """A fresh classifier on some points, which takes over what another one has fitted."""
    fresh = NEDClassifier(temperature=1.0, metric=metric).fit(points, labels)
    fresh._fit.rule, fresh.n_neighbors_ = living.rule_, living.n_neighbors_
    return fresh


@pytest.fixture(scope="module")
def untouched() -> NEDClassifier:
    return NEDClassifier().fit(Z, Y)


@pytest.fixture
def living(untouched: NEDClassifier) -> NEDClassifier:
    """One's own to change; a copy costs less than a fit."""
    return copy.deepcopy(untouched)


class TestChangesAreAsIfTheyHadAlwaysBeen:
    @pytest.mark.parametrize("metric", ["euclidean", "cosine"])
    @pytest.mark.parametrize("dtype", [np.float64, np.float32])
    @pytest.mark.parametrize("rule", ["auto", "ned", "knn"])
    def test_add_remove_and_relabel(self, metric: Metric, dtype: type, rule: RuleChoice) -> None:
        points: AnyArray = Z.astype(dtype)
        more: AnyArray = MORE[:6].astype(dtype)
        queries: AnyArray = Q.astype(dtype)
        # A head keeps what it was fitted on until a refit.
        living = NEDClassifier(metric=metric, rule=rule, head=None).fit(points, Y)
        new = living.add(more, MORE_Y[:6])
        gone = np.array([3, 77, 149, new[4]])
        living.remove(gone)
        living.relabel([5, 6, new[0]], [2, 0, 1])
        labels = np.concatenate([Y, MORE_Y[:6]])
        labels[[5, 6, new[0]]] = 2, 0, 1
        kept = np.setdiff1d(np.arange(156), gone)
        every = np.concatenate([points, more])
        fresh = with_parameters_of(living, every[kept], labels[kept], metric=metric)
        assert_same_answers(living, fresh, queries)
        found, expected = living.kneighbors(queries), fresh.kneighbors(queries)
        np.testing.assert_array_equal(found.ids, kept[np.asarray(expected.ids)])
        np.testing.assert_array_equal(living.support_labels(kept), labels[kept])
        assert sorted(living.support_ids_) == kept.tolist()

    def test_the_own_pass_is_that_of_the_gallery_of_now(self, living: NEDClassifier) -> None:
        before = living.leave_one_out_posterior()
        living.add(MORE, MORE_Y)
        living.remove([0, 10])
        kept = np.setdiff1d(np.arange(162), [0, 10])
        fresh = with_parameters_of(
            living, np.concatenate([Z, MORE])[kept], np.concatenate([Y, MORE_Y])[kept]
        )
        asked = np.isin(kept, living.fit_indices_)
        expected = fresh.leave_one_out_posterior().take(asked)
        found = living.leave_one_out_posterior()
        assert len(before) == 150
        assert len(found) == 148
        np.testing.assert_array_equal(found.codes, expected.codes)
        np.testing.assert_array_equal(found.probabilities, expected.probabilities)

    def test_new_classes_go_to_the_end(self) -> None:
        living = NEDClassifier().fit(Z, NAMES[1:][Y])
        before = living.predict_posterior(Q)
        living.add(MORE[:4] + 50, ["eel", "ant", "eel", "bee"])
        assert living.classes_.tolist() == ["bee", "cow", "dog", "ant", "eel"]
        assert living.encode(["ant", "bee", "eel", "fox"]).tolist() == [3, 0, 4, 5]
        np.testing.assert_array_equal(living.predict_posterior(Q).codes, before.codes)
        assert living.predict(MORE[:2] + 50).tolist() == ["eel", "ant"]
        living.relabel([0], ["zebra-crossing"])
        assert living.classes_.tolist()[-1] == "zebra-crossing"
        assert living.support_labels([0]).tolist() == ["zebra-crossing"]
        fresh = with_parameters_of(
            living,
            np.concatenate([Z, MORE[:4] + 50]),
            living.support_labels(np.arange(154)),
        )
        assert fresh.classes_.tolist() == sorted(living.classes_.tolist())
        said, expected = answers(living, Q), answers(fresh, Q)
        np.testing.assert_array_equal(said["ranked"], expected["ranked"])

    def test_probabilities_have_a_column_for_every_class(self, living: NEDClassifier) -> None:
        living.add(MORE[:1] + 50, [17])
        probabilities = living.predict_proba(np.concatenate([Q, MORE[:1] + 50]))
        assert probabilities.shape == (81, 4)
        np.testing.assert_allclose(probabilities.sum(axis=1), 1.0, rtol=1e-9)
        np.testing.assert_array_equal(
            living.classes_[probabilities.argmax(axis=1)],
            living.predict(np.concatenate([Q, MORE[:1] + 50])),
        )

    def test_ids_count_on_and_are_never_used_twice(self, living: NEDClassifier) -> None:
        assert living.add(MORE[:2], MORE_Y[:2]).tolist() == [150, 151]
        living.remove([151])
        assert living.add(MORE[2:3], MORE_Y[2:3]).tolist() == [152]
        assert living.add(MORE[3:4], MORE_Y[3:4], ids=[7000]).tolist() == [7000]
        assert living.add(MORE[4:5], MORE_Y[4:5]).tolist() == [7001]
        assert living.kneighbors(MORE[3:4], 1).ids == [[7000]]

    @pytest.mark.parametrize(
        "names", [np.arange(60), np.array([f"burst {i}" for i in range(60)])], ids=["int", "str"]
    )
    def test_groups_are_left_out_together(self, names: AnyArray) -> None:
        """Each point has its twin in the gallery, added later or not."""
        points, labels = drawn(50, seed=4)
        twins = points + 1e-3
        together = NEDClassifier().fit(
            np.concatenate([points, twins]),
            np.concatenate([labels, labels]),
            groups=np.concatenate([names[:50], names[:50]]),
        )
        apart = NEDClassifier().fit(points, labels, groups=names[:50])
        with pytest.warns(StaleFitWarning):
            apart.add(twins, labels, groups=names[:50])
        apart.refit()
        assert apart.temperature_ == together.temperature_
        own, expected = apart.leave_one_out_posterior(), together.leave_one_out_posterior()
        np.testing.assert_array_equal(own.probabilities, expected.probabilities)
        apart.add(MORE[:2], MORE_Y[:2], groups=[names[55], names[3]])
        found = apart._fit.gallery.leave_one_out([101, 3], 99)
        assert not np.isin([3, 53], np.asarray(found.ids)[0]).any()
        assert not np.isin([53, 101], np.asarray(found.ids)[1]).any()

    def test_groups_of_another_kind_may_come_later(self) -> None:
        living = NEDClassifier().fit(Z, Y, groups=np.arange(150))
        living.add(MORE[:2], MORE_Y[:2], groups=["burst", "7"])
        found = living._fit.gallery.leave_one_out([151, 150], 151)
        assert 7 not in np.asarray(found.ids)[0]
        assert np.asarray(found.counts).tolist() == [150, 151]

    def test_a_frame_may_be_added(self) -> None:
        frame = pd.DataFrame(Z, columns=list("abcd"))
        living = NEDClassifier().fit(frame, Y)
        living.add(pd.DataFrame(MORE, columns=list("abcd")), pd.Series(MORE_Y))
        found = living.kneighbors(pd.DataFrame(MORE, columns=list("abcd")), 1)
        assert np.asarray(found.ids)[:, 0].tolist() == list(range(150, 162))

    def test_columns_in_another_order_are_refused(self) -> None:
        living = NEDClassifier().fit(pd.DataFrame(Z, columns=list("abcd")), Y)
        with pytest.raises(ValueError, match="feature names"):
            living.add(pd.DataFrame(MORE, columns=list("dcba")), MORE_Y)


class TestFewPoints:
    def test_fewer_points_than_neighbours(self, living: NEDClassifier) -> None:
        with pytest.warns(StaleFitWarning):
            living.remove(np.arange(20, 150))
        assert living.n_neighbors_ == 50
        assert living.kneighbors(Q).k == 20
        np.testing.assert_allclose(living.predict_proba(Q).sum(axis=1), 1.0, rtol=1e-9)
        fresh = with_parameters_of(living, Z[:20], Y[:20])
        assert_same_answers(living, fresh, Q)
        living.add(Z[20:], Y[20:])
        assert living.kneighbors(Q).k == 50

    def test_one_point(self, living: NEDClassifier) -> None:
        with pytest.warns(StaleFitWarning):
            living.remove(np.arange(1, 150), allow_empty_class=True)
        assert set(living.predict(Q)) == {Y[0]}
        own: list[Callable[[], object]] = [
            living.leave_one_out_posterior,
            living.staleness,
            living.audit,
            living.refit,
            lambda: living.accept_threshold(precision=0.9),
            lambda: living.compare_queries(Q),
        ]
        for method in own:
            with pytest.raises(InvalidInputError):
                method()
        with pytest.raises(InvalidInputError, match="At least one point must be left"):
            living.remove([0], allow_empty_class=True)
        assert set(living.predict(Q)) == {Y[0]}

    def test_one_class_gains_another(self) -> None:
        with pytest.warns(DegenerateTemperatureWarning):
            living = NEDClassifier().fit(Z, np.zeros(150, np.int64))
        assert (living.predict_proba(Q) == 1.0).all()
        living.add(MORE + 50, np.ones(12, np.int64))
        assert living.predict([Z[0], MORE[0] + 50]).tolist() == [0, 1]

    def test_an_emptied_class_stays_without_an_answer(self, living: NEDClassifier) -> None:
        living.add(MORE[:1], [9])
        with pytest.raises(InvalidInputError, match="Every class must keep a point"):
            living.remove([150])
        with pytest.raises(InvalidInputError, match="Every class must keep a point"):
            living.relabel([150], [0])
        assert living.support_labels([150]).tolist() == [9]
        living.remove([150], allow_empty_class=True)
        assert living.classes_.tolist() == [0, 1, 2, 9]
        assert 9 not in living.predict(np.concatenate([Q, MORE[:1]]))
        assert living.predict_proba(Q).shape == (80, 4)
        living.refit()
        assert 9 not in living.predict(np.concatenate([Q, MORE[:1]]))

    def test_an_emptied_class_has_no_probability(self) -> None:
        living = NEDClassifier().fit(Z, np.where(np.arange(150) == 0, 3, Y))
        living.remove([0], allow_empty_class=True)
        assert living.predict_proba(Q)[:, 3].max() == 0.0

    def test_a_class_may_be_emptied_under_a_given_prior(self) -> None:
        labels = np.where(np.arange(150) == 0, 3, Y)
        living = NEDClassifier(prior=[0.25] * 4).fit(Z, labels)
        living.remove([0], allow_empty_class=True)
        assert 3 not in living.predict(Q)

    def test_all_points_of_the_fit_are_gone(self, living: NEDClassifier) -> None:
        with pytest.warns(StaleFitWarning):
            living.add(*drawn(150, seed=5))
        living.remove(np.arange(150))
        assert len(living.predict(Q)) == 80
        with pytest.raises(InvalidInputError, match=r"Call refit\(\)"):
            living.accept_threshold(precision=0.9)
        living.refit()
        assert living.accept_threshold(precision=0.8).n_points == 150


class TestRefusedCallsChangeNothing:
    @pytest.mark.parametrize(
        ("call", "message"),
        [
            (lambda c: c.add(MORE[:, :3], MORE_Y), "X has 3 features, but"),
            (lambda c: c.add(MORE * np.nan, MORE_Y + 50), "NaN"),
            (lambda c: c.add(MORE[0], MORE_Y[:1]), "Expected 2D array"),
            (lambda c: c.add(MORE[:0], []), "minimum of 1 is required"),
            (lambda c: c.add(MORE, MORE_Y[:-1]), "y must be one label for each of the 12"),
            (lambda c: c.add(MORE, MORE_Y[:, None]), "y must be one label for each of the 12"),
            (lambda c: c.add(MORE, MORE_Y.astype(str)), "must be of the kind that was fitted"),
            (lambda c: c.add(MORE, [None] * 12), "must be of the kind that was fitted"),
            (lambda c: c.add(MORE, MORE_Y + 50, groups=MORE_Y), "gallery was made with groups"),
            (lambda c: c.add(MORE, MORE_Y + 50, ids=np.arange(12)), "ids"),
            (lambda c: c.add(MORE, MORE_Y + 50, ids=[900] * 12), "ids"),
            (lambda c: c.add(MORE, MORE_Y + 50, ids=[900]), "ids"),
            (lambda c: c.add(MORE, MORE_Y + 50, ids=["a"] * 12), "ids"),
            (lambda c: c.remove([3, 150]), "ids must be those of points in the gallery.* 150"),
            (lambda c: c.remove([-1]), "ids must be those of points in the gallery"),
            (lambda c: c.remove([3, 3]), "3"),
            (lambda c: c.remove([1.5]), "ids"),
            (lambda c: c.remove(np.arange(150)), "At least one point must be left"),
            (lambda c: c.remove(np.flatnonzero(Y == 1)), "Every class must keep a point"),
            (lambda c: c.relabel([3, 150], [50, 51]), "ids must be those of points"),
            (lambda c: c.relabel([3, 4], [50]), "y must be one label for each of the 2"),
            (lambda c: c.relabel([3, 3], [50, 51]), "3"),
            (lambda c: c.relabel([3], ["a"]), "must be of the kind that was fitted"),
            (lambda c: c.relabel(np.flatnonzero(Y == 1), np.full((Y == 1).sum(), 50)), "Every cla"),
            (lambda c: c.support_labels([150]), "ids must be those of points"),
        ],
    )
    def test_a_refused_call(
        self, call: Callable[[NEDClassifier], object], message: str, living: NEDClassifier
    ) -> None:
        before = copy.deepcopy(living)
        with pytest.raises(ValueError, match=message):
            call(living)
        assert living.classes_.tolist() == before.classes_.tolist()
        np.testing.assert_array_equal(living.support_ids_, before.support_ids_)
        np.testing.assert_array_equal(living._fit.gallery.codes, before._fit.gallery.codes)
        assert living.staleness().share_changed == 0.0
        assert living._fit.gallery.next_id == 150
        assert_same_answers(living, before, Q)

    def test_a_zero_vector_under_cosine(self) -> None:
        living = NEDClassifier(metric="cosine").fit(Z, Y)
        with pytest.raises(InvalidInputError, match="zero vector"):
            living.add(np.zeros((1, 4)), [50])
        assert living.classes_.tolist() == [0, 1, 2]

    def test_groups_that_are_missing(self) -> None:
        living = NEDClassifier().fit(Z, Y, groups=np.arange(150))
        with pytest.raises(InvalidInputError, match="gallery was made with groups"):
            living.add(MORE, MORE_Y + 50)
        with pytest.raises(InvalidInputError, match="one group for each of the 12"):
            living.add(MORE, MORE_Y + 50, groups=[1])
        assert living.classes_.tolist() == [0, 1, 2]
        assert living._fit.group_names is not None
        assert len(living._fit.group_names) == 150

    def test_a_label_that_is_no_number(self, living: NEDClassifier) -> None:
        with pytest.raises(InvalidInputError):
            living.add(MORE[:1], [np.nan])
        assert living.predict(MORE[:1]) in living.classes_

    @pytest.mark.parametrize("method", ["remove", "relabel", "add", "staleness", "refit"])
    def test_unfitted(self, method: str) -> None:
        arguments = {"remove": ([0],), "relabel": ([0], [0]), "add": (MORE, MORE_Y)}
        with pytest.raises(ValueError, match="not fitted yet"):
            getattr(NEDClassifier(), method)(*arguments.get(method, ()))


def test_a_date_that_is_none_is_no_label() -> None:
    days = np.array(["2020-01-01", "2020-01-02", "2020-01-03"], "datetime64[D]")
    none = np.array(["NaT"], "datetime64[D]")
    living = NEDClassifier(temperature=1.0).fit(Z, days[Y])
    for change in (
        lambda: NEDClassifier(temperature=1.0).fit(Z, np.concatenate([days[Y][1:], none])),
        lambda: living.add(MORE[:1], none),
        lambda: living.relabel([0], none),
    ):
        with pytest.raises(InvalidInputError, match=r"must name classes\. Got NaN or NaT"):
            change()
    assert living.classes_.tolist() == days.tolist()


@pytest.mark.parametrize("changed", [[1.5], ["x"], [[1, 2]], 3])
def test_only_ids_can_be_counted_as_changed(changed: object) -> None:
    classifier = NEDClassifier(1, rule="1nn").fit([[0.0], [1.0], [2.0]], ["a", "b", "b"])
    with pytest.raises(InvalidInputError):
        classifier.recount(changed)  # type: ignore[arg-type]
    classifier.recount([1])
    assert classifier.share_changed_ == pytest.approx(1 / 3)
    assert NEDClassifier.from_bytes(classifier.to_bytes()).share_changed_ == pytest.approx(1 / 3)


def test_sizes_are_there_after_a_fit_only() -> None:
    with pytest.raises(NotFittedError):
        _ = NEDClassifier().class_counts_


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


def test_a_point_is_asked_for_in_a_list() -> None:
    classifier = NEDClassifier(1, rule="1nn").fit([[0.0], [1.0], [2.0]], ["a", "b", "b"])
    with pytest.raises(InvalidInputError, match="one dimension"):
        classifier.predict_own(3)
    assert classifier.predict_own([1, 1]).labels.tolist() == ["a", "a"]


def test_a_point_counts_as_changed_once() -> None:
    classifier = NEDClassifier(1, rule="1nn").fit([[0.0], [1.0], [2.0]], ["a", "b", "b"])
    classifier.recount([1, 1])
    assert classifier.share_changed_ == pytest.approx(1 / 3)
