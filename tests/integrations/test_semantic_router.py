"""A router of semantic-router with the classifier's probabilities, thresholds and labels."""

from typing import Any

import numpy as np
import pytest

pytest.importorskip("semantic_router", reason="semantic-router is not installed")

from semantic_router.encoders import DenseEncoder
from semantic_router.route import Route
from semantic_router.schema import RouteChoice
from topic_vectors import LATER, N_TEXTS, NEVER, TOPICS, embed, embed_all, gallery_texts

from nearsure import NEDClassifier
from nearsure.errors import InvalidInputError
from nearsure.integrations.semantic_router import ConfidentRouter


class TopicEncoder(DenseEncoder):
    name: str = "topics"

    def __call__(self, docs: list[Any]) -> list[list[float]]:
        return [embed(doc) for doc in docs]


def route(name: str) -> Route:
    return Route(name=name, utterances=[f"{name} {i}" for i in range(N_TEXTS)])


def routes() -> list[Route]:
    return [route(name) for name in TOPICS]


def sentences(n: int, *names: str) -> tuple[list[str], list[str]]:
    """Queries that are no utterances, and their topics."""
    topics = [name for name in names or TOPICS for _ in range(n)]
    return [f"{name} query {i}" for i, name in enumerate(topics)], topics


def expected_classifier(unknown_share: float | None = None) -> NEDClassifier:
    texts, labels = gallery_texts()
    head: Any = "auto" if unknown_share is None else None
    return NEDClassifier(metric="cosine", head=head, unknown_share=unknown_share).fit(
        embed_all(texts), labels
    )


def choices(router: ConfidentRouter, asked: list[str]) -> list[RouteChoice]:
    found = [router(query) for query in asked]
    assert all(isinstance(choice, RouteChoice) for choice in found)
    return found  # type: ignore[return-value]


def test_scores_are_the_probabilities() -> None:
    asked, topics = sentences(1)
    router = ConfidentRouter(TopicEncoder(), routes())
    classifier = expected_classifier()
    prediction = classifier.predict_with_confidence(embed_all(asked))
    found = choices(router, asked)
    assert [choice.name for choice in found] == prediction.labels.tolist()
    assert [choice.confidence for choice in found] == prediction.confidence.tolist()
    assert all(choice.calibrated for choice in found)
    every = router(asked[0], limit=None)
    assert isinstance(every, list)
    shares = classifier.predict_proba(embed_all(asked[:1]))[0]
    by_name = dict(zip(classifier.classes_.tolist(), shares.tolist(), strict=True))
    assert {choice.name: choice.confidence for choice in every} == by_name
    assert router.evaluate(asked, topics) == float((prediction.labels == topics).mean())


@pytest.mark.asyncio
async def test_awaited_it_is_the_same() -> None:
    router = ConfidentRouter(TopicEncoder(), routes())
    expected = expected_classifier().predict_with_confidence(embed_all(["topic-02 query 0"]))
    choice = await router.acall("topic-02 query 0")
    assert isinstance(choice, RouteChoice)
    assert (choice.name, choice.confidence) == (expected.labels[0], expected.confidence[0])


def test_the_threshold_is_the_promise() -> None:
    settings: dict[str, Any] = {"metric": "cosine", "head": None, "unknown_share": 0.2}
    router = ConfidentRouter(
        TopicEncoder(), routes(), classifier=NEDClassifier(**settings), precision=0.9
    )
    promised = expected_classifier(unknown_share=0.2).accept_threshold(precision=0.9)
    assert promised.reached
    assert router.confidence_threshold == promised.threshold
    assert str(router.accept) == str(promised)
    known, _ = sentences(1)
    strangers, _ = sentences(9, NEVER)
    asked = [*known, *strangers]
    classifier = expected_classifier(unknown_share=0.2)
    confidence = classifier.predict_with_confidence(embed_all(asked)[:29]).confidence
    accepted = [choice.name is not None for choice in choices(router, asked[:29])]
    assert accepted == promised.accepts(confidence).tolist()
    assert np.mean(accepted[:20]) > np.mean(accepted[20:])


def test_routes_that_come_and_go() -> None:
    quick = NEDClassifier(metric="cosine", head=None)
    router = ConfidentRouter(TopicEncoder(), routes()[:1], classifier=quick)
    with pytest.raises(InvalidInputError, match=r"at least two routes. Got \['topic-00'\]"):
        router("topic-00 query 0")
    router.add(routes()[1:])
    router.add(route(LATER))
    assert choices(router, [f"{LATER} query 0"])[0].name == LATER
    router.remove(LATER)
    plain = ConfidentRouter(TopicEncoder(), routes(), classifier=quick)
    asked, _ = sentences(1)
    assert choices(router, asked) == choices(plain, asked)


def test_labelled_queries_outlive_a_change_of_routes() -> None:
    labelled, truth = sentences(3)
    settings = NEDClassifier(metric="cosine", head=None, unknown_share=0.2)
    router = ConfidentRouter(TopicEncoder(), routes(), classifier=settings, precision=0.8)
    strangers, _ = sentences(10, NEVER)
    found = router.recalibrate([*labelled, *strangers], [*truth, *[None] * 10])
    classifier = expected_classifier(unknown_share=0.2)
    expected = classifier.recalibrate(embed_all([*labelled, *strangers]), [*truth, *["?"] * 10])
    assert str(found) == str(expected)
    query = embed_all(["topic-03 query 99"])
    own = router.classifier.predict_with_confidence(query).confidence
    assert own == classifier.predict_with_confidence(query).confidence
    assert router.confidence_threshold == classifier.accept_threshold(precision=0.8).threshold
    router.add(route(LATER))
    assert router.classifier.recalibrated_ is not None
    router.remove(LATER)
    again = router.classifier.predict_with_confidence(query).confidence
    assert again == own


def test_too_few_labelled_queries_are_left_after_a_change_of_routes() -> None:
    quick = NEDClassifier(metric="cosine", head=None)
    router = ConfidentRouter(TopicEncoder(), routes(), classifier=quick, precision=0.8)
    router.recalibrate(*sentences(1))  # 20, of 20 routes
    router.remove("topic-19")
    assert router.classifier.recalibrated_ is None
    plain = ConfidentRouter(TopicEncoder(), routes()[:-1], classifier=quick, precision=0.8)
    assert router.confidence_threshold == plain.confidence_threshold
    assert choices(router, ["topic-03 query 0"]) == choices(plain, ["topic-03 query 0"])
    router.add(route("topic-19"))
    assert router.classifier.recalibrated_ is not None


def test_none_needs_an_unknown_share() -> None:
    router = ConfidentRouter(TopicEncoder(), routes())
    asked, topics = sentences(2)
    with pytest.raises(InvalidInputError, match="unknown_share"):
        router.recalibrate([*asked, f"{NEVER} 0"], [*topics, None])


def test_their_calibration_can_still_be_put_on_top() -> None:
    router = ConfidentRouter(TopicEncoder(), routes())
    asked, topics = sentences(1)
    wrong = ["topic-01" if topic < "topic-10" else topic for topic in topics]
    report = router.fit(asked, wrong)
    assert report.n == 20
    assert router.calibrator is not None
