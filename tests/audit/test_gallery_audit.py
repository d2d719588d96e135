"""The audit as a whole: the four findings together, and in print."""

import numpy as np
import pytest
from made_galleries import blobs, leave_one_out_neighbors

from nearsure import Neighbors
from nearsure.audit import (
    GalleryAudit,
    audit,
    confusable_classes,
    near_duplicates_across_classes,
    small_classes,
    suspect_labels,
)
from nearsure.errors import InvalidInputError


@pytest.fixture(scope="module")
def gallery() -> tuple[Neighbors, list[int]]:
    vectors, codes = blobs(n_classes=5, per_class=12, spread=0.5, seed=0)
    vectors[3] = vectors[40]
    return leave_one_out_neighbors(vectors, codes, 8), codes.tolist()


def test_audit_holds_the_four_findings(gallery: tuple[Neighbors, list[int]]) -> None:
    neighbors, codes = gallery
    found = audit(
        neighbors,
        codes,
        temperature=1.0,
        second_hand=0.1,
        relative_threshold=0.5,
        min_members=20,
        max_miss_share=0.9,
    )
    suspects = suspect_labels(neighbors, codes, temperature=1.0, second_hand=0.1)
    np.testing.assert_array_equal(found.suspects.trust, suspects.trust)
    pairs = near_duplicates_across_classes(neighbors, codes, relative_threshold=0.5)
    assert found.duplicates.threshold == pairs.threshold
    np.testing.assert_array_equal(found.duplicates.ids, pairs.ids)
    confusable = confusable_classes(neighbors, codes, temperature=1.0)
    np.testing.assert_array_equal(found.confusable.confusion, confusable.confusion)
    small = small_classes(neighbors, codes, temperature=1.0, min_members=20, max_miss_share=0.9)
    np.testing.assert_array_equal(found.small.codes, small.codes)
    assert (found.n_points, found.n_classes, len(found.small)) == (60, 5, 5)


def named(gallery: tuple[Neighbors, list[int]], n_rows: int) -> tuple[GalleryAudit, list[str]]:
    neighbors, codes = gallery
    found = audit(neighbors, codes, temperature=1.0, min_members=20)
    names = ["owl", "wren", "rook", "kite", "dove"]
    return found, found.to_text(n_rows=n_rows, class_names=names).splitlines()


def test_text_names_the_classes_and_shows_so_many_rows(
    gallery: tuple[Neighbors, list[int]],
) -> None:
    found, lines = named(gallery, 2)
    assert lines[0] == "60 points in 5 classes"
    titles = [line for line in lines if not line.startswith(" ")]
    assert titles == [
        "60 points in 5 classes",
        f"labels believed less than another: {found.suspects.n_doubted}",
        "nearly identical points labelled differently: 1 pairs",
        f"classes that claim something of each other: {len(found.confusable)} pairs",
        "classes too small, or that miss themselves: 5",
    ]
    # Four headers, two rows a table, but there is only one pair.
    assert len(lines) == 5 + 4 + 2 + 1 + 2 + 2
    worst = lines[3].split()
    assert worst[0] == str(found.suspects.ids[0])
    assert float(worst[2]) == pytest.approx(100 * found.suspects.p_own[0], abs=0.05)
    assert "3   owl    40  kite   0" in "\n".join(lines)


def test_text_without_rows_is_the_counts(gallery: tuple[Neighbors, list[int]]) -> None:
    assert len(named(gallery, 0)[1]) == 5


def test_text_of_one_class() -> None:
    neighbors = Neighbors([[1.0], [1.0]], [[0], [0]], ids=[[1], [0]])
    text = audit(neighbors, [0, 0], temperature=1.0, min_members=1).to_text()
    assert text.splitlines() == [
        "2 points in 1 classes",
        "labels believed less than another: 0",
        "  id  label  p %    suggested  p %",
        "  0   0      100.0  -            0.0",
        "  1   0      100.0  -            0.0",
        "nearly identical points labelled differently: 0 pairs",
        "classes that claim something of each other: 0 pairs",
        "classes too small, or that miss themselves: 0",
    ]


def test_bad_print_options_are_refused(gallery: tuple[Neighbors, list[int]]) -> None:
    found = audit(*gallery, temperature=1.0)
    with pytest.raises(InvalidInputError, match="n_rows must not be negative"):
        found.to_text(n_rows=-1)
    with pytest.raises(InvalidInputError, match=r"must name all 5 class codes\. Got 1 names"):
        found.to_text(class_names=["owl"])
