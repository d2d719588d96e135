"""A LangChain retriever with the confidence of each document. Needs langchain-core 1.0 or later."""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from langchain_core.callbacks import CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from langchain_core.vectorstores import VectorStore

from nearsure.errors import InvalidInputError
from nearsure.hits import MOST_NEIGHBORS, Distance, Hit, HitConfidence, fit_hits

if TYPE_CHECKING:
    from typing import Self


class ConfidentRetriever(BaseRetriever):
    """Documents of a vector store, each with the probability that its label is the query's.

    `fit` makes it. The store is searched as it is, by its ``similarity_search_with_score``. The
    confidence of a document is in its metadata, as "confidence".

    Attributes
    ----------
    store : VectorStore
        Its documents have ids, and labels in their metadata.
    confidence : HitConfidence
        Fitted on the store's own documents.
    label_key : str, default "label"
        Key of the label in the metadata.
    threshold : float, default 0.0
        Documents of less confidence are not returned. If `fit` was given a precision, only
        documents of the most probable label are, as its promise is about that label.
    k : int, default 4
        The most documents that are returned.
    """

    store: VectorStore
    # Any: pydantic would take the dataclass apart and put it together again.
    confidence: Any
    label_key: str = "label"
    threshold: float = 0.0
    k: int = 4

    @classmethod
    def fit(
        cls,
        store: VectorStore,
        documents: Sequence[Document],
        *,
        distance: Distance = "cosine_similarity",
        label_key: str = "label",
        unknown_share: float | None = None,
        precision: float | None = None,
        k: int = 4,
        max_fit_samples: int = 1000,
        random_state: int = 0,
    ) -> "Self":
        """Search the store for some of its own documents, and learn from what it finds.

        Parameters
        ----------
        store : VectorStore
            Holds the documents.
        documents : sequence of Document
            All of them, with their ids; LangChain has no way to list a store.
        distance : str, default "cosine_similarity"
            What the store's score is: "cosine_similarity" of `InMemoryVectorStore`, "squared_l2"
            of `FAISS`, for example; see `nearsure.hits.Distance`.
        label_key, k
            As the attributes of these names.
        unknown_share : float, optional
            Share of the queries that no label fits, in [0, 1).
        precision : float, optional
            Return documents only from a threshold above which at least this share of the answers
            is right. None returns all.
        max_fit_samples : int, default 1000
            Documents that are searched for, drawn at random.
        random_state : int, default 0
            Seed of that draw.
        """
        if any(document.id is None for document in documents):
            raise InvalidInputError(
                "documents must have ids, by which they are left out of their own neighbours. Got "
                "some without: give the store's ids, add_documents(documents, ids=...)."
            )
        counts = Counter(_label(document, label_key) for document in documents)
        depth = min(MOST_NEIGHBORS + 1, len(documents))
        if unknown_share is not None:
            # Without its own label's documents, a document still needs neighbours.
            depth = min(depth + max(counts.values()), len(documents))
        rows = np.random.default_rng(random_state).permutation(len(documents))[:max_fit_samples]
        drawn = [documents[row] for row in rows]
        confidence: HitConfidence = fit_hits(
            [_search(store, own.page_content, depth, label_key)[1] for own in drawn],
            [str(own.id) for own in drawn],
            [_label(own, label_key) for own in drawn],
            distance=distance,
            unknown_share=unknown_share,
            precision=precision,
            class_counts=counts,
        )
        threshold = 0.0 if confidence.accept is None else confidence.accept.threshold
        return cls(
            store=store, confidence=confidence, label_key=label_key, threshold=threshold, k=k
        )

    def _get_relevant_documents(
        self,
        query: str,
        *,
        run_manager: CallbackManagerForRetrieverRun,  # noqa: ARG002 - LangChain passes it
        k: int | None = None,
    ) -> list[Document]:
        most = self.k if k is None else k
        depth = max(self.confidence.n_neighbors, most)
        documents, hits = _search(self.store, query, depth, self.label_key)
        answer = self.confidence.answer([hits])[0]
        shares, promised = answer.probabilities, self.confidence.accept is not None
        sure = [
            document.model_copy(
                update={"metadata": {**document.metadata, "confidence": shares.get(hit.label, 0.0)}}
            )
            for document, hit in zip(documents, hits, strict=True)
            if shares.get(hit.label, 0.0) >= self.threshold
            and (hit.label == answer.label or not promised)
        ]
        return sure[:most]


def _search(
    store: VectorStore, query: str, depth: int, label_key: str
) -> tuple[list[Document], list[Hit]]:
    found: list[tuple[Document, Any]] = store.similarity_search_with_score(query, k=depth)
    hits = [Hit(str(own.id), _label(own, label_key), float(score)) for own, score in found]
    return [document for document, _ in found], hits


def _label(document: Document, label_key: str) -> str:
    if label_key not in document.metadata:
        raise InvalidInputError(
            f"Documents must have the label_key {label_key!r} in their metadata. "
            f"Got {sorted(document.metadata)} instead."
        )
    return str(document.metadata[label_key])
