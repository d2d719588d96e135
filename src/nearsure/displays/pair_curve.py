"""ROC and DET of pairs: same ones accepted, or missed, against different ones accepted."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from scipy.stats import norm

from nearsure.arrays import FloatArray
from nearsure.displays.canvas import line_style, new_axes
from nearsure.pairs import PairReport

if TYPE_CHECKING:
    from typing import Self

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure
    from matplotlib.lines import Line2D

# Shares that are marked where the scale is that of the normal distribution.
DET_TICKS = (0.001, 0.01, 0.05, 0.2, 0.5, 0.8)


@dataclass(eq=False)
class PairCurveDisplay:
    """The errors of all thresholds on the probability of a pair.

    Parameters
    ----------
    false_accept, true_accept : array of shape (m,)
        Shares of different and of same pairs that each threshold accepts, ascending.
    equal_error_rate : float
        Where as many different pairs are accepted as same ones are missed.
    name : str, optional
        Name of the method, for the legend.

    Attributes
    ----------
    line_ : matplotlib.lines.Line2D
        The curve, after :meth:`plot`.
    ax_ : matplotlib.axes.Axes
        The axes that hold it.
    figure_ : matplotlib.figure.Figure
        The figure that holds them.

    References
    ----------
    Martin, Doddington, Kamm, Ordowski, Przybocki: The DET Curve in Assessment of Detection Task
    Performance. Eurospeech 1997.

    Examples
    --------
    >>> from nearsure.pairs import report_pairs
    >>> report = report_pairs([0.9, 0.6, 0.7, 0.1], [1, 1, 0, 0], base_rate=0.5)
    >>> display = PairCurveDisplay.from_report(report, name="faces")
    >>> from matplotlib.figure import Figure
    >>> display.plot(Figure().subplots(), kind="det").ax_.get_ylabel()
    'Same pairs that are missed'
    """

    false_accept: FloatArray
    true_accept: FloatArray
    equal_error_rate: float
    name: str | None = None
    line_: "Line2D" = field(init=False, repr=False)
    ax_: "Axes" = field(init=False, repr=False)
    figure_: "Figure | SubFigure" = field(init=False, repr=False)

    @classmethod
    def from_report(cls, report: PairReport, *, name: str | None = None) -> "Self":
        """Take the curve of a report; nothing is drawn."""
        return cls(report.false_accept, report.true_accept, report.equal_error_rate, name)

    def plot(
        self,
        ax: "Axes | None" = None,
        *,
        kind: Literal["roc", "det"] = "roc",
        name: str | None = None,
    ) -> "Self":
        """Draw the curve.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Where to draw; by default in a new figure. Each further curve gets the next colour.
        kind : {"roc", "det"}, default="roc"
            ROC: true accepts, with false accepts on a logarithmic scale, as the smallest matter
            most. DET: misses against false accepts, both on the scale of the normal distribution,
            where curves are nearly straight.
        name : str, optional
            Name of the method, in place of the display's own.

        Returns
        -------
        PairCurveDisplay
            The display itself, with ``line_``, ``ax_`` and ``figure_``.
        """
        if ax is None:
            (ax,) = new_axes("A curve of pairs", figsize=(5.6, 4.6))
        name = self.name if name is None else name
        self.ax_, self.figure_ = ax, ax.figure
        style, error = line_style(len(ax.lines)), f"EER {self.equal_error_rate:.1%}"
        # Neither scale has a place for 0 or 1.
        inner = (self.false_accept > 0.0) & (self.false_accept < 1.0)
        if kind == "det":
            inner &= self.true_accept < 1.0
        x, y = self.false_accept[inner], self.true_accept[inner]
        if kind == "det":
            inner_y = y > 0.0
            x, y = norm.ppf(x[inner_y]), norm.ppf(1.0 - y[inner_y])
        (self.line_,) = ax.plot(
            x,
            y,
            color=style.color,
            linestyle=style.dash,
            linewidth=2.0,
            label=error if name is None else f"{name} ({error})",
        )
        ax.set_xlabel("Different pairs that are accepted")
        if kind == "det":
            places = norm.ppf(DET_TICKS)
            words = [f"{100 * share:g}%" for share in DET_TICKS]
            ax.set_xticks(places, words)
            ax.set_yticks(places, words)
            ax.set_ylabel("Same pairs that are missed")
        else:
            ax.set_xscale("log")
            ax.set(ylabel="Same pairs that are accepted", ylim=(0.0, 1.02))
            ax.set_xlim(right=1.0)
        ax.grid(visible=True, alpha=0.3)
        ax.legend(loc="upper right" if kind == "det" else "lower right", framealpha=0.9)
        return self
