"""The gallery asked about itself: every point searched without itself."""

from dataclasses import dataclass, replace

import numpy as np

from nearsure.arrays import FloatArray, IntArray
from nearsure.forms.left_out import own_class_factors
from nearsure.neighbors import Neighbors
from nearsure.support_set import SupportSet


@dataclass(frozen=True, eq=False)
class OwnPass:
    """Support points with their leave-one-out neighbours.

    Parameters
    ----------
    ids : array of shape (n,)
        Of the points.
    neighbors : Neighbors
        Of each among the others.
    codes : array of shape (n,)
        Their classes.
    factors : array of shape (n,)
        What leaving themselves out took from their classes; see `nearsure.forms.left_out`.
    mark : int
        ``n_changes`` of the support set at the time.
    """

    ids: IntArray
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


def own_pass(support: SupportSet, ids: IntArray, k: int) -> OwnPass:
    """Search some points of a support set without themselves, or their groups."""
    rows, codes = support.rows_of(ids), support.codes
    return OwnPass(
        ids,
        support.leave_one_out(ids, k),
        codes[rows],
        own_class_factors(codes, rows, support.groups),
        support.n_changes,
    )
