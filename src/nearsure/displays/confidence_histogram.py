"""Confidence histogram: how the right and the wrong predictions spread over confidence."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from nearsure.arrays import FloatArray, IntArray
from nearsure.displays.canvas import BIN_BARS, BLACK, BLUE, VERMILION, new_axes
from nearsure.metrics import bin_by_confidence
from nearsure.validation import check_scored

if TYPE_CHECKING:
    from typing import Self

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure


@dataclass(eq=False)
class ConfidenceHistogramDisplay:
    """Right and wrong predictions by confidence, stacked, with the two means.

    Where the line of the mean confidence stands to the right of the accuracy's, the predictions
    are over-confident on the whole.

    Parameters
    ----------
    edges : ndarray of shape (n_bins + 1,)
        Edges of the bins of equal width.
    right, wrong : ndarray of shape (n_bins,)
        Right and wrong predictions in each bin.
    mean_confidence : float
        Mean confidence of all rows.
    accuracy : float
        Fraction of all rows that are right.
    name : str, optional
        Name of the method, for the title.

    Attributes
    ----------
    ax_ : matplotlib.axes.Axes
        The histogram, after :meth:`plot`.
    figure_ : matplotlib.figure.Figure
        The figure that holds it.

    Examples
    --------
    >>> display = ConfidenceHistogramDisplay.from_predictions(
    ...     [0.75, 0.75, 0.25], [1, 0, 0], n_bins=2
    ... )
    >>> display.right.tolist(), display.wrong.tolist()
    ([0, 1], [1, 1])
    >>> from matplotlib.figure import Figure
    >>> display.plot(Figure().subplots()).ax_.get_xlabel()
    'Confidence'
    """

    edges: FloatArray
    right: IntArray
    wrong: IntArray
    mean_confidence: float
    accuracy: float
    name: str | None = None
    ax_: "Axes" = field(init=False, repr=False)
    figure_: "Figure | SubFigure" = field(init=False, repr=False)

    @classmethod
    def from_predictions(
        cls,
        confidence: ArrayLike,
        correct: ArrayLike,
        *,
        n_bins: int = 15,
        name: str | None = None,
    ) -> "Self":
        """Compute the numbers of the histogram; nothing is drawn.

        Parameters
        ----------
        confidence : array-like of shape (n,)
            Confidence of each prediction, in [0, 1].
        correct : array-like of shape (n,)
            Whether each prediction is right: boolean, or 0 and 1.
        n_bins : int, default=15
            Number of bins, of equal width.
        name : str, optional
            Name of the method, for the title.

        Returns
        -------
        ConfidenceHistogramDisplay
        """
        confidence, correct = check_scored(confidence, correct)
        bins = bin_by_confidence(confidence, correct, n_bins=n_bins)
        right = np.rint(bins.counts * np.nan_to_num(bins.accuracy)).astype(np.int64)
        return cls(
            bins.edges,
            right,
            bins.counts - right,
            float(confidence.mean()),
            float(correct.mean()),
            name,
        )

    def plot(self, ax: "Axes | None" = None, *, name: str | None = None) -> "Self":
        """Draw the histogram.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Where to draw; by default in a new figure.
        name : str, optional
            Name of the method, in place of the display's own.

        Returns
        -------
        ConfidenceHistogramDisplay
            The display itself, with ``ax_`` and ``figure_``.
        """
        if ax is None:
            (ax,) = new_axes("A confidence histogram", figsize=(5.6, 4.2))
        name = self.name if name is None else name
        self.ax_, self.figure_ = ax, ax.figure

        left, width = self.edges[:-1], np.diff(self.edges)
        ax.bar(left, self.right, width, color=BLUE, alpha=0.6, label="Right", **BIN_BARS)
        wrong = BIN_BARS | {"color": VERMILION, "alpha": 0.8, "hatch": "///", "label": "Wrong"}
        ax.bar(left, self.wrong, width, bottom=self.right, **wrong)
        means = (("Mean confidence", self.mean_confidence, "--"), ("Accuracy", self.accuracy, "-"))
        for title, mean, dash in means:
            ax.axvline(
                mean, color=BLACK, linestyle=dash, linewidth=1.6, label=f"{title} {mean:.3f}"
            )
        ax.set(xlabel="Confidence", ylabel="Rows", xlim=(0, 1))
        if name is not None:
            ax.set_title(name)
        ax.legend(loc="best", framealpha=0.9)
        return self
