"""Claims about the method and about clean images: Tables 1 and 4, Figures 1 and 2."""

from collections.abc import Sequence
from itertools import pairwise
from math import isnan

from nearsure.comparison import title_of
from nearsure.lab.claims.rows import (
    BASELINES,
    MAIN_LOSS,
    STRICT,
    Claim,
    Row,
    clean_columns,
    count,
    each,
    find_row,
    gains,
    impossible_cells,
    judge,
    number,
    paper_column,
    span,
)
from nearsure.lab.paper_tables import TABLE_4_LOSSES

OTHERS = ("1nn", *BASELINES)
# Points by which two figures may differ and be called the same.
SAME = 0.5
# Within this of another rule NED is as accurate, once T is chosen for it.
NEAR = 0.2
# ECE that T may gain from having seen the queries.
OWN_GAIN = 1.0
# Bins of a reliability diagram count from this share of the queries on, and are well calibrated up
# to this distance, in points.
LEAST_SHARE, GOOD_GAP = 0.01, 5.0
# Of 15 bins the last is of sure answers, and the first 7 are of unsure ones.
N_BINS, SURE, UNSURE = 15, 14, 7


def method_claims(rows: Sequence[Row]) -> list[Claim]:
    """What the paper says of the method itself."""
    moved = []
    for row in rows:
        found = [100 * right for right in row.sweep["accuracy"][_swept(row)]]
        moved.append(max(found) - min(found))
    factors = {factor for row in rows for factor in row.sweep["factors"]}
    pairs = [
        (row, strict)
        for row in rows
        for strict in rows
        if row.protocol == "all_against_others"
        and strict.protocol == STRICT
        and (row.dataset, row.run) == (strict.dataset, strict.run)
    ]
    raised = [strict.ece("ned") - row.ece("ned") for row, strict in pairs]
    beyond = each(rows, lambda row: _last(row.curve("ned")) - row.accuracy("ned"))
    k = rows[0].k
    claims = [
        Claim(
            "NED is the posterior of classes whose density is a sum of Gaussians of one width",
            "Theorem 1",
            "a proof",
            "tests: the same sum as plain loops, and the posterior of drawn Gaussian classes",
            "confirmed",
            "The proof holds under what it assumes: classes as frequent as in the gallery, "
            "independent coordinates, one variance for all classes.",
        ),
        Claim(
            "T leaves the order of the neighbours as it is",
            "Section 3",
            "",
            f"accuracy differs by {span(moved)} points over multiples of T from {min(factors):g} "
            f"to {max(factors):g}",
            "in part",
            "The order of neighbours does not depend on T, but how many of them decide does, and "
            "with it the answer.",
        ),
        Claim(
            "Points beyond the k nearest have no weight",
            "Equation 7",
            "",
            f"from k = {k} to the largest k, accuracy changes by "
            f"{span(beyond, digits=2, sign=True)} points",
            judge([abs(change) <= SAME for change in beyond]),
            f"It changes by at most {SAME:g} points in "
            f"{count([abs(change) <= SAME for change in beyond])} rows; small weights of many "
            "points can add up where classes overlap; T, fitted for each k, changes, too.",
        ),
    ]
    if raised:
        claims.insert(
            2,
            Claim(
                "One parameter, fitted on the support set, generalizes",
                "Sections 1 and 3",
                "",
                f"ECE where T never sees the queries, less ECE where it does: "
                f"{span(raised, sign=True)} points",
                judge([change <= OWN_GAIN for change in raised]),
                f"It rises by at most {OWN_GAIN:g} point in "
                f"{count([change <= OWN_GAIN for change in raised])} pairs of runs; in the strict "
                "one the gallery is half as large, too.",
            ),
        )
    return claims


def table_claims(rows: Sequence[Row]) -> list[Claim]:
    """Tables 1 and 4: accuracy and calibration on clean images."""
    table_1 = clean_columns(losses=[MAIN_LOSS])
    gain = each(rows, lambda row: row.accuracy("ned") - row.accuracy("1nn"))
    others = [[row.accuracy(rule) - row.accuracy("1nn") for rule in BASELINES] for row in rows]
    own_k = [max(row.curve("knn").values()) > row.accuracy("1nn") for row in rows]
    lead = each(rows, _lead)
    lowest = [row.ece("ned") < min(map(row.ece, BASELINES)) for row in rows]
    paper_eces = [number(column, "ned", 1) for column in clean_columns()]
    most = max(paper_eces)
    eces = each(rows, lambda row: row.ece("ned"))
    above = [row.ece(rule) - row.ece("ned") for row in rows for rule in BASELINES]
    paper_above = [
        number(column, rule, 1) - number(column, "ned", 1)
        for column in table_1
        for rule in BASELINES
    ]
    paper_leads = [min(gains([column], rule)[0] for rule in OTHERS) for column in table_1]
    calibrated = [row for row in rows if row.ece("ned") <= most]
    modest = [row.overconfidence("ned") < 0 for row in rows if row.ece("ned") > most]
    return [
        Claim(
            "NED is more often right than 1NN",
            "Table 1, Section 5",
            f'"0.3 to 7.3" points; its table has {span(gains(table_1))}',
            f"{span(gain)} points",
            judge([each_gain > 0 for each_gain in gain]),
            f"It is ahead in {count([each_gain > 0 for each_gain in gain])} rows.",
        ),
        Claim(
            "kNN and weighted kNN improve on 1NN, too",
            "Section 5",
            f"{span([number(c, r, 0) - number(c, '1nn', 0) for c in table_1 for r in BASELINES])} "
            "points",
            ", ".join(
                f"{title_of(rule)} {span([found[place] for found in others], sign=True)}"
                for place, rule in enumerate(BASELINES)
            )
            + f" points at k = {rows[0].k}",
            judge([min(found) > 0 for found in others]),
            f"All three are ahead of it in {count([min(found) > 0 for found in others])} rows; kNN "
            f"at the best k of its curve, chosen on the queries, in {count(own_k)}.",
        ),
        Claim(
            "NED is the most accurate rule",
            "Tables 1 and 4",
            f"ahead of the best other by {span(paper_leads)} points in Table 1",
            f"{span(lead, sign=True)} points; more than chance explains: ahead in "
            f"{sum(_lead(row) > 0 and _is_clear(row) for row in rows)} rows, behind in "
            f"{sum(_lead(row) < 0 and _is_clear(row) for row in rows)}",
            judge([each_lead >= 0 for each_lead in lead]),
            _behind(rows),
        ),
        Claim(
            "NED has the lowest ECE",
            "Tables 1 and 4",
            "in all columns",
            f"in {count(lowest)} rows at k = {rows[0].k}",
            judge(lowest),
            "kNN at the k where its own ECE is lowest, which nobody knows beforehand, is lower "
            f"still in {sum(_lowest(row, 'knn') < row.ece('ned') for row in rows)} rows.",
        ),
        Claim(
            "NED is calibrated",
            "Tables 1 and 4",
            f"ECE {span(paper_eces)}%",
            f"ECE {span(eces)}%",
            judge([ece <= most for ece in eces]),
            f"It is within the paper's range in {len(calibrated)} of {len(rows)} rows"
            + (f" ({', '.join(sorted({row.dataset for row in calibrated}))})" if calibrated else "")
            + (f"; of those above, NED claims too little in {count(modest)}." if modest else "."),
        ),
        Claim(
            "ECE of kNN and weighted kNN is higher than NED's",
            "Section 5",
            f'"3 to 31.2" points; its table has {span(paper_above)}',
            f"{span(above, sign=True)} points",
            judge([difference > 0 for difference in above]),
            f"Higher in {count([difference > 0 for difference in above])} cells at k = "
            f"{rows[0].k}.",
        ),
        *_loss_claims(rows),
        *_data_claims(rows),
    ]


def _loss_claims(rows: Sequence[Row]) -> list[Claim]:
    claims = []
    for loss in TABLE_4_LOSSES:
        found = [row for row in rows if row.run == loss and row.protocol != STRICT]
        if not found:
            continue
        columns = clean_columns(losses=[loss])
        best = [row.ece("ned") < min(map(row.ece, BASELINES)) and _lead(row) >= 0 for row in found]
        claims.append(
            Claim(
                f"NED is best with the loss {loss}, too",
                "Table 4",
                "; ".join(f"{number(c, 'ned', 0):g} / {number(c, 'ned', 1):g}" for c in columns)
                + " (accuracy / ECE)",
                "; ".join(
                    f"{row.dataset} {row.accuracy('ned'):.1f} / {row.ece('ned'):.1f}"
                    for row in found
                ),
                judge(best),
                f"Lowest ECE and no less accurate than any other in {count(best)} rows; "
                f"it leads the best other by {span(map(_lead, found), sign=True)} points.",
            )
        )
    both = [
        (first, second)
        for dataset in dict.fromkeys(row.dataset for row in rows)
        if (first := find_row(rows, dataset, "n-pairs"))
        and (second := find_row(rows, dataset, "triplet"))
    ]
    if both:
        ahead = [first.accuracy("1nn") - second.accuracy("1nn") for first, second in both]
        cells = zip(both, ahead, strict=True)
        claims.append(
            Claim(
                "N-pairs makes a better embedding than triplets",
                "Appendix B",
                ", ".join(f"{dataset} {points:+.1f}" for dataset, points in _pairs_ahead())
                + " points of 1NN",
                ", ".join(f"{pair[0].dataset} {points:+.1f}" for pair, points in cells) + " points",
                judge([points > 0 for points in ahead]),
                f"It does in {count([points > 0 for points in ahead])} data sets.",
            )
        )
    return claims


def _pairs_ahead() -> list[tuple[str, float]]:
    """1NN of N-pairs less that of triplets in the paper's Table 4."""
    return [
        (
            dataset,
            number(paper_column(dataset, "n-pairs"), "1nn", 0)
            - number(paper_column(dataset, "triplet"), "1nn", 0),
        )
        for dataset in ("cub200", "cars196")
    ]


def _data_claims(rows: Sequence[Row]) -> list[Claim]:
    text = [row for row in rows if row.dataset == "clinc150"]
    sop = paper_column("sop")
    claims = [
        Claim(
            "Where classes have 2 to 12 images NED is not more accurate, but better calibrated",
            "Section 5, SOP",
            f"{span(number(sop, rule, 0) for rule in sop)} for every rule; ECE "
            f"{number(sop, 'ned', 1)}, others {span(number(sop, rule, 1) for rule in BASELINES)}",
            "no images of SOP and In-shop at hand",
            "cannot be tested here",
            "Loaders, training and evaluation run end to end on stand-ins in the official layouts; "
            "see below.",
        ),
        Claim(
            "Results are state of the art",
            "Section 1",
            "1NN: "
            + ", ".join(
                f"{name} {number(paper_column(name), '1nn', 0)}" for name in ("cub200", "cars196")
            ),
            ", ".join(
                f"{row.dataset} {row.accuracy('1nn'):.1f}"
                for row in rows
                if row.in_paper and row.run == MAIN_LOSS
            )
            or "not run",
            "cannot be tested here",
            "The backbone is smaller, the pictures are reduced (see results), training is short: "
            "level is not comparable, only what rules make of the same embedding.",
        ),
        Claim(
            "Accuracy is Recall@1",
            "Section 4",
            "",
            "a definition",
            "in part",
            "That of 1NN is; the other rules may answer with another class than that of the "
            "nearest point.",
        ),
    ]
    if text:
        best = [row.ece("ned") < min(map(row.ece, BASELINES)) for row in text]
        claims.append(
            Claim(
                "NED can be extended to other modalities",
                "Section 1",
                "not tried",
                ", ".join(
                    f"sentences: ECE {row.ece('ned'):.1f}, others "
                    f"{span(map(row.ece, BASELINES))}; accuracy {_lead(row):+.1f} points from "
                    "the best other"
                    for row in text
                ),
                judge(best),
                "Nothing in it is about images.",
            )
        )
    return claims


def figure_claims(rows: Sequence[Row]) -> list[Claim]:
    """Figures 1 and 2: reliability on cars, and accuracy against k."""
    curves = [row.curve("ned") for row in rows]
    peaks = [max(curve, key=lambda k, c=curve: c[k]) for curve in curves]  # type: ignore[misc]
    lost = [max(curve.values()) - _last(curve) for curve in curves]
    largest = max(curves[0])
    falls = [max(curve.values()) - _last(curve) for curve in (r.curve("knn") for r in rows)]
    better = [
        min(row.accuracy("dudani"), row.accuracy("gou")) > row.accuracy("knn") for row in rows
    ]
    swing = {rule: each(rows, lambda row, r=rule: _swing(row, r)) for rule in (*BASELINES, "ned")}  # type: ignore[misc]
    least = [
        swing["ned"][place] <= min(swing[rule][place] for rule in BASELINES)
        for place in range(len(rows))
    ]
    ahead = [
        _last(row.curve("ned")) > max(_last(row.curve(rule)) for rule in BASELINES) for row in rows
    ]
    return [
        *_reliability_claims(rows),
        Claim(
            "NED's accuracy grows with k, monotonically",
            "Figure 2",
            "in all four data sets",
            f"the peak is at k = {span(peaks, digits=0)}; by the largest k it has lost "
            f"{span(lost, digits=2)} points",
            judge([all(b >= a for a, b in pairwise(c[k] for k in sorted(c))) for c in curves]),
            "More neighbours bring the sum nearer to that of Theorem 1, but what is nearer to it "
            "need not be right more often; T, fitted for each k, changes, too.",
        ),
        Claim(
            "NED's accuracy varies little from some k on; the others' depends on k",
            "Figure 2",
            "",
            f"from k = 10 to {largest} NED's varies by {span(swing['ned'])} points, "
            + ", ".join(f"{title_of(rule)}'s by {span(swing[rule])}" for rule in BASELINES),
            judge(least),
            f"NED's varies least of all in {count(least)} rows.",
        ),
        Claim(
            "kNN gets worse with a larger k",
            "Figure 2",
            "",
            f"at k = {largest} it is {span(falls)} points below its best",
            judge([fall > 0 for fall in falls]),
            "Far neighbours count as much as near ones.",
        ),
        Claim(
            "Both weighted forms are better than kNN",
            "Figure 2",
            "",
            f"in {count(better)} rows at k = {rows[0].k}",
            judge(better),
            "Their weights fall with the distance, kNN's do not.",
        ),
        Claim(
            "Weights linear in the distance do poorly at large k, exponential ones are right",
            "Section 5, Theorem 1",
            "",
            f"at k = {largest} NED is ahead of all three in {count(ahead)} rows, at k = "
            f"{rows[0].k} in {sum(_lead(row) > 0 for row in rows)}",
            judge(ahead),
            f"At the best multiple of T, chosen on the queries, NED comes within {NEAR:g} points "
            "of linear weights or passes them in "
            f"{count([_widened(row) >= -NEAR for row in rows])} rows: there their width matters "
            "more than their shape.",
        ),
    ]


def _reliability_claims(rows: Sequence[Row]) -> list[Claim]:
    cells = list(impossible_cells())
    claims = []
    cars = find_row(rows, "cars196")
    if cars is not None:
        over = {rule: cars.overconfidence(rule) for rule in BASELINES}
        column = paper_column("cars196")
        errors = [f"{100 - number(column, rule, 0):.1f}" for rule in BASELINES]
        gap = cars.largest_gap("ned", LEAST_SHARE)
        claims += [
            Claim(
                "kNN and weighted kNN are overconfident on cars",
                "Figure 1",
                f"ECE {', '.join(str(number(column, rule, 1)) for rule in BASELINES)}, above its "
                f"error rates, {', '.join(errors)}",
                "confidence less accuracy: "
                + ", ".join(f"{title_of(rule)} {over[rule]:+.1f}" for rule in BASELINES)
                + " points",
                judge([value > 0 for value in over.values()]),
                f"An overconfident rule cannot have an ECE above 1 - accuracy, as {len(cells)} "
                "cells of the paper's tables have"
                + (
                    "; votes that many classes share claim too little."
                    if max(over.values()) < 0
                    else "."
                ),
            ),
            Claim(
                "All bins are well calibrated by NED on cars",
                "Figure 1",
                f"ECE {number(column, 'ned', 1)}%",
                f"largest gap of a bin: {gap:.1f} points; ECE {cars.ece('ned'):.1f}%",
                "confirmed" if gap <= GOOD_GAP else "not confirmed",
                f"Bins with {LEAST_SHARE:.0%} of the queries or more; well calibrated is up to "
                f"{GOOD_GAP:g} points.",
            ),
        ]
    pairs = [
        (
            row.accuracy_of_bins("ned", slice(SURE, None)),
            row.accuracy_of_bins("ned", slice(UNSURE)),
        )
        for row in rows
    ]
    both = [pair for pair in pairs if not any(map(isnan, pair))]
    if both:
        high, low = zip(*both, strict=True)
        claims.append(
            Claim(
                "NED tells where the model is probably wrong",
                "Section 5",
                "",
                f"right in {span(high)}% of the answers with confidence above "
                f"{100 * SURE / N_BINS:.0f}%, in {span(low)}% of those up to "
                f"{100 * UNSURE / N_BINS:.0f}%",
                judge([sure > unsure for sure, unsure in both]),
                f"The surer answers are right more often in "
                f"{count([sure > unsure for sure, unsure in both])} rows that have both.",
            )
        )
    return claims


def _widened(row: Row) -> float:
    """NED's accuracy at the best multiple of T less that of the best linear rule, in points."""
    place, sweep = _swept(row), row.sweep
    best = max(sweep["baseline_accuracy"][rule][place] for rule in BASELINES)
    return 100 * float(max(sweep["accuracy"][place]) - best)


def _lowest(row: Row, rule: str) -> float:
    return min(row.curve(rule, "ece").values())


def _swept(row: Row) -> int:
    ks = row.sweep["ks"]
    return int(ks.index(row.k)) if row.k in ks else len(ks) - 1


def _last(curve: dict[int, float]) -> float:
    return curve[max(curve)]


def _swing(row: Row, rule: str) -> float:
    values = [right for k, right in row.curve(rule).items() if k >= 10]  # noqa: PLR2004
    return max(values) - min(values)


def _lead(row: Row) -> float:
    """NED's accuracy less that of the most accurate other rule, in points."""
    return row.accuracy("ned") - row.accuracy(_best_other(row))


def _best_other(row: Row) -> str:
    return max(OTHERS, key=row.accuracy)


def _is_clear(row: Row) -> bool:
    """Whether that is more than chance explains."""
    gain = row.evaluation["ned_gain"][_best_other(row)]
    return bool(gain["low"] > 0 or gain["high"] < 0)


def _behind(rows: Sequence[Row]) -> str:
    """Where NED is the most accurate, and where not."""
    ahead = []
    for name in dict.fromkeys(row.dataset for row in rows):
        leads = [_lead(row) >= 0 for row in rows if row.dataset == name]
        ahead.append(f"{name} {sum(leads)} of {len(leads)}")
    text = f"Ahead or level: {', '.join(ahead)}"
    if min(map(_lead, rows)) < 0:
        text += "; elsewhere rules that let more neighbours decide are right more often (below)"
    return f"{text}."
