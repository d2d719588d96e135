"""What every figure of the lab starts and ends with: a canvas, a title, a file."""

from pathlib import Path
from typing import TYPE_CHECKING

from nearsure.extras import require

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DOTS_PER_INCH = 120


def new_figure(size: tuple[float, float]) -> "Figure":
    """An empty figure; inches."""
    # Not pyplot's, which would keep every figure until it is closed.
    module = require("matplotlib.figure", extra="plot", purpose="A figure")
    figure: Figure = module.Figure(figsize=size)
    figure.set_layout_engine("constrained", w_pad=0.08, h_pad=0.08)  # inches, between panels
    return figure


def entitle(figure: "Figure", name: str | None, what: str) -> None:
    """Say what is shown, after the name of the data."""
    figure.suptitle(what if name is None else f"{name}: {what}")


def saved(figure: "Figure", path: str | Path) -> Path:
    """Write the PNG; its folder is made if need be."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=DOTS_PER_INCH, format="png")
    return path
