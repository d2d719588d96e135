"""The four findings about a gallery, together."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from nearsure.audit.audit_text import (
    class_namer,
    confusable_text,
    duplicates_text,
    small_text,
    suspects_text,
)
from nearsure.audit.confusable import ConfusableClasses, confusable_classes
from nearsure.audit.duplicates import (
    RELATIVE_THRESHOLD,
    NearDuplicates,
    near_duplicates_across_classes,
)
from nearsure.audit.label_trust import SECOND_HAND
from nearsure.audit.small import MAX_MISS_SHARE, MIN_MEMBERS, SmallClasses, small_classes
from nearsure.audit.suspects import SuspectLabels, suspect_labels
from nearsure.errors import InvalidInputError
from nearsure.neighbors import Neighbors


@dataclass(frozen=True, eq=False)
class GalleryAudit:
    """What a gallery's own points say against it; `audit` makes it.

    Parameters
    ----------
    n_points, n_classes : int
        Size of the gallery.
    suspects : SuspectLabels
        All points, the least believed label first.
    duplicates : NearDuplicates
        Pairs of nearly identical points with different labels, nearest first.
    confusable : ConfusableClasses
        Pairs of classes, the most confused first.
    small : SmallClasses
        Classes that are too small, fewest members first.
    """

    n_points: int
    n_classes: int
    suspects: SuspectLabels
    duplicates: NearDuplicates
    confusable: ConfusableClasses
    small: SmallClasses

    def to_text(self, *, n_rows: int = 5, class_names: Sequence[str] | None = None) -> str:
        """Short tables for a terminal, probabilities in percent.

        Parameters
        ----------
        n_rows : int
            Rows of each table at most.
        class_names : sequence of str, optional
            Name of each class code; by default the codes are shown.
        """
        if n_rows < 0:
            raise InvalidInputError(f"n_rows must not be negative. Got {n_rows} instead.")
        name = class_namer(class_names, self.confusable.mass.shape[0])
        return "\n".join(
            [
                f"{self.n_points} points in {self.n_classes} classes",
                suspects_text(self.suspects, name, n_rows),
                duplicates_text(self.duplicates, name, n_rows),
                confusable_text(self.confusable, name, n_rows),
                small_text(self.small, name, n_rows),
            ]
        )


def audit(
    neighbors: Neighbors,
    codes: ArrayLike,
    *,
    temperature: float,
    ids: ArrayLike | None = None,
    second_hand: float = SECOND_HAND,
    relative_threshold: float = RELATIVE_THRESHOLD,
    min_members: int = MIN_MEMBERS,
    max_miss_share: float = MAX_MISS_SHARE,
) -> GalleryAudit:
    """Look for what is wrong with a gallery: labels, duplicates, classes.

    Everything is read off the leave-one-out neighbours that fitting T has searched anyway, and
    memory grows with their number, not with that of the classes.

    Parameters
    ----------
    neighbors : Neighbors
        Leave-one-out neighbours of all points of the gallery, with ids.
    codes : array of shape (n,)
        Class codes of the points.
    temperature : float
        T of NED, fitted on these neighbours.
    ids : array of shape (n,), optional
        Identity of each point, by which `neighbors` names it; by default its row number.
    second_hand : float
        See `suspect_labels`.
    relative_threshold : float
        See `near_duplicates_across_classes`.
    min_members, max_miss_share : int, float
        See `small_classes`.

    Returns
    -------
    GalleryAudit

    Examples
    --------
    Row 2 is nearly the same as row 3, lies among class 1 and is labelled 0:

    >>> neighbors = Neighbors(
    ...     sq_distances=[[1, 9], [1, 9], [0.001, 1], [0.001, 1], [1, 1]],
    ...     labels=[[0, 0], [0, 0], [1, 1], [0, 1], [0, 1]],
    ...     ids=[[1, 2], [0, 2], [3, 4], [2, 4], [2, 3]],
    ... )
    >>> found = audit(neighbors, [0, 0, 0, 1, 1], temperature=1.0, min_members=3)
    >>> print(found.to_text(n_rows=1))
    5 points in 2 classes
    labels believed less than another: 3
      id  label  p %    suggested  p %
      2   0        0.0  1          100.0
    nearly identical points labelled differently: 1 pairs
      id  label  id  label  squared distance
      2   0      3   1      0.001
    classes that claim something of each other: 1 pairs
      class  class  mean p %
      0      1       47.4
    classes too small, or that miss themselves: 2
      class  members  missed  accuracy %
      1      2        0         0.0
    """
    suspects = suspect_labels(
        neighbors, codes, temperature=temperature, ids=ids, second_hand=second_hand
    )
    return GalleryAudit(
        n_points=len(neighbors),
        n_classes=len(np.unique(codes)),
        suspects=suspects,
        duplicates=near_duplicates_across_classes(
            neighbors, codes, ids=ids, relative_threshold=relative_threshold
        ),
        confusable=confusable_classes(neighbors, codes, temperature=temperature),
        small=small_classes(
            neighbors,
            codes,
            temperature=temperature,
            min_members=min_members,
            max_miss_share=max_miss_share,
        ),
    )
