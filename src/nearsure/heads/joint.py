"""Neighbours and a head as one posterior.

    log p(c | z) = a log(p_neighbours(c | z) + floor) + b log p_head(c | z) + constant

a, b and the floor are fitted by likelihood on points that neither has seen: neighbours without the
point, and a head that was fitted without it. The floor is what a class has that is not among the
neighbours.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from nearsure import schema
from nearsure.arrays import AnyArray, BoolArray, FloatArray, IntArray
from nearsure.minimization import minimize
from nearsure.neighbors import PADDING_LABEL, ClassScores
from nearsure.posterior import Posterior

if TYPE_CHECKING:
    from typing import Self

# Bounds of log a, log b and log floor; a floor far above 1 makes the neighbours' part linear.
BOUNDS = ((-7.0, 5.0), (-9.0, 3.0), (-16.0, 3.0))
START = (-0.5, -0.7, -5.0)
# Of the logarithms about these, before any point is seen.
PRIOR_DEVIATION = 2.0
MOST_FITTED = 4000
# Classes of a head that are joined with those of the neighbours at a time.
BLOCK_ENTRIES = 1 << 18
# A point counts no less probable than this, or one mislabelled point would outweigh all others.
LEAST_PROBABILITY = 1e-3


@dataclass(frozen=True)
class Joint(schema.Document):
    """The weights of neighbours and head; `fit_joint` finds them.

    Parameters
    ----------
    neighbors, head : float
        a and b, not negative.
    floor : float
        What a class has in place of 0 that is not among the neighbours, above 0.
    """

    _owner: ClassVar = "The joint form"
    _table: ClassVar = {
        "neighbors": schema.number("a number in [0, 1000]", 0.0, 1e3),
        "head": schema.number("a number in [0, 1000]", 0.0, 1e3),
        "floor": schema.number("a number in [1e-12, 1000]", 1e-12, 1e3),
    }
    neighbors: float
    head: float
    floor: float


TITLES = {"means": "class means", "logistic": "logistic regression"}


def _for_heads(field: schema.Field) -> schema.Field:
    """Such a value for each of some heads."""
    return schema.Field(
        f"an object with {field.words} for each of some of {', '.join(TITLES)}",
        lambda value: (
            isinstance(value, dict)
            and value.keys() <= TITLES.keys()
            and all(map(field.fits, value.values()))
        ),
    )


# What a head says by itself.
HEAD_ALONE = Joint(neighbors=0.0, head=1.0, floor=1.0)


@dataclass(frozen=True)
class HeadFit(schema.Document):
    """Which head is used beside the neighbours, and why; `choose_head` makes it.

    Parameters
    ----------
    name : {"means", "logistic"} or None
        The head; None if neighbours alone answer.
    joint : Joint or None
        How both are weighed.
    gains : dict of str to float
        By how much each head lowered the loss of own points, -log p(own class), in the mean.
    errors : dict of str to float
        Standard errors of these.
    left_out : dict of str to str
        Why a head was not tried.
    """

    _owner: ClassVar = "The choice of the head"
    _table: ClassVar = {
        "name": schema.nullable(schema.one_of(*TITLES)),
        "joint": schema.nullable(schema.OBJECT),
        "gains": _for_heads(schema.NUMBER),
        "errors": _for_heads(schema.NUMBER),
        "left_out": _for_heads(schema.TEXT),
    }
    name: str | None = None
    joint: Joint | None = None
    gains: dict[str, float] = field(default_factory=dict)
    errors: dict[str, float] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> "Self":
        """The inverse of `to_dict`; `ModelFileError` for what does not fit the table."""
        schema.check_fields(cls._owner, fields, cls._table)
        if fields["gains"].keys() != fields["errors"].keys():
            raise schema.unreadable(cls._owner, "each gain must have a standard error")
        joint = fields["joint"]
        return cls(**{**fields, "joint": None if joint is None else Joint.from_dict(joint)})

    def __str__(self) -> str:
        answer, taken = "The neighbours answer alone", self.name
        if taken is not None:
            verb = "are" if taken == "means" else "is"
            answer = f"{TITLES[taken].capitalize()} {verb} used beside the neighbours"
        elif self.gains:
            answer += ", as no head helps beyond chance"
        said: list[str] = []
        for name in sorted(self.gains, key=lambda name: name != taken):
            gain, error = self.gains[name], self.errors[name]
            subject = "it" if said else "the log loss of own points"
            change = f"{subject} {'falls' if gain >= 0 else 'rises'} by {abs(gain):.3f}"
            said.append(f"with {TITLES[name]} {change} (standard error {error:.3f})")
            if taken is not None and gain > self.gains[taken]:
                said[-1] += ", which is not clearly more"
        for reason in dict.fromkeys(self.left_out.values()):
            titles = [TITLES[name] for name, why in self.left_out.items() if why == reason]
            verb = "was" if titles == [TITLES["logistic"]] else "were"
            said.append(f"{' and '.join(titles)} {verb} not tried, as {reason}")
        return f"{answer}: {'; '.join(said)}." if said else f"{answer}."


# A head that helps by chance is not taken: its gain must be so many standard errors.
LEAST_GAIN = 2.0


def choose_head(
    posterior: Posterior,
    scores: dict[str, ClassScores],
    codes: IntArray,
    *,
    left_out: dict[str, str],
    forced: bool = False,
    n_draws: int = 1,
) -> HeadFit:
    """The head with which own points are most probable, if it helps at all.

    Parameters
    ----------
    posterior : Posterior
        Of the points, by their neighbours.
    scores : dict of str to ClassScores
        Of the points, by heads that have not seen them.
    codes : array of shape (n,)
        Their classes.
    left_out : dict of str to str
        Why a head was not tried.
    forced : bool
        Whether to take a head that does not help, too.
    n_draws : int
        How often each point is among them.
    """
    joints, gains, errors = {}, {}, {}
    for name, said in scores.items():
        joints[name], alone, together = fit_joint(posterior, said, codes)
        gain = alone - together
        gains[name] = float(gain.mean())
        errors[name] = float(gain.std()) / max(1.0, len(gain) / n_draws) ** 0.5
    useful = [
        name for name in gains if forced or gains[name] > LEAST_GAIN * errors[name] + SMALLEST_GAIN
    ]
    if not useful:
        return HeadFit(gains=gains, errors=errors, left_out=left_out)
    best = max(useful, key=lambda name: gains[name])
    # Classes are not normal: where their means are no better than by chance, they are not taken.
    if best == "means" and gains.get("logistic", -np.inf) > gains[best] - errors[best]:
        best = "logistic"
    return HeadFit(best, joints[best], gains, errors, left_out)


# Gains below this are those of rounding.
SMALLEST_GAIN = 1e-6


@dataclass(frozen=True, eq=False)
class _Candidates:
    """The classes that neighbours or head name, row by row, as flat arrays."""

    rows: IntArray
    codes: IntArray
    near: FloatArray
    log_head: FloatArray
    unseen: BoolArray
    starts: IntArray

    def logits(self, joint: Joint) -> FloatArray:
        """Of each entry."""
        return joint.neighbors * np.log(self.near + joint.floor) + joint.head * self.log_head

    def take(self, whole_rows: BoolArray) -> "_Candidates":
        """Some of the entries, all of a row or none."""
        rows = self.rows[whole_rows]
        return _Candidates(
            rows,
            self.codes[whole_rows],
            self.near[whole_rows],
            self.log_head[whole_rows],
            self.unseen[whole_rows],
            _row_starts(rows),
        )


def join_head(
    posterior: Posterior,
    scores: ClassScores,
    joint: Joint,
    *,
    factors: FloatArray | None = None,
    possible: BoolArray | None = None,
) -> Posterior:
    """p(c | z) of neighbours and head together, best first.

    Parameters
    ----------
    posterior : Posterior
        Of the neighbours, under the prior of the gallery.
    scores : ClassScores
        Of the same queries.
    joint : Joint
        The weights.
    factors : array of shape (n_classes,), optional
        Of another prior; see `nearsure.forms.prior`.
    possible : array of shape (n_classes,), optional
        Which classes have points; no other can be the answer. By default all.

    Returns
    -------
    Posterior
        Of the classes of the neighbours and of those that the head lists. A query without
        neighbours has none.

    Examples
    --------
    >>> near = Posterior(np.array([0, 2]), np.array([0, 1]), np.array([0.6, 0.4]), 3)
    >>> head = ClassScores(
    ...     np.array([[1, 0, 2]]), np.log([[0.7, 0.2, 0.1]]), np.zeros(1), np.zeros(1), 3
    ... )
    >>> joined = join_head(near, head, Joint(neighbors=1.0, head=1.0, floor=0.01))
    >>> joined.codes, joined.probabilities.round(3)
    (array([1, 0, 2]), array([0.7  , 0.298, 0.002]))
    """
    step = max(1, BLOCK_ENTRIES // max(1, scores.codes.shape[1]))
    blocks = [
        _join_block(posterior.take(rows), scores.take(rows), joint, factors, possible)
        for rows in (slice(start, start + step) for start in range(0, len(posterior), step))
    ] or [(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0))]
    lengths, codes, shares = (
        parts[0] if len(parts) == 1 else np.concatenate(parts)
        for parts in zip(*blocks, strict=True)
    )
    n_classes = max(posterior.n_classes, scores.n_known)
    return Posterior(np.append(0, np.cumsum(lengths)), codes, shares, n_classes)


def _join_block(
    posterior: Posterior,
    scores: ClassScores,
    joint: Joint,
    factors: FloatArray | None,
    possible: BoolArray | None,
) -> tuple[IntArray, IntArray, FloatArray]:
    """Number of classes of each row of a block, then their codes and shares, best first."""
    listed = _align(posterior, scores, possible)
    logits = listed.logits(joint)
    if listed.unseen.any():
        logits = _set_apart(listed, logits)
    if factors is not None:
        logits = logits + np.log(factors[listed.codes])
    rows, lengths = listed.rows, np.bincount(listed.rows, minlength=len(posterior))
    starts = np.cumsum(lengths) - lengths
    order = _rank(logits, listed.codes, rows, np.arange(len(rows)) - starts[rows])
    codes, logits = listed.codes[order], logits[order]
    # Best first: the first of a row is its largest.
    shares = np.exp(logits - logits[starts[rows]])
    totals = np.bincount(rows, shares, minlength=len(posterior))
    return lengths, codes, shares / totals[rows]


def _rank(logits: FloatArray, codes: IntArray, rows: IntArray, columns: IntArray) -> IntArray:
    """The order of entries that lie row by row: larger logit, then smaller code."""
    shape = (int(rows.max(initial=-1)) + 1, int(columns.max(initial=-1)) + 1)
    # Short rows sort faster than all entries at once. What is padded comes last.
    entry, keys, ties = np.full(shape, -1), np.full(shape, np.inf), np.zeros(shape, np.int64)
    entry[rows, columns], keys[rows, columns] = np.arange(len(rows)), -logits
    ties[rows, columns] = codes
    ranked = np.take_along_axis(entry, np.lexsort((ties, keys), axis=1), axis=1).ravel()
    return ranked[ranked >= 0]


def _set_apart(listed: _Candidates, logits: FloatArray) -> FloatArray:
    """Classes that the head has not seen have what neighbours say; the others share the rest."""
    lengths = np.diff(listed.starts, append=len(listed.rows))
    seen = np.where(listed.unseen, -np.inf, logits)
    largest = np.maximum.reduceat(seen, listed.starts)
    largest = np.where(np.isfinite(largest), largest, 0.0)
    shares = np.exp(seen - np.repeat(largest, lengths))
    totals = np.add.reduceat(shares, listed.starts)
    apart = np.add.reduceat(np.where(listed.unseen, listed.near, 0.0), listed.starts)
    left = np.maximum(1.0 - apart, 0.0) / np.where(totals > 0, totals, 1.0)
    with np.errstate(divide="ignore"):
        return np.log(np.where(listed.unseen, listed.near, shares * np.repeat(left, lengths)))


def fit_joint(
    posterior: Posterior, scores: ClassScores, codes: IntArray, *, seed: int = 0
) -> tuple[Joint, FloatArray, FloatArray]:
    """Fit a, b and the floor on points that neighbours and head have not seen.

    Parameters
    ----------
    posterior, scores : Posterior, ClassScores
        Of the points.
    codes : array of shape (n,)
        Their classes. Points whose class neither lists say nothing.
    seed : int
        Of the draw of at most 4,000 points.

    Returns
    -------
    joint : Joint
    alone, together : array of shape (n_fitted,)
        -log p(own class) of the points with the neighbours alone, and with both.
    """
    if len(posterior) > MOST_FITTED:
        drawn = np.sort(np.random.default_rng(seed).permutation(len(posterior))[:MOST_FITTED])
        posterior, scores, codes = posterior.take(drawn), scores.take(drawn), codes[drawn]
    listed = _align(posterior, scores)
    is_true = listed.codes == codes[listed.rows]
    seen = np.zeros(len(posterior), np.bool_)
    seen[listed.rows[is_true]] = True
    if not seen.any():
        return Joint(1.0, 0.0, 1e-6), np.zeros(1), np.zeros(1)
    if not seen.all():
        fitted = seen[listed.rows]
        listed, is_true = listed.take(fitted), is_true[fitted]
    true = np.flatnonzero(is_true)
    lengths = np.diff(listed.starts, append=len(listed.rows))

    def probabilities(logits: FloatArray) -> FloatArray:
        logits -= np.repeat(np.maximum.reduceat(logits, listed.starts), lengths)
        shares = np.exp(logits)
        return np.asarray(shares / np.repeat(np.add.reduceat(shares, listed.starts), lengths))

    def loss(logs: FloatArray) -> tuple[float, FloatArray]:
        joint = Joint(*np.exp(logs).tolist())
        above = listed.near + joint.floor
        log_above = np.log(above)
        shares = probabilities(joint.neighbors * log_above + joint.head * listed.log_head)
        p_true = shares[true]
        kept = LEAST_PROBABILITY + (1.0 - LEAST_PROBABILITY) * p_true
        # d loss / d logit = -(1 - least) p_true / kept (1[true] - share).
        pull = (1.0 - LEAST_PROBABILITY) * p_true / kept
        by_entry = np.repeat(pull, lengths) * shares
        by_entry[true] -= pull
        slopes = (
            joint.neighbors * (by_entry * log_above).sum(),
            joint.head * (by_entry * listed.log_head).sum(),
            joint.neighbors * joint.floor * (by_entry / above).sum(),
        )
        # A few points that are told apart would make weights as large as they may be.
        far = (logs - np.array(START)) / PRIOR_DEVIATION**2
        penalty = 0.5 * float((far * (logs - np.array(START))).sum())
        value = (penalty - np.log(kept).sum()) / len(true)
        return float(value), (np.array(slopes) + far) / len(true)

    def search(bounds: tuple[tuple[float, float], ...], start: tuple[float, ...]) -> Joint:
        found = minimize(loss, start, bounds=bounds, options={"maxiter": 60})
        return Joint(*np.exp(found.x).tolist())

    def losses(joint: Joint) -> FloatArray:
        p_true = probabilities(listed.logits(joint))[true]
        return -np.log(LEAST_PROBABILITY + (1.0 - LEAST_PROBABILITY) * p_true)

    none = BOUNDS[1][0]
    alone = search((BOUNDS[0], (none, none), BOUNDS[2]), (0.0, none, START[2]))
    together = search(BOUNDS, START)
    return together, losses(alone), losses(together)


def _align(
    posterior: Posterior, scores: ClassScores, possible: BoolArray | None = None
) -> _Candidates:
    """All classes that neighbours or head name, with what either says of them."""
    n_classes = max(posterior.n_classes, scores.n_known)
    listed = scores.codes != PADDING_LABEL
    # Queries without neighbours have no answer.
    listed &= (np.diff(posterior.indptr) > 0)[:, None]
    if possible is not None:
        listed &= _is_possible(possible, scores.codes)
    rows, columns = np.nonzero(listed)
    codes = scores.codes[rows, columns]
    log_head = scores.log_shares[rows, columns]
    own = posterior.rows * n_classes + posterior.codes
    order = np.argsort(own, kind="stable")
    keys = rows * n_classes + codes
    if np.array_equal(own[order], keys):
        # As where neighbours' classes alone are scored: both name all.
        near, seen = posterior.probabilities[order], np.zeros(len(rows), np.bool_)
        return _Candidates(rows, codes, near, log_head, seen, _row_starts(rows))
    entries = order[np.minimum(np.searchsorted(own[order], keys), len(own) - 1)]
    both = own[entries] == keys
    near = np.where(both, posterior.probabilities[entries], 0.0)
    alone = np.ones(len(own), np.bool_)
    alone[entries[both]] = False
    others = np.flatnonzero(alone)
    # On a class that it has not seen a head has no opinion: it must not stand in its way.
    best = np.where(listed, scores.log_shares, -np.inf).max(axis=1, initial=-np.inf)
    unknown = posterior.codes[others] >= scores.n_known
    if len(scores.unheard):
        unknown |= np.isin(posterior.codes[others], scores.unheard)
    beside = np.where(
        unknown & np.isfinite(best[posterior.rows[others]]),
        best[posterior.rows[others]],
        scores.rest[posterior.rows[others]],
    )
    all_rows = np.concatenate([rows, posterior.rows[others]])
    by_row = np.argsort(all_rows, kind="stable")
    all_rows = all_rows[by_row]
    return _Candidates(
        all_rows,
        np.concatenate([codes, posterior.codes[others]])[by_row],
        np.concatenate([near, posterior.probabilities[others]])[by_row],
        np.concatenate([log_head, beside])[by_row],
        np.concatenate([np.zeros(len(rows), np.bool_), unknown])[by_row],
        _row_starts(all_rows),
    )


def _row_starts(rows: IntArray) -> IntArray:
    return np.flatnonzero(np.diff(rows, prepend=-1))


def _is_possible(possible: BoolArray, codes: AnyArray) -> BoolArray:
    inside = codes < len(possible)
    allowed: BoolArray = inside & possible[np.where(inside, codes, 0)]
    return allowed
