"""Known and unknown queries, imitated by the gallery's own points."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import t as student_t

from nearsure.arrays import BoolArray, FloatArray, IntArray
from nearsure.errors import InvalidInputError
from nearsure.loo import check_several_classes
from nearsure.neighbors import Neighbors
from nearsure.posterior import Posterior
from nearsure.unknowns.evidence import Evidence, GalleryDensity, collect_evidence
from nearsure.validation import integer_codes

# Far unknowns, of which some hundreds are enough for a line, are so much farther away, in units of
# the median squared distance of the last neighbour. Random vectors on the sphere of embeddings, and
# sentences about other things, begin to differ there.
MOST_FAR = 1000
FAR_STEPS = (0.2, 1.0)
FAR_SEED = 0


@dataclass(frozen=True, eq=False)
class Rehearsal:
    """What a gallery shows about known and unknown queries before any query has come.

    Parameters
    ----------
    density : GalleryDensity
        Needed again for the evidence of real queries.
    known : Evidence
        Of support points, each left out of its own neighbours. Classes of one member have none:
        without it their class is gone.
    unknown : Evidence
        Of support points searched without their class.
    far : Evidence
        Of some of these, moved away from all their neighbours alike.
    unknown_rows : array of shape (n_unknown,)
        Which of the support points `unknown` is of.
    """

    density: GalleryDensity
    known: Evidence
    unknown: Evidence
    far: Evidence
    unknown_rows: IntArray


def rehearse(
    own_neighbors: Neighbors,
    class_left_out: Neighbors,
    own_ids: ArrayLike,
    support_labels: ArrayLike,
    *,
    temperature: float,
    to_posterior: Callable[[Neighbors], Posterior],
    own_posterior: Posterior | None = None,
    in_company: BoolArray | None = None,
    class_sizes: IntArray | None = None,
    left_out_rows: IntArray | None = None,
    with_logits: bool = False,
) -> Rehearsal:
    """Imitate known and unknown queries by support points.

    Parameters
    ----------
    own_neighbors : Neighbors
        Neighbours of support points without the points themselves: `search_leaving_one_out`.
    class_left_out : Neighbors
        Neighbours of the same points without their classes: `search_leaving_class_out`.
    own_ids : array of shape (n,)
        Row numbers of those points in the gallery.
    support_labels : array of shape (n_support,)
        Integer class codes of the gallery, of at least two classes.
    temperature : float
        T of NED, in units of a squared distance.
    to_posterior : callable
        The rule that real queries are scored by, such as
        ``functools.partial(score, temperature=temperature)``.
    own_posterior : Posterior, optional
        p(c | known) of own_neighbors by the same rule, if it corrects for the point left out of its
        class. None takes ``to_posterior(own_neighbors)``.

    in_company : array of shape (n,), optional
        Which points have another member of their class left, and can imitate a known query; by
        default those of classes with two members or more.
    class_sizes : array of shape (n_classes,), optional
        Members of each class, where `support_labels` are not those of the whole gallery: see
        `GalleryDensity.measure`.
    left_out_rows : array of shape (n_left_out,), optional
        Which of the points `class_left_out` is of; by default all, in their order.

    Returns
    -------
    Rehearsal

    Examples
    --------
    >>> from functools import partial
    >>> from nearsure import score
    >>> from nearsure.index import ExactIndex
    >>> from nearsure.loo import search_leaving_one_out
    >>> from nearsure.unknowns import search_leaving_class_out
    >>> rng, rows, codes = np.random.default_rng(0), np.arange(200), np.repeat([0, 1], 100)
    >>> vectors = rng.normal(size=(200, 2)) + 6.0 * codes[:, None]
    >>> index = ExactIndex(vectors)
    >>> rehearsal = rehearse(
    ...     search_leaving_one_out(index, vectors, rows, codes, k=10),
    ...     search_leaving_class_out(index, vectors, rows, codes, k=10),
    ...     rows,
    ...     codes,
    ...     temperature=1.0,
    ...     to_posterior=partial(score, temperature=1.0),
    ... )
    >>> bool(np.median(rehearsal.known.log_mass) > rehearsal.unknown.log_mass.max())
    True
    """
    codes, ids = integer_codes(support_labels), np.asarray(own_ids)
    check_several_classes(codes if class_sizes is None else np.flatnonzero(class_sizes))
    if left_out_rows is None:
        left_out_rows = np.arange(len(own_neighbors))
    if len(class_left_out) != len(left_out_rows):
        raise InvalidInputError(
            f"class_left_out must be of the {len(left_out_rows)} points of own_neighbors. "
            f"Got {len(class_left_out)} instead."
        )
    density = GalleryDensity.measure(
        own_neighbors, ids, codes, temperature=temperature, class_sizes=class_sizes
    )
    own_codes: IntArray = codes[ids]
    n_present = int((class_left_out.labels == own_codes[left_out_rows, None]).any(axis=1).sum())
    if n_present:
        raise InvalidInputError(
            "class_left_out must hold no neighbour of a point's own class. "
            f"Got one for {n_present} points. search_leaving_class_out leaves them out."
        )
    if in_company is None:
        in_company = density.class_sizes[own_codes] > 1
    if own_posterior is None:
        own_posterior = to_posterior(own_neighbors)
    collect = partial(collect_evidence, density=density, with_logits=with_logits)
    known = collect(own_neighbors, own_posterior, own_codes=own_codes)
    unknown = collect(class_left_out, to_posterior(class_left_out))
    moved = move_away(class_left_out)
    far = collect(moved, to_posterior(moved))
    return Rehearsal(density, known.take(in_company), unknown, far, left_out_rows)


def move_away(neighbors: Neighbors) -> Neighbors:
    """Some of the points, moved by steps of various lengths.

    In many dimensions a step in a random direction adds its square to all squared distances alike.
    """
    seen = np.flatnonzero(neighbors.counts)
    some = neighbors.take(seen[:: -(-len(seen) // MOST_FAR)])
    farthest = some.sq_distances[np.arange(len(some)), some.counts - 1]
    # In any order but that of the points, which may lie class by class.
    steps = np.random.default_rng(FAR_SEED).permutation(np.geomspace(*FAR_STEPS, len(some)))
    moved = some.sq_distances + np.median(farthest) * steps[:, None]
    return Neighbors(moved, some.labels, some.ids, some.counts, some.class_scores)


CHANCE = 0.5
# Up to here next to no query gets a p(known) below 0.5, whatever it is.
LEAST_AUROC = 0.6


@dataclass(frozen=True)
class Recognition:
    """How well rehearsed unknowns are told from known points; `measure_recognition` makes it.

    Parameters
    ----------
    auroc : float
        Share of pairs of a known and an unknown point of which the known one has higher log-odds.
    low : float
        What that share exceeds with 95% certainty over the draw of the classes.
    n_classes : int
        How many were left out in turn.
    """

    auroc: float
    low: float
    n_classes: int

    @property
    def works(self) -> bool:
        """Whether unknowns are recognised clearly more often than by chance."""
        return self.auroc > LEAST_AUROC and self.low > CHANCE


def measure_recognition(known: FloatArray, unknown: FloatArray, codes: IntArray) -> Recognition:
    """Compare log-odds of known points with those of unknown ones, class by class.

    Parameters
    ----------
    known, unknown : array of shape (n_known,) and (n_unknown,)
        Log-odds.
    codes : array of shape (n_unknown,)
        Classes of the unknown ones: they, not their points, are the independent draws.

    Examples
    --------
    >>> found = measure_recognition(np.array([1.0, 2.0]), np.array([0.0, 1.5]), np.array([0, 1]))
    >>> found.auroc, found.works
    (0.75, False)
    """
    ascending = np.sort(known)
    below = [np.searchsorted(ascending, unknown, side=side) for side in ("left", "right")]
    above = 1.0 - (below[0] + below[1]) / (2 * len(known))
    _, places, sizes = np.unique(codes, return_inverse=True, return_counts=True)
    by_class = np.bincount(places, above) / sizes
    n_classes = len(sizes)
    error = by_class.std(ddof=1) / np.sqrt(n_classes) if n_classes > 1 else np.inf
    mean = float(by_class.mean())
    low = mean - float(student_t.ppf(0.95, max(n_classes - 1, 1))) * float(error)
    return Recognition(mean, max(low, 0.0), n_classes)
