"""A posterior with another confidence: the same labels, the rest in the old proportions."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearsure.errors import InvalidInputError
from nearsure.neighbors import Neighbors
from nearsure.posterior import Posterior, score, with_confidence


def row(*probabilities: float) -> Posterior:
    n = len(probabilities)
    return Posterior(np.array([0, n]), np.arange(n), np.array(probabilities, np.float64), max(n, 1))


def naive(probabilities: list[float], confidence: float) -> list[float]:
    """One row: what is left of 1, in the old proportions, no share above the top one's."""
    unassigned = 1 - sum(probabilities)
    rest = sum(probabilities[1:]) + (unassigned if unassigned > 1e-12 else 0)
    return [
        confidence,
        *(min((1 - confidence) * p / rest if p else 0, confidence) for p in probabilities[1:]),
    ]


@given(
    st.lists(
        st.tuples(
            st.lists(st.integers(0, 20), min_size=1, max_size=6).filter(any),
            st.floats(0, 1),
            st.sampled_from([1.0, 0.7]),
        ),
        min_size=1,
        max_size=5,
    )
)
def test_rows_are_those_of_the_definition(cases: list[tuple[list[int], float, float]]) -> None:
    shares = [
        [total * vote / sum(votes) for vote in sorted(votes, reverse=True)]
        for votes, _, total in cases
    ]
    posterior = Posterior(
        np.cumsum([0, *map(len, shares)]),
        np.concatenate([np.arange(len(share)) for share in shares]),
        np.concatenate(shares),
        6,
    )
    confidence = [asked for _, asked, _ in cases]
    changed = with_confidence(posterior, confidence)
    np.testing.assert_array_equal(changed.confidence, confidence)
    np.testing.assert_array_equal(changed.codes, posterior.codes)
    for i, (share, asked) in enumerate(zip(shares, confidence, strict=True)):
        probabilities = changed.probabilities[posterior.indptr[i] : posterior.indptr[i + 1]]
        np.testing.assert_allclose(probabilities, naive(share, asked), rtol=0, atol=1e-9)
        assert (np.diff(probabilities) <= 0).all()
        assert probabilities.sum() <= 1 + 1e-12


def test_a_row_sums_to_1_unless_a_class_would_rise_above_the_top_one() -> None:
    posterior = row(0.5, 0.3, 0.2)
    assert with_confidence(posterior, [0.6]).probabilities == pytest.approx([0.6, 0.24, 0.16])
    # Two thirds of 0.8 would go to the second class: 0.48, above 0.2. So would the third's 0.32.
    assert with_confidence(posterior, [0.2]).probabilities == pytest.approx([0.2, 0.2, 0.2])
    # Only the second is cut; the third keeps 0.4 of what is left.
    assert with_confidence(posterior, [0.35]).probabilities == pytest.approx([0.35, 0.35, 0.26])
    assert with_confidence(posterior, [0.0]).probabilities.tolist() == [0, 0, 0]
    assert with_confidence(posterior, [1.0]).probabilities.tolist() == [1, 0, 0]
    # Exactly where second and top meet, nothing is cut yet.
    assert with_confidence(posterior, [0.375]).probabilities == pytest.approx([0.375, 0.375, 0.25])


def test_a_lone_class_leaves_the_rest_unassigned() -> None:
    assert with_confidence(row(1.0), [0.7]).probabilities.tolist() == [0.7]
    assert with_confidence(row(1.0, 0.0), [0.7]).probabilities.tolist() == [0.7, 0.0]


def test_its_own_confidence_changes_nothing_and_changes_can_be_undone() -> None:
    for posterior in (row(0.5, 0.3, 0.2), row(0.7), row(0.4, 0.1), row(1.0)):
        same = with_confidence(posterior, posterior.confidence)
        np.testing.assert_allclose(same.probabilities, posterior.probabilities, rtol=1e-13)
        there = with_confidence(posterior, [0.8])
        back = with_confidence(there, posterior.confidence)
        np.testing.assert_allclose(back.probabilities, posterior.probabilities, rtol=1e-13)


def test_others_of_next_to_nothing_get_the_rest_in_their_proportions() -> None:
    for tiny in (1e-20, 1e-310):
        changed = with_confidence(row(1.0, 3 * tiny, tiny), [0.8])
        assert changed.probabilities == pytest.approx([0.8, 0.15, 0.05], rel=1e-9)


def test_a_query_without_neighbours_stays_without() -> None:
    neighbors = Neighbors([[1.0, 2.0], [0.0, 0.0]], [[3, 4], [0, 0]], counts=[2, 0])
    posterior = score(neighbors, rule="dudani")
    changed = with_confidence(posterior, [0.9, 0.9])
    assert changed.labels.tolist() == posterior.labels.tolist()
    assert changed.labels[1] == -1
    assert changed.confidence.tolist() == [0.9, 0.0]
    assert len(with_confidence(posterior.take(np.array([], int)), [])) == 0


def test_the_posterior_itself_is_not_changed() -> None:
    posterior = row(0.5, 0.3, 0.2)
    posterior.probabilities.flags.writeable = False
    with_confidence(posterior, [0.9])
    assert posterior.probabilities.tolist() == [0.5, 0.3, 0.2]


def test_bad_confidences_are_refused() -> None:
    for confidence in ([0.5, 0.5], [], 0.5, [[0.5]]):
        with pytest.raises(InvalidInputError, match="one number for each of the 1 queries"):
            with_confidence(row(0.5, 0.5), confidence)
    for outside in (np.nan, 1.1, -0.1):
        with pytest.raises(InvalidInputError, match=r"must hold numbers in \[0, 1\]"):
            with_confidence(row(0.5, 0.5), [outside])
