"""A trained model and its clean gallery."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from nearsure.arrays import AnyArray, BoolArray, IntArray
from nearsure.index import ExactIndex
from nearsure.lab.embedding import EmbeddingRun, class_means
from nearsure.lab.network import Embedder, fold_batch_norm
from nearsure.lab.protocols import (
    ProtocolName,
    encode_labels,
    gallery_half,
    own_neighbors,
    query_neighbors,
)
from nearsure.lab.robust.adversarial_training import AdversarialRun
from nearsure.lab.robust.methods import FrozenMethods
from nearsure.loo import search_leaving_one_out
from nearsure.neighbors import Neighbors

# A gallery row of a query that is not in the gallery.
NOWHERE = -1


@dataclass(frozen=True, eq=False)
class FrozenSupport:
    """Clean gallery of one protocol.

    Parameters
    ----------
    protocol : {"all_against_others", "gallery_and_queries", "given_gallery"}
        Which points are the gallery, and which are queries.
    vectors : array of shape (n_gallery, d)
        Clean embeddings.
    codes : array of shape (n_gallery,)
        Their class codes.
    query_codes : array of shape (n_queries,)
        Class codes of all query images.
    gallery_rows : array of shape (n_queries,)
        Where the clean image of a query is in the gallery, or `NOWHERE`.
    """

    protocol: ProtocolName
    vectors: AnyArray
    codes: IntArray
    query_codes: IntArray
    gallery_rows: IntArray

    @cached_property
    def index(self) -> ExactIndex:
        """The gallery, ready to be searched."""
        return ExactIndex(self.vectors)

    def own_neighbors(self, k: int) -> Neighbors:
        """Neighbours of each gallery point among the others, on which T is fitted."""
        return own_neighbors(self.index, self.codes, k=k)

    def neighbors(self, vectors: AnyArray, rows: IntArray, k: int) -> Neighbors:
        """Neighbours of queries in the gallery, never their own clean image.

        Parameters
        ----------
        vectors : array of shape (n, d)
            Embeddings of queries, damaged or not.
        rows : array of shape (n,)
            Which query images they are.
        k : int
            How many.
        """
        own = self.gallery_rows[rows]
        if (own == NOWHERE).all():
            return query_neighbors(self.index, self.codes, vectors, k=k)
        return search_leaving_one_out(self.index, vectors, own, self.codes, k=k)

    def may_ask(self, rows: IntArray) -> BoolArray:
        """Which query images the protocol asks about: in the strict one none of its gallery."""
        if self.protocol == "all_against_others":
            return np.ones(len(rows), np.bool_)
        asked: BoolArray = self.gallery_rows[rows] == NOWHERE
        return asked


def frozen_supports(
    queries: AnyArray,
    query_codes: IntArray,
    gallery: tuple[AnyArray, IntArray] | None,
    *,
    seed: int,
) -> dict[ProtocolName, FrozenSupport]:
    """The galleries of all protocols that a data set allows.

    Parameters
    ----------
    queries : array of shape (n_queries, d)
        Clean embeddings of the query images.
    query_codes : array of shape (n_queries,)
        Their class codes.
    gallery : tuple of arrays, optional
        Clean embeddings and codes of the data set's own gallery. Without it queries are searched
        among each other, as in `lab.protocols`.
    seed : int
        Of the half that is the gallery.
    """
    if gallery is not None:
        nowhere = np.full(len(query_codes), NOWHERE)
        return {"given_gallery": FrozenSupport("given_gallery", *gallery, query_codes, nowhere)}
    half = gallery_half(query_codes, seed=seed)
    rows = np.flatnonzero(half)
    places = np.full(len(query_codes), NOWHERE)
    places[rows] = np.arange(len(rows))
    return {
        "all_against_others": FrozenSupport(
            "all_against_others", queries, query_codes, query_codes, np.arange(len(query_codes))
        ),
        "gallery_and_queries": FrozenSupport(
            "gallery_and_queries", queries[rows], query_codes[rows], query_codes, places
        ),
    }


def damaged_rows(support: FrozenSupport, n: int | None, *, seed: int) -> IntArray:
    """Which query images are damaged: `n` at random, those that a strict protocol asks about first.

    Parameters
    ----------
    support : FrozenSupport
        Of the strictest protocol.
    n : int, optional
        How many; None for all.
    seed : int
        Of the order; fewer rows are the first of more.
    """
    total = len(support.query_codes)
    order = np.random.default_rng([seed, 3]).permutation(total)
    order = order[np.argsort(~support.may_ask(order), kind="stable")]
    return order[:n]


@dataclass(frozen=True, eq=False)
class RobustModel:
    """A model and its clean galleries; both are ready before the first query is damaged.

    Parameters
    ----------
    name : str
        For tables.
    run : EmbeddingRun or AdversarialRun
        What trained it.
    k : int
        Neighbours; fewer where the gallery has no more.
    seed : int
        Of the half that is the gallery.
    """

    name: str
    run: EmbeddingRun | AdversarialRun
    k: int
    seed: int

    @property
    def images(self) -> EmbeddingRun:
        """The run on clean images."""
        return self.run.clean if isinstance(self.run, AdversarialRun) else self.run

    @property
    def key(self) -> str:
        """Digest of all that the weights depend on."""
        return self.run.training_stage.key

    @property
    def cache(self) -> Path:
        """Folder of all stages."""
        return self.images.cache

    @cached_property
    def embedder(self) -> Embedder:
        """The network, without batch normalisation."""
        # Weights made in inference mode could not be attacked.
        with torch.inference_mode(mode=False):
            return fold_batch_norm(self.run.trained.embedder)

    @cached_property
    def supports(self) -> dict[ProtocolName, FrozenSupport]:
        """Clean galleries by protocol."""
        split = self.images.split
        searched = split.gallery or split.queries
        gallery_codes, codes = encode_labels(searched.labels, split.queries.labels)
        gallery = (self.run.embeddings("gallery"), gallery_codes) if split.gallery else None
        return frozen_supports(self.run.embeddings("queries"), codes, gallery, seed=self.seed)

    @cached_property
    def frozen(self) -> dict[ProtocolName, FrozenMethods]:
        """T and calibrators by protocol, from the clean gallery alone."""
        return {
            protocol: FrozenMethods.fit(
                support.own_neighbors(min(self.k, len(support.codes) - 1)),
                support.codes,
                support.vectors,
            )
            for protocol, support in self.supports.items()
        }

    @property
    def strict(self) -> FrozenSupport:
        """The gallery that no query is in; an attacker knows it, and damaged queries are its."""
        return list(self.supports.values())[-1]

    @cached_property
    def class_means(self) -> Tensor:
        """Mean of the strict gallery's vectors of each class, shape (n_classes, d)."""
        return class_means(torch.from_numpy(self.strict.vectors), self.strict.codes)
