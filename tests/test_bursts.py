"""Near-copies within a class: made ones are found, real galleries without any are left alone."""

import warnings
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from sklearn.datasets import load_digits

import reference_data
from nearsure import NEDClassifier, score
from nearsure.arrays import AnyArray, IntArray
from nearsure.bursts import (
    Bursts,
    draw_one_per_group,
    find_bursts,
    group_near_copies,
    leave_near_copies_out,
)
from nearsure.classifier.rule import self_search, self_search_with_more
from nearsure.engines.sqlite import SqliteEngine
from nearsure.errors import InvalidInputError, ModelFileError, NearCopiesWarning
from nearsure.gallery import Gallery
from nearsure.index import ExactIndex
from nearsure.loo import search_leaving_one_out
from nearsure.neighbors import Neighbors

# Made bursts are right about each other without any exception.
pytestmark = pytest.mark.filterwarnings("ignore::nearsure.errors.DegenerateTemperatureWarning")


def smooth_classes(n: int = 600, n_classes: int = 6, *, seed: int = 0) -> tuple[AnyArray, IntArray]:
    """Gaussian classes that overlap a little."""
    rng = np.random.default_rng(seed)
    codes = np.arange(n) % n_classes
    return 3.0 * rng.normal(size=(n_classes, 8))[codes] / 2 + rng.normal(size=(n, 8)), codes


def with_bursts(
    points: AnyArray, codes: IntArray, *, size: int = 4, jitter: float = 0.05, seed: int = 0
) -> tuple[AnyArray, IntArray, IntArray]:
    """Each point as several that differ a little; the last array says from which point."""
    origin = np.repeat(np.arange(len(codes)), size)
    noise = jitter * np.random.default_rng(seed).normal(size=(len(origin), points.shape[1]))
    return points[origin] + noise, codes[origin], origin


def walks(n_classes: int = 5, n_walks: int = 8, n_steps: int = 10) -> tuple[AnyArray, IntArray]:
    """Frames of films: each near to the next, the last far from the first."""
    rng = np.random.default_rng(1)
    starts, codes = smooth_classes(n_classes * n_walks, n_classes)
    steps = 0.2 * rng.normal(size=(len(codes), n_steps, 8))
    return (starts[:, None] + steps.cumsum(axis=1)).reshape(-1, 8), np.repeat(codes, n_steps)


def search_all(points: AnyArray, codes: IntArray, k: int = 200) -> Neighbors:
    return search_leaving_one_out(ExactIndex(points), points, np.arange(len(codes)), codes, k=k)


def fit_quietly(points: AnyArray, codes: IntArray, **options: object) -> NEDClassifier:
    with warnings.catch_warnings():
        warnings.simplefilter("error", NearCopiesWarning)
        return NEDClassifier(**options).fit(points, codes)  # type: ignore[arg-type]


def test_points_beyond_a_sample_are_joined_to_their_near_copies_in_it() -> None:
    points, codes, origin = with_bursts(*smooth_classes())
    shuffled = np.random.default_rng(0).permutation(len(codes))
    points, codes, origin = points[shuffled], codes[shuffled], origin[shuffled]
    everyone, sizes = search_all(points, codes), np.bincount(codes)
    some = np.arange(0, len(codes), 3)
    names = 10 + np.arange(len(codes))
    found = Neighbors(everyone.sq_distances, everyone.labels, np.asarray(everyone.ids) + 10)
    groups = group_near_copies(
        found.take(some), codes[some], names[some], class_sizes=sizes, among=names
    )
    assert groups.shape == codes.shape
    # A burst with a point in the sample is one group.
    with_one = np.isin(origin, origin[some])
    n_bursts = len(np.unique(origin[with_one]))
    assert len(np.unique(np.stack([groups, origin])[:, with_one], axis=1).T) == n_bursts
    # Nothing says which of the others belong together.
    assert (np.bincount(groups)[groups[~with_one]] == 1).mean() > 0.9


def test_near_copies_are_left_out_of_the_neighbours() -> None:
    points, codes, _ = with_bursts(*smooth_classes())
    found, rows = search_all(points, codes), np.arange(len(codes))
    sizes = np.bincount(codes)
    groups = group_near_copies(found, codes, rows, class_sizes=sizes)
    left = leave_near_copies_out(found, codes, rows, class_sizes=sizes)
    for row, ids, count in zip(rows, np.asarray(left.ids), left.counts, strict=True):
        everyone = np.asarray(found.ids)[row]
        assert ids[:count].tolist() == everyone[groups[everyone] != groups[row]].tolist()
        assert count < found.k


@pytest.mark.parametrize("head", ["means", "logistic"])
def test_near_copies_are_left_out_of_a_head_together(head: Literal["means", "logistic"]) -> None:
    # Each point is a burst, and its class is nearly a matter of chance.
    rng = np.random.default_rng(0)
    codes = np.arange(300) % 6
    points, codes, origin = with_bursts(
        0.3 * rng.normal(size=(6, 40))[codes] + rng.normal(size=(300, 40)), codes
    )
    classifier = NEDClassifier(head=head)
    with pytest.warns(NearCopiesWarning):
        classifier.fit(points, codes)
    fitted = classifier._fit.gallery.head
    assert fitted is not None
    folds = fitted.seen_folds
    assert all(len(np.unique(folds[origin == burst])) == 1 for burst in range(300))


@pytest.mark.parametrize("jitter", [0.0, 0.05, 0.1])
def test_groups_are_the_bursts(jitter: float) -> None:
    points, codes, origin = with_bursts(*smooth_classes(), jitter=jitter)
    groups = group_near_copies(
        search_all(points, codes), codes, np.arange(len(codes)), class_sizes=np.bincount(codes)
    )
    # No burst is torn apart, and hardly any two are joined.
    n_pairs = np.unique(np.stack([groups, origin]), axis=1).shape[1]
    assert n_pairs == len(np.unique(origin))
    assert len(np.unique(groups)) > 0.97 * n_pairs


def test_accuracies_are_those_of_a_naive_leave_out() -> None:
    points, codes, origin = with_bursts(*smooth_classes(200), jitter=0.02)
    sizes = np.bincount(codes)
    found = find_bursts(
        search_all(points, codes),
        codes,
        np.arange(len(codes)),
        class_sizes=sizes,
        score=lambda own: score(own, rule="1nn"),
        k=50,
    )
    right = []
    for point, code, own in zip(points, codes, origin, strict=True):
        others = origin != own
        nearest = ((points[others] - point) ** 2).sum(axis=1).argmin()
        right.append(codes[others][nearest] == code)
    assert found.accuracies[-1] == pytest.approx(np.mean(right))
    assert found.share_with_copies == 1.0
    assert found.suspicious


@pytest.mark.parametrize("made", ["jittered", "copies", "walks"])
def test_a_fit_warns_of_made_bursts_with_both_numbers(made: str) -> None:
    if made == "walks":
        points, codes = walks()
    else:
        points, codes, _ = with_bursts(*smooth_classes(300), jitter=0.1 * (made == "jittered"))
    with pytest.warns(NearCopiesWarning, match=r"% right if each point is left out alone, .*%"):
        classifier = NEDClassifier().fit(points, codes)
    found = classifier.bursts_
    assert found is not None
    assert found.suspicious
    assert found.own_accuracy - found.accuracies[-1] > 0.02
    assert not found.grouped


def test_a_sample_of_a_gallery_shows_its_bursts() -> None:
    points, codes, _ = with_bursts(*smooth_classes(600))
    with pytest.warns(NearCopiesWarning):
        NEDClassifier(max_fit_samples=400).fit(points, codes)


def test_bursts_in_an_engine_are_found_among_k_neighbours(tmp_path: Path) -> None:
    points, codes, _ = with_bursts(*smooth_classes(200))
    with SqliteEngine.create(tmp_path / "gallery.sqlite", dimension=8) as engine:
        engine.add(points, (np.arange(len(codes)) + 7).astype(str), codes.astype(str))
        with pytest.warns(NearCopiesWarning):
            NEDClassifier(engine=engine).fit_engine()
        classifier = NEDClassifier(engine=engine).fit_engine(groups="auto")
        assert classifier.bursts_ is not None
        assert classifier.bursts_.grouped


@pytest.mark.parametrize("n_dimensions", [1, 2, 4, 8, 64])
def test_smooth_classes_are_not_suspicious(n_dimensions: int) -> None:
    for seed in range(3):
        rng = np.random.default_rng(seed)
        codes = np.arange(1000) % 10
        points = 2.0 * rng.normal(size=(10, n_dimensions))[codes]
        fit_quietly(points + rng.normal(size=points.shape), codes)


@pytest.mark.parametrize("size", [2, 3, 5])
def test_small_classes_are_not_suspicious(size: int) -> None:
    rng = np.random.default_rng(0)
    codes = np.repeat(np.arange(200), size)
    fit_quietly(2.0 * rng.normal(size=(200, 16))[codes] + rng.normal(size=(len(codes), 16)), codes)


def test_digits_are_not_suspicious() -> None:
    fit_quietly(*load_digits(return_X_y=True))


@pytest.mark.parametrize("name", ["hwu64_minilm", "clinc150_minilm", "cub200_unseen_embeddings"])
def test_real_galleries_are_not_suspicious(name: str) -> None:
    file = reference_data.load(f"{name}.npz")
    vectors, labels = next(
        (file[own], file[label])
        for own, label in (("x", "y"), ("train_x", "train_y"), ("embeddings", "labels"))
        if own in file
    )
    some = np.random.default_rng(0).permutation(len(labels))[:3000]
    points = vectors[some].astype(np.float32)
    for options in ({}, {"max_fit_samples": 1500}):
        auto = NEDClassifier(**options).fit(points, labels[some], groups="auto")  # type: ignore[arg-type]
        assert auto.bursts_ is not None
        assert not auto.bursts_.suspicious
        plain = fit_quietly(points, labels[some], **options)
        assert np.array_equal(
            plain.leave_one_out_posterior().probabilities,
            auto.leave_one_out_posterior().probabilities,
        )


def test_recordings_of_esc50_are_found() -> None:
    file = reference_data.load("esc50_logmel.npz")
    some = file["fold"] != 1
    with pytest.warns(NearCopiesWarning):
        NEDClassifier().fit(file["x"][some], file["y"][some])


def test_auto_groups_do_what_given_ones_do() -> None:
    points, codes, origin = with_bursts(*smooth_classes(300))
    auto = fit_quietly_with_groups(points, codes, "auto")
    given = fit_quietly_with_groups(points, codes, origin)
    assert auto.bursts_ is not None
    assert auto.bursts_.grouped
    same = auto.predict_own().labels == given.predict_own().labels
    assert same.mean() > 0.97


def fit_quietly_with_groups(points: AnyArray, codes: IntArray, groups: object) -> NEDClassifier:
    return NEDClassifier().fit(points, codes, groups)  # type: ignore[arg-type]


def test_auto_groups_survive_a_file_an_addition_and_a_refit(tmp_path: Path) -> None:
    points, codes, _ = with_bursts(*smooth_classes(300))
    classifier = NEDClassifier().fit(points, codes, groups="auto")
    classifier.save(tmp_path / "model")
    loaded = NEDClassifier.load(tmp_path / "model")
    assert loaded.bursts_ == classifier.bursts_
    before = loaded.temperature_
    assert loaded.refit().temperature_ == before
    loaded.add(points[:4] + 1e-3, codes[:4])
    loaded.refit()
    assert loaded.bursts_ is not None
    assert loaded.bursts_.grouped
    assert len(loaded.own_ids()) == len(codes) + 4


def test_a_file_without_the_field_is_read() -> None:
    points, codes = smooth_classes()
    classifier = fit_quietly(points, codes)
    classifier._fit.bursts = None
    loaded = NEDClassifier.from_bytes(classifier.to_bytes())
    assert loaded.bursts_ is None
    assert np.array_equal(loaded.predict_proba(points[:9]), classifier.predict_proba(points[:9]))


def test_a_broken_field_is_refused() -> None:
    with pytest.raises(ModelFileError, match="near-copies"):
        Bursts.from_dict({"own_accuracy": 1.0})


def test_groups_must_be_an_array_or_auto() -> None:
    with pytest.raises(InvalidInputError, match="'groups' parameter"):
        NEDClassifier().fit(*smooth_classes(), groups="bursts")


def test_searching_more_changes_nothing_of_the_fit() -> None:
    points, codes = smooth_classes(3000)
    gallery = Gallery.of_points(points.astype(np.float32), codes)
    ids = np.sort(np.random.default_rng(0).permutation(3000)[:2500])
    plain = self_search(gallery, ids, 50)
    own, rows, more = self_search_with_more(gallery, ids, 50)
    assert len(rows) == 2000
    assert more.k == 200
    assert np.array_equal(own.neighbors.sq_distances, plain.neighbors.sq_distances)
    assert np.array_equal(np.asarray(own.neighbors.ids), np.asarray(plain.neighbors.ids))
    assert np.array_equal(own.factors, plain.factors)


def test_one_point_of_each_group_is_drawn() -> None:
    groups = np.random.default_rng(0).integers(0, 30, 200)
    drawn = draw_one_per_group(groups, seed=1)
    assert sorted(groups[drawn]) == sorted(set(groups.tolist()))
    assert np.array_equal(drawn, draw_one_per_group(groups, seed=1))
