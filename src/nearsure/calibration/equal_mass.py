"""Bins of equally many rows, none of them empty and no equal confidences parted."""

import numpy as np

from nearsure.arrays import FloatArray, IntArray


def runs_of(ordered: FloatArray) -> IntArray:
    """The first row of each run of equal confidences, (n_distinct,), of sorted ones."""
    return np.flatnonzero(np.diff(ordered, prepend=-1.0)).astype(np.int64)


def bin_starts(runs: IntArray, n_rows: int, n_bins: int) -> IntArray:
    """The first row of each bin, ascending from 0; at most n_bins of them.

    Bins are those of ``bin_by_confidence(..., binning="mass")``: the first ``n_rows % n_bins`` are
    one row larger, and a run of equal confidences goes whole to the bin that its first row is in.

    Parameters
    ----------
    runs : array of shape (n_distinct,)
        What `runs_of` gave.
    n_rows, n_bins : int
        Rows in all, and how many bins are wanted.
    """
    size, n_larger = divmod(n_rows, n_bins)
    bins = np.arange(min(n_bins, n_rows))
    first_run = np.searchsorted(runs, bins * size + np.minimum(bins, n_larger))
    return runs[np.unique(first_run[first_run < len(runs)])]


def edges_between(ordered: FloatArray, starts: IntArray) -> FloatArray:
    """The inner edges of bins, halfway between the confidences on either side of each.

    Halfway, because a confidence that comes later with a last bit rounded otherwise is then still
    in its bin.
    """
    below, above = ordered[starts[1:] - 1], ordered[starts[1:]]
    halfway = (below + above) / 2.0
    # Between two neighbouring floats there is none.
    return np.where(halfway > below, halfway, above)
