"""What a fitted classifier holds, for the methods that build on it."""

from typing import Literal

from numpy.typing import ArrayLike

from nearsure.arrays import AnyArray, FloatArray
from nearsure.classifier.fitted_rule import FittedRule
from nearsure.classifier.known_judge import KnownJudge
from nearsure.classifier.own_pass import OwnPass
from nearsure.classifier.parameters import Prior
from nearsure.classifier.prediction import Prediction
from nearsure.engine_gallery import EngineGallery
from nearsure.engines.contract import Fingerprint
from nearsure.neighbors import Neighbors
from nearsure.posterior import Posterior
from nearsure.support_set import SupportSet
from nearsure.unknowns import Rehearsal


class FittedGallery:
    """A support set with what was fitted on it; `NEDClassifier` fills it in.

    Attributes
    ----------
    _support : SupportSet or EngineGallery
        The gallery.
    _fingerprint, _warned_of : Fingerprint
        Through what it was fitted, and of which other engine was warned already.
    _rule, _prior : FittedRule, prior
        From neighbours to p(c | known).
    _known : KnownJudge or None
        p(known); None if every query is taken for known.
    _own, _rehearsal : OwnPass, pair of OwnPass and Rehearsal, or None
        The gallery asked about itself, and as known and unknown queries; kept until it changes.
    _fit_mark, _fit_loss, _warned_stale : int, pair of float or None, bool
        The state of the gallery at the fit, and whether its age was said.
    _adapted : bool
        Whether p(known) was fitted to queries; it then survives a refit.
    _all_neighbors : bool
        Whether k is as many points as there are.
    """

    prior: Prior
    n_neighbors_: int
    fit_indices_: AnyArray
    n_features_in_: int
    metric: Literal["euclidean", "cosine"]
    _metric: Literal["euclidean", "cosine"]
    _group_names: AnyArray | None
    _support: SupportSet | EngineGallery
    _fingerprint: Fingerprint
    _warned_of: Fingerprint | None = None
    _rule: FittedRule
    _prior: Literal["support", "uniform"] | FloatArray
    _known: KnownJudge | None
    _own: OwnPass | None
    _rehearsal: tuple[OwnPass, Rehearsal] | None
    _fit_mark: int
    _fit_loss: tuple[float, float] | None
    _warned_stale: bool
    _adapted: bool
    _all_neighbors: bool

    @property
    def classes_(self) -> AnyArray:
        """The labels, in the order of class codes: the gallery's list, and there is no other."""
        if not hasattr(self, "_support"):
            raise AttributeError("classes_ is there after fit.")
        return self._support.classes

    def kneighbors(self, Q: ArrayLike, n_neighbors: int | None = None) -> Neighbors:
        """The nearest support points of each query."""
        raise NotImplementedError

    def _predicted(self, neighbors: Neighbors) -> Prediction:
        raise NotImplementedError

    def _own_pass(self) -> OwnPass:
        raise NotImplementedError

    def _posterior(self, neighbors: Neighbors, own: OwnPass | None = None) -> Posterior:
        raise NotImplementedError

    def _prior_factors(self) -> FloatArray | None:
        raise NotImplementedError

    def _fit_on(self, support: SupportSet | EngineGallery) -> None:
        raise NotImplementedError

    def _check_parameters(self) -> None:
        raise NotImplementedError
