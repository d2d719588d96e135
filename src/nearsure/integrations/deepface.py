"""Calibrated confidence for what deepface's `find` and `search` return.

Needs pandas, which deepface brings; deepface itself is not imported.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING, Literal, cast, get_args

import numpy as np

from nearsure.classifier.parameters import check_among
from nearsure.errors import InvalidInputError
from nearsure.extras import require
from nearsure.hits import Distance, Hit, HitConfidence, fit_hits

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]

Metric = Literal["cosine", "euclidean", "euclidean_l2", "angular"]
CONVENTIONS: dict[str, Distance] = {
    "cosine": "cosine_distance",
    "euclidean": "l2",
    "euclidean_l2": "l2",
    "angular": "cosine_distance",
}
# The image of a row: `find` calls it one thing, `search` another.
IMAGE_COLUMNS = ("identity", "img_name")


def folder_name(image: str) -> str:
    """The person of an image: the folder that holds it, as in "people/ann/3.jpg"."""
    return PurePath(image.replace("\\", "/")).parent.name


@dataclass(frozen=True)
class FaceConfidence:
    """Identity, confidence and verdict of faces; `fit_faces` makes it.

    Parameters
    ----------
    hits : HitConfidence
        Fitted on the gallery's own images.
    metric : {"cosine", "euclidean", "euclidean_l2", "angular"}
        The `distance_metric` of the frames.
    person : callable
        From the name of an image to the person.
    """

    hits: HitConfidence
    metric: Metric
    person: Callable[[str], str]

    def rescore(self, frames: "Sequence[pd.DataFrame]") -> "pd.DataFrame":
        """One row for each face, in the order of the frames.

        Parameters
        ----------
        frames : sequence of DataFrame
            What ``DeepFace.find`` or ``DeepFace.search`` returned, with the model, metric and
            threshold of the gallery's own frames.

        Returns
        -------
        DataFrame
            "identity", None where nothing was found; its "confidence" in [0, 1]; the "verdict",
            "known", "ambiguous" or "unknown"; "accepted", if a precision was given; the "image"
            of the gallery that is nearest, and its "distance" as deepface has it.
        """
        lists = [_hits_of(frame, self.metric, self.person) for frame in frames]
        answers = self.hits.answer(lists)
        nearest = [min(own, key=lambda hit: hit.distance, default=None) for own in lists]
        columns: dict[str, list[object]] = {
            "identity": [answer.label for answer in answers],
            "confidence": [answer.confidence for answer in answers],
            "verdict": [answer.verdict for answer in answers],
        }
        if self.hits.accept is not None:
            accepts = self.hits.accept.accepts([answer.confidence for answer in answers])
            columns["accepted"] = accepts.tolist()
        columns["image"] = [None if hit is None else hit.id for hit in nearest]
        columns["distance"] = [
            float("nan") if hit is None else float(frame["distance"].min())
            for frame, hit in zip(frames, nearest, strict=True)
        ]
        pandas = require("pandas", extra="batch", purpose="Rescoring frames of deepface")
        return cast("pd.DataFrame", pandas.DataFrame(columns))


def fit_faces(
    frames: "Sequence[pd.DataFrame]",
    images: Sequence[str],
    *,
    metric: Metric = "cosine",
    person: Callable[[str], str] = folder_name,
    unknown_share: float = 0.1,
    precision: float | None = None,
) -> FaceConfidence:
    """Learn how sure to be from what deepface finds for the gallery's own images.

    Parameters
    ----------
    frames : sequence of DataFrame
        What ``DeepFace.find(image, db_path, threshold=1e9)`` gave for each image of the gallery:
        a frame for the face in it, with all images of the gallery, itself included. A smaller
        threshold leaves out neighbours, on which confidence rests.
    images : sequence of str
        These images, named as in the frames.
    metric : {"cosine", "euclidean", "euclidean_l2", "angular"}, default "cosine"
        The `distance_metric` of the frames.
    person : callable, default `folder_name`
        From the name of an image to the person.
    unknown_share : float, default 0.1
        Share of the faces that are of nobody in the gallery, in [0, 1).
    precision : float, optional
        Accept from a threshold above which at least this share of the identities is right.
    """
    check_among("metric", metric, get_args(Metric))
    hits = fit_hits(
        [_hits_of(frame, metric, person) for frame in frames],
        images,
        [person(image) for image in images],
        distance=CONVENTIONS[metric],
        unknown_share=unknown_share,
        precision=precision,
    )
    return FaceConfidence(hits, metric, person)


def _hits_of(frame: "pd.DataFrame", metric: Metric, person: Callable[[str], str]) -> list[Hit]:
    column = next((name for name in IMAGE_COLUMNS if name in frame.columns), None)
    if len(frame) and (column is None or "distance" not in frame.columns):
        raise InvalidInputError(
            "Frames must have the columns 'identity' or 'img_name', and 'distance', as those "
            f"of DeepFace.find and DeepFace.search. Got {list(map(str, frame.columns))}."
        )
    if not len(frame):
        return []
    metrics = {*frame["distance_metric"]} if "distance_metric" in frame.columns else set()
    if metrics - {metric}:
        raise InvalidInputError(
            f"Frames must have distances of the metric {metric!r}. Got {metrics} instead."
        )
    distances = frame["distance"].to_numpy(np.float64)
    if metric == "angular":
        # The angle as a share of pi.
        distances = 1.0 - np.cos(np.pi * distances)
    found = zip(frame[column].astype(str), distances.tolist(), strict=True)
    return [Hit(image, person(image), distance) for image, distance in found]
