import numpy as np
import pytest
from drifting_queries import K, MadeGallery, made_gallery, scored

from nearsure.drift import Evidence, QueryDrift, compare_queries, gather_evidence
from nearsure.errors import InvalidInputError
from nearsure.neighbors import Neighbors


@pytest.fixture(scope="module")
def gallery() -> MadeGallery:
    return made_gallery(1500)


def compared(gallery: MadeGallery, queries: Neighbors, *, alarm_level: float = 0.01) -> QueryDrift:
    return compare_queries(
        gallery.own,
        scored(gallery.own),
        gallery.codes,
        queries,
        scored(queries),
        alarm_level=alarm_level,
        n_resamples=20,
    )


def test_false_alarms_over_galleries_are_no_more_than_the_level() -> None:
    # New galleries, too: the points of one share neighbours, and its queries share the gallery.
    n_draws, level = 150, 0.1
    alarms = 0
    for seed in range(n_draws):
        gallery = made_gallery(400, seed)
        own = gather_evidence(gallery.own, scored(gallery.own))
        queries, _ = gallery.queries(120, seed)
        found = compare_queries(
            gallery.own,
            scored(gallery.own),
            gallery.codes,
            queries,
            scored(queries),
            alarm_level=level,
            smallest_gap=0.001,
            n_resamples=1,
        )
        assert found.confidence.n_own == len(own)
        alarms += found.alarm
    # Three standard errors above the level.
    assert alarms / n_draws <= level + 3 * np.sqrt(level * (1 - level) / n_draws)


def test_damaged_queries_alarm_and_are_said_to_be_farther_and_less_sure(
    gallery: MadeGallery,
) -> None:
    drift = compared(gallery, gallery.queries(200, seed=1, noise=1.5)[0])
    assert drift.confidence.alarm
    assert drift.distance.alarm
    assert drift.confidence.direction < 0 < drift.distance.direction
    assert drift.accuracy.estimate < drift.accuracy.own_accuracy - 0.1


def test_the_distance_sees_what_the_confidence_does_not(gallery: MadeGallery) -> None:
    drift = compared(gallery, gallery.queries(200, seed=2, offset=0.5)[0])
    assert drift.distance.alarm
    assert not drift.confidence.alarm
    assert drift.alarm


def test_queries_that_are_suspiciously_near_and_sure_alarm_too(gallery: MadeGallery) -> None:
    close = Neighbors(0.1 * gallery.own.sq_distances, gallery.own.labels)
    drift = compare_queries(
        gallery.own, scored(gallery.own), gallery.codes, close, scored(gallery.own), n_resamples=5
    )
    assert drift.alarm
    assert drift.distance.direction < 0


def test_queries_like_the_gallery_raise_no_alarm_and_are_as_accurate(
    gallery: MadeGallery,
) -> None:
    queries, codes = gallery.queries(800, seed=3)
    drift = compared(gallery, queries)
    assert not drift.alarm
    truth = np.mean(scored(queries).labels == codes)
    assert drift.accuracy.thresholded.estimate == pytest.approx(truth, abs=0.05)


def test_each_test_has_half_of_the_level(gallery: MadeGallery) -> None:
    drift = compared(gallery, gallery.queries(100, seed=4)[0], alarm_level=0.04)
    assert drift.confidence.level == drift.distance.level == 0.02


def test_names_of_classes_do_not_matter(gallery: MadeGallery) -> None:
    queries, _ = gallery.queries(100, seed=5, noise=1.0)
    renamed = np.random.default_rng(0).permutation(gallery.codes.max() + 1)

    def other(neighbors: Neighbors) -> Neighbors:
        return Neighbors(neighbors.sq_distances, renamed[neighbors.labels])

    own, theirs = other(gallery.own), other(queries)
    again = compare_queries(
        own, scored(own), renamed[gallery.codes], theirs, scored(theirs), n_resamples=20
    )
    assert again == compared(gallery, queries)


def test_evidence_of_points_without_neighbours() -> None:
    neighbors = Neighbors([[1.0, 4.0], [0.0, 0.0]], [[0, 0], [0, 0]], counts=[2, 0])
    evidence = gather_evidence(neighbors, scored(neighbors, "knn"))
    assert evidence.confidence.tolist() == [1.0, 0.0]
    assert evidence.certainty.tolist() == [0.0, -np.inf]
    assert evidence.distance.tolist() == [1.0, np.inf]


def test_the_text_says_what_was_found(gallery: MadeGallery) -> None:
    drift = compared(gallery, gallery.queries(200, seed=6, noise=2.0)[0])
    text = drift.to_text()
    assert text.startswith("200 queries beside 1500 gallery points: ALARM")
    for part in (
        "confidence          lower",
        "distance            farther",
        f"estimated accuracy  {100 * drift.accuracy.estimate:.1f}%",
        f"gallery points {100 * drift.accuracy.own_accuracy:.1f}%",
        "An estimate, not a measurement",
    ):
        assert part in text
    calm = compared(gallery, gallery.queries(200, seed=7)[0])
    assert "no alarm below a gap of 0.1" in calm.to_text()
    assert calm.to_text().splitlines()[0].endswith("no alarm")


def test_another_k_is_refused_with_the_remedy(gallery: MadeGallery) -> None:
    queries = gallery.queries(50, seed=8)[0].first(5)
    with pytest.raises(InvalidInputError, match=rf"k = {K} and 5 instead: cut both with first\(5"):
        compared(gallery, queries)


def test_too_few_queries_are_refused(gallery: MadeGallery) -> None:
    with pytest.raises(InvalidInputError, match=r"at least 30.*\(7,\)"):
        compared(gallery, gallery.queries(7, seed=9)[0])


def test_codes_and_posteriors_must_be_of_these_points(gallery: MadeGallery) -> None:
    own, posterior = gallery.own, scored(gallery.own)
    queries, _ = gallery.queries(50, seed=10)
    theirs = scored(queries)
    with pytest.raises(InvalidInputError, match=r"'own_codes'.*1500"):
        compare_queries(own, posterior, gallery.codes[1:], queries, theirs)
    with pytest.raises(InvalidInputError, match="Got 50 and 1500 points"):
        compare_queries(own, posterior, gallery.codes, queries, posterior)
    with pytest.raises(InvalidInputError, match="same order"):
        compare_queries(own, posterior, gallery.codes, queries, theirs.take(np.arange(50)[::-1]))
    with pytest.raises(InvalidInputError, match="alarm_level"):
        compared(gallery, queries, alarm_level=0.0)
    with pytest.raises(InvalidInputError, match=r"\(3,\), \(2,\) and \(3,\)"):
        Evidence(np.ones(3), np.ones(2), np.ones(3))
