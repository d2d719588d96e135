"""Class means: linear discriminant analysis, and exact without any of its points."""

import numpy as np
import pytest
from head_data import draw_normal, log_shares, moments_of
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from nearsure.arrays import FloatArray, IntArray
from nearsure.heads import class_means
from nearsure.heads.class_means import ClassMeans, Moments, find_factor, fit_class_means

POINTS, CODES, _ = draw_normal(200, seed=0)
QUERIES, QUERY_CODES, TRUTH = draw_normal(2000, seed=1)


def naive_covariance(points: FloatArray, codes: IntArray) -> FloatArray:
    """About the means of the classes, unbiased."""
    scatter = np.zeros((points.shape[1], points.shape[1]))
    for code in np.unique(codes):
        moved = points[codes == code] - points[codes == code].mean(axis=0)
        for row in moved:
            scatter += np.outer(row, row)
    return scatter / (len(points) - len(np.unique(codes)))


def test_moments_are_those_of_the_points() -> None:
    moments = moments_of(POINTS, CODES)
    np.testing.assert_array_equal(moments.counts, np.bincount(CODES))
    for code in range(4):
        expected = POINTS[code == CODES].mean(axis=0)
        np.testing.assert_allclose(moments.means[code] + moments.centre, expected, rtol=1e-12)
    expected = naive_covariance(POINTS, CODES)
    np.testing.assert_allclose(moments.covariance, expected, rtol=1e-10)


def test_one_variance_a_feature_where_features_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(class_means, "MOST_CORRELATED", 2)
    moments = moments_of(POINTS, CODES)
    variances = np.diag(naive_covariance(POINTS, CODES))
    np.testing.assert_allclose(moments.covariance, variances, rtol=1e-10)
    means = fit_class_means(moments, shrinkage=0.25, scale=0.5)
    shrunk = 0.75 * variances + 0.25 * variances.mean()
    centres = np.array([POINTS[code == CODES].mean(axis=0) for code in range(4)])
    distances = ((QUERIES[:50, None] - centres) ** 2 / shrunk).sum(axis=2)
    logits = np.log(np.bincount(CODES)) - 0.25 * distances
    expected = logits - np.logaddexp.reduce(logits, axis=1)[:, None]
    np.testing.assert_allclose(log_shares(means, QUERIES[:50]), expected, atol=1e-7)


@pytest.mark.parametrize("shrinkage", [0.03, 0.3, 1.0])
def test_the_same_as_linear_discriminant_analysis(shrinkage: float) -> None:
    """Of scikit-learn."""
    codes = np.repeat(np.arange(4), 25)
    points = POINTS[:100] + 3.0 * np.eye(4, 3)[codes]
    # Its covariance is the mean of those of the classes, each shrunk: with classes of one size
    # that is ours but for the degrees of freedom, which t undoes.
    theirs = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=shrinkage).fit(points, codes)
    ours = fit_class_means(moments_of(points, codes), shrinkage, scale=100 / 96)
    expected = theirs.predict_log_proba(QUERIES)
    np.testing.assert_allclose(log_shares(ours, QUERIES), expected, atol=1e-6)


def test_normal_classes_of_one_covariance_have_their_true_posterior() -> None:
    points, codes, _ = draw_normal(20_000, seed=2)
    said = log_shares(fit_class_means(moments_of(points, codes), shrinkage=1e-6), QUERIES)
    # n = 20,000 points leave an error of the order of sqrt(parameters / n) = 0.03 in a logit.
    assert np.abs(np.exp(said) - np.exp(TRUTH)).mean() < 0.01
    rows = np.arange(len(QUERIES))
    excess = (TRUTH - said)[rows, QUERY_CODES]
    assert abs(excess.mean()) < 4 * excess.std() / len(excess) ** 0.5 + 1e-3
    assert np.mean(said.argmax(axis=1) == TRUTH.argmax(axis=1)) > 0.99


@pytest.mark.parametrize("most_correlated", [2, 2048])
@pytest.mark.parametrize("gone", [[3], [3, 7, 20], range(50)])
def test_a_point_is_taken_out_exactly(
    gone: list[int], most_correlated: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(class_means, "MOST_CORRELATED", most_correlated)
    kept = np.setdiff1d(np.arange(200), gone)
    whole = moments_of(POINTS, CODES)
    part = Moments.empty(whole.centre, 4).add(POINTS[gone], CODES[gone])
    refitted = Moments.empty(whole.centre, 4).add(POINTS[kept], CODES[kept])
    for left in (whole - part, moments_of(POINTS, CODES).add(POINTS[gone], CODES[gone], sign=-1)):
        for name in ("counts", "sums", "squares", "means", "covariance"):
            found, expected = getattr(left, name), getattr(refitted, name)
            np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9, err_msg=name)
        np.testing.assert_allclose(
            log_shares(fit_class_means(left, 0.1), QUERIES),
            log_shares(fit_class_means(refitted, 0.1), QUERIES),
            atol=1e-7,
        )


def test_changes_are_those_of_the_gallery() -> None:
    """The metric stays; means and counts are those of the points of now."""
    fitted = fit_class_means(moments_of(POINTS[:150], CODES[:150]), 0.3, 0.5)
    codes = CODES.copy()
    codes[150:155] = 5
    now = fitted.changed(POINTS[150:], codes[150:], 6, sign=1)
    gone = np.flatnonzero(codes == 2)
    now = now.changed(POINTS[gone], codes[gone], 6, sign=-1)
    kept = np.setdiff1d(np.arange(200), gone)
    moments = Moments.empty(fitted.centre, 6).add(POINTS[kept], codes[kept])
    np.testing.assert_array_equal(now.counts, moments.counts)
    np.testing.assert_allclose(now.means, moments.means, atol=1e-12)
    assert now.factor is fitted.factor
    expected = ClassMeans(moments.means, moments.counts, fitted.factor, 0.5, fitted.centre)
    said = log_shares(now, QUERIES)
    assert np.isneginf(said[:, [2, 4]]).all()
    np.testing.assert_allclose(np.exp(said), np.exp(log_shares(expected, QUERIES)), atol=1e-9)


@pytest.mark.parametrize(
    ("points", "codes", "expected"),
    [
        (POINTS, CODES, True),
        (POINTS + 1e4, CODES, True),
        (POINTS[CODES], CODES, False),
        (1e4 + POINTS[CODES] / 3.0, CODES, False),
        (POINTS, np.arange(200), False),
        (1e-40 * POINTS, CODES, False),
    ],
    ids=["scattered", "far away", "copies", "copies far away", "single members", "tiny"],
)
def test_whether_classes_are_scattered(
    points: FloatArray, codes: IntArray, *, expected: bool
) -> None:
    moments = Moments.empty(points.mean(axis=0), 200).add(points, codes)
    assert moments.has_spread == expected


def test_the_pooled_covariance_is_that_of_the_moments(monkeypatch: pytest.MonkeyPatch) -> None:
    codes = np.append(CODES[:-1], CODES.max() + 5)  # a class of one point
    for most, portion in (
        (class_means.MOST_CORRELATED, 2048),
        (class_means.MOST_CORRELATED, 7),
        (1, 7),
    ):
        monkeypatch.setattr(class_means, "MOST_CORRELATED", most)
        monkeypatch.setattr(class_means, "PORTION", portion)
        expected = moments_of(POINTS, codes).covariance
        found = class_means.pool_covariance(1e-20 * POINTS, codes)
        assert found is not None
        np.testing.assert_allclose(1e40 * found, expected, atol=1e-9)
    # Points on the means of their classes have none, far from 0 as well.
    copies = np.repeat(1000.0 + POINTS[:20], 3, axis=0).astype(np.float32)
    assert class_means.pool_covariance(copies, np.repeat(np.arange(20), 3)) is None


@pytest.mark.parametrize("is_widened", [False, True])
def test_factor_of_a_shrunk_covariance(*, is_widened: bool) -> None:
    """B B' = inverse(S), and with the plain metric 1 / usual variance added."""
    root = np.random.default_rng(0).normal(size=(5, 5))
    covariance = root @ root.T
    usual = np.trace(covariance) / 5
    expected = np.linalg.inv(0.7 * covariance + 0.3 * usual * np.eye(5))
    expected += is_widened * np.eye(5) / usual
    factor = find_factor(covariance, 0.3, is_widened=is_widened)
    np.testing.assert_allclose(factor @ factor.T, expected, rtol=1e-9)
    variances = np.diag(covariance)
    alone = find_factor(variances, 0.3, is_widened=is_widened)
    shrunk = 0.7 * variances + 0.3 * usual
    np.testing.assert_allclose(alone**2, 1 / shrunk + is_widened / usual, rtol=1e-12)
