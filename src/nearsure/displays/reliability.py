"""Reliability diagram: accuracy against confidence, bin by bin."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from nearsure.displays.canvas import BIN_BARS, BLUE, GREY, VERMILION, new_axes
from nearsure.extras import require
from nearsure.metrics import Binning, Bins, bin_by_confidence, expected_calibration_error

if TYPE_CHECKING:
    from typing import Self

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

PURPOSE = "A reliability diagram"


@dataclass(eq=False)
class ReliabilityDisplay:
    """Accuracy against confidence, bin by bin, and the gap between the two.

    Build it with :meth:`from_predictions`, then :meth:`plot` it.

    Parameters
    ----------
    bins : Bins
        Counts, mean confidence and accuracy of the bins.
    expected_calibration_error : float
        The weighted mean of the gaps, a fraction.
    name : str, optional
        Name of the method, for the title.

    Attributes
    ----------
    ax_ : matplotlib.axes.Axes
        The diagram, after :meth:`plot`.
    counts_ax_ : matplotlib.axes.Axes or None
        The strip of counts below it, if drawn.
    figure_ : matplotlib.figure.Figure
        The figure that holds them.

    References
    ----------
    DeGroot, Fienberg: The Comparison and Evaluation of Forecasters. The Statistician 32, 1983.

    Examples
    --------
    >>> display = ReliabilityDisplay.from_predictions([0.75, 0.75, 0.25], [1, 0, 0], n_bins=2)
    >>> display.bins.gap.tolist()
    [0.25, 0.25]
    >>> from matplotlib.figure import Figure
    >>> display.plot(Figure().subplots()).ax_.get_title()
    'ECE 0.250'
    """

    bins: Bins
    expected_calibration_error: float
    name: str | None = None
    ax_: "Axes" = field(init=False, repr=False)
    counts_ax_: "Axes | None" = field(init=False, repr=False)
    figure_: "Figure | SubFigure" = field(init=False, repr=False)

    @classmethod
    def from_predictions(
        cls,
        confidence: ArrayLike,
        correct: ArrayLike,
        *,
        n_bins: int = 15,
        binning: Binning = "width",
        name: str | None = None,
    ) -> "Self":
        """Compute the numbers of the diagram; nothing is drawn.

        Parameters
        ----------
        confidence : array-like of shape (n,)
            Confidence of each prediction, in [0, 1].
        correct : array-like of shape (n,)
            Whether each prediction is right: boolean, or 0 and 1.
        n_bins : int, default=15
            Number of bins.
        binning : {"width", "mass"}, default="width"
            Bins of equal width or of equally many rows.
        name : str, optional
            Name of the method, for the title.

        Returns
        -------
        ReliabilityDisplay
        """
        return cls(
            bin_by_confidence(confidence, correct, n_bins=n_bins, binning=binning),
            expected_calibration_error(confidence, correct, n_bins=n_bins, binning=binning),
            name,
        )

    def plot(
        self, ax: "Axes | None" = None, *, name: str | None = None, show_counts: bool = True
    ) -> "Self":
        """Draw the diagram.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Where to draw; by default in a new figure. The strip of counts takes its room from
            the axes.
        name : str, optional
            Name of the method, in place of the display's own.
        show_counts : bool, default=True
            Whether to draw the number of rows of each bin in a strip below the diagram.

        Returns
        -------
        ReliabilityDisplay
            The display itself, with ``ax_``, ``counts_ax_`` and ``figure_``.
        """
        if ax is None:
            (ax,) = new_axes(PURPOSE, figsize=(5.0, 5.6))
        name = self.name if name is None else name
        self.ax_, self.counts_ax_, self.figure_ = ax, None, ax.figure

        occupied = self.bins.counts > 0
        left = self.bins.edges[:-1][occupied]
        width = np.diff(self.bins.edges)[occupied]
        share = self.bins.accuracy[occupied]
        mean_confidence = self.bins.mean_confidence[occupied]
        ax.bar(left, share, width, color=BLUE, alpha=0.45, label="Accuracy", **BIN_BARS)
        gap = BIN_BARS | {"facecolor": "none", "edgecolor": VERMILION, "hatch": "////"}
        ax.bar(left, mean_confidence - share, width, bottom=share, label="Gap", **gap)
        ax.plot(
            [0, 1], [0, 1], color=GREY, linestyle="--", linewidth=1.2, label="Perfect calibration"
        )
        ax.plot(mean_confidence, share, "o", color=BLUE, markersize=5, clip_on=False)
        error = f"ECE {self.expected_calibration_error:.3f}"
        ax.set_title(error if name is None else f"{name}: {error}", pad=24)
        ax.set(ylabel="Accuracy", xlim=(0, 1), ylim=(0, 1.02))
        # Above the axes: inside, bars of an under-confident method reach into every corner.
        ax.legend(
            loc="lower center",
            bbox_to_anchor=(0.5, 1.0),
            ncols=3,
            fontsize="small",
            columnspacing=1.2,
            handlelength=1.5,
            frameon=False,
        )
        if show_counts:
            self.counts_ax_ = self._plot_counts(ax)
        (self.counts_ax_ or ax).set_xlabel("Confidence")
        return self

    def _plot_counts(self, ax: "Axes") -> "Axes":
        if ax.figure.get_layout_engine() is None:
            # Nothing makes room below the axes, so the axes are divided.
            toolkit = require("mpl_toolkits.axes_grid1", extra="plot", purpose=PURPOSE)
            divider = toolkit.make_axes_locatable(ax)
            strip: Axes = divider.append_axes("bottom", size="20%", pad=0.12, sharex=ax)
        else:
            # A child of the axes, for which the engine makes room.
            strip = ax.inset_axes((0.0, -0.24, 1.0, 0.2), sharex=ax)
        ax.tick_params(labelbottom=False)
        left, width = self.bins.edges[:-1], np.diff(self.bins.edges)
        strip.bar(left, self.bins.counts, width, color=GREY, alpha=0.6, **BIN_BARS)
        # Logarithmic, from below 1: a bin of few rows is seen, and seen to be of few rows.
        strip.set_yscale("log")
        strip.set(ylabel="Rows", ylim=(0.7, 2.0 * float(self.bins.counts.max())))
        return strip
