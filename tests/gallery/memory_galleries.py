"""Galleries in memory that take lists."""

import numpy as np
from numpy.typing import ArrayLike

from nearsure.arrays import AnyArray
from nearsure.gallery import Gallery


class ListGallery(Gallery):
    """A gallery with lists for arrays, so that examples can be read."""

    def add(
        self,
        vectors: ArrayLike,
        labels: ArrayLike,
        groups: ArrayLike | None = None,
        ids: ArrayLike | None = None,
    ) -> AnyArray:
        own_groups = None if groups is None else np.asarray(groups)
        return super().add(np.asarray(vectors), np.asarray(labels), own_groups, ids)

    def relabel(
        self, ids: ArrayLike, labels: ArrayLike, *, allow_empty_class: bool = False
    ) -> None:
        super().relabel(ids, np.asarray(labels), allow_empty_class=allow_empty_class)


def memory_gallery(
    vectors: ArrayLike,
    codes: ArrayLike,
    groups: ArrayLike | None = None,
    ids: ArrayLike | None = None,
    *,
    classes: AnyArray | None = None,
) -> ListGallery:
    return ListGallery.of_points(
        np.asarray(vectors),
        np.asarray(codes),
        None if groups is None else np.asarray(groups),
        ids=None if ids is None else np.asarray(ids),
        classes=classes,
    )
