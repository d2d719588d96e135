"""A head and its folds: who has seen what, what is chosen, what a file keeps."""

from dataclasses import replace

import numpy as np
import pytest
from head_data import draw_normal, draw_rings, log_shares, moments_of
from scipy.optimize import minimize
from scipy.special import logsumexp

from nearsure.arrays import AnyArray, IntArray
from nearsure.errors import ModelFileError
from nearsure.heads import fit as head_fit
from nearsure.heads.class_means import ClassMeans, Moments, fit_class_means
from nearsure.heads.fit import (
    LEAST_PROBABILITY,
    PRIOR_DEVIATION,
    SHRINKAGES,
    fit_logistic_folds,
    fit_means_head,
)
from nearsure.heads.fitted_head import FittedHead
from nearsure.heads.folds import LabelledFolds, assign_folds
from nearsure.heads.state import head_arrays, head_from_state, head_to_state

POINTS, CODES, _ = draw_normal(200, seed=0)
QUERIES, QUERY_CODES, TRUTH = draw_normal(1000, seed=1)
FOLDS = assign_folds(CODES)
CENTRE = POINTS.mean(axis=0)
IDS = np.arange(1000, 1200)


def moments_by_fold(points: AnyArray, codes: IntArray, folds: IntArray) -> list[Moments]:
    return [
        Moments.empty(CENTRE, int(codes.max()) + 1).add(points[folds == fold], codes[folds == fold])
        for fold in range(folds.max() + 1)
    ]


def fit(name: str, points: AnyArray = POINTS, codes: IntArray = CODES) -> FittedHead:
    folds = assign_folds(codes)
    moments, labelled = moments_by_fold(points, codes, folds), LabelledFolds(points, codes, folds)
    head, _ = fit_means_head(moments, labelled)
    if name == "logistic":
        head = fit_logistic_folds(labelled, moments, 0.3)
    return replace(head, seen_ids=IDS[: len(codes)], seen_folds=folds)


class TestFolds:
    @pytest.mark.parametrize(
        ("sizes", "n_folds"),
        [([2] * 6, 2), ([3] * 5, 3), ([40, 60, 11], 10), ([1] * 4, 2), ([1000] * 2 + [9], 5)],
    )
    def test_classes_are_spread_evenly(self, sizes: list[int], n_folds: int) -> None:
        codes = np.repeat(np.arange(len(sizes)), sizes)
        codes = np.random.default_rng(0).permutation(codes)
        folds = assign_folds(codes)
        assert folds.max() + 1 == n_folds
        by_class = np.array([np.bincount(folds[codes == c], minlength=n_folds) for c in set(codes)])
        assert (by_class.max(axis=1) - by_class.min(axis=1) <= 1).all()
        # What is left over of the classes goes to different folds.
        assert np.ptp(np.bincount(folds, minlength=n_folds)) <= max(2, len(sizes) // 2)

    def test_groups_stay_together(self) -> None:
        groups = np.random.default_rng(1).integers(0, 50, 200)
        folds = assign_folds(CODES, groups)
        assert all(len(set(folds[groups == group])) == 1 for group in np.unique(groups))
        assert len(set(folds)) == 10

    def test_groups_that_hold_many_classes_are_divided(self) -> None:
        codes = np.repeat(np.arange(10), 20)
        groups = ((codes >= 5) & (np.arange(200) % 2 == 1)).astype(np.int64)
        folds = assign_folds(codes, groups)
        assert sorted(set(folds)) == [0, 1]
        assert all(len(set(folds[groups == group])) == 1 for group in (0, 1))

    def test_the_same_each_time(self) -> None:
        np.testing.assert_array_equal(assign_folds(CODES), FOLDS)


@pytest.mark.parametrize("name", ["means", "logistic"])
class TestBothHeads:
    def test_own_points_are_scored_by_a_head_that_has_not_seen_them(self, name: str) -> None:
        """Their fold's head does not change with them."""
        head = fit(name)
        rows = np.flatnonzero(FOLDS == 2)
        moved = POINTS.copy()
        moved[rows] += np.random.default_rng(2).normal(size=(len(rows), 3))
        other = fit(name, moved)
        if name == "means":  # Scale and shrinkage are those of all points.
            moments = moments_by_fold(moved, CODES, FOLDS)
            total = sum(moments[1:], start=moments[0])
            assert head.means is not None
            for shrinkage in SHRINKAGES:
                left = fit_class_means(total - moments[2], shrinkage, head.means.scale).head()
                if np.allclose(left.weights, head.folds[2].weights, rtol=1e-5):
                    break
            else:
                pytest.fail("no head without the fold has these weights")
        else:
            ratio = other.folds[2].weights / head.folds[2].weights
            # Only strength and scale, one number each, know of all points.
            np.testing.assert_allclose(ratio, np.median(ratio), rtol=0.05)
        scores = head.score_own(POINTS, np.empty((200, 0), np.int64), IDS)
        for row in (*rows[:3], 0):
            alone = head.folds[FOLDS[row]].score(POINTS[row : row + 1])
            np.testing.assert_array_equal(scores.codes[row], alone.codes[0])
            np.testing.assert_array_equal(scores.log_shares[row], alone.log_shares[0])

    def test_points_that_came_later_are_scored_by_the_first_fold(self, name: str) -> None:
        head = fit(name)
        later = head.score_own(QUERIES[:3], np.empty((3, 0), np.int64), np.array([5, 1100, 9999]))
        first = head.folds[0].score(QUERIES[:3])
        np.testing.assert_array_equal(later.level[[0, 2]], first.level[[0, 2]])
        own = head.folds[FOLDS[100]].score(QUERIES[1:2])
        np.testing.assert_array_equal(later.level[1], own.level[0])

    def test_normal_classes_are_told_apart_as_well_as_can_be(self, name: str) -> None:
        points, codes, _ = draw_normal(2000, seed=3)
        folds = assign_folds(codes)
        moments = moments_by_fold(points, codes, folds)
        labelled = LabelledFolds(points, codes, folds)
        head, _ = fit_means_head(moments, labelled)
        if name == "logistic":
            head = fit_logistic_folds(labelled, moments, 0.3)
        said, rows = log_shares(head.full, QUERIES), np.arange(1000)
        excess = (TRUTH - said)[rows, QUERY_CODES]
        # 2,000 points and 15 free numbers cost 15 / 4,000 nats; a standard error is 0.003.
        assert excess.mean() < 0.015

    def test_rings_have_no_means(self, name: str) -> None:
        """Two classes of one mean: no more than the prior is said."""
        points, codes = draw_rings(200, seed=0)
        folds = assign_folds(codes)
        centre = points.mean(axis=0)
        moments = [
            Moments.empty(centre, 2).add(points[folds == fold], codes[folds == fold])
            for fold in range(5)
        ]
        labelled = LabelledFolds(points, codes, folds)
        head, _ = fit_means_head(moments, labelled)
        if name == "logistic":
            head = fit_logistic_folds(labelled, moments, 0.3)
        said = np.exp(log_shares(head.full, points))
        assert np.abs(said - 0.5).mean() < 0.1

    @pytest.mark.parametrize("ids", [IDS, np.array([f"point {i:04d}" for i in range(200)])])
    def test_a_file_keeps_it_to_the_last_bit(self, name: str, ids: AnyArray) -> None:
        codes = CODES.copy()
        codes[7] = 4  # The only one: some folds have no members of its class.
        head = replace(fit(name, codes=codes), seen_ids=ids)
        numbers, arrays = head_to_state(head)
        assert sorted(head_arrays(numbers)) == sorted(arrays)
        again = head_from_state(numbers, arrays, 3, 5)
        none = np.empty((200, 0), np.int64)
        for one, other in (
            (head.score(QUERIES, none), again.score(QUERIES, none)),
            (head.score_own(POINTS, none, ids), again.score_own(POINTS, none, ids)),
        ):
            for field in ("codes", "log_shares", "rest", "level", "n_known", "unheard"):
                np.testing.assert_array_equal(getattr(one, field), getattr(other, field))
        assert again.seen_ids.dtype == ids.dtype

    def test_more_classes_than_the_gallery_has_are_refused(self, name: str) -> None:
        numbers, arrays = head_to_state(fit(name))
        with pytest.raises(ModelFileError, match="classes"):
            head_from_state(numbers, arrays, 3, 3)


def test_a_factor_that_no_fit_gives_is_refused() -> None:
    numbers, arrays = head_to_state(fit("means"))
    for name, value in (("head_factor", 1e149), ("head_means", 1e149)):
        altered = arrays | {name: np.full_like(arrays[name], value)}
        with pytest.raises(ModelFileError):
            head_from_state({**numbers, "scale": 1e300}, altered, 3, 4)


def test_the_shrinkage_with_which_left_out_points_are_most_probable() -> None:
    """By a search over a grid of scales, one point at a time."""
    moments = moments_by_fold(POINTS, CODES, FOLDS)
    total = sum(moments[1:], start=moments[0])
    losses = {}
    for shrinkage in SHRINKAGES:
        for scale in np.exp(np.linspace(-4, 1, 26)):
            lost = 0.0
            for fold in range(10):
                means = fit_class_means(total - moments[fold], shrinkage, scale)
                rows = np.flatnonzero(fold == FOLDS)
                logits = means.head().logits(POINTS[rows])
                p_true = np.exp(
                    logits[np.arange(len(rows)), CODES[rows]] - logsumexp(logits, axis=1)
                )
                lost -= np.log(1e-3 + (1 - 1e-3) * p_true).sum()
            losses[shrinkage, scale] = lost / len(FOLDS)
    head, shrinkage = fit_means_head(moments, LabelledFolds(POINTS, CODES, FOLDS))
    assert head.means is not None
    best_shrinkage, best_scale = min(losses, key=lambda pair: losses[pair])
    assert shrinkage == best_shrinkage
    # A grid of steps of 0.2, and a search that stops at 0.02.
    assert np.log(head.means.scale) == pytest.approx(np.log(best_scale), abs=0.25)


def test_changes_of_means() -> None:
    """Those of the points that were read, and of those that were added."""
    head = fit("means", POINTS[:120], CODES[:120])
    assert head.means is not None
    codes = CODES.copy()
    codes[150:] = 6
    head = head.changed(np.arange(3000, 3060), POINTS[140:], codes[140:], 7, sign=1)
    head = head.changed(IDS[:9], POINTS[:9], codes[:9], 7, sign=-1)
    # Points that came past the head: who is not in the means cannot leave them.
    unseen = np.array([7001, 7002])
    head = head.changed(unseen, POINTS[130:132], codes[130:132], 7, sign=-1)
    head = head.changed(np.array([3001]), POINTS[141:142], codes[141:142], 7, sign=-1)
    kept = np.r_[9:120, 140, 142:200]
    expected = moments_of(POINTS[kept], codes[kept], 7)
    assert head.means is not None
    np.testing.assert_array_equal(head.means.counts, expected.counts)
    moved = head.means.means + (expected.counts > 0)[:, None] * head.means.centre
    there = expected.counts > 0
    np.testing.assert_allclose(moved[there], (expected.means + expected.centre)[there], rtol=1e-10)
    whole = ClassMeans(*(vars(head.means)[name] for name in vars(head.means))).head()
    np.testing.assert_allclose(head.full.weights, whole.weights, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(head.full.intercepts, whole.intercepts, rtol=1e-12)
    assert head.full.score(QUERIES[:1]).unheard.tolist() == [4, 5]
    assert np.isin(np.arange(3000, 3060), head.seen_ids).all()
    assert (np.diff(head.seen_ids) > 0).all()


def test_a_class_that_no_fold_has_seen_is_unheard_of() -> None:
    """Whichever fold a point is of: what is said of it does not depend on others."""
    codes = np.where(CODES == 1, 5, CODES)
    codes[7] = 4  # The head without its fold has not seen it, but the others have.
    head = fit("means", codes=codes)
    none = np.empty((1, 0), np.int64)
    for fold in range(5):
        row = int(np.flatnonzero(head.seen_folds == fold)[0])
        scores = head.score_own(POINTS[row : row + 1], none, IDS[row : row + 1])
        assert scores.unheard.tolist() == [1]


class TestMeansBesideLogisticRegression:
    """Two heads as one: log p = s log p_logistic + t log p_means, by points that were left out."""

    @staticmethod
    def fit_both() -> tuple[FittedHead, FittedHead, FittedHead]:
        moments = moments_by_fold(POINTS, CODES, FOLDS)
        labelled = LabelledFolds(POINTS, CODES, FOLDS)
        means, _ = fit_means_head(moments, labelled)
        alone = fit_logistic_folds(labelled, moments, 0.3)
        return means, alone, fit_logistic_folds(labelled, moments, 0.3, beside=means)

    def test_weights_are_those_of_greatest_likelihood(self) -> None:
        """Against a loop over the points, and a search without slopes."""
        means, alone, both = self.fit_both()

        def loss(logs: AnyArray) -> float:
            lost = 0.5 * float(((logs - np.log(0.5)) ** 2).sum()) / PRIOR_DEVIATION**2
            for point, code, fold in zip(POINTS, CODES, FOLDS, strict=True):
                logits = [each.folds[fold].logits(point[None])[0] for each in (alone, means)]
                logits = np.exp(logs) @ logits
                p_true = np.exp(logits[code] - logsumexp(logits))
                lost -= np.log(LEAST_PROBABILITY + (1.0 - LEAST_PROBABILITY) * p_true)
            return lost

        found = minimize(loss, np.log([0.5, 0.5]), method="Nelder-Mead", options={"maxiter": 80})
        for one, other, joined in zip(
            (alone.full, *alone.folds),
            (means.full, *means.folds),
            (both.full, *both.folds),
            strict=True,
        ):
            expected = np.tensordot(np.exp(found.x), [one.weights, other.weights], axes=1)
            np.testing.assert_allclose(joined.weights, expected, rtol=0.02, atol=0.02)

    def test_a_head_that_knows_nothing_has_no_weight(self) -> None:
        truth, _, _ = self.fit_both()
        noise = np.random.default_rng(4).normal(size=truth.full.weights.shape)
        other = replace(truth.full, weights=noise)
        points, codes, _ = draw_normal(2000, seed=5)
        some = LabelledFolds(points, codes, np.zeros(2000, np.int64))
        share, of_noise = head_fit._weigh([(truth.full, other, some)])
        assert of_noise < 0.1 * share

    def test_classes_that_a_fold_lacks_stay_impossible(self) -> None:
        points, codes = np.vstack([POINTS, [[9.0, 9.0, 9.0]]]), np.append(CODES, 4)
        folds = np.append(FOLDS, 1)
        moments = moments_by_fold(points, codes, folds)
        labelled = LabelledFolds(points, codes, folds)
        means, shrinkage = fit_means_head(moments, labelled)
        both = fit_logistic_folds(labelled, moments, shrinkage, beside=means)
        assert np.isneginf(both.folds[1].intercepts[4])
        assert np.isfinite(both.full.intercepts).all()
        assert all(np.isfinite(each.weights).all() for each in (both.full, *both.folds))
