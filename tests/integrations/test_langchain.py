"""The retriever passes LangChain's own standard tests, and says what the classifier says."""

from typing import Any

import pytest

pytest.importorskip("langchain_core", reason="langchain-core is not installed")
pytest.importorskip("langchain_tests", reason="langchain-tests is not installed")

from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.retrievers import BaseRetriever
from langchain_core.vectorstores import InMemoryVectorStore
from langchain_tests.integration_tests import RetrieversIntegrationTests
from topic_vectors import NEVER, TOPICS, embed, embed_all, gallery_texts

from nearsure import NEDClassifier
from nearsure.errors import InvalidInputError
from nearsure.integrations.langchain import ConfidentRetriever


class TopicEmbeddings(Embeddings):
    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [embed(text) for text in texts]

    def embed_query(self, text: str) -> list[float]:
        return embed(text)


def documents() -> list[Document]:
    return [
        Document(id=f"id of {text}", page_content=text, metadata={"label": topic, "page": row})
        for row, (text, topic) in enumerate(zip(*gallery_texts(), strict=True))
    ]


def filled_store() -> InMemoryVectorStore:
    store = InMemoryVectorStore(TopicEmbeddings())
    store.add_documents(documents())
    return store


def expected_classifier(unknown_share: float | None = None) -> NEDClassifier:
    texts, labels = gallery_texts()
    settings: dict[str, Any] = {"metric": "cosine", "head": None, "unknown_share": unknown_share}
    return NEDClassifier(**settings).fit(embed_all(texts), labels)


# The suite has one test that is awaited, and forbids to mark it alone.
@pytest.mark.asyncio
@pytest.mark.filterwarnings("ignore:.*is marked with '@pytest.mark.asyncio'")
class TestStandard(RetrieversIntegrationTests):
    @property
    def retriever_constructor(self) -> type[BaseRetriever]:
        return ConfidentRetriever

    @property
    def retriever_constructor_params(self) -> dict[str, Any]:
        store = filled_store()
        fitted = ConfidentRetriever.fit(store, documents())
        return {"store": store, "confidence": fitted.confidence, "k": 5}

    @property
    def retriever_query_example(self) -> str:
        return "topic-03 question"


def test_confidence_is_that_of_the_classifier() -> None:
    retriever = ConfidentRetriever.fit(filled_store(), documents(), k=50)
    query = "topic-04 question"
    found = retriever.invoke(query)
    assert len(found) == retriever.confidence.n_neighbors == 50
    posterior = expected_classifier().predict_proba([embed(query)])[0]
    for document in found:
        own = posterior[TOPICS.index(document.metadata["label"])]
        assert document.metadata["confidence"] == pytest.approx(own, rel=1e-6, abs=1e-9)
        original = next(other for other in documents() if other.id == document.id)
        assert document.page_content == original.page_content
        assert document.metadata["page"] == original.metadata["page"]


def test_what_the_store_holds_is_not_changed() -> None:
    store = filled_store()
    ConfidentRetriever.fit(store, documents()).invoke("topic-05 question")
    assert all("confidence" not in own.metadata for own in store.similarity_search("topic-05 1"))


def test_nothing_below_the_threshold() -> None:
    retriever = ConfidentRetriever.fit(
        filled_store(), documents(), unknown_share=0.2, precision=0.9
    )
    classifier = expected_classifier(unknown_share=0.2)
    promised = classifier.accept_threshold(precision=0.9)
    assert promised.reached
    assert retriever.threshold == pytest.approx(promised.threshold, rel=1e-6)
    for topic in (*TOPICS[:6], NEVER):
        for i in range(4):
            query = f"{topic} question {i}"
            found = retriever.invoke(query)
            answer = classifier.predict_with_confidence([embed(query)])
            assert bool(found) == bool(promised.accepts(answer.confidence)[0])
            assert all(own.metadata["confidence"] >= retriever.threshold for own in found)
            assert {own.metadata["label"] for own in found} <= {answer.labels[0]}


def test_a_low_threshold_promises_the_answer_alone() -> None:
    """Other labels may reach a threshold below a half as well; no promise is about them."""
    fitted = ConfidentRetriever.fit(filled_store(), documents(), precision=0.3, k=50)
    promised = fitted.model_copy(update={"threshold": 0.001})
    queries = [f"{topic} question" for topic in TOPICS[:8]]
    shares = expected_classifier().predict_proba(embed_all(queries))
    assert ((shares > 0.01).sum(axis=1) > 1).any()
    for query, best in zip(queries, shares.argmax(axis=1), strict=True):
        assert {own.metadata["label"] for own in promised.invoke(query)} == {TOPICS[best]}


def test_a_sample_of_the_documents() -> None:
    whole = ConfidentRetriever.fit(filled_store(), documents())
    some = ConfidentRetriever.fit(filled_store(), documents(), max_fit_samples=150)
    assert (some.confidence.class_sizes == whole.confidence.class_sizes).all()
    one, other = (own.invoke("topic-03 question")[0].metadata for own in (whole, some))
    assert one["page"] == other["page"]
    assert abs(one["confidence"] - other["confidence"]) < 0.1


def test_documents_without_ids_or_labels() -> None:
    bare = [Document(page_content="topic-01 1", metadata={"label": "topic-01"})]
    with pytest.raises(InvalidInputError, match="documents must have ids"):
        ConfidentRetriever.fit(filled_store(), bare)
    with pytest.raises(InvalidInputError, match=r"label_key 'topic'.* Got \['label', 'page'\]"):
        ConfidentRetriever.fit(filled_store(), documents(), label_key="topic")
