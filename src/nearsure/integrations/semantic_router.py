"""A router for semantic-router whose scores are calibrated probabilities.

Needs semantic-router 1.1 or later.
"""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from semantic_router.encoders import DenseEncoder
from semantic_router.index import LocalIndex
from semantic_router.route import Route
from semantic_router.routers.indexed import IndexedRouter, _aencode, _encode
from sklearn.base import clone

from nearsure.classifier import NEDClassifier
from nearsure.classifier.recalibration import FEWEST_LABELS, Recalibration
from nearsure.errors import InvalidInputError

if TYPE_CHECKING:
    from nearsure.arrays import AnyArray
    from nearsure.decisions import AcceptThreshold

# The label of a query that no route should match; a name that no route has.
NO_ROUTE = "\0no route"


class ConfidentRouter(IndexedRouter):
    """Routes with nearsure's probabilities as scores, fitted on the utterances themselves.

    Utterances are embedded once, and everything is fitted again when routes are added or removed.
    No labelled queries are needed; `recalibrate` takes them if there are any.

    Parameters
    ----------
    encoder : DenseEncoder
        Of semantic-router.
    routes : sequence of Route
        With utterances; two routes or more before the first query.
    classifier : NEDClassifier, optional
        Its parameters; by default cosine distances. With ``unknown_share``, queries that no route
        should match are expected in this share.
    precision : float, optional
        At least this share of the routed queries shall be right, in (0, 1): the threshold of the
        router is then that of `NEDClassifier.accept_threshold`. None routes every query.

    Attributes
    ----------
    classifier : NEDClassifier
        Fitted on the utterances, if there are two routes.
    accept : AcceptThreshold or None
        The promise behind ``confidence_threshold``, as a sentence if printed.
    """

    probabilistic = True

    def __init__(
        self,
        encoder: DenseEncoder,
        routes: Sequence[Route] = (),
        *,
        classifier: NEDClassifier | None = None,
        precision: float | None = None,
    ) -> None:
        given = NEDClassifier(metric="cosine") if classifier is None else classifier
        self.classifier: NEDClassifier = clone(given)
        self.precision = precision
        self.accept: AcceptThreshold | None = None
        self._ready = False
        self._labelled: tuple[AnyArray, AnyArray] | None = None
        super().__init__(encoder, routes, index=LocalIndex())

    def recalibrate(self, queries: Sequence[str], routes: Sequence[str | None]) -> Recalibration:
        """Fit confidence and threshold to labelled queries; see `NEDClassifier.recalibrate`.

        They are kept, and taken again when routes change, as long as 20 have a route that is there;
        with fewer, confidence and threshold are those of the utterances alone.

        Parameters
        ----------
        queries : sequence of str
            At least 20 that have a route, and are no utterances.
        routes : sequence of str or None
            The right route of each; None if none should match, which needs ``unknown_share``.
        """
        self._check_ready()
        labels = np.array([NO_ROUTE if name is None else name for name in routes])
        vectors = np.asarray(_encode(self.encoder, list(queries), "queries"), np.float64)
        found = self.classifier.recalibrate(vectors, labels)
        self._labelled = vectors, labels
        self._set_threshold()
        return found

    def _fill(self, routes: list[Route]) -> None:
        # Called whenever the index has changed.
        super()._fill(routes)
        index = self.index
        names: AnyArray = np.asarray([] if index.routes is None else index.routes)
        self._ready = len(np.unique(names)) > 1
        if not self._ready:
            return
        self.classifier.fit(np.asarray(index.index, np.float64), names)
        if self._labelled is not None:
            vectors, labels = self._labelled
            routed = np.isin(labels, names)
            if routed.sum() >= FEWEST_LABELS:
                kept = routed | (labels == NO_ROUTE)
                self.classifier.recalibrate(vectors[kept], labels[kept])
        self._set_threshold()

    def _set_threshold(self) -> None:
        if self.precision is not None:
            self.accept = self.classifier.accept_threshold(precision=self.precision)
            self.confidence_threshold = self.accept.threshold

    def _check_ready(self) -> None:
        if not self._ready:
            raise InvalidInputError(
                "The 'routes' parameter must hold utterances of at least two routes. "
                f"Got {[route.name for route in self.routes]} instead: add routes first."
            )

    async def _scores_many(self, queries: Sequence[str]) -> list[dict[str, float]]:
        self._check_ready()
        vectors = await _aencode(self.encoder, list(queries), "queries")
        shares = await asyncio.to_thread(self.classifier.predict_proba, np.asarray(vectors, float))
        names = self.classifier.classes_.tolist()
        return [dict(zip(names, row, strict=True)) for row in shares.tolist()]
