"""NEDClassifier: what a user calls, and what a user gets wrong."""

import datetime as dt
import math
import os
from typing import Any, TypeAlias, cast

import faiss
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_info, threadpool_limits

from nearsure import NEDClassifier, fit_temperature
from nearsure.arrays import AnyArray, FloatArray, IntArray
from nearsure.classifier import results
from nearsure.errors import DenseResultTooLargeError, InvalidInputError
from nearsure.index import ExactIndex
from nearsure.loo import search_leaving_one_out
from nearsure.rules import RuleName

# Queries here are drawn otherwise than the gallery.
pytestmark = pytest.mark.filterwarnings("ignore::nearsure.errors.QueriesDifferWarning")

# scipy 1.14.1 to 1.16.1 bring OpenBLAS 0.3.28, which crashes with more threads than cores.
IS_FRAGILE = any(library["version"] == "0.3.28" for library in threadpool_info())
MOST_THREADS = (os.cpu_count() or 1) if IS_FRAGILE else 4

Split: TypeAlias = tuple[FloatArray, IntArray, FloatArray, IntArray]


@pytest.fixture(scope="module")
def digits() -> Split:
    Z, y = load_digits(return_X_y=True)
    return Z[:1000], y[:1000], Z[1000:], y[1000:]


def small_gallery(seed: int = 0) -> tuple[FloatArray, IntArray]:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, 120)
    return rng.normal(size=(3, 5))[labels] + rng.normal(size=(120, 5)), labels


class TestPredictions:
    def test_one_search_gives_labels_confidence_and_evidence(self, digits: Split) -> None:
        Z, y, Q, truth = digits
        fitted = NEDClassifier().fit(Z, y)
        prediction = fitted.predict_with_confidence(Q)
        assert (prediction.labels == truth).mean() > 0.95
        np.testing.assert_array_equal(prediction.labels, fitted.predict(Q))
        probabilities = fitted.predict_proba(Q)
        np.testing.assert_allclose(prediction.confidence, probabilities.max(axis=1))
        np.testing.assert_allclose(probabilities.sum(axis=1), 1.0)
        posterior = fitted.predict_posterior(Q)
        entries = posterior.rows, posterior.codes
        np.testing.assert_allclose(posterior.probabilities, probabilities[entries], atol=1e-12)
        evidence = prediction.neighbors
        np.testing.assert_array_equal(y[evidence.ids], fitted.classes_[evidence.labels])
        exact = np.square(Q[:, None] - Z[np.asarray(evidence.ids)]).sum(axis=2)
        np.testing.assert_array_equal(evidence.sq_distances, exact)

    @pytest.mark.parametrize("rule", ["knn", "dudani", "gou", "ned"])
    def test_agrees_with_scikit_learn_under_the_same_weights(
        self, digits: Split, rule: RuleName
    ) -> None:
        Z, y, Q, _ = digits
        Z = Z + 1e-3 * np.random.default_rng(0).normal(size=Z.shape)  # no tied distances
        fitted = NEDClassifier(n_neighbors=12, rule=rule).fit(Z, y)

        def weights(d: FloatArray) -> FloatArray:
            near, far = d[:, :1], d[:, -1:]
            if rule == "ned":
                return np.exp(-(d**2) / float(fitted.temperature_ or 0))
            if rule == "knn":
                return np.ones_like(d)
            dudani = (far - d) / (far - near)
            return dudani if rule == "dudani" else dudani * (far + near) / (far + d)

        oracle = KNeighborsClassifier(12, weights=weights).fit(Z, y)
        np.testing.assert_allclose(fitted.predict_proba(Q), oracle.predict_proba(Q), atol=1e-9)

    def test_cosine_is_euclidean_on_unit_vectors(self, digits: Split) -> None:
        Z, y, Q, _ = digits
        by_cosine = NEDClassifier(metric="cosine").fit(Z, y)
        unit = NEDClassifier().fit(Z / np.linalg.norm(Z, axis=1, keepdims=True), y)
        np.testing.assert_allclose(
            by_cosine.predict_proba(7.0 * Q),
            unit.predict_proba(Q / np.linalg.norm(Q, axis=1, keepdims=True)),
            atol=1e-9,
        )

    def test_kneighbors_are_squared_distances_of_as_many_as_asked(self, digits: Split) -> None:
        Z, y, Q, _ = digits
        neighbors = NEDClassifier().fit(Z, y).kneighbors(Q[:3], n_neighbors=7)
        expected = KNeighborsClassifier(7).fit(Z, y).kneighbors(Q[:3])[0] ** 2
        np.testing.assert_allclose(neighbors.sq_distances, expected)

    def test_leave_one_out_posterior_is_that_of_the_fit(self) -> None:
        Z, y = small_gallery()
        fitted = NEDClassifier(n_neighbors=10, rule="ned").fit(Z, y)
        assert fitted.temperature_ is not None
        posterior = fitted.leave_one_out_posterior()
        for i in (0, 17, 119):
            others = np.arange(120) != i
            alone = NEDClassifier(n_neighbors=10, temperature=fitted.temperature_)
            expected = alone.fit(Z[others], y[others]).predict_proba(Z[[i]])
            np.testing.assert_allclose(posterior.to_csr().toarray()[[i]], expected)

    @pytest.mark.parametrize("rule", ["1nn", "knn", "dudani", "gou"])
    def test_leave_one_out_posterior_of_rules_without_temperature(self, rule: RuleName) -> None:
        Z, y = small_gallery()
        posterior = NEDClassifier(10, rule=rule).fit(Z, y).leave_one_out_posterior()
        others = np.arange(120) != 7
        alone = NEDClassifier(10, rule=rule).fit(Z[others], y[others]).predict_posterior(Z[[7]])
        np.testing.assert_allclose(
            posterior.to_csr().toarray()[[7]], alone.to_csr().toarray(), atol=1e-12
        )


class TestSameAnswerWhateverTheCircumstances:
    def test_a_common_offset_of_the_data(self, digits: Split) -> None:
        Z, y, Q, _ = digits
        here = NEDClassifier().fit(Z, y)
        there = NEDClassifier().fit(Z + 1000, y)
        assert there.temperature_ == here.temperature_
        np.testing.assert_array_equal(there.predict_proba(Q + 1000), here.predict_proba(Q))

    def test_batch_size(self, digits: Split) -> None:
        Z, y, Q, _ = digits
        fitted = NEDClassifier().fit(Z, y)
        together = fitted.predict_proba(Q[:60])
        for size in (1, 7, 25):
            apart = [fitted.predict_proba(Q[i : min(i + size, 60)]) for i in range(0, 60, size)]
            np.testing.assert_array_equal(np.vstack(apart), together)

    def test_thread_count(self, digits: Split) -> None:
        Z, y, Q, _ = digits
        before = faiss.omp_get_max_threads()
        results = []
        try:
            for threads in (1, 2, 4):
                faiss.omp_set_num_threads(threads)
                with threadpool_limits({"openmp": threads, "blas": min(threads, MOST_THREADS)}):
                    results.append(NEDClassifier().fit(Z, y).predict_proba(Q))
        finally:
            faiss.omp_set_num_threads(before)
        np.testing.assert_array_equal(results[1], results[0])
        np.testing.assert_array_equal(results[2], results[0])

    @pytest.mark.parametrize("dtype", [np.float16, np.float32, np.int32, np.uint8])
    def test_number_types(self, digits: Split, dtype: type) -> None:
        """Digits are small integers, which every type holds exactly."""
        Z, y, Q, _ = digits
        expected = NEDClassifier().fit(Z, y).predict_proba(Q)
        converted = NEDClassifier().fit(Z.astype(dtype), y).predict_proba(Q.astype(dtype))
        np.testing.assert_array_equal(converted, expected)

    def test_read_only_and_strided_arrays_are_taken_and_left_alone(self, digits: Split) -> None:
        Z, y, Q, _ = digits
        wide = np.repeat(Z, 2, axis=1)
        strided, fortran = wide[:, ::2], np.asfortranarray(Q)
        copies = wide.copy(), fortran.copy()
        for array in (wide, strided, fortran):
            array.setflags(write=False)
        result = NEDClassifier(metric="cosine").fit(strided, y).predict_proba(fortran)
        np.testing.assert_array_equal(
            result, NEDClassifier(metric="cosine").fit(Z, y).predict_proba(Q)
        )
        np.testing.assert_array_equal(wide, copies[0])
        np.testing.assert_array_equal(fortran, copies[1])


def naive_ned(
    gallery: AnyArray, codes: IntArray, query: AnyArray, k: int, T: float
) -> dict[int, float]:
    """Algorithm 1 of the paper, in loops; the k nearest by distance, then row number."""
    distances = [
        sum((float(a) - float(b)) ** 2 for a, b in zip(query, z, strict=True)) for z in gallery
    ]
    nearest = sorted(range(len(gallery)), key=lambda i: (distances[i], i))[:k]
    weights = [math.exp(-(distances[i] - distances[nearest[0]]) / T) for i in nearest]
    shares: dict[int, float] = {}
    for i, weight in zip(nearest, weights, strict=True):
        shares[int(codes[i])] = shares.get(int(codes[i]), 0.0) + weight / sum(weights)
    return shares


@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_any_small_gallery_is_scored_as_the_paper_says(data: st.DataObject) -> None:
    """Small integers in every number type: ties and duplicates abound."""
    n, m = data.draw(st.integers(1, 30)), data.draw(st.integers(1, 4))
    k, T = data.draw(st.integers(1, n)), data.draw(st.sampled_from([0.1, 1.0, 30.0]))
    dtype = data.draw(st.sampled_from([np.float16, np.float32, np.float64, np.int8, np.uint16]))
    values = arrays(np.int64, (n + 3, m), elements=st.integers(0, 4))
    gallery, queries = np.split(data.draw(values).astype(dtype), [n])
    labels = data.draw(arrays(np.int64, n, elements=st.integers(0, 3)))
    fitted = NEDClassifier(k, T).fit(gallery, labels)
    probabilities = fitted.predict_proba(queries)
    for query, row in zip(queries, probabilities, strict=True):
        shares = naive_ned(gallery, fitted.encode(labels), query, k, T)
        expected = [shares.get(code, 0.0) for code in range(len(fitted.classes_))]
        np.testing.assert_allclose(row, expected, atol=1e-12)


class TestFit:
    def test_auto_neighbours(self) -> None:
        Z, y = small_gallery()
        assert NEDClassifier().fit(Z, y).n_neighbors_ == 50
        assert NEDClassifier().fit(Z[:30], y[:30]).n_neighbors_ == 29
        assert NEDClassifier(n_neighbors="all").fit(Z, y).n_neighbors_ == 120

    def test_temperature_is_that_of_the_leave_one_out_neighbours(self) -> None:
        Z, y = small_gallery()
        fitted = NEDClassifier(rule="ned").fit(Z, y)
        own = search_leaving_one_out(ExactIndex(Z), Z, np.arange(120), y, k=50)
        assert fitted.temperature_ == fit_temperature(own, y).temperature

    def test_given_temperature_is_used_as_it_is(self) -> None:
        fitted = NEDClassifier(temperature=0.25).fit(*small_gallery())
        assert fitted.temperature_ == 0.25
        assert fitted.temperature_fit_ is None

    @pytest.mark.parametrize("rule", ["1nn", "knn", "dudani", "gou"])
    def test_other_rules_have_no_temperature(self, rule: RuleName) -> None:
        assert NEDClassifier(rule=rule).fit(*small_gallery()).temperature_ is None

    def test_sample_is_seeded_and_of_the_size_asked_for(self) -> None:
        Z, y = small_gallery()
        fits = [NEDClassifier(max_fit_samples=40, random_state=s).fit(Z, y) for s in (0, 0, 1)]
        assert fits[0].temperature_ == fits[1].temperature_ != fits[2].temperature_
        assert len(np.unique(fits[0].fit_indices_)) == 40
        assert len(fits[0].leave_one_out_posterior()) == 40
        assert len(NEDClassifier(max_fit_samples=None).fit(Z, y).fit_indices_) == 120

    @pytest.mark.parametrize(
        "names",
        [
            np.array(["a", "b", "c"]),
            np.array(["a", "b", "c"], object),
            np.array([10, -3, 7]),
            np.array([dt.date(2020, 1, day) for day in (1, 2, 3)]),
        ],
        ids=["strings", "object strings", "integers", "objects that sort"],
    )
    def test_labels_of_any_kind_come_back(self, names: AnyArray) -> None:
        Z, y = small_gallery()
        fitted = NEDClassifier(temperature=1.0).fit(Z, names[y])
        labels = fitted.predict(Z)
        assert labels.dtype == names.dtype
        expected = NEDClassifier(temperature=1.0).fit(Z, y).predict(Z)
        np.testing.assert_array_equal(labels, names[expected])
        np.testing.assert_array_equal(fitted.classes_[fitted.encode(names[y])], names[y])

    def test_codes_of_labels_that_were_never_seen(self) -> None:
        Z, y = small_gallery()
        fitted = NEDClassifier().fit(Z, np.array(["b", "d", "f"])[y])
        assert fitted.encode(["a", "b", "c", "d", "f", "g"]).tolist() == [3, 0, 3, 1, 2, 3]
        never = fitted.predict_posterior(Z).probability_of(fitted.encode(["g"] * 120))
        assert not never.any()
        with pytest.raises(InvalidInputError, match="of the kind that was fitted"):
            NEDClassifier().fit(Z, np.array([1, 2, 3], object)[y]).encode(["a"])

    def test_a_fit_that_fails_leaves_the_old_one(self) -> None:
        Z, y = small_gallery()
        fitted = NEDClassifier().fit(Z, y)
        before = fitted.predict_proba(Z)
        with pytest.raises(InvalidInputError, match="one group for each"):
            fitted.fit(Z[::-1], (y[::-1] + 1) % 3, groups=[1])
        np.testing.assert_array_equal(fitted.predict_proba(Z), before)
        fresh = NEDClassifier()
        with pytest.raises(InvalidInputError, match="one group for each"):
            fresh.fit(Z, y, groups=[1])
        with pytest.raises(NotFittedError):
            fresh.predict(Z)

    def test_parameters_changed_after_fit_wait_for_the_next(self) -> None:
        Z, y = small_gallery()
        fitted = NEDClassifier().fit(Z, y)
        before = fitted.predict_proba(Z)
        fitted.set_params(metric="cosine", rule="knn")
        np.testing.assert_array_equal(fitted.predict_proba(Z), before)

    def test_groups_of_any_kind(self) -> None:
        Z, y = small_gallery()
        numbers = np.arange(120) // 3
        temperature = NEDClassifier().fit(Z, y, groups=numbers).temperature_
        names = np.array([f"burst {number}" for number in numbers])
        mixed = np.array([None if number == 0 else f"burst {number}" for number in numbers])
        for groups in (names, names.tolist(), mixed):
            assert NEDClassifier().fit(Z, y, groups=groups).temperature_ == temperature

    def test_numbers_of_numpy_are_numbers(self) -> None:
        Z, y = small_gallery()
        numbers: dict[str, Any] = {"n_neighbors": np.int64(5), "temperature": np.float32(2)}
        fitted = NEDClassifier(**numbers).fit(Z, y)
        expected = NEDClassifier(5, 2.0).fit(Z, y)
        np.testing.assert_array_equal(fitted.predict_proba(Z), expected.predict_proba(Z))
        assert fitted.kneighbors(Z, n_neighbors=cast("int", np.int64(3))).k == 3

    def test_pipeline_grid_search_and_clone(self) -> None:
        Z, y = small_gallery()
        pipeline = make_pipeline(StandardScaler(), NEDClassifier())
        grid = {"nedclassifier__n_neighbors": [5, 10], "nedclassifier__rule": ["ned", "gou"]}
        search = GridSearchCV(pipeline, grid, cv=2, error_score="raise").fit(Z, y)
        assert search.best_score_ > 0.5
        again = clone(search.best_estimator_).fit(Z, y)
        np.testing.assert_array_equal(again.predict(Z), search.best_estimator_.predict(Z))


class TestBadInput:
    Z, y = small_gallery()

    @pytest.mark.parametrize(
        ("parameters", "message"),
        [
            ({"n_neighbors": 0}, r"n_neighbors must be .* \[1, 120\].* Got 0"),
            ({"n_neighbors": 121}, r"n_neighbors must be .* \[1, 120\].* Got 121"),
            ({"n_neighbors": 2.5}, "n_neighbors must be"),
            ({"n_neighbors": "many"}, "n_neighbors must be"),
            ({"temperature": 0.0}, "temperature must be a finite number > 0"),
            ({"temperature": -1.0}, "temperature must be a finite number > 0"),
            ({"temperature": np.nan}, "temperature must be a finite number > 0"),
            ({"temperature": "warm"}, "temperature must be a finite number > 0"),
            ({"temperature": 1.0, "rule": "knn"}, "temperature must be 'auto' for rule 'knn'"),
            ({"metric": "manhattan"}, "'euclidean', 'cosine'"),
            ({"rule": "3nn"}, "'1nn', 'knn', 'dudani', 'gou', 'ned'"),
            ({"objective": "mse"}, "'nll', 'brier', 'top_label'"),
            ({"max_fit_samples": 0}, "max_fit_samples must be"),
            ({"n_neighbors": True}, "n_neighbors must be"),
            ({"temperature": True}, "temperature must be a finite number > 0"),
            ({"objective": "mse", "temperature": 1.0}, "'nll', 'brier', 'top_label'"),
        ],
    )
    def test_parameters(self, parameters: dict[str, Any], message: str) -> None:
        with pytest.raises(InvalidInputError, match=message):
            NEDClassifier(**parameters).fit(self.Z, self.y)

    @pytest.mark.parametrize("bad", [np.nan, np.inf])
    def test_nan_and_infinity(self, bad: float) -> None:
        broken = self.Z.copy()
        broken[3, 2] = bad
        with pytest.raises(ValueError, match=r"NaN|infinity"):
            NEDClassifier().fit(broken, self.y)
        with pytest.raises(ValueError, match=r"NaN|infinity"):
            NEDClassifier().fit(self.Z, self.y).predict(broken)

    def test_shapes(self) -> None:
        fitted = NEDClassifier().fit(self.Z, self.y)
        with pytest.raises(ValueError, match="4 features, but NEDClassifier is expecting 5"):
            fitted.predict(self.Z[:, :4])
        with pytest.raises(ValueError, match="Expected 2D array, got 1D"):
            fitted.predict(self.Z[0])
        with pytest.raises(ValueError, match="0 sample"):
            fitted.predict(self.Z[:0])
        with pytest.raises(ValueError, match="0 sample"):
            NEDClassifier().fit(self.Z[:0], self.y[:0])
        with pytest.raises(ValueError, match="inconsistent numbers of samples"):
            NEDClassifier().fit(self.Z, self.y[:-1])
        with pytest.raises(InvalidInputError, match="one group for each of the 120"):
            NEDClassifier().fit(self.Z, self.y, groups=[1, 2])
        with pytest.raises(InvalidInputError, match=r"integer in \[1, 120\]"):
            fitted.kneighbors(self.Z, n_neighbors=121)

    def test_zero_vectors_under_cosine(self) -> None:
        broken = self.Z.copy()
        broken[7] = 0
        with pytest.raises(InvalidInputError, match="Row 7 is a zero vector"):
            NEDClassifier(metric="cosine").fit(broken, self.y)
        with pytest.raises(InvalidInputError, match="Row 7 is a zero vector"):
            NEDClassifier(metric="cosine").fit(self.Z, self.y).predict(broken)

    @pytest.mark.parametrize("scale", [1e-200, 1e200])
    def test_cosine_of_vectors_of_any_length(self, scale: float) -> None:
        expected = NEDClassifier(metric="cosine").fit(self.Z, self.y).predict_proba(self.Z)
        fitted = NEDClassifier(metric="cosine").fit(scale * self.Z, self.y)
        np.testing.assert_allclose(fitted.predict_proba(scale * self.Z), expected, atol=1e-9)

    def test_queries_of_absurd_size(self) -> None:
        fitted = NEDClassifier().fit(self.Z, self.y)
        assert np.isfinite(fitted.predict_proba(np.full((2, 5), 1e40))).all()

    def test_labels_that_do_not_sort(self) -> None:
        with pytest.raises(InvalidInputError, match="Labels must sort"):
            NEDClassifier().fit(self.Z, np.array([{"a"}, "b", 3] * 40, object))

    def test_one_support_point(self) -> None:
        with pytest.raises(InvalidInputError, match="n_samples = 1"):
            NEDClassifier().fit(self.Z[:1], self.y[:1])
        lone = NEDClassifier(temperature=1.0).fit(self.Z[:1], self.y[:1])
        assert lone.predict_with_confidence(self.Z).confidence.tolist() == [1.0] * 120

    def test_one_member_in_every_class(self) -> None:
        with pytest.raises(InvalidInputError, match="two or more members"):
            NEDClassifier().fit(self.Z, np.arange(120))

    @pytest.mark.parametrize(
        "method",
        ["predict", "predict_proba", "predict_posterior", "predict_with_confidence", "kneighbors"],
    )
    def test_unfitted_use(self, method: str) -> None:
        with pytest.raises(NotFittedError):
            getattr(NEDClassifier(), method)(self.Z)
        with pytest.raises(NotFittedError):
            NEDClassifier().leave_one_out_posterior()
        with pytest.raises(NotFittedError):
            NEDClassifier().save("never-written")

    def test_dense_result_that_would_not_fit(self, monkeypatch: pytest.MonkeyPatch) -> None:
        fitted = NEDClassifier().fit(self.Z, self.y)
        monkeypatch.setattr(results, "available_bytes", lambda: 8 * 120 * 3 - 1)
        with pytest.raises(DenseResultTooLargeError, match="predict_posterior"):
            fitted.predict_proba(self.Z)
        assert len(fitted.predict_posterior(self.Z)) == 120
        monkeypatch.setattr(results, "available_bytes", lambda: 8 * 120 * 3)
        assert fitted.predict_proba(self.Z).shape == (120, 3)
