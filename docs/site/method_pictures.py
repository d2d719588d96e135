"""The pictures of docs/method.md: ``python docs/site/method_pictures.py``.

A gallery of three classes in the plane, where a person can see what the method sees.
"""

from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from nearsure import NEDClassifier
from nearsure.arrays import FloatArray, IntArray
from nearsure.displays import ReliabilityDisplay

IMAGES = Path(__file__).resolve().parents[1] / "images"
COLORS = ("#0072B2", "#D55E00", "#009E73")
MARKS = ("o", "s", "^")
CENTRES = np.array([[-1.6, 0.0], [1.3, 0.8], [0.6, -1.9]])
SPREADS = np.array([1.05, 1.2, 0.95])
SEED = 3
CONFIDENCE = LinearSegmentedColormap.from_list("confidence", ["#ffffff", "#3b3b6d"])


def drawn(n: int, seed: int) -> tuple[FloatArray, IntArray]:
    """Points of three overlapping classes."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, len(CENTRES), n)
    return CENTRES[labels] + rng.normal(size=(n, 2)) * SPREADS[labels, None], labels


def show_gallery(ax: Axes, points: FloatArray, labels: IntArray) -> None:
    """The points of each class with its own colour and mark."""
    for code, (color, mark) in enumerate(zip(COLORS, MARKS, strict=True)):
        mine = points[labels == code]
        ax.scatter(*mine.T, color=color, marker=mark, s=14, alpha=0.55, linewidths=0)
    ax.set(xticks=[], yticks=[], aspect="equal", xlim=(-4.5, 4.5), ylim=(-4.6, 4.0))


def show_vote(points: FloatArray, labels: IntArray) -> Figure:
    """Who votes for a query, and how much."""
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=[1.2, 1])
    classifier = NEDClassifier(rule="ned").fit(points, labels)
    query = np.array([[-0.35, -0.45]])
    prediction = classifier.predict_with_confidence(query)
    shares = classifier.vote_shares(prediction.neighbors)[0]
    show_gallery(left, points, labels)
    ids = np.asarray(prediction.neighbors.ids)[0]
    for i, share in zip(ids, shares, strict=True):
        ends = np.stack([query[0], points[i]])
        left.plot(*ends.T, color=COLORS[labels[i]], linewidth=30 * share, alpha=0.8)
    left.scatter(*query.T, color="black", marker="*", s=130, zorder=3)
    left.set(xlim=(-2.6, 2.2), ylim=(-2.4, 1.6))
    left.set_title("50 neighbours vote, near ones with more weight")
    sums = [shares[labels[ids] == code].sum() for code in range(len(COLORS))]
    bars = right.barh(["A", "B", "C"], sums, color=COLORS)
    right.bar_label(bars, [f"{share:.0%}" for share in sums], padding=4)
    right.set(xlim=(0, 1.1), xlabel="share of the vote = probability", title="summed up by class")
    right.invert_yaxis()
    right.spines[["top", "right"]].set_visible(False)
    return figure


def show_temperatures(points: FloatArray, labels: IntArray) -> Figure:
    """What T does to the confidence, and how the gallery itself chooses it."""
    figure = Figure(figsize=(11, 3.4), layout="constrained")
    axes = figure.subplots(1, 4)
    fit = NEDClassifier(rule="ned").fit(points, labels).temperature_fit_
    if fit is None:
        raise RuntimeError("T was not fitted")
    xs, ys = np.meshgrid(np.linspace(-4.5, 4.5, 161), np.linspace(-4.6, 4.0, 153))
    grid = np.stack([xs.ravel(), ys.ravel()], axis=1)
    for ax, factor, name in zip(
        axes[:3], (0.02, 1.0, 40.0), ("too small", "fitted", "too large"), strict=True
    ):
        T = fit.temperature * factor
        classifier = NEDClassifier(rule="ned", temperature=T).fit(points, labels)
        confidence = classifier.predict_with_confidence(grid).confidence.reshape(xs.shape)
        ax.contourf(xs, ys, confidence, levels=np.linspace(1 / 3, 1, 9), cmap=CONFIDENCE)
        show_gallery(ax, points, labels)
        ax.set_title(f"T = {T:.2g}: {name}")
    low, high = fit.temperature * 0.02, fit.temperature * 40
    shown = (fit.curve_temperatures > low) & (fit.curve_temperatures < high)
    axes[3].plot(fit.curve_temperatures[shown], fit.curve_losses[shown], color="#333333")
    axes[3].axvline(fit.temperature, color=COLORS[1], linestyle="--")
    axes[3].set(
        xscale="log",
        xlabel="T",
        ylabel="loss of points left out",
        title="each point is left out",
    )
    axes[3].spines[["top", "right"]].set_visible(False)
    return figure


def show_meaning(points: FloatArray, labels: IntArray) -> Figure:
    """Claimed and real accuracy of kNN's votes and of the fitted confidence."""
    figure = Figure(figsize=(9, 4.2), layout="constrained")
    axes = figure.subplots(1, 2)
    queries, truth = drawn(4000, SEED + 1)
    for ax, rule, title in zip(
        axes, ("knn", "auto"), ("share of 50 votes", "nearsure"), strict=True
    ):
        prediction = NEDClassifier(rule=rule).fit(points, labels).predict_with_confidence(queries)
        ReliabilityDisplay.from_predictions(
            prediction.confidence, prediction.labels == truth, name=title
        ).plot(ax=ax)
    return figure


def show_unknown(points: FloatArray, labels: IntArray) -> Figure:
    """Confidence that is relative, and confidence that counts unknown queries."""
    figure = Figure(figsize=(9, 3.8), layout="constrained")
    axes = figure.subplots(1, 2)
    xs, ys = np.meshgrid(np.linspace(-8, 8, 161), np.linspace(-8, 8, 161))
    grid = np.stack([xs.ravel(), ys.ravel()], axis=1)
    for ax, share, title in zip(
        axes,
        (None, 0.1),
        ("every query is one of the three", "a tenth may be of no class"),
        strict=True,
    ):
        classifier = NEDClassifier(unknown_share=share).fit(points, labels)
        confidence = classifier.predict_with_confidence(grid).confidence.reshape(xs.shape)
        shade = ax.contourf(xs, ys, confidence, levels=np.linspace(0, 1, 11), cmap=CONFIDENCE)
        show_gallery(ax, points, labels)
        ax.set(xlim=(-8, 8), ylim=(-8, 8), title=title)
    figure.colorbar(shade, ax=axes, label="confidence")
    return figure


def main() -> None:
    """Draw them all."""
    points, labels = drawn(400, SEED)
    with mpl.rc_context({"font.size": 10, "savefig.dpi": 110}):
        for name, show in (
            ("method-vote", show_vote),
            ("method-temperature", show_temperatures),
            ("method-meaning", show_meaning),
            ("method-unknown", show_unknown),
        ):
            path = IMAGES / f"{name}.png"
            show(points, labels).savefig(path, metadata={"Software": None})
            print(f"wrote docs/images/{path.name}")  # noqa: T201


if __name__ == "__main__":
    main()
