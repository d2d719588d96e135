"""What the gallery says of its own points, and what each neighbour says of a query."""

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from nearsure.arrays import AnyArray, FloatArray
from nearsure.classifier.class_sizes import class_sizes
from nearsure.classifier.fitted_gallery import FittedGallery
from nearsure.classifier.prediction import Prediction
from nearsure.errors import InvalidInputError
from nearsure.neighbors import Neighbors
from nearsure.posterior import Posterior


class EvidenceMethods(FittedGallery):
    """leave_one_out_posterior, predict_own, own_ids, vote_shares."""

    def leave_one_out_posterior(self) -> Posterior:
        """The posterior of the points ``fit_indices_`` that are still there, without themselves."""
        return self._posterior(self._own_pass().neighbors)

    def predict_own(self, ids: ArrayLike | None = None) -> Prediction:
        """What points of the gallery would be taken for if they were not in it.

        Parameters
        ----------
        ids : array of shape (n,), optional
            Their ids; by default `own_ids`, whose searches are kept until the gallery changes.

        Returns
        -------
        Prediction
            As of queries: nothing in it knows the points' own labels, `support_labels`.
        """
        check_is_fitted(self, "classes_")
        if ids is None:
            return self._predicted(self._own_pass().neighbors)
        if len(self._support) == 1:
            raise InvalidInputError("A gallery of one point has nothing to be compared with.")
        k = len(self._support) - 1 if self._all_neighbors else self.n_neighbors_
        return self._predicted(
            self._support.leave_one_out(np.asarray(ids), min(k, len(self._support) - 1))
        )

    def own_ids(self) -> AnyArray:
        """Ids of the points of the fit that are still there, in the order of `predict_own`."""
        return self._own_pass().ids

    def vote_shares(self, neighbors: Neighbors) -> FloatArray:
        """What each neighbour contributes to an answer, before calibration.

        Parameters
        ----------
        neighbors : Neighbors
            Of a prediction.

        Returns
        -------
        array of shape (n, k)
            In [0, 1]; rows sum to 1. Neighbours of one class sum to its probability.
        """
        check_is_fitted(self, "classes_")
        return self._rule.vote_shares(
            neighbors,
            class_sizes=class_sizes(self._support, len(self.classes_)),
            prior_factors=self._prior_factors(),
        )
