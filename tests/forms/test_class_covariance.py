"""A covariance for each class: Gaussian kernels of the appendix, fitted without peeking."""

import numpy as np
import pytest
from made_classes import MadeClasses, gaussian_classes, slopes_by_differences
from scipy.stats import multivariate_normal, ortho_group

from nearsure.arrays import FloatArray, IntArray
from nearsure.errors import InvalidInputError
from nearsure.forms import class_covariance
from nearsure.forms.class_covariance import (
    ClassCovariance,
    CovarianceKind,
    CovarianceLoss,
    WithinClassScatter,
    class_covariance_weights,
    class_mahalanobis,
    fit_class_covariance,
)
from nearsure.metrics import row_negative_log_likelihoods
from nearsure.neighbors import Neighbors
from nearsure.posterior import aggregate, score
from nearsure.rules import ned_weights
from nearsure.temperature import fit_temperature

KINDS: tuple[CovarianceKind, ...] = ("diagonal", "full")
N_CLASSES = 6
DIMENSION = 8
STRENGTH = 12.0


def flat_classes(*, seed: int = 0, size: int = 40, n_queries: int = 150) -> MadeClasses:
    """Classes that are wide along two directions of their own and narrow along all others."""
    widths = np.diag([2.5, 2.5] + [0.4] * (DIMENSION - 2))
    rotations = ortho_group.rvs(DIMENSION, size=N_CLASSES, random_state=seed)
    return gaussian_classes(
        rotations @ widths,
        sizes=np.full(N_CLASSES, size),
        n_queries=np.full(N_CLASSES, n_queries),
        spread=0.8,
        seed=seed,
    )


def uneven_classes(seed: int = 0) -> MadeClasses:
    """Small classes, of one and of two members too."""
    factors = np.random.default_rng(seed).normal(size=(N_CLASSES, 4, 4))
    sizes = np.array([1, 2, 3, 5, 9, 14])
    return gaussian_classes(factors, sizes=sizes, n_queries=sizes, spread=1.0, seed=seed)


def test_identity_is_ned_to_rounding() -> None:
    made = flat_classes()
    asked = made.query_neighbors(15)
    for covariances in (
        np.broadcast_to(np.eye(DIMENSION), (N_CLASSES, DIMENSION, DIMENSION)),
        np.ones((N_CLASSES, DIMENSION)),
    ):
        form = ClassCovariance(covariances, temperature=0.9)
        weights = class_covariance_weights(asked, made.queries, made.support, form)
        np.testing.assert_allclose(weights, ned_weights(asked, 0.9), rtol=1e-10, atol=1e-300)


def test_weights_are_gaussian_densities() -> None:
    made = uneven_classes()
    factors = np.random.default_rng(1).normal(size=(N_CLASSES, 4, 6))
    covariances = factors @ factors.transpose(0, 2, 1)
    asked = made.query_neighbors(10)
    weights = class_covariance_weights(
        asked, made.queries, made.support, ClassCovariance(covariances, temperature=2.0)
    )
    assert asked.ids is not None
    for row, query in enumerate(made.queries):
        densities = [
            multivariate_normal.pdf(query, made.support[i], covariances[made.codes[i]])
            for i in asked.ids[row]
        ]
        np.testing.assert_allclose(weights[row], densities / np.max(densities), rtol=1e-9)


def test_diagonal_and_full_agree_on_diagonal_covariances() -> None:
    made = flat_classes()
    asked = made.query_neighbors(15)
    variances = np.random.default_rng(2).uniform(0.5, 2.0, (N_CLASSES, DIMENSION))
    full = np.stack([np.diag(v) for v in variances])
    forms = (ClassCovariance(c, temperature=1.5, determinant_share=0.3) for c in (variances, full))
    first, second = (
        class_covariance_weights(asked, made.queries, made.support, form) for form in forms
    )
    np.testing.assert_allclose(first, second, rtol=1e-9, atol=1e-300)


@pytest.mark.parametrize("kind", KINDS)
def test_leaving_out_is_measuring_anew_without_the_point(kind: CovarianceKind) -> None:
    made = uneven_classes()
    own = made.own_neighbors(len(made.codes) - 1)
    scatter = WithinClassScatter(made.support, made.codes, n_classes=N_CLASSES, kind=kind)
    found, _ = class_mahalanobis(
        own, made.support, made.support, lambda code: scatter.without_the_point(code, STRENGTH)
    )
    assert own.ids is not None
    for point in range(1, len(made.codes)):
        for place in range(own.k):
            other = own.ids[point, place]
            covariance = covariance_without(made, scatter, kind, point, made.codes[other])
            difference = made.support[point] - made.support[other]
            expected = difference @ np.linalg.solve(covariance, difference)
            assert found[point, place] == pytest.approx(expected, rel=1e-8)


def covariance_without(
    made: MadeClasses, scatter: WithinClassScatter, kind: CovarianceKind, point: int, code: int
) -> FloatArray:
    """Sigma_j by its definition on all points but one; a, v and w_j are those of all points."""
    kept = np.arange(len(made.codes)) != point
    support, codes = made.support[kept], made.codes[kept]

    def scatter_of(one: int) -> FloatArray:
        members = support[codes == one]
        deviations = members - members.mean(axis=0)
        product: FloatArray = deviations.T @ deviations
        return np.diag(np.diag(product)) if kind == "diagonal" else product

    present = np.unique(codes)
    total = np.sum([scatter_of(one) for one in present], axis=0)
    a, v = scatter._shrinkage, scatter._mean_variance
    pooled = (1 - a) * total / (len(codes) - N_CLASSES) + a * v * np.eye(total.shape[0])
    n_all = int((made.codes == code).sum())
    w = (n_all - 1) / (n_all - 1 + STRENGTH)
    n_left = int((codes == code).sum())
    return np.asarray((1 - w) * pooled + w * scatter_of(code) / max(n_left - 1, 1))


@pytest.mark.parametrize("kind", KINDS)
def test_blocks_do_not_show(kind: CovarianceKind, monkeypatch: pytest.MonkeyPatch) -> None:
    made = uneven_classes()
    own = made.own_neighbors(9)
    whole = fit_class_covariance(own, made.codes, made.support, n_classes=N_CLASSES, kind=kind)
    monkeypatch.setattr(class_covariance, "PAIRS_AT_ONCE", 7)
    parts = fit_class_covariance(own, made.codes, made.support, n_classes=N_CLASSES, kind=kind)
    assert parts.loss == pytest.approx(whole.loss, rel=1e-9)


def test_gradient_is_that_of_finite_differences() -> None:
    rng = np.random.default_rng(3)
    sq_distances = rng.gamma(2.0, 3.0, (40, 7))
    sq_distances[:10, 5:] = np.inf
    own = rng.random((40, 7)) < 0.3
    own[:, 0] = True
    own[np.isinf(sq_distances)] = False
    loss = CovarianceLoss(sq_distances, rng.normal(size=(40, 7)), own)
    for at in ([0.0, 0.5], [2.0, 0.0], [-1.0, 1.0]):
        numeric = slopes_by_differences(loss, np.array(at))
        np.testing.assert_allclose(loss(np.array(at))[1], numeric, rtol=1e-6, atol=1e-8)


def losses_of_queries(made: MadeClasses, form: ClassCovariance, k: int) -> FloatArray:
    asked = made.query_neighbors(k)
    posterior = aggregate(asked, class_covariance_weights(asked, made.queries, made.support, form))
    return row_negative_log_likelihoods(posterior, made.query_codes, floor=1e-6)


def test_true_and_estimated_covariances_beat_ned() -> None:
    made = flat_classes()
    own, asked = made.own_neighbors(30), made.query_neighbors(30)
    ned = score(asked, temperature=fit_temperature(own, made.codes).temperature)
    ned_losses = row_negative_log_likelihoods(ned, made.query_codes, floor=1e-6)
    widths = np.diag(np.square([2.5, 2.5] + [0.4] * (DIMENSION - 2)))
    rotations = ortho_group.rvs(DIMENSION, size=N_CLASSES, random_state=0)
    true = ClassCovariance(rotations @ widths @ rotations.transpose(0, 2, 1), temperature=2.0)
    estimated = fit_class_covariance(
        own, made.codes, made.support, n_classes=N_CLASSES, kind="full"
    )
    assert estimated.strength < np.inf
    for form in (true, estimated):
        gain = ned_losses - losses_of_queries(made, form, 30)
        assert gain.mean() > 5 * gain.std() / np.sqrt(len(gain))


@pytest.mark.parametrize("kind", KINDS)
def test_the_leave_one_out_loss_is_no_better_than_that_of_queries(kind: CovarianceKind) -> None:
    """Few members in many dimensions, all classes of one shape: there is nothing to be gained."""
    n_classes, k = 20, 60
    made = gaussian_classes(
        np.broadcast_to(np.eye(24), (n_classes, 24, 24)),
        sizes=np.full(n_classes, 8),
        n_queries=np.full(n_classes, 60),
        spread=0.7,
        seed=0,
    )
    own = made.own_neighbors(k)
    form = fit_class_covariance(
        own, made.codes, made.support, n_classes=n_classes, kind=kind, strength=5.0
    )
    losses = losses_of_queries(made, form, k)
    hit = (made.query_neighbors(k).labels == made.query_codes[:, None]).any(axis=1)
    error = losses[hit].std() * np.sqrt(1 / hit.sum() + 1 / len(own))
    assert form.loss > losses[hit].mean() - 2 * error
    # Judged by covariances that they have a share in, the same points look better than any query.
    posterior = aggregate(own, class_covariance_weights(own, made.support, made.support, form))
    p = posterior.probability_of(made.codes)
    assert -np.log(p[p > 0]).mean() < losses[hit].mean() - 2 * error


def test_rotating_the_space_changes_nothing() -> None:
    made = flat_classes()
    rotation = ortho_group.rvs(DIMENSION, random_state=9)
    turned = MadeClasses(
        made.support @ rotation, made.codes, made.queries @ rotation, made.query_codes
    )
    first, second = (
        losses_of_queries(
            one,
            fit_class_covariance(
                one.own_neighbors(15),
                one.codes,
                one.support,
                n_classes=N_CLASSES,
                kind="full",
                strength=STRENGTH,
            ),
            15,
        )
        for one in (made, turned)
    )
    np.testing.assert_allclose(first, second, rtol=1e-4, atol=1e-6)


def test_one_class_covariance_for_all_is_pooled() -> None:
    made = uneven_classes()
    form = fit_class_covariance(
        made.own_neighbors(9),
        made.codes,
        made.support,
        n_classes=N_CLASSES,
        kind="full",
        strength=np.inf,
    )
    assert (form.covariances == form.covariances[0]).all()


def test_padding_weighs_nothing() -> None:
    made = uneven_classes()
    found = made.query_neighbors(6)
    counts: IntArray = np.arange(len(found)) % 7
    padded = Neighbors(found.sq_distances, found.labels, found.ids, counts)
    form = ClassCovariance(np.ones((N_CLASSES, 4)), temperature=1.0)
    weights = class_covariance_weights(padded, made.queries, made.support, form)
    assert (weights[~padded.valid] == 0).all()
    assert (weights.max(axis=1) == (counts > 0)).all()


def test_errors_say_what_is_allowed() -> None:
    made = uneven_classes()
    own = made.own_neighbors(5)
    form = ClassCovariance(np.ones((N_CLASSES, 4)), temperature=1.0)

    def fit(**changed: object) -> None:
        arguments = {"n_classes": N_CLASSES, **changed}
        fit_class_covariance(own, made.codes, made.support, **arguments)  # type: ignore[arg-type]

    with pytest.raises(InvalidInputError, match="neighbors must have ids"):
        class_covariance_weights(
            Neighbors(own.sq_distances, own.labels), made.support, made.support, form
        )
    with pytest.raises(InvalidInputError, match="queries must have the shape"):
        class_covariance_weights(own, made.support[1:], made.support, form)
    with pytest.raises(InvalidInputError, match="ids must be rows of the 20 support"):
        class_covariance_weights(own, made.support, made.support[:20], form)
    with pytest.raises(InvalidInputError, match="below 2, the number of covariances"):
        class_covariance_weights(
            own, made.support, made.support, ClassCovariance(np.ones((2, 4)), 1.0)
        )
    with pytest.raises(InvalidInputError, match="positive definite"):
        class_covariance_weights(
            own, made.support, made.support, ClassCovariance(np.zeros((N_CLASSES, 4, 4)), 1.0)
        )
    with pytest.raises(InvalidInputError, match="kind must be one of 'diagonal', 'full'"):
        fit(kind="spherical")
    with pytest.raises(InvalidInputError, match="strength must be above 0"):
        fit(strength=0.0)
    with pytest.raises(InvalidInputError, match="two points more than classes"):
        WithinClassScatter(np.eye(3), np.array([0, 1, 1]), n_classes=2, kind="full")
    with pytest.raises(InvalidInputError, match="vectors that differ"):
        WithinClassScatter(np.ones((4, 2)), np.zeros(4, np.int64), n_classes=1, kind="full")
    with pytest.raises(InvalidInputError, match=r"determinant_share must lie in \[0, 1\]"):
        ClassCovariance(np.ones((2, 4)), 1.0, determinant_share=2.0)
    with pytest.raises(InvalidInputError, match="Variances must be positive"):
        ClassCovariance(np.zeros((2, 4)), 1.0)
    with pytest.raises(InvalidInputError, match="covariances must have the shape"):
        ClassCovariance(np.ones((2, 4, 3)), 1.0)
