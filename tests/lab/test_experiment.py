"""Experiments: the protocols that fit, and the same figures with and without a cache."""

from dataclasses import asdict
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from nearsure import NEDClassifier
from nearsure.embedding_files import EmbeddingSet
from nearsure.lab import experiment as module
from nearsure.lab.cache import to_plain
from nearsure.lab.default_rule import DEFAULT, HEADS, NEIGHBORS_ALONE, nearsure_posteriors
from nearsure.lab.evaluation import evaluate
from nearsure.lab.experiment import EvaluationSettings, best_ks, protocol_points, run_experiment
from nearsure.lab.protocols import (
    ProtocolPoints,
    all_against_others,
    gallery_and_queries,
    given_gallery,
)

QUICK = EvaluationSettings(k=10, seed=3, n_resamples=20)


def embeddings(n_per_class: int = 12, seed: int = 0) -> EmbeddingSet:
    rng = np.random.default_rng(seed)
    codes = np.repeat(np.arange(6), n_per_class)
    centres = np.random.default_rng(9).standard_normal((6, 4))
    vectors = centres[codes] + 0.8 * rng.standard_normal((len(codes), 4))
    return EmbeddingSet(vectors.astype(np.float32), np.array(list("abcdef"))[codes])


def test_without_a_gallery_there_are_the_papers_protocol_and_the_strict_one() -> None:
    points = embeddings()
    done = run_experiment("x", points, None, QUICK)
    codes = np.unique(points.labels, return_inverse=True)[1]
    expected = {
        "all_against_others": all_against_others(points.vectors, codes, k=71),
        "gallery_and_queries": gallery_and_queries(points.vectors, codes, k=35, seed=3),
    }
    assert done.evaluations.keys() == done.sweeps.keys() == expected.keys()
    for protocol, evaluation in done.evaluations.items():
        others = partial(nearsure_posteriors, protocol_points(points, None, QUICK)[protocol])
        plain = evaluate(expected[protocol], k=10, seed=3, n_resamples=20, others=others)
        assert to_plain(evaluation) == to_plain(plain)
    assert {name: sweep.ks for name, sweep in done.sweeps.items()} == {
        "all_against_others": (10, 20, 50),
        "gallery_and_queries": (10, 20),
    }


def test_with_a_gallery_there_is_that_one_alone() -> None:
    queries, gallery = embeddings(5, seed=1), embeddings()
    done = run_experiment("x", queries, gallery, QUICK)
    assert tuple(done.evaluations) == ("given_gallery",)
    codes = [np.unique(points.labels, return_inverse=True)[1] for points in (gallery, queries)]
    found = given_gallery(gallery.vectors, codes[0], queries.vectors, codes[1], k=71)
    others = partial(
        nearsure_posteriors, ProtocolPoints(gallery.vectors, codes[0], queries.vectors)
    )
    plain = evaluate(found, k=10, seed=3, n_resamples=20, others=others)
    assert to_plain(done.evaluations["given_gallery"]) == to_plain(plain)


@pytest.mark.parametrize("with_gallery", [True, False])
def test_cached_equals_uncached(tmp_path: Path, *, with_gallery: bool) -> None:
    queries, gallery = embeddings(5, seed=1), embeddings() if with_gallery else None
    plain = run_experiment("x", queries, gallery, QUICK)
    for _ in range(2):
        cached = run_experiment("x", queries, gallery, QUICK, cache=tmp_path, key="these")
        assert cached.sweeps == plain.sweeps
        for protocol, evaluation in plain.evaluations.items():
            assert to_plain(cached.evaluations[protocol]) == to_plain(evaluation)


def test_what_is_cached_is_not_computed_and_what_depends_on_more_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    points = embeddings()
    first = run_experiment("x", points, None, QUICK, cache=tmp_path, key="these")
    with monkeypatch.context() as patch:
        for name in ("evaluate", "temperature_and_k_sweep", "all_against_others"):
            patch.setattr(module, name, None)
        again = run_experiment("x", points, None, QUICK, cache=tmp_path, key="these")
    assert again.to_dict()["evaluations"] == first.to_dict()["evaluations"]
    other = EvaluationSettings(**(asdict(QUICK) | {"k": 5}))
    changed = run_experiment("x", points, None, other, cache=tmp_path, key="these")
    assert changed.evaluations["all_against_others"].k == 5
    others = run_experiment("x", embeddings(seed=5), None, QUICK, cache=tmp_path, key="others")
    assert others.sweeps != first.sweeps


def test_k_may_exceed_what_the_curves_show_but_not_the_points_there_are() -> None:
    points = embeddings()
    wide = EvaluationSettings(k=30, k_most=12, n_resamples=10)
    done = run_experiment("x", points, None, wide)
    assert {evaluation.k for evaluation in done.evaluations.values()} == {30}
    most = run_experiment("x", points, None, EvaluationSettings(k=500, n_resamples=10))
    assert [evaluation.k for evaluation in most.evaluations.values()] == [71, 35]


def test_details_come_first_in_the_json() -> None:
    done = run_experiment("x", embeddings(), None, QUICK, details={"settings": {"seed": 1}})
    assert list(done.to_dict()) == ["settings", "evaluations", "sweeps"]


def test_the_default_is_the_classifier_as_it_comes() -> None:
    points = embeddings()
    done = run_experiment("x", points, None, QUICK)
    codes = np.unique(points.labels, return_inverse=True)[1]
    strict = gallery_and_queries(points.vectors, codes, k=10, seed=3)
    asked = protocol_points(points, None, QUICK)["gallery_and_queries"]
    np.testing.assert_array_equal(asked.codes, strict.own_codes)
    assert asked.queries is not None
    for name, head in HEADS.items():
        fitted = NEDClassifier(n_neighbors=10, head=head).fit(asked.vectors, asked.codes)
        right = (fitted.predict(asked.queries) == strict.query_codes).mean()
        found = done.evaluations["gallery_and_queries"].result_of(name)
        assert found.accuracy.estimate == right
        # Where every point asks all others, its answer is that of a gallery without it.
        whole = NEDClassifier(n_neighbors=10, head=head).fit(points.vectors, codes)
        own = (whole.predict_own(np.arange(len(codes))).labels == codes).mean()
        assert done.evaluations["all_against_others"].result_of(name).accuracy.estimate == own


def test_each_rule_has_its_best_k_on_seen_classes(tmp_path: Path) -> None:
    seen = embeddings(20, seed=7)
    found = best_ks(lambda: seen, QUICK)
    codes = np.unique(seen.labels, return_inverse=True)[1]
    curve = evaluate(
        all_against_others(seen.vectors, codes, k=119), k=10, seed=0, n_resamples=5
    ).curve
    for rule in ("knn", "dudani", "gou", "ned"):
        right = curve.accuracy[rule]
        assert right[curve.ks.index(found[rule])] == max(right)
    assert {NEIGHBORS_ALONE, DEFAULT} <= found.keys()
    for _ in range(2):
        done = run_experiment(
            "x", embeddings(), None, QUICK, seen=lambda: seen, cache=tmp_path, key="these"
        )
        for evaluation in done.evaluations.values():
            assert evaluation.seen_ks == found
