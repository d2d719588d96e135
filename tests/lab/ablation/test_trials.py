"""Who is gallery and who asks."""

import numpy as np
import pytest
from small_ablation import points

from nearsure.index import ExactIndex
from nearsure.lab.ablation.trials import Labelled, Trial, half_trial, scarce_trial
from nearsure.lab.protocols import gallery_and_queries


def test_a_half_split_is_the_strict_protocol() -> None:
    data = points()
    gallery, queries = half_trial("own", data, seed=3).searched(20)
    expected = gallery_and_queries(data.vectors, data.codes, k=30, seed=3)
    for found, wanted in (
        (gallery.own.neighbors, expected.own.first(20)),
        (queries.neighbors, expected.queries.first(20)),
    ):
        np.testing.assert_array_equal(found.ids, wanted.ids)
        np.testing.assert_array_equal(found.sq_distances, wanted.sq_distances)
    np.testing.assert_array_equal(gallery.codes, expected.own_codes)


def test_all_against_others_never_finds_the_point_itself() -> None:
    gallery, queries = Trial("own", "all", 0, points(), None).searched(10)
    ids = np.asarray(queries.neighbors.ids)
    assert not (ids == np.arange(len(ids))[:, None]).any()
    assert queries.neighbors is not None
    assert len(gallery.codes) == len(ids)


def test_scarce_galleries_have_few_members_and_queries_in_proportion() -> None:
    data = points(n_classes=60, n_each=30)
    drawn = [scarce_trial("own", data, seed) for seed in range(20)]
    members, asked = (
        np.array([np.bincount(codes, minlength=60) for codes in parts])
        for parts in zip(*((t.gallery.codes, t.asking.codes) for t in drawn), strict=True)
    )
    assert set(np.unique(members)) == set(range(2, 13))
    # 18 of 30 are left where 12 are taken: a query and a half for each member.
    np.testing.assert_allclose(asked / members, 1.5, atol=0.5)
    for size in range(2, 13):
        assert asked[members == size].mean() == pytest.approx(1.5 * size, abs=0.2)


def test_a_scarce_query_is_in_no_gallery() -> None:
    data = points(n_each=12)
    trial = scarce_trial("own", data, 0)
    index = ExactIndex(trial.gallery.vectors)
    assert (index.search(trial.asking.vectors, 1)[0] > 0).all()
    assert (np.bincount(trial.gallery.codes, minlength=8) >= 2).all()


def test_keys_tell_data_apart() -> None:
    data = points()
    other = Labelled(data.vectors.copy(), data.codes)
    assert other.key == data.key
    other.vectors[0, 0] += 1e-9
    assert other.key != data.key
    assert Labelled(data.vectors, data.codes[::-1]).key != data.key
