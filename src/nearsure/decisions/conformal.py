"""Conformal prediction: sets of classes that hold the true class as often as was asked for.

What is guaranteed depends on where the calibration points come from.

*Held-out points* that are exchangeable with the queries and took no part in the fit (split
conformal): the true class is in the set with probability of at least 1 - alpha, exactly, for any
distribution and any quality of the posterior. If no two scores are equal it is also at most
1 - alpha + 1 / (n + 1), except for what the top label adds where a set would be empty. The
guarantee is marginal: over queries and calibration points together, not for each class or query.

*Support points, each left out in turn* (jackknife): no guarantee in the worst case; even
jackknife+, which costs more, only has 1 - 2 alpha. As one point more or less in a support set
hardly changes a neighbour's posterior, the coverage is near 1 - alpha in practice. The tests
measure it on Gaussian classes.

A true class that is not among a query's neighbours has the score infinity. If so many calibration
points missed their class that the quantile falls there, the only valid set is every class, and
`ConformalFit` reports it.

Scores
------
"lac"
    1 - p(true class). The smallest sets on average, of even size; hard queries are under-covered in
    exchange for easy ones.
"aps"
    The mass of the classes ranked before the true one, so that a set is the shortest list, best
    first, whose mass exceeds the quantile. It grows where the posterior is unsure. It is
    deterministic: Romano et al. add a random share of the last class's own mass, so that sets are
    exact in size but the same query has another set each time. Counting all of that mass instead
    is deterministic too, but where many posteriors are near 1 the quantile is also, and the sets
    hold nearly all neighbours' classes: on Gaussian classes with 88% accuracy at alpha = 0.1 the
    mean size is 2.4 (1.3 randomised, 1.05 here and for "lac"), with 7% of the sets empty.

References
----------
Sadinle, Lei, Wasserman: Least Ambiguous Set-Valued Classifiers with Bounded Error Levels. 2019.
Romano, Sesia, Candes: Classification with Valid and Adaptive Coverage. 2020.
Barber, Candes, Ramdas, Tibshirani: Predictive Inference with the Jackknife+. 2021.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil, floor, inf, isinf
from typing import TYPE_CHECKING, Any, Literal, get_args, overload

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import csr_array

from nearsure.arrays import AnyArray, BoolArray, FloatArray, IntArray
from nearsure.errors import InvalidInputError
from nearsure.labels import codes_of, labels_like
from nearsure.posterior import Posterior, check_class_codes, check_indptr
from nearsure.table import ROWS_SHOWN, Column, Table
from nearsure.validation import check_labels, check_open_fraction

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]


@dataclass(frozen=True, eq=False, repr=False)
class PredictionSets:
    """For each of n queries, the classes among which the true one is expected.

    With `classes`, as `NEDClassifier.predict_set` gives them, sets hold labels and are asked for
    labels; without, class codes. ``sets[3]`` is one set, best first, ``sets[:10]`` and
    ``sets[mask]`` are sets of some queries.

    Parameters
    ----------
    indptr : array of shape (n + 1,)
        Query i holds the entries ``indptr[i]:indptr[i + 1]``.
    codes : array of shape (n_entries,)
        Class codes, best first within a query.
    n_classes : int
        Number of classes; every code is below it.
    everything : array of shape (n,), bool
        Queries of which no class can be ruled out. They hold no entries; their set is every class.
    classes : array of shape (n_classes,), optional
        The labels, in the order of class codes.

    Examples
    --------
    >>> sets = PredictionSets(np.array([0, 2, 2]), np.array([4, 1]), 5, np.array([False, True]))
    >>> sets.sizes, sets[0], sets[1]
    (array([2, 5]), array([4, 1]), array([0, 1, 2, 3, 4]))
    >>> sets.contains([1, 3])
    array([ True,  True])
    >>> sets = replace(sets, classes=np.array(["ant", "bee", "cat", "dog", "emu"]))
    >>> sets[0].tolist(), sets.contains(["bee", "fox"])
    (['emu', 'bee'], array([ True, False]))
    >>> print(sets)
    2 sets, 5 classes, mean size 3.5, largest 5
      size  labels
      2     emu, bee
      5     ant, bee, cat, dog, emu
    """

    indptr: IntArray
    codes: IntArray
    n_classes: int
    everything: BoolArray
    classes: AnyArray | None = None

    def __post_init__(self) -> None:
        check_indptr(self.indptr)
        if self.indptr[-1] != len(self.codes):
            raise InvalidInputError(
                f"codes must have indptr[-1] entries. Got {len(self.codes)} and {self.indptr[-1]} "
                "instead."
            )
        check_class_codes(self.codes, self.n_classes)
        if self.everything.shape != (len(self),) or np.diff(self.indptr)[self.everything].any():
            raise InvalidInputError(
                f"everything must be one bool for each of the {len(self)} queries, and a query "
                "with every class must hold no entries. "
                f"Got an array of shape {self.everything.shape}, and "
                f"{len(self.codes)} entries."
            )

    def __len__(self) -> int:
        return len(self.indptr) - 1

    @property
    def sizes(self) -> IntArray:
        """Number of classes in each set."""
        return np.where(self.everything, self.n_classes, np.diff(self.indptr))

    @overload
    def __getitem__(self, queries: int | np.integer[Any]) -> AnyArray: ...
    @overload
    def __getitem__(self, queries: slice | Sequence[int] | BoolArray) -> "PredictionSets": ...
    def __getitem__(
        self, queries: int | np.integer[Any] | slice | Sequence[int] | BoolArray
    ) -> "AnyArray | PredictionSets":
        """Labels of one query, or codes without `classes`, best first; or the sets of several.

        Where a set is every class, they are in the order of class codes.
        """
        rows = np.arange(len(self))[queries]
        if rows.ndim == 0:
            entries = self.codes[self.indptr[rows] : self.indptr[rows + 1]]
            codes = np.arange(self.n_classes) if self.everything[rows] else entries
            return codes if self.classes is None else self.classes[codes]
        lengths = np.diff(self.indptr)[rows]
        indptr = np.concatenate([[0], np.cumsum(lengths)])
        entries = np.repeat(self.indptr[rows] - indptr[:-1], lengths) + np.arange(indptr[-1])
        return replace(
            self, indptr=indptr, codes=self.codes[entries], everything=self.everything[rows]
        )

    def __iter__(self) -> Iterator[AnyArray]:
        return (self[query] for query in range(len(self)))

    def __repr__(self) -> str:
        return self._table(ROWS_SHOWN).to_text()

    def _repr_html_(self) -> str:
        return self._table(ROWS_SHOWN).to_html()

    def to_list(self) -> list[list[Any]]:
        """Labels of each query, or codes without `classes`, as lists of Python's own values."""
        return [labels.tolist() for labels in self]

    def to_frame(self) -> "pd.DataFrame":
        """A data frame of pandas: the ``size`` of each set, and its ``labels`` as a list."""
        return self._table(len(self)).to_frame()

    def _table(self, n_listed: int) -> Table:
        """Sizes, and the labels of the first sets; every class of a query may be a long list."""
        sizes = self.sizes
        title = f"{len(self):,} sets, {self.n_classes:,} classes"
        if len(self):
            title += f", mean size {sizes.mean():.3g}, largest {sizes.max():,}"
        listed = self[:n_listed].to_list()
        labels = np.fromiter([*listed, *[None] * (len(self) - len(listed))], object, len(self))
        return Table(
            title,
            (
                Column("size", sizes),
                Column("labels", labels, lambda shown: ", ".join(map(str, shown))),
            ),
        )

    def contains(self, y: ArrayLike) -> BoolArray:
        """Return whether each set holds the label given for it; a class code without `classes`.

        Parameters
        ----------
        y : array-like of shape (n,)
            A label or code for each query. One that is no class is in no set, not even in that of
            every class.
        """
        if self.classes is not None:
            y = codes_of(labels_like(y, len(self), self.classes), self.classes)
        asked = check_labels(y, n_rows=len(self))
        rows = np.repeat(np.arange(len(self)), np.diff(self.indptr))
        found = self.everything & (asked >= 0) & (asked < self.n_classes)
        found[rows[self.codes == asked[rows]]] = True
        return found

    def to_csr(self) -> csr_array:
        """Boolean matrix of shape (n, n_classes) in scipy's CSR form, columns ascending.

        A row of every class has n_classes entries: look at ``everything`` first if both numbers are
        large.
        """
        indptr = np.concatenate([[0], np.cumsum(self.sizes)])
        columns = np.empty(indptr[-1], np.int64)
        full = np.repeat(self.everything, self.sizes)
        columns[full] = np.tile(np.arange(self.n_classes), self.everything.sum())
        columns[~full] = self.codes
        matrix = csr_array(
            (np.ones(len(columns), np.bool_), columns, indptr), shape=(len(self), self.n_classes)
        )
        matrix.sort_indices()
        return matrix


ScoreName = Literal["aps", "lac"]

# Sums of shares that are equal on paper differ by rounding; a set may only gain from it.
ROUNDING = 1e-9


@dataclass(frozen=True)
class ConformalFit:
    """The score up to which a class belongs to a set.

    Attributes
    ----------
    quantile : float
        The score; infinity if no class can be ruled out.
    alpha : float
        Share of the queries whose set may miss the true class.
    score : {"aps", "lac"}
        Which score.
    n_points, n_missed : int
        Calibration points, and those whose class is not among their neighbours.
    n_neighbors : int, optional
        Neighbours that points and queries must be searched for, where those of the fit missed too
        many classes; None if the usual number does.
    rests_on : str
        What the calibration points are, as it is printed.
    """

    quantile: float
    alpha: float
    score: ScoreName
    n_points: int
    n_missed: int
    n_neighbors: int | None = None
    rests_on: str = "points"

    @property
    def everything(self) -> bool:
        """Whether the only valid set is every class."""
        return isinf(self.quantile)

    @property
    def smallest_alpha(self) -> float:
        """The smallest alpha for which these points rule any class out."""
        return (self.n_missed + 1) / (self.n_points + 1)

    def __str__(self) -> str:
        promise = f"Sets that hold the true class of {100 * (1 - self.alpha):.6g}% of the queries"
        deeper = f" Searched {self.n_neighbors:,} neighbours deep." if self.n_neighbors else ""
        if not self.everything:
            return (
                f"{promise}: classes of score {self.score!r} up to {self.quantile:.4g}, from "
                f"{self.n_points:,} {self.rests_on}.{deeper}"
            )
        # Rounded up, so that the printed number does as a remedy.
        enough = ceil(self.smallest_alpha * 1e4) / 1e4
        return (
            f"{promise} must hold every class: {self.n_missed:,} of {self.n_points:,} calibration "
            f"points have a class that is not among their neighbours. Use an alpha of at least "
            f"{enough:.4g}, a larger k, or more calibration points.{deeper}"
        )


def fit_conformal(
    posterior: Posterior, codes: ArrayLike, *, alpha: float, score: ScoreName = "aps"
) -> ConformalFit:
    """Find the score up to which a class must be in a set.

    Parameters
    ----------
    posterior : Posterior
        Of n calibration points: held out, or each left out of its own neighbours (see the module).
    codes : array-like of shape (n,)
        Their true class codes. A code that the posterior does not hold counts as missed.
    alpha : float
        Share of the queries whose set may miss the true class, in (0, 1).
    score : {"aps", "lac"}, default="aps"
        "aps" makes sets as long as the query is hard; "lac" the smallest sets on average.

    Returns
    -------
    ConformalFit
        With the ceil((n + 1)(1 - alpha))-th smallest score of the true classes; infinity where that
        is one of a missed class, or beyond the last.

    Examples
    --------
    >>> from nearsure.neighbors import Neighbors
    >>> from nearsure.posterior import score as posterior_of
    >>> points = Neighbors([[0.0, 1.0, 4.0]] * 4, [[0, 1, 1], [1, 0, 0], [0, 1, 0], [1, 1, 0]])
    >>> fit = fit_conformal(posterior_of(points, rule="knn"), [0, 1, 0, 1], alpha=0.3, score="lac")
    >>> print(fit)  # doctest: +NORMALIZE_WHITESPACE
    Sets that hold the true class of 70% of the queries: classes of score 'lac' up to 0.6667, from 4
    points.
    """
    true_codes = check_labels(codes, n_rows=len(posterior))
    check_open_fraction("alpha", alpha)
    if score not in get_args(ScoreName):
        raise InvalidInputError(
            f"The 'score' parameter must be one of {get_args(ScoreName)}. Got {score!r} instead."
        )
    is_true = posterior.codes == true_codes[posterior.rows]
    true_scores = np.full(len(posterior), inf)
    true_scores[posterior.rows[is_true]] = _scores(posterior, score)[is_true]
    # An alpha such as 0.29 times 100 is 28.999999999999996 and must not lose a whole rank by it.
    rank = len(posterior) + 1 - floor(alpha * (len(posterior) + 1) + ROUNDING)
    return ConformalFit(
        quantile=float(np.append(np.sort(true_scores), inf)[rank - 1]),
        alpha=float(alpha),
        score=score,
        n_points=len(posterior),
        n_missed=int(np.isinf(true_scores).sum()),
    )


def prediction_sets(posterior: Posterior, fit: ConformalFit) -> PredictionSets:
    """Return the set of classes of each query.

    Parameters
    ----------
    posterior : Posterior
        Of n queries, by the same rule, temperature and k as that of the calibration points.
    fit : ConformalFit
        What `fit_conformal` found.

    Returns
    -------
    PredictionSets
        The top label is always in the set: "lac" would leave some sets empty, and a class more
        never lowers the coverage. A query without neighbours has every class.

    Examples
    --------
    >>> from nearsure.neighbors import Neighbors
    >>> from nearsure.posterior import score
    >>> fit = ConformalFit(quantile=0.7, alpha=0.1, score="lac", n_points=99, n_missed=0)
    >>> queries = Neighbors([[0.0, 1.0, 4.0], [0.0, 1.0, 2.0]], [[0, 1, 1], [2, 2, 2]])
    >>> sets = prediction_sets(score(queries, rule="knn", n_classes=5), fit)
    >>> sets[0], sets[1]
    (array([1, 0]), array([2]))
    """
    lengths = np.diff(posterior.indptr)
    everything = np.full(len(posterior), fit.everything) | (lengths == 0)
    included = _scores(posterior, fit.score) <= fit.quantile + ROUNDING
    included[posterior.indptr[:-1][lengths > 0]] = True
    included &= ~everything[posterior.rows]
    sizes = np.bincount(posterior.rows[included], minlength=len(posterior))
    return PredictionSets(
        np.concatenate([[0], np.cumsum(sizes)]),
        posterior.codes[included],
        posterior.n_classes,
        everything,
    )


def _scores(posterior: Posterior, score: ScoreName) -> FloatArray:
    """Return the score of each entry: how odd it would be if its class were the true one."""
    if score == "lac":
        return 1.0 - posterior.probabilities
    mass_before = np.zeros(len(posterior.codes))
    lengths = np.diff(posterior.indptr)
    for rank in range(1, lengths.max(initial=0)):
        here = posterior.indptr[:-1][lengths > rank] + rank
        mass_before[here] = mass_before[here - 1] + posterior.probabilities[here - 1]
    return mass_before
