"""What the figures of this package share: percent, the paper's claim, a legend below."""

from typing import TYPE_CHECKING

from nearsure.displays.canvas import BLACK
from nearsure.extras import require

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# What the paper's mean ECEs stay below.
CLAIMS = (0.03, 0.04)


def in_percent(ax: "Axes") -> None:
    """Write the fractions of the vertical axis in percent, with as many digits as they need."""
    ticker = require("matplotlib.ticker", extra="plot", purpose="A figure")
    ax.yaxis.set_major_formatter(ticker.PercentFormatter(1.0))


def draw_claims(ax: "Axes") -> None:
    """The band that the paper's ECE stays below, named at the right."""
    low, high = CLAIMS
    ax.axhspan(low, high, color=BLACK, alpha=0.18, linewidth=0)
    ax.annotate(
        f"{100 * low:g}-{high:.0%}",
        (1, (low + high) / 2),
        xycoords=("axes fraction", "data"),
        xytext=(3, 0),
        textcoords="offset points",
        va="center",
        fontsize=8,
    )


def legend_below(figure: "Figure", n_columns: int) -> None:
    """One legend for all panels, each label once."""
    handle_of = {
        label: handle
        for ax in figure.axes
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True)
    }
    figure.legend(
        list(handle_of.values()),
        list(handle_of),
        loc="outside lower center",
        ncols=n_columns,
        frameon=False,
    )
