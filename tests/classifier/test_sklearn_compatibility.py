"""scikit-learn's own checks, none excused.

Two settings contradict the checks by design and are tested elsewhere: metric "cosine" refuses the
zero vector in their data, and where kNN's votes tie the nearer class wins, which an argmax over
dense probabilities cannot see, so kNN runs with k = 1.
"""

from collections.abc import Callable

import pytest
from sklearn.utils.estimator_checks import estimator_checks_generator

from nearsure import NEDClassifier

ESTIMATORS = (
    NEDClassifier(),
    NEDClassifier(n_neighbors="all"),
    NEDClassifier(prior="uniform"),
    NEDClassifier(rule="ned"),
    NEDClassifier(rule="sharpened", calibration="beta"),
    NEDClassifier(objective="brier"),
    NEDClassifier(objective="top_label"),
    NEDClassifier(rule="1nn"),
    NEDClassifier(rule="knn", n_neighbors=1),
    NEDClassifier(rule="dudani"),
    NEDClassifier(rule="gou"),
)
# A list: of some versions, parametrize_with_checks gives a generator, which pytest takes no more.
CHECKS = [pair for estimator in ESTIMATORS for pair in estimator_checks_generator(estimator)]
NAMES = [f"{estimator}-{check.func.__name__}" for estimator, check in CHECKS]


@pytest.mark.parametrize(("estimator", "check"), CHECKS, ids=NAMES)
@pytest.mark.filterwarnings("ignore::nearsure.errors.FitWarning")
def test_scikit_learn_contract(
    estimator: NEDClassifier, check: Callable[[NEDClassifier], None]
) -> None:
    check(estimator)
