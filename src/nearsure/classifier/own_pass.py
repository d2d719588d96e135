"""The gallery asked about itself: every point searched without itself."""

from dataclasses import dataclass, replace

import numpy as np

from nearsure.arrays import AnyArray, FloatArray, IntArray
from nearsure.classifier.gallery import Gallery
from nearsure.forms.left_out import factors_of_sizes
from nearsure.neighbors import Neighbors


@dataclass(frozen=True, eq=False)
class OwnPass:
    """Support points with their leave-one-out neighbours.

    Parameters
    ----------
    ids : array of shape (n,)
        Of the points, ascending.
    neighbors : Neighbors
        Of each among the others.
    codes : array of shape (n,)
        Their classes.
    factors : array of shape (n,)
        What leaving themselves out took from their classes; see `nearsure.forms.left_out`.
    mark : int
        ``n_changes`` of the support set at the time.
    """

    ids: AnyArray
    neighbors: Neighbors
    codes: IntArray
    factors: FloatArray
    mark: int

    def without_factors(self) -> "OwnPass":
        """The same points, taken as they are."""
        return replace(self, factors=np.ones(len(self.factors)))

    def take(self, rows: slice) -> "OwnPass":
        """The same of some of the points."""
        return OwnPass(
            self.ids[rows],
            self.neighbors.take(rows),
            self.codes[rows],
            self.factors[rows],
            self.mark,
        )


def own_pass(gallery: Gallery, ids: AnyArray, k: int) -> OwnPass:
    """Search some points of a gallery without themselves, or their groups."""
    # Before the searches: what is changed while they run makes the pass an old one.
    mark = gallery.n_changes
    codes = gallery.codes_of(ids)
    return OwnPass(
        ids,
        gallery.leave_one_out(ids, k),
        codes,
        factors_of_sizes(gallery.class_counts[codes], gallery.members_left(ids)),
        mark,
    )
