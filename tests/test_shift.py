"""Queries beside the gallery: promises hold, are adjusted or withdrawn."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binom, chi2_contingency, ks_2samp

from moved_queries import draw
from nearsure import NEDClassifier, score
from nearsure.arrays import AnyArray, IntArray
from nearsure.errors import InvalidInputError, QueriesDifferWarning
from nearsure.neighbors import ClassScores, Neighbors
from nearsure.posterior import Posterior
from nearsure.shift import (
    LEVEL,
    Traits,
    check_queries,
    compare_labels,
    draw_by_weight,
    estimate_class_shares,
    find_differences,
    lower_own_class,
    move_isotropically,
    move_like_data,
    rehearse_queries,
    thin_queries,
)


@pytest.fixture(scope="module")
def classifier() -> NEDClassifier:
    return NEDClassifier().fit(*draw(1200, seed=0))


@pytest.mark.parametrize("seed", range(1, 6))
def test_a_promise_for_queries_like_the_gallery_stays_as_it_is(
    classifier: NEDClassifier, seed: int
) -> None:
    plain = classifier.accept_threshold(precision=0.9)
    queries, _ = draw(300, seed=seed)
    assert classifier.accept_threshold(precision=0.9, queries=queries) == plain
    drift = classifier.compare_queries(queries)
    assert not drift.alarm
    assert drift.share_shift == 0.0


def test_ranges_hold_for_queries_like_the_gallery(classifier: NEDClassifier) -> None:
    held = []
    for seed in range(1, 21):
        queries, truth = draw(300, seed=seed)
        found = classifier.compare_queries(queries).accuracy_range
        assert found is not None
        held.append(found[0] <= (classifier.predict(queries) == truth).mean() <= found[1])
    # Ranges of 95%.
    assert np.mean(held) >= 0.9


@pytest.mark.parametrize("noise", [1.3, 1.6, 2.5, 4.0])
def test_queries_that_are_worse_get_a_stricter_promise_or_none(
    classifier: NEDClassifier, noise: float
) -> None:
    plain = classifier.accept_threshold(precision=0.9)
    queries, truth = draw(1000, seed=7, noise=noise)
    chosen = classifier.accept_threshold(precision=0.9, queries=queries)
    assert chosen.state in ("adjusted", "withdrawn")
    assert chosen.reasons
    assert chosen.threshold >= plain.threshold
    with pytest.warns(QueriesDifferWarning, match="less sure, and they lie farther away"):
        prediction = classifier.predict_with_confidence(queries)
    accepted = chosen.accepts(prediction.confidence)
    right = prediction.labels == truth
    assert (chosen.state == "withdrawn") == (not chosen.reached)
    if accepted.any():
        assert right[accepted].mean() > 0.85
    drift = classifier.compare_queries(queries)
    assert drift.accuracy_range is not None
    assert drift.accuracy_range[0] <= right.mean() <= drift.accuracy_range[1]
    assert "accuracy lies within" in drift.to_text()


def test_far_queries_withdraw_every_promise(classifier: NEDClassifier) -> None:
    queries = 30.0 * np.random.default_rng(0).normal(size=(100, 16))
    for target in ({"precision": 0.6}, {"error": 0.4}, {"false_accept_rate": 0.3}):
        chosen = classifier.accept_threshold(queries=queries, **target)
        assert chosen.state == "withdrawn"
        assert not chosen.accepts(np.ones(3)).any()
        assert "withdrawn" in str(chosen)


def test_other_class_shares_are_told(classifier: NEDClassifier) -> None:
    queries, _ = draw(600, seed=3, n_classes=4)
    drift = classifier.compare_queries(queries)
    assert drift.share_shift is not None
    assert drift.share_shift > 0.2
    assert "class shares differ" in drift.to_text()
    assert classifier.accept_threshold(precision=0.9, queries=queries).state != "holds"


def test_the_prior_follows_queries_of_other_class_shares(tmp_path: Path) -> None:
    points, codes = draw(1200, seed=0, noise=1.6)
    queries, truth = draw(600, seed=3, noise=1.6, n_classes=4)
    fitted = NEDClassifier().fit(points, codes)
    with pytest.warns(QueriesDifferWarning, match="other proportions"):
        before = fitted.predict(queries)
    found = fitted.adapt_prior(queries)
    assert (found.ratios[:4] > 1.5).all()
    assert (found.ratios[4:] < 0.6).all()
    assert found.distance > 0.3
    prediction = fitted.predict_with_confidence(queries)
    assert prediction.differences == ()
    right = prediction.labels == truth
    assert right.mean() > (before == truth).mean() + 0.03
    assert abs(right.mean() - prediction.confidence.mean()) < 0.05
    chosen = fitted.accept_threshold(precision=0.8, queries=queries)
    assert chosen.state == "holds"
    assert right[chosen.accepts(prediction.confidence)].mean() > 0.8
    fitted.save(tmp_path / "model.safetensors")
    again = NEDClassifier.load(tmp_path / "model.safetensors").predict_with_confidence(queries)
    assert np.array_equal(again.confidence, prediction.confidence)
    fitted.add(points[:1] + 9.0, [99])
    assert fitted.refit().prior_ == "support"


def test_the_prior_stays_where_queries_are_like_the_gallery_or_elsewhere(
    classifier: NEDClassifier,
) -> None:
    for queries in (draw(600, seed=5)[0], 3.0 + draw(600, seed=3, n_classes=4)[0]):
        assert (classifier.adapt_prior(queries).ratios == 1.0).all()
        assert classifier.prior_ == "support"


def test_the_prior_is_not_adapted_beneath_what_rests_on_it() -> None:
    points, codes = draw(600, seed=0)
    guarded = NEDClassifier(unknown_share=0.1).fit(points, codes)
    labelled = NEDClassifier().fit(points, codes)
    labelled.recalibrate(*draw(100, seed=1))
    for fitted in (guarded, labelled):
        with pytest.raises(InvalidInputError, match="cannot be adapted"):
            fitted.adapt_prior(points)


@pytest.mark.parametrize("size", [2, 3])
def test_classes_of_two_or_three_raise_no_false_alarm(size: int) -> None:
    alarms = 0
    for seed in range(6):
        rng = np.random.default_rng(seed)
        centres = rng.normal(size=(200, 16))
        codes, asked = np.repeat(np.arange(200), size), rng.integers(0, 200, 300)
        points = centres[codes] + 0.4 * rng.normal(size=(len(codes), 16))
        queries = centres[asked] + 0.4 * rng.normal(size=(300, 16))
        fitted = NEDClassifier().fit(points, codes)
        alarms += fitted.compare_queries(queries).alarm
        alarms += fitted.accept_threshold(precision=0.8, queries=queries).state != "holds"
    assert alarms == 0


def test_one_point_of_each_group_counts() -> None:
    points, codes = draw(300, seed=0)
    origin = np.repeat(np.arange(300), 3)
    noise = 0.01 * np.random.default_rng(0).normal(size=(900, 16))
    fitted = NEDClassifier().fit(points[origin] + noise, codes[origin], groups=origin)
    chosen = fitted.accept_threshold(precision=0.7)
    assert chosen.n_points == 300
    assert chosen.rests_on == "groups left out together"


def test_too_few_queries_are_refused(classifier: NEDClassifier) -> None:
    with pytest.raises(InvalidInputError, match="at least 30 points"):
        classifier.accept_threshold(precision=0.9, queries=draw(20, seed=1)[0])


def test_unknown_queries_allow_no_adjustment() -> None:
    fitted = NEDClassifier(unknown_share=0.1).fit(*draw(600, seed=0))
    queries, _ = draw(300, seed=7, noise=2.0)
    assert fitted.accept_threshold(precision=0.8, queries=queries).state == "withdrawn"


def test_thinning_takes_one_member_of_the_answers_class() -> None:
    found = Neighbors([[1.0, 2.0, 3.0]] * 50, [[4, 4, 4]] * 50, [[7, 8, 9]] * 50)
    thinned = thin_queries(found, score(found, rule="knn"), np.array([0, 0, 0, 0, 3]))
    assert (thinned.counts == 2).all()
    gone = {({7, 8, 9} - set(row[:2].tolist())).pop() for row in np.asarray(thinned.ids)}
    assert gone == {7, 8, 9}


def test_a_rehearsal_leaves_near_members_out() -> None:
    own = Neighbors([[1.0, 4.0, 9.0]], [[0, 1, 0]])
    played = rehearse_queries(own, np.array([0]), radius=2.0, k=2)
    assert played.sq_distances.tolist() == [[4.0, 9.0]]
    assert played.labels.tolist() == [[1, 0]]


def test_a_rehearsal_makes_a_head_as_unsure_as_of_queries() -> None:
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 4, 3000)

    def score_classes(margin: float) -> Neighbors:
        logits = rng.normal(size=(3000, 4)) + margin * np.eye(4)[codes]
        shares = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
        listed = np.broadcast_to(np.arange(4), logits.shape)
        scores = ClassScores(listed, shares, np.zeros(3000), np.zeros(3000), 4)
        return Neighbors(np.ones((3000, 1)), codes[:, None], class_scores=scores)

    def confidence_and_accuracy(found: Neighbors) -> tuple[float, float]:
        assert found.class_scores is not None
        shares = np.exp(found.class_scores.log_shares)
        assert shares.sum(axis=1) == pytest.approx(1.0)
        return shares.max(axis=1).mean(), (shares.argmax(axis=1) == codes).mean()

    own, queries = score_classes(5.0), score_classes(3.0)
    lowered = confidence_and_accuracy(lower_own_class(own, codes, queries))
    asked = confidence_and_accuracy(queries)
    assert asked[0] - 0.05 < lowered[0] <= asked[0]
    # On the careful side, and not by far: margins differ from the queries' by chance alone.
    assert asked[1] - 0.05 < lowered[1] < asked[1]
    # Queries of which it is surer, and neighbours without a head, change nothing.
    assert lower_own_class(queries, codes, own) is queries
    alone = own.with_scores(None)
    assert lower_own_class(alone, codes, alone) is alone


@pytest.mark.parametrize("move", [move_isotropically, move_like_data])
def test_noise_has_its_length_and_its_directions(move: Callable[..., AnyArray]) -> None:
    rng = np.random.default_rng(0)
    # The data lie in two of twenty directions.
    points = np.pad(rng.normal(size=(2000, 2)), ((0, 0), (0, 18))).astype(np.float32)
    way = move(points, 0.7, seed=1) - points
    assert way.dtype == np.float32
    assert np.sqrt((way**2).sum(axis=1).mean()) == pytest.approx(0.7, rel=0.03)
    inside = (way[:, :2] ** 2).sum() / (way**2).sum()
    assert inside == pytest.approx(1.0 if move is move_like_data else 0.1, abs=0.01)


@pytest.mark.parametrize("n_features", [2, 4, 8, 64])
@pytest.mark.parametrize("noise", [1.0, 2.0])
def test_noise_breaks_no_promise_however_sure_the_answers_are(
    n_features: int, noise: float
) -> None:
    """In few dimensions noise puts queries among other classes, and confidence stays."""
    spread = {2: 0.7, 4: 1.0, 8: 1.2, 64: 3.0}[n_features]
    centres = 2.0 * np.random.default_rng(99).normal(size=(10, n_features))

    def draw_noisy(n: int, seed: int, noise: float) -> tuple[AnyArray, IntArray]:
        rng = np.random.default_rng(seed)
        codes = rng.integers(0, 10, n)
        moves = rng.normal(size=(2, n, n_features))
        return centres[codes] + spread * (moves[0] + noise * moves[1]), codes

    fitted = NEDClassifier().fit(*draw_noisy(900, 0, 0.0))
    queries, truth = draw_noisy(600, 1, noise)
    with pytest.warns(QueriesDifferWarning):
        prediction = fitted.predict_with_confidence(queries)
    right = prediction.labels == truth
    for precision in (0.8, 0.9, 0.95):
        chosen = fitted.accept_threshold(precision=precision, queries=queries)
        accepted = chosen.accepts(prediction.confidence)
        allowed = binom.ppf(0.999, int(accepted.sum()), 1 - precision)
        assert (~right[accepted]).sum() <= allowed


def test_noise_of_many_directions_costs_little() -> None:
    (points, codes), (queries, asked) = (draw(1200, seed=seed) for seed in (0, 1))
    rng = np.random.default_rng(2)
    # Classes differ in 16 of 256 features, and noise is alike in all.
    points, queries = (np.pad(each, ((0, 0), (0, 240))) for each in (points, queries))
    fitted = NEDClassifier().fit(points, codes)
    little, much = (queries + noise * rng.normal(size=queries.shape) for noise in (0.1, 0.5))
    slightly, strongly = (
        fitted.accept_threshold(precision=0.9, queries=noisy) for noisy in (little, much)
    )
    assert slightly.reasons == ("they lie farther away",)
    for noisy, chosen, least in ((little, slightly, 0.99), (much, strongly, 0.9)):
        with pytest.warns(QueriesDifferWarning, match="farther away"):
            prediction = fitted.predict_with_confidence(noisy)
        accepted = chosen.accepts(prediction.confidence)
        assert accepted.mean() > least
        assert (prediction.labels == asked)[accepted].mean() > 0.88


def test_points_are_drawn_in_proportion_to_their_weight() -> None:
    rng = np.random.default_rng(0)
    confidence, weights = rng.random(2000), rng.choice([0.2, 1.0, 4.0], 2000)
    drawn = draw_by_weight(confidence, weights)
    assert len(drawn) == int(weights.sum() ** 2 / (weights**2).sum())
    for threshold in (0.2, 0.5, 0.9):
        due = weights[confidence >= threshold].sum() / weights.sum()
        assert (confidence[drawn] >= threshold).mean() == pytest.approx(due, abs=1 / len(drawn))


def test_rare_classes_show_a_long_tail_together() -> None:
    rng = np.random.default_rng(0)
    shares = np.exp(-3.5 * np.arange(60) / 60)
    own = rng.choice(60, 2000, p=shares / shares.sum())
    assert compare_labels(own, rng.integers(0, 60, 100))[0] < 0.001
    alike = [compare_labels(own, rng.choice(60, 100, p=shares / shares.sum())) for _ in range(200)]
    assert np.mean([p <= 0.05 for p, _ in alike]) < 0.1


def test_shares_that_are_alike_have_ratio_one() -> None:
    codes = np.arange(400) % 4
    found = Neighbors(np.ones((400, 1)), codes[:, None])
    answers = score(found, rule="1nn")
    shares = estimate_class_shares(answers, codes, answers, np.bincount(codes))
    assert np.allclose(shares.ratios, 1.0)
    assert shares.distance == 0.0


def test_rare_classes_that_ask_as_often_as_others_have_their_ratio() -> None:
    """Normal classes about unit vectors, whose posterior is known."""
    rng = np.random.default_rng(0)
    tail = np.exp(-3.0 * np.arange(30) / 30)
    tail /= tail.sum()

    def ask(shares: AnyArray) -> tuple[Posterior, IntArray]:
        codes = rng.choice(30, 800, p=shares)
        logits = 3.0 * (rng.normal(size=(800, 30)) + 3.0 * np.eye(30)[codes]) + np.log(tail)
        ordered = np.argsort(-logits, axis=1)
        p = np.exp(np.take_along_axis(logits, ordered, axis=1))
        p /= p.sum(axis=1, keepdims=True)
        return Posterior(np.arange(0, 24001, 30), ordered.ravel(), p.ravel(), 30), codes

    own, codes = ask(tail)
    sizes = np.bincount(codes, minlength=30)
    balanced = estimate_class_shares(own, codes, ask(np.full(30, 1 / 30))[0], sizes)
    truth = (1 / 30) / (sizes / 800)
    rare = np.argsort(sizes)[:10]
    assert balanced.ratios[rare].mean() == pytest.approx(truth[rare].mean(), rel=0.2)
    assert balanced.distance == pytest.approx(np.abs(sizes / 800 - 1 / 30).sum() / 2, rel=0.2)
    # Nothing is explained by a power where queries are like the gallery, or have other favourites.
    assert estimate_class_shares(own, codes, ask(tail)[0], sizes).distance < 0.1
    turned = estimate_class_shares(own, codes, ask(tail[::-1])[0], sizes)
    assert turned.ratios[rare].mean() > 3.0


def test_labels_are_compared_by_pearsons_test() -> None:
    rng = np.random.default_rng(0)
    own, queries = rng.integers(0, 5, 800), rng.choice(5, 300, p=[0.4, 0.15, 0.15, 0.15, 0.15])
    table = np.stack([np.bincount(each, minlength=5) for each in (own, queries)])
    p_value, distance = compare_labels(own, queries)
    assert p_value == pytest.approx(chi2_contingency(table).pvalue)
    assert 0.05 < distance < 0.3  # 0.2 in truth
    alike = [compare_labels(own, rng.integers(0, 5, 300)) for _ in range(200)]
    assert np.mean([p <= 0.05 for p, _ in alike]) < 0.1
    assert np.mean([distance for _, distance in alike]) < 0.02


def test_deeper_neighbours_are_searched_only_if_queries_differ() -> None:
    points, codes = draw(600, seed=0)
    own = NEDClassifier().fit(points, codes).predict_own().neighbors
    rule = partial(score, rule="ned", temperature=4.0)
    calls = []

    def deepen() -> Neighbors:
        calls.append(1)
        return own

    for queries, n_calls in ((own.take(np.arange(300)), 0), (move_away(own), 1)):
        check = check_queries(own, codes, queries, np.bincount(codes), rule, deepen=deepen)
        assert (check.alike, len(calls)) == (not n_calls, n_calls)


@pytest.mark.parametrize("moved", [0.0, 0.12, 0.2, 0.4])
@pytest.mark.parametrize("n", [40, 400])
def test_distances_are_compared_by_the_test_of_kolmogorov_and_smirnov(moved: float, n: int) -> None:
    rng = np.random.default_rng([n, int(100 * moved)])
    own = rng.normal(size=700)
    for _ in range(20):
        queries = rng.normal(moved, size=n).round(1)
        test = ks_2samp(own, queries, method="asymp")
        if 0.8 * LEVEL < test.pvalue < 1.25 * LEVEL:
            continue  # scipy corrects the limit for few points
        expected = test.pvalue <= LEVEL and test.statistic >= 0.1
        traits = [Traits(np.zeros(len(x), np.int64), np.ones(len(x)), x) for x in (own, queries)]
        farther = find_differences(*traits) == ("they lie farther away",)
        assert farther == (expected and np.median(queries) > np.median(own))


def move_away(found: Neighbors) -> Neighbors:
    return Neighbors(10.0 * found.sq_distances, found.labels, found.ids, found.counts)
