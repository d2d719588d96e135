"""Notes for the reader of a report, in sentences; None where there is nothing to note."""

import numpy as np

from nearsure.arrays import AnyArray, BoolArray
from nearsure.bursts import Bursts
from nearsure.comparison import ProbeScores
from nearsure.report.answers import Answered, are_most
from nearsure.report.document import Estimate
from nearsure.report.sections import LARGEST_TABLE
from nearsure.shift import describe_differences

FEW_QUERIES = 100
NAMES_SHOWN = 5
OWN_POINTS = (
    "Most queries lie on a point of the gallery of their own class: these look like the gallery's "
    "own points. Each finds itself, so that all looks better than it is for new queries. Leave out "
    "QUERIES of nearsure report (gallery_report, in Python): it searches each without itself."
)


def on_leaving_out(n_asked: int, n_gallery: int) -> str:
    """On points of the gallery that stand for queries."""
    which = f"all {n_gallery:,} points of the gallery"
    if n_asked < n_gallery:
        which = f"{n_asked:,} of the {n_gallery:,} points of the gallery, those of the fit"
    return (
        f"The queries are {which}. Each is searched without itself, and so has one member fewer "
        "than a new query of its class: where classes are small, accuracy and confidence come out "
        "a little low. Duplicates and bursts make them come out high, unless they were fitted as "
        "groups."
    )


def on_single_members(n_alone: int) -> str | None:
    """On points that no answer can be right for."""
    if not n_alone:
        return None
    return (
        f"{n_alone:,} of these points are the only ones of their class. Without them the class is "
        "gone, and the answer counts as wrong."
    )


def on_another_prior(prior: object) -> str | None:
    """On points of the gallery where queries are expected in other proportions."""
    if isinstance(prior, str) and prior == "support":
        return None
    return (
        "Answers allow for other frequencies of the classes than the gallery's, in which these "
        "points come. Only the promised thresholds are chosen on the expected frequencies."
    )


def on_missing_unknowns(unknown_share: float | None) -> str | None:
    """On a gallery's own points where unknown queries are expected."""
    if unknown_share is None:
        return None
    return (
        f"Answers allow for {unknown_share:.1%} of queries that are of no class of the gallery. "
        "Its own points are all of one, so that confidence looks too low here. In the "
        "promised thresholds, points whose whole class is left out stand in for such queries."
    )


def on_unknown_queries(answered: Answered, unknown_share: float | None) -> str | None:
    """On held-out queries of classes that the gallery lacks, present or expected."""
    missing = np.unique(answered.truth[~answered.known])
    if missing.size:
        n_unknown = int((~answered.known).sum())
        expected = (
            "Answers take every query for known: unknown_share would allow for others."
            if unknown_share is None
            else f"Answers allow for {unknown_share:.1%} of such queries."
        )
        return (
            f"{n_unknown:,} of {len(answered):,} queries ({n_unknown / len(answered):.1%}) are of "
            f"classes that the gallery lacks ({_names(missing)}). No answer to them can be right: "
            f"they count as wrong. {expected}"
        )
    if unknown_share is None:
        return None
    return (
        f"Answers allow for {unknown_share:.1%} of queries that are of no class of the gallery, "
        "but all of these are of one, so that confidence may look too low here."
    )


def on_differences(differences: tuple[str, ...] | None, *, labelled: bool) -> str | None:
    """On queries that are not like the gallery, or like those that were labelled."""
    others = "those labelled" if labelled else "the gallery"
    return describe_differences(differences, others) if differences else None


def on_near_copies(bursts: Bursts | None) -> str | None:
    """On a gallery whose accuracy on itself rests on near-copies."""
    if bursts is None or not bursts.suspicious:
        return None
    if bursts.grouped:
        return f"{bursts} They were left out together."
    return (
        f"{bursts} Confidence and promises may be too high for queries that have no copy in it: "
        'fit with groups, or with groups="auto".'
    )


def on_own_points(found: BoolArray) -> str | None:
    """On queries that are not new; see `nearsure.report.answers.nearly_found`."""
    return OWN_POINTS if are_most(found) else None


def on_gap(accuracy: Estimate, mean_confidence: float) -> str | None:
    """On confidence that is not the accuracy, as far as one decimal of percent shows it."""
    right, low, high = accuracy.value, accuracy.low, accuracy.high
    if right is None or low is None or high is None:
        return None
    gap = round(100 * mean_confidence, 1) - round(100 * right, 1)
    if round(gap, 1) == 0:
        return None
    chance = (
        "Chance alone may do that with so many queries."
        if low <= mean_confidence <= high
        else "That is more than chance: the confidence of these queries is off."
    )
    return (
        f"The mean confidence is {mean_confidence:.1%}, and {right:.1%} are right: confidence is "
        f"{abs(gap):.1f} points too {'high' if gap > 0 else 'low'} here. {chance}"
    )


def on_few_queries(n_queries: int) -> str | None:
    """On numbers that are mostly chance."""
    if n_queries >= FEW_QUERIES:
        return None
    return (
        f"{n_queries} {'query is' if n_queries == 1 else 'queries are'} few: intervals are wide or "
        "missing, and the calibration error is mostly chance."
    )


def on_fewer_resamples(wanted: int, used: int) -> str | None:
    """On intervals of very many queries."""
    if wanted == used:
        return None
    return f"Intervals are from {used} instead of {wanted} resamples, as queries are many."


def on_long_tables(n_classes: int) -> str | None:
    """On classes that are not listed."""
    if n_classes <= LARGEST_TABLE:
        return None
    return f"The table of classes lists the worst {LARGEST_TABLE:,} of {n_classes:,}."


def on_missing_temperature(temperature: float | None) -> str | None:
    """On a rule that cannot be compared with."""
    if temperature is not None:
        return None
    return "NED is not among the methods: no point has a neighbour of its own class."


def on_probes(probes: ProbeScores, n_fitted: int, n_gallery: int) -> str | None:
    """On linear probes that were left out, or saw a part of the gallery."""
    found = list(probes.left_out)
    if probes.posteriors and n_fitted < n_gallery:
        found.append(
            f"Probes were fitted on {n_fitted:,} of the {n_gallery:,} points, those of the fit."
        )
    return " ".join(found) or None


def _names(labels: AnyArray) -> str:
    shown = ", ".join(str(label) for label in labels[:NAMES_SHOWN])
    rest = len(labels) - NAMES_SHOWN
    return shown if rest <= 0 else f"{shown} and {rest:,} more"
