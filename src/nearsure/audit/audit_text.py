"""The findings of an audit as short tables for a terminal."""

from collections.abc import Callable, Iterable, Sequence

from nearsure.audit.confusable import ConfusableClasses
from nearsure.audit.duplicates import NearDuplicates
from nearsure.audit.small import SmallClasses
from nearsure.audit.suspects import SuspectLabels
from nearsure.errors import InvalidInputError
from nearsure.neighbors import PADDING_LABEL

ClassNamer = Callable[[int], str]


def class_namer(class_names: Sequence[str] | None, n_classes: int) -> ClassNamer:
    """What to call a class code in print; without names, the code itself."""
    if class_names is not None and len(class_names) < n_classes:
        raise InvalidInputError(
            f"class_names must name all {n_classes} class codes. Got {len(class_names)} names."
        )

    def name(code: int) -> str:
        if code == PADDING_LABEL:
            return "-"
        return str(code) if class_names is None else str(class_names[code])

    return name


def suspects_text(suspects: SuspectLabels, name: ClassNamer, n_rows: int) -> str:
    """The least believed labels, each beside its best rival."""
    shown = suspects.first(n_rows)
    return _table(
        f"labels believed less than another: {suspects.n_doubted}",
        ("id", "label", "p %", "suggested", "p %"),
        (
            (str(point), name(own), _percent(p_own), name(other), _percent(p_other))
            for point, own, p_own, other, p_other in zip(
                shown.ids,
                shown.codes,
                shown.p_own,
                shown.suggested_codes,
                shown.p_suggested,
                strict=True,
            )
        ),
    )


def duplicates_text(pairs: NearDuplicates, name: ClassNamer, n_rows: int) -> str:
    """The nearest pairs of differently labelled points."""
    return _table(
        f"nearly identical points labelled differently: {len(pairs)} pairs",
        ("id", "label", "id", "label", "squared distance"),
        (
            (str(ids[0]), name(codes[0]), str(ids[1]), name(codes[1]), f"{sq_distance:.3g}")
            for ids, codes, sq_distance in zip(
                pairs.ids[:n_rows], pairs.codes[:n_rows], pairs.sq_distances[:n_rows], strict=True
            )
        ),
    )


def confusable_text(pairs: ConfusableClasses, name: ClassNamer, n_rows: int) -> str:
    """The classes that claim most of each other."""
    return _table(
        f"classes that claim something of each other: {len(pairs)} pairs",
        ("class", "class", "mean p %"),
        (
            (name(codes[0]), name(codes[1]), _percent(confusion))
            for codes, confusion in zip(pairs.codes[:n_rows], pairs.confusion[:n_rows], strict=True)
        ),
    )


def small_text(small: SmallClasses, name: ClassNamer, n_rows: int) -> str:
    """The smallest classes."""
    return _table(
        f"classes too small, or that miss themselves: {len(small)}",
        ("class", "members", "missed", "accuracy %"),
        (
            (name(code), str(n_members), str(n_missed), _percent(accuracy))
            for code, n_members, n_missed, accuracy in zip(
                small.codes[:n_rows],
                small.n_members[:n_rows],
                small.n_missed[:n_rows],
                small.accuracy[:n_rows],
                strict=True,
            )
        ),
    )


def _table(title: str, header: Sequence[str], body: Iterable[Sequence[str]]) -> str:
    """A title and, unless the body is empty, its rows in columns beneath a header."""
    rows = list(body)
    if not rows:
        return title
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    lines = (
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in (header, *rows)
    )
    return "\n".join([title, *(f"  {line}" for line in lines)])


def _percent(fraction: float) -> str:
    return f"{100 * fraction:5.1f}"
