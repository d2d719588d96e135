"""The ablation to a folder: README.md, ablation.json, figures."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nearsure.displays.canvas import BLUE, GREEN, GREY, VERMILION
from nearsure.lab.ablation import tables
from nearsure.lab.ablation.results import AblationResults, Group
from nearsure.lab.ablation.run import MAIN_K
from nearsure.lab.ablation.variants import (
    BASELINE_RULES,
    CALIBRATED_BASELINES,
    CLASS_VARIANCE,
    CLASSIFIER,
    DEFAULT,
    DIAGONAL,
    MAIN_VARIANTS,
    NED,
    NEIGHBORS_ALONE,
    PROBES,
    RAW_BASELINES,
    TEMPERED_PROBES,
    UNCORRECTED,
)
from nearsure.lab.cache import to_plain
from nearsure.lab.figures import legend_below, new_figure, save_figure
from nearsure.lab.report import Page, versions
from nearsure.lab.robust.methods import Method, base_title

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


PALE, DARK, ORANGE, VIOLET = "#9a9a9a", "#333333", "#c98500", "#7b4ea3"
# Panels beside each other; more data sets go on below.
PANELS_A_ROW = 4
LABEL_SIZE = 9
# Rows of a panel: the bases that a reader knows, each raw and with its best calibrator.
SHOWN = (
    *BASELINE_RULES,
    "ned",
    "sharpened",
    NEIGHBORS_ALONE.base,
    CLASS_VARIANCE,
    DIAGONAL,
    *PROBES,
    CLASSIFIER,
)


def draw_accuracy_and_calibration(results: AblationResults, k: int, path: Path) -> Path:
    """Bases by their accuracy, each with its ECE as it comes and calibrated, a panel a data set.

    A calibrator leaves labels alone, so that a base has one accuracy, which is written beside its
    name; rows are sorted by it.

    Parameters
    ----------
    results : AblationResults
        The numbers.
    k : int
        Neighbours.
    path : path
        Where to write the PNG.
    """
    groups = [group for group in _half(results) if group.first.k == k]
    what = f"Bases by accuracy, with their ECE as they come and calibrated; k = {k}, half splits"
    figure, panels = _panels(len(groups), (5.6, 4.6), what)
    for ax, group in zip(panels, groups, strict=True):
        _draw_rows(ax, group)
    legend_below(figure, 4)
    return save_figure(figure, path)


def draw_calibration_by_k(results: AblationResults, path: Path) -> Path:
    """ECE against k, a panel for each data set.

    Parameters
    ----------
    results, path
        As of `draw_accuracy_and_calibration`.
    """
    names = results.datasets
    what = "ECE against the number of neighbours, half splits"
    figure, panels = _panels(len(names), (5.4, 5.6), what)
    for ax, name in zip(panels, names, strict=True):
        _draw_curves(ax, [group for group in _half(results) if group.first.dataset == name])
        ax.set_title(name)
    legend_below(figure, 4)
    return save_figure(figure, path)


def _panels(n: int, size: tuple[float, float], title: str) -> "tuple[Figure, list[Axes]]":
    """A figure with n panels of a size in inches, as many in each row as possible."""
    n_columns = min(n, PANELS_A_ROW)
    n_rows = -(-n // n_columns)
    figure = new_figure((n_columns * size[0], n_rows * size[1]), title)
    axes = list(figure.subplots(n_rows, n_columns, squeeze=False).flat)
    for ax in axes[n:]:
        ax.remove()
    return figure, axes[:n]


def _draw_rows(ax: "Axes", group: Group) -> None:
    """One row a base, the most accurate at the top."""
    steps: dict[str, list[Method]] = {base: [] for base in SHOWN}
    for variant in group.variants:
        if variant.base in steps:
            steps[variant.base].append(variant)
    shared = group.paired([variant for found in steps.values() for variant in found])
    accuracy = {base: shared.mean(found[0]).accuracy for base, found in steps.items() if found}
    order = sorted(accuracy, key=lambda base: accuracy[base])
    for place, base in enumerate(order):
        raw = Method(base)
        look: dict[str, Any] = {"color": _color(raw), "zorder": 3}
        ece = shared.mean(raw).ece
        if base == CLASSIFIER:
            ax.scatter(ece, place, marker="*", s=190, edgecolor="black", **look, label=RAW_LABEL)
            continue
        calibrated = [variant for variant in steps[base] if variant != raw]
        best = None
        # One number for every query has an ECE of about 0, and says nothing.
        if calibrated and base != "1nn":
            best = shared.mean(shared.best(calibrated, "ece")).ece
            ax.plot([ece, best], [place, place], color=PALE, linewidth=1, zorder=2)
            # A little below the other, so that neither hides the other.
            label = "with the calibrator of the lowest ECE, chosen on these queries"
            ax.scatter(best, place - 0.16, marker="D", s=24, **look, label=label)
        ax.scatter(ece, place + 0.16 * (best is not None), s=34, **look, label="as it comes")
    floor = shared.mean(DEFAULT).floor
    ax.axvline(floor, color=GREY, linestyle=":", linewidth=1.2, label="floor of the default's ECE")
    ax.set_yticks(
        range(len(order)),
        [f"{base_title(base)}  {100 * accuracy[base]:.1f}%" for base in order],
        fontsize=LABEL_SIZE,
    )
    ax.set(xscale="log", xlabel="Expected calibration error", xlim=(0.002, 0.7))
    ax.set_xticks([0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5])
    ax.set_xticks([], minor=True)
    ax.xaxis.set_major_formatter(lambda share, _: f"{100 * share:g}%")
    ax.set_title(f"{group.first.dataset}, mean of {shared.n_splits} splits", fontsize=11)
    ax.grid(visible=True, alpha=0.25)


RAW_LABEL = "the default of NEDClassifier"


def _draw_curves(ax: "Axes", groups: list[Group]) -> None:
    ks = [group.first.k for group in groups]

    groups = [group.paired((*MAIN_VARIANTS, *CALIBRATED_BASELINES)) for group in groups]

    def line(variant: Method, **style: Any) -> None:  # noqa: ANN401
        ax.plot(ks, [group.mean(variant).ece for group in groups], **style)

    raw = [group.mean(group.best(RAW_BASELINES[1:], "ece")).ece for group in groups]
    what = "best of kNN, Dudani and Gou, chosen at each k"
    ax.plot(ks, raw, color=PALE, marker="o", markersize=4, label=what)
    for rivals, what, marker in (
        (CALIBRATED_BASELINES, "best calibrated baseline, chosen at each k", "s"),
        (TEMPERED_PROBES, "best tempered probe, which has no k", "x"),
    ):
        least = [group.mean(group.best(rivals, "ece")).ece for group in groups]
        color = GREY if rivals is CALIBRATED_BASELINES else DARK
        ax.plot(ks, least, color=color, linestyle=":", marker=marker, label=what)
    line(NED, color=BLUE, marker="o", label=NED.title)
    line(Method("adaptive"), color=GREEN, marker="^", label="Adaptive, before Platt")
    line(NEIGHBORS_ALONE, color=ORANGE, marker="D", label="Neighbours alone")
    line(DEFAULT, color=VERMILION, marker="*", markersize=12, linewidth=2, label="Default")
    floors = [group.mean(DEFAULT).floor for group in groups]
    ax.plot(ks, floors, color=VERMILION, linestyle=(0, (1, 3)), label="Default's floor")
    ax.set(xlabel="k", xticks=ks, yscale="log", ylabel="Expected calibration error")
    ax.set_yticks([0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5])
    ax.set_yticks([], minor=True)
    ax.yaxis.set_major_formatter(lambda share, _: f"{100 * share:g}%")
    ax.grid(visible=True, alpha=0.25)


def _color(variant: Method) -> str:
    base = variant.base.removesuffix(UNCORRECTED)
    if base in BASELINE_RULES:
        return PALE
    if base in PROBES:
        return DARK
    named = {"ned": BLUE, "adaptive": ORANGE, "sharpened": GREEN, CLASSIFIER: VERMILION}
    return named.get(base, VIOLET)


INTRODUCTION = """\
Every rule and form of nearsure with every calibrator, all fitted on the gallery's leave-one-out
scores and measured on queries that no fit has seen (but for "every point against all others", where
it says so). "Nearsure (default)" is `NEDClassifier` as it comes, and what the goals are about. What
it makes of the neighbours alone is the adaptive form with the leave-one-out correction and shrunk
Platt scaling. Here that is fitted on all gallery points; the classifier takes 10,000 at most. The
full class covariance is slow, and is measured at k = 50 on fewer half splits, in tables of its own
beside the main variants on the same splits; everything else is compared on all splits.

ECE has 15 bins of equal width. Its floor is what a perfectly calibrated forecaster with the same
confidences would show. Brier scores are over all classes. "Half and half": a random half of every
class is the gallery, the other half asks; numbers are means over the splits, and an interval after
a difference is Student's at 95%, paired by split. Splits of one data set share their points, so
these intervals are about the split, not about other data.

The baselines are 1NN, kNN, and the weighted rules of Dudani and of Gou. "The best calibrated
baseline" is the best of kNN, Dudani and Gou with any of seven calibrators. It is chosen by the very
number that it is compared in, which favours it; and histograms and BBQ have few distinct
confidences, which fill fewer bins and have a lower floor. 1NN is not among them: its confidence is
always 1, calibrated it is one number for every query, the base rate, and the ECE of that is about 0
and says nothing.

Probes use the vectors and no neighbours, and are the same at every k: the nearest class mean,
linear discriminant analysis with Ledoit and Wolf's shrinkage, and multinomial logistic regression,
raw and with one temperature, which is fitted on scores out of fold (ten folds of a gallery of up to
2,000 points, five of others), as is the penalty of logistic regression. "The best tempered probe"
is chosen by the very number, too.

Halves of ESC-50 are random: clips of one recording may be on both sides."""
ALL_AGAINST_OTHERS = """\
Every point asks all the others, and everything is fitted on the very points that are scored: an
isotonic or histogram calibrator has an ECE of 0 here by construction, so no goal is read off these
tables. A query's own class lacks one member, too, which the leave-one-out correction gives back as
if the query came from outside."""
CORRUPTED = """\
Gallery, parameters and calibrators are those of clean images. Means over 15 corruptions at 5 \
severities, strict protocol."""
CLOUD, CURVES = "accuracy-and-calibration.png", "calibration-by-k.png"
GOALS = """\
What a user may ask of a default, held against the best of what else there is, data set by data
set. It should not cost accuracy against the best rule of neighbours; its confidence should be as
true as chance allows to tell (an ECE at most one point above that of a perfect forecaster), and at
least as true as that of a plain rule with any calibrator; its probabilities over all classes should
be better than those of every rule (Brier score); and whoever has vectors could fit a linear probe
instead, so that it should not be worse than that either. Each cell says whether the goal is met by
the means as they are, the default's number, the rival's, and the difference with its interval: a
goal may be missed, or met, by less than chance explains. All are compared on the same splits."""
GOALS_HEAD = {
    "half": "Means over the splits:",
    "given": "The data set's own split:",
    "scarce": "Galleries of 2 to 12 members a class, for which no goal was set:",
}


def write_ablation(folder: Path, results: AblationResults, *, command: str) -> list[Path]:
    """Write everything.

    Parameters
    ----------
    folder : Path
        Where; it is made if need be.
    results : AblationResults
        The numbers.
    command : str
        What a reader types to get the same.
    """
    document = {
        "command": command,
        "versions": versions(),
        **to_plain(results),
        "goals": to_plain(list(tables.all_goals(results))),
    }
    draw_accuracy_and_calibration(results, MAIN_K, folder / CLOUD)
    draw_calibration_by_k(results, folder / CURVES)
    return make_page(folder, results, command=command).write("ablation.json", document)


def make_page(folder: Path, results: AblationResults, *, command: str) -> Page:
    """The README of an ablation whose pictures are in a folder."""
    page = Page(folder)
    page.add("# Ablation", f"Made by `{command}`.", INTRODUCTION)
    page.add(*_goals(list(tables.all_goals(results))))
    page.add_picture("Accuracy and calibration", folder / CLOUD)
    page.add_picture("ECE by k", folder / CURVES)
    main_groups = [group for group in _half(results) if group.first.k == MAIN_K]
    page.add("## What each part of the default adds", f"Half and half, k = {MAIN_K}, in points.")
    for group in main_groups:
        page.add(f"### {group.first.dataset}", tables.ladder_table(group))
    page.add(f"## Every variant, k = {MAIN_K}")
    for group in main_groups:
        page.add(f"### {_circumstances(group)}", tables.group_table(group))
    page.add("## Main variants at each k")
    for name in results.datasets:
        groups = [group for group in _half(results) if group.first.dataset == name]
        page.add(f"### {name}, half and half", tables.by_k_table(groups, MAIN_VARIANTS))
    page.add("## Single splits, with bootstrap intervals over the queries")
    every = results.groups("all")
    for groups, head in (
        (results.groups("given"), ""),
        (every, ALL_AGAINST_OTHERS if every else ""),
    ):
        page.add(head)
        for group in groups:
            page.add(f"### {_circumstances(group)}", tables.interval_table(group, MAIN_VARIANTS))
    page.add("## Scarce galleries")
    for group in results.groups("scarce"):
        page.add(f"### {_circumstances(group)}", tables.group_table(group, MAIN_VARIANTS))
    page.add(*(("## Corrupted queries", CORRUPTED) if results.corrupted else ()))
    for result in results.corrupted:
        page.add(f"### {result.dataset}, {result.n_queries:,} queries, k = {result.k}")
        page.add(tables.corrupted_table(result))
    page.add(*_remarks(results))
    return page


def _goals(goals: Sequence[tables.Goal]) -> Iterator[str]:
    yield "## Goals"
    yield GOALS
    for condition, head in GOALS_HEAD.items():
        chosen = [goal for goal in goals if goal.condition == condition]
        if chosen:
            yield f"{head} {tables.goal_sentence(chosen)}"
            yield tables.goal_table(chosen)


def _remarks(results: AblationResults) -> Iterator[str]:
    notes = dict.fromkeys(
        f"{trial.dataset}, {trial.condition}, seed {trial.seed}, k = {trial.k}: {note}"
        for trial in results.trials
        for note in trial.notes
    )
    if results.skipped or notes:
        yield "## Remarks"
        yield "\n".join(
            f"- {line}" for line in (*map("skipped: {}".format, results.skipped), *notes)
        )


def _half(results: AblationResults) -> list[Group]:
    return [group for group in results.groups("half") if DEFAULT in group.variants]


def _circumstances(group: Group) -> str:
    first, n = group.first, len(group.rows(NEIGHBORS_ALONE))
    splits = f"mean of {n} splits" if n > 1 else "one split"
    return (
        f"{first.dataset}, k = {first.k}, {splits}: {first.n_gallery:,} gallery points of "
        f"{first.n_classes} classes, {first.n_queries:,} queries"
    )
