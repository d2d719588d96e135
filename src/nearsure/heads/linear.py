"""A head that is linear in the query: one logit a class, and p(c | z) by softmax."""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.special import log_softmax

from nearsure.arrays import AnyArray, FloatArray, IntArray
from nearsure.neighbors import PADDING_LABEL, ClassScores, join_scores

# The most probable classes of a query that are listed; the others share what is left.
MOST_LISTED = 32
# Logits that are computed, and coordinates of queries that are moved, at a time.
BLOCK_ENTRIES = 1 << 21
# Coordinates of classes that are gathered at a time.
GATHERED_ENTRIES = 1 << 17
# A sum of products depends on how many rows are multiplied at once, in its last digits. Rounded, a
# query has the same logits alone and among others.
DECIMALS = 9
# BLAS splits longer vectors over threads, and then sums in another order.
LONGEST_UNSPLIT_DOT = 8192
# What unlisted classes share, at the least.
SMALLEST_REST = 1e-12


@dataclass(frozen=True, eq=False)
class LinearHead:
    """logit(c | z) = w_c (z - centre) + b_c.

    Parameters
    ----------
    weights : array of shape (n_classes, n_features)
        w.
    intercepts : array of shape (n_classes,)
        b; minus infinity for a class without members.
    centre : array of shape (n_features,)
        Where the logits are the intercepts.

    Examples
    --------
    >>> head = LinearHead(np.array([[-1.0], [1.0]]), np.zeros(2), np.zeros(1))
    >>> scores = head.score(np.array([[2.0]]))
    >>> scores.codes, np.exp(scores.log_shares).round(3)
    (array([[1, 0]]), array([[0.982, 0.018]]))
    """

    weights: FloatArray
    intercepts: FloatArray
    centre: FloatArray

    @cached_property
    def _single(self) -> AnyArray:
        """Weights in single precision: what is gathered is as large as the memory is slow."""
        return self.weights.astype(np.float32, copy=False)

    def rounded(self) -> "LinearHead":
        """As a file keeps it: in single precision."""
        return replace(
            self,
            weights=self.weights.astype(np.float32).astype(np.float64),
            intercepts=self.intercepts.astype(np.float32).astype(np.float64),
        )

    def logits(self, vectors: AnyArray) -> FloatArray:
        """Of all classes, shape (n, n_classes)."""
        moved = np.asarray(vectors, np.float64) - self.centre
        logits: FloatArray = np.round(moved @ self.weights.T + self.intercepts, DECIMALS)
        return logits

    def log_probabilities(self, vectors: AnyArray) -> FloatArray:
        """Log p(c | z), of shape (n, n_classes)."""
        return np.asarray(log_softmax(self.logits(vectors), axis=1), np.float64)

    def score(
        self,
        vectors: AnyArray,
        labels: IntArray | None = None,
        noise: FloatArray | None = None,
    ) -> ClassScores:
        """The most probable classes of queries.

        Parameters
        ----------
        vectors : array of shape (n, n_features)
            The queries.
        labels : array of shape (n, k), optional
            Classes of their neighbours, -1 for none. They alone are scored then, which costs less
            than all where classes are many.
        noise : array of shape (n,), optional
            Variance of what is not the query's own in each of its coordinates; by default none.
        """
        n_known = len(self.weights)
        width = max(n_known if labels is None else labels.shape[1], self.weights.shape[1])
        step = max(1, BLOCK_ENTRIES // width)
        blocks: list[tuple[AnyArray | slice, ClassScores]] = []
        for start in range(0, len(vectors), step):
            rows = slice(start, start + step)
            if labels is None:
                found = _list_best(self.logits(vectors[rows]))
            else:
                found = self._score_near(vectors[rows], labels[rows])
            scores = ClassScores(*found, n_known, self.unheard)
            if noise is not None:
                n_unlisted = n_known - scores.codes.shape[1] if labels is None else 0
                scores = self._soften(scores, noise[rows], n_unlisted)
            blocks.append((rows, scores))
        return blocks[0][1] if len(blocks) == 1 else join_scores(blocks, len(vectors))

    @cached_property
    def unheard(self) -> IntArray:
        """Classes without members, on which it has no opinion."""
        return np.flatnonzero(np.isneginf(self.intercepts))

    def _soften(self, scores: ClassScores, noise: FloatArray, n_unlisted: int) -> ClassScores:
        """Shares of noisy queries: the noise of logits makes them less certain.

        The difference of two logits has the variance noise |w_1 - w_2|^2, and the mean of the
        logistic function over it is nearly that of the difference over sqrt(1 + pi / 8 variance).
        The two most probable classes set the factor of all.

        References
        ----------
        D. J. C. MacKay, The evidence framework applied to classification networks, Neural
        Computation 4, 1992.
        """
        rows = np.flatnonzero((noise > 0.0) & ((scores.codes != PADDING_LABEL).sum(axis=1) > 1))
        if not rows.size:
            return scores
        found = scores.take(rows)
        first, second = np.argsort(-found.log_shares, axis=1, kind="stable")[:, :2].T
        every = np.arange(len(rows))
        best, next_best = (
            np.asarray(self.weights[found.codes[every, place]], np.float64)
            for place in (first, second)
        )
        variance = noise[rows] * ((best - next_best) ** 2).sum(axis=1)
        factor = 1.0 / np.sqrt(1.0 + np.pi / 8.0 * variance)
        log_shares, rest = found.log_shares * factor[:, None], found.rest * factor
        total = np.exp(log_shares).sum(axis=1) + n_unlisted * np.exp(rest)
        soft_shares, soft_rest = scores.log_shares.copy(), scores.rest.copy()
        soft_shares[rows] = log_shares - np.log(total)[:, None]
        soft_rest[rows] = rest - np.log(total)
        return replace(scores, log_shares=soft_shares, rest=soft_rest)

    def _score_near(
        self, vectors: AnyArray, labels: IntArray
    ) -> tuple[IntArray, FloatArray, FloatArray, FloatArray]:
        codes = np.sort(labels, axis=1)
        codes[:, 1:][codes[:, 1:] == codes[:, :-1]] = PADDING_LABEL
        codes = np.where(codes < len(self.weights), codes, PADDING_LABEL)
        # On a class without members it has no opinion.
        codes = np.where(np.isneginf(self.intercepts[codes]), PADDING_LABEL, codes)
        # As few columns as the most classes of a row: duplicates are gone.
        order = np.argsort(codes == PADDING_LABEL, axis=1, kind="stable")
        most = max(1, int((codes != PADDING_LABEL).sum(axis=1).max()))
        codes = np.take_along_axis(codes, order[:, :most], axis=1)
        moved = (np.asarray(vectors, np.float64) - self.centre).astype(np.float32)
        listed = np.maximum(codes, 0)
        products = np.empty(codes.shape, np.float32)
        # In memory that is kept: fresh pages would cost more than the arithmetic.
        step = max(1, GATHERED_ENTRIES // (codes.shape[1] * moved.shape[1]))
        gathered = np.empty((min(step, len(codes)), codes.shape[1], moved.shape[1]), np.float32)
        for start in range(0, len(codes), step):
            rows = slice(start, start + step)
            some = gathered[: len(listed[rows])]
            # "clip" never clips here, but "raise" would copy once more.
            np.take(self._single, listed[rows], axis=0, out=some, mode="clip")
            _multiply(some, moved[rows, None, :], out=products[rows])
        logits = products.astype(np.float64) + self.intercepts[listed]
        logits = np.where(codes == PADDING_LABEL, -np.inf, np.round(logits, DECIMALS))
        # How many classes other rows have is not to be seen in the last digits.
        level = np.round(_log_sums(logits), DECIMALS)
        log_shares = logits - level[:, None]
        lowest = np.where(codes == PADDING_LABEL, np.inf, log_shares).min(axis=1)
        return codes, log_shares, np.where(np.isfinite(lowest), lowest, 0.0), level


def _multiply(weights: AnyArray, vectors: AnyArray, out: AnyArray) -> None:
    """Products of pairs of vectors, each by itself: the same whatever stands beside it."""
    if weights.shape[-1] <= LONGEST_UNSPLIT_DOT:
        np.vecdot(weights, vectors, out=out)
    else:
        np.einsum("nkm,nkm->nk", weights, np.broadcast_to(vectors, weights.shape), out=out)


def _list_best(logits: FloatArray) -> tuple[IntArray, FloatArray, FloatArray, FloatArray]:
    """Codes, log shares, the rest and the level of a block."""
    n_classes = logits.shape[1]
    level = _log_sums(logits)
    n_listed = min(n_classes, MOST_LISTED)
    if n_listed < n_classes:
        best = np.argpartition(logits, n_classes - n_listed, axis=1)[:, -n_listed:]
        # Of classes that are equally probable, which ones are listed must not depend on the others.
        best = np.sort(best, axis=1)
        found = np.take_along_axis(logits, best, axis=1)
    else:
        best, found = np.broadcast_to(np.arange(n_classes), logits.shape), logits
    order = np.argsort(-found, axis=1, kind="stable")
    codes = np.take_along_axis(best, order, axis=1)
    log_shares = np.take_along_axis(found, order, axis=1) - level[:, None]
    codes = np.where(np.isfinite(log_shares), codes, PADDING_LABEL)
    left = np.maximum(1.0 - np.exp(log_shares).sum(axis=1), SMALLEST_REST)
    rest = np.log(left / max(1, n_classes - n_listed))
    lowest = np.where(np.isfinite(log_shares), log_shares, np.inf).min(axis=1)
    return codes, log_shares, np.minimum(rest, lowest), level


def _log_sums(logits: FloatArray) -> FloatArray:
    largest = logits.max(axis=1, initial=-np.inf)
    finite = np.where(np.isfinite(largest), largest, 0.0)
    sums = np.exp(logits - finite[:, None]).sum(axis=1)
    return np.where(sums > 0, np.log(np.maximum(sums, SMALLEST_REST)) + finite, 0.0)
