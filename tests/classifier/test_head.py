"""A head beside the neighbours: when it is taken, that it never harms, and that it lives on."""

import copy
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, Literal, TypeAlias

import numpy as np
import pytest
from small_galleries import assert_same_answers, drawn

from nearsure import NEDClassifier, fit_confidence
from nearsure.arrays import AnyArray, FloatArray, IntArray
from nearsure.classifier import fit as fit_module
from nearsure.classifier import head as head_module
from nearsure.engines.embedded.exact import MemoryEngine
from nearsure.errors import FitWarning, InvalidInputError
from nearsure.forms import FreeParameters
from nearsure.gallery import Gallery
from nearsure.heads.class_means import ClassMeans, Moments

# Queries here are drawn otherwise than the gallery, and galleries change.
pytestmark = [
    pytest.mark.filterwarnings("ignore::nearsure.errors.QueriesDifferWarning"),
    pytest.mark.filterwarnings("ignore::nearsure.errors.StaleFitWarning"),
]

Head: TypeAlias = Literal["means", "logistic"]
HEADS: tuple[Head, Head] = ("means", "logistic")
CHOICES: tuple[Head | Literal["auto"] | None, ...] = (None, "auto", *HEADS)
Z, Y = drawn()
Q, QUERY_Y = drawn(80, seed=2)
Case: TypeAlias = tuple[AnyArray, IntArray, AnyArray, IntArray]


def losses(classifier: NEDClassifier, queries: AnyArray, codes: IntArray) -> FloatArray:
    """Brier scores of queries, whose classes are given as places in the sorted labels."""
    posterior = classifier.predict_proba(queries)
    assert np.isfinite(posterior).all()
    truth = codes[:, None] == classifier.classes_
    scores: FloatArray = ((posterior - truth) ** 2).sum(axis=1)
    return scores


def head_means(classifier: NEDClassifier) -> ClassMeans:
    """Those of the head that is there."""
    head = classifier._fit.gallery.head
    assert head is not None
    assert head.means is not None
    return head.means


@pytest.fixture(scope="module")
def fitted() -> dict[str, NEDClassifier]:
    return {name: NEDClassifier(head=name).fit(Z, Y) for name in HEADS}


class TestWhichHead:
    @pytest.mark.parametrize("rule", ["adaptive", "sharpened"])
    def test_none_is_the_rule_of_the_neighbours(self, rule: FreeParameters) -> None:
        """To the last bit what is fitted on distances alone."""
        classifier = NEDClassifier(head=None, rule=rule).fit(Z, Y)
        gallery = Gallery.of_points(Z, Y)
        expected = fit_confidence(gallery.leave_one_out(None, 50), Y, rule=rule)
        assert classifier.head_fit_ is None
        assert classifier.kneighbors(Q).class_scores is None
        assert classifier.rule_.to_dict() == expected.to_dict()
        found, alone = classifier.predict_posterior(Q), expected.posterior(gallery.search(Q, 50))
        np.testing.assert_array_equal(found.codes, alone.codes)
        np.testing.assert_array_equal(found.probabilities, alone.probabilities)

    @pytest.mark.parametrize(
        "parameters", [{"rule": "ned"}, {"rule": "knn"}, {"temperature": 1.0}], ids=str
    )
    def test_other_rules_have_no_head(self, parameters: dict[str, Any]) -> None:
        classifier = NEDClassifier(**parameters).fit(Z, Y)
        assert classifier.head_fit_ is None
        for name in HEADS:
            with pytest.raises(InvalidInputError, match="head must be 'auto' or None"):
                NEDClassifier(head=name, **parameters).fit(Z, Y)

    def test_neither_where_classes_have_one_mean(self) -> None:
        """A disc within a ring: means and lines say nothing, and all is as without a head."""
        rng = np.random.default_rng(0)
        codes, angles = np.arange(400) % 2, rng.uniform(0.0, 2.0 * np.pi, 400)
        radii = 1.0 + 1.2 * codes + 0.5 * rng.normal(size=400)
        points = radii[:, None] * np.column_stack([np.cos(angles), np.sin(angles)])
        classifier = NEDClassifier().fit(points[:250], codes[:250])
        assert classifier.head_fit_ is not None
        assert classifier.head_fit_.name is None
        alone = NEDClassifier(head=None).fit(points[:250], codes[:250])
        assert_same_answers(classifier, alone, points[250:])
        forced = NEDClassifier(head="means").fit(points[:250], codes[:250])
        gained = losses(forced, points[250:], codes[250:]) - losses(
            alone, points[250:], codes[250:]
        )
        assert gained.mean() < 3 * gained.std() / 150**0.5

    def test_means_where_classes_are_normal_and_of_one_covariance(self) -> None:
        """They are the Bayes rule: what is said is near the truth, and nearer than without."""
        rng = np.random.default_rng(1)
        centres = rng.normal(size=(5, 16))
        spread = np.linspace(0.3, 2.0, 16)
        codes, query_codes = np.repeat(np.arange(5), 60), rng.integers(0, 5, 400)
        points = centres[codes] + spread * rng.normal(size=(300, 16))
        queries = centres[query_codes] + spread * rng.normal(size=(400, 16))
        truth = -0.5 * (((queries[:, None] - centres) / spread) ** 2).sum(axis=2)
        truth = np.exp(truth - truth.max(axis=1, keepdims=True))
        truth /= truth.sum(axis=1, keepdims=True)
        brier = {
            name: losses(NEDClassifier(head=name).fit(points, codes), queries, query_codes)
            for name in CHOICES
        }
        best = ((truth - np.eye(5)[query_codes]) ** 2).sum(axis=1)
        assert brier["means"].mean() < brier[None].mean() - 0.05
        assert brier["auto"].mean() < brier[None].mean() - 0.05
        ahead = brier["means"] - brier["logistic"]
        assert ahead.mean() < 2 * ahead.std() / 20
        # 300 points for 16 + 80 numbers are not enough to be the truth, but near it.
        assert brier["means"].mean() - best.mean() < 0.3 * (brier[None].mean() - best.mean())

    @pytest.mark.parametrize("name", HEADS)
    def test_all_forms_of_an_answer_agree(self, name: str, fitted: dict[str, Any]) -> None:
        classifier = fitted[name]
        dense, sparse = classifier.predict_proba(Q), classifier.predict_posterior(Q)
        np.testing.assert_allclose(dense.sum(axis=1), 1.0, rtol=1e-9)
        # A row that sums to less than 1 has the rest in its dense form alone.
        whole = np.bincount(sparse.rows, sparse.probabilities) > 1 - 1e-9
        assert whole.sum() > 60
        listed = whole[sparse.rows]
        np.testing.assert_allclose(
            dense[sparse.rows, sparse.codes][listed], sparse.probabilities[listed], rtol=1e-7
        )
        codes, shares = sparse.top(2)
        np.testing.assert_allclose(
            np.take_along_axis(dense, codes, axis=1)[whole], shares[whole], rtol=1e-7
        )
        np.testing.assert_allclose(dense.max(axis=1), sparse.confidence)
        np.testing.assert_array_equal(codes[:, 0], dense.argmax(axis=1))
        np.testing.assert_array_equal(classifier.predict(Q), classifier.classes_[codes[:, 0]])
        for row in range(10):
            alone = classifier.predict_posterior(Q[row : row + 1])
            span = slice(sparse.indptr[row], sparse.indptr[row + 1])
            np.testing.assert_array_equal(alone.codes, sparse.codes[span])
            np.testing.assert_array_equal(alone.probabilities, sparse.probabilities[span])

    @pytest.mark.parametrize("name", HEADS)
    def test_labels_of_text_and_points_in_single_precision(
        self, name: Head, fitted: dict[str, Any]
    ) -> None:
        names = np.array(["ant", "bee", "cow"])
        single = NEDClassifier(head=name).fit(Z.astype(np.float32), names[Y])
        found = single.predict_proba(Q.astype(np.float32))
        np.testing.assert_allclose(found, fitted[name].predict_proba(Q), atol=1e-3)
        assert single.predict(Q).dtype == names.dtype


def normal_case(
    n_classes: int, n_members: int, dimension: int, spread: float, *, n_queries: int = 200
) -> Case:
    rng = np.random.default_rng(n_members)
    centres = spread * rng.normal(size=(n_classes, dimension))
    codes = np.repeat(np.arange(n_classes), n_members)
    query_codes = rng.integers(0, n_classes, n_queries)
    points = centres[codes] + rng.normal(size=(len(codes), dimension))
    return (
        points,
        codes,
        centres[query_codes] + rng.normal(size=(n_queries, dimension)),
        query_codes,
    )


def tail_case() -> Case:
    rng = np.random.default_rng(3)
    sizes = np.array([120, 60, 20, 8, 4, 2, 1, 1, 1])
    centres = 1.2 * rng.normal(size=(9, 6))
    codes, query_codes = np.repeat(np.arange(9), sizes), rng.choice(9, 200, p=sizes / sizes.sum())
    points, queries = centres[codes], centres[query_codes]
    return (
        points + rng.normal(size=points.shape),
        codes,
        queries + rng.normal(size=queries.shape),
        query_codes,
    )


def padded_case() -> Case:
    points, codes, queries, query_codes = normal_case(4, 20, 4, 1.0)
    padding = np.array([0.0, 7.0, 7.0])
    return (
        np.column_stack([points, np.tile(padding, (len(points), 1))]),
        codes,
        np.column_stack([queries, np.tile(padding, (len(queries), 1))]),
        query_codes,
    )


def moved_case(offset: float, scale: float = 1.0, dtype: type = np.float64) -> Case:
    points, codes, queries, query_codes = normal_case(4, 20, 5, 0.8)
    return (
        (scale * points + offset).astype(dtype),
        codes,
        (scale * queries + offset).astype(dtype),
        query_codes,
    )


def copies_case(*, moved: float = 0.0) -> Case:
    """A point a class, many times; one of them elsewhere."""
    points, codes, *_ = normal_case(4, 1, 5, 2.0)
    many = np.repeat(points, 8, axis=0)
    many[0] += moved
    return many, np.repeat(codes, 8), points, codes


def all_equal_case() -> Case:
    return np.full((24, 3), 0.1), np.arange(24) % 3, np.full((6, 3), 0.1), np.arange(6) % 3


def one_class_case() -> Case:
    points, _, queries, _ = normal_case(2, 10, 3, 1.0)
    return points, np.zeros(20, np.int64), queries, np.zeros(200, np.int64)


EDGES: dict[str, Callable[[], Case]] = {
    **{f"{n} members": partial(normal_case, 12, n, 6, 1.2) for n in (2, 3, 4, 5)},
    **{f"{n} members of two classes": partial(normal_case, 2, n, 6, 0.7) for n in (3, 5)},
    "fewer points than dimensions": lambda: normal_case(5, 8, 200, 0.25),
    "20,000 dimensions": lambda: normal_case(6, 10, 20_000, 0.05, n_queries=60),
    "constant directions": padded_case,
    "long tail": tail_case,
    "far from the origin": lambda: moved_case(1e4),
    "far from the origin, single precision": lambda: moved_case(1e4, dtype=np.float32),
    "small numbers": lambda: moved_case(0.0, 1e-20),
    "large numbers": lambda: moved_case(0.0, 1e20),
    "copies": copies_case,
    "copies, but for one point": lambda: copies_case(moved=0.5),
    "all points equal": all_equal_case,
    "one class": one_class_case,
    "one pair": lambda: (Z[:20], np.maximum(np.arange(20), 1), Z[20:40], np.arange(1, 21)),
    "three points": lambda: (Z[:3], np.array([0, 1, 1]), Z[3:5], np.array([0, 1])),
    "two pairs": lambda: (Z[:4], np.array([0, 0, 1, 1]), Z[4:8], np.array([0, 0, 1, 1])),
}


@pytest.mark.parametrize("name", EDGES)
def test_no_gallery_is_worse_off(name: str) -> None:
    """Than without a head, by more than chance; no other warnings come, and a file keeps all."""
    points, codes, queries, query_codes = EDGES[name]()
    brier, said = {}, {}
    for head in CHOICES:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            classifier = NEDClassifier(head=head).fit(points, codes)
            brier[head] = losses(classifier, queries, query_codes)
        # Others, such as those of numpy, are not to come.
        assert all(issubclass(each.category, FitWarning) for each in caught)
        said[head] = sorted({each.category.__name__ for each in caught} - {"QueriesDifferWarning"})
        assert said[head] == said[None]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FitWarning)
            again = NEDClassifier.from_bytes(classifier.to_bytes())
            assert_same_answers(again, classifier, queries)
    worse = brier["auto"] - brier[None]
    assert worse.mean() <= 3 * worse.std() / len(worse) ** 0.5 + 1e-9


@pytest.mark.parametrize("head", HEADS)
def test_single_members_cannot_be_fitted_as_before(head: Head) -> None:
    with pytest.raises(InvalidInputError, match="two or more members"):
        NEDClassifier(head=head).fit(Z[:20], np.arange(20))


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("groups", [np.arange(150) // 3, Y * 2 + np.arange(150) % 2])
def test_groups(groups: IntArray, head: Head) -> None:
    """Own points are scored by heads that have seen none of their group."""
    classifier = NEDClassifier(head=head).fit(Z, Y, groups=groups)
    fitted_head = classifier._fit.gallery.head
    assert fitted_head is not None
    folds = fitted_head.seen_folds
    for group in np.unique(groups):
        assert len(set(folds[groups == group])) == 1
    assert_same_answers(NEDClassifier.from_bytes(classifier.to_bytes()), classifier, Q)


@pytest.mark.parametrize("head", HEADS)
def test_points_that_come_later_are_scored_as_their_group_is(head: Head) -> None:
    groups = np.arange(150) // 3
    classifier = NEDClassifier(head=head).fit(Z, Y, groups=groups)
    old, new = np.arange(0, 150, 10), np.arange(150, 165)
    gallery = classifier._fit.gallery
    assert gallery.head is not None
    folds = gallery.head.seen_folds[old]
    assert len(set(folds)) > 1
    classifier.add(Z[old], Y[old], groups=groups[old])
    left_out = gallery.leave_one_out(new, 5).class_scores
    assert left_out is not None
    expected = gallery.leave_one_out(old, 5).class_scores
    assert expected is not None
    np.testing.assert_array_equal(left_out.log_shares, expected.log_shares)


class TestChanges:
    def test_means_are_those_of_the_points_of_now(self, fitted: dict[str, NEDClassifier]) -> None:
        living = copy.deepcopy(fitted["means"])
        before = head_means(living)
        more, more_y = drawn(30, seed=4)
        new = living.add(more, np.where(more_y == 1, 7, more_y))
        living.remove([3, 77, int(new[4])])
        living.relabel([5, 6, int(new[0])], [2, 0, 7])
        ids = living.support_ids_
        points, labels = np.concatenate([Z, more])[ids], living.support_labels(ids)
        codes = living.encode(labels)
        moments = Moments.empty(before.centre, 4).add(points, codes)
        now = head_means(living)
        np.testing.assert_array_equal(now.counts, moments.counts)
        np.testing.assert_allclose(now.means, moments.means, rtol=1e-9, atol=1e-12)
        np.testing.assert_array_equal(now.factor, before.factor)
        expected = ClassMeans(
            moments.means, moments.counts, before.factor, before.scale, before.centre
        )
        head = living._fit.gallery.head
        assert head is not None
        np.testing.assert_allclose(head.full.weights, expected.head().weights, rtol=1e-9)
        assert_same_answers(NEDClassifier.from_bytes(living.to_bytes()), living, Q)

    @pytest.mark.parametrize("name", HEADS)
    def test_a_new_class_is_answered(self, name: str, fitted: dict[str, NEDClassifier]) -> None:
        living = copy.deepcopy(fitted[name])
        living.add(Q[:5] + 20.0, [9] * 5)
        assert living.predict(Q[:20] + 20.0).tolist() == [9] * 20
        assert_same_answers(NEDClassifier.from_bytes(living.to_bytes()), living, Q)
        own = living.predict_own(living.support_ids_[-5:])
        assert own.labels.tolist() == [9] * 5
        assert living.refit().predict(Q[:20] + 20.0).tolist() == [9] * 20

    @pytest.mark.parametrize("name", HEADS)
    def test_an_empty_class_is_not_answered_until_it_has_members(
        self, name: str, fitted: dict[str, NEDClassifier]
    ) -> None:
        living = copy.deepcopy(fitted[name])
        gone = Y == 1
        living.remove(np.flatnonzero(gone), allow_empty_class=True)
        assert (living.predict_proba(Q)[:, 1] == 0).all()
        living.refit()
        assert (living.predict_proba(Q)[:, 1] == 0).all()
        assert_same_answers(NEDClassifier.from_bytes(living.to_bytes()), living, Q)
        living.add(Z[gone], Y[gone])
        found = losses(living, Q, QUERY_Y).mean()
        # A head that has not seen the class does not stand in its way.
        alone = losses(NEDClassifier(head=None).fit(Z, Y), Q, QUERY_Y)
        assert found < alone.mean() + 2 * alone.std() / 80**0.5
        expected = losses(fitted[name], Q, QUERY_Y).mean()
        assert losses(living.refit(), Q, QUERY_Y).mean() == pytest.approx(expected, abs=0.02)

    @pytest.mark.parametrize("name", HEADS)
    def test_staleness_sees_what_has_changed(
        self, name: str, fitted: dict[str, NEDClassifier]
    ) -> None:
        living = copy.deepcopy(fitted[name])
        assert living.staleness().loss_now == pytest.approx(living.staleness().loss_at_fit)
        ids = np.flatnonzero(Y != 2)[:60]
        living.relabel(ids, 1 - Y[ids])
        stale = living.staleness()
        assert stale.loss_now > stale.loss_at_fit + 2 * stale.standard_error

    @pytest.mark.parametrize("name", HEADS)
    def test_a_refit_that_fails_changes_nothing(
        self, name: str, fitted: dict[str, NEDClassifier], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        living = copy.deepcopy(fitted[name])
        head = living._fit.gallery.head

        def fail(*_: object, **__: object) -> None:
            raise RuntimeError("a search failed")

        with monkeypatch.context() as patched:
            patched.setattr(fit_module, "_fit_with_head", fail)
            with pytest.raises(RuntimeError, match="a search failed"):
                living.refit()
        assert living._fit.gallery.head is head
        assert_same_answers(living, fitted[name], Q)
        assert_same_answers(living.refit(), fitted[name], Q)

    def test_a_refit_may_have_another_head_or_none(self, fitted: dict[str, NEDClassifier]) -> None:
        living = copy.deepcopy(fitted["means"])
        assert_same_answers(living.set_params(head="logistic").refit(), fitted["logistic"], Q)
        alone = NEDClassifier(head=None).fit(Z, Y)
        assert_same_answers(living.set_params(head=None).refit(), alone, Q)
        assert living.kneighbors(Q).class_scores is None


class TestLargeGalleries:
    def test_a_sample_is_read(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The same head as of the points alone that were read; the others change nothing."""
        monkeypatch.setattr(head_module, "MOST_READ", 60)
        living = NEDClassifier(head="means", max_fit_samples=20).fit(Z, Y)
        head = living._fit.gallery.head
        assert head is not None
        seen = head.seen_ids
        # Those of the fit are read, too.
        assert 60 <= len(seen) <= 80
        moments = Moments.empty(head_means(living).centre, 3).add(Z[seen], Y[seen])
        np.testing.assert_allclose(head_means(living).means, moments.means, atol=1e-12)
        unseen = np.setdiff1d(np.arange(150), seen)
        living.remove(unseen[:30])
        np.testing.assert_allclose(head_means(living).means, moments.means, atol=1e-12)
        living.remove(seen[:5])
        living = NEDClassifier.from_bytes(living.to_bytes())
        (new,) = living.add(Q[:1], [2])
        living.relabel([new], [0])
        left = Moments.empty(moments.centre, 3).add(Z[seen[5:]], Y[seen[5:]])
        left.add(Q[:1], np.array([0]))
        np.testing.assert_allclose(head_means(living).means, left.means, atol=1e-9)
        np.testing.assert_array_equal(head_means(living).counts, left.counts)

    @pytest.mark.parametrize("near_only", [False, True])
    def test_a_class_that_was_not_read_can_be_the_answer(
        self, monkeypatch: pytest.MonkeyPatch, *, near_only: bool
    ) -> None:
        points, codes, queries, query_codes = normal_case(60, 4, 6, 2.0)
        monkeypatch.setattr(head_module, "MOST_READ", 40)
        if near_only:
            monkeypatch.setattr(head_module, "MANY_CLASSES", 10)
        classifier = NEDClassifier(head="means", max_fit_samples=30).fit(points, codes)
        head = classifier._fit.gallery.head
        assert head is not None
        assert head.near_only == near_only
        unread = np.isin(query_codes, np.setdiff1d(codes, codes[head.seen_ids]))
        assert unread.sum() > 30
        alone = NEDClassifier(head=None).fit(points, codes)
        right = np.mean(classifier.predict(queries[unread]) == query_codes[unread])
        usual = np.mean(alone.predict(queries[unread]) == query_codes[unread])
        assert right > usual - 2 * (usual * (1 - usual) / unread.sum()) ** 0.5

    def test_many_classes_are_scored_near_the_query_alone(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Better than without, and the same in all forms."""
        monkeypatch.setattr(head_module, "MOST_PRODUCTS", 1e7)
        points, codes, queries, query_codes = normal_case(1500, 3, 16, 2.0)
        classifier = NEDClassifier(max_fit_samples=1000).fit(points, codes)
        head = classifier._fit.gallery.head
        assert head is not None
        assert (head.name, head.near_only) == ("means", True)
        assert "take long with 1,500 classes" in str(classifier.head_fit_)
        alone = NEDClassifier(max_fit_samples=1000, head=None).fit(points, codes)
        better = losses(alone, queries, query_codes) - losses(classifier, queries, query_codes)
        assert better.mean() > 2 * better.std() / 200**0.5
        whole, part = (
            classifier.predict_posterior(queries),
            classifier.predict_posterior(queries[:1]),
        )
        np.testing.assert_array_equal(whole.codes[: len(part.codes)], part.codes)
        np.testing.assert_array_equal(whole.probabilities[: len(part.codes)], part.probabilities)
        assert_same_answers(NEDClassifier.from_bytes(classifier.to_bytes()), classifier, queries)

    def test_means_of_many_classes_follow_changes(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """They are in single precision up to the first change, and in double from then on."""
        monkeypatch.setattr(head_module, "MANY_CLASSES", 10)
        points, codes, queries, _ = normal_case(60, 4, 6, 2.0)
        points, queries = points.astype(np.float32), queries.astype(np.float32)
        living = NEDClassifier(head="means").fit(points, codes)
        before = head_means(living)
        assert_same_answers(NEDClassifier.from_bytes(living.to_bytes()), living, queries)
        new = living.add(queries[:9], np.arange(9) % 3)
        own = np.append(codes, np.arange(9) % 3)
        moments = Moments.empty(before.centre, 60).add(np.append(points, queries[:9], 0), own)
        np.testing.assert_allclose(head_means(living).means, moments.means, atol=1e-5)
        living.remove(new)
        assert head_means(living).means.dtype == np.float64
        np.testing.assert_allclose(head_means(living).means, before.means, atol=1e-12)
        # Rows are in another order by now.
        living.remove([3])
        rest = np.delete(points, 3, axis=0), np.delete(codes, 3)
        fresh = NEDClassifier(head="means").fit(*rest)
        assert_same_answers(living.refit(), fresh, queries)

    def test_classes_that_are_too_many_have_no_head(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A million of 64 features would be: said, and nothing is read for it."""
        assert head_module._why_none(np.full(1_000_000, 2), 64) is not None
        assert head_module._why_none(np.full(11_316, 5), 512) is None
        monkeypatch.setattr(head_module, "LARGEST_HEAD", 10)
        classifier = NEDClassifier().fit(Z, Y)
        assert classifier.head_fit_ is not None
        assert classifier.head_fit_.name is None
        reason = "3 classes of 4 features are too many"
        assert classifier.head_fit_.left_out == {"means": reason, "logistic": reason}
        assert_same_answers(classifier, NEDClassifier(head=None).fit(Z, Y), Q)


@pytest.mark.parametrize("head", HEADS)
def test_a_new_class_is_answered_as_surely_as_by_its_neighbours(head: Head) -> None:
    far = np.full((40, Z.shape[1]), 30.0) + np.random.default_rng(0).normal(size=(40, Z.shape[1]))
    classifier = NEDClassifier(head=head).fit(Z, Y)
    classifier.add(far[:20], np.full(20, 9))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FitWarning)
        prediction = classifier.predict_with_confidence(far[20:])
    assert (prediction.labels == 9).all()
    assert prediction.confidence.min() > 0.9


@pytest.mark.parametrize("head", HEADS)
def test_promises_are_not_made_under_other_ids(head: Head) -> None:
    """Heads have seen the points of another engine, and cannot tell which."""
    classifier = NEDClassifier(head=head, unknown_share=0.1).fit(Z, Y)
    order = np.random.default_rng(1).permutation(len(Y))
    content = classifier.to_bytes()
    same = copy.deepcopy(classifier).use_engine(MemoryEngine(Z.copy(), np.arange(len(Y)), Y))
    same.accept_threshold(precision=0.8)
    other = classifier.use_engine(MemoryEngine(Z[order], np.arange(len(Y)), Y[order]))
    # p(known) goes by ids, and p(c | known) does not.
    expected, found = same.predict_with_confidence(Q), other.predict_with_confidence(Q)
    assert expected.p_known is not None
    assert found.p_known is not None
    np.testing.assert_allclose(
        found.confidence / found.p_known, expected.confidence / expected.p_known
    )
    loaded = NEDClassifier.from_bytes(content, MemoryEngine(Z[order], np.arange(len(Y)), Y[order]))
    for ask in (
        partial(other.accept_threshold, precision=0.8),
        other.to_bytes,
        partial(loaded.accept_threshold, precision=0.8),
    ):
        with pytest.raises(InvalidInputError, match="refit"):
            ask()
    moved = NEDClassifier.from_bytes(content, MemoryEngine(Z.copy(), np.arange(len(Y)), Y))
    assert moved.accept_threshold(precision=0.8) == same.accept_threshold(precision=0.8)
    other.refit().accept_threshold(precision=0.8)


def test_groups_of_many_classes_can_be_fitted() -> None:
    codes = np.repeat(np.arange(10), 20)
    points = 3.0 * np.eye(10)[codes] + np.random.default_rng(0).normal(size=(200, 10))
    groups = ((codes >= 5) & (np.arange(200) % 2 == 1)).astype(np.int64)
    for one in (groups, np.zeros(200, np.int64)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FitWarning)
            try:
                classifier = NEDClassifier(n_neighbors=5).fit(points, codes, groups=one)
            except InvalidInputError as error:
                assert "neighbour" in str(error)  # noqa: PT017
                continue
        again = NEDClassifier.from_bytes(classifier.to_bytes())
        assert_same_answers(again, classifier, points[:20])
