"""Neighbours and head as one posterior: against the formula in dense matrices."""

from typing import Any

import numpy as np
import pytest
from head_data import log_softmax

from nearsure.arrays import BoolArray, FloatArray, IntArray
from nearsure.heads import joint
from nearsure.heads.joint import HeadFit, Joint, choose_head, fit_joint, join_head
from nearsure.minimization import minimize
from nearsure.neighbors import PADDING_LABEL, ClassScores
from nearsure.posterior import Posterior

N, N_CLASSES = 60, 9


def draw_posterior(rng: np.random.Generator, n_classes: int = N_CLASSES) -> Posterior:
    """Of queries whose neighbours name some of the classes; one has no neighbours."""
    lengths = rng.integers(1, 5, N)
    lengths[3] = 0
    codes = [rng.permutation(n_classes)[:length] for length in lengths]
    shares = [np.sort(rng.dirichlet(np.ones(length)))[::-1] for length in lengths if length]
    indptr = np.append(0, np.cumsum(lengths))
    return Posterior(indptr, np.concatenate(codes), np.concatenate(shares), n_classes)


def draw_scores(
    rng: np.random.Generator, n_known: int, n_listed: int, unheard: tuple[int, ...] = ()
) -> ClassScores:
    heard = np.setdiff1d(np.arange(n_known), unheard)
    codes = np.array([rng.permutation(heard)[:n_listed] for _ in range(N)])
    logs = log_softmax(2.0 * rng.normal(size=codes.shape))
    order = np.argsort(-logs, axis=1)
    codes = np.take_along_axis(codes, order, axis=1)
    logs = np.take_along_axis(logs, order, axis=1)
    codes[::7, -1], logs[::7, -1] = PADDING_LABEL, -np.inf
    rest = np.where(np.isfinite(logs), logs, np.inf).min(axis=1) - 1.0
    return ClassScores(codes, logs, rest, np.zeros(N), n_known, np.array(unheard, np.int64))


def join_naively(
    posterior: Posterior,
    scores: ClassScores,
    weights: Joint,
    factors: FloatArray | None = None,
    possible: BoolArray | None = None,
) -> FloatArray:
    """Class by class."""
    n_classes = max(posterior.n_classes, scores.n_known)
    dense = np.zeros((N, n_classes))
    for row in range(N):
        span = slice(posterior.indptr[row], posterior.indptr[row + 1])
        near = dict(zip(posterior.codes[span], posterior.probabilities[span], strict=True))
        listed = {
            code: log
            for code, log in zip(scores.codes[row], scores.log_shares[row], strict=True)
            if code != PADDING_LABEL and (possible is None or possible[code])
        }
        if not near:
            continue
        # Classes that the head has not seen have what the neighbours say.
        unseen = [
            c for c in near if c not in listed and (c >= scores.n_known or c in scores.unheard)
        ]
        for code in {*near, *listed} - {*unseen}:
            said = listed.get(code, scores.rest[row])
            floored = (near.get(code, 0.0) + weights.floor) ** weights.neighbors
            dense[row, code] = floored * np.exp(weights.head * said)
        if dense[row].any():
            dense[row] *= (1.0 - sum(near[code] for code in unseen)) / dense[row].sum()
        dense[row, unseen] = [near[code] for code in unseen]
        dense[row] *= 1.0 if factors is None else factors
        dense[row] /= dense[row].sum()
    return dense


@pytest.mark.parametrize("weights", [Joint(1.0, 1.0, 1e-3), Joint(0.4, 2.0, 0.5)])
@pytest.mark.parametrize(
    ("n_known", "n_listed", "unheard"), [(9, 9, ()), (9, 4, ()), (6, 6, ()), (9, 4, (2, 5))]
)
@pytest.mark.parametrize("other", [False, True], ids=["plain", "prior and empty classes"])
def test_joined_as_the_formula_says(
    weights: Joint, n_known: int, n_listed: int, unheard: tuple[int, ...], *, other: bool
) -> None:
    rng = np.random.default_rng(n_listed)
    posterior, scores = draw_posterior(rng), draw_scores(rng, n_known, n_listed, unheard)
    options: dict[str, Any] = {}
    if other:
        possible = np.ones(N_CLASSES, np.bool_)
        possible[np.setdiff1d(np.arange(N_CLASSES), posterior.codes[:40])[:2]] = False
        options = {"factors": rng.uniform(0.2, 3.0, N_CLASSES), "possible": possible}
    found = join_head(posterior, scores, weights, **options)
    expected = join_naively(posterior, scores, weights, *options.values())
    np.testing.assert_allclose(found.to_csr().toarray(), expected, atol=1e-12)
    assert np.diff(found.indptr)[3] == 0
    for start, end in zip(found.indptr[:-1], found.indptr[1:], strict=True):
        assert (np.diff(found.probabilities[start:end]) <= 0).all()


def draw_answers(weights: Joint, n: int, seed: int) -> tuple[Posterior, ClassScores, IntArray]:
    """Classes that are drawn from the joint form itself."""
    rng = np.random.default_rng(seed)
    near = rng.dirichlet(0.3 * np.ones(5), n)
    logs = log_softmax(2.0 * rng.normal(size=(n, 5)))
    said = log_softmax(weights.neighbors * np.log(near + weights.floor) + weights.head * logs)
    codes = (rng.random(n)[:, None] > np.cumsum(np.exp(said), axis=1)).sum(axis=1)
    order = np.argsort(-near, axis=1)
    posterior = Posterior(
        np.arange(n + 1) * 5, order.ravel(), np.take_along_axis(near, order, axis=1).ravel(), 5
    )
    listed = np.tile(np.arange(5), (n, 1))
    scores = ClassScores(listed, logs, np.full(n, -30.0), np.zeros(n), 5)
    return posterior, scores, np.minimum(codes, 4)


@pytest.mark.parametrize("weights", [Joint(0.8, 0.6, 0.05), Joint(0.3, 1.5, 0.01)])
def test_known_weights_are_found(weights: Joint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joint, "MOST_FITTED", 40_000)
    found, alone, together = fit_joint(*draw_answers(weights, 40_000, seed=0))
    # Of 40,000 points: the standard errors are below two fifths of this.
    assert found.neighbors == pytest.approx(weights.neighbors, rel=0.15)
    assert found.head == pytest.approx(weights.head, rel=0.05)
    assert np.log(found.floor) == pytest.approx(np.log(weights.floor), abs=0.5)
    assert together.mean() < alone.mean()


def test_a_head_that_says_nothing_gets_no_weight() -> None:
    posterior, scores, codes = draw_answers(Joint(1.0, 1e-9, 0.01), 4000, seed=1)
    found, alone, together = fit_joint(posterior, scores, codes)
    assert found.head < 0.05
    assert abs((alone - together).mean()) < 2e-3
    fit = choose_head(posterior, {"means": scores}, codes, left_out={})
    assert fit.name is None
    assert fit.joint is None
    assert "neighbours answer alone" in str(fit)


def test_the_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the loss in log a, log b and log floor, against finite differences."""
    seen: list[float] = []

    def search(loss: Any, start: Any, **options: Any) -> Any:  # noqa: ANN401
        for logs in (start, (0.3, 0.4, -2.0), (-1.0, 1.0, -6.0)):
            point = np.array(logs, np.float64)
            steps = 1e-6 * np.eye(3)
            slopes = [(loss(point + s)[0] - loss(point - s)[0]) / 2e-6 for s in steps]
            np.testing.assert_allclose(loss(point)[1], slopes, atol=1e-6)
            seen.append(slopes[0])
        return minimize(loss, start, **options)

    monkeypatch.setattr(joint, "minimize", search)
    fit_joint(*draw_answers(Joint(0.8, 0.6, 0.05), 300, seed=2))
    assert np.abs(seen).max() > 1e-3


def test_points_of_classes_that_nobody_names_say_nothing() -> None:
    posterior, scores, codes = draw_answers(Joint(0.8, 0.6, 0.05), 200, seed=3)
    some = np.arange(200) % 3 > 0
    elsewhere = np.where(some, codes, 7)
    found, alone, _ = fit_joint(posterior, scores, elsewhere)
    expected, _, _ = fit_joint(posterior.take(some), scores.take(some), codes[some])
    assert found == expected
    assert len(alone) == some.sum()
    nothing, alone, together = fit_joint(posterior, scores, np.full(200, 7))
    assert nothing.head == 0.0
    assert alone.tolist() == together.tolist()


@pytest.mark.parametrize(
    ("noise", "expected"),
    [({"means": 0.0}, "means"), ({"means": 0.0, "logistic": 0.0}, "logistic")],
)
def test_the_head_that_helps_is_taken(noise: dict[str, float], expected: str) -> None:
    """Of two that are alike, logistic regression: classes are not normal."""
    posterior, scores, codes = draw_answers(Joint(0.8, 1.0, 0.05), 500, seed=4)
    fit = choose_head(posterior, dict.fromkeys(noise, scores), codes, left_out={})
    assert fit.name == expected
    assert HeadFit.from_dict(fit.to_dict()) == fit


@pytest.mark.parametrize("name", ["means", "logistic"])
def test_a_head_that_is_asked_for_is_taken(name: str) -> None:
    posterior, scores, codes = draw_answers(Joint(1.0, 1e-9, 0.01), 200, seed=5)
    fit = choose_head(posterior, {name: scores}, codes, left_out={}, forced=True)
    assert fit.name == name
