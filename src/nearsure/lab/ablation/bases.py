"""Each base fitted on a gallery: what makes a posterior of a query's neighbours."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NoReturn

import numpy as np

from nearsure.arrays import AnyArray, IntArray
from nearsure.classifier.fitted_rule import fit_rule
from nearsure.classifier.own_pass import OwnPass
from nearsure.errors import InvalidInputError
from nearsure.forms.class_covariance import class_covariance_weights, fit_class_covariance
from nearsure.forms.class_variance import class_variance_weights, fit_class_variance
from nearsure.forms.left_out import own_class_factors
from nearsure.lab.ablation.variants import CLASS_VARIANCE, DIAGONAL, FULL, UNCORRECTED
from nearsure.neighbors import Neighbors
from nearsure.posterior import Posterior, aggregate


@dataclass(frozen=True, eq=False)
class Searched:
    """Vectors and what was found near them.

    Parameters
    ----------
    neighbors : Neighbors
        Of n vectors, with ids that are rows of the gallery.
    vectors : array of shape (n, d)
        What was searched for.
    """

    neighbors: Neighbors
    vectors: AnyArray


@dataclass(frozen=True, eq=False)
class Gallery:
    """All that a variant may be fitted on.

    Parameters
    ----------
    own : Searched
        The gallery's vectors, with the neighbours of each among the others.
    codes : array of shape (n_gallery,)
        Class codes 0, 1, ..., each of them present.
    """

    own: Searched
    codes: IntArray

    @property
    def n_classes(self) -> int:
        """How many classes there are."""
        return int(self.codes.max()) + 1

    @property
    def own_pass(self) -> OwnPass:
        """The same in the classifier's terms."""
        rows = np.arange(len(self.codes))
        factors = own_class_factors(self.codes, rows)
        return OwnPass(rows, self.own.neighbors, self.codes, factors, mark=0)


@dataclass(frozen=True, eq=False)
class FittedBase:
    """A base that is ready to score.

    Parameters
    ----------
    posterior : callable
        Searched queries to their posterior.
    own : callable
        Gives the posterior of the gallery's points, each without itself, as calibrators see it.
    """

    posterior: Callable[[Searched], Posterior]
    own: Callable[[], Posterior]


def fit_base(name: str, gallery: Gallery) -> FittedBase:
    """Fit a base on a gallery.

    Parameters
    ----------
    name : str
        One of `variants.BASE_TITLES`.
    gallery : Gallery
        All that it may see.
    """
    if name == CLASS_VARIANCE:
        return _class_variance(gallery)
    if name in {DIAGONAL, FULL}:
        return _class_covariance(gallery, full=name == FULL)
    return _rule(name, gallery)


def _rule(name: str, gallery: Gallery) -> FittedBase:
    rule, own = name.removesuffix(UNCORRECTED), gallery.own_pass
    if name.endswith(UNCORRECTED):
        own = replace(own, factors=np.ones(len(gallery.codes)))
    fitted = fit_rule(
        rule,
        own,
        temperature=None,
        objective="nll",
        calibration="none",
        class_sizes=np.bincount(gallery.codes),
        prior_factors=None,
    )
    return FittedBase(
        lambda queries: fitted.claimed(queries.neighbors, n_classes=gallery.n_classes),
        lambda: fitted.claimed(own.neighbors, n_classes=gallery.n_classes, own=own),
    )


def _class_variance(gallery: Gallery) -> FittedBase:
    n_classes = gallery.n_classes
    form = fit_class_variance(gallery.own.neighbors, gallery.codes, n_classes=n_classes)

    def posterior(searched: Searched) -> Posterior:
        weights = class_variance_weights(searched.neighbors, form)
        return aggregate(searched.neighbors, weights, n_classes=n_classes)

    return FittedBase(posterior, _no_own_scores)


def _class_covariance(gallery: Gallery, *, full: bool) -> FittedBase:
    support, n_classes = gallery.own.vectors, gallery.n_classes
    form = fit_class_covariance(
        gallery.own.neighbors,
        gallery.codes,
        support,
        n_classes=n_classes,
        kind="full" if full else "diagonal",
    )

    def posterior(searched: Searched) -> Posterior:
        weights = class_covariance_weights(searched.neighbors, searched.vectors, support, form)
        return aggregate(searched.neighbors, weights, n_classes=n_classes)

    return FittedBase(posterior, _no_own_scores)


def _no_own_scores() -> NoReturn:
    raise InvalidInputError(
        "A class's variance or covariance has seen the gallery's points, and their scores under it "
        "would be too good to calibrate by. Use these bases with the step 'raw'."
    )
