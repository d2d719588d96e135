import numpy as np
import pytest
from drifting_queries import made_gallery, scored

from nearsure.drift import certainty
from nearsure.posterior import Posterior, with_confidence


def row(probabilities: list[float], n_classes: int = 100) -> Posterior:
    n = len(probabilities)
    return Posterior(np.array([0, n]), np.arange(n), np.array(probabilities), n_classes)


def naive(probabilities: list[float]) -> float:
    """Negative entropy, what is lacking being dealt out in pieces no larger than the first."""
    pieces, lacking = list(probabilities), 1.0 - sum(probabilities)
    while lacking > 1e-9:
        pieces.append(min(lacking, probabilities[0]))
        lacking -= pieces[-1]
    return float(sum(p * np.log(p) for p in pieces))


@pytest.mark.parametrize(
    "probabilities",
    [
        [1.0],
        [0.6, 0.3, 0.1],
        [0.9],
        [0.6, 0.2],
        [0.5],
        [0.4, 0.05],
        [0.21],
        [0.01, 0.01, 0.005],
    ],
)
def test_a_row_is_as_certain_as_a_loop_over_its_classes_says(probabilities: list[float]) -> None:
    assert certainty(row(probabilities))[0] == pytest.approx(naive(probabilities), abs=1e-7)


def test_full_rows_have_their_negative_entropy() -> None:
    posterior = scored(made_gallery(300).own)
    np.testing.assert_allclose(certainty(posterior), -posterior.entropy, atol=1e-13)


def test_less_confidence_in_the_same_row_is_less_certainty() -> None:
    # Also where next to nothing is left of the label, as isotonic calibration may have it.
    confidences = [1.0, 0.95, 0.7, 0.5, 0.3, 0.1, 0.02, 0.0]
    for probabilities in ([1.0], [0.7, 0.3], [0.5, 0.3, 0.2]):
        found = np.concatenate(
            [certainty(with_confidence(row(probabilities), [c])) for c in confidences]
        )
        assert (np.diff(found) < 0).all()


def test_rows_of_nothing_are_the_least_certain() -> None:
    assert certainty(row([])).tolist() == [-np.inf]
    assert certainty(row([0.0, 0.0])).tolist() == [-np.inf]
