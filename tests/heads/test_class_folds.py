"""Heads that have not seen a class: what they say of its points, and what a file keeps of them."""

from dataclasses import replace

import numpy as np
import pytest

from nearsure.arrays import FloatArray, IntArray
from nearsure.errors import ModelFileError
from nearsure.heads.class_means import Moments
from nearsure.heads.fit import FEWEST_CLASSES, fit_logistic_folds, fit_means_head
from nearsure.heads.fitted_head import FittedHead
from nearsure.heads.folds import CLASS_FOLDS, LabelledFolds, assign_folds, spread_classes
from nearsure.heads.state import head_arrays, head_from_state, head_to_state

N_CLASSES, SIZE, DIMENSION = 30, 15, 40


CENTRES = np.random.default_rng(0).normal(size=(2 * N_CLASSES, DIMENSION))


def draw(n_classes: int, *, seed: int) -> tuple[FloatArray, IntArray]:
    """Points of the first classes."""
    codes = np.repeat(np.arange(n_classes), SIZE)
    noise = np.random.default_rng(seed).normal(size=(len(codes), DIMENSION))
    return CENTRES[codes] + noise, codes


def fit(points: FloatArray, codes: IntArray, *, without_classes: bool = True) -> FittedHead:
    # As in a large gallery: with ten, heads that pass over a class come nearer to those without it.
    folds = assign_folds(codes, most=5)
    moments = [
        Moments.empty(points.mean(axis=0), int(codes.max()) + 1).add(
            points[folds == fold], codes[folds == fold]
        )
        for fold in range(folds.max() + 1)
    ]
    labelled = LabelledFolds(points, codes, folds)
    _, shrinkage = fit_means_head(moments, labelled)
    head = fit_logistic_folds(labelled, moments, shrinkage, without_classes=without_classes)
    return replace(head, seen_ids=np.arange(len(codes)), seen_folds=folds)


POINTS, CODES = draw(2 * N_CLASSES, seed=1)
IS_KNOWN = CODES < N_CLASSES
GALLERY, LABELS, STRANGERS = POINTS[IS_KNOWN], CODES[IS_KNOWN], POINTS[~IS_KNOWN]
IDS, NO_LABELS = np.arange(len(LABELS)), np.empty((len(LABELS), 0), np.int64)
HEAD = fit(GALLERY, LABELS)


def test_no_point_is_said_to_be_of_its_own_class() -> None:
    scores = HEAD.score_without_class(GALLERY, NO_LABELS, IDS, LABELS)
    assert not (scores.codes == LABELS[:, None]).any()
    np.testing.assert_allclose(np.exp(scores.log_shares).sum(axis=1), 1.0)
    row = 17
    alone = HEAD.class_folds[HEAD.fold_of_class[LABELS[row]]].score(GALLERY[row : row + 1])
    np.testing.assert_array_equal(scores.log_shares[row], alone.log_shares[0])


def test_points_of_a_class_left_out_look_like_those_of_a_class_that_never_was_there() -> None:
    of_strangers = HEAD.full.score(STRANGERS).largest_logits.mean()
    left_out = HEAD.score_without_class(GALLERY, NO_LABELS, IDS, LABELS).largest_logits.mean()
    seen = HEAD.score_own(GALLERY, NO_LABELS, IDS)
    own, passed_over = seen.largest_logits.mean(), seen.without(LABELS).largest_logits.mean()
    assert own > of_strangers
    # A head that has seen the class keeps the others away from it; one that has not still lacks
    # the other classes of the fold.
    assert abs(left_out - of_strangers) < 0.5 * abs(passed_over - of_strangers)


def test_known_queries_have_the_logits_of_own_points() -> None:
    """The head for queries has seen more points than that of a fold, and its logits are larger."""
    queries, _ = draw(N_CLASSES, seed=2)
    asked = HEAD.score(queries, NO_LABELS)
    np.testing.assert_array_equal(asked.log_shares, HEAD.full.score(queries).log_shares)
    own = HEAD.score_own(GALLERY, NO_LABELS, IDS).largest_logits
    error = own.std() * np.sqrt(2 / len(own))
    assert abs(asked.largest_logits.mean() - own.mean()) < 3 * error
    assert HEAD.full.score(queries).largest_logits.mean() - own.mean() > 3 * error


def test_a_class_that_came_later_was_seen_by_no_head() -> None:
    later = HEAD.score_without_class(GALLERY[:1], NO_LABELS[:1], IDS[:1], np.array([N_CLASSES]))
    np.testing.assert_array_equal(later.level, HEAD.class_folds[0].score(GALLERY[:1]).level)


def test_few_classes_are_left_out_of_what_was_said() -> None:
    points, codes = draw(FEWEST_CLASSES - 1, seed=1)
    head = fit(points, codes)
    assert not head.class_folds
    asked = (points, np.empty((len(codes), 0), np.int64), np.arange(len(codes)))
    np.testing.assert_array_equal(
        head.score_without_class(*asked, codes).log_shares,
        head.score_own(*asked).without(codes).log_shares,
    )


def test_no_more_is_fitted_than_is_asked_for() -> None:
    plain = fit(GALLERY, LABELS, without_classes=False)
    assert not plain.class_folds
    np.testing.assert_array_equal(plain.full.weights, HEAD.full.weights)


def test_classes_that_are_alike_are_in_different_folds() -> None:
    rng = np.random.default_rng(1)
    families = np.repeat(np.arange(13), CLASS_FOLDS)
    means = 9.0 * rng.normal(size=(13, 3))[families] + 0.01 * rng.normal(size=(len(families), 3))
    folds = spread_classes(means)
    assert set(np.bincount(folds)) == {13}
    apart = [len(set(folds[families == family])) for family in range(13)]
    # Places run out towards the end.
    assert np.mean(np.array(apart) == CLASS_FOLDS) > 0.5
    assert np.mean(apart) > 4


def test_a_file_keeps_it_to_the_last_bit() -> None:
    numbers, arrays = head_to_state(HEAD)
    assert sorted(head_arrays(numbers)) == sorted(arrays)
    again = head_from_state(numbers, arrays, DIMENSION, N_CLASSES)
    before, after = (
        head.score_without_class(GALLERY, NO_LABELS, IDS, LABELS) for head in (HEAD, again)
    )
    for name in ("codes", "log_shares", "rest", "level", "n_known", "unheard"):
        np.testing.assert_array_equal(getattr(before, name), getattr(after, name))
    broken = {**arrays, "head_fold_of_class": arrays["head_fold_of_class"] + 1}
    with pytest.raises(ModelFileError, match="head_fold_of_class"):
        head_from_state(numbers, broken, DIMENSION, N_CLASSES)
