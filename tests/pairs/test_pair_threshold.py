"""Thresholds keep their promise for classes to come; reports are what naive counting gives."""

from collections.abc import Callable

import numpy as np
import pytest
from scipy.stats import beta
from sklearn.metrics import log_loss, roc_auc_score

from nearsure.arrays import FloatArray, IntArray
from nearsure.errors import InvalidInputError
from nearsure.pairs import choose_pair_threshold, report_pairs
from nearsure.pairs.sample import draw_pairs

N_EACH = 8
N_POPULATION = 1000
# Fewer pairs than a fit draws, but several of each pair of classes.
N_PAIRS = 6000
CERTAINTY = 0.95
# Share of classes that resemble many others.
HUBS = 0.02


def even(rng: np.random.Generator, n: int) -> FloatArray:
    return rng.standard_normal((n, 8))


def heavy_tailed(rng: np.random.Generator, n: int) -> FloatArray:
    """A few classes in the middle resemble many others, and those outside none."""
    return np.asarray(rng.standard_normal((n, 8)) * np.sqrt(3.0 / rng.chisquare(3.0, (n, 1))))


def look_alikes(rng: np.random.Generator, n: int) -> FloatArray:
    """Of three classes in ten there is another that is almost the same."""
    centres = rng.standard_normal((n, 20))
    twins = rng.random(n) < 0.3
    near = 0.3 * rng.standard_normal((int(twins.sum()), 20))
    centres[twins] = centres[rng.integers(0, n, int(twins.sum()))] + near
    return centres


def broken_share(
    make: Callable[[np.random.Generator, int], FloatArray],
    n_classes: int,
    share: float,
    *,
    by_class: bool,
) -> tuple[float, float]:
    """Of draws of classes: how many thresholds break the promise, and how many are reached."""
    rng = np.random.default_rng(0)
    codes = np.repeat(np.arange(N_POPULATION), N_EACH)
    spread = 0.3 * np.exp(0.3 * rng.standard_normal(N_POPULATION))[codes, None]
    centres = make(rng, N_POPULATION)
    points = centres[codes] + spread * rng.standard_normal((len(codes), centres.shape[1]))

    def similarity(rows: IntArray) -> FloatArray:
        away = points[rows[:, 0]] - points[rows[:, 1]]
        return np.asarray(np.exp(-(away**2).sum(axis=1) / 20.0))

    every = rng.integers(0, len(codes), (300_000, 2))
    every = every[codes[every[:, 0]] != codes[every[:, 1]]]
    truth = np.sort(np.concatenate([similarity(part) for part in np.array_split(every, 6)]))
    n_broken = n_reached = 0
    n_draws = 100
    for _ in range(n_draws):
        chosen = np.sort(rng.choice(N_POPULATION, n_classes, replace=False))
        members = (chosen[:, None] * N_EACH + np.arange(N_EACH)).ravel()
        own = np.repeat(np.arange(n_classes), N_EACH)
        sample = draw_pairs(own, np.arange(len(own)), rng)
        found = choose_pair_threshold(
            similarity(members[sample.rows]),
            sample.same,
            sample.weights,
            sample.classes if by_class else None,
            false_accept=share,
            certainty=CERTAINTY,
        )
        accepted = 1.0 - np.searchsorted(truth, found.threshold) / len(truth)
        n_reached += found.reached
        n_broken += bool(accepted > share)
    return n_broken / n_draws, n_reached / n_draws


@pytest.fixture
def few_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nearsure.pairs.sample.MOST_PAIRS", N_PAIRS)


@pytest.mark.usefixtures("few_pairs")
@pytest.mark.parametrize("make", [even, heavy_tailed, look_alikes])
@pytest.mark.parametrize("n_classes", [30, 60])
def test_thresholds_keep_their_promise_for_other_classes(
    make: Callable[[np.random.Generator, int], FloatArray], n_classes: int
) -> None:
    broken, reached = broken_share(make, n_classes, 0.01, by_class=True)
    # 5% of 100 draws; more than 11 have a chance of less than one in two hundred.
    assert broken <= 0.11
    assert reached > 0.9


@pytest.mark.usefixtures("few_pairs")
def test_pairs_taken_for_independent_would_break_it() -> None:
    broken, _ = broken_share(heavy_tailed, 30, 0.01, by_class=False)
    assert broken > 0.2


def rare_hubs(rng: np.random.Generator, classes: IntArray) -> FloatArray:
    """Similarities of pairs, where one class in fifty resembles every other half of the time."""
    is_hub = rng.random(classes.max() + 1) < HUBS
    alike = is_hub[classes].any(axis=1) & (rng.random(len(classes)) < 0.5)
    uniform = rng.random(len(classes))
    return np.asarray(np.where(alike, 0.9 + 0.1 * uniform, 0.5 * uniform))


@pytest.mark.parametrize(("n_classes", "least", "most"), [(30, 0.4, 0.6), (60, 0.2, 0.4)])
def test_rare_hubs_break_it_as_often_as_the_docs_say(
    n_classes: int, least: float, most: float
) -> None:
    """A limit of the bound: most of 30 classes hold no hub, and cannot know of it."""
    rng = np.random.default_rng(0)
    classes = np.repeat(np.column_stack(np.triu_indices(n_classes, 1)), 6, axis=0)
    share_alike = 0.5 * (1.0 - (1.0 - HUBS) ** 2)
    n_broken = 0
    for _ in range(100):
        found = choose_pair_threshold(
            rare_hubs(rng, classes),
            np.zeros(len(classes), bool),
            np.ones(len(classes)),
            classes,
            false_accept=0.01,
            certainty=CERTAINTY,
        )
        alike, others = np.clip([10.0 * (1.0 - found.threshold), 1.0 - 2.0 * found.threshold], 0, 1)
        n_broken += bool(share_alike * alike + (1.0 - share_alike) * others > 0.01)
    assert least <= n_broken / 100 <= most
    assert f"about {CERTAINTY} certainty" in str(found)


def test_independent_pairs_have_the_exact_bound() -> None:
    rng = np.random.default_rng(0)
    p, same = rng.random(1100), np.arange(1100) < 100
    found = choose_pair_threshold(
        p, same, np.ones(1100), None, false_accept=0.05, certainty=CERTAINTY
    )
    n_accepted = int((p[~same] >= found.threshold).sum())
    assert beta.ppf(CERTAINTY, n_accepted + 1, 1000 - n_accepted) <= 0.05
    assert found.measured == pytest.approx(n_accepted / 1000)
    assert found.true_accept == pytest.approx((p[same] >= found.threshold).mean())
    # The next few would be too many: 100 thresholds are looked at, of the 50 pairs each one.
    assert beta.ppf(CERTAINTY, n_accepted + 2, 1000 - n_accepted - 1) > 0.05


def test_many_pairs_of_few_classes_are_few_trials() -> None:
    """1,000 pairs of each of the 10 pairs of 5 classes: worth 10 trials, not 10,000."""
    classes = np.repeat(np.column_stack(np.triu_indices(5, 1)), 1000, axis=0)
    p = np.random.default_rng(0).random(len(classes))
    found = choose_pair_threshold(
        p, np.zeros(len(p), bool), np.ones(len(p)), classes, false_accept=0.01, certainty=CERTAINTY
    )
    assert not found.reached
    assert found.promised == pytest.approx(1.0 - 0.05 ** (1 / 10))
    assert found.n_class_pairs == 10
    assert "add classes" in str(found)
    assert not found.accepts([1.0]).any()


@pytest.mark.parametrize(("n_classes", "share"), [(25, 0.01), (78, 0.001)])
def test_the_least_number_of_classes(n_classes: int, share: float) -> None:
    """As `PairConfidence.threshold` says it: without a false accept, one class less is too few."""
    for n, reached in ((n_classes, True), (n_classes - 1, False)):
        classes = np.column_stack(np.triu_indices(n, 1))
        same = np.zeros(len(classes), bool)
        p = np.linspace(0.0, 0.5, len(classes))
        found = choose_pair_threshold(
            p, same, np.ones(len(p)), classes, false_accept=share, certainty=CERTAINTY
        )
        assert found.reached is reached


def test_order_and_names_of_classes_do_not_matter() -> None:
    rng = np.random.default_rng(0)
    classes = np.column_stack(np.triu_indices(40, 1))
    p, same, weights = rng.random(len(classes)) ** 3, np.zeros(len(classes), bool), np.ones(780)
    wanted = {"false_accept": 0.02, "certainty": CERTAINTY}
    found = choose_pair_threshold(p, same, weights, classes, **wanted)
    order = rng.permutation(len(p))
    others = rng.permutation(1000)[classes][:, ::-1]
    again = choose_pair_threshold(p[order], same, weights, others[order], **wanted)
    assert again.threshold == found.threshold
    assert again.effective_trials == pytest.approx(found.effective_trials)


def test_a_promise_must_be_one() -> None:
    same = np.array([True, False])
    for wrong in ({"false_accept": 0.0, "certainty": 0.9}, {"false_accept": 0.1, "certainty": 0.5}):
        with pytest.raises(InvalidInputError):
            choose_pair_threshold(np.zeros(2), same, np.ones(2), None, **wrong)


def test_reports_agree_with_naive_counting() -> None:
    rng = np.random.default_rng(0)
    same = rng.random(500) < 0.3
    p = np.clip(0.3 * same + 0.7 * rng.random(500), 0.0, 1.0)
    report = report_pairs(p, same, base_rate=0.1)
    weights = np.where(same, 0.1 / same.sum(), 0.9 / (~same).sum())
    assert report.log_loss == pytest.approx(log_loss(same, p, sample_weight=weights))
    assert report.brier == pytest.approx((weights * (p - same) ** 2).sum())
    assert report.auroc == pytest.approx(roc_auc_score(same, p))
    bins = np.minimum((p * 15).astype(int), 14)
    gaps = [abs((weights * (p - same))[bins == one].sum()) for one in range(15)]
    assert report.calibration_error == pytest.approx(sum(gaps))
    errors = [((p[~same] >= cut).mean(), (p[same] < cut).mean()) for cut in p]
    nearest = min(errors, key=lambda both: abs(both[0] - both[1]))
    assert report.equal_error_rate == pytest.approx(np.mean(nearest), abs=1 / same.sum())
    for share in (0.0, 0.01, 0.1):
        best = max(
            (p[same] >= cut).mean() for cut in [*p, 2.0] if (p[~same] >= cut).mean() <= share
        )
        assert report.true_accept_at(share) == pytest.approx(best)


def test_ties_of_both_kinds_are_points_of_the_curve() -> None:
    """Each step accepts a tenth of both kinds: a line, of which no point may be left out."""
    p = np.repeat(np.linspace(0.1, 1.0, 10), 2)
    report = report_pairs(p, np.arange(20) % 2, base_rate=0.5)
    for share in (0.1, 0.35, 0.8):
        assert report.true_accept_at(share) == pytest.approx(np.floor(share * 10 + 1e-9) / 10)


def test_weights_and_the_base_rate_count() -> None:
    p, same = np.array([0.9, 0.4, 0.2, 0.8]), np.array([True, True, False, False])
    doubled = report_pairs(p[[0, 0, 1, 2, 3]], same[[0, 0, 1, 2, 3]], base_rate=0.3)
    weighted = report_pairs(p, same, base_rate=0.3, weights=np.array([2.0, 1.0, 1.0, 1.0]))
    assert weighted.log_loss == pytest.approx(doubled.log_loss)
    assert weighted.equal_error_rate == pytest.approx(doubled.equal_error_rate)
    with pytest.raises(InvalidInputError, match="both kinds"):
        report_pairs([0.5], [1], base_rate=0.5)
