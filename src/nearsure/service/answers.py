"""From a prediction to what the service answers."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from nearsure.arrays import AnyArray, FloatArray
from nearsure.classifier import NEDClassifier, Prediction
from nearsure.neighbors import Neighbors
from nearsure.service.items import show_names
from nearsure.service.thresholds import ThresholdInUse


@dataclass(frozen=True, eq=False)
class Answers:
    """Answers to several queries, of one fit; each becomes a document when it is sent.

    Parameters
    ----------
    prediction : Prediction
        Of the classifier.
    classes : array of shape (n_classes,)
        Its labels, by code.
    shares : array of shape (n, k)
        Each neighbour's share of the vote.
    threshold : ThresholdInUse
        From which confidence answers are accepted.
    model : int
        Number of the fit.
    """

    prediction: Prediction
    classes: AnyArray
    shares: FloatArray
    threshold: ThresholdInUse
    model: int

    def document(self, row: int, *, neighbors: int, classes: int) -> dict[str, Any]:
        """The `Answer` of one query, as JSON has it."""
        prediction = self.prediction
        confidence = prediction.confidence[row].item()
        return {
            "label": show_names(prediction.labels[row : row + 1])[0],
            "confidence": confidence,
            "accepted": self.accepted(row),
            "verdict": None if prediction.verdicts is None else str(prediction.verdicts[row]),
            "p_known": None if prediction.p_known is None else prediction.p_known[row].item(),
            "classes": self._classes(row, classes),
            "neighbors": self.neighbors(row, neighbors),
            "model": self.model,
        }

    def accepted(self, row: int) -> bool | None:
        """Whether one answer may be acted on; None if no threshold is set."""
        accepted = self.threshold.accepts(self.prediction.confidence[row].item())
        # An answer without neighbours is never accepted, however lax the threshold is.
        return accepted and bool(self.prediction.neighbors.counts[row])

    def neighbors(self, row: int, most: int) -> list[dict[str, Any]]:
        """The nearest neighbours of one query, as `NeighborShown`."""
        found = self.prediction.neighbors
        shown = slice(min(most, int(found.counts[row])))
        names = zip(
            show_names(ids_in(found)[row, shown]),
            show_names(self.classes[found.labels[row, shown]]),
            found.sq_distances[row, shown].tolist(),
            self.shares[row, shown].tolist(),
            strict=True,
        )
        return [
            {"id": own, "label": label, "sq_distance": sq_distance, "share": share}
            for own, label, sq_distance, share in names
        ]

    def _classes(self, row: int, most: int) -> list[dict[str, Any]]:
        posterior = self.prediction.posterior
        first, end = int(posterior.indptr[row]), int(posterior.indptr[row + 1])
        shown = slice(first, min(end, first + most))
        labels = show_names(self.classes[posterior.codes[shown]])
        probabilities = posterior.probabilities[shown].tolist()
        return [
            {"label": label, "probability": probability}
            for label, probability in zip(labels, probabilities, strict=True)
        ]


def make_answers(
    classifier: NEDClassifier, prediction: Prediction, threshold: ThresholdInUse, model: int
) -> Answers:
    """A prediction with all that is shown beside it."""
    shares = classifier.vote_shares(prediction.neighbors)
    return Answers(prediction, classifier.classes_, shares, threshold, model)


def ids_in(neighbors: Neighbors) -> AnyArray:
    """Ids of neighbours, which every engine gives."""
    return np.asarray(neighbors.ids)
