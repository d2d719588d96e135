"""Risk-coverage plot: the error rate left when the least confident rows are refused."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from numpy.typing import ArrayLike

from nearsure.displays.canvas import line_style, new_axes
from nearsure.metrics import RiskCoverageCurve, area_under_risk_coverage, risk_coverage_curve

if TYPE_CHECKING:
    from typing import Self

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure
    from matplotlib.lines import Line2D

# The risk of a handful of rows jumps between 0 and 1; it does not set the scale.
SHOWN_COVERAGE = 0.05


@dataclass(eq=False)
class RiskCoverageDisplay:
    """Error rate among the accepted rows against the fraction accepted; lower is better.

    Parameters
    ----------
    curve : RiskCoverageCurve
        Coverage, risk and threshold for every distinct confidence.
    area_under_risk_coverage : float
        Area under the curve, a fraction.
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

    Examples
    --------
    Several methods share the axes of the first:

    >>> ned = RiskCoverageDisplay.from_predictions([0.9, 0.8], [1, 0], name="NED")
    >>> knn = RiskCoverageDisplay.from_predictions([0.8, 0.9], [1, 0], name="kNN")
    >>> ned.area_under_risk_coverage, knn.area_under_risk_coverage
    (0.25, 0.75)
    >>> from matplotlib.figure import Figure
    >>> ax = ned.plot(Figure().subplots()).ax_
    >>> [text.get_text() for text in knn.plot(ax).ax_.get_legend().get_texts()]
    ['NED (AURC 0.250)', 'kNN (AURC 0.750)']
    """

    curve: RiskCoverageCurve
    area_under_risk_coverage: float
    name: str | None = None
    line_: "Line2D" = field(init=False, repr=False)
    ax_: "Axes" = field(init=False, repr=False)
    figure_: "Figure | SubFigure" = field(init=False, repr=False)

    @classmethod
    def from_predictions(
        cls, confidence: ArrayLike, correct: ArrayLike, *, name: str | None = None
    ) -> "Self":
        """Compute the numbers of the plot; nothing is drawn.

        Parameters
        ----------
        confidence : array-like of shape (n,)
            Confidence of each prediction, in [0, 1].
        correct : array-like of shape (n,)
            Whether each prediction is right: boolean, or 0 and 1.
        name : str, optional
            Name of the method, for the legend.

        Returns
        -------
        RiskCoverageDisplay
        """
        return cls(
            risk_coverage_curve(confidence, correct),
            area_under_risk_coverage(confidence, correct),
            name,
        )

    def plot(self, ax: "Axes | None" = None, *, name: str | None = None) -> "Self":
        """Draw the curve.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Where to draw; by default in a new figure. Each further curve on the same axes gets
            the next colour and dash. The scale shows every curve in full from a coverage of 5 %
            on; below, the risk of a handful of rows may leave it.
        name : str, optional
            Name of the method, in place of the display's own.

        Returns
        -------
        RiskCoverageDisplay
            The display itself, with ``line_``, ``ax_`` and ``figure_``.
        """
        if ax is None:
            (ax,) = new_axes("A risk-coverage plot", figsize=(5.6, 4.2))
        name = self.name if name is None else name
        self.ax_, self.figure_ = ax, ax.figure

        style = line_style(len(ax.lines))
        area = f"AURC {self.area_under_risk_coverage:.3f}"
        (self.line_,) = ax.plot(
            self.curve.coverage,
            self.curve.risk,
            color=style.color,
            linestyle=style.dash,
            linewidth=2.0,
            label=area if name is None else f"{name} ({area})",
        )
        if len(self.curve) == 1:
            self.line_.set_marker(style.marker)  # a line of one point would not be seen
        self._set_limits(ax)
        ax.set(xlabel="Coverage (fraction accepted)", ylabel="Risk (error rate of the accepted)")
        ax.legend(loc="upper left", framealpha=0.9)
        return self

    def _set_limits(self, ax: "Axes") -> None:
        highest = self.curve.risk[self.curve.coverage >= SHOWN_COVERAGE].max()
        top = ax.get_ylim()[1] if len(ax.lines) > 1 else 0.0
        ax.set(xlim=(0, 1), ylim=(0, max(1.15 * float(highest), top, 0.01)))
