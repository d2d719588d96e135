"""-log p(true class) of leave-one-out points under sharpened NED, with derivatives.

Write s_i for a neighbour's distance beyond the nearest, r for a point's scale over the typical one,
b = exp(-log T - beta log r), L_c = log of the sum of exp(-b s_i) over the neighbours of class c,
and E_c[s] for the mean of s under the weights in that sum. With n_c for the size of class c, its
logit is gamma (L_c - log n_c) + log n_c, so

    d logit_c / d log T     = gamma b E_c[s]
    d logit_c / d log gamma = gamma (L_c - log n_c)
    d logit_c / d beta      = gamma b log r E_c[s]

and d log p(y) is that of the true class's logit less its mean over the classes under p.
"""

import numpy as np

from nearsure.arrays import FloatArray, IntArray
from nearsure.neighbors import Neighbors

N_PARAMETERS = 3


class SharpenedLikelihood:
    """The loss of every point as a function of (log T, log gamma, beta).

    Parameters
    ----------
    neighbors : Neighbors
        Of points that have left themselves out; each has a neighbour of its own class.
    labels : array of shape (n,)
        Class codes of the points.
    log_ratios : array of shape (n,)
        log r.
    own_factors : array of shape (n,)
        What the sum of the own class is multiplied by; see `nearsure.forms.left_out`.
    class_sizes : array of shape (n_classes,), optional
        n_c; by default 1 for all.
    """

    def __init__(
        self,
        neighbors: Neighbors,
        labels: IntArray,
        log_ratios: FloatArray,
        own_factors: FloatArray,
        class_sizes: IntArray | None = None,
    ) -> None:
        by_class = np.argsort(neighbors.labels, axis=1, kind="stable")
        codes = np.take_along_axis(neighbors.labels, by_class, axis=1)
        excess = neighbors.sq_distances - neighbors.sq_distances[:, :1]
        excess = np.take_along_axis(excess, by_class, axis=1)
        starts_class = np.ones(codes.shape, np.bool_)
        starts_class[:, 1:] = codes[:, 1:] != codes[:, :-1]
        # Padding has the smallest label and sorts first: a class of no weight, which is dropped.
        keep = np.take_along_axis(neighbors.valid, by_class, axis=1).ravel()
        starts = np.flatnonzero(starts_class.ravel()[keep])
        rows = np.repeat(np.arange(len(codes)), neighbors.counts)
        self._starts, self._rows = starts, rows[starts]
        self._row_starts = np.flatnonzero(np.diff(self._rows, prepend=-1))
        # Shifted by its class's nearest, no sum underflows, however far the class is.
        flat = excess.ravel()[keep]
        self._nearest = flat[starts]
        lengths = np.diff(starts, append=len(flat))
        self._beyond = flat - np.repeat(self._nearest, lengths)
        self._row_of_entry = rows
        class_of_run = codes.ravel()[keep][starts]
        is_true = class_of_run == labels[self._rows]
        self._true = np.flatnonzero(is_true)
        self._log_sizes = np.zeros(len(starts))
        if class_sizes is not None:
            self._log_sizes = np.log(np.maximum(class_sizes, 1))[class_of_run]
        corrections = np.where(is_true, np.log(own_factors)[self._rows], 0.0)
        self._log_factors = corrections - self._log_sizes
        self._log_ratios = log_ratios

    def __call__(self, parameters: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Losses of shape (n,) and their derivatives of shape (n, 3)."""
        log_temperature, log_sharpness, adaptivity = parameters
        sharpness = np.exp(log_sharpness)
        inverse = np.exp(-log_temperature - adaptivity * self._log_ratios)
        weights = np.exp(-inverse[self._row_of_entry] * self._beyond)
        sums = np.add.reduceat(weights, self._starts)
        moments = np.add.reduceat(weights * self._beyond, self._starts)
        by_class = inverse[self._rows]
        sharpened = sharpness * (np.log(sums) - by_class * self._nearest + self._log_factors)
        logits = sharpened + self._log_sizes
        slopes = sharpness * by_class * (self._nearest + moments / sums)
        highest = np.maximum.reduceat(logits, self._row_starts)
        shares = np.exp(logits - highest[self._rows])
        totals = np.add.reduceat(shares, self._row_starts)
        shares /= totals[self._rows]
        losses = highest + np.log(totals) - logits[self._true]

        def mean_less_true(of_class: FloatArray) -> FloatArray:
            mean = np.add.reduceat(shares * of_class, self._row_starts)
            return np.asarray(mean - of_class[self._true], np.float64)

        by_temperature = mean_less_true(slopes)
        return losses, np.stack(
            [by_temperature, mean_less_true(sharpened), by_temperature * self._log_ratios], axis=1
        )
