"""The gallery in an engine: fitted where it lives, used through another."""

import warnings
from typing import Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from nearsure.classifier.chosen_gallery import (
    check_fits,
    fingerprint_of,
    opened,
    reopened,
)
from nearsure.classifier.fitted_gallery import FittedGallery
from nearsure.engine_gallery import EngineGallery
from nearsure.engines.contract import Engine, Fingerprint
from nearsure.engines.registry import SERVERS, open_engine
from nearsure.errors import EngineChangedWarning, InvalidInputError
from nearsure.labels import groups_and_codes


class EngineMethods(FittedGallery):
    """fit_engine, use_engine; engine_, fingerprint_."""

    engine: str | Engine

    def fit_engine(
        self,
        y: ArrayLike | None = None,
        ids: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> Self:
        """Fit on the gallery that the engine holds already; its vectors stay there.

        Ids and labels are read once to count classes, and the vectors of the points that all is
        fitted on (at most ``max_fit_samples``). Each is searched in the engine and leaves itself
        out by its id.

        Parameters
        ----------
        y : array of shape (n,), optional
            Labels of the points `ids`: given if, and only if, the engine holds none.
        ids : array of shape (n,), optional
            All ids of the engine, in the order of `y` or `groups`.
        groups : array of shape (n,), optional
            Groups of the points `ids`; see `fit`.
        """
        self._check_parameters()
        engine = opened_engine(self.engine)
        check_fits(engine, engine.dimension, self.metric)
        names, own_groups = None, None
        own_ids = None if ids is None else np.asarray(ids)
        if (own_ids is None) != (y is None and groups is None):
            raise InvalidInputError("ids must be given with y or groups, and only then.")
        labels = None if y is None else np.asarray(y)
        if own_ids is not None and labels is not None and labels.shape != own_ids.shape:
            raise InvalidInputError(
                f"y must be one label for each of the {len(own_ids)} ids. "
                f"Got an array of shape {labels.shape} instead."
            )
        if own_ids is not None and groups is not None:
            names, own_groups = groups_and_codes(groups, len(own_ids))
        self._fit_on(opened(engine, labels, own_ids, own_groups))
        self.__dict__.pop("feature_names_in_", None)
        self.n_features_in_ = engine.dimension
        self._adapted = False
        self._metric, self._group_names = self.metric, names
        return self

    def use_engine(self, engine: Engine) -> Self:
        """Answer from another engine with the same points, such as a faster copy on a server.

        What was fitted stays; groups, and what is known of changes since the fit, do not. If
        neighbours are found in another way now, confidence may be less well calibrated: `refit`
        fits it through the new engine.

        Parameters
        ----------
        engine : Engine
            Holds vectors of the same length, and labels.

        Warns
        -----
        EngineChangedWarning
            If engine, index type or parameters are others than those of the fit.
        """
        check_is_fitted(self, "classes_")
        self._support = reopened(engine, self.classes_, self.n_features_in_, self._metric)
        self._group_names, self._own, self._rehearsal = None, None, None
        self._fit_mark = 0
        self._warn_if_other_engine()
        return self

    @property
    def fingerprint_(self) -> Fingerprint:
        """Engine, index type and parameters through which everything was fitted."""
        check_is_fitted(self, "classes_")
        return dict(self._fingerprint)

    @property
    def engine_(self) -> Engine | None:
        """The engine that holds the points; None where they are in memory, searched exactly."""
        check_is_fitted(self, "classes_")
        return self._support.engine if isinstance(self._support, EngineGallery) else None

    def _warn_if_other_engine(self) -> None:
        now = fingerprint_of(self._support)
        if now in (self._fingerprint, self._warned_of):
            return
        self._warned_of = now
        changed = sorted(
            name
            for name in {*now, *self._fingerprint}
            if now.get(name) != self._fingerprint.get(name)
        )
        differences = ", ".join(
            f"{name} {self._fingerprint.get(name)!r} -> {now.get(name)!r}" for name in changed
        )
        warnings.warn(
            f"Neighbours are found in another way than at the fit ({differences}). Confidence may "
            "no longer be calibrated: call refit().",
            EngineChangedWarning,
            stacklevel=3,
        )


def opened_engine(engine: str | Engine) -> Engine:
    """An engine as it is, or the one that the environment names."""
    if not isinstance(engine, str):
        return engine
    if engine in SERVERS:
        return open_engine(engine)
    raise InvalidInputError(
        "engine must be an engine that holds points, 'postgres' or 'milvus'. Got the name of an "
        "index in memory, which fit(Z, y) fills, or an address, which open_engine opens."
    )
