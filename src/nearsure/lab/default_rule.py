"""nearsure's own rule beside the paper's: `NEDClassifier` on the points of a protocol."""

import warnings
from types import MappingProxyType
from typing import Literal

from nearsure.classifier import NEDClassifier
from nearsure.errors import FitWarning, QueriesDifferWarning
from nearsure.lab.protocols import ProtocolPoints
from nearsure.posterior import Posterior

# What they are called in tables and figures.
NEIGHBORS_ALONE = "nearsure, neighbours alone"
DEFAULT = "nearsure (default)"
HEADS: MappingProxyType[str, Literal["auto"] | None] = MappingProxyType(
    {NEIGHBORS_ALONE: None, DEFAULT: "auto"}
)


def nearsure_posteriors(points: ProtocolPoints, k: int) -> dict[str, Posterior]:
    """What `NEDClassifier` makes of the queries, without a head and as it comes.

    Where every point is a query, each is scored as if it were not in the gallery: neither its own
    vector nor its label takes part in the answer. As with NED's T by the same protocol, a few
    parameters for all points together were fitted on them.

    Parameters
    ----------
    points : ProtocolPoints
        Gallery and queries.
    k : int
        Neighbours, fewer than there are points in the gallery.

    Returns
    -------
    dict of str to Posterior
        By name, `NEIGHBORS_ALONE` and `DEFAULT`; class codes are those of the points.
    """
    posteriors = {}
    for name, head in HEADS.items():
        with warnings.catch_warnings():
            # Told of NED on the same points already; and what queries are like is not at issue.
            warnings.simplefilter("ignore", FitWarning)
            warnings.simplefilter("ignore", QueriesDifferWarning)
            fitted = NEDClassifier(n_neighbors=k, head=head).fit(points.vectors, points.codes)
            if points.queries is None:
                posteriors[name] = fitted.predict_own(fitted.support_ids_).posterior
            else:
                posteriors[name] = fitted.predict_posterior(points.queries)
    return posteriors
