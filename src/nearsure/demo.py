"""The main job in one run: a gallery, held-out queries, five rules, a table and pictures.

``python -m nearsure.demo``: scikit-learn's handwritten digits, no download.
"""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from nearsure import NEDClassifier, Neighbors, TemperatureFit
from nearsure.arrays import AnyArray, BoolArray, FloatArray, IntArray
from nearsure.comparison import BOLD, TITLES, compare_rules, score_by
from nearsure.displays import (
    ConfidenceHistogramDisplay,
    NeighborCurveDisplay,
    ReliabilityDisplay,
    RiskCoverageDisplay,
)
from nearsure.errors import MissingExtraError
from nearsure.extras import require
from nearsure.index import ExactIndex
from nearsure.loo import search_leaving_one_out

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from nearsure.rules import RuleName

SEED = 0
OURS = "nearsure"
K_CURVE = (1, 2, 3, 5, 8, 12, 20, 35, 50, 100, 200, 400)


def main(arguments: list[str] | None = None) -> None:
    """Run the demonstration and say where its pictures are."""
    parser = argparse.ArgumentParser(prog="nearsure.demo", description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("demo-output"), help="folder")
    parser.add_argument("--gallery", type=float, default=0.2, help="share of digits in the gallery")
    options = parser.parse_args(arguments)
    if not 0 < options.gallery < 1:
        parser.error(f"--gallery must lie between 0 and 1. Got {options.gallery} instead.")
    # A small gallery, about 36 examples of each digit, so that there is something to be unsure of.
    Z, y = load_digits(return_X_y=True)
    gallery, queries, gallery_labels, truth = train_test_split(
        Z, y, train_size=options.gallery, random_state=SEED, stratify=y
    )
    classifier = NEDClassifier().fit(gallery, gallery_labels)
    prediction = classifier.predict_with_confidence(queries)
    fit = cast("TemperatureFit", classifier.temperature_fit_)  # it was not given
    print(
        f"{len(gallery)} digits in the gallery, {len(queries)} queries, "
        f"k = {classifier.n_neighbors_}, T = {fit.temperature:.1f} +- {fit.standard_error:.1f} "
        f"(leave-one-out likelihood of {fit.n_used} points)\n"
    )
    codes = classifier.encode(truth)
    comparison = compare_rules(
        prediction.neighbors,
        codes,
        temperature=fit.temperature,
        seed=SEED,
        others={OURS: prediction.posterior},
    )
    bold, mark = (BOLD, "in bold") if sys.stdout.isatty() else (("*", "*"), "between asterisks")
    print(comparison.to_text(bold=bold))
    print(f"\nThe best of each column is {mark}; 95% bootstrap intervals. The ECE floor is what a")
    print("perfectly calibrated forecaster with the same confidences would show.\n")
    correct = prediction.labels == truth
    for precision in (0.98, 0.99):
        chosen = classifier.accept_threshold(precision=precision)
        print(chosen)
        accepted = chosen.accepts(prediction.confidence)
        if accepted.any():
            print(
                f"  on the queries: {accepted.mean():.1%} accepted, "
                f"{correct[accepted].mean():.2%} of them right"
            )
    print()

    own_codes = classifier.encode(gallery_labels)
    try:
        figures = {
            "reliability.png": _draw_reliability(prediction.neighbors, codes, fit.temperature),
            "neighbors.png": _draw_neighbor_curve((gallery, own_codes), (queries, codes)),
            "trust.png": _draw_trust(prediction.confidence, correct),
        }
    except MissingExtraError as error:
        print(error)
        return
    output: Path = options.output
    output.mkdir(parents=True, exist_ok=True)
    for name, figure in figures.items():
        figure.savefig(output / name, dpi=100)
        print(f"wrote {output / name}")


def _draw_reliability(neighbors: Neighbors, truth: IntArray, temperature: float) -> "Figure":
    """The four rules that give a probability (the paper's Figure 1)."""
    figure, axes = _subplots(2, 2, figsize=(10, 10))
    rules: tuple[RuleName, ...] = ("knn", "dudani", "gou", "ned")
    for ax, rule in zip(axes.flat, rules, strict=True):
        posterior = score_by(rule, neighbors, temperature)
        ReliabilityDisplay.from_predictions(
            posterior.confidence, posterior.labels == truth, name=TITLES[rule]
        ).plot(ax=ax)
    return figure


def _draw_neighbor_curve(
    gallery: tuple[FloatArray, IntArray], queries: tuple[FloatArray, IntArray]
) -> "Figure":
    """Accuracy and ECE against k (the paper's Figure 2); T is refitted for each k."""
    vectors, codes = gallery
    ks = [k for k in K_CURVE if k < len(codes)]
    index = ExactIndex(vectors)
    own = search_leaving_one_out(index, vectors, np.arange(len(codes)), codes, k=ks[-1])
    sq_distances, ids = index.search(queries[0], ks[-1])
    display = NeighborCurveDisplay.from_neighbors(
        Neighbors(sq_distances, codes[ids], ids), queries[1], own=own, own_labels=codes, ks=ks
    )
    figure, axes = _subplots(1, 2, figsize=(12, 5))
    display.plot(ax=list(axes))
    return figure


def _draw_trust(confidence: FloatArray, correct: BoolArray) -> "Figure":
    """How the confidence is spread, and what accepting only the surest queries gives."""
    figure, (left, right) = _subplots(1, 2, figsize=(12, 5))
    ConfidenceHistogramDisplay.from_predictions(confidence, correct, name=OURS).plot(ax=left)
    RiskCoverageDisplay.from_predictions(confidence, correct, name=OURS).plot(ax=right)
    return figure


def _subplots(
    rows: int, columns: int, *, figsize: tuple[float, float]
) -> tuple["Figure", AnyArray]:
    pyplot = require("matplotlib.pyplot", extra="plot", purpose="Drawing pictures of this")
    figure, axes = pyplot.subplots(rows, columns, figsize=figsize, layout="constrained")
    return figure, axes


if __name__ == "__main__":
    main()
