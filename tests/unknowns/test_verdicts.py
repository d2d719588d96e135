"""Verdicts and the confidence that covers unknowns."""

import numpy as np
import pytest

from nearsure import Neighbors, score
from nearsure.errors import InvalidInputError
from nearsure.unknowns import judge

POSTERIOR = score(
    Neighbors([[1.0, 1.0, 1.0, 1.0]] * 4, [[0, 0, 0, 1], [0, 0, 1, 2], [0, 1, 2, 3], [0] * 4]),
    rule="knn",
)


def test_confidence_is_the_product() -> None:
    verdicts = judge([1.0, 0.5, 0.2, 0.0], POSTERIOR)
    assert verdicts.confidence == pytest.approx([0.75, 0.25, 0.05, 0.0])


@pytest.mark.parametrize(
    ("least_p_known", "least_class_probability", "names"),
    [
        (0.5, 0.5, ["known", "known", "unknown", "unknown"]),
        (0.5, 0.6, ["known", "ambiguous", "unknown", "unknown"]),
        (0.1, 0.6, ["known", "ambiguous", "ambiguous", "unknown"]),
        (0.0, 0.0, ["known", "known", "known", "known"]),
        (1.0, 1.0, ["ambiguous", "unknown", "unknown", "unknown"]),
    ],
)
def test_thresholds(least_p_known: float, least_class_probability: float, names: list[str]) -> None:
    verdicts = judge(
        [1.0, 0.5, 0.2, 0.0],
        POSTERIOR,
        least_p_known=least_p_known,
        least_class_probability=least_class_probability,
    )
    assert verdicts.names.tolist() == names
    assert sum(verdicts.counts().values()) == len(verdicts) == 4
    assert verdicts.counts()["unknown"] == names.count("unknown")


def test_what_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="each of the 4 queries"):
        judge([0.5], POSTERIOR)
    with pytest.raises(InvalidInputError, match="p_known"):
        judge(np.full(4, np.nan), POSTERIOR)
    with pytest.raises(InvalidInputError, match="least_class_probability"):
        judge(np.ones(4), POSTERIOR, least_class_probability=50)


@pytest.mark.parametrize("bad", [1.5, -0.1, np.nan])
def test_one_bad_value_among_good_ones_is_refused(bad: float) -> None:
    with pytest.raises(InvalidInputError, match=r"p_known must lie in \[0, 1\]"):
        judge([0.2, 1.0, bad, 0.0], POSTERIOR)
