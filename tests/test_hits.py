"""What hits alone give is what the classifier gives that has the vectors."""

import numpy as np
import pytest

from nearsure import NEDClassifier
from nearsure.arrays import AnyArray
from nearsure.errors import InvalidInputError
from nearsure.hits import Distance, Hit, HitConfidence, fit_hits

NAMES = np.array(["ant", "bee", "cat", "dog", "emu", "fox"])
CENTRES = 1.4 * np.random.default_rng(5).normal(size=(len(NAMES), 6))


def drawn(n: int, seed: int) -> tuple[AnyArray, AnyArray]:
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, len(NAMES), n)
    return CENTRES[codes] + rng.normal(size=(n, 6)), NAMES[codes]


def item_ids(n: int) -> list[str]:
    return [f"item-{row:03d}" for row in range(n)]


def searched(
    queries: AnyArray, gallery: AnyArray, labels: AnyArray, distance: Distance
) -> list[list[Hit]]:
    """All of the gallery as hits, in an order that says nothing."""
    lists = []
    for query in queries:
        if distance in {"l2", "squared_l2"}:
            values = ((gallery - query) ** 2).sum(axis=1)
            values = np.sqrt(values) if distance == "l2" else values
        else:
            lengths = np.linalg.norm(gallery, axis=1) * np.linalg.norm(query)
            values = gallery @ query / lengths
            values = 1.0 - values if distance == "cosine_distance" else values
        hits = zip(item_ids(len(gallery)), labels.tolist(), values.tolist(), strict=True)
        lists.append([Hit(*hit) for hit in hits])
    return lists


@pytest.mark.parametrize("distance", ["l2", "squared_l2", "cosine_distance", "cosine_similarity"])
@pytest.mark.parametrize("unknown_share", [None, 0.2])
def test_the_classifier_that_has_the_vectors(
    distance: Distance, unknown_share: float | None
) -> None:
    gallery, labels = drawn(240, seed=0)
    queries, _ = drawn(25, seed=1)
    queries[-5:] += 4.0  # of nothing in the gallery
    fitted = fit_hits(
        searched(gallery, gallery, labels, distance),
        item_ids(len(gallery)),
        labels.tolist(),
        distance=distance,
        unknown_share=unknown_share,
        precision=0.8,
    )
    found = fitted.answer(searched(queries, gallery, labels, distance))
    classifier = NEDClassifier(
        metric="cosine" if "cosine" in distance else "euclidean",
        head=None,
        unknown_share=unknown_share,
    ).fit(gallery, labels)
    expected = classifier.predict_with_confidence(queries)
    assert [answer.label for answer in found] == expected.labels.tolist()
    confidence = [answer.confidence for answer in found]
    np.testing.assert_allclose(confidence, expected.confidence, rtol=1e-6)
    dense = classifier.predict_posterior(queries)
    for row, answer in enumerate(found):
        entries = slice(dense.indptr[row], dense.indptr[row + 1])
        names = classifier.classes_[dense.codes[entries]].tolist()
        assert set(answer.probabilities) == set(names)
        own = [answer.probabilities[name] for name in names]
        np.testing.assert_allclose(own, dense.probabilities[entries], rtol=1e-5, atol=1e-12)
    verdicts = None if expected.verdicts is None else expected.verdicts.tolist()
    assert [answer.verdict for answer in found] == (verdicts or [None] * len(found))
    threshold = classifier.accept_threshold(precision=0.8)
    assert fitted.accept is not None
    assert fitted.accept.threshold == pytest.approx(threshold.threshold, rel=1e-6)


def fitted_hits(**options: float) -> HitConfidence:
    gallery, labels = drawn(120, seed=0)
    lists = searched(gallery, gallery, labels, "l2")
    return fit_hits(lists, item_ids(120), labels.tolist(), distance="l2", **options)  # type: ignore[arg-type]


def test_a_query_without_hits() -> None:
    near = [Hit("item-000", "ant", 0.1)]
    nothing, something = fitted_hits(unknown_share=0.1).answer([[], near])
    assert nothing == (None, 0.0, {}, "unknown")
    assert something.label == "ant"
    assert fitted_hits().answer([[]])[0].verdict is None


def test_the_order_of_items_and_of_hits_says_nothing() -> None:
    gallery, labels = drawn(120, seed=0)
    queries, _ = drawn(9, seed=2)
    lists = searched(gallery, gallery, labels, "l2")
    rows = np.random.default_rng(0).permutation(120)
    other = fit_hits(
        [lists[row][::-1] for row in rows],
        [item_ids(120)[row] for row in rows],
        labels[rows].tolist(),
        distance="l2",
        unknown_share=0.1,
    )
    asked = searched(queries, gallery, labels, "l2")
    answers = other.answer([own[::-1] for own in asked])
    assert answers == fitted_hits(unknown_share=0.1).answer(asked)


def test_ids_that_are_not_those_of_the_hits() -> None:
    gallery, labels = drawn(60, seed=0)
    lists = searched(gallery, gallery, labels, "l2")
    with pytest.raises(InvalidInputError, match="Only 0 of 60 were"):
        fit_hits(lists, [f"other-{i}" for i in range(60)], labels.tolist(), distance="l2")
    with pytest.raises(InvalidInputError, match="59 ids"):
        fit_hits(lists, item_ids(59), labels.tolist(), distance="l2")
    with pytest.raises(InvalidInputError, match=r"\(1 distinct\)"):
        fit_hits(lists, ["item-000"] * 60, labels.tolist(), distance="l2")
    with pytest.raises(InvalidInputError, match="distance must be one of 'squared_l2'"):
        fit_hits(lists, item_ids(60), labels.tolist(), distance="cosine")  # type: ignore[arg-type]


def test_a_label_that_came_later() -> None:
    with pytest.raises(InvalidInputError, match=r"Got 'gnu', too: fit again"):
        fitted_hits().answer([[Hit("item-500", "gnu", 0.5)]])
