"""What the classifier returns: `Prediction` and its `Answer`s, `Support` and `Staleness`."""

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, SupportsIndex, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nearsure.arrays import AnyArray, FloatArray
from nearsure.errors import DenseResultTooLargeError
from nearsure.neighbors import Neighbors
from nearsure.posterior import Posterior
from nearsure.table import Column, Table, plain

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]


@dataclass(frozen=True)
class Answer:
    """One row of a `Prediction`, in Python's own numbers and strings.

    Parameters
    ----------
    label : object
        The most probable class.
    confidence : float
        Its probability, in [0, 1].
    p_known : float or None
        Probability that the query is of any class of the gallery; None without `unknown_share`.
    verdict : str or None
        "known", "ambiguous" or "unknown"; None where the gallery cannot tell.
    nearest_id : object
        Id of the nearest neighbour; None if there is no neighbour.
    sq_distance : float
        Squared distance to it; infinite if there is none.
    """

    label: Any
    confidence: float
    p_known: float | None
    verdict: str | None
    nearest_id: Any
    sq_distance: float


@dataclass(frozen=True, eq=False, repr=False)
class Prediction:
    """Labels, how sure they are, and the neighbours that support them.

    Printed, it is a summary of ten lines at most. ``len(prediction)`` is the number of queries,
    ``prediction[3]`` the `Answer` to one of them, ``prediction[:10]`` and ``prediction[mask]``
    predictions of some.

    Parameters
    ----------
    labels : array of shape (n,)
        The most probable class of each query.
    confidence : array of shape (n,)
        Its probability, in [0, 1]: p(known) p(c | known) where unknown queries are expected.
    neighbors : Neighbors
        The evidence; ``neighbors.ids`` are ids of the gallery, row numbers unless it was changed.
    posterior : Posterior
        The probabilities of all classes among the neighbours; codes index ``classes_``. What a row
        lacks of 1 is the chance of another class, or of none.
    p_known : array of shape (n,), or None
        Probability that a query is of any class of the gallery; None without `unknown_share`.
    verdicts : array of shape (n,) of str, or None
        "known", "ambiguous" (of the gallery, but split between its classes) or "unknown"; None
        where the gallery cannot recognise unknown queries, and the fit has said so.
    differences : tuple of str, or None
        How the queries differ from the gallery's own points: empty if they do not; None if they
        are fewer than 30, or were not compared. Rows that are picked out of a prediction keep what
        was found for all. See `nearsure.shift`.
    """

    labels: AnyArray
    confidence: FloatArray
    neighbors: Neighbors
    posterior: Posterior
    p_known: FloatArray | None = None
    verdicts: NDArray[np.str_] | None = None
    differences: tuple[str, ...] | None = None

    def __len__(self) -> int:
        return len(self.labels)

    @overload
    def __getitem__(self, rows: SupportsIndex) -> Answer: ...
    @overload
    def __getitem__(self, rows: slice | ArrayLike) -> "Prediction": ...
    def __getitem__(self, rows: SupportsIndex | slice | ArrayLike) -> "Answer | Prediction":
        """One row as an `Answer`; several, by slice, mask or row numbers, as a `Prediction`."""
        places = np.arange(len(self))[rows if isinstance(rows, slice) else _as_index(rows)]
        if places.ndim == 0:
            return _answer(self._columns(), int(places))
        return Prediction(
            self.labels[places],
            self.confidence[places],
            self.neighbors.take(places),
            self.posterior.take(places),
            None if self.p_known is None else self.p_known[places],
            None if self.verdicts is None else self.verdicts[places],
            self.differences,
        )

    def __iter__(self) -> Iterator[Answer]:
        # Columns are made once: to make them for each row would take the square of the time.
        columns = self._columns()
        return (_answer(columns, row) for row in range(len(self)))

    def __repr__(self) -> str:
        return self._table().to_text()

    def _repr_html_(self) -> str:
        return self._table().to_html()

    def to_frame(self) -> "pd.DataFrame":
        """A data frame of pandas with a row for each query and the fields of `Answer` as columns.

        ``p_known`` and ``verdict`` are left out where there are none. ``nearest_id`` is missing
        for a query without neighbours.
        """
        return self._table().to_frame()

    def _columns(self) -> tuple[Column, ...]:
        found = self.neighbors
        columns = [
            Column("label", self.labels),
            Column("confidence", self.confidence, "{:.3f}".format),
        ]
        if self.p_known is not None:
            columns.append(Column("p_known", self.p_known, "{:.3f}".format, "p(known)"))
        if self.verdicts is not None:
            columns.append(Column("verdict", self.verdicts))
        nearest: AnyArray = np.full(len(self), None) if found.ids is None else found.ids[:, 0]
        if not found.counts.all():
            nearest = nearest.astype(object)
            nearest[found.counts == 0] = None
        columns.append(Column("nearest_id", nearest, heading="nearest id"))
        distances = found.sq_distances[:, 0]
        columns.append(Column("sq_distance", distances, "{:.4g}".format, "squared distance"))
        return tuple(columns)

    def _table(self) -> Table:
        n, n_classes = len(self), self.posterior.n_classes
        title = f"{n:,} prediction{'s' * (n != 1)}, {n_classes:,} class{'es' * (n_classes != 1)}"
        if n:
            title += f", median confidence {np.median(self.confidence):.2f}"
        for verdict in ("ambiguous", "unknown"):
            if self.verdicts is not None and (count := int((self.verdicts == verdict).sum())):
                title += f", {count:,} {verdict}"
        differences = ", and ".join(self.differences or ())
        remark = f"These queries differ from the expected ones: {differences}."
        return Table(title, self._columns(), (remark,) if self.differences else ())


def _answer(columns: tuple[Column, ...], row: int) -> Answer:
    entries: dict[str, Any] = {"p_known": None, "verdict": None}
    entries |= {column.name: plain(column.entries[row]) for column in columns}
    return Answer(**entries)


def _as_index(rows: SupportsIndex | ArrayLike) -> AnyArray:
    """Rows as numpy indexes with them; an empty list is one of no rows."""
    index = np.asarray(rows)
    return index if index.size or index.dtype.kind != "f" else index.astype(np.int64)


@dataclass(frozen=True, eq=False)
class Support:
    """How far neighbours alone, and the class as a whole, support answers, before calibration.

    Parameters
    ----------
    neighbors : array of shape (n,)
        Probability of each answer by the neighbours alone, in [0, 1]; 0 if none is of its class.
    head : array of shape (n,), or None
        Probability of the same answer by the head alone, in [0, 1]; NaN for a class that came
        after the head was fitted. None without a head.
    shares : array of shape (n, k)
        What each neighbour contributes, as `NEDClassifier.vote_shares` has it.
    """

    neighbors: FloatArray
    head: FloatArray | None
    shares: FloatArray


# Beyond this share of changed points a fit is called stale, whatever the likelihood says.
LARGEST_SHARE_CHANGED = 0.1
# A drift of the likelihood beyond this many standard errors is no chance.
LARGEST_DRIFT = 3.0
# Points whose likelihood is watched: enough to see a drift of 0.1 nats, few enough to be cheap.
WATCHED = 1000


@dataclass(frozen=True)
class Staleness:
    """How far a gallery has moved from what was fitted on it.

    Parameters
    ----------
    share_changed : float
        Points added, removed or relabelled since the fit, each once, over the points of now.
    loss_at_fit, loss_now : float
        Mean leave-one-out -log p(own label) of points, then and now, with the same
        fitted parameters. It rises if the gallery has become harder or labels have become worse.
    standard_error : float
        Of their difference.
    others_may_write : bool
        Whether points may have changed without being counted here, in an engine that is shared.
    """

    share_changed: float
    loss_at_fit: float
    loss_now: float
    standard_error: float
    others_may_write: bool = False

    @property
    def drift(self) -> float:
        """Loss of now less that of the fit."""
        return self.loss_now - self.loss_at_fit

    @property
    def is_stale(self) -> bool:
        """Whether `refit` is due: many points changed, or the likelihood drifted either way."""
        return self.share_changed > LARGEST_SHARE_CHANGED or (
            (self.share_changed > 0 or self.others_may_write)
            and abs(self.drift) > LARGEST_DRIFT * self.standard_error
        )

    def __str__(self) -> str:
        verdict = "stale: call refit()" if self.is_stale else "fresh enough"
        return (
            f"{self.share_changed:.1%} of the gallery changed since the fit; leave-one-out loss "
            f"{self.loss_at_fit:.3f} then, {self.loss_now:.3f} now "
            f"(+- {self.standard_error:.3f}): {verdict}."
        )


def available_bytes() -> int:
    """Memory that can still be had without swapping, as far as the system tells."""
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():
        for line in meminfo.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    if hasattr(os, "sysconf"):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return sys.maxsize  # a system that does not tell: leave it to the allocation to fail


def check_dense_fits(n_queries: int, n_classes: int) -> None:
    """Raise an error if a float64 matrix of this shape would not fit in memory."""
    needed, available = 8 * n_queries * n_classes, available_bytes()
    if needed > available:
        raise DenseResultTooLargeError(
            f"Probabilities of {n_queries} queries over {n_classes} classes would take "
            f"{needed / 2**30:.1f} GiB as a dense array, and {available / 2**30:.1f} GiB are "
            "available. predict_posterior gives the same probabilities in sparse form."
        )
