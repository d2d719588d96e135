"""The wrong answers that were given most confidently, and who vouched for them."""

from collections.abc import Callable

import numpy as np

from nearsure.arrays import FloatArray
from nearsure.classifier import NEDClassifier
from nearsure.neighbors import Neighbors
from nearsure.report.answered import Answered
from nearsure.report.document import Mistake, Vouching
from nearsure.report.plain import plain_label
from nearsure.report.thumbnails import Picture, Pictures, Thumbnails, picture_under

NEIGHBORS_SHOWN = 8


def confident_mistakes(
    answered: Answered,
    classifier: NEDClassifier,
    *,
    n_mistakes: int,
    thumbnails: Thumbnails,
    picture_of_row: Callable[[int], Picture | None] = lambda _: None,
    gallery_pictures: Pictures | None = None,
) -> tuple[Mistake, ...]:
    """Wrong answers, the most confident first, each with its nearest neighbours.

    Parameters
    ----------
    answered : Answered
        The queries.
    classifier : NEDClassifier
        Whose votes they were.
    n_mistakes : int
        At most so many.
    thumbnails : Thumbnails
        Makes the pictures.
    picture_of_row : callable
        From the row of a query to its picture.
    gallery_pictures : mapping of id to picture
        Of the neighbours.
    """
    wrong = np.flatnonzero(~answered.correct)
    first = wrong[np.argsort(-answered.confidence[wrong], kind="stable")][:n_mistakes]
    if not first.size:
        return ()
    neighbors = answered.prediction.neighbors.take(first)
    shares = classifier.vote_shares(neighbors)

    def show(name: object) -> str | None:
        return thumbnails.of(picture_under(gallery_pictures, name))

    return tuple(
        Mistake(
            id=plain_label(answered.ids[row]),
            label=answered.label_of(int(answered.answers[row])),
            truth=plain_label(answered.truth[row]),
            confidence=float(answered.confidence[row]),
            neighbors=tuple(
                _vouching(answered, neighbors, shares, (place, rank), show)
                for rank in range(min(int(neighbors.counts[place]), NEIGHBORS_SHOWN))
            ),
            picture=thumbnails.of(picture_of_row(int(row))),
        )
        for place, row in enumerate(first)
    )


def _vouching(
    answered: Answered,
    neighbors: Neighbors,
    shares: FloatArray,
    at: tuple[int, int],
    show: Callable[[object], str | None],
) -> Vouching:
    # Neighbours without ids are known by their rank.
    name = at[1] if neighbors.ids is None else neighbors.ids[at]
    return Vouching(
        id=plain_label(name),
        label=answered.label_of(int(neighbors.labels[at])),
        sq_distance=float(neighbors.sq_distances[at]),
        share=float(shares[at]),
        picture=show(name),
    )
