"""Where a display draws and in which colours; matplotlib is imported only here, and only late."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nearsure.extras import require

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe and Ito's colours, which stay apart in every common form of colour blindness.
BLUE = "#0072B2"
VERMILION = "#D55E00"
GREEN = "#009E73"
PURPLE = "#CC79A7"
SKY_BLUE = "#56B4E9"
ORANGE = "#E69F00"
GREY = "#595959"
BLACK = "#000000"

# Options of bars that fill the bins of a histogram.
BIN_BARS: dict[str, Any] = {"align": "edge", "edgecolor": "white", "linewidth": 0.8}


@dataclass(frozen=True)
class LineStyle:
    """Colour, dash and marker of one line: any one of them is enough to recognise it."""

    color: str
    dash: str
    marker: str


LINE_STYLES = (
    LineStyle(BLUE, "-", "o"),
    LineStyle(VERMILION, "--", "s"),
    LineStyle(GREEN, "-.", "^"),
    LineStyle(PURPLE, ":", "D"),
    LineStyle(ORANGE, "-", "v"),
    LineStyle(SKY_BLUE, "--", "P"),
    LineStyle(BLACK, "-.", "X"),
)


def line_style(index: int) -> LineStyle:
    """Return the style of the index-th line of a figure; the styles repeat after the last."""
    return LINE_STYLES[index % len(LINE_STYLES)]


def new_axes(purpose: str, *, n_columns: int = 1, figsize: tuple[float, float]) -> "list[Axes]":
    """Return the axes, side by side, of a new figure.

    Parameters
    ----------
    purpose : str
        What is drawn, as the subject of the error's sentence if matplotlib is missing.
    n_columns : int, default=1
        Number of axes.
    figsize : tuple of float
        Width and height in inches.

    Returns
    -------
    list of matplotlib.axes.Axes
    """
    pyplot = require("matplotlib.pyplot", extra="plot", purpose=purpose)
    figure, axes = pyplot.subplots(
        1, n_columns, figsize=figsize, squeeze=False, layout="constrained"
    )
    figure.get_layout_engine().set(w_pad=0.06, h_pad=0.06)  # inches; room for what sticks out
    return list(axes[0])
