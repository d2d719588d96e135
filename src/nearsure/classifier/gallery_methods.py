"""The gallery as it lives: points come and go without a rebuild, and a fit grows old."""

import warnings
from typing import Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted, validate_data

from nearsure.arrays import AnyArray, IntArray
from nearsure.classifier.drawn_places import drawn_places
from nearsure.classifier.engine_methods import EngineMethods
from nearsure.classifier.own_pass import OwnPass, own_pass
from nearsure.classifier.staleness import (
    LARGEST_SHARE_CHANGED,
    WATCHED,
    Staleness,
    mean_and_error,
    own_losses,
)
from nearsure.engine_gallery import EngineGallery
from nearsure.errors import InvalidInputError, StaleFitWarning
from nearsure.index import unit_vectors
from nearsure.labels import codes_of, extended_groups, extended_names, labels_like

# Of the points that are watched: the same ones, as long as the gallery is the same.
WATCH_SEED = 0


class GalleryMethods(EngineMethods):
    """add, remove, relabel; staleness, refit."""

    @property
    def support_ids_(self) -> AnyArray:
        """Ids of the points of the gallery: row numbers at the fit, then counted on."""
        check_is_fitted(self, "classes_")
        return self._support.ids

    def support_labels(self, ids: ArrayLike) -> AnyArray:
        """The labels of points of the gallery."""
        check_is_fitted(self, "classes_")
        codes = self._support.codes_of(ids)
        return np.asarray(self.classes_[codes])

    def add(
        self,
        Z: ArrayLike,
        y: ArrayLike,
        groups: ArrayLike | None = None,
        ids: ArrayLike | None = None,
    ) -> IntArray:
        """Add labelled points to the gallery; they vouch for queries from now on.

        Parameters
        ----------
        Z : array of shape (n, n_features)
            Embeddings.
        y : array of shape (n,)
            Labels. A new class goes to the end of ``classes_``, so that codes stay what they were.
        groups : array of shape (n,), optional
            Their groups: given if, and only if, `fit` was given groups.
        ids : array of shape (n,), optional
            Ids that no point has; by default they count on.

        Returns
        -------
        array of shape (n,)
            The ids of the new points.

        Warns
        -----
        StaleFitWarning
            Once, when more than a tenth of the gallery has changed since the fit.
        """
        check_is_fitted(self, "classes_")
        vectors: AnyArray = validate_data(
            self, Z, dtype=[np.float64, np.float32], order="C", reset=False
        )
        labels = self._checked_labels(y, len(vectors))
        names, group_codes = extended_groups(groups, len(vectors), self._group_names)
        if self._metric == "cosine":
            vectors = unit_vectors(vectors)
        support = self._support
        if isinstance(support, EngineGallery):
            new_ids = support.add(vectors, labels, group_codes, ids)
        else:
            classes, codes = extended_names(labels, support.classes)
            new_ids = support.add(vectors, codes, group_codes, ids)
            support.classes = classes
        self._group_names = names
        self._warn_if_stale()
        return new_ids

    def remove(self, ids: ArrayLike, *, allow_empty_class: bool = False) -> None:
        """Remove points of the gallery.

        Parameters
        ----------
        ids : array of shape (n,)
            Their ids. At least one point must be left.
        allow_empty_class : bool, default False
            Whether a class may lose its last point; it stays in ``classes_``, but no answer has it.
        """
        check_is_fitted(self, "classes_")
        self._support.remove(ids, allow_empty_class=allow_empty_class)
        self._warn_if_stale()

    def relabel(self, ids: ArrayLike, y: ArrayLike, *, allow_empty_class: bool = False) -> None:
        """Give points of the gallery other labels.

        Parameters
        ----------
        ids : array of shape (n,)
            Their ids.
        y : array of shape (n,)
            Their new labels, of old or new classes.
        allow_empty_class : bool, default False
            Whether a class may lose its last point.
        """
        check_is_fitted(self, "classes_")
        labels, support = self._checked_labels(y, np.size(ids)), self._support
        if isinstance(support, EngineGallery):
            support.relabel(ids, labels, allow_empty_class=allow_empty_class)
        else:
            classes, codes = extended_names(labels, support.classes)
            support.relabel(ids, codes, allow_empty_class=allow_empty_class)
            support.classes = classes
        self._warn_if_stale()

    def staleness(self) -> Staleness:
        """How far the gallery has moved from what was fitted on it, at the cost of one search.

        Raises
        ------
        InvalidInputError
            If nothing was fitted (a given temperature, or a rule without parameters).
        """
        check_is_fitted(self, "classes_")
        if self._fit_loss is None:
            raise InvalidInputError(
                f"Nothing was fitted for rule {self._rule.name!r}, so nothing can be stale: it has "
                "no parameters, or they were given."
            )
        rng = np.random.default_rng(WATCH_SEED)
        watched = self._support.ids_at(drawn_places(len(self._support), WATCHED, rng))
        now, error_now = self._watched_loss(own_pass(self._support, watched, self.n_neighbors_))
        then, error_then = self._fit_loss
        share = self._share_changed()
        shared = isinstance(self._support, EngineGallery)
        if isinstance(self._support, EngineGallery):
            share += self._support.changed_elsewhere() / len(self._support)
        return Staleness(
            share,
            then,
            now,
            float(np.hypot(error_now, error_then)),
            others_may_write=shared,
        )

    def refit(self) -> Self:
        """Fit everything anew on the gallery as it is now; only the points of the fit are searched.

        In an engine, what others have changed is seen and counted; where it holds the labels and no
        `prior` names classes, those without points are forgotten.

        Nothing is indexed again. Parameters that were changed with ``set_params`` take effect,
        except `metric`. What `adapt_to_queries` has learned about queries is kept.
        """
        check_is_fitted(self, "classes_")
        before, support = self._known, self._support
        if isinstance(support, EngineGallery):
            if isinstance(self.prior, str):
                support = support.without_empty_classes()
            else:
                support.recount()
        self._fit_on(support)
        if self._adapted and before is not None and self._known is not None:
            shift = before.model
            model = self._known.model.with_shift(novelty=shift.novelty, drift=shift.drift)
            self._known = self._known.with_model(model, before.unknown_share)
        return self

    def _watched_loss(self, own: OwnPass) -> tuple[float, float]:
        """Mean leave-one-out loss of some points, and its standard error."""
        some = own.take(slice(None, None, -(-len(own.ids) // WATCHED)))
        return mean_and_error(own_losses(self._posterior(some.neighbors), some.codes))

    def _share_changed(self) -> float:
        return self._support.share_changed(self._fit_mark)

    def _checked_labels(self, y: ArrayLike, n_points: int) -> AnyArray:
        """Labels of old and new classes; new ones only where no prior was given by class."""
        classes = self.classes_
        labels = labels_like(y, n_points, classes)
        if isinstance(self._prior, str):
            return labels
        new = labels[codes_of(labels, classes) == len(classes)]
        if new.size:
            raise InvalidInputError(
                f"prior was given for {len(classes)} classes and misses "
                f"{np.unique(new).tolist()[:5]}. Fit again with a prior for all of them."
            )
        return labels

    def _warn_if_stale(self) -> None:
        if self._fit_loss is None or self._warned_stale:
            return
        share = self._share_changed()
        if share > LARGEST_SHARE_CHANGED:
            self._warned_stale = True
            warnings.warn(
                f"{share:.1%} of the gallery changed since the fit. Confidence may no longer be "
                "calibrated: call refit(). staleness() says how far it drifted.",
                StaleFitWarning,
                stacklevel=3,
            )
