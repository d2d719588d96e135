"""Neighbour curve: accuracy and calibration against the number of neighbours."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from nearsure.arrays import FloatArray
from nearsure.comparison import TITLES, score_by
from nearsure.displays.canvas import line_style, new_axes
from nearsure.errors import FitWarning, InvalidInputError
from nearsure.metrics import accuracy, expected_calibration_error
from nearsure.neighbors import Neighbors
from nearsure.rules import RULE_NAMES, RuleName
from nearsure.temperature import fit_temperature

if TYPE_CHECKING:
    from typing import Self

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

# Of the largest k to the smallest, from which a linear axis would crowd the small ones.
WIDE_RANGE = 10


@dataclass(eq=False)
class NeighborCurveDisplay:
    """Accuracy and ECE of several rules against k, side by side.

    Parameters
    ----------
    ks : array-like of shape (m,)
        Numbers of neighbours.
    accuracy : mapping of str to array-like of shape (m,)
        For each rule its accuracy at each k, a fraction.
    calibration_error : mapping of str to array-like of shape (m,)
        For each rule its calibration error at each k, a fraction. A rule may be in one of the two
        mappings only, as 1-NN, which has no confidence.
    accuracy_intervals, calibration_error_intervals : mapping of str to array-like of shape (m, 2)
        Low and high ends, drawn as bands; for some or all of the rules.

    Attributes
    ----------
    axes_ : tuple of two matplotlib.axes.Axes
        Accuracy and calibration error, after :meth:`plot`.
    figure_ : matplotlib.figure.Figure
        The figure that holds them.

    Examples
    --------
    >>> display = NeighborCurveDisplay(
    ...     ks=[10, 20], accuracy={"NED": [0.63, 0.64]}, calibration_error={"NED": [0.04, 0.07]}
    ... )
    >>> display.rules
    ('NED',)
    >>> from matplotlib.figure import Figure
    >>> [ax.get_ylabel() for ax in display.plot(Figure().subplots(1, 2)).axes_]
    ['Accuracy', 'Expected calibration error']
    """

    ks: ArrayLike
    accuracy: Mapping[str, ArrayLike]
    calibration_error: Mapping[str, ArrayLike]
    accuracy_intervals: Mapping[str, ArrayLike] = field(default_factory=dict)
    calibration_error_intervals: Mapping[str, ArrayLike] = field(default_factory=dict)
    axes_: "tuple[Axes, Axes]" = field(init=False, repr=False)
    figure_: "Figure | SubFigure" = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.ks = np.asarray(self.ks)
        if self.ks.ndim != 1 or not len(self.ks):
            raise InvalidInputError(
                f"The 'ks' parameter must be an array of shape (m,) with m >= 1. "
                f"Got shape {self.ks.shape} instead."
            )
        m = len(self.ks)
        for name in ("accuracy", "calibration_error"):
            setattr(self, name, _check_shapes(name, getattr(self, name), (m,)))
            bands = f"{name}_intervals"
            setattr(self, bands, _check_shapes(bands, getattr(self, bands), (m, 2)))
        bands_without_line = {
            *(self.accuracy_intervals.keys() - self.accuracy.keys()),
            *(self.calibration_error_intervals.keys() - self.calibration_error.keys()),
        }
        if bands_without_line:
            raise InvalidInputError(
                f"Intervals must belong to rules that have a line in the same plot. Got intervals "
                f"for {sorted(bands_without_line)} instead: pass the values of these rules too."
            )

    @property
    def rules(self) -> tuple[str, ...]:
        """Names of the rules, in the order of their styles."""
        return tuple(dict.fromkeys((*self.accuracy, *self.calibration_error)))

    @classmethod
    def from_neighbors(
        cls,
        neighbors: Neighbors,
        labels: ArrayLike,
        *,
        own: Neighbors,
        own_labels: ArrayLike,
        ks: Sequence[int],
        rules: Sequence[RuleName] = RULE_NAMES,
    ) -> "Self":
        """Compute the numbers of the plots from one search; T is refitted for each k.

        Parameters
        ----------
        neighbors : Neighbors
            Neighbours of the queries, at least as many as the largest k.
        labels : array-like of shape (n,)
            True class codes of the queries.
        own : Neighbors
            Leave-one-out neighbours of the support points, on which T is fitted.
        own_labels : array-like of shape (n_own,)
            Class codes of these points.
        ks : sequence of int
            Numbers of neighbours.
        rules : sequence of rule names
            Which rules, in the order of their styles.

        Returns
        -------
        NeighborCurveDisplay
        """
        right: dict[str, list[float]] = {TITLES[rule]: [] for rule in rules}
        error: dict[str, list[float]] = {TITLES[rule]: [] for rule in rules}
        for k in ks:
            with warnings.catch_warnings():
                # A small k misses classes and one neighbour leaves T open: that is what is shown.
                warnings.simplefilter("ignore", FitWarning)
                temperature = fit_temperature(own.first(k), own_labels).temperature
            for rule in rules:
                posterior = score_by(rule, neighbors.first(k), temperature)
                correct = posterior.labels == np.asarray(labels)
                right[TITLES[rule]].append(accuracy(correct))
                error[TITLES[rule]].append(
                    expected_calibration_error(posterior.confidence, correct)
                )
        return cls(ks, right, error)

    def plot(self, ax: "Sequence[Axes] | None" = None, *, name: str | None = None) -> "Self":
        """Draw the two plots.

        Parameters
        ----------
        ax : sequence of two matplotlib.axes.Axes, optional
            Where to draw accuracy and calibration error; by default in a new figure.
        name : str, optional
            Name of the data, for the titles.

        Returns
        -------
        NeighborCurveDisplay
            The display itself, with ``axes_`` and ``figure_``.
        """
        if ax is None:
            ax = new_axes("A neighbour curve", n_columns=2, figsize=(9.0, 4.0))
        if len(ax) != 2:  # noqa: PLR2004
            raise InvalidInputError(
                f"The 'ax' parameter must be two axes, for accuracy and calibration error. "
                f"Got {len(ax)} instead."
            )
        left, right = ax
        self.axes_, self.figure_ = (left, right), left.figure
        self._plot_lines(left, self.accuracy, self.accuracy_intervals)
        self._plot_lines(right, self.calibration_error, self.calibration_error_intervals)
        left.set_ylabel("Accuracy")
        ks = np.asarray(self.ks, dtype=np.float64)
        right.set_ylabel("Expected calibration error")
        right.set_ylim(0, 1.35 * right.get_ylim()[1])  # room for the legend
        for panel in self.axes_:
            panel.set_xlabel("Neighbours k")
            if np.max(ks) > WIDE_RANGE * np.min(ks):
                panel.set_xscale("log")
                panel.xaxis.set_major_formatter("{x:g}")
            panel.grid(visible=True, alpha=0.3)
            if name is not None:
                panel.set_title(name)
        # One legend for both, as a rule may have a line in the left plot only.
        handle_of = {
            label: handle
            for panel in self.axes_
            for handle, label in zip(*panel.get_legend_handles_labels(), strict=True)
        }
        right.legend(
            handle_of.values(), handle_of.keys(), loc="upper left", ncols=2, framealpha=0.9
        )
        return self

    def _plot_lines(
        self, ax: "Axes", lines: Mapping[str, ArrayLike], intervals: Mapping[str, ArrayLike]
    ) -> None:
        for rule, values in lines.items():
            style = line_style(self.rules.index(rule))
            ax.plot(
                self.ks,
                values,
                label=rule,
                color=style.color,
                linestyle=style.dash,
                marker=style.marker,
                linewidth=1.8,
                markersize=6,
            )
            if rule in intervals:
                low, high = np.asarray(intervals[rule]).T
                ax.fill_between(self.ks, low, high, color=style.color, alpha=0.18, linewidth=0)


def _check_shapes(
    name: str, by_rule: Mapping[str, ArrayLike], shape: tuple[int, ...]
) -> dict[str, FloatArray]:
    arrays = {rule: np.asarray(values, dtype=np.float64) for rule, values in by_rule.items()}
    for rule, array in arrays.items():
        if array.shape != shape:
            raise InvalidInputError(
                f"The '{name}' parameter must have for each rule an array of shape {shape}, one "
                f"entry per k. Got shape {array.shape} for {rule!r} instead."
            )
    return arrays
