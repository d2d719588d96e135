"""Real unknowns: sentences out of scope of CLINC150. Their labels only measure.

First with NED and the functions of `nearsure.unknowns`, then with the classifier as it comes.
"""

from functools import cache, partial

import numpy as np

import reference_data
from nearsure import NEDClassifier, Neighbors, fit_temperature, score
from nearsure.arrays import AnyArray, BoolArray, FloatArray
from nearsure.index import ExactIndex
from nearsure.metrics import error_detection_auroc, expected_calibration_error
from nearsure.unknowns import (
    Evidence,
    KnownModel,
    ShareEstimate,
    collect_evidence,
    estimate_unknown_share,
    fit_shift,
    judge,
    rehearse,
    search_leaving_class_out,
)

TRUE_SHARE = 1000 / 5500


class Sentences:
    """4,500 known and 1,000 unknown sentences, and a model that has seen the gallery alone."""

    def __init__(self) -> None:
        gallery = reference_data.clinc150()
        file = reference_data.load("clinc150_minilm.npz")
        index, rows = ExactIndex(gallery.vectors), np.arange(len(gallery.codes))
        temperature = fit_temperature(gallery.own_neighbors, gallery.codes).temperature
        to_posterior = partial(score, temperature=temperature)
        rehearsal = rehearse(
            gallery.own_neighbors,
            search_leaving_class_out(index, gallery.vectors, rows, gallery.codes, k=50),
            rows,
            gallery.codes,
            temperature=temperature,
            to_posterior=to_posterior,
        )
        self.model = KnownModel.fit(rehearsal.known, rehearsal.unknown)
        queries = np.concatenate([file["test_x"], file["oos_test_x"]]).astype(np.float32)
        sq_distances, ids = index.search(queries, 50)
        neighbors = Neighbors(sq_distances, gallery.codes[ids], ids)
        self.nearest: FloatArray = -sq_distances[:, 0]
        self.posterior = to_posterior(neighbors)
        self.evidence: Evidence = collect_evidence(neighbors, self.posterior, rehearsal.density)
        n_known = len(gallery.query_codes)
        self.known: BoolArray = np.arange(len(queries)) < n_known
        self.right: BoolArray = np.zeros(len(queries), np.bool_)
        self.right[:n_known] = self.posterior.labels[:n_known] == gallery.query_codes

    def combined_error(self, model: KnownModel, unknown_share: float) -> float:
        verdicts = judge(model.p_known(self.evidence, unknown_share), self.posterior)
        return expected_calibration_error(verdicts.confidence, self.right)


@cache
def sentences() -> Sentences:
    return Sentences()


@cache
def estimate() -> ShareEstimate:
    return estimate_unknown_share(sentences().model, sentences().evidence, seed=0)


def false_positive_rate(values: FloatArray, known: BoolArray) -> float:
    """Share of unknowns above the value that 95% of the known reach."""
    return float((values[~known] >= np.quantile(values[known], 0.05)).mean())


def test_known_and_unknown_are_told_apart() -> None:
    data = sentences()
    p_known = data.model.p_known(data.evidence, TRUE_SHARE)
    assert error_detection_auroc(p_known, data.known) >= 0.965
    assert error_detection_auroc(data.posterior.confidence, data.known) < 0.9
    ours = false_positive_rate(data.model.log_odds(data.evidence), data.known)
    assert ours < false_positive_rate(data.nearest, data.known) - 0.03


def test_confidence_holds_for_known_and_unknown_together() -> None:
    data = sentences()
    assert expected_calibration_error(data.posterior.confidence, data.right) > 0.07
    assert data.combined_error(fit_shift(data.model, data.evidence, TRUE_SHARE), TRUE_SHARE) <= 0.03
    shifted = data.model.with_shift(novelty=estimate().novelty, drift=estimate().drift)
    assert data.combined_error(shifted, estimate().share) <= 0.03


def test_without_a_look_at_the_queries_confidence_errs_on_the_safe_side() -> None:
    """Classes left out are nearer than sentences out of scope, so p(known) is too low for some."""
    data = sentences()
    verdicts = judge(data.model.p_known(data.evidence, TRUE_SHARE), data.posterior)
    assert verdicts.confidence.mean() < data.right.mean()
    assert data.combined_error(data.model, TRUE_SHARE) <= 0.08


def test_the_share_is_estimated_better_than_from_the_rehearsal_alone() -> None:
    """Its interval is that of the draw alone, and too narrow for what the model takes for granted.

    The rehearsal alone finds nearly twice the share: known sentences are farther from the gallery
    than its own near-copies from each other, and sentences out of scope than classes left out.
    """
    plain = estimate_unknown_share(sentences().model, sentences().evidence, seed=0, shifted=False)
    error = abs(estimate().share - TRUE_SHARE)
    assert error < 0.04
    assert error < abs(plain.share - TRUE_SHARE) / 3


def test_most_verdicts_are_right() -> None:
    data = sentences()
    shifted = data.model.with_shift(novelty=estimate().novelty, drift=estimate().drift)
    verdicts = judge(shifted.p_known(data.evidence, estimate().share), data.posterior)
    unknown = verdicts.names == "unknown"
    assert (unknown == ~data.known).mean() > 0.93
    decided = verdicts.names == "known"
    assert data.right[decided].mean() > data.right[verdicts.names == "ambiguous"].mean() + 0.3


class ClassifierTask:
    """The same sentences for the classifier with its default rule."""

    def __init__(self) -> None:
        file = reference_data.load("clinc150_minilm.npz")
        vectors, labels = file["train_x"].astype(np.float32), file["train_y"]
        known, unknown = file["test_x"], file["oos_test_x"]
        self.queries: AnyArray = np.concatenate([known, unknown]).astype(np.float32)
        self.labels: AnyArray = np.append(file["test_y"], np.full(len(unknown), "none"))
        self.known: BoolArray = np.arange(len(self.queries)) < len(known)
        self.classifier = NEDClassifier(unknown_share=TRUE_SHARE).fit(vectors, labels)

    def combined_error(self) -> float:
        prediction = self.classifier.predict_with_confidence(self.queries)
        return expected_calibration_error(prediction.confidence, prediction.labels == self.labels)


@cache
def classifier_task() -> ClassifierTask:
    return ClassifierTask()


def test_the_classifier_tells_known_from_unknown() -> None:
    task = classifier_task()
    prediction = task.classifier.predict_with_confidence(task.queries)
    assert prediction.p_known is not None
    assert error_detection_auroc(prediction.p_known, task.known) >= 0.965
    nearest = -prediction.neighbors.sq_distances[:, 0]
    ours = false_positive_rate(prediction.p_known, task.known)
    assert ours < false_positive_rate(nearest, task.known) - 0.03


def test_confidence_of_the_classifier_holds_with_the_given_share() -> None:
    task = classifier_task()
    assert task.classifier.adapt_to_queries(task.queries, TRUE_SHARE) is None
    assert task.combined_error() <= 0.03


def test_confidence_of_the_classifier_holds_with_the_estimated_share() -> None:
    task = classifier_task()
    found = task.classifier.adapt_to_queries(task.queries)
    assert found is not None
    assert abs(found.share - TRUE_SHARE) < 0.04
    assert task.combined_error() <= 0.03
